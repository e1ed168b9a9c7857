# SPDX-License-Identifier: Apache-2.0
"""The layered layout."""

from __future__ import annotations

import numpy as np
import pytest

from hloenv import HloGraph, HloModule
from hloenv.explorer.graph_data import HAS_BOX, graph_data, part_data
from hloenv.explorer.layout import Structure, layers_of, place
from hloenv.fuzz.generator.module import random_module
from support.paths import TESTS

_FILES = sorted((TESTS / "testdata" / "hlo").glob("*.hlo"))


def _structure(edges, num_nodes, *, computation=None, parents=(-1,)):
    edges = sorted(edges, key=lambda edge: edge[1])
    return Structure(
        np.array(computation or [0] * num_nodes, np.int64),
        np.array([source for source, _ in edges], np.int64),
        np.array([target for _, target in edges], np.int64),
        np.array(parents, np.int64),
    )


def _overlaps(graph):
    """Pairs of nodes of one computation whose boxes overlap."""
    x, y, w, h = (np.array(graph[key]) for key in "xywh")
    computation = np.array(graph["computation"])
    found = []
    for number in range(len(graph["computations"])):
        nodes = np.flatnonzero(computation == number)
        near_x = (
            np.abs(x[nodes][:, None] - x[nodes]) < (w[nodes][:, None] + w[nodes]) / 2
        )
        near_y = (
            np.abs(y[nodes][:, None] - y[nodes]) < (h[nodes][:, None] + h[nodes]) / 2
        )
        both = np.triu(near_x & near_y, 1)
        found += [(number, *pair) for pair in np.argwhere(both).tolist()]
    return found


def test_operands_are_above_their_users():
    layers = layers_of(_structure([(0, 1), (1, 2), (0, 2), (2, 3)], 4))
    assert layers.tolist() == [0, 1, 2, 3]


def test_a_parameter_is_next_to_its_user():
    # 4 is a parameter that only the last node reads.
    layers = layers_of(_structure([(0, 1), (1, 2), (2, 3), (4, 5), (3, 5)], 6))
    assert layers.tolist() == [0, 1, 2, 3, 3, 4]


def test_a_chain_from_a_parameter_is_next_to_its_user():
    edges = [(0, 1), (1, 2), (2, 3), (3, 6), (4, 5), (5, 6)]
    assert layers_of(_structure(edges, 7)).tolist() == [0, 1, 2, 3, 2, 3, 4]


def test_nothing_is_laid_out_as_nothing():
    layout = place(_structure([], 0, parents=()))
    assert (layout.width, layout.height, len(layout.x)) == (0.0, 0.0, 0)


def test_a_computation_is_inside_its_caller():
    # Computation 0 belongs to node 3, in computation 1.
    structure = _structure(
        [(0, 1), (2, 3)], 4, computation=[0, 0, 1, 1], parents=(3, -1)
    )
    layout = place(structure)
    x, y, w, h = layout.boxes[0]
    assert abs(x - layout.x[3]) + w / 2 <= layout.w[3] / 2
    assert abs(y - layout.y[3]) + h / 2 <= layout.h[3] / 2
    assert abs(layout.x[0] - x) <= w / 2


@pytest.mark.parametrize("path", _FILES, ids=lambda path: path.stem)
def test_boxes_of_one_computation_do_not_overlap(path):
    assert _overlaps(graph_data(HloModule.from_file(path))) == []


@pytest.mark.parametrize("seed", range(10))
def test_random_modules_are_laid_out_without_overlaps(seed):
    graph = graph_data(HloModule.from_text(random_module(seed)))
    assert _overlaps(graph) == []
    box = graph["computations"][-1]
    assert box["role"] == "entry"
    assert box["w"] <= graph["width"] + 0.01


def test_equal_modules_have_equal_layouts():
    text = random_module(3)
    first, second = (graph_data(HloModule.from_text(text)) for _ in range(2))
    assert first == second


def test_a_module_of_many_instructions_is_laid_out():
    lines = ["p0 = f32[8] parameter(0)"]
    for number in range(1, 20_000):
        other = max(0, number - 1 - number % 7)
        lines.append(f"p{number} = f32[8] add(p{number - 1}, p{other})")
    lines[-1] = "ROOT " + lines[-1]
    module = HloModule.from_text(
        "HloModule big\nENTRY e {\n" + "\n".join(lines) + "\n}"
    )
    graph = graph_data(module)
    assert len(graph["names"]) == 20_000
    assert np.isfinite(graph["x"] + graph["y"]).all()
    source, target = np.array(graph["edge_sources"]), np.array(graph["edge_targets"])
    y = np.array(graph["y"])
    assert (y[source] < y[target]).all()


def test_loops_and_branches_are_nested():
    graph = graph_data(
        HloModule.from_file(TESTS / "testdata" / "hlo" / "loop_nested.hlo")
    )
    roles = {box["role"] for box in graph["computations"]}
    assert {"entry", "body", "condition"} <= roles
    for box in graph["computations"]:
        if box["role"] in ("body", "condition"):
            assert graph["flags"][box["caller"]] & HAS_BOX
            assert graph["opcodes"][graph["opcode"][box["caller"]]] == "while"


def test_a_part_has_its_nodes_and_the_edges_between_them():
    module = HloModule.from_file(TESTS / "testdata" / "hlo" / "fusions_present.hlo")
    graph = HloGraph.from_module(module)
    nodes = np.arange(graph.num_nodes)[-4:]
    part = part_data(module, graph, nodes)
    assert part["names"] == [graph.node_names[node] for node in nodes]
    kept = [
        (int(source), int(target))
        for source, target in zip(graph.edge_sources, graph.edge_targets, strict=True)
        if source in nodes and target in nodes
    ]
    assert len(part["edge_sources"]) == len(kept)
