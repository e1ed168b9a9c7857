# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import numpy as np
import pytest

from hloenv.errors import InvalidModuleError
from hloenv.graph.hlo_graph import HloGraph, dtypes, opcodes
from support.graphs import (
    ALTERNATIVES,
    SMALL,
    SMALL_NAMES,
    graph_of,
    row_of,
)


@pytest.fixture(scope="module")
def small() -> HloGraph:
    return HloGraph.from_module(SMALL)


def test_nodes_come_in_post_order_callees_first(small):
    assert small.node_names == SMALL_NAMES
    assert small.computation_names == ("add", "main")
    assert small.computation.tolist() == [0] * 3 + [1] * 10
    assert small.computation_offsets.tolist() == [0, 3, 13]


def test_edges_are_operands_in_order_then_control_predecessors(small):
    edges = zip(
        small.edge_sources,
        small.edge_targets,
        small.edge_operand_index,
        small.edge_is_control,
        strict=True,
    )
    names = small.node_names
    assert [(names[s], names[t], int(o), bool(c)) for s, t, o, c in edges] == [
        ("a", "sum", 0, False),
        ("b", "sum", 1, False),
        ("x", "product", 0, False),
        ("y", "product", 1, False),
        ("product", "power", 0, False),
        ("power", "total", 0, False),
        ("zero", "total", 1, False),
        ("total", "wide", 0, False),
        ("power", "share", 0, False),
        ("wide", "share", 1, False),
        ("share", "square", 0, False),
        ("share", "square", 1, False),
        ("zero", "square", -1, True),
        ("square", "out", 0, False),
        ("total", "out", 1, False),
    ]
    assert small.in_offsets.tolist() == [0, 0, 0, 2, 2, 2, 2, 4, 5, 7, 8, 10, 13, 15]


def test_users_are_the_targets_of_out_edges(small):
    names = small.node_names
    users = {name: [names[u] for u in small.users(i)] for i, name in enumerate(names)}
    assert users["power"] == ["total", "share"]
    assert users["share"] == ["square", "square"]
    assert users["zero"] == ["total", "square"]
    assert users["out"] == []
    assert small.out_edges[small.out_offsets[7] : small.out_offsets[8]].tolist() == [
        5,
        8,
    ]
    assert [names[o] for o in small.operands(row_of(small, "square"))] == [
        *("share", "share", "zero")
    ]


def test_counts_count_distinct_users_and_all_operands(small):
    counts = dict(
        zip(
            small.node_names,
            zip(small.user_count.tolist(), small.operand_count.tolist(), strict=True),
            strict=True,
        )
    )
    assert counts["share"] == (1, 2)
    assert counts["power"] == (2, 1)
    assert counts["zero"] == (1, 0)
    assert counts["square"] == (1, 2)
    assert counts["out"] == (0, 2)


def test_shapes_have_dims_layout_and_bytes(small):
    y, out, zero = (row_of(small, name) for name in ("y", "out", "zero"))
    assert dtypes()[small.dtype[y]] == "f32"
    assert small.rank[[y, out, zero]].tolist() == [2, 0, 0]
    assert small.dims[y].tolist() == [3, 4, -1, -1, -1, -1, -1, -1]
    assert small.minor_to_major[y].tolist() == [0, 1, -1, -1, -1, -1, -1, -1]
    assert dtypes()[small.dtype[out]] == "tuple"
    assert small.dims[out].tolist() == [-1] * 8
    assert small.element_count[[y, out, zero]].tolist() == [12, 10, 1]
    assert small.output_bytes[[y, out, zero]].tolist() == [48, 40, 4]
    assert small.input_bytes[[y, out, zero]].tolist() == [0, 40, 0]


def test_edges_have_the_shape_of_what_they_carry(small):
    assert small.edge_bytes.tolist() == [
        *(4, 4, 24, 48, 32, 32, 4, 8, 32, 32, 32, 32, 0, 32, 8)
    ]
    assert small.edge_dims[3].tolist() == [3, 4, -1, -1, -1, -1, -1, -1]
    assert small.edge_minor_to_major[3].tolist() == [0, 1, -1, -1, -1, -1, -1, -1]
    assert small.edge_rank[[3, 6, 12]].tolist() == [2, 0, 0]
    assert [dtypes()[d] for d in small.edge_dtype[[3, 12]]] == ["f32", "none"]
    assert small.edge_dims[12].tolist() == [-1] * 8


