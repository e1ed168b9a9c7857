# SPDX-License-Identifier: Apache-2.0
"""Outputs that roundings decide, as in the gradient of a ReLU."""

from __future__ import annotations

import numpy as np
import pytest

import hloenv
from hloenv.errors import OutputMismatchError

ROWS, COLUMNS = 20_000, 64


def passed(*, in_parts: bool, factor: float = 1.0) -> str:
    """The rows whose sum is above zero, by one sum or as the sum of two halves."""
    whole = f"f32[{ROWS},{COLUMNS}]"
    half = f"f32[{ROWS},{COLUMNS // 2}]"
    row = f"f32[{ROWS}]"
    sums = f"s = {row} reduce(x, zero), dimensions={{1}}, to_apply=add"
    if in_parts:
        sums = "\n  ".join(
            [
                f"l = {half} slice(x), slice={{[0:{ROWS}], [0:{COLUMNS // 2}]}}",
                f"h = {half} slice(x), slice={{[0:{ROWS}], [{COLUMNS // 2}:{COLUMNS}]}}",
                f"a = {row} reduce(l, zero), dimensions={{1}}, to_apply=add",
                f"b = {row} reduce(h, zero), dimensions={{1}}, to_apply=add",
                f"s = {row} add(a, b)",
            ]
        )
    return f"""HloModule passed

add {{
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}}

ENTRY main {{
  x = {whole} parameter(0)
  zero = f32[] constant(0)
  {sums}
  f = f32[] constant({factor})
  one = {row} broadcast(f), dimensions={{}}
  zeros = {row} broadcast(zero), dimensions={{}}
  above = pred[{ROWS}] compare(s, zeros), direction=GT
  ROOT r = {row} select(above, one, zeros)
}}
"""


@pytest.fixture(scope="module")
def near_zero():
    """Some rows have sums that only rounding tells from zero."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(ROWS, COLUMNS)).astype(np.float32)
    some = rng.random(ROWS) < 0.002
    x[some, -1] = -x[some, :-1].astype(np.float64).sum(1)
    return [x]


@pytest.mark.compile
def test_what_moved_inputs_change_may_differ(near_zero):
    one, parts = passed(in_parts=False), passed(in_parts=True)
    (outputs, others) = (hloenv.compile(each)(*near_zero)[0] for each in (one, parts))
    assert 0 < (outputs != others).sum() < 40
    (found,) = hloenv.measure([parts], baseline=one, inputs=near_zero, repeats=5)
    found.check()
    assert not found.outputs.is_bitwise


@pytest.mark.compile
def test_more_than_that_is_a_mismatch(near_zero):
    wrong = passed(in_parts=True, factor=1.02)
    (found,) = hloenv.measure(
        [wrong], baseline=passed(in_parts=False), inputs=near_zero, repeats=5
    )
    with pytest.raises(OutputMismatchError):
        found.check()
    turned = passed(in_parts=True).replace("direction=GT", "direction=GE")
    zeros = [np.zeros_like(near_zero[0])]
    (found,) = hloenv.measure(
        [turned], baseline=passed(in_parts=False), inputs=zeros, repeats=5
    )
    with pytest.raises(OutputMismatchError):
        found.check()
