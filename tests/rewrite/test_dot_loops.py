# SPDX-License-Identifier: Apache-2.0
"""dot-forms: loops over batch dimensions that are inside of matrices in memory."""

from __future__ import annotations

import numpy as np
import pytest

import hloenv

WEIGHTS = """HloModule weights

ENTRY main {
  q = f32[2,3,4,8] parameter(0)
  k = f32[2,20,4,8] parameter(1)
  ROOT d = f32[2,4,3,20] dot(q, k), lhs_batch_dims={0,2}, rhs_batch_dims={0,2},
    lhs_contracting_dims={3}, rhs_contracting_dims={3}
}
"""
VALUES = """HloModule values

ENTRY main {
  v = f32[2,20,4,8] parameter(0)
  p = f32[2,4,1,20] parameter(1)
  ROOT d = f32[2,4,8,1] dot(v, p), lhs_batch_dims={0,2}, rhs_batch_dims={0,1},
    lhs_contracting_dims={1}, rhs_contracting_dims={3}
}
"""
# A name, its text, and the equation of the same product.
DOTS = {
    "weights": (WEIGHTS, "bqhd,bkhd->bhqk"),
    "values": (VALUES, "bkhd,bhqk->bhdq"),
    "one sequence": (WEIGHTS.replace("[2,", "[1,"), "bqhd,bkhd->bhqk"),
    "the second batch dimension first": (
        WEIGHTS.replace("_batch_dims={0,2}", "_batch_dims={2,0}").replace(
            "d = f32[2,4", "d = f32[4,2"
        ),
        "bqhd,bkhd->hbqk",
    ),
}


def captured(text: str) -> hloenv.Alternatives:
    module = hloenv.HloModule.from_text(text)
    return hloenv.HloEnv(module).get_alternatives("dot-forms")


def looped(text: str) -> hloenv.HloModule | None:
    """The module with the loop, if it is offered."""
    alternatives = captured(text)
    for each in alternatives:
        rules = [choice.rule for choice in each.choices]
        if "batch_loop" in rules:
            decisions = [0] * len(alternatives)
            decisions[each.index] = rules.index("batch_loop")
            return alternatives.apply(decisions)
    return None


@pytest.mark.parametrize("name", DOTS)
def test_the_loop_computes_the_same(name):
    text, equation = DOTS[name]
    decided = looped(text)
    assert decided is not None
    assert decided.opcode_counts()["while"] == 1
    inputs = hloenv.random_inputs(decided)
    (output,) = hloenv.interpret(decided, *inputs)
    np.testing.assert_allclose(
        output, np.einsum(equation, *inputs), rtol=1e-5, atol=1e-5
    )
    for record in hloenv.verify_alternatives(captured(text)):
        assert record.relative <= 1e-5


@pytest.mark.parametrize("kind", ["f64", "s32", "c64", "bf16"])
def test_other_types(kind):
    for record in hloenv.verify_alternatives(captured(WEIGHTS.replace("f32", kind))):
        assert record.relative <= (2e-2 if kind == "bf16" else 1e-4)


@pytest.mark.compile
@pytest.mark.parametrize("name", DOTS)
def test_the_loop_compiles(name):
    text, equation = DOTS[name]
    decided = looped(text)
    inputs = hloenv.random_inputs(decided)
    (output,) = hloenv.compile(decided, isolate=False)(*inputs)
    np.testing.assert_allclose(
        output, np.einsum(equation, *inputs), rtol=1e-5, atol=1e-5
    )


@pytest.mark.parametrize(
    "text",
    [
        # Many rows.
        WEIGHTS.replace("[2,3,4,8]", "[2,17,4,8]").replace("4,3,20]", "4,17,20]"),
        # Matrices one after the other.
        WEIGHTS.replace("k = f32[2,20,4,8]", "k = f32[2,4,20,8]").replace(
            "rhs_batch_dims={0,2}", "rhs_batch_dims={0,1}"
        ),
        # One head.
        WEIGHTS.replace(",4,8]", ",1,8]").replace("[2,4,3", "[2,1,3"),
        # No batch.
        """HloModule plain

ENTRY main {
  x = f32[3,8] parameter(0)
  w = f32[20,8] parameter(1)
  ROOT d = f32[3,20] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={1}
}
""",
        WEIGHTS.replace("20,4,8]", "0,4,8]").replace("3,20]", "3,0]"),
        WEIGHTS.replace("k = f32[2,20", "k = f32[2,<=20").replace("3,20]", "3,<=20]"),
    ],
)
def test_not_offered(text):
    assert looped(text) is None


def test_the_policy_takes_loops_over_large_matrices():
    policy = hloenv.policies.get_policy("known-forms")

    def taken(text: str) -> str | None:
        alternatives = captured(text)
        (choice,) = policy(alternatives)
        return alternatives[0].choices[choice].rule if choice > 0 else None

    assert taken(WEIGHTS) is None
    large = WEIGHTS.replace("20,4,8]", "512,12,64]").replace("3,4,8]", "1,12,64]")
    assert taken(large.replace("4,3,20]", "12,1,512]")) == "batch_loop"
