# SPDX-License-Identifier: Apache-2.0
"""Rewrite rules and passes in Python."""

from __future__ import annotations

from .check import check_rule
from .function import FunctionPass, register_pass
from .matcher import Match
from .passes import RulePass
from .pattern import RuleError
from .registering import rule
from .rule import Rule
from .subject import Value

__all__ = [
    "FunctionPass",
    "Match",
    "Rule",
    "RuleError",
    "RulePass",
    "Value",
    "check_rule",
    "register_pass",
    "rule",
]
