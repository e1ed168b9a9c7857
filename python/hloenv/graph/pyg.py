# SPDX-License-Identifier: Apache-2.0
"""Graphs as PyTorch Geometric data; `hloenv.to_pyg` imports this module."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch_geometric.data import Data, HeteroData

from ..errors import GraphError
from .hlo_graph import MAX_RANK, HloGraph, comparison_directions, fusion_kinds

_DOT_SIZES = (
    *("dot_batch_size", "dot_lhs_size", "dot_rhs_size"),
    "dot_contracting_size",
)
_LOGS = (
    *("element_count", "input_bytes", "output_bytes"),
    *("flops", "transcendentals", "bytes_accessed", "user_count", "operand_count"),
)
_MARKS = (
    *("is_in_fusion", "is_parameter", "is_constant", "is_root"),
    *("has_side_effect", "is_alternative"),
)


def node_features() -> tuple[str, ...]:
    """Names of the columns of an instruction's `x`.

    `log_` is log(1 + n), with n = 0 if unknown or not applicable;
    `minor_to_major_k` is (k-th minor dimension + 1) / 8, 0 for none.
    """
    return (
        *(f"log_{name}" for name in _LOGS),
        "is_cost_unknown",
        "rank",
        *(f"log_dim_{k}" for k in range(MAX_RANK)),
        *(f"minor_to_major_{k}" for k in range(MAX_RANK)),
        *_MARKS,
        "has_trip_count",
        "log_trip_count",
        *(f"log_{name}" for name in _DOT_SIZES),
        *(f"direction_{name.lower()}" for name in comparison_directions()),
        *(f"fusion_{name}" for name in fusion_kinds()),
    )


def edge_features() -> tuple[str, ...]:
    """Names of the columns of an edge's `edge_attr`."""
    return (
        "log_bytes",
        "log_operand_index",
        "is_control",
        "is_outside_fusion",
        "is_inside_fusion",
        "is_across_fusion",
    )


def computation_features() -> tuple[str, ...]:
    """Names of the columns of a computation's `x`."""
    return (
        "log_num_instructions",
        "log_flops",
        "log_transcendentals",
        "log_bytes_accessed",
        "is_entry",
        "is_fusion",
    )


class HloData(Data):  # type: ignore[misc] # torch-geometric has no types
    """One graph. Letters as in `HloGraph`; indices are int64, features float32.

    Batching offsets every index: `edge_index` and `*_node` by
    nodes, `*_computation` by computations, `*_alternative` by alternatives,
    `*_choice` by choices.

    Attributes:
        x: [N, F] features, named by `node_features()`.
        opcode: [N] index into `opcodes()`, for an embedding.
        dtype: [N] index into `dtypes()`, for an embedding.
        node_computation: [N] computation of each node.
        edge_index: [2, E] source and target of each edge.
        edge_attr: [E, F] features, named by `edge_features()`.
        computation_x: [C, F] features, named by `computation_features()`.
        root_node: [C] root of each computation.
        call_node: [K] calling node of each call.
        call_computation: [K] called computation of each call.
        num_choices: [A] choices of each alternative; `follow_batch=["num_choices"]`
            gives the graph of each alternative.
        site_node: [S] nodes of the alternatives.
        site_alternative: [S] alternative of each of these nodes.
        choice_alternative: [X] alternative of each choice.
        choice_position: [X] index in its alternative, 0 for the original.
        choice_passes: [X, len(passes)] 1 where a pass proposes the choice.
        operand_node: [O] node of each choice at each site.
        operand_choice: [O] choice of each of these nodes.
    """

    def __inc__(self, key: str, value: Any, *args: Any, **kwargs: Any) -> Any:
        """Offset of `value` for the next graph of a batch."""
        if key.endswith("_node"):
            return self.num_nodes
        if key.endswith("_computation"):
            return len(self.computation_x)
        if key.endswith("_alternative"):
            return len(self.num_choices)
        if key.endswith("_choice"):
            return len(self.choice_alternative)
        return super().__inc__(key, value, *args, **kwargs)

    def __eq__(self, other: object) -> bool:
        """Whether all fields are equal, as Gymnasium compares observations."""
        if not isinstance(other, HloData):
            return NotImplemented
        own, others = self.to_dict(), other.to_dict()
        return own.keys() == others.keys() and all(
            _is_equal(own[name], others[name]) for name in own
        )

    def __hash__(self) -> int:
        return hash((self.num_nodes, self.num_edges))


