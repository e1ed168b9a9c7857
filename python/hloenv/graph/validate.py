# SPDX-License-Identifier: Apache-2.0
"""Consistency checks of the arrays of a graph."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from .hlo_graph import (
    MAX_RANK,
    Array,
    HloGraph,
    attribute_names,
    comparison_directions,
    dtypes,
    fusion_kinds,
    opcodes,
)


def problems(g: HloGraph) -> Iterator[str]:
    """Yields a message for each failed check.

    Later stages rely on the checks of earlier ones, so only the first stage with a
    failure is reported.
    """
    found = list(_shape_problems(g))
    stages = (
        *(_index_checks, _edge_checks, _node_checks),
        *(_computation_checks, _alternative_checks),
    )
    for stage in stages:
        if found:
            break
        found = [
            f"check failed: {name}"
            for name, right in stage(g).items()
            if not np.all(right)
        ]
    yield from found


def _shape_problems(g: HloGraph) -> Iterator[str]:
    sizes = {
        **{"N": g.num_nodes, "E": g.num_edges, "C": g.num_computations},
        **{"K": len(g.call_nodes), "P": len(g.parameter_nodes)},
        **{"T": len(g.attribute_keys), "A": g.num_alternatives},
        **{"S": len(g.site_nodes), "X": len(g.choice_pass_offsets) - 1},
        **{"O": len(g.site_choice_nodes), "Q": len(g.choice_passes)},
    }
    for name in g.array_names():
        described: Array[Any] = vars(HloGraph)[name]
        array = getattr(g, name)
        shape = tuple(
            sum(sizes[term] if term in sizes else int(term) for term in part.split("+"))
            for part in described.shape.split(",")
        )
        if array.dtype != described.dtype or array.shape != shape:
            yield f"{name} is {array.dtype}{array.shape}, not {described.doc}"
        if array.flags.writeable:
            yield f"{name} is writeable"


def _is_offsets(offsets: npt.NDArray[np.int64], total: int) -> bool:
    return bool(
        offsets[0] == 0 and offsets[-1] == total and np.all(np.diff(offsets) >= 0)
    )


def _owners(offsets: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The segment of each element of the array that `offsets` describes."""
    return np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))


def _sums(
    values: npt.NDArray[Any], owners: npt.NDArray[Any], count: int
) -> npt.NDArray[Any]:
    sums = np.zeros(count, values.dtype)
    np.add.at(sums, owners, values)
    return sums


def _index_checks(g: HloGraph) -> dict[str, Any]:
    """Ranges of offsets and indices."""
    offsets = {
        "in_offsets": g.num_edges,
        "out_offsets": g.num_edges,
        "attribute_offsets": len(g.attribute_keys),
        "computation_offsets": g.num_nodes,
        "parameter_offsets": len(g.parameter_nodes),
        "site_offsets": len(g.site_nodes),
        "choice_offsets": len(g.choice_pass_offsets) - 1,
        "site_choice_offsets": len(g.site_choice_nodes),
        "choice_pass_offsets": len(g.choice_passes),
    }
    nodes = (
        *("edge_sources", "edge_targets", "out_targets", "computation_roots"),
        *("parameter_nodes", "call_nodes", "site_nodes", "site_choice_nodes"),
    )
    required = {
        **dict.fromkeys(nodes, g.num_nodes),
        "out_edges": g.num_edges,
        "opcode": len(opcodes()),
        "dtype": len(dtypes()),
        "computation": g.num_computations,
        "call_computations": g.num_computations,
        "attribute_keys": len(attribute_names()),
        "choice_passes": len(g.pass_names),
    }
    optional = {
        "fusion_node": g.num_nodes,
        "computation_callers": g.num_nodes,
        "comparison_direction": len(comparison_directions()),
        "fusion_kind": len(fusion_kinds()),
        "custom_call_target": len(g.custom_call_targets),
        "alternative_kind": len(g.alternative_kinds),
    }
    return {
        **{
            f"{name} start at 0, do not fall, and end at {total}": _is_offsets(
                getattr(g, name), total
            )
            for name, total in offsets.items()
        },
        **{
            f"{name} is at least {least} and below {count}": np.all(
                (getattr(g, name) >= least) & (getattr(g, name) < count)
            )
            for least, counts in ((0, required), (-1, optional))
            for name, count in counts.items()
        },
    }


