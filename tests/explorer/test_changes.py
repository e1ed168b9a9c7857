# SPDX-License-Identifier: Apache-2.0
"""What a pass changed, change by change."""

from __future__ import annotations

import pytest

from hloenv import HloEnv, HloModule
from hloenv.explorer.changes import stage_change, stage_diff

TWO_PLACES = """HloModule two

ENTRY e {
  p = f32[8] parameter(0)
  zero = f32[] constant(0)
  zeros = f32[8] broadcast(zero), dimensions={}
  first = f32[8] add(p, zeros)
  a = f32[8] exponential(first)
  b = f32[8] negate(a)
  c = f32[8] cosine(b)
  one = f32[] constant(1)
  ones = f32[8] broadcast(one), dimensions={}
  second = f32[8] multiply(c, ones)
  ROOT d = f32[8] tanh(second)
}
"""


def _around(name, text):
    before = HloModule.from_text(text)
    env = HloEnv(before)
    assert env.run(name)
    sides = before.to_bytes(), env.module.to_bytes()
    return sides, stage_diff(*sides)["changes"]


def test_changes_in_two_places_are_shown_apart():
    sides, changes = _around("algsimp", TWO_PLACES)
    index = {row["before"] or row["after"]: row["index"] for row in changes}
    first = stage_change(*sides, index["first"])
    second = stage_change(*sides, index["second"])
    assert {"first", "p", "a"} <= set(first["before"]["names"])
    assert {"p", "a"} <= set(first["after"]["names"])
    assert "second" not in first["before"]["names"]
    assert {"c", "d"} <= set(second["after"]["names"])
    assert first["changed"]["first"] == second["changed"]["second"] == "removed"
    assert first["num_left_out"] == 0


def test_a_fused_instruction_is_shown_where_it_went():
    sides, changes = _around("fusion", TWO_PLACES)
    (index,) = (row["index"] for row in changes if row["before"] == "b")
    found = stage_change(*sides, index)
    opcodes = {found["after"]["opcodes"][each] for each in found["after"]["opcode"]}
    assert {"fusion", "negate"} <= opcodes
    assert "added" in found["changed"].values()


@pytest.mark.parametrize("index", [-1, 10**9])
def test_there_is_no_such_change(index):
    sides, _ = _around("algsimp", TWO_PLACES)
    with pytest.raises(ValueError, match=r"no change"):
        stage_change(*sides, index)
