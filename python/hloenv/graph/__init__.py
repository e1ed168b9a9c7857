# SPDX-License-Identifier: Apache-2.0
"""A module or its alternatives as arrays, and conversions for other tools."""

from __future__ import annotations

from .convert import to_pyg
from .dot import to_dot
from .export import to_json
from .hlo_graph import HloGraph, dtypes, opcodes
from .model_explorer import to_model_explorer
from .networkx import to_networkx

__all__ = [
    "HloGraph",
    "dtypes",
    "opcodes",
    "to_dot",
    "to_json",
    "to_model_explorer",
    "to_networkx",
    "to_pyg",
]
