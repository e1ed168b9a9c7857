# SPDX-License-Identifier: Apache-2.0
"""The policy known-forms on sorts."""

from __future__ import annotations

import pytest

from hloenv.policies import get_policy
from support.captures import capture, rules
from support.forms import form_of

TEXT = """HloModule m

less {
  a = s32[] parameter(0)
  b = s32[] parameter(1)
  p = f32[] parameter(2)
  q = f32[] parameter(3)
  ROOT c = pred[] compare(a, b), direction=LT
}

ENTRY main {
  x = s32[SHAPE] parameter(0)
  y = f32[SHAPE] parameter(1)
  s = (s32[SHAPE], f32[SHAPE]) sort(x, y), dimensions={LAST}, is_stable=true,
    to_apply=less
  ROOT z = f32[SHAPE] get-tuple-element(s), index=1
}
"""


def pairs(*shape: int) -> str:
    """A module that sorts pairs of numbers by the first one, and has the second one."""
    text = TEXT.replace("SHAPE", ",".join(map(str, shape)))
    return text.replace("LAST", str(len(shape) - 1))


@pytest.mark.parametrize(
    ("count", "expected"),
    [
        *((32, "packed"), (31, None)),
        *((64, "packed"), (65, None), (128, None), (129, "packed")),
    ],
)
def test_sorts(count, expected):
    assert form_of(pairs(count), "sort-forms") == expected


@pytest.mark.parametrize(
    ("rows", "length", "expected"),
    [(1024, 8, "network"), (1023, 8, "packed"), (1024, 17, "packed")],
)
def test_short_sorts(rows, length, expected):
    assert form_of(pairs(rows, length), "sort-forms") == expected


def test_one_form_of_a_sort_of_which_both_results_are_read():
    text = pairs(2048, 8).replace(
        "  ROOT z =", "  k = s32[2048,8] get-tuple-element(s), index=0\n  z ="
    )
    both = "(s32[2048,8], f32[2048,8])"
    text = text[:-2] + f"  ROOT t = {both} tuple(k, z)\n}}\n"
    alternatives = capture(text, "sort-forms")
    assert rules(alternatives) == ["packed", "network"]
    assert get_policy("known-forms")(alternatives).tolist() == [-1, 1]


@pytest.mark.parametrize(("count", "expected"), [(32, 1), (33, -1)])
def test_networks_of_many_sorts_would_take_long_to_compile(count, expected):
    shape = "s32[1024,8]"
    sorts = "".join(
        f"  sorted{i} = {shape} sort(x{i}), dimensions={{1}}, to_apply=less\n"
        f"  x{i + 1} = {shape} negate(sorted{i})\n"
        for i in range(count)
    )
    text = f"""HloModule m

less {{
  a = s32[] parameter(0)
  b = s32[] parameter(1)
  ROOT c = pred[] compare(a, b), direction=LT
}}

ENTRY main {{
  x0 = {shape} parameter(0)
{sorts}  ROOT t = {shape} copy(x{count})
}}
"""
    alternatives = capture(text, "sort-forms")
    assert rules(alternatives) == ["network"] * count
    assert set(get_policy("known-forms")(alternatives).tolist()) == {expected}