def test_costs_of_a_small_module(small):
    flops = dict(zip(small.node_names, small.flops.tolist(), strict=True))
    assert flops["product"] == 2 * 2 * 3 * 4
    assert flops["total"] == 8 - 2
    assert flops["share"] == 8
    assert flops["power"] == flops["wide"] == flops["out"] == 0
    power = row_of(small, "power")
    assert small.transcendentals.nonzero()[0].tolist() == [power]
    assert small.transcendentals[power] == 8
    bytes_accessed = dict(zip(small.node_names, small.bytes_accessed, strict=True))
    assert bytes_accessed["product"] == 24 + 48 + 32
    assert bytes_accessed["out"] == 16  # the table of pointers
    assert bytes_accessed["x"] == bytes_accessed["zero"] == 0
    assert small.computation_flops.tolist() == [1, 48 + 6 + 8 + 8]


def test_marks_of_a_small_module(small):
    def marked(mask):
        return {small.node_names[i] for i in np.flatnonzero(mask)}

    assert marked(small.is_parameter) == {"a", "b", "x", "y"}
    assert marked(small.is_constant) == {"zero"}
    assert marked(small.is_root) == {"sum", "out"}
    assert not small.has_side_effect.any()
    assert not small.is_in_fusion.any()
    assert small.parameter_number[row_of(small, "y")] == 1
    assert small.parameter_number[row_of(small, "zero")] == -1


def test_computations_and_calls(small):
    assert small.call_nodes.tolist() == [row_of(small, "total")]
    assert small.call_computations.tolist() == [0]
    assert small.computation_callers.tolist() == [row_of(small, "total"), -1]
    assert small.computation_roots.tolist() == [2, 12]
    assert small.computation_is_entry.tolist() == [False, True]
    assert small.computation_num_instructions.tolist() == [3, 10]
    assert small.parameter_offsets.tolist() == [0, 2, 4]
    assert [small.node_names[n] for n in small.parameter_nodes] == ["a", "b", "x", "y"]


def test_names_and_shapes_are_text(small):
    assert small.module_name == "small"
    assert small.node_shapes[-1] == "(f32[2,4]{1,0}, f32[2]{0})"
    assert opcodes()[small.opcode[-1]] == "tuple"
    assert repr(small) == (
        "<HloGraph 'small': 13 nodes, 15 edges, 2 computations, 0 alternatives>"
    )


def test_what_the_entry_does_not_reach_is_left_out_and_dead_instructions_stay():
    graph = graph_of(
        "p = f32[2]{0} parameter(0)",
        "dead = f32[2]{0} negate(p)",
        "ROOT r = f32[2]{0} abs(p)",
        computations="idle { ROOT q = f32[] parameter(0) }",
    )
    assert set(graph.node_names) == {"p", "dead", "r"}
    graph.validate()


def test_dims_keep_eight_and_rank_stays_true():
    graph = graph_of(
        "ROOT p = f32[1,2,3,1,2,3,1,2,3,1]{9,8,7,6,5,4,3,2,1,0} parameter(0)"
    )
    assert graph.rank.tolist() == [10]
    assert graph.dims[0].tolist() == [1, 2, 3, 1, 2, 3, 1, 2]
    assert graph.element_count.tolist() == [216]
    graph.validate()


def test_packed_and_dynamic_and_unsized_shapes():
    graph = graph_of(
        "packed = s4[5]{0:E(4)} parameter(0)",
        "bounded = f32[<=6]{0} parameter(1)",
        "none = token[] after-all()",
        "nested = (bf16[3]{0}, (pred[7]{0}, token[])) parameter(2)",
        "ROOT out = (s4[5]{0:E(4)}, f32[<=6]{0}) tuple(packed, bounded)",
    )
    sizes = dict(zip(graph.node_names, graph.output_bytes.tolist(), strict=True))
    assert sizes == {"packed": 3, "bounded": 24, "none": 0, "nested": 13, "out": 27}
    assert dtypes()[graph.dtype[row_of(graph, "none")]] == "token"
    assert graph.element_count[row_of(graph, "nested")] == 10
    graph.validate()


def test_sizes_that_int64_cannot_hold_are_limited():
    # XLA rejects arrays of so many bytes, but not tuples of them.
    graph = graph_of(
        "p = f32[1073741824,1073741824]{1,0} parameter(0)",
        "ROOT t = (f32[1073741824,1073741824]{1,0}, f32[1073741824,1073741824]{1,0}) "
        "tuple(p, p)",
    )
    assert graph.output_bytes.tolist() == [2**62, 2**63 - 1]


