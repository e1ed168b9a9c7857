# SPDX-License-Identifier: Apache-2.0
"""What laws 4 and 5 take for rounding, and what they do not."""

from __future__ import annotations

import numpy as np
import pytest

import hloenv
from hloenv.fuzz.values import Expected, check_decisions
from hloenv.interpreter import interpret, measure_rounding
from hloenv.passes import Pipeline
from hloenv.rewrite import capture


def _module(body: str, *, helpers: str = "") -> hloenv.HloModule:
    return hloenv.HloModule.from_text(
        f"HloModule m\n{helpers}\nENTRY main {{\n{body}\n}}\n"
    )


SUM = """  x = f32[64]{0} parameter(0)
  y = f32[64]{0} parameter(1)
  z = f32[64]{0} parameter(2)
  xy = f32[64]{0} add(x, y)
  ROOT sum = f32[64]{0} add(xy, z)"""
SUM_OTHERWISE = SUM.replace("add(x, y)", "add(y, z)").replace("(xy, z)", "(x, xy)")

# The logistic map forgets the last bit of its start in some 25 steps.
MAP = """
body {
  s = (s32[], f32[8]{0}) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  one = s32[] constant(1)
  next = s32[] add(i, one)
  x = f32[8]{0} get-tuple-element(s), index=1
  r = f32[] constant(3.9)
  rs = f32[8]{0} broadcast(r), dimensions={}
  ones.1 = f32[] constant(1)
  ones = f32[8]{0} broadcast(ones.1), dimensions={}
  rest = f32[8]{0} subtract(ones, x)
  LINES
  ROOT t = (s32[], f32[8]{0}) tuple(next, y)
}

condition {
  s = (s32[], f32[8]{0}) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(STEPS)
  ROOT less = pred[] compare(i, n), direction=LT
}
"""
MAP_ENTRY = """  p = f32[8]{0} parameter(0)
  x = f32[8]{0} logistic(p)
  zero = s32[] constant(0)
  start = (s32[], f32[8]{0}) tuple(zero, x)
  end = (s32[], f32[8]{0}) while(start), condition=condition, body=body
  ROOT y = f32[8]{0} get-tuple-element(end), index=1"""


def _logistic_map(steps: int, *lines: str) -> hloenv.HloModule:
    helpers = MAP.replace("LINES", "\n  ".join(lines)).replace("STEPS", str(steps))
    return _module(MAP_ENTRY, helpers=helpers)


LEFT_FIRST = (
    "xr = f32[8]{0} multiply(rs, x)",
    "y = f32[8]{0} multiply(xr, rest)",
)
RIGHT_FIRST = (
    "xr = f32[8]{0} multiply(x, rest)",
    "y = f32[8]{0} multiply(rs, xr)",
)


def _verdict(original: hloenv.HloModule, other: hloenv.HloModule):
    expected = Expected(original, 0)
    return expected.compare(interpret(other, *expected.inputs))


@pytest.mark.parametrize(
    ("original", "other"),
    [
        pytest.param(_module(SUM), _module(SUM_OTHERWISE), id="order of a sum"),
        pytest.param(
            _logistic_map(4, *LEFT_FIRST), _logistic_map(4, *RIGHT_FIRST), id="loop"
        ),
        pytest.param(
            _module(
                "  x = f32[64]{0} parameter(0)\n"
                "  b = bf16[64]{0} convert(x)\n"
                "  y = f32[64]{0} convert(b)\n"
                "  ROOT z = f32[64]{0} multiply(y, y)"
            ),
            _module(
                "  x = f32[64]{0} parameter(0)\n  ROOT z = f32[64]{0} multiply(x, x)"
            ),
            id="a narrow type on the way",
        ),
        pytest.param(
            _module(
                "  x = f32[64]{0} parameter(0)\n"
                "  c = f32[64]{0} constant({" + ", ".join(["3"] * 64) + "})\n"
                "  t = f32[64]{0} divide(x, c)\n"
                "  f = f32[64]{0} multiply(t, c)\n"
                "  d = f32[64]{0} subtract(f, x)\n"
                "  ROOT big = f32[64]{0} divide(d, x)"
            ),
            _module(
                "  x = f32[64]{0} parameter(0)\n  ROOT d = f32[64]{0} subtract(x, x)"
            ),
            id="cancellation",
        ),
    ],
)
def test_rounding_is_no_difference(original, other):
    assert _verdict(original, other).is_clear


