# SPDX-License-Identifier: Apache-2.0
"""Which differences of outputs are rounding: those of arguments with other last bits."""

from __future__ import annotations

import math

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest

import hloenv
from hloenv.jax import timed_call
from hloenv.jax.outputs import difference
from hloenv.jax.stages import Stages
from hloenv.jax.wrapping import moved_arguments
from hloenv.runtime import moved as moved_module
from support.jit_functions import FASTER, IMAGE, KERNEL, depthwise, normal

pytestmark = [pytest.mark.jax, pytest.mark.compile]


LARGE = np.linspace(-1, 1, 1000, dtype=np.float32)


def noise(seed, scale=1e-8):
    return np.float32(scale) * np.random.default_rng(seed).standard_normal(
        1000, np.float32
    )


def test_rounding_beside_large_outputs_is_no_difference():
    """As a gradient that is zero but for rounding, of a bias before a normalization."""
    expected, actual = (LARGE, noise(0)), (LARGE, noise(1))
    assert "differ" in difference(expected, actual)
    assert difference(expected, actual, moved=lambda _: (LARGE, noise(2))) == ""
    # Where the last bits of the arguments do not move it, it is wrong.
    assert difference(expected, actual, moved=lambda _: expected)


def test_outputs_that_follow_the_last_bits_of_the_arguments():
    one, other, moved = (LARGE + noise(seed, 1e-3) for seed in range(3))
    assert difference((one,), (other,))
    assert difference((one,), (other,), moved=lambda _: (moved,)) == ""
    # More than rounding: what is right cannot be told.
    one, other, moved = (LARGE + noise(seed, 0.1) for seed in range(3))
    assert difference((one,), (other,), moved=lambda _: (moved,))
    # But for what differs by far less.
    near, far = one + noise(3, 5e-4), one + noise(3, 1e-2)
    assert difference((one,), (near,))
    assert difference((one,), (near,), moved=lambda _: (moved,)) == ""
    assert difference((one,), (far,), moved=lambda _: (moved,))
    bad = one.copy()
    bad[3] += 0.02
    assert difference((one,), (bad,), moved=lambda _: (moved,))
    assert difference((one,), (LARGE * 2,), moved=lambda _: (one + noise(3, 1e-3),))


def test_outputs_may_be_as_expected_for_other_last_bits_of_the_arguments():
    """Where rounding decides about an element, as whether a ReLU passes."""

    def flipped(place):
        array = LARGE.copy()
        array[place] += 0.02
        return array

    one, two = flipped(3), flipped(5)
    pair, plain = (LARGE, LARGE), lambda _: (LARGE, LARGE)

    def differ(actual, draws):
        def moved(draw):
            return draws[min(draw, len(draws) - 1)]

        return difference(pair, actual, moved=plain, actual_moved=moved)

    assert differ((one, two), [(one, two)])
    assert differ((one, two), [(one, two), pair]) == ""
    # One move explains all.
    assert differ((one, two), [(LARGE, two), (one, LARGE)])
    assert differ((LARGE, two), [(one, LARGE), (LARGE, two)])
    # Not where much differs, or an element is no number.
    assert differ((one, LARGE * 2), [pair])
    two[0] = np.nan
    assert differ((one, two), [pair])
    counts = np.arange(9)
    same = lambda _: (counts,)  # noqa: E731
    assert difference((counts,), (counts + 1,), moved=same, actual_moved=same)


def test_outputs_may_be_equal_for_other_last_bits_of_the_arguments():
    """Where rounding decides about layers, as in the gradient of a small MobileNet."""

    def gradients(layer, bias):
        """Of a layer, by up to 3 % in all elements, and of a bias without any."""
        return LARGE * (1 + noise(layer, 0.01)), noise(bias)

    plain = gradients(2, 12), gradients(3, 13)

    def differ(actual, others):
        return difference(
            gradients(0, 10),
            actual,
            moved=lambda draw: plain[min(draw, 1)],
            actual_moved=lambda draw: others[min(draw, 1)],
        )

    apart, close = gradients(1, 11), gradients(3, 14)
    assert differ(apart, [gradients(4, 14), gradients(5, 15)])
    assert differ(apart, [gradients(4, 14), close]) == ""
    assert differ(apart, [close, gradients(4, 14)])  # of another draw
    # Not where outputs of the arguments themselves differ by much.
    assert differ((apart[0] * np.float32(1.2), apart[1]), [close, close])
    assert differ((apart[0], apart[1] + 1), [close, close])
    assert differ((apart[0], apart[1] * np.float32(np.nan)), [close, close])
    # Nor where one of the outputs differs for each of the moved arguments.
    assert differ(apart, [gradients(4, 14), (close[0], close[1] + 1)])


@pytest.mark.parametrize("size", [1e4, 1e6])
def test_a_chaotic_output_is_within_the_tolerance_of_the_largest(size):
    large = np.full(3, size, np.float32)
    expected, moved = (large, LARGE + noise(0, 0.5)), (large, LARGE + noise(1, 0.5))
    wrong = large, LARGE + np.float32(1e-3 * size)
    assert difference(expected, wrong, moved=lambda _: moved)


