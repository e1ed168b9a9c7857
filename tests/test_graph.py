# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import gc
import itertools
import threading
from pathlib import Path

import numpy as np
import pytest

from hloenv._native import core
from hloenv.env import HloEnv
from hloenv.errors import GraphError, InvalidModuleError
from hloenv.graph import (
    Array,
    HloGraph,
    attribute_names,
    comparison_directions,
    dtypes,
    fusion_kinds,
    opcodes,
)

HLO = Path(__file__).parent / "graphs"
SMALL = (HLO / "small.hlo").read_text()
# In post order, the reducer first.
SMALL_NAMES = (
    *("a", "b", "sum"),
    *("zero", "x", "y", "product", "power", "total", "wide", "share", "square", "out"),
)
FUSED = (HLO / "fusion.hlo").read_text()
ALTERNATIVES = (HLO / "alternatives.hlo").read_text()


def graph_of(*instructions: str, computations: str = "") -> HloGraph:
    """The graph of a module whose entry holds these instructions."""
    body = "\n".join(instructions)
    return HloGraph.from_module(
        f"HloModule test\n{computations}\nENTRY main {{\n{body}\n}}\n"
    )


def row_of(graph: HloGraph, name: str) -> int:
    return graph.node_names.index(name)


def attributes_of(graph: HloGraph, name: str) -> dict[str, int]:
    node = row_of(graph, name)
    span = slice(*graph.attribute_offsets[node : node + 2])
    keys = [attribute_names()[key] for key in graph.attribute_keys[span]]
    return dict(zip(keys, graph.attribute_values[span].tolist(), strict=True))


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
    graph = graph_of("ROOT p = f32[4000000000,4000000000]{1,0} parameter(0)")
    assert graph.output_bytes.tolist() == [2**63 - 1]


@pytest.mark.parametrize(
    ("name", "instruction", "expected"),
    [
        (
            "dot",
            "dot(p, q), lhs_batch_dims={0}, rhs_batch_dims={0}, "
            "lhs_contracting_dims={2}, rhs_contracting_dims={1}",
            {
                "lhs_contracting_0": 2,
                "rhs_contracting_0": 1,
                "lhs_batch_0": 0,
                "rhs_batch_0": 0,
                "dot_batch_size": 2,
                "dot_lhs_size": 3,
                "dot_rhs_size": 5,
                "dot_contracting_size": 4,
            },
        ),
        (
            "transpose",
            "transpose(p), dimensions={2,0,1}",
            {"dimensions_0": 2, "dimensions_1": 0, "dimensions_2": 1},
        ),
        (
            "slice",
            "slice(p), slice={[0:2:2], [1:3], [0:4:3]}",
            {
                **{"strides_0": 2, "strides_1": 1, "strides_2": 3},
                **{"low_0": 0, "low_1": 1, "low_2": 0},
                **{"high_0": 2, "high_1": 3, "high_2": 4},
            },
        ),
        (
            "pad",
            "pad(p, z), padding=0_1x-1_0_2x0_0",
            {
                **{"low_0": 0, "low_1": -1, "low_2": 0},
                **{"high_0": 1, "high_1": 0, "high_2": 0},
                **{"base_dilations_0": 1, "base_dilations_1": 3, "base_dilations_2": 1},
            },
        ),
        (
            "gather",
            "gather(p, i), offset_dims={1,2}, collapsed_slice_dims={0}, "
            "start_index_map={0}, index_vector_dim=1, slice_sizes={1,3,4}",
            {
                **{"sizes_0": 1, "sizes_1": 3, "sizes_2": 4},
                **{"slice_dimensions_0": 1, "slice_dimensions_1": 2},
                **{"collapsed_dimensions_0": 0, "index_map_0": 0},
                "index_vector_dimension": 1,
            },
        ),
        ("negate", "negate(p)", {}),
    ],
)
def test_attributes(name, instruction, expected):
    shapes = {
        "dot": "f32[2,3,5]{2,1,0}",
        "transpose": "f32[4,2,3]{2,1,0}",
        "slice": "f32[1,2,2]{2,1,0}",
        "pad": "f32[3,6,4]{2,1,0}",
        "gather": "f32[6,3,4]{2,1,0}",
        "negate": "f32[2,3,4]{2,1,0}",
    }
    graph = graph_of(
        "p = f32[2,3,4]{2,1,0} parameter(0)",
        "q = f32[2,4,5]{2,1,0} parameter(1)",
        "i = s32[6,1]{1,0} parameter(2)",
        "z = f32[] constant(0)",
        f"ROOT result = {shapes[name]} {instruction}",
    )
    assert attributes_of(graph, "result") == expected