def _is_equal(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        return torch.equal(one, other)
    return bool(one == other)


def to_data(graph: HloGraph, passes: Sequence[str]) -> HloData:
    """The homogeneous form; see `to_pyg`."""
    index = _choice_indices(graph)
    return HloData(
        x=node_matrix(graph),
        opcode=_index(graph.opcode),
        dtype=_index(graph.dtype),
        node_computation=_index(graph.computation),
        edge_index=_pair(graph.edge_sources, graph.edge_targets),
        edge_attr=edge_matrix(graph),
        computation_x=_computation_matrix(graph),
        root_node=_index(graph.computation_roots),
        call_node=_index(graph.call_nodes),
        call_computation=_index(graph.call_computations),
        num_choices=_index(graph.num_choices),
        site_node=_index(graph.site_nodes),
        site_alternative=_index(index["site_alternative"]),
        choice_alternative=_index(index["choice_alternative"]),
        choice_position=_index(index["choice_position"]),
        choice_passes=_pass_matrix(graph, passes),
        operand_node=_index(graph.site_choice_nodes),
        operand_choice=_index(index["operand_choice"]),
    )


def to_hetero(graph: HloGraph, passes: Sequence[str]) -> HeteroData:
    """The heterogeneous form; see `to_pyg`.

    Nodes, each with `x`:

    * `instruction`: `x`, `opcode`, `dtype` as in `HloData`;
    * `computation`: `x` as `computation_x`;
    * `alternative`: `x` is [A, 2], log(1 + choices) and log(1 + sites); `num_choices`;
    * `choice`: `x` is [X, 1 + len(passes)], whether it is the original, and whether
      each pass proposes it; `position` in its alternative.

    Edges: `instruction operand instruction` and `instruction control instruction`
    with `edge_attr` as in `HloData`, `instruction in computation`, `computation
    called_by instruction`, `instruction site_of alternative`, `instruction stands_for
    choice` and `choice of alternative`.
    """
    index = _choice_indices(graph)
    data = HeteroData()
    data["instruction"].x = node_matrix(graph)
    data["instruction"].opcode = _index(graph.opcode)
    data["instruction"].dtype = _index(graph.dtype)
    data["computation"].x = _computation_matrix(graph)
    data["alternative"].x = _matrix(
        [_log(graph.num_choices), _log(np.diff(graph.site_offsets))],
        graph.num_alternatives,
    )
    data["alternative"].num_choices = _index(graph.num_choices)
    is_original = torch.from_numpy(index["choice_position"] == 0).float()
    data["choice"].x = torch.cat(
        [is_original[:, None], _pass_matrix(graph, passes)], dim=1
    )
    data["choice"].position = _index(index["choice_position"])

    edges = _pair(graph.edge_sources, graph.edge_targets)
    edge_attr = edge_matrix(graph)
    is_control = torch.from_numpy(graph.edge_is_control.copy())
    for kind, wanted in (("operand", ~is_control), ("control", is_control)):
        store = data["instruction", kind, "instruction"]
        store.edge_index = edges[:, wanted]
        store.edge_attr = edge_attr[wanted]
    for edge_type, sources, targets in (
        (
            ("instruction", "in", "computation"),
            np.arange(graph.num_nodes),
            graph.computation,
        ),
        (
            ("computation", "called_by", "instruction"),
            graph.call_computations,
            graph.call_nodes,
        ),
        (
            ("instruction", "site_of", "alternative"),
            graph.site_nodes,
            index["site_alternative"],
        ),
        (
            ("instruction", "stands_for", "choice"),
            graph.site_choice_nodes,
            index["operand_choice"],
        ),
        (
            ("choice", "of", "alternative"),
            np.arange(len(index["choice_alternative"])),
            index["choice_alternative"],
        ),
    ):
        data[edge_type].edge_index = _pair(sources, targets)
    return data


def _choice_indices(graph: HloGraph) -> dict[str, npt.NDArray[np.int64]]:
    """Index arrays of the alternatives, as documented in `HloData`."""
    if np.any(graph.alternative_nodes < 0):
        missing = int(np.flatnonzero(graph.alternative_nodes < 0)[0])
        raise GraphError(
            f"alternative {missing} of {graph.module_name!r} has no site in the graph"
        )
    numbers = np.arange(graph.num_alternatives)
    num_sites = np.diff(graph.site_offsets)
    site_alternative = np.repeat(numbers, num_sites)
    choice_alternative = np.repeat(numbers, graph.num_choices)
    starts = graph.choice_offsets[:-1]
    choice_position = np.arange(len(choice_alternative)) - starts[choice_alternative]
    # The operands of a site are the choices of its alternative, in order.
    sizes = np.diff(graph.site_choice_offsets)
    site = np.repeat(np.arange(len(sizes)), sizes)
    operand_position = np.arange(len(site)) - graph.site_choice_offsets[site]
    return {
        "site_alternative": site_alternative,
        "choice_alternative": choice_alternative,
        "choice_position": choice_position,
        "operand_choice": starts[site_alternative[site]] + operand_position,
    }


def _index(values: npt.NDArray[Any]) -> torch.Tensor:
    return torch.from_numpy(values.astype(np.int64))


def _pair(sources: npt.NDArray[Any], targets: npt.NDArray[Any]) -> torch.Tensor:
    return torch.from_numpy(np.stack([sources, targets]).astype(np.int64))


def _log(values: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    result: npt.NDArray[np.float64] = np.log1p(np.maximum(values, 0))
    return result


def _matrix(columns: list[npt.NDArray[Any]], rows: int) -> torch.Tensor:
    """Concatenates columns [rows] and blocks [rows, k], as float32."""
    blocks = [column.reshape(rows, -1) if rows else column[:0] for column in columns]
    if not rows:
        return torch.zeros(0, sum(c.shape[1] if c.ndim > 1 else 1 for c in columns))
    return torch.from_numpy(np.concatenate(blocks, axis=1, dtype=np.float32))


def node_matrix(graph: HloGraph) -> torch.Tensor:
    """[N, F] features of the nodes, named by `node_features()`."""
    directions = np.arange(len(comparison_directions()))
    kinds = np.arange(len(fusion_kinds()))
    return _matrix(
        [
            *(_log(getattr(graph, name)) for name in _LOGS),
            graph.flops < 0,
            graph.rank,
            _log(graph.dims),
            (graph.minor_to_major + 1) / MAX_RANK,
            *(getattr(graph, name) for name in _MARKS),
            graph.trip_count >= 0,
            _log(graph.trip_count),
            _log(graph.attribute_block(_DOT_SIZES, absent=0)),
            graph.comparison_direction[:, None] == directions,
            graph.fusion_kind[:, None] == kinds,
        ],
        graph.num_nodes,
    )


def edge_matrix(graph: HloGraph) -> torch.Tensor:
    """[E, F] features, named by `edge_features()`."""
    return _matrix(
        [
            _log(graph.edge_bytes),
            _log(graph.edge_operand_index),
            graph.edge_is_control,
            graph.edge_fusion_relation[:, None] == np.arange(3),
        ],
        graph.num_edges,
    )


def _computation_matrix(graph: HloGraph) -> torch.Tensor:
    return _matrix(
        [
            _log(graph.computation_num_instructions),
            _log(graph.computation_flops),
            _log(graph.computation_transcendentals),
            _log(graph.computation_bytes_accessed),
            graph.computation_is_entry,
            graph.computation_is_fusion,
        ],
        graph.num_computations,
    )


def _pass_matrix(graph: HloGraph, passes: Sequence[str]) -> torch.Tensor:
    """[X, len(passes)] 1 where a pass proposes the choice."""
    num_choices = len(graph.choice_pass_offsets) - 1
    matrix = np.zeros((num_choices, len(passes)), np.float32)
    column_of = {name: column for column, name in enumerate(passes)}
    columns = np.array([column_of.get(name, -1) for name in graph.pass_names], np.int64)
    column = columns[graph.choice_passes]
    choice = np.repeat(np.arange(num_choices), np.diff(graph.choice_pass_offsets))
    matrix[choice[column >= 0], column[column >= 0]] = 1
    return torch.from_numpy(matrix)