@pytest.mark.parametrize("slice_size", [100, 1 << 18])
def test_one_element_that_moves_allows_nothing_to_others(monkeypatch, slice_size):
    monkeypatch.setattr(moved_module, "_SLICE", slice_size)
    one = np.full(10_000, 100, np.float32)
    moved = one.copy()
    moved[7] = 0
    wrong, flipped = one * np.float32(0.91), one.copy()
    flipped[7] = 3
    assert difference((one,), (wrong,), moved=lambda _: (moved,))
    assert difference((one,), (flipped,), moved=lambda _: (moved,)) == ""


def flips(seed, count, size=0.5):
    """Differences of a few elements of 10,000, as where rounding decides a ReLU."""
    rng = np.random.default_rng(seed)
    found = np.zeros(10_000, np.float32)
    found[rng.choice(found.size, count, replace=False)] = size
    return found


@pytest.mark.parametrize("slice_size", [100, 1 << 18])
def test_other_elements_that_move_are_rounding_too(monkeypatch, slice_size):
    monkeypatch.setattr(moved_module, "_SLICE", slice_size)
    one = np.random.default_rng(0).standard_normal(10_000).astype(np.float32)
    moved = one + flips(1, 20)

    def differs(error, *, beside=moved):
        return difference((one,), (one + error,), moved=lambda _: (beside,))

    assert differs(flips(2, 40)) == ""
    assert differs(flips(2, 40), beside=one)  # nothing moves
    assert differs(flips(2, 400))  # many more
    assert differs(flips(2, 4, size=2))  # by much more
    assert differs(flips(2, 2), beside=one + flips(1, 2_000))  # what is right?
    assert differs(flips(2, 1, size=np.nan))
    assert differs(0.06 * one)  # all elements
    assert differs(0.06)
    assert differs(0.11 * one, beside=one * np.float32(1.04))
    assert difference((one[:1],), (one[:1] * 1.1,), moved=lambda _: (one[:1] * 1.04,))
    # Squares of less than the smallest number tell nothing.
    tiny, few = one.astype(np.float64) * 1e-170, flips(2, 5).astype(float) * 1e-170
    assert difference((tiny,), (tiny + few,), moved=lambda _: (tiny + few,)) == ""
    assert difference((tiny,), (tiny + few,), moved=lambda _: (tiny + few[::-1],))
    numbers = (1000 * one).astype(np.int32)
    changed, others = (
        numbers + (1000 * flips(seed, 20)).astype(np.int32) for seed in (2, 3)
    )
    assert difference((numbers,), (changed,), moved=lambda _: (others,))


@pytest.mark.parametrize("slice_size", [100, 1 << 18])
def test_what_some_move_of_the_last_bits_explains_is_rounding(monkeypatch, slice_size):
    """Rounding decides few elements: most moves change nothing."""
    monkeypatch.setattr(moved_module, "_SLICE", slice_size)
    one = np.random.default_rng(0).standard_normal(10_000).astype(np.float32)
    pair = one, 2 * one
    asked = []

    def differs(*errors, by, seconds=math.inf):
        """`by[i]`: the outputs by which draw i moves; the last for all after."""
        asked.clear()

        def moved(draw):
            asked.append(draw)
            outputs_ = by[min(draw, len(by) - 1)]
            changes = (flips(1 + i, 20) * (i in outputs_) for i in range(2))
            return tuple(a + b for a, b in zip(pair, changes, strict=True))

        others = tuple(a + b for a, b in zip(pair, errors, strict=True))
        return difference(pair, others, moved=moved, seconds=seconds)

    error, none = flips(3, 40), flips(3, 0)
    assert differs(error, none, by=[(), (), (0,)]) == ""
    assert asked == [0, 1, 2]
    # Each output by a move of its own.
    assert differs(error, error, by=[(1,), (), (0,), ()]) == ""
    assert asked == [0, 1, 2]
    # What no move explains, of one output or of another.
    assert differs(error, error, by=[(1,)])
    assert asked == list(range(8))
    assert differs(flips(3, 400), none, by=[(0, 1)])
    assert differs(flips(3, 4, size=2), none, by=[(0, 1)])
    # Not beyond the time, of which the first takes none.
    assert differs(error, none, by=[(), (0,)], seconds=0)
    assert asked == [0]
    assert differs(error, none, by=[(0,)], seconds=0) == ""


def test_one_element_that_flips_does_not_explain_many():
    """However large it is."""
    one = np.random.default_rng(0).standard_normal(10_000).astype(np.float32)
    moved, wrong = one.copy(), one.copy()
    moved[0] += 2
    wrong[1:4] *= np.float32(0.5)
    assert difference((one,), (wrong,), moved=lambda _: (moved,)) == ""
    wrong[1:6] *= np.float32(0.9)
    assert difference((one,), (wrong,), moved=lambda _: (moved,))


def test_integers_that_differ_end_the_moves():
    one, other = np.array([1, 2], np.int32), np.array([1, 3], np.int32)
    asked = []
    assert difference(
        (one,), (other,), moved=lambda draw: (asked.append(draw), one)[1:]
    )
    assert asked == [0]


