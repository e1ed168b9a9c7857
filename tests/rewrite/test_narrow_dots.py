# SPDX-License-Identifier: Apache-2.0
"""dot-forms/narrow and truth: products of bytes, of converted bytes and truth values."""

from __future__ import annotations

import numpy as np
import pytest

import hloenv
from hloenv.policies import get_policy
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
    executable = hloenv.compile(decided, engine=engine, isolate=False)
    rng = np.random.default_rng(0)
    for low, high in ((-128, 128), (-128, -127), (127, 128)):
        x = rng.integers(low, high, (5, 70)).astype(TYPES[left])
        y = rng.integers(low, high, (70, 6)).astype(TYPES[right])
        (found,) = executable(x, y)
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


def truth_text(left: str, right: str, result: str, numbers: str) -> str:
    return f"""
HloModule truth

ENTRY main {{
  x = pred[{left}] parameter(0)
  y = pred[{right}] parameter(1)
  ROOT product = pred[{result}] dot(x, y), {numbers}
}}
"""


@pytest.mark.compile
@pytest.mark.parametrize("engine", ["wheel", "jaxlib"])
@pytest.mark.parametrize("share", [0.0, 0.02, 0.5, 1.0])
def test_products_of_truth_values_are_exact(share, engine):
    """In another order of dimensions, and of matrices one after the other."""
    rng = np.random.default_rng(0)
    for shapes, numbers, subscripts in (
        (
            ("70,65", "70,80", "65,80"),
            "lhs_contracting_dims={0}, rhs_contracting_dims={0}",
            "ka,kb->ab",
        ),
        (
            ("3,9,70", "3,70,8", "3,9,8"),
            "lhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_batch_dims={0}, "
            "rhs_contracting_dims={1}",
            "zak,zkb->zab",
        ),
        (("70", "70", ""), "lhs_contracting_dims={0}, rhs_contracting_dims={0}", "k,k"),
    ):
        alternatives = capture(truth_text(*shapes, numbers), "dot-forms")
        decided = alternatives.apply(decisions_for_rule(alternatives, "truth"))
        x, y = (
            rng.random([int(each) for each in shape.split(",")]) < share
            for shape in shapes[:2]
        )
        (found,) = hloenv.compile(decided, engine=engine, isolate=False)(x, y)
        wanted = np.einsum(subscripts, x.astype(int), y.astype(int)) > 0
        np.testing.assert_array_equal(np.asarray(found), wanted)


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [((64, 64, 64), True), ((64, 63, 64), False), ((1000, 1000, 1), False)],
)
def test_truth_values_by_size(sizes, expected):
    rows, terms, columns = sizes
    text = truth_text(
        *(f"{rows},{terms}", f"{terms},{columns}", f"{rows},{columns}"),
        "lhs_contracting_dims={1}, rhs_contracting_dims={0}",
    )
    alternatives = capture(text, "dot-forms")
    decisions = get_policy("known-forms")(alternatives)
    assert bool((decisions > 0).any()) == expected
