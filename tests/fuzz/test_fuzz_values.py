# SPDX-License-Identifier: Apache-2.0
"""What invariants 4 and 5 take for rounding, and what they do not."""

from __future__ import annotations

import numpy as np
import pytest

import hloenv
from hloenv.fuzz.comparison import num_partly_nan
from hloenv.fuzz.compiled import CompiledExpected, check_compiled
from hloenv.fuzz.examples import find_example
from hloenv.fuzz.expected import Expected
from hloenv.fuzz.invariants import Report
from hloenv.fuzz.values import check_decisions
from hloenv.hlo.passes import Pipeline
from hloenv.rewrite.alternatives import capture
from hloenv.rewrite.verify import measure_rounding
from hloenv.runtime.interpreter import interpret


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


# x - x is no 0 where x is infinite, as it is at the zeros of the constant.
INFINITE = """  x = f32[4]{0} parameter(0)
  c = f32[4]{0} constant(DIVISORS)
  big = f32[4]{0} divide(x, c)
  d = f32[4]{0} subtract(big, big)
  ROOT e = f32[4]{0} add(d, x)"""


def _check_fast_math(module: hloenv.HloModule) -> Report:
    pipeline = Pipeline("fast", [hloenv.Pass("algsimp", enable_fast_math=True)])
    alternatives = capture(module, [pipeline])
    return check_decisions(
        alternatives,
        module,
        [pipeline],
        Expected(module, 0),
        [alternatives.decisions_for("fast")],
    )


def test_a_wrong_choice_is_found():
    report = _check_fast_math(_module(INFINITE.replace("DIVISORS", "{0, 1, 2, 3}")))
    invariants = {each.partition(":")[0] for each in report.violations}
    assert invariants == {"invariant 4", "invariant 5"}


def test_outputs_that_are_nan_everywhere_are_not_compared():
    report = _check_fast_math(_module(INFINITE.replace("DIVISORS", "{0, 0, 0, 0}")))
    assert not report.violations
    assert "not compared: an output is NaN everywhere" in report.skipped
    assert "not compared: an original has no numbers" in report.skipped


@pytest.mark.parametrize(
    ("arrays", "number"),
    [
        pytest.param([], 0, id="no outputs"),
        pytest.param([np.array([np.nan, 1.0])], 1, id="both"),
        pytest.param([np.array([np.nan, np.nan])], 0, id="NaN only"),
        pytest.param([np.array([np.nan, np.inf])], 0, id="NaN and infinity"),
        pytest.param([np.array([1.0, np.inf])], 0, id="no NaN"),
        pytest.param([np.zeros((0, 3))], 0, id="empty"),
        pytest.param([np.array([0, 2**62]), np.array([True])], 0, id="integers"),
        pytest.param([np.array([1, complex(0, np.nan)])], 1, id="complex"),
        pytest.param([np.array([np.nan, 1], np.float16), np.ones(2)], 1, id="one of 2"),
        pytest.param([np.array([np.nan, np.nan, 1.0])] * 2, 2, id="two"),
    ],
)
def test_outputs_with_nan_and_numbers_are_counted(arrays, number):
    assert num_partly_nan(arrays) == number


# The logarithm of the first element is NaN where FIRST is -1; cse joins the sines.
PARTLY_NAN = """  x = f32[4]{0} parameter(0)
  c = f32[4]{0} constant({FIRST, 1, 2, 3})
  logarithm = f32[4]{0} log(c)
  one = f32[4]{0} sine(x)
  two = f32[4]{0} sine(x)
  product = f32[4]{0} multiply(one, two)
  sum = f32[4]{0} add(product, logarithm)
  ROOT both = (f32[4]{0}, f32[4]{0}) tuple(sum, product)"""
IS_PARTLY_NAN = "not compared: elements of an output are NaN in the original"


def _check_evaluated(module: hloenv.HloModule) -> Report:
    cse = Pipeline("cse", ["cse"])
    alternatives = capture(module, [cse])
    vectors = [alternatives.decisions_for("cse")]
    return check_decisions(alternatives, module, [cse], Expected(module, 0), vectors)


def _check_compiled(module: hloenv.HloModule) -> Report:
    alternatives = hloenv.HloEnv(module).get_alternatives("cse")
    vectors = [alternatives.decisions_for("cse")]
    return check_compiled(alternatives, CompiledExpected(module, 0), vectors)


@pytest.mark.parametrize(
    "check",
    [
        pytest.param(_check_evaluated, id="evaluated"),
        pytest.param(_check_compiled, id="compiled", marks=pytest.mark.compile),
    ],
)
@pytest.mark.parametrize(("first", "number"), [("-1", 1), ("1", 0)])
def test_outputs_with_nan_and_numbers_are_in_the_report(check, first, number):
    report = check(_module(PARTLY_NAN.replace("FIRST", first)))
    assert not report.violations
    assert report.num_alternatives == 1
    assert report.num_checks > 0
    assert report.skipped == (IS_PARTLY_NAN,) * number


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


# x * y * z: the product of the first two overflows, that of the last two does not.
PRODUCT = """  x = f32[4]{0} parameter(0)
  a = f32[] constant(1e30)
  as = f32[4]{0} broadcast(a), dimensions={}
  b = f32[] constant(1e-30)
  bs = f32[4]{0} broadcast(b), dimensions={}
  xa = f32[4]{0} multiply(x, as)
  xab = f32[4]{0} multiply(xa, bs)
  e = f32[4]{0} multiply(xab, as)
  ROOT r = f32[4]{0} multiply(e, bs)"""


