# SPDX-License-Identifier: Apache-2.0
"""Rules that are no rules are errors of hloenv's."""

from __future__ import annotations

from typing import Any

import pytest

import hloenv
from hloenv.errors import HloEnvError
from hloenv.hlo.python_passes import remove_pass

EXAMPLE = """HloModule m

ENTRY e {
  x = s32[] parameter(0)
  y = s32[] parameter(1)
  ROOT z = s32[] add(x, y)
}
"""
ADD = "ROOT r = add(a, b)"
SIDE = {
    "none": None,
    "number": 3,
    "bytes": ADD.encode(),
    "list": [ADD],
    "empty": "",
    "root alone": "ROOT",
    "no operation": "ROOT r = ",
    "open": "ROOT r = add(a",
    "no opcode": "ROOT r = nosuch(a, b)",
    "zero byte": "\x00",
    "surrogate": "\ud800",
    "of itself": "ROOT r = add(r, r)",
    "no root": "r = add(a, b)",
    "two roots": f"{ADD}\nROOT s = add(a, b)",
    "defined twice": "x = add(a, b)\nx = add(a, b)\nROOT r = add(x, x)",
    "parameter": "ROOT r = parameter(0)",
    "deep": "ROOT r = " + "add(a, " * 5000,
    "parentheses": "(" * 5000,
}


def make(name: Any = "hostile", **changes: Any) -> Any:
    given = {"before": ADD, "after": "ROOT r = add(b, a)", "examples": [EXAMPLE]}
    try:
        return hloenv.rule(name, **given | changes)
    finally:
        remove_pass("hostile")


def test_the_rule_itself_is_right() -> None:
    assert make().name == "hostile"


@pytest.mark.parametrize("side", ["before", "after"])
@pytest.mark.parametrize("name", SIDE)
def test_sides_of_rules(name: str, side: str) -> None:
    with pytest.raises(HloEnvError):
        make(**{side: SIDE[name]})


@pytest.mark.parametrize(
    "name",
    ["", " ", "a b", "x\x00", "\ud800", "a:b", "a+b", "a\nb", "ä", 3, None, b"x"],
)
def test_names_of_rules(name: Any) -> None:
    with pytest.raises(HloEnvError, match="the name of a rule must be lower case"):
        make(name)


@pytest.mark.parametrize(
    "examples", [3, [3], [None], [""], [b"x"], ["HloModule"], [EXAMPLE, 3]], ids=str
)
def test_examples_of_rules(examples: Any) -> None:
    with pytest.raises(HloEnvError):
        make(examples=examples)


def fails(_: Any) -> bool:
    raise ZeroDivisionError


@pytest.mark.parametrize(
    "where",
    [
        3,
        "x",
        fails,
        lambda: True,
        lambda _: False,
        lambda match: match["zz"],
        lambda match: match["a"].ints("nothing"),
    ],
)
def test_conditions_of_rules(where: Any) -> None:
    with pytest.raises(HloEnvError):
        make(where=where)
