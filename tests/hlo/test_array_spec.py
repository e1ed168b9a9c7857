# SPDX-License-Identifier: Apache-2.0
"""Types of inputs and outputs: numpy's, those of ml_dtypes, and those of neither."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import hloenv
from hloenv import ArraySpec
from hloenv.errors import ArgumentError, ArgumentTypeError
from hloenv.runtime.compare import compare_outputs
from hloenv.runtime.extreme_inputs import extreme_inputs

# All values of a type, by their bits.
VALUES = {
    "s2": [0, 1, -2, -1],
    "u2": [0, 1, 2, 3],
    "s4": [0, 1, 2, 3, 4, 5, 6, 7, -8, -7, -6, -5, -4, -3, -2, -1],
    "u4": [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15],
    "f4e2m1fn": [
        *(0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0),
        *(-0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0),
    ],
}
UNARY = """HloModule m

ENTRY e {
  p = TYPE[SIZE]{0} parameter(0)
  q = TYPE[SIZE]{0} OPERATION
  f = f32[SIZE]{0} convert(q)
  ROOT r = (TYPE[SIZE]{0}, f32[SIZE]{0}) tuple(q, f)
}
"""
TOKENS = """HloModule tokens

ENTRY e {
  t = token[] parameter(0)
  p = f32[2]{0} parameter(1)
  n = f32[2]{0} negate(p)
  u = token[] after-all(t)
  ROOT r = (f32[2]{0}, token[]) tuple(n, u)
}
"""


def _module(hlo_dtype: str, operation: str) -> hloenv.HloModule:
    text = UNARY.replace("TYPE", hlo_dtype).replace("OPERATION", operation)
    return hloenv.HloModule.from_text(text.replace("SIZE", str(len(VALUES[hlo_dtype]))))


def _all_values(hlo_dtype: str) -> np.ndarray:
    bits = np.arange(len(VALUES[hlo_dtype]), dtype=np.uint8)
    return bits.view(ArraySpec((), hlo_dtype).dtype)


@pytest.mark.parametrize("hlo_dtype", VALUES)
def test_values_are_those_of_xla(hlo_dtype):
    values = _all_values(hlo_dtype)
    assert values.astype(np.float32).tolist() == VALUES[hlo_dtype]
    module = _module(hlo_dtype, "copy(p)")
    for run in (hloenv.interpret, lambda m, *x: hloenv.compile(m)(*x)):
        copied, floats = run(module, values)
        assert copied.dtype == values.dtype
        assert copied.tobytes() == values.tobytes()
        assert floats.tolist() == VALUES[hlo_dtype]


@pytest.mark.parametrize("operation", ["negate(p)", "add(p, p)", "multiply(p, p)"])
@pytest.mark.parametrize("hlo_dtype", VALUES)
def test_arithmetic_is_numpys(hlo_dtype, operation):
    values = _all_values(hlo_dtype)
    wide = values.astype(np.float32 if hlo_dtype[0] == "f" else np.int64)
    expected = {"n": -wide, "a": wide + wide, "m": wide * wide}[operation[0]]
    expected = expected.astype(values.dtype).astype(np.float32).tolist()
    module = _module(hlo_dtype, operation)
    assert hloenv.interpret(module, values)[1].tolist() == expected
    assert hloenv.compile(module)(values)[1].tolist() == expected


@pytest.mark.parametrize("hlo_dtype", VALUES)
def test_inputs_are_drawn(hlo_dtype):
    module = _module(hlo_dtype, "copy(p)")
    dtype = ArraySpec((), hlo_dtype).dtype
    for draw in (hloenv.random_inputs, extreme_inputs):
        (drawn,) = draw(module, seed=1)
        assert (drawn.dtype, drawn.shape) == (dtype, (len(VALUES[hlo_dtype]),))


@pytest.mark.parametrize("hlo_dtype", ["s2", "u2", "s4", "u4"])
def test_integers_are_compared_exactly(hlo_dtype):
    values = _all_values(hlo_dtype)
    assert compare_outputs([values], [values]).is_equal
    moved = values.copy()
    moved[0] = 1
    assert not compare_outputs([values], [moved]).is_equal


def test_a_neighbour_of_a_four_bit_float_is_within_tolerance():
    values = _all_values("f4e2m1fn")
    moved = np.array([4.0, 4.0], ml_dtypes.float4_e2m1fn)
    other = np.array([6.0, 4.0], ml_dtypes.float4_e2m1fn)
    assert compare_outputs([values], [values]).is_equal
    assert compare_outputs([moved], [other]).is_equal
    assert not compare_outputs([moved], [-other]).is_equal


@pytest.mark.parametrize("hlo_dtype", ["token", "opaque_type", "s1", "u1", "f8x"])
def test_other_types_have_no_dtype(hlo_dtype):
    spec = ArraySpec((2,), hlo_dtype)
    with pytest.raises(ArgumentTypeError, match=f"no dtype for HLO type '{hlo_dtype}'"):
        _ = spec.dtype
    with pytest.raises(TypeError):
        _ = spec.nbytes


@pytest.mark.parametrize("hlo_dtype", ["s1", "u1"])
def test_inputs_of_other_types_are_errors(hlo_dtype):
    text = "HloModule m\n\nENTRY e {\n  ROOT p = s1[4] parameter(0)\n}\n"
    module = hloenv.HloModule.from_text(text.replace("s1", hlo_dtype))
    with pytest.raises(ArgumentError, match=hlo_dtype):
        hloenv.random_inputs(module)
    with pytest.raises(ArgumentError, match=hlo_dtype):
        hloenv.interpret(module, np.zeros(4, np.int8))


def test_tokens_are_none_in_the_evaluator():
    module = hloenv.HloModule.from_text(TOKENS)
    inputs = hloenv.random_inputs(module)
    assert inputs[0] is None
    expected = (-inputs[1]).tolist()
    for outputs in (
        hloenv.interpret(module, *inputs),
        hloenv.interpret(module, *inputs, perturb=1),
        hloenv.compile(module)(*inputs),
    ):
        assert outputs[1] is None
        np.testing.assert_allclose(outputs[0], expected, rtol=1e-6)
    with pytest.raises(ArgumentError, match="input 0 is a token, got ndarray"):
        hloenv.interpret(module, np.zeros(0, np.uint8), inputs[1])


def test_alternatives_of_modules_with_tokens_are_verified():
    text = TOKENS.replace("negate(p)", "add(p, z)").replace(
        "  n = ", "  z = f32[2]{0} constant({0, 0})\n  n = "
    )
    alternatives = hloenv.HloEnv(text).get_alternatives("algsimp")
    errors = hloenv.verify_alternatives(alternatives)
    assert {each.absolute for each in errors} == {0.0}
