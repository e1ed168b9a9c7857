# SPDX-License-Identifier: Apache-2.0
"""Rules of `reassociate` where layouts differ."""

from __future__ import annotations

import hloenv


def test_operands_in_other_layouts_are_no_error():
    # XLA's builders give a product the layout of its first operand.
    text = """HloModule m, entry_computation_layout={(f32[9,9]{0,1}, f32[9,9])->f32[9,9]}
ENTRY e {
  a = f32[9,9]{0,1} parameter(0)
  b = f32[9,9]{1,0} parameter(1)
  c = f32[9,9]{1,0} cosine(b)
  ab = f32[9,9]{1,0} multiply(a, b)
  ac = f32[9,9]{1,0} multiply(a, c)
  ROOT sum = f32[9,9]{1,0} add(ab, ac)
}
"""
    env = hloenv.HloEnv(text)
    alternatives = env.get_alternatives("reassociate")
    assert "factor" in {c.rule for each in alternatives for c in each.choices}
    env.apply_alternatives(alternatives.num_choices - 1).verify()
    assert env.module.opcode_counts()["multiply"] == 1
    assert all(
        error.relative < 1e-5 for error in hloenv.verify_alternatives(alternatives)
    )
