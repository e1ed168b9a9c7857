# SPDX-License-Identifier: Apache-2.0
"""Comparisons of a value with one picked from it: all of the old bits, or all new."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import hloenv
from hloenv import HloEnv, HloModule

# The derivative of a clamp. algsimp divides once, which rounds differently, and makes
# minimum and maximum a clamp.
CLAMP = """HloModule clamp

ENTRY main {
  x = f32[256] parameter(0)
  y = f32[256] parameter(1)
  z = f32[256] parameter(2)
  q = f32[256] divide(x, y)
  d = f32[256] divide(q, z)
  one = f32[] constant(1)
  minus = f32[] constant(-1)
  high = f32[256] broadcast(one), dimensions={}
  low = f32[256] broadcast(minus), dimensions={}
  m = f32[256] maximum(d, low)
  n = f32[256] minimum(m, high)
  e = pred[256] compare(m, n), direction=EQ
  s = f32[256] select(e, high, low)
  ROOT t = (f32[256], f32[256]) tuple(s, q)
}
"""

# Both sides read one new value, at uses that are one decision.
MAXIMUM = """HloModule maximum

max {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT larger = f32[] maximum(a, b)
}

ENTRY main {
  x = f32[16,16] parameter(0)
  y = f32[16,16] parameter(1)
  z = f32[16,16] parameter(2)
  q = f32[16,16] divide(x, y)
  d = f32[16,16] divide(q, z)
  lowest = f32[] constant(-inf)
  m = f32[16] reduce(d, lowest), dimensions={1}, to_apply=max
  b = f32[16,16] broadcast(m), dimensions={0}
  e = pred[16,16] compare(d, b), direction=EQ
  zero = f32[] constant(0)
  zeros = f32[16,16] broadcast(zero), dimensions={}
  s = f32[16,16] select(e, q, zeros)
  ROOT t = (f32[16,16], f32[16]) tuple(s, m)
}
"""

# As CLAMP, with a reader of the maximum that is no comparison.
READ_ELSEWHERE = CLAMP.replace(
    "ROOT t = (f32[256], f32[256]) tuple(s, q)",
    "k = f32[256] exponential(m)\n"
    "  ROOT t = (f32[256], f32[256], f32[256]) tuple(s, q, k)",
)

INTEGERS = (CLAMP.replace("f32", "s32").replace("divide(x, y)", "add(x, y)")).replace(
    "divide(q, z)", "subtract(q, z)"
)


def _inputs(module):
    rng = np.random.default_rng(0)
    return [
        rng.uniform(0.5, 1, spec.shape).astype(spec.dtype)
        for spec in module.input_specs()
    ]


@pytest.mark.parametrize("text", [CLAMP, MAXIMUM, READ_ELSEWHERE])
@pytest.mark.parametrize("name", ["algsimp", "simplification", "general-simplify"])
def test_no_decisions_compare_old_bits_with_new(text, name):
    module = HloModule.from_text(text)
    inputs = _inputs(module)
    alternatives = HloEnv(module).get_alternatives(name)
    assert len(alternatives) > 0
    want = hloenv.interpret(module, *inputs)
    for decisions in itertools.product(*map(range, alternatives.num_choices)):
        found = hloenv.interpret(alternatives.apply(decisions), *inputs)
        for one, other in zip(found, want, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-5, err_msg=str(decisions))


# substitutions multiplies before the product of matrices, in place of after it.
SCALED = """HloModule scaled

max {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT larger = f32[] maximum(a, b)
}

ENTRY main {
  x = f32[16,16] parameter(0)
  y = f32[16,16] parameter(1)
  p = f32[16,16] dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  third = f32[] constant(0.333333343)
  thirds = f32[16,16] broadcast(third), dimensions={}
  v = f32[16,16] multiply(p, thirds)
  lowest = f32[] constant(-inf)
  m = f32[16] reduce(v, lowest), dimensions={1}, to_apply=max
  b = f32[16,16] broadcast(m), dimensions={0}
  e = pred[16,16] compare(v, b), direction=GE
  zero = f32[] constant(0)
  zeros = f32[16,16] broadcast(zero), dimensions={}
  ROOT s = f32[16,16] select(e, v, zeros)
}
"""


@pytest.mark.filterwarnings("ignore::hloenv.PositionWarning")
@pytest.mark.parametrize(
    "names",
    [
        ("substitutions",),
        ("substitutions", "reduce-forms"),
        ("substitutions", "general-fusion"),
        ("substitutions", "tree_reduction_rewriter"),
        ("substitutions", "reduce-forms", "general-fusion", "algsimp"),
    ],
)
def test_decisions_of_several_passes_do_not_either(names):
    module = HloModule.from_text(SCALED)
    inputs = _inputs(module)
    alternatives = HloEnv(module).get_alternatives(*names)
    assert "v" in {each.original for each in alternatives}
    (want,) = hloenv.interpret(module, *inputs)
    rng = np.random.default_rng(0)
    for _ in range(100):
        decisions = rng.integers(0, alternatives.num_choices)
        (found,) = hloenv.interpret(alternatives.apply(decisions), *inputs)
        np.testing.assert_allclose(found, want, rtol=1e-5, err_msg=str(decisions))


def test_a_form_is_offered_where_nothing_else_replaces_what_it_reads():
    alone = HloEnv(SCALED).get_alternatives("reduce-forms")
    assert "m" in {each.original for each in alone}
    beside = HloEnv(SCALED).get_alternatives("reduce-forms", "substitutions")
    assert "m" not in {each.original for each in beside}


def test_the_rounding_makes_the_difference():
    # Else the tests above would pass whatever the decisions are.
    module = HloModule.from_text(CLAMP)
    x, y, z = _inputs(module)
    assert (x / y / z != x / (y * z)).any()


def test_the_comparison_is_the_decision():
    alternatives = HloEnv(CLAMP).get_alternatives("algsimp")
    assert [each.original for each in alternatives] == ["e"]
    (choice,) = alternatives[0].choices[1:]
    assert choice.opcode == "compare"
    assert "clamp" in choice.instructions


def test_one_decision_for_both_sides_stays_where_it_is():
    alternatives = HloEnv(MAXIMUM).get_alternatives("algsimp")
    assert [each.original for each in alternatives] == ["d"]
    (site,) = alternatives[0].sites
    assert {use.user for use in site.uses} == {"m", "e"}


def test_integers_have_the_same_bits_anyway():
    alternatives = HloEnv(INTEGERS).get_alternatives("algsimp")
    assert "n" in {each.original for each in alternatives}
    assert "e" not in {each.original for each in alternatives}
