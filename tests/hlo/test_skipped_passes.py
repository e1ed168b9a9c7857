# SPDX-License-Identifier: Apache-2.0
"""Instructions that crash the backend if the pass that removes them was decided."""

from __future__ import annotations

import numpy as np
import pytest

import hloenv

pytestmark = pytest.mark.compile

SCALAR_TRANSPOSE = """
HloModule scalar_transpose

ENTRY main {
  x = f32[4]{0} parameter(0)
  s = f32[1]{0} slice(x), slice={[1:2]}
  scalar = f32[] reshape(s)
  same = f32[] transpose(scalar), dimensions={}
  root = f32[] sqrt(same)
  all = f32[4]{0} broadcast(root), dimensions={}
  ROOT out = f32[4]{0} multiply(all, x)
}
"""


@pytest.mark.parametrize("decided", [("algsimp",), ("algsimp", "cse", "reshape-mover")])
def test_transposes_of_scalars_do_not_reach_the_backend(decided: tuple[str, ...]):
    env = hloenv.HloEnv(hloenv.HloModule.from_text(SCALAR_TRANSPOSE))
    alternatives = env.get_alternatives(*decided)
    env.apply_alternatives(alternatives.reject_all())
    x = np.array([1.0, 4.0, 2.0, 3.0], np.float32)
    (out,) = hloenv.compile(env.module)(x)
    np.testing.assert_allclose(out, 2 * x, rtol=1e-6)


def test_the_workaround_needs_decisions():
    module = hloenv.HloModule.from_text(SCALAR_TRANSPOSE)
    stopped = hloenv.run_until(module, "layout-assignment")
    assert hloenv.finish(stopped).fingerprint() == hloenv.finish(module).fingerprint()


@pytest.mark.parametrize("answer", ["keep the originals", "skip the pass"])
def test_transposes_of_scalars_do_not_reach_the_backend_after_an_interception(answer):
    module = hloenv.HloModule.from_text(SCALAR_TRANSPOSE)
    num_transposes = 0
    with hloenv.intercept(module) as pipeline:
        for stage in pipeline:
            if stage.name != "algsimp":
                continue
            num_transposes += stage.module.opcode_counts().get("transpose", 0)
            if answer == "skip the pass":
                stage.skip()
            else:
                alternatives = stage.get_alternatives()
                stage.apply_alternatives(alternatives.reject_all())
    # Where algsimp runs again, the answer has kept the transpose.
    assert num_transposes > 1
    assert "transpose" not in pipeline.module.opcode_counts()
    x = np.array([1.0, 4.0, 2.0, 3.0], np.float32)
    (out,) = hloenv.compile(pipeline.module, finish="none")(x)
    np.testing.assert_allclose(out, 2 * x, rtol=1e-6)