def test_integers_do_not_follow_the_last_bits_of_the_arguments():
    one, other = np.array([1, 2], np.int32), np.array([1, 3], np.int32)
    assert difference((one,), (other,), moved=lambda _: (other,))


def test_a_large_output_that_follows_the_last_bits(monkeypatch):
    monkeypatch.setattr(moved_module, "_SLICE", 100)
    one, other, moved = (LARGE + noise(seed, 1e-3) for seed in range(3))
    assert difference((one,), (other,))
    assert difference((one,), (other,), moved=lambda _: (moved,)) == ""


def test_arguments_are_moved_by_their_last_bits():
    key = jax.random.key(0)
    ones = jnp.ones(400)
    tree = {"a": ones, "b": np.ones(400), "c": 2.0, "d": jnp.arange(3), "e": key}
    moved = moved_arguments(jax, tree)
    seen = {name: np.asarray(jax.jit(lambda x: x)(moved[name])) for name in "ab"}
    for name in "ab":
        change = np.abs(seen[name] - 1)
        assert (change > 0).all()
        assert (change < 1e-6).all()
    again = jax.tree.leaves(moved_arguments(jax, tree, 1)["a"])
    assert (seen["a"] != again[0]).any()
    # Of one shape, in other directions.
    assert (seen["a"] != seen["b"]).any()
    assert moved["c"] == 2.0
    np.testing.assert_array_equal(moved["d"], tree["d"])
    assert moved["e"] is key
    assert jax.tree.map(jnp.shape, moved) == jax.tree.map(jnp.shape, tree)


def normalized_loss(bias, kernel, x):
    y = depthwise(kernel, x) + bias
    y = (y - y.mean((0, 1, 2))) / jnp.sqrt(y.var((0, 1, 2)) + 1e-5)
    return (y**3).sum()


@pytest.mark.usefixtures("own_folder")
@pytest.mark.parametrize("donated", [(), (0,)])
def test_a_function_is_compared_with_moved_arguments(monkeypatch, donated):
    """And not used where that tells nothing."""
    asked = []

    def compare(plain, other, *, seconds, moved, **_):
        asked.append(difference(plain(), moved(0)))
        return FASTER

    monkeypatch.setattr(timed_call, "compare", compare)
    fast = hloenv.jit(jax.grad(normalized_loss, (0, 1)), donate_argnums=donated)
    fast(normal(32), KERNEL, IMAGE)
    # The bias's gradient is of rounding.
    assert asked
    assert "output 0" in asked[0]


@pytest.mark.usefixtures("own_folder")
def test_a_loop_that_values_end_does_not_run_with_others(monkeypatch):
    asked = []

    def compare(plain, other, *, seconds, moved, **_):
        asked.append(moved)
        return FASTER

    monkeypatch.setattr(timed_call, "compare", compare)

    def counted(kernel, x, n):
        left = jax.lax.while_loop(lambda s: s != 0, lambda s: s - 1, n)
        return depthwise(kernel, x) + left

    hloenv.jit(counted)(KERNEL, IMAGE, jnp.float32(5))
    assert asked
    assert set(asked) == {None}


def test_a_gradient_through_a_normalization():
    """A bias before it has a gradient of rounding alone."""
    arguments = normal(32), KERNEL, IMAGE
    gradient = jax.grad(normalized_loss, (0, 1))
    plain = jax.jit(gradient)(*arguments)
    other = gradient(*arguments)
    assert difference(plain, other)
    again = jax.jit(gradient)(*moved_arguments(jax, arguments))
    assert difference(plain, other, moved=lambda _: again) == ""


def _doubled(x, n):
    start = (jnp.int32(0), x)
    return jax.lax.while_loop(lambda c: c[0] < n, lambda c: (c[0] + 1, c[1] * 2), start)


def _counted(x, n):
    grown = jax.lax.fori_loop(0, 5, lambda _, c: c * n, x)
    return jax.lax.scan(lambda c, a: (c + a, c), grown, jnp.ones((7, 3)))[0]


def _chosen(x, n):
    return jax.lax.cond(n > 3, jnp.sin, jnp.cos, x)


@pytest.mark.parametrize(
    ("fn", "has_while", "has_cond"),
    [
        (_doubled, True, False),
        (_counted, False, False),
        (_chosen, False, True),
    ],
)
def test_loops_and_branches_are_found_in_functions_that_are_one_operation(
    tmp_path, fn, has_while, has_cond
):
    x, n = jnp.ones(3), jnp.int32(4)
    exported = jax.export.export(jax.jit(fn))(x, n)
    module = hloenv.HloModule.from_jax(fn, x, n)
    module.save(tmp_path / "fn.hlo")
    loaded = hloenv.load(tmp_path / "fn.hlo", engine="jaxlib")
    for each in (fn, lambda *args: exported.call(*args), lambda *args: loaded(*args)):
        stages = Stages(jax.jit(each).trace(x, n))
        assert (stages.has_while, stages.has_cond) == (has_while, has_cond)