def test_attributes_of_a_convolution():
    graph = graph_of(
        "image = f32[2,9,8,6]{3,2,1,0} parameter(0)",
        "kernel = f32[3,1,3,4]{3,2,1,0} parameter(1)",
        "ROOT result = f32[2,5,8,4]{3,2,1,0} convolution(image, kernel), "
        "window={size=3x1 stride=2x1 pad=1_1x0_0 rhs_dilate=1x2}, "
        "dim_labels=b01f_01io->b01f, feature_group_count=2",
    )
    attributes = attributes_of(graph, "result")
    expected = {
        **{"sizes_0": 3, "sizes_1": 1, "strides_0": 2, "strides_1": 1},
        **{"low_0": 1, "low_1": 0, "high_0": 1, "high_1": 0},
        **{"base_dilations_0": 1, "window_dilations_1": 2},
        **{"input_batch": 0, "input_feature": 3, "input_spatial_0": 1},
        **{"kernel_input_feature": 2, "kernel_output_feature": 3},
        **{"kernel_spatial_1": 1, "output_batch": 0, "output_feature": 3},
        **{"output_spatial_1": 2, "feature_group_count": 2, "batch_group_count": 1},
    }
    assert expected.items() <= attributes.items()
    assert "sizes_2" not in attributes


def test_attribute_block_has_the_wanted_columns(small):
    block = small.attribute_block(["dimensions_0", "dot_contracting_size"], absent=-7)
    assert block.dtype == np.int64
    expected = np.full((13, 2), -7)
    expected[row_of(small, "total"), 0] = 1
    expected[row_of(small, "wide"), 0] = 0
    expected[row_of(small, "product"), 1] = 3
    assert block.tolist() == expected.tolist()
    assert small.attribute_block().shape == (13, len(attribute_names()))


def test_attribute_block_refuses_unknown_names(small):
    with pytest.raises(GraphError, match="no attribute 'size'"):
        small.attribute_block(["size"])


def test_directions_tuple_indices_and_targets():
    graph = graph_of(
        "p = (f32[], f32[]) parameter(0)",
        "a = f32[] get-tuple-element(p), index=0",
        "b = f32[] get-tuple-element(p), index=1",
        'c = f32[] custom-call(a), custom_call_target="mine"',
        "ROOT less = pred[] compare(c, b), direction=LE",
    )
    assert graph.tuple_index[row_of(graph, "b")] == 1
    assert comparison_directions()[graph.comparison_direction[-1]] == "LE"
    custom_call = row_of(graph, "c")
    assert graph.custom_call_targets[graph.custom_call_target[custom_call]] == "mine"
    assert graph.flops[custom_call] == graph.bytes_accessed[custom_call] == -1


def test_side_effects_reach_callers():
    graph = graph_of(
        "p = f32[] parameter(0)",
        "ROOT r = f32[] call(p), to_apply=outer",
        computations="""
        inner {
          q = f32[] parameter(0)
          ROOT c = f32[] custom-call(q), custom_call_target="x",
            custom_call_has_side_effect=true
        }
        outer {
          s = f32[] parameter(0)
          t = f32[] call(s), to_apply=inner
          ROOT u = f32[] negate(t)
        }
        """,
    )
    effects = {graph.node_names[i] for i in np.flatnonzero(graph.has_side_effect)}
    assert effects == {"c", "t", "r"}


def while_loop(start: str, step: str, condition: str, config: str = "") -> HloGraph:
    return graph_of(
        f"start = s32[] {start}",
        "x = f32[] parameter(0)",
        "state = (s32[], f32[]) tuple(start, x)",
        "ROOT loop = (s32[], f32[]) while(state), condition=condition, body=body"
        + config,
        computations=f"""
        body {{
          s = (s32[], f32[]) parameter(0)
          i = s32[] get-tuple-element(s), index=0
          y = f32[] get-tuple-element(s), index=1
          by = s32[] constant(3)
          next = s32[] {step}
          z = f32[] negate(y)
          ROOT n = (s32[], f32[]) tuple(next, z)
        }}
        condition {{
          s = (s32[], f32[]) parameter(0)
          i = s32[] get-tuple-element(s), index=0
          limit = s32[] constant(10)
          ROOT c = pred[] compare({condition}
        }}
        """,
    )


