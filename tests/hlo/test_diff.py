# SPDX-License-Identifier: Apache-2.0
"""diff_modules on modules with known differences."""

from __future__ import annotations

import re

import pytest

import hloenv
from hloenv.hlo.diff import diff_modules
from hloenv.hlo.text import parse_text

_BASE = """HloModule base

reducer {
  p = f32[] parameter(0)
  q = f32[] parameter(1)
  ROOT r = f32[] add(p, q)
}

ENTRY main {
  x = f32[4,8]{1,0} parameter(0)
  y = f32[4,8]{1,0} parameter(1)
  zero = f32[] constant(0)
  sum = f32[4,8]{1,0} add(x, y)
  scaled = f32[4,8]{1,0} multiply(sum, y)
  total = f32[4]{0} reduce(scaled, zero), dimensions={1}, to_apply=reducer
  ROOT out = (f32[4]{0}, f32[4,8]{1,0}) tuple(total, sum)
}
"""


def _changes(before: str, after: str) -> list[tuple[str, str, str, tuple[str, ...]]]:
    return [
        (change.kind, change.before, change.after, change.details)
        for computation in diff_modules(before, after).computations
        for change in computation.changes
    ]


def _renamed(text: str) -> str:
    """The same module under other names, in the same order."""
    names = re.findall(r"^ *(?:ROOT )?(\w+)(?: =| \{)", text, re.M)
    for number, name in enumerate(n for n in names if n != "ENTRY"):
        text = re.sub(rf"\b{name}\b(?!\()", f"renamed{number}", text)
    return text.replace("HloModule base", "HloModule other")


def test_equal_modules_have_no_difference():
    difference = diff_modules(_BASE, _BASE)
    assert difference.is_same
    assert not difference.computations
    assert not difference.header
    assert difference.num_same == 10


def test_names_alone_are_no_difference():
    renamed = _renamed(_BASE)
    assert "sum" not in renamed
    difference = diff_modules(_BASE, renamed)
    assert difference.is_same
    assert not difference.computations


def test_attribute_change_is_named_and_does_not_spread():
    after = _BASE.replace("constant(0)", "constant(1)")
    assert _changes(_BASE, after) == [
        ("removed", "zero", "", ()),
        ("changed", "total", "total", ("operand 1: zero -> zero",)),
        ("added", "", "zero", ()),
    ]


def test_inserted_instruction_is_added_and_its_user_changed():
    after = _BASE.replace(
        "  total", "  negated = f32[4,8]{1,0} negate(scaled)\n  total"
    ).replace("reduce(scaled", "reduce(negated")
    assert _changes(_BASE, after) == [
        ("changed", "total", "total", ("operand 0: scaled -> negated",)),
        ("added", "", "negated", ()),
    ]


def test_insertion_is_found_without_names():
    after = _BASE.replace(
        "  total", "  negated = f32[4,8]{1,0} negate(scaled)\n  total"
    ).replace("reduce(scaled", "reduce(negated")
    kinds = [change[0] for change in _changes(_BASE, _renamed(after))]
    assert kinds == ["changed", "added"]


def test_change_inside_a_called_computation_stays_there():
    after = _BASE.replace("ROOT r = f32[] add(p, q)", "ROOT r = f32[] maximum(p, q)")
    difference = diff_modules(_BASE, after)
    assert [each.before for each in difference.computations] == ["reducer"]
    kinds = [change.kind for change in difference.computations[0].changes]
    assert sorted(kinds) == ["added", "changed", "removed"]
    assert difference.computations[0].changes[1].details == ("root r -> r",)


def test_swapped_operands_are_a_change():
    after = _BASE.replace("multiply(sum, y)", "multiply(y, sum)")
    assert _changes(_BASE, after) == [
        (
            "changed",
            "scaled",
            "scaled",
            ("operand 0: sum -> y", "operand 1: y -> sum"),
        )
    ]


def test_header_and_computations_that_only_one_module_has():
    after = (
        _BASE.replace("reducer", "other")
        .replace(
            "ROOT r = f32[] add(p, q)", "t = f32[] add(p, q)\n  ROOT r = f32[] abs(t)"
        )
        .replace("f32[4]{0}", "f32[4]")
    )
    before = (
        _BASE + "\nunused {\n  u = f32[] parameter(0)\n  ROOT v = f32[] abs(u)\n}\n"
    )
    difference = diff_modules(before, after)
    removed = [each for each in difference.computations if not each.after]
    assert [(each.before, each.num_before) for each in removed] == [("unused", 2)]
    paired = [each for each in difference.computations if each.before == "reducer"]
    assert [each.after for each in paired] == ["other"]
    aliased = _BASE.replace("HloModule base", "HloModule base, is_scheduled=true")
    assert diff_modules(_BASE, aliased).header == (("", "is_scheduled=true"),)


def test_bad_input_is_a_parse_error():
    with pytest.raises(hloenv.ParseError):
        diff_modules(_BASE, "HloModule broken\n\nENTRY main {")


def test_text_reader_sees_every_instruction(real_module_path):
    module = hloenv.HloModule.from_file(real_module_path)
    text = parse_text(module.to_text())
    assert len(text.computations) == module.computation_count
    counts: dict[str, int] = {}
    for computation in text.computations.values():
        assert computation.root >= 0
        for instruction in computation.instructions:
            counts[instruction.opcode] = counts.get(instruction.opcode, 0) + 1
    assert counts == module.opcode_counts()


@pytest.mark.parametrize("name", ["algsimp", "cse", "call-inliner", "tuple-simplifier"])
def test_counts_add_up_over_real_modules(hlo_dir, name):
    num_changed = 0
    for path in sorted(hlo_dir.glob("*/*.txt")):
        env = hloenv.HloEnv(path)
        before = env.module
        if before.instruction_count > 1000:
            continue
        changed = env.run(name)
        difference = diff_modules(before, env.module)
        added, removed = difference.count("added"), difference.count("removed")
        assert (
            env.module.instruction_count == before.instruction_count + added - removed
        )
        assert difference.is_same == (before.fingerprint() == env.fingerprint())
        assert changed or not difference.computations
        num_changed += changed
        if name == "cse":
            assert added == 0
    assert num_changed > 5
