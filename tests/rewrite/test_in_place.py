# SPDX-License-Identifier: Apache-2.0
"""Rewrites that change instructions in place, and rewrites that are invalid."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from hloenv.errors import PassError
from hloenv.fuzz.expected import Expected
from hloenv.hlo.module import HloModule
from hloenv.hlo.passes import Pass
from hloenv.rewrite.env import HloEnv
from hloenv.rewrite.verify import verify_alternatives
from hloenv.runtime.interpreter import interpret

SCALARS = Pass("algsimp", enable_scalar_multiply_reduction=True)

# The pass moves the factor from the result to the kernel of the convolution, which it
# changes in place, and reads the convolution for the product in two places.
MOVED_FACTOR = """HloModule moved_factor

ENTRY main {
  x = f32[2,9,9,1] parameter(0)
  k = f32[3,3,1,8] parameter(1)
  c = f32[2,9,9,8] convolution(x, k), window={size=3x3 pad=1_1x1_1}, dim_labels=b01f_01io->b01f
  two = f32[] constant(2)
  twos = f32[2,9,9,8] broadcast(two), dimensions={}
  m = f32[2,9,9,8] multiply(c, twos)
  t = f32[9,9,2,8] transpose(m), dimensions={1,2,0,3}
  e = f32[2,9,9,8] exponential(m)
  ROOT out = (f32[9,9,2,8], f32[2,9,9,8]) tuple(t, e)
}
"""

# Two factors behind one another: both declared replacements are wrong alone.
TWO_FACTORS = """HloModule two_factors

ENTRY main {
  x = f32[2,9,9,1] parameter(0)
  k = f32[3,3,1,8] parameter(1)
  c = f32[2,9,9,8] convolution(x, k), window={size=3x3 pad=1_1x1_1}, dim_labels=b01f_01io->b01f
  two = f32[] constant(2)
  twos = f32[2,9,9,8] broadcast(two), dimensions={}
  m = f32[2,9,9,8] multiply(c, twos)
  t = f32[9,9,2,8] transpose(m), dimensions={1,2,0,3}
  three = f32[] constant(3)
  threes = f32[9,9,2,8] broadcast(three), dimensions={}
  n = f32[9,9,2,8] multiply(t, threes)
  ROOT e = f32[9,9,2,8] exponential(n)
}
"""

# The factor goes from an operand to the smaller result.
FACTOR_BEHIND = """HloModule factor_behind

ENTRY main {
  x = f32[1,9,9,8] parameter(0)
  k = f32[9,9,1,8] parameter(1)
  half = f32[] constant(0.5)
  halves = f32[9,9,1,8] broadcast(half), dimensions={}
  m = f32[9,9,1,8] multiply(k, halves)
  t = f32[9,9,8,1] transpose(m), dimensions={0,1,3,2}
  c = f32[1,1,1,1] convolution(x, t), window={size=9x9}, dim_labels=b01f_01io->b01f
  ROOT e = f32[1,1,1,1] sine(c)
}
"""

# A fusion counts as elementwise to reshape-mover, which then gives it another shape
# and leaves its body as it is.
FUSED = """HloModule fused

body {
  p = f32[9,3] parameter(0)
  q = f32[9,3] parameter(1)
  ROOT s = f32[9,3] subtract(p, q)
}

ENTRY main {
  x = f32[3,3,3] parameter(0)
  r = f32[9,3] reshape(x)
  y = f32[9] parameter(1)
  b = f32[9,3] broadcast(y), dimensions={0}
  ROOT f = f32[9,3] fusion(r, b), kind=kLoop, calls=body
}
"""
RESHAPES = Pass("reshape-mover", reshape_of_1d_broadcast_is_cheap=True)


@pytest.mark.parametrize("text", [MOVED_FACTOR, TWO_FACTORS, FACTOR_BEHIND])
def test_a_factor_that_is_moved_in_place_is_one_decision(text: str):
    module = HloModule.from_text(text)
    alternatives = HloEnv(module).get_alternatives(SCALARS)
    assert len(alternatives) > 0
    native = HloEnv(module)
    native.run(SCALARS)
    accepted = alternatives.apply(alternatives.decisions_for("algsimp"))
    assert accepted.fingerprint() == native.fingerprint() != module.fingerprint()
    expected = Expected(module, seed=0)
    for decisions in itertools.product(*map(range, alternatives.num_choices)):
        outputs = interpret(alternatives.apply(decisions), *expected.inputs)
        assert expected.compare(outputs).is_clear, decisions
    for record in verify_alternatives(alternatives, expected.inputs):
        assert record.relative < 1e-5, record


def test_an_operand_that_is_swapped_in_place_stays_a_decision_of_its_own():
    module = HloModule.from_file("tests/testdata/hlo/operand_swap.hlo")
    alternatives = HloEnv(module).get_alternatives("algsimp")
    assert len(alternatives) > 1


def test_candidates_leave_out_what_xla_gets_wrong():
    module = HloModule.from_text(FUSED)
    alternatives = HloEnv(module).get_alternatives("general-simplify")
    for decisions in itertools.product(*map(range, alternatives.num_choices)):
        alternatives.apply(decisions).verify()
    inputs = [np.ones((3, 3, 3), np.float32), np.ones(9, np.float32)]
    assert all(r.absolute == 0 for r in verify_alternatives(alternatives, inputs))


def test_a_pass_that_makes_an_invalid_module_is_an_error():
    env = HloEnv(FUSED)
    with pytest.raises(PassError, match="'reshape-mover' makes the valid module"):
        env.get_alternatives(RESHAPES)
    assert env.fingerprint() == HloModule.from_text(FUSED).fingerprint()
