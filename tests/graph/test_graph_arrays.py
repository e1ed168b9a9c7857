# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import gc
import itertools
from pathlib import Path

import numpy as np
import pytest

from hloenv._native import core
from hloenv.errors import GraphError
from hloenv.graph.hlo_graph import Array, HloGraph
from hloenv.hlo.module import HloModule
from hloenv.rewrite.env import HloEnv
from support.graphs import (
    ALTERNATIVES,
    FUSED,
    SMALL,
    SMALL_NAMES,
)
from support.threads import in_threads


@pytest.fixture(scope="module")
def small() -> HloGraph:
    return HloGraph.from_module(SMALL)


@pytest.mark.parametrize("name", HloGraph.array_names())
def test_arrays_are_as_described_and_read_only(small, name):
    array = getattr(small, name)
    described = vars(HloGraph)[name]
    assert isinstance(described, Array)
    assert array.dtype == described.dtype
    assert described.doc
    assert not array.flags.writeable
    with pytest.raises(ValueError, match="WRITEABLE"):
        array.flags.writeable = True


def test_arrays_outlive_graph_and_module():
    graph = HloGraph.from_module(SMALL)
    expected = {name: array.copy() for name, array in graph.arrays().items()}
    arrays = graph.arrays()
    views = {name: array[1:] for name, array in arrays.items()}
    del graph, arrays
    gc.collect()
    # What has been freed is used again.
    for _ in range(50):
        HloGraph.from_module(ALTERNATIVES).arrays()
    for name, view in views.items():
        assert np.array_equal(view, expected[name][1:]), name


def test_an_array_is_made_once(small):
    assert small.opcode is small.opcode
    assert np.shares_memory(small.opcode, small._core.opcode)


def test_graphs_are_read_only(small):
    with pytest.raises(AttributeError, match="read-only"):
        small.opcode = np.zeros(3)
    with pytest.raises(AttributeError, match="read-only"):
        del small.opcode
    with pytest.raises(TypeError, match="from_module"):
        HloGraph()


def test_two_processes_make_the_same_graph(run_child, hlo_dir):
    code = f"""
import hashlib, pathlib
from hloenv.graph.hlo_graph import HloGraph
digest = hashlib.sha256()
for path in ("flax/cnn_train.txt", "diffrax/tsit5_ode_grad.txt"):
    path = pathlib.Path({str(hlo_dir)!r}) / path
    if path.exists():
        graph = HloGraph.from_module(path)
        for name, array in graph.arrays().items():
            digest.update(name.encode() + array.tobytes())
        digest.update(repr(graph.node_names).encode())
print(digest.hexdigest())
"""
    outputs = {
        run_child(code, env={"PYTHONHASHSEED": seed}).stdout for seed in ("1", "2")
    }
    assert len(outputs) == 1


def test_threads_may_build_graphs_of_one_module():
    module = HloModule.from_text(SMALL)._core

    def work(_: int) -> list[core.Graph]:
        return [core.build_graph(module) for _ in range(100)]

    graphs = [graph for each in in_threads(work, range(4)) for graph in each]
    assert all(np.array_equal(g.flops, graphs[0].flops) for g in graphs)


# Facts about the module that no other array tells, so that validate cannot see a
# wrong one.
_UNCHECKED = {
    *("alternative_kind", "attribute_keys", "attribute_values", "choice_passes"),
    "has_side_effect",
}


def corrupted(text: str, name: str) -> HloGraph:
    """The graph of `text` with the first element of one array changed."""
    graph = HloGraph.from_module(text)
    array = getattr(graph, name).copy()
    first = (0,) * array.ndim
    array[first] = ~array[first] if array.dtype == bool else array[first] + 1
    array.flags.writeable = False
    graph.__dict__[name] = array
    return graph


@pytest.mark.parametrize("name", sorted(set(HloGraph.array_names()) - _UNCHECKED))
def test_validate_sees_a_wrong_element(name):
    text = next(
        text
        for text in (FUSED, ALTERNATIVES, SMALL)
        if getattr(HloGraph.from_module(text), name).size
    )
    HloGraph.from_module(text).validate()
    with pytest.raises(GraphError):
        corrupted(text, name).validate()


def test_validate_sees_arrays_that_can_be_written_to(small):
    graph = HloGraph.from_module(SMALL)
    graph.__dict__["rank"] = small.rank.copy()
    with pytest.raises(GraphError, match="rank is writeable"):
        graph.validate()


def test_paths_and_text_make_graphs(tmp_path: Path):
    path = tmp_path / "small.txt"
    path.write_text(SMALL.split("\n", 1)[1])
    assert HloGraph.from_module(path).node_names == SMALL_NAMES
    assert HloGraph.from_module(str(path)).node_names == SMALL_NAMES


def test_the_graph_of_a_capture_has_its_alternatives(hlo_dir):
    env = HloEnv(hlo_dir / "flax" / "rnn_simple_fwd.txt")
    alternatives = env.get_alternatives("algsimp", "cse")
    graph = alternatives.graph
    graph.validate()
    assert graph.num_alternatives == len(alternatives) > 0
    assert graph.num_choices.tolist() == list(alternatives.num_choices)
    for index, alternative in enumerate(alternatives):
        node = graph.alternative_nodes[index]
        assert graph.is_alternative[node]
        choices = slice(*graph.choice_offsets[index : index + 2])
        offsets = graph.choice_pass_offsets[choices.start : choices.stop + 1]
        passes = [
            tuple(graph.pass_names[i] for i in graph.choice_passes[a:b])
            for a, b in itertools.pairwise(offsets)
        ]
        assert passes == [choice.passes for choice in alternative.choices]
