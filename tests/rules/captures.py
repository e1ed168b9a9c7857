# SPDX-License-Identifier: Apache-2.0
"""Alternatives of rules that belong to no pass."""

from __future__ import annotations

from collections.abc import Sequence

from hloenv import Alternatives, HloModule
from hloenv.rules import Rule
from hloenv.rules.check import capture_proposals
from hloenv.rules.passes import to_proposals
from hloenv.rules.subject import Subject


def capture_rules(module: HloModule, rules: Sequence[Rule]) -> Alternatives:
    """The alternatives of some rules."""
    subject = Subject(module)
    found = [each for rule in rules for each in rule.replacements(subject)]
    return capture_proposals(module, to_proposals(found))
