# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import numpy as np
import pytest

from hloenv.errors import GraphError
from hloenv.graph.hlo_graph import (
    HloGraph,
    attribute_names,
    comparison_directions,
    fusion_kinds,
)
from support.graphs import (
    FUSED,
    SMALL,
    attributes_of,
    graph_of,
    row_of,
)


@pytest.fixture(scope="module")
def small() -> HloGraph:
    return HloGraph.from_module(SMALL)


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


def test_attribute_block_rejects_unknown_names(small):
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


@pytest.mark.parametrize(
    ("kind", "start", "limit", "direction", "expected"),
    [
        ("s8", "100", "120", "LE", 21),
        ("s8", "100", "127", "LE", -1),  # the next number is -128
        ("u64", "0", str(2**64 - 1), "LT", -1),
        ("u32", "0", str(2**32 - 1), "LT", 2**32 - 1),
        ("s64", str(-(2**63)), str(2**63 - 1), "LT", -1),
        ("s64", "0", str(2**63 - 1), "LE", -1),
    ],
)
def test_trip_counts_at_the_limits_of_a_type(kind, start, limit, direction, expected):
    graph = HloGraph.from_module(
        f"""HloModule loops

body {{
  s = ({kind}[]) parameter(0)
  i = {kind}[] get-tuple-element(s), index=0
  by = {kind}[] constant(1)
  n = {kind}[] add(i, by)
  ROOT t = ({kind}[]) tuple(n)
}}

condition {{
  s = ({kind}[]) parameter(0)
  i = {kind}[] get-tuple-element(s), index=0
  limit = {kind}[] constant({limit})
  ROOT c = pred[] compare(i, limit), direction={direction}
}}

ENTRY main {{
  z = {kind}[] constant({start})
  t = ({kind}[]) tuple(z)
  ROOT loop = ({kind}[]) while(t), condition=condition, body=body
}}
"""
    )
    assert graph.trip_count[row_of(graph, "loop")] == expected


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
