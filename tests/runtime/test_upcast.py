# SPDX-License-Identifier: Apache-2.0
"""Float64 versions of modules."""

from __future__ import annotations

import numpy as np
import pytest

import hloenv
from hloenv.runtime.upcast import upcast_inputs

# x / 2 / 0.001 - 500: the simplifier multiplies by a rounded reciprocal, and the
# difference cancels all but the last digits.
CANCELS = """
HloModule cancels

ENTRY main {
  x = f32[6]{0} parameter(0)
  small = f32[] constant(0.001)
  smalls = f32[6]{0} broadcast(small), dimensions={}
  large = f32[] constant(500)
  larges = f32[6]{0} broadcast(large), dimensions={}
  two = f32[] constant(2)
  twos = f32[6]{0} broadcast(two), dimensions={}
  half = f32[6]{0} divide(x, twos)
  d = f32[6]{0} divide(half, smalls)
  ROOT out = f32[6]{0} subtract(d, larges)
}
"""

CASTS = """
HloModule casts

ENTRY main {
  bits = u32[3]{0} parameter(0)
  x = f32[3]{0} parameter(1)
  from_bits = f32[3]{0} bitcast-convert(bits)
  to_bits = u32[3]{0} bitcast-convert(x)
  sum = f32[3]{0} add(from_bits, x)
  c = c64[3]{0} complex(sum, x)
  ROOT out = (f32[3]{0}, u32[3]{0}, c64[3]{0}) tuple(sum, to_bits, c)
}
"""


def test_specs_are_float64():
    wide = hloenv.upcast_to_float64(hloenv.HloModule.from_text(CASTS))
    assert [s.hlo_dtype for s in wide.input_specs()] == ["u32", "f64"]
    assert [s.hlo_dtype for s in wide.output_specs()] == ["f64", "u32", "c128"]


def test_bits_are_those_of_the_original_types():
    module = hloenv.HloModule.from_text(CASTS)
    bits = np.array([0x3F800000, 0x40000000, 0], np.uint32)
    x = np.array([0.5, -1.0, 2.0], np.float32)
    narrow = hloenv.interpret(module, bits, x)
    wide_module = hloenv.upcast_to_float64(module)
    wide = hloenv.interpret(wide_module, *upcast_inputs(wide_module, [bits, x]))
    for a, b in zip(narrow, wide, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.custom_calls(False)
def test_real_modules_are_upcast(real_module_path):
    module = hloenv.HloModule.from_file(real_module_path)
    wide = hloenv.upcast_to_float64(module)
    assert wide.instruction_count >= module.instruction_count
    wider = {"f16": "f64", "bf16": "f64", "f32": "f64", "c64": "c128"}
    for narrow, made in zip(module.output_specs(), wide.output_specs(), strict=True):
        assert made.shape == narrow.shape
        assert made.hlo_dtype == wider.get(narrow.hlo_dtype, narrow.hlo_dtype)


@pytest.mark.custom_calls(True)
def test_real_modules_with_custom_calls_are_rejected(real_module_path):
    with pytest.raises(hloenv.ArgumentError, match="holds custom-call"):
        hloenv.upcast_to_float64(hloenv.HloModule.from_file(real_module_path))


def test_custom_calls_are_rejected():
    text = """
HloModule calls

ENTRY main {
  x = f32[3]{0} parameter(0)
  ROOT y = f32[3]{0} custom-call(x), custom_call_target="foo"
}
"""
    with pytest.raises(hloenv.ArgumentError, match="custom-call"):
        hloenv.upcast_to_float64(hloenv.HloModule.from_text(text))


def test_float64_distinguishes_rounding_from_a_wrong_choice():
    env = hloenv.HloEnv(hloenv.HloModule.from_text(CANCELS))
    alternatives = env.get_alternatives("algsimp")
    x = np.linspace(0.9999, 1.0001, 6, dtype=np.float32)
    narrow = hloenv.verify_alternatives(alternatives, [x])
    wide = hloenv.verify_alternatives(alternatives, [x], float64=True)
    assert len(narrow) == len(wide) == len(alternatives)
    assert max(each.relative for each in narrow) > 1e-4
    assert max(each.relative for each in wide) < 1e-9


@pytest.mark.compile
def test_measure_asks_float64_before_it_says_that_outputs_differ():
    module = hloenv.HloModule.from_text(CANCELS)
    env = hloenv.HloEnv(module)
    env.get_alternatives("algsimp")
    env.apply_alternatives(np.zeros(len(env.get_alternatives("algsimp")), int))
    result = hloenv.measure(env.module, baseline=module, repeats=3)
    assert result.is_ok, result
