# SPDX-License-Identifier: Apache-2.0
"""Spaces whose passes are decided inside XLA's own pipeline."""

from __future__ import annotations

import numpy as np
import pytest

import hloenv
from hloenv.policies import get_policy
from hloenv.search.spaces import SPACES, decide

# Something for algsimp and for fusion, inside a loop too.
TEXT = """HloModule live

body {
  s = (s32[], f32[8,8]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[8,8] get-tuple-element(s), index=1
  one = s32[] constant(1)
  j = s32[] add(i, one)
  zero = f32[] constant(0)
  z = f32[8,8] broadcast(zero), dimensions={}
  y = f32[8,8] add(x, z)
  d = f32[8,8] dot(y, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  e = f32[8,8] tanh(d)
  ROOT t = (s32[], f32[8,8]) tuple(j, e)
}

condition {
  s = (s32[], f32[8,8]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(3)
  ROOT c = pred[] compare(i, n), direction=LT
}

ENTRY main {
  p = f32[8,8] parameter(0)
  zero = s32[] constant(0)
  a = (s32[], f32[8,8]) tuple(zero, p)
  w = (s32[], f32[8,8]) while(a), condition=condition, body=body
  r = f32[8,8] get-tuple-element(w), index=1
  b = f32[8,8] transpose(r), dimensions={1,0}
  c = f32[8,8] transpose(b), dimensions={1,0}
  m = f32[8,8] multiply(c, p)
  q = f32[8,8] add(m, p)
  ROOT o = f32[8,8] sine(q)
}
"""


@pytest.mark.compile
@pytest.mark.parametrize("space", ["live-algsimp", "live-fusion", "live"])
@pytest.mark.parametrize("policy", ["keep-original", "random"])
def test_what_is_decided_inside_the_pipeline_runs(space: str, policy: str) -> None:
    module = hloenv.HloModule.from_text(TEXT)
    decided = decide(module, SPACES[space], get_policy(policy))
    assert decided.num_alternatives > 0
    assert policy != "keep-original" or decided.num_accepted == 0
    p = np.random.default_rng(0).normal(size=(8, 8)).astype(np.float32)
    executable = hloenv.compile(decided.module, finish="none")
    (wanted,) = hloenv.compile(module)(p)
    for _ in range(3):  # its buffers may be used again
        (found,) = executable(p)
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)
