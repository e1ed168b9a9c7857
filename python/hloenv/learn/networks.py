# SPDX-License-Identifier: Apache-2.0
"""A graph network that scores the choices of alternatives, and values states.

The alternative graph is encoded once for all states that share it: message passing
along and against the edges, where a call is an edge from the root of the callee to the
caller. One scorer, shared by all choices, sees a choice's value, its original's, the
row of features, and the whole graph; so graphs of any size and any number of choices
fit. The scores compete in each alternative, or among all rows and No-Op.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch_geometric.nn import SAGEConv
from torch_geometric.utils import scatter

from ..envs.candidates import NUM_RULES, candidate_features
from ..envs.rewrite_observations import RewriteObservation
from ..errors import ArgumentError
from ..graph.hlo_graph import dtypes, opcodes
from ..graph.pyg import node_features
from .chunks import distinct_of, encode_in_chunks
from .config_file import MAX_WIDTH
from .scores import Scores

_EMBEDDED = 16
_MAX_ROUNDS = 64
# Features with a smaller standard deviation hardly change where it was taken; elsewhere
# they would count as hundreds of it.
_MIN_SPREAD = 1e-2
# Of a normalized feature.
_MAX_FEATURE = 8.0


def feature_names() -> dict[str, list[str]]:
    """What the columns of the inputs mean; a checkpoint needs the same."""
    return {
        "nodes": list(node_features()),
        "candidates": list(candidate_features()),
        "opcodes": list(opcodes()),
        "dtypes": list(dtypes()),
    }


class Encoded(NamedTuple):
    """Several graphs as a `RewriteNetwork` encodes them.

    Attributes:
        pooled: [graphs, 2 * width] each graph.
        choices: [X, width] the value of each choice, mean over the sites of its
            alternative.
        starts: the first choice of each graph, and the number of all choices.
    """

    pooled: Tensor
    choices: Tensor
    starts: list[int]


class RewriteNetwork(nn.Module):
    """Scores and values for lists of `RewriteObservation`.

    Attributes:
        width: of the hidden layers.
        rounds: of message passing.
        node_mean, node_scale, row_mean, row_scale: of the features; see `normalize`.
    """

    node_mean: Tensor
    node_scale: Tensor
    row_mean: Tensor
    row_scale: Tensor

    def __init__(self, width: int = 64, rounds: int = 3) -> None:
        """Makes a network that scores all choices alike.

        Raises:
            ArgumentError: `width` or `rounds` is not positive, or too large.
        """
        super().__init__()
        if not (1 <= width <= MAX_WIDTH and 1 <= rounds <= _MAX_ROUNDS):
            raise ArgumentError(
                f"width must be from 1 to {MAX_WIDTH} and rounds from 1 to "
                f"{_MAX_ROUNDS}, got {width} and {rounds}"
            )
        self.width, self.rounds = width, rounds
        num_nodes, num_rows = len(node_features()), len(candidate_features())
        for name, size in (("node", num_nodes), ("row", num_rows)):
            self.register_buffer(f"{name}_mean", torch.zeros(size))
            self.register_buffer(f"{name}_scale", torch.ones(size))
        self.opcode = nn.Embedding(len(opcodes()), _EMBEDDED)
        self.dtype = nn.Embedding(len(dtypes()), _EMBEDDED)
        self.rule = nn.Embedding(NUM_RULES, _EMBEDDED)
        self.first = nn.Linear(num_nodes + 2 * _EMBEDDED, width)
        # Along the edges, and against them.
        self.along = nn.ModuleList(SAGEConv(width, width) for _ in range(rounds))
        self.against = nn.ModuleList(SAGEConv(width, width) for _ in range(rounds))
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(rounds))
        seen = num_rows + 2 * _EMBEDDED + 2 * width + 2 * width
        self.row = nn.Sequential(
            *(nn.Linear(seen, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU())
        )
        self.score = nn.Linear(width, 1)
        self.none = _head(3 * width, width)
        self.value = _head(3 * width + 2, width)
        # What the training has not seen counts for nothing.
        embeddings = (self.opcode, self.dtype, self.rule)
        with torch.no_grad():
            for last in (self.score, self.none[-1], self.value[-1], *embeddings):
                for parameter in last.parameters():
                    parameter.zero_()

    def forward(self, observations: Sequence[RewriteObservation]) -> Scores:
        """Scores of all rows, in the order of the observations."""
        graphs, which = distinct_of([each.graph for each in observations])
        return self.score_encoded(self.encode(graphs), observations, which)

    def encode(self, graphs: Sequence[Any]) -> Encoded:
        """What all observations of these graphs, as `HloData`, have in common."""
        sizes = [each.num_nodes + each.edge_index.shape[1] for each in graphs]
        pooled, choices = encode_in_chunks(self._encode, graphs, sizes)
        counts = [len(each.choice_alternative) for each in graphs]
        return Encoded(pooled, choices, _starts(counts))

    def _encode(self, graphs: Sequence[Any]) -> tuple[Tensor, Tensor]:
        batch = _Graphs(graphs, self.first.weight.device)
        nodes = self._nodes(batch)
        pools = [
            scatter(nodes, batch.graph, 0, len(graphs), reduce=reduce)
            for reduce in ("mean", "max")
        ]
        choices = scatter(
            nodes[batch.operand_node],
            batch.operand_choice,
            0,
            batch.num_choices,
            reduce="mean",
        )
        return torch.cat(pools, dim=1), choices

    def _nodes(self, batch: _Graphs) -> Tensor:
        x = _limited((batch.x - self.node_mean) / self.node_scale)
        parts = [x, self.opcode(batch.opcode), self.dtype(batch.dtype)]
        nodes = torch.relu(self.first(torch.cat(parts, dim=1)))
        edges = batch.edges
        for along, against, norm in zip(
            self.along, self.against, self.norms, strict=True
        ):
            passed = along(nodes, edges) + against(nodes, edges.flip(0))
            nodes = nodes + torch.relu(norm(passed))
        return nodes

    def score_encoded(
        self,
        encoded: Encoded,
        observations: Sequence[RewriteObservation],
        which: Sequence[int],
    ) -> Scores:
        """Scores of all rows.

        Args:
            encoded: several graphs.
            observations: of these graphs.
            which: the number of the graph of each observation.
        """
        pooled, choices, starts = encoded
        device = pooled.device
        rows = _Rows(observations, which, starts, device)
        count = len(observations)
        graph = pooled[rows.graph]
        hidden = self.row(
            torch.cat(
                [
                    _limited((rows.x - self.row_mean) / self.row_scale),
                    self.opcode(rows.opcode),
                    self.rule(rows.rule),
                    choices[rows.choice],
                    choices[rows.original],
                    graph[rows.owner],
                ],
                dim=1,
            )
        )
        logits = self.score(hidden)[:, 0].masked_fill(~rows.allowed, -torch.inf)
        state = torch.cat(
            [scatter(hidden, rows.owner, 0, count, reduce="mean"), graph], dim=1
        )
        # Only the value depends on the steps left; a policy does not know them.
        progress = torch.stack([torch.from_numpy(o.progress) for o in observations])
        values = self.value(torch.cat([state, progress.to(device)], dim=1))[:, 0]
        none = self.none(state)[:, 0]
        order, groups, owners = rows.groups()
        return Scores(torch.cat([logits, none])[order], groups, owners, values)

    def normalize(self, observations: Sequence[RewriteObservation]) -> None:
        """Sets the means and spreads of the features to those of these observations.

        Raises:
            ArgumentError: they have nothing to decide.
        """
        if all(each.candidates is None for each in observations):
            raise ArgumentError(
                "there is nothing to decide on the modules of the training set; give "
                "others, or another space"
            )
        graphs, _ = distinct_of([each.graph for each in observations])
        nodes = torch.cat([each.x for each in graphs])
        rows = torch.cat(
            [
                torch.from_numpy(each.candidates.x)
                for each in observations
                if each.candidates is not None
            ]
        )
        for name, values in (("node", nodes), ("row", rows)):
            spread = values.std(0, correction=0)
            mean, scale = getattr(self, f"{name}_mean"), getattr(self, f"{name}_scale")
            mean.copy_(values.mean(0))
            scale.copy_(torch.where(spread > _MIN_SPREAD, spread, 1.0))


def _limited(features: Tensor) -> Tensor:
    """Normalized features; far from what the training has seen, at a limit."""
    return features.clamp(-_MAX_FEATURE, _MAX_FEATURE)


class _Graphs:
    """Several graphs as one.

    Attributes:
        x, opcode, dtype: of the nodes, as in `HloData`.
        graph: [N] the graph of each node.
        edges: [2, E] operands to users, and roots of callees to callers.
        operand_node, operand_choice: as in `HloData`.
        num_choices: of all graphs.
    """

    def __init__(self, graphs: Sequence[Any], device: torch.device) -> None:
        nodes = _starts([each.num_nodes for each in graphs])
        choices = _starts([len(each.choice_alternative) for each in graphs])
        self.num_choices = choices[-1]
        edges = [
            torch.cat([each.edge_index, _calls(each)], dim=1) + start
            for each, start in zip(graphs, nodes, strict=False)
        ]
        sizes = torch.tensor([each.num_nodes for each in graphs])
        self.graph = torch.repeat_interleave(sizes).to(device)
        self.x = torch.cat([each.x for each in graphs]).to(device)
        self.opcode = torch.cat([each.opcode for each in graphs]).to(device)
        self.dtype = torch.cat([each.dtype for each in graphs]).to(device)
        self.edges = torch.cat(edges, dim=1).to(device)
        self.operand_node, self.operand_choice = (
            torch.cat(
                [
                    getattr(each, name) + start
                    for each, start in zip(graphs, starts, strict=False)
                ]
            ).to(device)
            for name, starts in (
                ("operand_node", nodes),
                ("operand_choice", choices),
            )
        )


class _Rows:
    """The rows of several observations, as tensors."""

    def __init__(
        self,
        observations: Sequence[RewriteObservation],
        which: Sequence[int],
        starts: list[int],
        device: torch.device,
    ) -> None:
        parts = [(i, o.candidates) for i, o in enumerate(observations)]
        kept = [(i, rows) for i, rows in parts if rows is not None]

        def joined(arrays: list[Any], dtype: torch.dtype) -> Tensor:
            if not arrays:
                return torch.zeros(0, dtype=dtype, device=device)
            tensors = [torch.from_numpy(each) for each in arrays]
            return torch.cat(tensors).to(device=device, dtype=dtype)

        integer = torch.int64
        self.graph = torch.tensor(which, device=device)
        self.owner = torch.cat(
            [torch.zeros(0, dtype=integer)]
            + [torch.full((len(rows),), i) for i, rows in kept]
        ).to(device)
        x = [rows.x for _, rows in kept]
        self.x = joined(x, torch.float32).reshape(-1, len(candidate_features()))
        self.opcode = joined([rows.opcode for _, rows in kept], integer)
        self.rule = joined([rows.rule for _, rows in kept], integer)
        self.allowed = joined([rows.allowed for _, rows in kept], torch.bool)
        self.choice = joined([rows.row + starts[which[i]] for i, rows in kept], integer)
        self.original = joined(
            [rows.originals() + starts[which[i]] for i, rows in kept], integer
        )
        self._observations = observations
        self._device = device

    def groups(self) -> tuple[Tensor, Tensor, Tensor]:
        """Order of rows and No-Ops, the group of each, and the owner of each group."""
        order: list[Tensor] = []
        groups: list[Tensor] = []
        owners: list[int] = []
        start, none = 0, len(self.owner)
        for number, each in enumerate(self._observations):
            rows = each.candidates
            size = 0 if rows is None else len(rows)
            own = torch.arange(start, start + size)
            if not each.is_joint:
                order += [torch.tensor([none + number]), own]
                groups.append(torch.full((size + 1,), len(owners)))
                owners.append(number)
            elif rows is not None:
                order.append(own)
                groups.append(torch.from_numpy(rows.alternative) + len(owners))
                owners += [number] * len(rows.first)
            start += size
        empty = [torch.zeros(0, dtype=torch.int64)]
        return (
            torch.cat(empty + order).to(self._device),
            torch.cat(empty + groups).to(self._device),
            torch.tensor(owners, dtype=torch.int64, device=self._device),
        )


def _head(inputs: int, width: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(inputs, width), nn.ReLU(), nn.Linear(width, 1))


def _calls(graph: Any) -> Tensor:
    """[2, calls] from the root of each callee to the node that calls it."""
    return torch.stack([graph.root_node[graph.call_computation], graph.call_node])


def _starts(sizes: list[int]) -> list[int]:
    """Where each of several parts starts, and the sum of their sizes."""
    return [0, *accumulate(sizes)]