@pytest.mark.parametrize(
    ("original", "other"),
    [
        pytest.param(
            _module(SUM), _module(SUM.replace("(xy, z)", "(xy, y)")), id="operand"
        ),
        pytest.param(
            _module("  x = f32[64]{0} parameter(0)\n  ROOT y = f32[64]{0} sine(x)"),
            _module(
                "  x = f32[64]{0} parameter(0)\n"
                "  s = f32[64]{0} sine(x)\n"
                "  c = f32[] constant(1.0001)\n"
                "  cs = f32[64]{0} broadcast(c), dimensions={}\n"
                "  ROOT y = f32[64]{0} multiply(s, cs)"
            ),
            id="a factor near one",
        ),
        pytest.param(
            _module("  x = bf16[64]{0} parameter(0)\n  ROOT y = bf16[64]{0} abs(x)"),
            _module("  x = bf16[64]{0} parameter(0)\n  ROOT y = bf16[64]{0} copy(x)"),
            id="sign in a narrow type",
        ),
        pytest.param(
            _logistic_map(4, *LEFT_FIRST),
            _logistic_map(5, *LEFT_FIRST),
            id="one step more",
        ),
        pytest.param(
            _module("  x = s32[8]{0} parameter(0)\n  ROOT y = s32[8]{0} copy(x)"),
            _module("  x = s32[8]{0} parameter(0)\n  ROOT y = s32[8]{0} negate(x)"),
            id="integers",
        ),
    ],
)
def test_more_than_rounding_is_a_difference(original, other):
    assert _verdict(original, other).lines


def test_chaos_decides_nothing():
    original = _logistic_map(200, *LEFT_FIRST)
    verdict = _verdict(original, _logistic_map(200, *RIGHT_FIRST))
    assert not verdict.lines


def test_perturbations_are_repeatable_and_small():
    module = _module(SUM)
    inputs = Expected(module, 0).inputs
    (exact,) = interpret(module, *inputs)
    (moved,) = interpret(module, *inputs, perturb=1)
    (again,) = interpret(module, *inputs, perturb=1)
    (other,) = interpret(module, *inputs, perturb=2)
    np.testing.assert_array_equal(moved, again)
    assert (moved != exact).mean() > 0.3
    assert (moved != other).any()
    np.testing.assert_allclose(moved, exact, rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    "dtype", ["bf16", "f16", "f32", "f64", "c64", "c128", "f8e5m2", "f8e4m3fn"]
)
def test_every_type_is_perturbed(dtype):
    module = _module(
        f"  x = {dtype}[64]{{0}} parameter(0)\n  ROOT y = {dtype}[64]{{0}} add(x, x)"
    )
    inputs = Expected(module, 0).inputs
    (exact,) = interpret(module, *inputs)
    (moved,) = interpret(module, *inputs, perturb=1)
    assert (moved != exact).any()


def test_whole_numbers_and_moves_are_not_perturbed():
    module = _module(
        "  x = f32[64]{0} parameter(0)\n"
        "  f = f32[64]{0} floor(x)\n"
        "  n = s32[64]{0} convert(f)\n"
        "  g = f32[64]{0} convert(n)\n"
        "  ROOT r = f32[64]{0} reverse(g), dimensions={0}"
    )
    inputs = Expected(module, 0).inputs
    (exact,) = interpret(module, *inputs)
    (moved,) = interpret(module, *inputs, perturb=1)
    np.testing.assert_array_equal(moved, exact)


# x - x is no 0 where x is infinite.
INFINITE = """  x = f32[4]{0} parameter(0)
  zero = f32[] constant(0)
  zeros = f32[4]{0} broadcast(zero), dimensions={}
  big = f32[4]{0} divide(x, zeros)
  d = f32[4]{0} subtract(big, big)
  ROOT e = f32[4]{0} add(d, x)"""


def test_a_wrong_choice_is_found():
    module = _module(INFINITE)
    pipeline = Pipeline("fast", [hloenv.Pass("algsimp", enable_fast_math=True)])
    alternatives = capture(module, [pipeline])
    report = check_decisions(
        alternatives,
        module,
        [pipeline],
        Expected(module, 0),
        [alternatives.decisions_for("fast")],
        0,
    )
    laws = {each.partition(":")[0] for each in report.violations}
    assert laws == {"law 4", "law 5"}


def test_originals_move_as_far_as_rounding_takes_them():
    module = _module(
        MAP_ENTRY.replace("ROOT y", "y") + "\n  ROOT z = f32[8]{0} logistic(y)",
        helpers=MAP.replace("LINES", "\n  ".join(LEFT_FIRST)).replace("STEPS", "40"),
    )
    alternatives = hloenv.HloEnv(module).get_alternatives("logistic-expander")
    before, after = measure_rounding(
        alternatives, [0, 1], Expected(module, 0).inputs, num_runs=4
    )
    assert 0 < before[0] < 1e-5
    assert 0 < before[1] < 1e-5
    assert after[1] > 1e-3