def test_alternatives_have_sites_choices_and_passes():
    graph = HloGraph.from_module(ALTERNATIVES)
    graph.validate()
    names = graph.node_names
    assert graph.num_alternatives == 2
    assert graph.num_choices.tolist() == [3, 2]
    assert graph.site_offsets.tolist() == [0, 2, 3]
    assert {names[n] for n in graph.site_nodes[:2]} == {"left", "right"}
    assert names[graph.alternative_nodes[1]] == "first"
    kinds = [graph.alternative_kinds[kind] for kind in graph.alternative_kind]
    assert kinds == ["group", "instruction"]
    left = graph.site_nodes.tolist().index(names.index("left"))
    choices = slice(*graph.site_choice_offsets[left : left + 2])
    assert [names[n] for n in graph.site_choice_nodes[choices]] == [
        "twice",
        "half",
        "p",
    ]
    passes = [
        [
            graph.pass_names[i]
            for i in graph.choice_passes[
                graph.choice_pass_offsets[c] : graph.choice_pass_offsets[c + 1]
            ]
        ]
        for c in range(graph.num_choices.sum())
    ]
    assert passes == [[], ["cse"], ["reshape-mover"], [], ["algsimp", "cse"]]
    marked = {names[i] for i in np.flatnonzero(graph.is_alternative)}
    assert marked == {"first", "left", "right"}


def test_alternatives_cost_nothing_themselves():
    graph = HloGraph.from_module(ALTERNATIVES)
    assert not graph.flops[graph.is_alternative].any()
    assert not graph.bytes_accessed[graph.is_alternative].any()


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ('"alternative":"1"', '"alternative":"99"', "has index 99"),
        ('"alternative":"1"', '"alternative":"-2"', "has index -2"),
        (
            "custom-call(half, p, p)",
            "custom-call(half, p)",
            "of 3 and 2 choices|2 and 3",
        ),
    ],
)
def test_inconsistent_alternatives_are_rejected(before, after, message):
    with pytest.raises(InvalidModuleError, match=message):
        HloGraph.from_module(ALTERNATIVES.replace(before, after))


# Instructions that break the rules of HLO.
UNSOUND = [
    "f32[2,2]{1,0} dot(p, p), lhs_contracting_dims={7}, rhs_contracting_dims={9}",
    "f32[2,2]{1,0} dot(t, t), lhs_contracting_dims={0}, rhs_contracting_dims={0}",
    "f32[2,2]{1,0} convolution(p, p), window={size=3x3}, dim_labels=b01f_01io->b01f",
    "f32[2,3,4,5]{3,2,1,0} convolution(q, q), window={size=3x3}, "
    "dim_labels=b01f_01io->b01f, feature_group_count=0",
    "f32[2,3]{1,0} transpose(t), dimensions={0,1}",
    "f32[2,3]{1,0} transpose(p), dimensions={7,8}",
    "f32[2]{0} reduce(t, p), dimensions={5}, to_apply=add",
    "() reduce(t, p), dimensions={5}, to_apply=add",
    "f32[2]{0} get-tuple-element(t), index=9",
    "f32[2]{0} slice(p), slice={[0:9]}",
    "f32[2,3]{1,0} fusion(), kind=kLoop, calls=add",
    "f32[2,3]{1,0} fusion(p, p, p), kind=kLoop, calls=add",
    "f32[2]{0} sort(t), dimensions={0}, to_apply=add",
    "c64[] fft(c), fft_type=FFT, fft_length={0}",
    "f32[] cholesky(s), lower=true",
    "f32[2,3]{1,0} while(p), condition=add, body=add",
    "f32[?,3]{1,0} negate(p)",
]


def test_invalid_modules_do_not_end_the_process(run_child):
    head = SMALL.split("ENTRY")[0]
    texts = [
        f"""{head} ENTRY unsound {{
          p = f32[2,3]{{1,0}} parameter(0)
          q = f32[2,3,4,5]{{3,2,1,0}} parameter(1)
          t = (f32[2,3]{{1,0}}) parameter(2)
          c = c64[] parameter(3)
          s = f32[] parameter(4)
          ROOT result = {instruction}
        }}"""
        for instruction in UNSOUND
    ]
    child = run_child(f"""
from hloenv.errors import HloEnvError
from hloenv.graph.hlo_graph import HloGraph
from hloenv.hlo.module import HloModule
for instruction, text in zip({UNSOUND!r}, {texts!r}):
    print(instruction, flush=True)
    try:
        HloGraph.from_module(HloModule.from_text(text, verify=False)).validate()
        print("made")
    except HloEnvError as error:
        print("refused:", error)
""")
    assert child.stdout.count("\nrefused: ") == len(UNSOUND)


def test_sizes_of_int64_limits_fit_together():
    graph = graph_of(
        "p = f32[1073741824,1073741824]{1,0} parameter(0)",
        "ROOT sum = f32[1073741824,1073741824]{1,0} add(p, p)",
    )
    assert graph.input_bytes[1] == 2**63 - 1
    graph.validate()
