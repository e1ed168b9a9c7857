# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
import pickle
import sys

import numpy as np
import pytest

from hloenv.errors import ArgumentTypeError
from hloenv.graph.convert import to_pyg
from hloenv.graph.dot import to_dot
from hloenv.graph.export import to_json
from hloenv.graph.hlo_graph import HloGraph, dtypes, opcodes
from hloenv.graph.networkx import to_networkx
from hloenv.hlo.module import HloModule
from hloenv.rewrite.env import HloEnv
from support.paths import TESTDATA

HLO = TESTDATA / "graphs"


@pytest.fixture(scope="module")
def small() -> HloGraph:
    return HloGraph.from_module((HLO / "small.hlo").read_text())


@pytest.fixture(scope="module")
def alternatives() -> HloGraph:
    return HloGraph.from_module((HLO / "alternatives.hlo").read_text())


DOT = """\
digraph "fused" {
  node [shape=box, fontname="monospace", fontsize=10, style=filled, fillcolor="white"];
  edge [fontname="monospace", fontsize=9];
  subgraph cluster_0 {
    label="inner"; fontname="monospace"; style=filled; fillcolor="gray92";
    n0 [label="p\\nparameter\\nf32[8]{0}", fillcolor="lightblue"];
    n1 [label="table\\nconstant\\nf32[8]{0}", fillcolor="lightgray"];
    n2 [label="shifted\\nadd\\nf32[8]{0}", fillcolor="white"];
    n3 [label="tail\\nslice\\nf32[2]{0}", fillcolor="white", penwidth=2];
  }
  subgraph cluster_1 {
    label="main (entry)"; fontname="monospace"; style=filled; fillcolor="white";
    n4 [label="input\\nparameter\\nf32[8]{0}", fillcolor="lightblue"];
    n5 [label="fusion\\nfusion\\nf32[2]{0}", fillcolor="gray92"];
    n6 [label="minus\\nnegate\\nf32[2]{0}", fillcolor="white", penwidth=2];
  }
  n0 -> n2 [label="0"];
  n1 -> n2 [label="1"];
  n2 -> n3;
  n4 -> n5;
  n3 -> n5 [style=dotted];
  n5 -> n6;
}
"""


def test_dot_of_a_fusion():
    assert to_dot(HloGraph.from_module((HLO / "fusion.hlo").read_text())) == DOT


def test_modules_and_alternatives_stand_for_their_graphs():
    module = HloModule.from_text((HLO / "small.hlo").read_text())
    assert to_dot(module) == to_dot(HloGraph.from_module(module))
    found = HloEnv(HLO.parent / "hlo" / "simplifications.hlo").get_alternatives(
        "algsimp"
    )
    assert to_json(found) == to_json(found.graph)
    assert json.loads(to_json(found))["alternatives"]


@pytest.mark.parametrize("convert", [to_pyg, to_networkx, to_json, to_dot])
def test_objects_without_a_graph_are_rejected(convert):
    with pytest.raises(ArgumentTypeError, match="list"):
        convert([1])


def test_dot_draws_alternatives_and_names_their_choices(alternatives):
    text = to_dot(alternatives)
    site = alternatives.node_names.index("first")
    left = alternatives.node_names.index("left")
    assert (
        f'n{site} [label="alternative 1\\nfirst f32[4]{{0}}", shape=hexagon, '
        'fillcolor="orange"];'
    ) in text
    assert f'-> n{site} [label="0: original", color="darkorange"];' in text
    assert f'-> n{site} [label="1: algsimp, cse", color="darkorange"];' in text
    assert f'-> n{left} [label="2: reshape-mover", color="darkorange"];' in text
    assert text.count("hexagon") == 3


def test_dot_draws_control_edges_and_quotes_names(small):
    names = small.node_names
    edge = f"n{names.index('zero')} -> n{names.index('square')} [style=dashed];"
    assert edge in to_dot(small)
    quoted = HloGraph.from_module(
        "HloModule m\nENTRY e { p = f32[] parameter(0)\n"
        'ROOT c = f32[] custom-call(p), custom_call_target="a\\"b" }'
    )
    assert r'label="c\ncustom-call a\"b\nf32[]"' in to_dot(quoted)


