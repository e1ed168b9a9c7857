# SPDX-License-Identifier: Apache-2.0
"""Removal of parameters if the caller passes one value to several of them.

XLA itself crashes on each of these modules: `csrc/workarounds/parameter_removal.h`.
"""

from __future__ import annotations

import numpy as np
import pytest

import hloenv

USE_CALLS = hloenv.Pass("dce", use_call_analysis=True)

# One of the two outputs is read, and with the other goes a parameter.
FUSION = """
HloModule fusion

fused {
  p = f32[4]{0} parameter(0)
  q = f32[4]{0} parameter(1)
  sum = f32[4]{0} add(p, p)
  minus = f32[4]{0} negate(q)
  ROOT both = (f32[4]{0}, f32[4]{0}) tuple(sum, minus)
}

ENTRY main {
  x = f32[4]{0} parameter(0)
  y = f32[4]{0} sine(x)
  f = (f32[4]{0}, f32[4]{0}) fusion(y, y), kind=kLoop, calls=fused
  ROOT sum = f32[4]{0} get-tuple-element(f), index=0
}
"""

CALL = """
HloModule call

second {
  p = f32[4]{0} parameter(0)
  q = f32[4]{0} parameter(1)
  ROOT minus = f32[4]{0} negate(q)
}

ENTRY main {
  x = f32[4]{0} parameter(0)
  y = f32[4]{0} sine(x)
  ROOT c = f32[4]{0} call(y, y), to_apply=second
}
"""

# What goes from the inner call makes parameters of the outer one go; the second
# caller passes different values, the third none that stays.
NESTED = """
HloModule nested

inner {
  a = f32[4]{0} parameter(0)
  b = f32[4]{0} parameter(1)
  c = f32[4]{0} parameter(2)
  ROOT minus = f32[4]{0} negate(b)
}

outer {
  a = f32[4]{0} parameter(0)
  b = f32[4]{0} parameter(1)
  c = f32[4]{0} parameter(2)
  d = f32[4]{0} parameter(3)
  s = f32[4]{0} sine(d)
  ROOT i = f32[4]{0} call(a, b, s), to_apply=inner
}

ENTRY main {
  x = f32[4]{0} parameter(0)
  y = f32[4]{0} cosine(x)
  z = f32[4]{0} sine(x)
  first = f32[4]{0} call(y, y, y, y), to_apply=outer
  second = f32[4]{0} call(x, y, z, z), to_apply=outer
  third = f32[4]{0} call(z, x, z, z), to_apply=outer
  sum = f32[4]{0} add(first, second)
  ROOT all = f32[4]{0} add(sum, third)
}
"""


@pytest.mark.parametrize(
    ("text", "dce", "num_operands"),
    [(FUSION, "dce", 1), (FUSION, USE_CALLS, 1), (CALL, USE_CALLS, 1)],
    ids=["fusion", "fusion-calls", "call"],
)
def test_the_value_stays_for_the_parameter_that_stays(text, dce, num_operands):
    module = hloenv.HloModule.from_text(text)
    after = hloenv.run_passes(module, dce).module
    after.verify()
    (called,) = [
        line
        for line in after.to_text().splitlines()
        if " fusion(" in line or " call(" in line
    ]
    assert called.partition("(%")[2].partition(")")[0].count("%") == num_operands - 1
    assert "copy" not in after.opcode_counts()
    _assert_equal(module, after)


def test_calls_of_calls():
    module = hloenv.HloModule.from_text(NESTED)
    after = hloenv.run_passes(module, USE_CALLS).module
    after.verify()
    counts = after.opcode_counts()
    assert counts["call"] == module.opcode_counts()["call"]
    assert counts["parameter"] == 3
    assert "sine" not in counts
    assert "copy" not in counts
    _assert_equal(module, after)


def test_alternatives_of_it_keep_the_invariants():
    module = hloenv.HloModule.from_text(NESTED)
    pipeline = hloenv.Pipeline("calls", [USE_CALLS])
    alternatives = hloenv.HloEnv(module).get_alternatives(pipeline)
    rejected = alternatives.apply(alternatives.reject_all())
    accepted = alternatives.apply(alternatives.decisions_for("calls"))
    assert rejected.fingerprint() == module.fingerprint()
    native = hloenv.run_passes(module, pipeline).module
    assert accepted.fingerprint() == native.fingerprint()


def _assert_equal(a: hloenv.HloModule, b: hloenv.HloModule) -> None:
    x = np.linspace(-1, 1, 4, dtype=np.float32)
    for want, got in zip(hloenv.interpret(a, x), hloenv.interpret(b, x), strict=True):
        np.testing.assert_array_equal(want, got)