def test_an_overflow_is_not_rounding():
    module = _module(PRODUCT)
    expected = Expected(module, 0)
    other = _module(
        PRODUCT.replace(
            "xab = f32[4]{0} multiply(xa, bs)", "xab = f32[4]{0} copy(xa)"
        ).replace(
            "e = f32[4]{0} multiply(xab, as)",
            "xaa = f32[4]{0} multiply(xab, as)\n  e = f32[4]{0} multiply(xaa, bs)",
        )
    )
    outputs = interpret(other, *expected.inputs)
    verdict = expected.compare(outputs)
    assert not np.isfinite(outputs[0]).any()
    assert verdict.overflows == verdict.lines
    # There float64 finds nothing wrong.
    assert expected.in_float64 is not None
    assert expected.in_float64.compare(other).is_clear


def _example_kind(body: str) -> tuple[str, int]:
    module = _module(body)
    example = find_example(module, lambda inputs: interpret(module, *inputs), 0)
    return example.kind, example.num_not_finite


def test_inputs_are_positive_where_only_those_give_numbers():
    kind, num_not_finite = _example_kind(
        "  x = f32[64]{0} parameter(0)\n"
        "  y = f32[64]{0} parameter(1)\n"
        "  a = f32[64]{0} abs(y)\n"
        "  m = f32[64]{0} multiply(x, a)\n"
        "  s = f32[64]{0} rsqrt(m)\n"
        "  ROOT r = f32[64]{0} multiply(s, y)"
    )
    assert kind in ("some positive", "others positive", "positive")
    assert num_not_finite == 0


def test_inputs_are_normal_where_those_give_numbers():
    assert _example_kind(SUM) == ("normal", 0)


def test_integers_are_in_their_range():
    module = _module("  x = s32[64]{0} parameter(0)\n  ROOT y = s32[64]{0} copy(x)")
    (x,) = Expected(module, 0, [(0, 100, 103)]).inputs
    assert set(x.tolist()) == {100, 101, 102, 103}


# In float64 there is nothing to convert, so the simplifier finds other rewrites.
CONVERTS = """  x = f32[8]{0} parameter(0)
  one = f32[] constant(1)
  ones = f32[8]{0} broadcast(one), dimensions={}
  xo = f32[8]{0} multiply(x, ones)
  b = bf16[8]{0} convert(xo)
  c = f32[8]{0} convert(b)
  zero = f32[] constant(0)
  zeros = f32[8]{0} broadcast(zero), dimensions={}
  ROOT r = f32[8]{0} add(c, zeros)"""


def test_float64_takes_the_rewrites_of_the_original_type():
    module = _module(CONVERTS)
    alternatives = hloenv.HloEnv(module).get_alternatives("algsimp")
    wide = hloenv.HloEnv(hloenv.upcast_to_float64(module)).get_alternatives("algsimp")
    assert len(wide) != len(alternatives)
    records = hloenv.verify_alternatives(alternatives, float64=True)
    assert len(records) == len(alternatives)
    assert max(record.relative for record in records) == 0


def test_float64_finds_a_wrong_choice():
    module = _module(INFINITE.replace("DIVISORS", "{0, 1, 2, 3}"))
    pipeline = Pipeline("fast", [hloenv.Pass("algsimp", enable_fast_math=True)])
    records = hloenv.verify_alternatives(capture(module, [pipeline]), float64=True)
    assert max(record.num_nans_lost for record in records) > 0


@pytest.mark.compile
def test_compiled_modules_are_compared():
    module = _module(SUM)
    alternatives = hloenv.HloEnv(module).get_alternatives("reassociate")
    decisions = alternatives.num_choices - 1
    right = check_compiled(alternatives, CompiledExpected(module, 0), [decisions])
    assert not right.violations
    assert right.num_checks == 1
    other = _module(SUM.replace("add(x, y)", "subtract(x, y)"))
    wrong = check_compiled(alternatives, CompiledExpected(other, 0), [decisions])
    assert wrong.violations


_SENSITIVE = """  x = f32[64] parameter(0)
  scale = f32[] constant(SCALE)
  scales = f32[64] broadcast(scale), dimensions={}
  scaled = f32[64] multiply(x, scales)
  wave = f32[64] sine(scaled)
  logarithm = f32[64] log(wave)
  one = f32[] constant(OFFSET)
  ones = f32[64] broadcast(one), dimensions={}
  zeros = f32[64] subtract(ones, ones)
  ordinary = f32[64] add(x, ones)
  same = f32[64] add(ordinary, zeros)
  ROOT both = (f32[64], f32[64]) tuple(logarithm, same)"""


@pytest.mark.compile
def test_compiled_outputs_that_one_ulp_moves_by_their_size_are_not_compared():
    def checked(scale, offset):
        other = _module(_SENSITIVE.replace("SCALE", scale).replace("OFFSET", offset))
        return check_compiled(alternatives, CompiledExpected(other, 0), [decisions])

    module = _module(_SENSITIVE.replace("SCALE", "1e12").replace("OFFSET", "1"))
    alternatives = hloenv.HloEnv(module).get_alternatives("algsimp")
    decisions = np.zeros(len(alternatives), np.int64)
    assert checked("1e12", "1").num_checks == 2
    report = checked("1.00001e12", "1")  # numbers where the other has NaN
    assert not report.violations
    assert report.num_checks == 1
    assert any("sensitive to 1 ulp" in reason for reason in report.skipped)
    # The other output is compared.
    assert checked("1.00001e12", "2").violations