def test_json_tells_everything_of_a_small_module(small):
    content = json.loads(to_json(small))
    assert content["format"] == "hloenv.graph/1"
    assert content["module"] == "small"
    assert content["computations"] == [
        {"name": "add", "root": 2, "caller": 8, "is_entry": False, "is_fusion": False},
        {
            "name": "main",
            "root": 12,
            "caller": None,
            "is_entry": True,
            "is_fusion": False,
        },
    ]
    assert content["alternatives"] == []
    nodes = {node["name"]: node for node in content["nodes"]}
    assert nodes["total"] == {
        "name": "total",
        "opcode": "reduce",
        "shape": "f32[2]{0}",
        "dtype": "f32",
        "dims": [2],
        "computation": 1,
        "operands": [7, 3],
        "control_predecessors": [],
        "element_count": 2,
        "input_bytes": 36,
        "output_bytes": 8,
        "flops": 6.0,
        "transcendentals": 0.0,
        "bytes_accessed": 44.0,
        "user_count": 2,
        "attributes": {"dimensions_0": 1},
        "calls": [0],
    }
    assert nodes["square"]["control_predecessors"] == [3]
    assert nodes["out"]["dims"] is None
    assert nodes["out"]["is_root"] is True
    assert nodes["zero"]["dims"] == []
    assert nodes["y"]["parameter_number"] == 1


def test_json_lists_alternatives(alternatives):
    content = json.loads(to_json(alternatives, indent=1))
    names = [node["name"] for node in content["nodes"]]
    group, single = content["alternatives"]
    assert group["kind"] == "group"
    assert {names[site["node"]] for site in group["sites"]} == {"left", "right"}
    assert group["passes"] == [[], ["cse"], ["reshape-mover"]]
    (site,) = single["sites"]
    assert [names[node] for node in site["choices"]] == ["sum", "p"]
    assert single["passes"] == [[], ["algsimp", "cse"]]
    assert content["nodes"][site["node"]]["alternative"] == 1


def test_networkx_has_nodes_edges_and_calls(small):
    graph = to_networkx(small)
    names = small.node_names
    power, share, square = (names.index(n) for n in ("power", "share", "square"))
    zero, total = names.index("zero"), names.index("total")
    assert graph.number_of_nodes() == 13
    assert graph.number_of_edges() == 15 + 1
    assert graph.nodes[power]["opcode"] == "exponential"
    assert graph.nodes[power]["dims"] == [2, 4]
    assert graph.edges[power, share, 0] == {
        "kind": "operand",
        "operand_index": 0,
        "bytes": 32,
        "fusion_relation": "outside",
    }
    operands = [edge["operand_index"] for edge in graph[share][square].values()]
    assert operands == [0, 1]
    assert graph[zero][square][0] == {"kind": "control"}
    assert graph[2][total][0] == {"kind": "call"}
    assert graph.graph["module"] == "small"
    assert to_networkx(small, calls=False).number_of_edges() == 15


def test_networkx_graphs_have_no_cycle(alternatives):
    import networkx as nx

    graph = to_networkx(alternatives)
    assert nx.is_directed_acyclic_graph(graph)
    assert [a["kind"] for a in graph.graph["alternatives"]] == ["group", "instruction"]


@pytest.mark.parametrize(
    ("convert", "package", "extra"),
    [
        (to_networkx, "networkx", "graph"),
        (to_pyg, "torch_geometric.data", "learn"),
    ],
)
def test_absent_packages_are_named(monkeypatch, small, convert, package, extra):
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.delitem(sys.modules, "hloenv.graph.pyg", raising=False)
    monkeypatch.delattr("hloenv.graph.pyg", raising=False)
    with pytest.raises(ImportError, match=rf"pip install 'hloenv\[{extra}\]'"):
        convert(small)