def _edge_checks(g: HloGraph) -> dict[str, Any]:
    source, target = g.edge_sources, g.edge_targets
    is_data = ~g.edge_is_control
    position = np.arange(g.num_edges) - g.in_offsets[target]
    fusion = opcodes().index("fusion")
    touches_fusion = (g.opcode[source] == fusion) | (g.opcode[target] == fusion)
    return {
        "edges are sorted by target": target == _owners(g.in_offsets),
        "edges go upwards": (source >= 0) & (source < target),
        "edges stay in a computation": g.computation[source] == g.computation[target],
        "operands come in order, then control predecessors": g.edge_operand_index
        == np.where(is_data, position, -1),
        "out_edges has each edge once": np.sort(g.out_edges) == np.arange(g.num_edges),
        "out_edges are sorted by source": source[g.out_edges] == _owners(g.out_offsets),
        "out_edges ascend for one source": np.diff(g.out_edges)[
            np.diff(_owners(g.out_offsets)) == 0
        ]
        > 0,
        "out_targets are the targets": g.out_targets == target[g.out_edges],
        "edges have the bytes of their source": g.edge_bytes
        == np.where(is_data, g.output_bytes[source], 0),
        "edges have the dtype of their source": g.edge_dtype
        == np.where(is_data, g.dtype[source], 0),
        "edges have the rank of their source": g.edge_rank
        == np.where(is_data, g.rank[source], 0),
        "edges have the dims of their source": g.edge_dims
        == np.where(is_data[:, None], g.dims[source], -1),
        "edges have the layout of their source": g.edge_minor_to_major
        == np.where(is_data[:, None], g.minor_to_major[source], -1),
        "fusion relations are right": g.edge_fusion_relation
        == np.where(touches_fusion, 2, g.is_in_fusion[target]),
    }


def _node_checks(g: HloGraph) -> dict[str, Any]:
    n = g.num_nodes
    is_data = ~g.edge_is_control
    source, target = g.edge_sources[is_data], g.edge_targets[is_data]
    uses = np.unique(np.stack([source, target]), axis=1)
    column = np.arange(MAX_RANK)
    is_dim = column < g.rank[:, None]
    has_layout = (g.minor_to_major[:, 0] >= 0) & (g.rank <= MAX_RANK)
    code = {name: index for index, name in enumerate(opcodes())}
    is_array = g.rank > 0
    costs = np.stack([g.flops, g.transcendentals, g.bytes_accessed])
    return {
        "ranks are not negative": g.rank >= 0,
        "dims end at the rank": (g.dims == -1) | is_dim,
        "a layout is a permutation": np.sort(
            np.where(is_dim, g.minor_to_major, column)[has_layout], axis=1
        )
        == column,
        "layouts end at the rank": (g.minor_to_major == -1) | is_dim,
        "arrays have the elements of their dims": np.where(
            is_array
            & (g.rank <= MAX_RANK)
            & np.all(~is_dim | (g.dims >= 0), axis=1)
            & (g.element_count < np.iinfo(np.int64).max),
            np.prod(np.where(is_dim, g.dims, 1), axis=1) == g.element_count,
            g.element_count >= 0,
        ),
        # In floating point, since the sums saturate at the maximum of int64.
        "input_bytes sum operands": np.isclose(
            g.input_bytes,
            np.minimum(_sums(g.edge_bytes.astype(float), g.edge_targets, n), 2.0**63),
            rtol=1e-9,
        ),
        "operand_count counts operands": g.operand_count
        == np.bincount(target, minlength=n),
        "user_count counts users": g.user_count == np.bincount(uses[0], minlength=n),
        "costs are finite": np.isfinite(costs) & (costs >= -n),
        "parameters are marked": g.is_parameter == (g.opcode == code["parameter"]),
        "parameters have numbers": g.is_parameter == (g.parameter_number >= 0),
        "constants are marked": g.is_constant == (g.opcode == code["constant"]),
        "get-tuple-elements have an index": (g.opcode == code["get-tuple-element"])
        == (g.tuple_index >= 0),
        "compares have a direction": (g.opcode == code["compare"])
        == (g.comparison_direction >= 0),
        "fusions have a kind": (g.opcode == code["fusion"]) == (g.fusion_kind >= 0),
        "custom calls have a target": (g.opcode == code["custom-call"])
        == (g.custom_call_target >= 0),
        "only whiles have trip counts": (g.trip_count == -1)
        | (g.opcode == code["while"]),
        "attributes of a node ascend": np.diff(g.attribute_keys)[
            np.diff(_owners(g.attribute_offsets)) == 0
        ]
        > 0,
    }


