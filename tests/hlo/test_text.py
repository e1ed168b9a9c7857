# SPDX-License-Identifier: Apache-2.0
"""HLO text whose strings and JSON have line breaks, or look like code."""

from __future__ import annotations

import pytest

import hloenv
from hloenv.explorer.graph_data import lines_by_computation
from hloenv.fuzz.reducer_edits import apply, edits
from hloenv.hlo.diff import diff_modules
from hloenv.hlo.text import (
    attribute_text,
    computation_blocks,
    logical_lines,
    parse_text,
    split_parts,
    without_metadata,
)
from hloenv.rewrite_map.extract import render
from hloenv.rules.subject import Subject

MODULE = """
HloModule m, frontend_attributes={note={"a":
{}}}

double {
  q = f32[4]{0} parameter(0)
  ROOT r = f32[4]{0} add(q, q)
}

ENTRY e {
  x = f32[4]{0} parameter(0)
  y = f32[4]{0} call(x), to_apply=double, frontend_attributes={note="100%"}
  c = f32[4]{0} custom-call(y), custom_call_target="foo", backend_config=CONFIG
  k = f32[8]{0} concatenate(c, y), dimensions={0}
  ROOT k2 = f32[12]{0} concatenate(k, x), dimensions={0}, metadata={op_name="z"}
}
"""
CONFIGS = {
    "line break": """{"a":
  {"b":"c"}}""",
    "blank lines": """{"a":

}""",
    "computation": r"""{"a":"
}

ENTRY %q (x: f32[4]) -> f32[4] {
  ROOT %x = f32[4] parameter(0)
}
"}""",
    "escaped": r'{"a":"\n}\n\nENTRY %q (x: f32[4]) -> f32[4] {\n  ROOT %x = \"}\n"}',
    "attributes": '{"a":", control-predecessors={%x}, metadata={}, calls=%double"}',
    "separator": '{"a":"\u2028\x0b\x85"}',
}


@pytest.fixture(params=CONFIGS.values(), ids=CONFIGS)
def config(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def module(config: str) -> hloenv.HloModule:
    return hloenv.HloModule.from_text(MODULE.replace("CONFIG", config))


def test_each_instruction_is_one_line(module, config):
    text = module.to_text()
    lines = logical_lines(text)
    assert "\n".join(lines) == text
    assert len(lines) == 16
    assert lines[10].endswith(f'custom_call_target="foo", backend_config={config}')


def test_attributes_are_read(module, config):
    parsed = parse_text(module.to_text())
    assert parsed.entry == "e"
    assert list(parsed.computations) == ["double", "e"]
    y, c, k, k2 = parsed.computations["e"].instructions[1:]
    assert (y.callees, c.callees, c.controls, c.operands) == (["double"], [], [], [1])
    assert (k.attributes, k2.attributes) == (", dimensions={0}", ", dimensions={0}")
    call = ', to_apply={}double, frontend_attributes={{note="100%"}}'
    assert attribute_text(y) == call.format("%")
    assert render(y, ["x"]) == f"y = f32[4] call(x){call.format('')}"
    target = ', custom_call_target="foo", backend_config='
    assert attribute_text(c) == target + config
    assert split_parts(c.attributes)[1:] == [f"backend_config={config}"]


def test_metadata_in_strings_stays(module):
    text = module.to_text()
    left = text.replace(', metadata={op_name="z"}', "")
    assert without_metadata(text) == left.replace("\n\n%double", "\n%double")


def test_computations_are_split(module):
    text = module.to_text()
    blocks = computation_blocks(text)
    assert [name for name, _ in blocks] == ["double", "e"]
    assert text.endswith("\n\n".join(each for _, each in blocks) + "\n\n")
    assert Subject(module).computation_text("double") == blocks[0][1] + "\n\n"


def test_alternatives_are_captured(module, config):
    env = hloenv.HloEnv(module)
    alternatives = env.get_alternatives("substitutions")
    assert [each.original for each in alternatives] == ["k2"]
    decided = alternatives.apply([1])
    assert f"backend_config={config}" in decided.to_text()


def test_a_difference_names_the_instruction(module, config):
    other = hloenv.HloModule.from_text(MODULE.replace("CONFIG", '"other"'))
    difference = diff_modules(module, other)
    (entry,) = difference.computations
    assert [each.before for each in entry.changes] == ["c"]


def test_the_explorer_shows_all_of_an_instruction(module, config):
    (line,) = lines_by_computation(module, {"c"})
    assert line.startswith("%c = f32[4]{0} custom-call(%y)")
    assert line.endswith(config)


def test_the_fuzzer_reduces_the_module(module):
    text = module.to_text()
    reduced = [apply(text, edit) for edit in edits(text)]
    smaller = [each for each in reduced if each is not None]
    assert any("custom-call" not in each for each in smaller)
    assert any("backend_config" in each for each in smaller)


def test_a_module_with_json_is_upcast():
    text = MODULE.replace("custom-call(y), custom_call_target=", "negate(y), x=")
    text = text.replace(' x="foo",', "").replace("CONFIG", '{"a":\n  "f32[4]"}')
    wide = hloenv.upcast_to_float64(hloenv.HloModule.from_text(text))
    assert '%c = f64[4]{0} negate(%y), backend_config={"a":\n  "f32[4]"}' in (
        wide.to_text()
    )
