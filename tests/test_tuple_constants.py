# SPDX-License-Identifier: Apache-2.0
"""Tuple constants, of which one of XLA's own passes dies, reach the backend."""

from __future__ import annotations

import numpy as np
import pytest

import hloenv

TEXT = """HloModule m
ENTRY e {
  p = f32[4] parameter(0)
  k = (f32[4], s32[]) constant(({1, 2, 3, 4}, 7))
  a = f32[4] get-tuple-element(k), index=0
  ROOT r = f32[4] add(p, a)
}
"""


@pytest.mark.compile
def test_a_tuple_constant_that_nothing_simplified_does_not_end_the_process(run_child):
    # In a process of its own: it died where the canonicalizer of literals ran.
    child = run_child(f"""
import numpy as np
import hloenv
env = hloenv.HloEnv({TEXT!r})
alternatives = env.get_alternatives("algsimp", "tuple-simplifier")
env.apply_alternatives(alternatives.reject_all())
names = [stage.name for stage in hloenv.list_stages(env.module) if stage.skipped]
assert "literal-canonicalizer" in names
print(hloenv.compile(env.module, isolate=False)(np.ones(4, np.float32))[0].tolist())
""")
    assert child.stdout.strip() == "[2.0, 3.0, 4.0, 5.0]"


@pytest.mark.compile
def test_without_decisions_xla_runs_all_of_its_passes():
    stages = hloenv.list_stages(hloenv.HloModule.from_text(TEXT))
    assert not any(stage.skipped for stage in stages)
    (output,) = hloenv.compile(TEXT)(np.zeros(4, np.float32))
    np.testing.assert_array_equal(output, [1, 2, 3, 4])
