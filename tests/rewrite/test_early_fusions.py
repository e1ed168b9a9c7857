# SPDX-License-Identifier: Apache-2.0
"""Fusions that a module holds before layouts are assigned."""

from __future__ import annotations

import numpy as np
import pytest

import hloenv

# Layout assignment gives one result of the fusion the layout that its user wants, and
# leaves the body as it is.
TEXT = """HloModule early, entry_computation_layout={(f32[4,8]{1,0})->(f32[4,8]{%s}, f32[4,8]{1,0})}

body {
  p = f32[4,8] parameter(0)
  e = f32[4,8] exponential(p)
  n = f32[4,8] negate(p)
  ROOT t = (f32[4,8], f32[4,8]) tuple(e, n)
}

ENTRY main {
  x = f32[4,8] parameter(0)
  f = (f32[4,8], f32[4,8]) fusion(x), kind=kLoop, calls=body
  a = f32[4,8] get-tuple-element(f), index=0
  b = f32[4,8] get-tuple-element(f), index=1
  ROOT t = (f32[4,8], f32[4,8]) tuple(a, b)
}
"""


def test_results_in_layouts_that_the_body_does_not_compute_are_an_error():
    with pytest.raises(hloenv.CompileError, match=r"run_until\('fusion'\)"):
        hloenv.compile(TEXT % "0,1")


def test_results_in_the_layouts_of_the_body_are_right():
    x = np.arange(32, dtype=np.float32).reshape(4, 8) / 8
    first, second = hloenv.compile(TEXT % "1,0")(x)
    np.testing.assert_allclose(first, np.exp(x), rtol=1e-6)
    np.testing.assert_array_equal(second, -x)
