# SPDX-License-Identifier: Apache-2.0
"""TASO's families of substitutions: each rule, before and after."""

from __future__ import annotations

import pytest

from hloenv import HloModule, list_passes
from hloenv.hlo.text import parse_text
from hloenv.rules import check_rule
from hloenv.rules.check import capture_rules, single_decisions
from hloenv.rules.sets import SUBSTITUTIONS
from rules.cases import CASES, module_of

RULES = {rule.name: rule for rule in SUBSTITUTIONS.rules}


def expression(module: HloModule) -> str:
    """What the entry computes, as one expression without attributes."""
    text = parse_text(module.to_text())
    instructions = text.computations[text.entry].instructions

    def of(index: int) -> str:
        each = instructions[index]
        if each.opcode == "parameter":
            return each.name
        return f"{each.opcode}({', '.join(map(of, each.operands))})"

    return of(text.computations[text.entry].root)


def test_every_rule_has_a_case() -> None:
    assert set(CASES) == set(RULES)


@pytest.mark.parametrize("name", CASES)
def test_a_rule_makes_of_its_case_what_is_written_there(name) -> None:
    text, wanted = CASES[name]
    alternatives = capture_rules(HloModule.from_text(module_of(text)), [RULES[name]])
    results = {
        expression(alternatives.apply(decisions))
        for decisions in single_decisions(alternatives)
    }
    assert wanted in results
    assert expression(alternatives.apply(alternatives.reject_all())) == expression(
        HloModule.from_text(module_of(text))
    )


@pytest.mark.parametrize("name", CASES)
def test_a_rule_gives_equal_integers(name) -> None:
    assert check_rule(RULES[name], module_of(CASES[name][0])) >= 24


def test_the_substitutions_are_a_pass_with_an_option_for_each_rule() -> None:
    assert "substitutions" in list_passes()
    options = {each.name.replace("_", "-") for each in SUBSTITUTIONS.info.options}
    assert options == set(RULES)
