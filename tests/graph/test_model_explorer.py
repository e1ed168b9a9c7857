# SPDX-License-Identifier: Apache-2.0
"""The JSON of Google's Model Explorer."""

from __future__ import annotations

import json

from hloenv import HloEnv, HloModule
from hloenv.cli import main
from hloenv.graph import to_model_explorer
from support.paths import TESTS

_LOOP = TESTS / "testdata" / "hlo" / "loop_nested.hlo"


def _nodes(graph):
    collection = json.loads(to_model_explorer(graph))
    (found,) = collection["graphs"]
    return {node["id"]: node for node in found["nodes"]}


def _attribute(node, key):
    (found,) = (each["value"] for each in node["attrs"] if each["key"] == key)
    return found


def test_every_instruction_is_a_node_with_its_operands():
    module = HloModule.from_file(_LOOP)
    nodes = _nodes(module)
    assert len(nodes) == module.instruction_count
    for node in nodes.values():
        inputs = [edge["targetNodeInputId"] for edge in node["incomingEdges"]]
        assert inputs == [str(number) for number in range(len(inputs))]
        assert all(edge["sourceNodeId"] in nodes for edge in node["incomingEdges"])


def test_loops_are_layers_inside_each_other():
    spaces = {node["namespace"] for node in _nodes(HloModule.from_file(_LOOP)).values()}
    assert "" in spaces
    deepest = max(spaces, key=lambda space: space.count("/"))
    assert deepest == "loop.1: outer_body/loop: inner_body/called: helper"


def test_an_alternative_names_the_passes_of_its_choices():
    env = HloEnv(
        "HloModule m\nENTRY e {\n  p = f32[4] parameter(0)\n  z = f32[] constant(0)\n"
        "  b = f32[4] broadcast(z), dimensions={}\n  ROOT a = f32[4] add(p, b)\n}"
    )
    nodes = _nodes(env.get_alternatives("algsimp"))
    (node,) = (each for each in nodes.values() if each["label"] == "alternative 0")
    choices = [each["attrs"][0]["value"] for each in node["inputsMetadata"]]
    assert choices == ["original", "algsimp"]


def test_the_command_writes_it(tmp_path, capsys):
    path = tmp_path / "model.json"
    command = ["graph", str(_LOOP), "--format", "model-explorer", "-o", str(path)]
    assert main(command) == 0
    collection = json.loads(path.read_text())
    assert collection["label"] == "loop_nested"
    node = collection["graphs"][0]["nodes"][0]
    assert _attribute(node, "name") == "x"
    assert main(["graph", str(_LOOP), "--format", "model-explorer", "--json"]) == 0
    printed = capsys.readouterr().out.partition("{")[2]
    assert json.loads("{" + printed) == collection