@pytest.mark.learn
def test_features_of_a_node_have_names(small):
    from hloenv.graph.pyg import computation_features, edge_features, node_features

    data = to_pyg(small)
    assert data.x.shape == (13, len(node_features()))
    assert data.edge_attr.shape == (15, len(edge_features()))
    assert data.computation_x.shape == (2, len(computation_features()))
    product = dict(
        zip(
            node_features(),
            data.x[small.node_names.index("product")].tolist(),
            strict=True,
        )
    )
    assert product["log_flops"] == pytest.approx(np.log(49))
    assert product["log_input_bytes"] == pytest.approx(np.log(73))
    assert product["rank"] == 2
    assert product["log_dim_1"] == pytest.approx(np.log(5))
    assert product["log_dim_2"] == 0
    assert product["minor_to_major_0"] == 0.25
    assert product["log_dot_contracting_size"] == pytest.approx(np.log(4))
    assert product["is_root"] == product["has_trip_count"] == 0
    edge = dict(zip(edge_features(), data.edge_attr[12].tolist(), strict=True))
    assert edge["is_control"] == 1
    assert edge["log_bytes"] == 0
    assert bool(data.x.isfinite().all())


@pytest.mark.learn
def test_pyg_data_repeats_the_graph(alternatives):
    import torch

    data = to_pyg(alternatives, passes=["cse", "algsimp", "absent"])
    data.validate()
    assert data.num_nodes == alternatives.num_nodes
    assert data.edge_index.tolist() == [
        alternatives.edge_sources.tolist(),
        alternatives.edge_targets.tolist(),
    ]
    assert data.edge_index.dtype == torch.int64
    assert [opcodes()[i] for i in data.opcode[-1:]] == ["add"]
    assert dtypes()[data.dtype[0]] == "f32"
    assert data.num_choices.tolist() == [3, 2]
    assert data.choice_alternative.tolist() == [0, 0, 0, 1, 1]
    assert data.choice_position.tolist() == [0, 1, 2, 0, 1]
    assert data.choice_passes.tolist() == [
        *([0, 0, 0], [1, 0, 0], [0, 0, 0], [0, 0, 0], [1, 1, 0])
    ]
    assert data.site_alternative.tolist() == [0, 0, 1]
    assert data.operand_choice.tolist() == [0, 1, 2, 0, 1, 2, 3, 4]
    assert data.operand_node.tolist() == alternatives.site_choice_nodes.tolist()


@pytest.mark.learn
def test_batches_shift_each_index_by_what_it_points_into(small, alternatives):
    import torch
    from torch_geometric.data import Batch

    first, second, third = (
        to_pyg(graph) for graph in (alternatives, small, alternatives)
    )
    batch = Batch.from_data_list([first, second, third], follow_batch=["num_choices"])
    nodes = first.num_nodes + second.num_nodes
    computations = 1 + 2
    shifts = {
        **{"root_node": nodes, "site_node": nodes, "operand_node": nodes},
        **{"edge_index": nodes, "call_node": nodes},
        **{"node_computation": computations, "call_computation": computations},
        **{"site_alternative": 2, "choice_alternative": 2, "operand_choice": 5},
        **{"choice_position": 0, "num_choices": 0, "opcode": 0, "dtype": 0},
    }
    for key, shift in shifts.items():
        last = batch[key][..., batch[key].shape[-1] - third[key].shape[-1] :]
        assert torch.equal(last, third[key] + shift), key
    # Nothing of the second graph was shifted by more than the first.
    assert batch.call_node.tolist() == (second.call_node + first.num_nodes).tolist()
    assert batch.call_computation.tolist() == [1]
    assert batch.num_choices_batch.tolist() == [0, 0, 2, 2]
    assert batch.x.shape == (2 * first.num_nodes + 13, first.x.shape[1])
    # What is a site in a graph is one in the batch.
    assert {opcodes()[i] for i in batch.opcode[batch.site_node]} == {"custom-call"}
    restored = batch.get_example(2)
    assert torch.equal(restored.operand_choice, third.operand_choice)
    assert torch.equal(restored.site_node, third.site_node)


