# SPDX-License-Identifier: Apache-2.0
"""Seeded inputs, and comparison of outputs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import ml_dtypes
import numpy as np
import pytest

import hloenv
from hloenv.runtime import moved
from hloenv.runtime.compare import compare_outputs
from hloenv.runtime.random_inputs import perturbed, random_inputs
from support.modules import ADD, entry_of

if TYPE_CHECKING:
    from support.run_child import RunChild


# Inputs


def test_random_inputs_are_the_same_in_every_process(run_child: RunChild):
    code = f"""
from hloenv.runtime.random_inputs import random_inputs
print([each.tobytes().hex() for each in random_inputs({ADD!r}, seed=5)])
"""
    here = [each.tobytes().hex() for each in random_inputs(ADD, seed=5)]
    assert run_child(code).stdout.strip() == str(here)
    assert random_inputs(ADD, seed=6)[0].tobytes() != random_inputs(ADD)[0].tobytes()


def test_integers_that_index_are_valid_indices():
    text = entry_of(
        "table = f32[3,50] parameter(0)\n  i = s32[200] parameter(1)\n"
        "  j = s32[] parameter(2)\n  label = s32[200] parameter(3)\n"
        "  free = s32[200] parameter(4)",
        """k = s32[200,1] reshape(i)
        rows = f32[200,50] gather(table, k), offset_dims={1}, \
collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1, \
slice_sizes={1,50}
        zero = s32[] constant(0)
        cut = f32[3,10] dynamic-slice(table, zero, j), dynamic_slice_sizes={3,10}
        iota = s32[200,100] iota(), iota_dimension=1
        wide = s32[200,100] broadcast(label), dimensions={0}
        hot = pred[200,100] compare(wide, iota), direction=EQ
        ROOT r = (f32[200,50], f32[3,10], pred[200,100], s32[200]) \
