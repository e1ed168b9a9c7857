# SPDX-License-Identifier: Apache-2.0
"""XLA's evaluator ignores dynamic sizes: it must not be asked for their values."""

from __future__ import annotations

import numpy as np
import pytest

import hloenv
from hloenv.errors import ExecuteError
from hloenv.hlo.passes import Pipeline, run_passes

TEXT = """HloModule dynamic

add {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}

ENTRY main {
  x = f32[8] parameter(0)
  size = s32[] constant(3)
  part = f32[<=8] set-dimension-size(x, size), dimensions={0}
  zero = f32[] constant(0)
  ROOT sum = f32[] reduce(part, zero), dimensions={0}, to_apply=add
}
"""


@pytest.mark.compile
def test_dynamic_sizes_are_compiled_and_not_interpreted():
    module = hloenv.HloModule.from_text(TEXT)
    x = np.arange(1, 9, dtype=np.float32)
    assert hloenv.compile(module)(x)[0] == 6
    with pytest.raises(ExecuteError, match="run the pass dynamic_padder first"):
        hloenv.interpret(module, x)
    alternatives = hloenv.HloEnv(module).get_alternatives("dynamic_padder")
    with pytest.raises(ExecuteError, match="ignores the sizes"):
        hloenv.verify_alternatives(alternatives)
    padded = run_passes(module, "dynamic_padder").module
    assert hloenv.interpret(padded, x)[0] == 6


def test_a_named_pipeline_of_a_pass_in_python_runs():
    module = hloenv.HloModule.from_text(TEXT)
    env = hloenv.HloEnv(module)
    env.run(Pipeline("named", ("substitutions",)))
    assert env.fingerprint() == module.fingerprint()
