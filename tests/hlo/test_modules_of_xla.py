# SPDX-License-Identifier: Apache-2.0
"""What the modules of XLA's own tests have and no compiled program has."""

from __future__ import annotations

import numpy as np
import pytest

import hloenv

UPDATE = """HloModule m
ENTRY e {
  p = s32[4,8]{1,0} parameter(0)
  u = s32[1,2]{1,0} parameter(1)
  i = s32[2]{0} parameter(2)
  ROOT r = s32[4,8]{1,0} dynamic-update-slice(p, u, i)
}
"""
SLICE = """HloModule m
ENTRY e {
  p = s32[4,8]{1,0} parameter(0)
  i = s32[2]{0} parameter(1)
  ROOT r = s32[1,2]{1,0} dynamic-slice(p, i), dynamic_slice_sizes={1,2}
}
"""
FUSED = """HloModule m
f {
  p = s32[4]{0} parameter(0)
  i = s32[1]{0} parameter(1)
  ROOT r = s32[2]{0} dynamic-slice(p, i), dynamic_slice_sizes={2}
}
ENTRY e {
  p = s32[4]{0} parameter(0)
  i = s32[1]{0} parameter(1)
  ROOT r = s32[2]{0} fusion(p, i), kind=kLoop, calls=f
}
"""
BRANCHES = """HloModule m
c0 {
  p = () parameter(0)
  ROOT c = f32[] constant(0)
}
c1 {
  p = () parameter(0)
  ROOT c = f32[] constant(1)
}
f {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  less = pred[] compare(a, b), direction=LT
  s = s32[] convert(less)
  t = () tuple()
  ROOT r = f32[] conditional(s, t, t), branch_computations={c0, c1}
}
ENTRY e {
  x = f32[8]{0} parameter(0)
  y = f32[8]{0} parameter(1)
  ROOT m = f32[8]{0} map(x, y), dimensions={0}, to_apply=f
}
"""
BUFFERS = """HloModule m
body {
  s = (b(f32[16]), f32[16]) parameter(0)
  b0 = b(f32[16]) get-tuple-element(s), index=0
  b1 = b(f32[16]) custom-call(b0), custom_call_target="update",
    output_to_operand_aliasing={{}: (0, {})}
  x = f32[16] get-tuple-element(s), index=1
  y = f32[16] add(x, x)
  ROOT t = (b(f32[16]), f32[16]) tuple(b1, y)
}
condition {
  s = (b(f32[16]), f32[16]) parameter(0)
  ROOT c = pred[] constant(true)
}
ENTRY e {
  p = f32[16] parameter(0)
  x = f32[16] add(p, p)
  y = f32[16] add(p, p)
  pin = b(f32[16]) custom-call(x), custom_call_target="Pin",
    output_to_operand_aliasing={{}:(0, {})}
  init = (b(f32[16]), f32[16]) tuple(pin, y)
  loop = (b(f32[16]), f32[16]) while(init), condition=condition, body=body
  last = b(f32[16]) get-tuple-element(loop), index=0
  unpin = f32[16] custom-call(last), custom_call_target="Unpin",
    output_to_operand_aliasing={{}:(0, {})}
  z = f32[16] get-tuple-element(loop), index=1
  w = f32[16] add(unpin, z)
  ROOT r = f32[16] add(w, x)
}
"""
PASSES = "algsimp", "general-simplify", "simplification", "scatter_simplifier"


def test_starts_in_one_array():
    update, part = map(hloenv.HloModule.from_text, (UPDATE, SLICE))
    x = np.arange(32, dtype=np.int32).reshape(4, 8)
    ones, start = np.ones((1, 2), np.int32), np.array([2, 5], np.int32)
    expected = x.copy()
    expected[2, 5:7] = 1
    for run in (hloenv.interpret, lambda m, *a: hloenv.compile(m)(*a)):
        np.testing.assert_array_equal(run(update, x, ones, start)[0], expected)
        np.testing.assert_array_equal(run(part, x, start)[0], x[2:3, 5:7])
    for module in (update, part):
        for name in PASSES:
            hloenv.HloEnv(module).get_alternatives(name)


def test_starts_in_one_array_stay_in_fusions_and_schedules():
    scheduled = SLICE.replace("HloModule m", "HloModule m, is_scheduled=true")
    for text in (FUSED, scheduled):
        with pytest.raises(hloenv.InvalidModuleError, match="starts in one array"):
            hloenv.HloModule.from_text(text)


@pytest.mark.compile
def test_branches_of_what_a_map_applies_are_selected_although_rejected():
    env = hloenv.HloEnv(hloenv.HloModule.from_text(BRANCHES))
    env.run_until("conditional-to-select")
    alternatives = env.get_alternatives("conditional-to-select")
    assert len(alternatives) == 1
    env.apply_alternatives(np.zeros(1, np.int64))
    x = np.arange(8, dtype=np.float32)
    found = hloenv.compile(env.module, isolate=False)(x, x[::-1].copy())[0]
    np.testing.assert_array_equal(found, x < x[::-1])


def test_what_the_evaluator_lacks_is_no_fault_of_the_module():
    env = hloenv.HloEnv(hloenv.HloModule.from_text(BRANCHES))
    alternatives = env.get_alternatives("conditional-to-select")
    with pytest.raises(hloenv.ExecuteError, match="evaluator cannot run"):
        hloenv.verify_alternatives(alternatives)


def test_copies_beside_a_buffer_are_taken_together():
    env = hloenv.HloEnv(hloenv.HloModule.from_text(BUFFERS))
    alternatives = env.get_alternatives("copy-insertion")
    (alternative,) = alternatives
    alternatives.module.verify()
    for decision in range(len(alternative.choices)):
        alternatives.apply([decision]).verify()


@pytest.mark.parametrize("type_", ["s1", "u1"])
@pytest.mark.parametrize("engine", ["wheel", "jaxlib"])
def test_integers_of_one_bit_are_refused(type_, engine):
    text = f"""HloModule m
    ENTRY e {{
      x = f32[4] parameter(0)
      bits = {type_}[4] convert(x)
      twice = {type_}[4] add(bits, bits)
      ROOT r = f32[4] convert(twice)
    }}"""
    with pytest.raises(hloenv.CompileError, match=r"'bits' .* one or two bits"):
        hloenv.compile(hloenv.HloModule.from_text(text), engine=engine)


@pytest.mark.parametrize("type_", ["s2", "u2"])
def test_integers_of_two_bits_are_neither_joined_nor_sorted(type_):
    text = f"""HloModule m
    ENTRY e {{
      x = {type_}[4] parameter(0)
      ROOT r = {type_}[8] concatenate(x, x), dimensions={{0}}
    }}"""
    with pytest.raises(hloenv.CompileError, match=r"'r' .* one or two bits"):
        hloenv.compile(hloenv.HloModule.from_text(text))