@pytest.mark.parametrize(
    ("start", "step", "condition", "expected"),
    [
        ("constant(0)", "add(i, by)", "i, limit), direction=LT", 4),
        ("constant(1)", "add(by, i)", "i, limit), direction=LT", 3),
        ("constant(1)", "add(i, by)", "i, limit), direction=LE", 4),
        ("constant(0)", "add(i, by)", "limit, i), direction=GT", 4),
        ("constant(20)", "subtract(i, by)", "i, limit), direction=GT", 4),
        ("constant(19)", "subtract(i, by)", "i, limit), direction=GE", 4),
        ("constant(10)", "add(i, by)", "i, limit), direction=LT", 0),
        ("constant(0)", "subtract(i, by)", "i, limit), direction=LT", -1),
        ("constant(0)", "multiply(i, by)", "i, limit), direction=LT", -1),
        ("parameter(1)", "add(i, by)", "i, limit), direction=LT", -1),
        ("constant(0)", "add(i, by)", "i, limit), direction=NE", -1),
    ],
)
def test_trip_counts_of_counting_loops(start, step, condition, expected):
    graph = while_loop(start, step, condition)
    assert graph.trip_count[row_of(graph, "loop")] == expected
    graph.validate()


def test_trip_count_of_an_annotated_loop():
    graph = while_loop(
        "parameter(1)",
        "add(i, by)",
        "i, limit), direction=LT",
        ', backend_config={"known_trip_count":{"n":"17"}}',
    )
    assert graph.trip_count[row_of(graph, "loop")] == 17


def test_fusions_know_what_is_inside_and_across():
    graph = HloGraph.from_module(FUSED)
    graph.validate()
    names = graph.node_names
    assert names == ("p", "table", "shifted", "tail", "input", "fusion", "minus")
    fusion = names.index("fusion")
    assert graph.fusion_node.tolist() == [fusion] * 4 + [-1] * 3
    assert graph.is_in_fusion.tolist() == [True] * 4 + [False] * 3
    assert graph.computation_is_fusion.tolist() == [True, False]
    assert fusion_kinds()[graph.fusion_kind[fusion]] == "kLoop"
    relations = {
        (names[s], names[t]): int(relation)
        for s, t, relation in zip(
            graph.edge_sources,
            graph.edge_targets,
            graph.edge_fusion_relation,
            strict=True,
        )
    }
    assert relations == {
        ("p", "shifted"): 1,
        ("table", "shifted"): 1,
        ("shifted", "tail"): 1,
        ("input", "fusion"): 2,
        ("fusion", "minus"): 2,
    }
    assert graph.flops[fusion] == 8
    # The parameter and the table are read whole, two elements are written.
    assert graph.bytes_accessed[fusion] == 32 + 32 + 8


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
def test_alternatives_that_do_not_fit_together_are_refused(before, after, message):
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


def test_modules_that_no_verifier_has_seen_do_not_end_the_process(run_child):
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
from hloenv.graph import HloGraph
for instruction, text in zip({UNSOUND!r}, {texts!r}):
    print(instruction, flush=True)
    try:
        HloGraph.from_module(text).validate()
        print("made")
    except HloEnvError as error:
        print("refused:", error)
""")
    # XLA's parser refuses few of them by itself.
    assert child.stdout.count("\nmade") > len(UNSOUND) / 2


def test_sizes_of_int64_limits_fit_together():
    graph = graph_of(
        "p = f32[4000000000,4000000000]{1,0} parameter(0)",
        "ROOT sum = f32[4000000000,4000000000]{1,0} add(p, p)",
    )
    assert graph.input_bytes[1] == 2**63 - 1
    graph.validate()


def analysed_by_xla(graph: HloGraph) -> np.ndarray:
    """Nodes whose computation XLA's analysis visits: not what a sort applies."""
    visited = graph.computation_is_entry.copy()
    skipping = [opcodes().index(name) for name in ("sort", "all-reduce", "custom-call")]
    for caller, callee in zip(
        graph.call_nodes[::-1], graph.call_computations[::-1], strict=True
    ):
        if graph.opcode[caller] not in skipping:
            visited[callee] |= visited[graph.computation[caller]]
    return visited[graph.computation]