def _computation_checks(g: HloGraph) -> dict[str, Any]:
    count = g.num_computations
    fusion = opcodes().index("fusion")
    roots, callers = g.computation_roots, g.computation_callers
    caller, callee = g.call_nodes, g.call_computations
    first = np.full(count, -1)
    first[callee[::-1]] = caller[::-1]
    by_fusion = np.zeros(count, bool)
    by_fusion[callee[g.opcode[caller] == fusion]] = True
    parameter_owner = _owners(g.parameter_offsets)
    sums = {
        name: np.isclose(
            getattr(g, f"computation_{name}"),
            _sums(getattr(g, name), g.computation, count),
        )
        for name in ("flops", "transcendentals", "bytes_accessed")
    }
    return {
        "nodes are sorted by computation": g.computation
        == _owners(g.computation_offsets),
        "num_instructions counts nodes": g.computation_num_instructions
        == np.diff(g.computation_offsets),
        "the entry is last": g.computation_is_entry == (np.arange(count) == count - 1),
        "roots lie in their computation": g.computation[roots] == np.arange(count),
        "roots are marked": np.array_equal(np.flatnonzero(g.is_root), np.sort(roots)),
        "callees come before callers": callee < g.computation[caller],
        "calls ascend": np.diff(caller) >= 0,
        "computation_callers are the first": callers == first,
        "all but the entry are called": (callers >= 0) | g.computation_is_entry,
        "fusions are marked": g.computation_is_fusion == by_fusion,
        "nodes in fusions are marked": g.is_in_fusion == by_fusion[g.computation],
        "fusion_node is the fusion of the computation": g.fusion_node
        == np.where(by_fusion, callers, -1)[g.computation],
        "parameters are listed": np.array_equal(
            np.sort(g.parameter_nodes), np.flatnonzero(g.is_parameter)
        ),
        "parameters lie in their computation": g.computation[g.parameter_nodes]
        == parameter_owner,
        "parameters are listed by number": g.parameter_number[g.parameter_nodes]
        == np.arange(len(g.parameter_nodes)) - g.parameter_offsets[parameter_owner],
        **{f"computation_{name} sums nodes": right for name, right in sums.items()},
    }


def _alternative_checks(g: HloGraph) -> dict[str, Any]:
    alternative = _owners(g.site_offsets)
    site = _owners(g.site_choice_offsets)
    position = np.arange(len(site)) - g.site_choice_offsets[site]
    edge = np.minimum(g.in_offsets[g.site_nodes[site]] + position, g.num_edges - 1)
    return {
        "sites are marked": np.array_equal(
            np.flatnonzero(g.is_alternative), np.sort(g.site_nodes)
        ),
        "sites of an alternative ascend": np.diff(g.site_nodes)[
            np.diff(alternative) == 0
        ]
        > 0,
        "alternatives with sites have a kind": (g.alternative_kind >= 0)
        == (np.diff(g.site_offsets) > 0),
        "sites have the choices of their alternative": np.diff(g.site_choice_offsets)
        == g.num_choices[alternative],
        "choices are operands": g.site_choice_nodes == g.edge_sources[edge],
        "originals have no pass": np.diff(g.choice_pass_offsets)[
            g.choice_offsets[:-1][g.num_choices > 0]
        ]
        == 0,
    }
