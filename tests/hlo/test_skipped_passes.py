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


NAN = np.float32("nan")
# A module for each pass that must run; the values for which it differs without.
NEEDED = {
    "comparison-expander": (
        """HloModule m
ENTRY e {
  a = f32[4]{0} parameter(0)
  b = f32[4]{0} parameter(1)
  ROOT lt = pred[4]{0} compare(a, b), direction=LT, type=TOTALORDER
}""",
        np.array([-NAN, 1, -0.0, 2], np.float32),
        np.array([1, NAN, 0, 3], np.float32),
    ),
    "operand_upcaster": (
        """HloModule m
ENTRY e {
  a = s8[1,6,6,1]{3,2,1,0} parameter(0)
  k = s8[3,3,1,2]{3,2,1,0} parameter(1)
  ROOT c = s32[1,4,4,2]{3,2,1,0} convolution(a, k), window={size=3x3},
    dim_labels=b01f_01io->b01f
}""",
        np.arange(36, dtype=np.int8).reshape(1, 6, 6, 1),
        np.arange(18, dtype=np.int8).reshape(3, 3, 1, 2),
    ),
    "result_caster": (
        """HloModule m
ENTRY e {
  a = f64[1,30,30,1]{3,2,1,0} parameter(0)
  k = f64[1,1,1,1]{3,2,1,0} parameter(1)
  ROOT c = f32[1,30,30,1]{3,2,1,0} convolution(a, k), window={size=1x1},
    dim_labels=b01f_01io->b01f
}""",
        np.arange(900, dtype=np.float64).reshape(1, 30, 30, 1),
        np.full((1, 1, 1, 1), 3.0),
    ),
}


@pytest.mark.parametrize("name", NEEDED)
def test_passes_run_without_which_the_backend_computes_other_values(name: str):
    text, *inputs = NEEDED[name]
    module = hloenv.HloModule.from_text(text)
    env = hloenv.HloEnv(module)
    alternatives = env.get_alternatives(name)
    assert len(alternatives) > 0
    env.apply_alternatives(alternatives.reject_all())
    expected = hloenv.interpret(module, *inputs)
    # In a child process: it once wrote beyond an array.
    (measured,) = hloenv.measure([env.module], baseline=module, inputs=inputs)
    assert measured.is_ok
    hloenv.compare_outputs(expected, hloenv.compile(env.module)(*inputs)).check()


def test_the_user_is_told_of_needed_passes_that_a_pattern_names():
    text = """HloModule m
ENTRY e {
  a = s8[4]{0} parameter(0)
  z = s4[4]{0} convert(a)
  w = s4[4]{0} add(z, z)
  ROOT d = s8[4]{0} convert(w)
}"""
    num_skipped = 0
    with hloenv.intercept(hloenv.HloModule.from_text(text)) as pipeline:
        for stage in pipeline:
            if stage.name == "float-normalization-s4":
                num_skipped += 1
                with pytest.warns(hloenv.PositionWarning, match="compute other values"):
                    stage.skip()
    assert num_skipped


CALL_IN_REDUCER = """HloModule m
inner {
  x = f32[] parameter(0)
  y = f32[] parameter(1)
  ROOT q = f32[] add(x, y)
}
middle {
  x = f32[] parameter(0)
  y = f32[] parameter(1)
  ROOT q = f32[] call(x, y), to_apply=inner
}
outer {
  x = f32[] parameter(0)
  y = f32[] parameter(1)
  ROOT q = f32[] call(x, y), to_apply=middle
}
ENTRY e {
  a = f32[4,9]{1,0} parameter(0)
  z = f32[] constant(0)
  ROOT r = f32[4]{0} reduce(a, z), dimensions={1}, to_apply=outer
}"""


@pytest.mark.parametrize("choice", [0, 1])
def test_calls_in_what_a_reduction_applies_do_not_reach_the_backend(choice):
    module = hloenv.HloModule.from_text(CALL_IN_REDUCER)
    env = hloenv.HloEnv(module)
    alternatives = env.get_alternatives("call-inliner")
    assert len(alternatives)
    env.apply_alternatives([choice] * len(alternatives))
    x = np.arange(36, dtype=np.float32).reshape(4, 9)
    (out,) = hloenv.compile(env.module)(x)
    np.testing.assert_array_equal(out, x.sum(1))
