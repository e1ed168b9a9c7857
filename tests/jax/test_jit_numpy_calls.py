# SPDX-License-Identifier: Apache-2.0
"""Which calls of hloenv.jit(outputs="numpy") are passed on without a look at them."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hloenv
from hloenv.errors import ArgumentError, CompileError
from hloenv.jax import numpy_calls
from hloenv.jax.compare import Comparison

pytestmark = [pytest.mark.jax, pytest.mark.compile]

ROW, MATRIX = np.ones(3, np.float32), np.ones((2, 3), np.float32)


@pytest.fixture
def keys(monkeypatch):
    """The calls that look at the types of their arguments."""
    found = []
    real = numpy_calls._type_of

    def observed(leaf):
        found.append(leaf)
        return real(leaf)

    monkeypatch.setattr(numpy_calls, "_type_of", observed)
    return found


def scaled(state):
    return state * 0.9 + 1


@pytest.mark.parametrize("first", [ROW, jnp.ones(3), np.float32(1)])
def test_a_first_call_with_other_arrays_leaves_later_ones_fast(first, keys):
    fast = hloenv.jit(scaled, outputs="numpy")
    state = fast(first)
    state = fast(state)
    assert len(fast._versions) == 1
    keys.clear()
    for _ in range(5):
        state = fast(state)
    assert keys == []
    expected = np.full(np.shape(first), 1.0)
    for _ in range(7):
        expected = scaled(expected)
    np.testing.assert_allclose(state, expected, rtol=1e-5)


def test_shapes_in_turn_raise_nothing(keys, monkeypatch):
    errors = []

    fast = hloenv.jit(scaled, outputs="numpy")
    for each in (ROW, MATRIX, ROW, MATRIX):
        fast(each)
    for version in fast._versions.values():
        call = version.executable._caller.call

        def observed(arrays, call=call):
            try:
                return call(arrays)
            except ArgumentError as error:
                errors.append(error)
                raise

        monkeypatch.setattr(
            version.executable, "_caller", type("Caller", (), {"call": observed})
        )
    for each in (ROW, MATRIX) * 3:
        np.testing.assert_allclose(fast(each), scaled(each), rtol=1e-6)
    assert errors == []
    fast(ROW)
    fast(ROW)
    keys.clear()
    for _ in range(5):  # one shape again
        fast(ROW)
    assert keys == []


def test_arrays_that_are_converted_are_not_looked_at_again(keys):
    fast = hloenv.jit(lambda x, y: x * y, outputs="numpy")
    wide = np.full(3, 2.0)
    for _ in range(2):
        assert fast(wide, ROW).dtype == np.float32
    keys.clear()
    for _ in range(5):
        np.testing.assert_array_equal(fast(wide, ROW), [2, 2, 2])
    assert keys == []
    assert wide.dtype == np.float64
    whole = np.full(3, 7)
    np.testing.assert_array_equal(fast(whole, ROW), [7, 7, 7])
    np.testing.assert_array_equal(fast(np.full(2, 3.0), ROW[:2]), [3, 3])
    assert len(fast._versions) == 3


def test_arguments_that_are_not_used(keys):
    fast = hloenv.jit(lambda x, unused, n: x * unused.ndim, outputs="numpy")
    for _ in range(2):
        fast(ROW, MATRIX, 1)
    keys.clear()
    for count in range(5):
        np.testing.assert_array_equal(fast(ROW, MATRIX, count), [2, 2, 2])
    assert keys == []
    # Its shape counts in the trace; float64 is equal to None in numpy.
    wide = MATRIX.astype(np.float64)
    for _ in range(3):
        np.testing.assert_array_equal(fast(ROW, wide, 1), [2, 2, 2])
    np.testing.assert_array_equal(fast(ROW, wide[0], 1), [1, 1, 1])
    np.testing.assert_array_equal(fast(ROW, np.int64(3), 1), [0, 0, 0])
    np.testing.assert_array_equal(fast(ROW, ROW, 1), [1, 1, 1])
    np.testing.assert_array_equal(fast(ROW, MATRIX.astype(np.int8), 1), [2, 2, 2])
    np.testing.assert_array_equal(fast(ROW, MATRIX, 1), [2, 2, 2])
    assert len(fast._versions) == 6


def arm(angles):
    """The joints of a planar arm in space, by products of small matrices."""
    pose, joints = jnp.eye(4), []
    for i in range(6):
        c, s = jnp.cos(angles[i]), jnp.sin(angles[i])
        zero, one = jnp.zeros(()), jnp.ones(())
        rows = [[c, -s, zero, 0.1 * i * one], [s, c, zero, zero]]
        rows += [[zero, zero, one, 0.3 * one], [zero, zero, zero, one]]
        pose = pose @ jnp.array(rows)
        joints.append(pose[:3, 3])
    return jnp.stack(joints)


def test_small_operations_run_with_less_overhead():
    jacobian = jax.jacobian(lambda angles: arm(angles)[-1])
    fast = hloenv.jit(jacobian, outputs="numpy", budget=0)
    angles = np.linspace(0, 1, 6, dtype=np.float32)
    np.testing.assert_allclose(
        fast(angles), jax.jit(jacobian)(angles), rtol=1e-5, atol=1e-6
    )
    (used,) = [each for each in fast.considered if each.is_used]
    assert {label.split("/")[0] for label in used.accepted} >= {
        "dot-lowering",
        "single-kernel",
    }


def test_long_calls_are_not_decided_for_their_overhead(monkeypatch):
    monkeypatch.setattr(numpy_calls, "MAX_NS", -1)
    fast = hloenv.jit(arm, outputs="numpy")
    fast(np.zeros(6, np.float32))
    assert [each for each in fast.considered if each.accepted] == []
    # Without a comparison, by what it does.
    large = hloenv.jit(lambda x: arm(x[0]) + (x @ x.T).sum(), outputs="numpy", budget=0)
    large(np.zeros((2000, 6), np.float32))
    assert [each for each in large.considered if each.accepted] == []


@pytest.mark.timeout(120)
def test_a_function_may_call_itself():
    def total(x):
        return x.sum() if x.shape[0] == 1 else x * fast(np.ones(1, np.float32))

    fast = hloenv.jit(total, outputs="numpy")
    np.testing.assert_array_equal(fast(ROW), ROW)


def test_what_cannot_be_compiled_leaves_the_default(monkeypatch):
    real, calls = numpy_calls.compile, []

    def fails_second(module, **options):
        calls.append(module)
        if len(calls) == 2:
            raise CompileError("no")
        return real(module, **options)

    monkeypatch.setattr(numpy_calls, "compile", fails_second)
    fast = hloenv.jit(lambda x: jnp.argsort(x), outputs="numpy")
    numbers = np.arange(1000, dtype=np.float32)[::-1].copy()
    for _ in range(2):
        np.testing.assert_array_equal(fast(numbers), np.argsort(numbers))
    assert len(calls) == 2
    assert [each.reason for each in fast.considered] == ["CompileError: no"]


@pytest.mark.parametrize(
    ("result", "is_used"),
    [
        (Comparison(1.2, (1.03, 1.4)), True),
        (Comparison(1.2, (1.01, 1.4), "it is not clearly faster"), False),
        (Comparison(1.1, (0.98, 1.3), "it is not clearly faster"), False),
        (Comparison(0.8, (0.7, 0.9), "it is not clearly faster"), False),
        (Comparison(1.6), True),
        (Comparison(1.2, reason="not 1.5 times as fast in two runs"), False),
        (Comparison(50.0, reason="a comparison takes too long"), True),
        (Comparison(1.2, reason="a comparison takes too long"), False),
        (Comparison(reason="its outputs differ", is_equal=False), False),
    ],
)
def test_plain_jax_runs_what_is_not_clearly_faster(monkeypatch, result, is_used):
    monkeypatch.setattr(numpy_calls, "compare", lambda *_, **__: result)
    fast = hloenv.jit(scaled, outputs="numpy")
    np.testing.assert_allclose(fast(ROW), scaled(ROW), rtol=1e-6)
    (version,) = fast._versions.values()
    assert (version.executable is not None) == is_used
    assert all(not each.is_used and each.reason for each in fast.considered) or is_used


def test_plain_jax_runs_what_takes_too_long_to_compare(monkeypatch):
    monkeypatch.setattr(numpy_calls, "exceeds", lambda *_: "it takes too long")
    fast = hloenv.jit(scaled, outputs="numpy")
    np.testing.assert_allclose(fast(ROW), scaled(ROW), rtol=1e-6)
    (one,) = fast.considered
    assert (one.is_used, one.reason) == (False, "it takes too long")


def test_plain_jax_runs_what_cannot_be_compiled_apart():
    def called(x):
        kind = jax.ShapeDtypeStruct(x.shape, x.dtype)
        return 2 * jax.pure_callback(lambda v: np.asarray(v) + 1, kind, x)

    fast = hloenv.jit(called, outputs="numpy")
    for _ in range(2):
        found = fast(ROW)
        assert isinstance(found, np.ndarray)
        np.testing.assert_array_equal(found, 2 * (ROW + 1))
    (one,) = fast.considered
    assert not one.is_used
    assert "pure_callback" in one.reason
