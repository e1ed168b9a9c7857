# SPDX-License-Identifier: Apache-2.0
"""Every choice compiles and runs at the positions where its pass is allowed."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import hloenv
from hloenv.hlo.passes import Pass

pytestmark = pytest.mark.compile

_MIXED = """HloModule mixed

ENTRY main {
  a = bf16[32,32] parameter(0)
  c = bf16[32,32] parameter(1)
  b = bf16[32,32] parameter(2)
  s = bf16[32,32] add(a, c)
  d = f32[32,32] dot(s, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT t = f32[32,32] tanh(d)
}
"""
_SORT = """HloModule sorted

compare {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  c = s32[] bitcast-convert(a)
  d = s32[] bitcast-convert(b)
  ROOT r = pred[] compare(c, d), direction=LT
}

ENTRY main {
  x = f32[5] parameter(0)
  y = f32[5] add(x, x)
  ROOT o = f32[5] sort(y), dimensions={0}, to_apply=compare
}
"""


def _batch(size: int, dtype: str = "f32") -> str:
    shape = f"{dtype}[8,{size},{size}]"
    return f"""HloModule batch

ENTRY main {{
  a = {shape} parameter(0)
  b = {shape} parameter(1)
  ROOT d = {shape} dot(a, b), lhs_batch_dims={{0}}, rhs_batch_dims={{0}}, lhs_contracting_dims={{2}}, rhs_contracting_dims={{1}}
}}
"""


def _choices(text: str, name: str, where: str) -> list[hloenv.HloModule]:
    """The module with each choice alone, all of them, and those of XLA's pass."""
    env = hloenv.HloEnv(text)
    env.run_until(where)
    found = env.get_alternatives(name)
    vectors = [np.ones(len(found), np.int64), found.decisions_for(name)]
    for i, number in enumerate(found.num_choices):
        for choice in range(1, number):
            vectors.append(found.reject_all())
            vectors[-1][i] = choice
    return [found.apply(each) for each in vectors]


@pytest.mark.parametrize("where", ["fusion", "copy-insertion"])
@pytest.mark.parametrize(
    ("text", "name", "is_offered"),
    [
        (_MIXED, "general-layout", False),
        (_batch(2), "general-layout", False),
        (_batch(3), "general-layout", False),
        (_batch(4), "general-layout", True),
        (_batch(4, "f64"), "general-layout", True),
        (_SORT, "algsimp", False),
        (_SORT, "general-simplify", False),
    ],
    ids=["mixed", "2x2", "3x3", "4x4", "4x4, f64", "sort", "sort, all options"],
)
def test_choices_of_late_passes_run(text: str, name: str, where: str, is_offered: bool):
    inputs = hloenv.random_inputs(hloenv.HloModule.from_text(text))
    expected = hloenv.compile(text)(*inputs)
    decided = _choices(text, name, where)
    assert (len(decided) > 2) == is_offered
    for module in decided:
        found = hloenv.compile(module)(*inputs)
        np.testing.assert_allclose(found, expected, rtol=2e-2, atol=1e-2)


def test_bitcasts_of_comparators_can_be_asked_for():
    env = hloenv.HloEnv(_SORT)
    env.run_until("fusion")
    given = Pass("algsimp", rewrite_no_op_bitcast_convert_to_bitcast=True)
    assert len(env.get_alternatives(given)) > 0


@pytest.mark.parametrize("name", ["convolution-forms", "dot-forms"])
def test_forms_behind_layout_assignment_warn(name: str):
    env = hloenv.HloEnv(_batch(4))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        env.get_alternatives(name)
    env.run_until("fusion")
    with pytest.warns(hloenv.errors.PositionWarning, match=f"'{name}' was captured af"):
        env.get_alternatives(name)