@pytest.mark.learn
def test_scores_of_choices_come_out_by_alternative(alternatives):
    import torch
    from torch_geometric.data import Batch
    from torch_geometric.utils import scatter, softmax

    batch = Batch.from_data_list([to_pyg(alternatives)] * 2)
    of_node = torch.arange(batch.num_nodes, dtype=torch.float32)
    scores = scatter(of_node[batch.operand_node], batch.operand_choice, reduce="mean")
    weights = softmax(scores, batch.choice_alternative)
    totals = scatter(weights, batch.choice_alternative)
    assert scores.shape == (10,)
    assert torch.allclose(totals, torch.ones(4))


@pytest.mark.learn
def test_hetero_batches(small, alternatives):
    from torch_geometric.data import Batch

    first, second = (
        to_pyg(g, hetero=True, passes=["cse"]) for g in (small, alternatives)
    )
    second.validate()
    assert second.node_types == ["instruction", "computation", "alternative", "choice"]
    assert second["choice"].x.tolist() == [*([1, 0], [0, 1], [0, 0], [1, 0], [0, 1])]
    control = first["instruction", "control", "instruction"]
    names = small.node_names
    assert control.edge_index.tolist() == [
        [names.index("zero")],
        [names.index("square")],
    ]
    called = first["computation", "called_by", "instruction"].edge_index
    assert called.tolist() == [[0], [names.index("total")]]
    batch = Batch.from_data_list([first, second])
    of = batch["choice", "of", "alternative"].edge_index
    assert of.tolist() == [[0, 1, 2, 3, 4], [0, 0, 0, 1, 1]]
    sites = batch["instruction", "site_of", "alternative"].edge_index
    assert sites[0].tolist() == (alternatives.site_nodes + 13).tolist()
    inside = batch["instruction", "in", "computation"].edge_index
    assert inside[1].tolist() == [0] * 3 + [1] * 10 + [2] * alternatives.num_nodes
    assert batch["alternative"].num_choices.tolist() == [3, 2]


@pytest.mark.learn
def test_pyg_data_goes_to_other_processes(alternatives):
    import torch

    data = to_pyg(alternatives)
    copy = pickle.loads(pickle.dumps(data))
    assert type(copy) is type(data)
    assert torch.equal(copy.operand_choice, data.operand_choice)


@pytest.mark.learn
def test_tensors_are_copies(small):
    data = to_pyg(small)
    data.edge_index += 1
    data.opcode += 1
    assert small.edge_sources[0] == 0


def test_real_modules_convert(real_module_path):
    graph = HloGraph.from_module(real_module_path)
    content = json.loads(to_json(graph))
    assert len(content["nodes"]) == graph.num_nodes
    assert to_dot(graph).count(" -> ") == graph.num_edges + len(graph.call_nodes)


@pytest.mark.learn
@pytest.mark.parametrize("hetero", [False, True])
def test_a_module_of_one_parameter_converts_and_batches(hetero):
    from torch_geometric.data import Batch

    graph = HloGraph.from_module(
        "HloModule one\nENTRY e { ROOT p = f32[] parameter(0) }"
    )
    data = to_pyg(graph, hetero=hetero)
    data.validate()
    batch = Batch.from_data_list([data, data])
    assert batch.num_nodes == (4 if hetero else 2)
    assert to_networkx(graph).number_of_nodes() == 1


@pytest.mark.learn
def test_alternatives_go_to_pytorch_geometric():
    found = HloEnv(HLO.parent / "hlo" / "simplifications.hlo").get_alternatives(
        "algsimp"
    )
    data = to_pyg(found, passes=found.pass_names)
    assert data.num_choices.tolist() == found.num_choices.tolist()
    hetero = to_pyg(found, hetero=True)
    assert hetero["alternative"].num_choices.tolist() == found.num_choices.tolist()
