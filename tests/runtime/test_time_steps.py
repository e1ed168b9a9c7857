# SPDX-License-Identifier: Apache-2.0
"""Timed thunks start from the memory contents of a plain run."""

from __future__ import annotations

import pytest

# The loop counts by two from 1 to n = 5 - 2: where that subtraction is run again on what
# it has written, in the place of its operand, n is 2, and the loop never ends.
TEMPLATE = """
import signal
import numpy as np
import hloenv
TEXT = '''HloModule m{alias}
cond {{
  s = (s32[], s32[]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] get-tuple-element(s), index=1
  ROOT c = pred[] compare(i, n), direction=NE
}}
body {{
  s = (s32[], s32[]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] get-tuple-element(s), index=1
  two = s32[] constant(2)
  j = s32[] add(i, two)
  ROOT t = (s32[], s32[]) tuple(j, n)
}}
less {{
  a = s32[] parameter(0)
  b = s32[] parameter(1)
  ROOT c = pred[] compare(a, b), direction=LT
}}
ENTRY e {{
{entry}
  start = s32[] constant(1)
  t = (s32[], s32[]) tuple(start, n)
  w = (s32[], s32[]) while(t), condition=cond, body=body
  i = s32[] get-tuple-element(w), index=0
  ROOT r = (s32[], s32[]) tuple({results})
}}'''
signal.alarm(60)  # ends a child that hangs
module = hloenv.HloModule.from_text(TEXT)
executable = hloenv.compile(module, isolate=False)
inputs = [{inputs}]
before = [np.copy(each) for each in executable(*inputs)]
for is_warm in (False, True):
    times = executable.time_steps(3, inputs=inputs, warmup=1, is_warm=is_warm)
    assert times.durations_ns.shape[0] == times.totals_ns.size == 3
assert all(map(np.array_equal, before, executable(*inputs)))
print(*map(int, before))
"""


def check(run_child, entry: str, inputs: str, results: str, alias: str = "") -> None:
    code = TEMPLATE.format(entry=entry, inputs=inputs, results=results, alias=alias)
    assert run_child(code).stdout == "3 3\n"


@pytest.mark.compile
def test_a_kernel_that_works_in_place_is_repeated_from_the_same_memory(run_child):
    entry = """
  x = s32[64,2] parameter(0)
  y = s32[2,64] parameter(1)
  d = s32[64,64] dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  five = s32[] constant(5)
  fives = s32[64,64] broadcast(five), dimensions={}
  v = s32[64,64] subtract(fives, d)
  o = s32[64,64] sort(v), dimensions={1}, to_apply=less
  f = s32[1,1] slice(o), slice={[0:1], [0:1]}
  n = s32[] reshape(f)"""
    inputs = "np.ones((64, 2), np.int32), np.ones((2, 64), np.int32)"
    check(run_child, entry, inputs, "i, i")


@pytest.mark.compile
def test_a_run_that_follows_the_steps_starts_from_the_inputs(run_child):
    entry = """
  p = s32[] parameter(0)
  five = s32[] constant(5)
  n = s32[] subtract(five, p)"""
    alias = ", input_output_alias={ {1}: (0, {}, must-alias) }"
    check(run_child, entry, "np.asarray(2, np.int32)", "i, n", alias)
