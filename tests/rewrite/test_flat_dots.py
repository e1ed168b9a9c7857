# SPDX-License-Identifier: Apache-2.0
"""dot-forms/flat: one summed dimension in place of several."""

from __future__ import annotations

import numpy as np
import pytest

import hloenv
from hloenv.policies import get_policy


def dot(left: str, right: str, result: str, attributes: str, kind: str = "f32") -> str:
    return f"""HloModule m

ENTRY main {{
  x = {kind}[{left}] parameter(0)
  y = {kind}[{right}] parameter(1)
  ROOT d = {kind}[{result}] dot(x, y), {attributes}
}}
"""


LEADING = "lhs_contracting_dims={0,1}, rhs_contracting_dims={0,1}"
BATCHED = (
    "lhs_batch_dims={0}, rhs_batch_dims={0}, "
    "lhs_contracting_dims={1,2}, rhs_contracting_dims={1,2}"
)


def captured(text: str) -> hloenv.Alternatives:
    module = hloenv.HloModule.from_text(text)
    return hloenv.HloEnv(module).get_alternatives("dot-forms")


def index_of(alternatives: hloenv.Alternatives, rule: str) -> int | None:
    """The choice of the only alternative with this rule."""
    rules = [choice.rule for each in alternatives for choice in each.choices]
    return rules.index(rule) if rule in rules else None


@pytest.mark.parametrize(
    ("left", "right", "result", "attributes", "flat"),
    [
        ("5,3,4", "5,3,2", "4,2", LEADING, "15,4"),
        (
            "3,4,5",
            "2,4,5",
            "3,2",
            "lhs_contracting_dims={1,2}, rhs_contracting_dims={1,2}",
            "3,20",
        ),
        ("2,5,3,4", "2,5,3,6", "2,4,6", BATCHED, "2,15,4"),
        (
            "5,3,2,4",
            "5,3,2,6",
            "4,6",
            "lhs_contracting_dims={0,1,2}, rhs_contracting_dims={0,1,2}",
            "30,4",
        ),
        # Named in another order, but the same in both.
        (
            "5,3,4",
            "5,3,2",
            "4,2",
            "lhs_contracting_dims={1,0}, rhs_contracting_dims={1,0}",
            "15,4",
        ),
    ],
)
@pytest.mark.parametrize("kind", ["f32", "s32", "c64", "bf16"])
def test_summed_dimensions_become_one(left, right, result, attributes, flat, kind):
    alternatives = captured(dot(left, right, result, attributes, kind))
    choice = index_of(alternatives, "flat")
    assert choice is not None
    decided = alternatives.apply([choice])
    assert f"{kind}[{flat}]" in decided.to_text()
    for record in hloenv.verify_alternatives(alternatives):
        assert record.relative <= (2e-2 if kind == "bf16" else 1e-5)


@pytest.mark.parametrize(
    ("left", "right", "result", "attributes"),
    [
        # Of one dimension; apart; in other orders; nothing would be transposed.
        ("5,4", "5,2", "4,2", "lhs_contracting_dims={0}, rhs_contracting_dims={0}"),
        (
            "5,4,3",
            "5,2,3",
            "4,2",
            "lhs_contracting_dims={0,2}, rhs_contracting_dims={0,2}",
        ),
        (
            "5,3,4",
            "3,5,2",
            "4,2",
            "lhs_contracting_dims={0,1}, rhs_contracting_dims={1,0}",
        ),
        (
            "4,5,3",
            "5,3,2",
            "4,2",
            "lhs_contracting_dims={1,2}, rhs_contracting_dims={0,1}",
        ),
    ],
)
def test_other_dots_stay(left, right, result, attributes):
    assert index_of(captured(dot(left, right, result, attributes)), "flat") is None


@pytest.mark.parametrize(
    ("sizes", "kind", "expected"),
    [
        ((64, 32, 36, 64), "f32", "flat"),
        ((2, 4, 8, 8), "f32", None),
        ((64, 32, 36, 64), "bf16", None),  # not measured
    ],
)
def test_the_policy_takes_large_ones(sizes, kind, expected):
    batch, time, rows, columns = sizes
    left, right = f"{batch},{time},{rows}", f"{batch},{time},{columns}"
    alternatives = captured(dot(left, right, f"{rows},{columns}", LEADING, kind))
    decisions = get_policy("known-forms")(alternatives)
    taken = [
        alternatives[index].choices[choice].rule
        for index, choice in enumerate(decisions.tolist())
        if choice > 0
    ]
    assert ("flat" in taken) == (expected == "flat")


def test_a_dot_and_its_transposition_get_one_form():
    text = """HloModule m

ENTRY main {
  x = f32[16,512,128] parameter(0)
  y = f32[16,512,64] parameter(1)
  d = f32[128,64] dot(x, y), lhs_contracting_dims={0,1}, rhs_contracting_dims={0,1}
  ROOT t = f32[64,128]{0,1} transpose(d), dimensions={1,0}
}
"""
    alternatives = captured(text)
    decisions = get_policy("known-forms")(alternatives)
    assert (decisions > 0).sum() == 1
    decided = alternatives.apply(np.maximum(decisions, 0))
    inputs = hloenv.random_inputs(alternatives.module)
    wanted = hloenv.interpret(alternatives.apply([0] * len(alternatives)), *inputs)
    outputs = hloenv.interpret(decided, *inputs)
    hloenv.compare_outputs(wanted, outputs, rtol=1e-4).check()