tuple(rows, cut, hot, free)""",
    )
    _, i, j, label, free = random_inputs(text)
    assert (i.min(), i.max()) == (0, 2)
    assert 0 <= j <= 40
    assert 50 < label.max() < 100
    assert (free.min(), free.max()) == (0, 7)


# Comparing


def test_what_a_root_or_logarithm_is_taken_of_is_positive() -> None:
    text = """HloModule step

    root {
      u = f32[8] parameter(0)
      ROOT r = f32[8] rsqrt(u)
    }

    ENTRY main {
      x = f32[8] parameter(0)
      variance = f32[8] parameter(1)
      moment = f32[8] parameter(2)
      gradient = f32[8] parameter(3)
      both = (f32[8], f32[8]) parameter(4)
      share = f32[8] get-tuple-element(both), index=1
      few = f32[] constant(0.001)
      decay = f32[8] broadcast(few), dimensions={}
      sum = f32[8] add(variance, decay)
      scale = f32[8] call(sum), to_apply=root
      kept = f32[8] multiply(moment, decay)
      square = f32[8] multiply(gradient, gradient)
      next = f32[8] add(kept, square)
      size = f32[8] sqrt(next)
      information = f32[8] log(share)
      below = f32[] constant(-2)
      negative = f32[8] broadcast(below), dimensions={}
      debt = f32[8] parameter(5)
      owed = f32[8] multiply(debt, negative)
      mean = f32[8] maximum(owed, decay)
      deviation = f32[8] sqrt(mean)
      scaled = f32[8] multiply(x, scale)
      ROOT t = (f32[8], f32[8], f32[8], f32[8])
        tuple(scaled, size, information, deviation)
    }"""
    inputs = random_inputs(text)
    # x, variance, moment, gradient, the two of the tuple, debt
    are_positive = [bool((each > 0).all()) for each in inputs]
    assert are_positive == [False, True, True, False, False, True, False]
    for each in hloenv.interpret(hloenv.HloModule.from_text(text), *inputs):
        assert np.isfinite(each).all()


def test_outputs_that_are_all_nan_are_not_compared():
    nan, one, none = np.full(3, np.nan), np.ones(2), np.zeros((0,))
    all_nan = compare_outputs([nan, none], [nan.copy(), none])
    assert (all_nan.is_equal, all_nan.rests_on_nan, all_nan.num_nan) == (True, True, 1)
    with pytest.raises(hloenv.errors.NotComparedError, match="nothing was compared"):
        all_nan.check()
    some = compare_outputs([nan, one], [nan, one])
    assert (some.rests_on_nan, some.num_nan) == (False, 1)
    some.check()
    assert not compare_outputs([none], [none]).rests_on_nan
    assert not compare_outputs([np.arange(3)], [np.arange(3)]).rests_on_nan
    partly = np.array([np.nan, 1.0])
    assert compare_outputs([partly], [partly]).num_nan == 0


def test_nan_equals_nan_and_nothing_else():
    nan, one = np.array([1, np.nan]), np.array([1.0, 1.0])
    assert compare_outputs([nan], [nan.copy()])
    result = compare_outputs([nan, one], [nan, nan])
    assert not result.is_equal
    assert (result.leaf, result.index, result.expected) == (1, (1,), "1.0")
    with pytest.raises(hloenv.OutputMismatchError, match=r"output 1 at \[1\]: nan"):
        result.check()


@pytest.mark.parametrize(
    ("dtype", "small", "large"),
    [("f8", 1e-12, 1e-8), ("f4", 1e-6, 1e-2), ("f2", 1e-3, 0.1)],
)
def test_tolerance_depends_on_the_dtype(dtype: str, small: float, large: float):
    base = np.linspace(-1, 1, 7).astype(dtype)
    assert compare_outputs([base], [(base * (1 + small)).astype(dtype)])
    assert not compare_outputs([base], [(base * (1 + large)).astype(dtype)])


def test_cancelling_sums_are_held_to_the_leafs_scale():
    base = np.array([1000, 1e-6], np.float32)
    assert compare_outputs([base], [base + np.float32(1e-3)])


def test_equal_values_with_other_bits_are_not_bitwise_equal():
    zero = np.zeros((), np.float32)
    both = compare_outputs([zero, zero], [zero, -zero])
    assert (both.is_equal, both.error, both.is_bitwise) == (True, 0.0, False)
    nan = np.full(3, np.nan)
    assert compare_outputs([nan], [nan.copy()]).is_bitwise
    assert compare_outputs([], []).is_bitwise


def test_integers_have_to_be_the_same():
    assert not compare_outputs([np.array([1, 2])], [np.array([1, 3])])
    assert not compare_outputs([np.array([True])], [np.array([False])])


def test_what_rounding_moves_is_allowed_to_move():
    base, moved = np.array([1.0, 2.0]), np.array([1.1, 2.0])
    assert not compare_outputs([base], [np.array([1.0, 2.2])])
    assert compare_outputs([base], [np.array([1.0, 2.2])], also=[[moved]])


def test_infinities_compare():
    inf = np.array([np.inf, -np.inf, 1.0])
    assert compare_outputs([inf], [inf.copy()])
    assert not compare_outputs([inf], [-inf])


def test_outputs_of_other_shapes_cannot_be_compared():
    with pytest.raises(hloenv.ArgumentError, match=r"float64\[2\], expected"):
        compare_outputs([np.zeros(3)], [np.zeros(2)])
    with pytest.raises(hloenv.ArgumentError, match="2 outputs"):
        compare_outputs([np.zeros(3)], [np.zeros(3), np.zeros(3)])


def test_perturbed_inputs_are_one_unit_away():
    (a, _) = random_inputs(ADD)
    (moved, _) = perturbed(random_inputs(ADD))
    np.testing.assert_array_max_ulp(a, moved, maxulp=1)
    assert (a != moved).all()


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_largest_numbers_are_perturbed_without_a_warning(dtype):
    largest = np.full(20, np.finfo(dtype).max)
    (moved,) = perturbed([largest])
    assert set(moved) == {np.inf, np.nextafter(largest[0], 0)}


@pytest.mark.parametrize("name", ["bfloat16", "float16"])
def test_numbers_of_16_bits_are_perturbed_too(name):
    a = np.linspace(0.5, 0.9, 50).astype(ml_dtypes.bfloat16 if name[0] == "b" else name)
    (moved,) = perturbed([a])
    change = np.abs(moved.astype(float) - a.astype(float))
    assert moved.dtype == a.dtype
    # In [0.5, 1), 8 or 11 bits.
    assert set(change) == {2.0 ** (-8 if name == "bfloat16" else -11)}


def test_numbers_of_16_bits_may_differ_by_three_times_what_they_move():
    one = np.full(100, 1.0, ml_dtypes.bfloat16)
    moved = np.full(100, 1.0 + 2**-4, ml_dtypes.bfloat16)
    # A twentieth, and three times as much as the original moves.
    within = np.full(100, 1.0 + 7 * 2**-5, ml_dtypes.bfloat16)
    beyond = np.full(100, 1.0 + 8 * 2**-5, ml_dtypes.bfloat16)
    assert not compare_outputs([one], [within]).is_equal
    assert compare_outputs([one], [within], also=[[moved]]).is_equal
    assert not compare_outputs([one], [beyond], also=[[moved]]).is_equal


@pytest.mark.parametrize("actual", [[-7.0, np.nan], [1e200, np.nan], [1e199, 1.0]])
def test_huge_numbers_do_not_allow_everything(actual):
    expected = np.array([1e200, 1.0])
    assert compare_outputs([expected], [expected.copy()]).is_equal
    assert not compare_outputs([expected], [np.array(actual)]).is_equal
    wide = [np.resize(np.array(each), 2**19) for each in (expected, actual)]
    assert moved._compare_large(wide[0], wide[0]).is_equal
    assert not moved._compare_large(*wide).is_equal
