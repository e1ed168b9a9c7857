# SPDX-License-Identifier: Apache-2.0
"""Substitutions of a module, and the searches that they are compared by."""

from __future__ import annotations

from .candidates import DEFAULT_PASSES, Candidate, Expander, Expansion
from .saturation import Saturated, SaturationLimits, saturate
from .search import Budget, Substituted, backtracking, greedy
from .tree_search import TreeSearch, saturate_by_tree_search

__all__ = [
    "DEFAULT_PASSES",
    "Budget",
    "Candidate",
    "Expander",
    "Expansion",
    "Saturated",
    "SaturationLimits",
    "Substituted",
    "TreeSearch",
    "backtracking",
    "greedy",
    "saturate",
    "saturate_by_tree_search",
]
