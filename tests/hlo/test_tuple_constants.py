# SPDX-License-Identifier: Apache-2.0
"""Tuple constants, which crash one of XLA's own passes, reach the backend."""

from __future__ import annotations

import numpy as np
import pytest

import hloenv

SUM = """HloModule m
ENTRY e {
  p = f32[4] parameter(0)
  k = (f32[4], s32[]) constant(({1, 2, 3, 4}, 7))
  a = f32[4] get-tuple-element(k), index=0
  ROOT r = f32[4] add(p, a)
}
"""
LOOP = """HloModule m
cond {
  s = (f32[4], s32[]) parameter(0)
  i = s32[] get-tuple-element(s), index=1
  n = s32[] constant(9)
  ROOT lt = pred[] compare(i, n), direction=LT
}
body {
  s = (f32[4], s32[]) parameter(0)
  x = f32[4] get-tuple-element(s), index=0
  i = s32[] get-tuple-element(s), index=1
  y = f32[4] add(x, x)
  one = s32[] constant(1)
  j = s32[] add(i, one)
  ROOT t = (f32[4], s32[]) tuple(y, j)
}
ENTRY e {
  p = f32[4] parameter(0)
  k = (f32[4], s32[]) constant(({1, 2, 3, 4}, 7))
  w = (f32[4], s32[]) while(k), condition=cond, body=body
  a = f32[4] get-tuple-element(w), index=0
  ROOT r = f32[4] add(p, a)
}
"""
NESTED = """HloModule m
ENTRY e {
  p = f32[4] parameter(0)
  k = (f32[4], (s32[], f32[4])) constant(({1, 2, 3, 4}, (7, {5, 6, 7, 8})))
  ROOT r = (f32[4], (f32[4], (s32[], f32[4]))) tuple(p, k)
}
"""


@pytest.mark.compile
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (SUM, [[2.0, 3.0, 4.0, 5.0]]),
        (LOOP, [[5.0, 9.0, 13.0, 17.0]]),
        (NESTED, [[1.0] * 4, [1.0, 2.0, 3.0, 4.0], 7, [5.0, 6.0, 7.0, 8.0]]),
    ],
    ids=["sum", "loop", "nested"],
)
def test_tuple_constants_that_nothing_simplified_compile(run_child, text, expected):
    # In a process of its own, which they would end.
    child = run_child(f"""
import numpy as np
import hloenv
env = hloenv.HloEnv({text!r})
alternatives = env.get_alternatives("algsimp", "cse", "tuple-simplifier")
env.apply_alternatives(alternatives.reject_all())
outputs = hloenv.compile(env.module, isolate=False)(np.ones(4, np.float32))
print([each.tolist() for each in outputs])
""")
    assert child.stdout.strip() == str(expected)


@pytest.mark.compile
def test_without_decisions_xla_runs_all_of_its_passes():
    stages = hloenv.list_stages(hloenv.HloModule.from_text(SUM))
    assert not any(stage.skipped for stage in stages)
    (output,) = hloenv.compile(SUM)(np.zeros(4, np.float32))
    np.testing.assert_array_equal(output, [1, 2, 3, 4])
