# SPDX-License-Identifier: Apache-2.0
"""Comparisons of a value with one picked from it: all of the old bits, or all new."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import hloenv
from hloenv import HloEnv, HloModule
from support.captures import REDUCERS

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
MAXIMUM = (
    f"HloModule maximum\n{REDUCERS}"
    + """
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
)

# As CLAMP, with a reader of the maximum that is no comparison.
READ_ELSEWHERE = CLAMP.replace(
    "ROOT t = (f32[256], f32[256]) tuple(s, q)",
    "k = f32[256] exponential(m)\n"
    "  ROOT t = (f32[256], f32[256], f32[256]) tuple(s, q, k)",
)

# As CLAMP, behind a barrier.
BARRIER = CLAMP.replace(
    "e = pred[256] compare(m, n)",
    "both = (f32[256], f32[256]) tuple(n, q)\n"
    "  held = (f32[256], f32[256]) opt-barrier(both)\n"
    "  late = f32[256] get-tuple-element(held), index=0\n"
    "  e = pred[256] compare(m, late)",
)

# As MAXIMUM, with the largest by a reduction that gives its index too.
ARGMAX = """HloModule argmax

largest {
  a = f32[] parameter(0)
  i = s32[] parameter(1)
  c = f32[] parameter(2)
  k = s32[] parameter(3)
  ge = pred[] compare(a, c), direction=GE
  v = f32[] select(ge, a, c)
  w = s32[] select(ge, i, k)
  ROOT t = (f32[], s32[]) tuple(v, w)
}

ENTRY main {
  x = f32[16,16] parameter(0)
  y = f32[16,16] parameter(1)
  z = f32[16,16] parameter(2)
  q = f32[16,16] divide(x, y)
  d = f32[16,16] divide(q, z)
  lowest = f32[] constant(-inf)
  none = s32[] constant(0)
  numbers = s32[16,16] iota(), iota_dimension=1
  r = (f32[16], s32[16]) reduce(d, numbers, lowest, none), dimensions={1}, to_apply=largest
  g = f32[16] get-tuple-element(r), index=0
  b = f32[16,16] broadcast(g), dimensions={0}
  low = f32[] constant(-100)
  lows = f32[16,16] broadcast(low), dimensions={}
  high = f32[] constant(100)
  highs = f32[16,16] broadcast(high), dimensions={}
  m = f32[16,16] maximum(d, lows)
  n = f32[16,16] minimum(m, highs)
  e = pred[16,16] compare(n, b), direction=EQ
  s = f32[16,16] select(e, highs, lows)
  ROOT out = (f32[16,16], f32[16,16]) tuple(s, q)
}
"""

# As CLAMP, by what a function makes of both.
FUNCTION = CLAMP.replace(
    "e = pred[256] compare(m, n)",
    "fm = f32[256] exponential(m)\n"
    "  fn = f32[256] exponential(n)\n"
    "  e = pred[256] compare(fm, fn)",
)

INTEGERS = CLAMP.replace("f32", "s32").replace("divide(x, y)", "add(x, y)")
INTEGERS = INTEGERS.replace("divide(q, z)", "subtract(q, z)")


def _inputs(module):
    rng = np.random.default_rng(0)
    return [
        rng.uniform(0.5, 1, spec.shape).astype(spec.dtype)
        for spec in module.input_specs()
    ]


def _check(text, alternatives, vectors):
    """Decisions give the outputs of the module."""
    module = HloModule.from_text(text)
    inputs = _inputs(module)
    want = hloenv.interpret(module, *inputs)
    for decisions in vectors:
        found = hloenv.interpret(alternatives.apply(decisions), *inputs)
        for one, other in zip(found, want, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-5, err_msg=str(decisions))


def _all(alternatives):
    return itertools.product(*map(range, alternatives.num_choices))


def _some(alternatives):
    rng = np.random.default_rng(0)
    return [rng.integers(0, alternatives.num_choices) for _ in range(100)]


@pytest.mark.parametrize(
    "text", [CLAMP, MAXIMUM, READ_ELSEWHERE, BARRIER, ARGMAX, FUNCTION]
)
@pytest.mark.parametrize("name", ["algsimp", "simplification", "general-simplify"])
def test_no_decisions_compare_old_bits_with_new(text, name):
    alternatives = HloEnv(text).get_alternatives(name)
    assert len(alternatives) > 0
    _check(text, alternatives, _all(alternatives))


# substitutions multiplies before the product of matrices, in place of after it.
SCALED = (
    f"HloModule scaled\n{REDUCERS}"
    + """
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
)


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
    alternatives = HloEnv(SCALED).get_alternatives(*names)
    assert "v" in {each.original for each in alternatives}
    _check(SCALED, alternatives, _some(alternatives))


# cse removes the second comparison: its use is then offered by one pass, the others
# by two.
TWICE = MAXIMUM.replace(
    "ROOT t = (f32[16,16], f32[16]) tuple(s, m)",
    "e2 = pred[16,16] compare(d, b), direction=EQ\n"
    "  other = f32[16,16] select(e2, zeros, q)\n"
    "  ROOT t = (f32[16,16], f32[16,16], f32[16]) tuple(s, other, m)",
)


def test_uses_that_two_passes_see_differently_are_not_split():
    both = hloenv.Pipeline("both", ["algsimp", "cse"])
    alternatives = HloEnv(TWICE).get_alternatives("algsimp", both)
    _check(TWICE, alternatives, _all(alternatives))


# algsimp replaces what reads the comparison, and substitutions what is compared.
NEGATED = SCALED.replace(
    "ROOT s = f32[16,16] select(e, v, zeros)",
    "two = f32[] constant(2)\n"
    "  twos = f32[16,16] broadcast(two), dimensions={}\n"
    "  l = f32[16,16] maximum(v, zeros)\n"
    "  h = f32[16,16] minimum(l, twos)\n"
    "  f = pred[16,16] compare(l, h), direction=EQ\n"
    "  other = pred[16,16] not(f)\n"
    "  s = f32[16,16] select(other, x, y)\n"
    "  k = f32[16,16] exponential(s)\n"
    "  ROOT t = (f32[16,16], pred[16,16]) tuple(k, f)",
)


@pytest.mark.parametrize(
    "names", list(itertools.permutations(["substitutions", "algsimp"]))
)
def test_a_reader_of_the_comparison_may_be_replaced_too(names):
    alternatives = HloEnv(NEGATED).get_alternatives(*names)
    assert "f" in {each.original for each in alternatives}
    _check(NEGATED, alternatives, _some(alternatives))


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
    assert len(site.uses) == 2
    assert "e" in {use.user for use in site.uses}


def test_integers_have_the_same_bits_anyway():
    alternatives = HloEnv(INTEGERS).get_alternatives("algsimp")
    assert "n" in {each.original for each in alternatives}
    assert "e" not in {each.original for each in alternatives}
