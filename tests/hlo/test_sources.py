# SPDX-License-Identifier: Apache-2.0
"""Source locations of instructions."""

from __future__ import annotations

import json
import re

import pytest

import hloenv
from hloenv.cli import main
from hloenv.graph import to_dot, to_json, to_networkx
from hloenv.hlo.diff import diff_modules
from hloenv.hlo.source import Source

TEXT = """HloModule m

FileNames
1 "/home/me/train.py"

FunctionNames
1 "step"

FileLocations
1 {file_name_id=1 function_name_id=1 line=12 end_line=12 column=2 end_column=9}
2 {file_name_id=7 function_name_id=1 line=13 end_line=13 column=2 end_column=9}

StackFrames
1 {file_location_id=1 parent_frame_id=1}
2 {file_location_id=2 parent_frame_id=1}

ENTRY e {
  x = f32[4] parameter(0), metadata={op_name="x"}
  zero = f32[] constant(0)
  zeros = f32[4] broadcast(zero), dimensions={}
  sum = f32[4] add(x, zeros), metadata={op_name="jit(f)/add" source_file="a.py" source_line=7}
  up = f32[4] exponential(sum), metadata={op_name="jit(f)/exp" stack_frame_id=1}
  ROOT down = f32[4] negate(up), metadata={op_name="jit(f)/neg" stack_frame_id=FRAME}
}
"""
ADD = Source("jit(f)/add", "a.py", 7)


def module(frame: int = 1) -> hloenv.HloModule:
    return hloenv.HloModule.from_text(TEXT.replace("FRAME", str(frame)))


def test_sources_of_a_module():
    assert module().sources() == {
        "x": Source("x", "", 0),
        "sum": ADD,
        "up": Source("jit(f)/exp", "/home/me/train.py", 12),
        "down": Source("jit(f)/neg", "/home/me/train.py", 12),
    }
    assert str(ADD) == "jit(f)/add a.py:7"


@pytest.mark.parametrize("frame", [0, 2, 3, 2**31 - 1, -1])
def test_frames_that_are_not_there_give_no_line(frame: int):
    assert module(frame).sources()["down"] == Source("jit(f)/neg", "", 0)


def test_alternatives_know_where_they_come_from():
    alternatives = hloenv.HloEnv(module()).get_alternatives("algsimp")
    assert [each.original for each in alternatives] == ["sum"]
    assert alternatives.sources == (ADD,)
    without = re.sub(r", metadata={.*}", "", TEXT)
    found = hloenv.HloEnv(without).get_alternatives("algsimp")
    assert found.sources == (None,)


def test_graphs_say_where_nodes_come_from():
    alternatives = hloenv.HloEnv(module()).get_alternatives("algsimp")
    for given in (module(), alternatives):
        nodes = {node["name"]: node for node in json.loads(to_json(given))["nodes"]}
        assert nodes["sum"]["source"] == ADD._asdict()
        assert "source" not in nodes["zeros"]
        assert 'tooltip="jit(f)/add a.py:7"' in to_dot(given)
    assert "source" not in to_json(hloenv.HloGraph.from_module(module()))


@pytest.mark.needs("networkx")
def test_a_networkx_node_says_where_it_comes_from():
    nodes = dict(to_networkx(module()).nodes(data=True)).values()
    assert ADD._asdict() in [node.get("source") for node in nodes]


def test_a_difference_says_where_it_comes_from():
    after = hloenv.HloEnv(module())
    after.run("algsimp")
    (computation,) = diff_modules(module(), after.module).computations
    sources = {change.before: change.source for change in computation.changes}
    assert sources["sum"] == "jit(f)/add a.py:7"
    assert sources["zeros"] == ""


def test_commands_say_where_instructions_come_from(tmp_path, capsys):
    (tmp_path / "m.hlo").write_text(TEXT.replace("FRAME", "1"))
    path = str(tmp_path / "m.hlo")
    assert main(["alternatives", path, "--pass", "algsimp", "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)["alternatives"]
    assert found["source"] == ADD._asdict()
    assert main(["alternatives", path, "--pass", "algsimp"]) == 0
    assert "a.py:7" in capsys.readouterr().out
    after = str(tmp_path / "after.hlo")
    env = hloenv.HloEnv(path)
    env.run("algsimp")
    env.module.save(after)
    assert main(["diff", path, after]) == 0
    assert "# jit(f)/add a.py:7" in capsys.readouterr().out
    assert main(["graph", path]) == 0
    assert 'tooltip="jit(f)/add a.py:7"' in capsys.readouterr().out


@pytest.mark.jax
@pytest.mark.needs("jax")
def test_a_jax_function(tmp_path, monkeypatch):
    (tmp_path / "own_step.py").write_text(
        "import jax.numpy as jnp\n\ndef step(x):\n    return jnp.sin(x) + 1\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    import numpy as np
    import own_step

    found = hloenv.HloModule.from_jax(own_step.step, np.ones(3, np.float32)).sources()
    lines = {each.op_name: each for each in found.values()}
    sine = lines["jit(step)/sin"]
    assert (sine.file, sine.line) == (str(tmp_path / "own_step.py"), 4)
