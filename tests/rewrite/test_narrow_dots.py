# SPDX-License-Identifier: Apache-2.0
"""dot-forms/narrow: products of bytes for products of converted bytes."""

from __future__ import annotations

import numpy as np
import pytest

import hloenv
from support.captures import capture, decisions_for_rule, rules

TEXT = """
HloModule narrow

ENTRY main {{
  x = {left}[5,70] parameter(0)
  y = {right}[70,6] parameter(1)
  wide = {type}[5,70] convert(x)
  other = {type}[70,6] convert(y)
  ROOT product = {type}[5,6] dot(wide, other),
    lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
}}
"""
TYPES = {"s8": np.int8, "pred": np.bool_, "u8": np.uint8, "s16": np.int16}


@pytest.mark.compile
@pytest.mark.parametrize("engine", ["wheel", "jaxlib"])
@pytest.mark.parametrize("right", ["s8", "pred"])
@pytest.mark.parametrize("left", ["s8", "pred"])
def test_sums_are_exact(left, right, engine):
    alternatives = capture(TEXT.format(left=left, right=right, type="s32"), "dot-forms")
    assert "narrow" in rules(alternatives)
    decided = alternatives.apply(decisions_for_rule(alternatives, "narrow"))
    assert decided.opcode_counts()["dot"] == 1
    rng = np.random.default_rng(0)
    for low, high in ((-128, 128), (-128, -127), (127, 128)):
        x = rng.integers(low, high, (5, 70)).astype(TYPES[left])
        y = rng.integers(low, high, (70, 6)).astype(TYPES[right])
        (found,) = hloenv.compile(decided, engine=engine)(x, y)
        wanted = x.astype(np.int32) @ y.astype(np.int32)
        np.testing.assert_array_equal(np.asarray(found), wanted)


@pytest.mark.parametrize(
    ("left", "right", "kind"),
    [
        ("s8", "u8", "s32"),
        ("s16", "s8", "s32"),
        ("s8", "s8", "s16"),
        ("s8", "s8", "f32"),
    ],
)
def test_other_types_stay(left, right, kind):
    alternatives = capture(TEXT.format(left=left, right=right, type=kind), "dot-forms")
    assert "narrow" not in rules(alternatives)