def check_costs(graph: HloGraph) -> None:
    costs = np.stack([graph.flops, graph.transcendentals, graph.bytes_accessed], axis=1)
    compared = analysed_by_xla(graph) & ~graph.is_alternative
    assert compared.sum() > 0
    # XLA adds in float32.
    np.testing.assert_allclose(
        costs[compared], graph._core.xla_costs()[compared], rtol=2e-6
    )


def test_costs_of_nearly_every_opcode_are_those_of_xla():
    graph = HloGraph.from_module((HLO / "many_opcodes.hlo").read_text())
    graph.validate()
    assert len(np.unique(graph.opcode)) > 90
    check_costs(graph)


def test_costs_of_fusions_are_those_of_xla():
    graph = HloGraph.from_module("""
HloModule fusions

add { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT sum = f32[] add(a, b) }

update { buffer = f32[64]{0} parameter(0)
  value = f32[4]{0} parameter(1)
  at = s32[] parameter(2)
  ROOT u = f32[64]{0} dynamic-update-slice(buffer, value, at) }

several { p = f32[64]{0} parameter(0)
  at = s32[] parameter(1)
  part = f32[4]{0} dynamic-slice(p, at), dynamic_slice_sizes={4}
  two = f32[4]{0} constant({1,2,3,4})
  scaled = f32[4]{0} multiply(part, two)
  u = f32[64]{0} dynamic-update-slice(p, scaled, at)
  zero = f32[] constant(0)
  sum = f32[] reduce(part, zero), dimensions={0}, to_apply=add
  ROOT t = (f32[64]{0}, f32[]) tuple(u, sum) }

leaf { q = f32[64]{0} parameter(0)
  s = f32[2]{0} slice(q), slice={[0:2]}
  ROOT e = f32[2]{0} exponential(s) }

nested { p = f32[64]{0} parameter(0)
  f = f32[2]{0} fusion(p), kind=kLoop, calls=leaf
  ROOT n = f32[2]{0} negate(f) }

unpack { p = (f32[64]{0}, f32[]) parameter(0)
  l = f32[64]{0} get-tuple-element(p), index=0
  r = f32[] get-tuple-element(p), index=1
  w = f32[64]{0} broadcast(r), dimensions={}
  ROOT m = f32[64]{0} multiply(l, w) }

ENTRY main {
  p = f32[64]{0} parameter(0)
  v = f32[4]{0} parameter(1)
  at = s32[] parameter(2)
  f1 = f32[64]{0} fusion(p, v, at), kind=kLoop, calls=update
  f2 = (f32[64]{0}, f32[]) fusion(f1, at), kind=kLoop, calls=several
  f3 = f32[64]{0} fusion(f2), kind=kLoop, calls=unpack
  ROOT f4 = f32[2]{0} fusion(f3), kind=kLoop, calls=nested
}
""")
    graph.validate()
    check_costs(graph)
    fusions = graph.bytes_accessed[graph.fusion_kind >= 0]
    assert (fusions > 0).all()


def test_real_modules_fit_together_and_cost_what_xla_says(real_module_path):
    module = core.Module.from_text(real_module_path.read_text())
    graph = HloGraph.from_module(real_module_path)
    graph.validate()
    assert graph.num_nodes == module.instruction_count
    check_costs(graph)
    totals = [
        graph.computation_flops[-1],
        graph.computation_bytes_accessed[-1],
        graph.computation_transcendentals[-1],
    ]
    # XLA adds thousands of numbers in float32.
    np.testing.assert_allclose(totals, module.cost(), rtol=1e-4)


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
from hloenv.graph import HloGraph
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
    module = core.Module.from_text(SMALL)
    graphs: list[core.Graph] = []

    def work() -> None:
        graphs.extend(core.build_graph(module) for _ in range(100))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(graphs) == 400
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
    with pytest.raises(GraphError, match="rank can be written to"):
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
