# SPDX-License-Identifier: Apache-2.0
"""X-RLflow's network: whole candidate graphs, and one MLP over all of them.

Every candidate is encoded by itself, by five graph attention layers and a global state
(nodes that see the same as those of the module have their embeddings, and are not
encoded again: see `envs.candidate_graphs`), and an MLP gets the embeddings of all
candidates side by side. It therefore has a fixed number of candidates, whose positions
matter; `networks.RewriteNetwork` scores each candidate by one scorer that they share,
on one alternative graph.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch_geometric.nn import GATConv
from torch_geometric.utils import scatter

from ..envs.candidate_graphs import HOPS, PackedGraph
from ..envs.substitution_observations import CandidateGraphs
from ..errors import ArgumentError
from ..graph.hlo_graph import opcodes
from ..graph.pyg import edge_features
from .chunks import distinct_of, encode_in_chunks
from .scores import Scores

# Of which a checkpoint may make a network: half a gigabyte of weights.
MAX_CANDIDATES = 4096
_WIDTH = 64
_HEAD = (256, 64)


class XRLflowNetwork(nn.Module):
    """Scores and values for lists of `CandidateGraphs`.

    Nodes show their opcode, as in the paper, and edges the features of
    `hloenv.graph.pyg` in the place of four dimensions of the array.

    Attributes:
        max_candidates: candidates that fit; further ones are never chosen.
    """

    def __init__(self, max_candidates: int = 500) -> None:
        """Makes a network.

        Raises:
            ArgumentError: `max_candidates` is not positive, or too large.
        """
        super().__init__()
        if not 1 <= max_candidates <= MAX_CANDIDATES:
            raise ArgumentError(
                f"max_candidates must be 1 to {MAX_CANDIDATES}, got {max_candidates}"
            )
        self.max_candidates = max_candidates
        self.first = nn.Embedding(len(opcodes()), _WIDTH)
        self.layers = nn.ModuleList(
            GATConv(_WIDTH, _WIDTH, edge_dim=len(edge_features()), fill_value=0.0)
            for _ in range(HOPS)
        )
        self.pool = nn.Linear(_WIDTH, _WIDTH)
        size = (max_candidates + 1) * _WIDTH
        self.policy = _mlp(size, max_candidates + 1)
        self.value = _mlp(size, 1)

    def forward(self, observations: Sequence[CandidateGraphs]) -> Scores:
        """Scores of No-Op and the candidates, in the order of the observations."""
        device = self.pool.weight.device
        slots = self.max_candidates + 1
        lists = [each.graphs[:slots] for each in observations]
        distinct, which = distinct_of([graph for graphs in lists for graph in graphs])
        sizes = [e.num_rows + e.num_edges + e.num_moved for e in distinct]
        (embedded,) = encode_in_chunks(self._encode, distinct, sizes)
        embedded = embedded[torch.tensor(which, device=device)]
        # [B, slots, width] with zeros where there is no candidate.
        padded = torch.zeros(len(lists), slots, _WIDTH, device=device)
        start = 0
        for row, graphs in enumerate(lists):
            padded[row, : len(graphs)] = embedded[start : start + len(graphs)]
            start += len(graphs)
        flat = padded.reshape(len(lists), -1)
        logits = self.policy(flat)
        parts: list[Tensor] = []
        for row, each in enumerate(observations):
            shown = logits[row, : len(lists[row])]
            hidden = len(each.graphs) - len(shown)
            parts.append(torch.cat([shown, shown.new_full((hidden,), -torch.inf)]))
        counts = torch.tensor([len(part) for part in parts])
        return Scores(
            torch.cat(parts),
            torch.repeat_interleave(counts).to(device),
            torch.arange(len(parts), device=device),
            self.value(flat)[:, 0],
        )

    def _encode(self, packed: Sequence[PackedGraph]) -> tuple[Tensor]:
        """[graphs, width] global states."""
        device = self.pool.weight.device
        # The references first, each once, and then the rows of the others.
        whole, _ = distinct_of([each.reference or each for each in packed])
        partial, _ = distinct_of([each for each in packed if each.reference])
        rows = [each.unpack() for each in (*whole, *partial)]
        sizes = np.array([len(each.opcode) for each in rows])
        starts = np.cumsum(sizes) - sizes
        start_of = {id(each): start for each, start in zip(whole, starts, strict=False)}

        edges, moved = [], []
        for each, row, start in zip((*whole, *partial), rows, starts, strict=True):
            reference = each.reference
            origin, count = start, 0
            if reference is not None:
                origin, count = start_of[id(reference)], reference.num_nodes
            source, target = row.edge_index
            source = np.where(source < count, origin + source, start + source - count)
            edges.append(np.stack([source, start + target]))
            moved.append(origin + row.moved)

        def joined(arrays: list[npt.NDArray[Any]], axis: int = 0) -> Tensor:
            return torch.from_numpy(np.concatenate(arrays, axis)).to(device)

        nodes = self.first(joined([each.opcode for each in rows]))
        edge = joined(edges, 1)
        attributes = joined([each.edge_attr for each in rows])
        for layer in self.layers:
            nodes = torch.relu(layer(nodes, edge, attributes))

        def owners(counts: Sequence[int]) -> Tensor:
            return torch.repeat_interleave(torch.tensor(counts)).to(device)

        # Sums over the nodes of each graph.
        sums = scatter(nodes, owners([*sizes]), 0, len(rows), reduce="sum")
        times = joined([each.times for each in rows])[:, None]
        sums = sums + scatter(
            nodes[joined(moved)] * times,
            owners([len(each.moved) for each in rows]),
            0,
            len(rows),
            reduce="sum",
        )
        number = {id(each): i for i, each in enumerate((*whole, *partial))}
        own = torch.tensor([number[id(each)] for each in packed], device=device)
        base = torch.tensor(
            [number[id(each.reference or each)] for each in packed], device=device
        )
        is_partial = torch.tensor([each.reference is not None for each in packed])
        pooled = sums[own] + sums[base] * is_partial.to(sums)[:, None]
        counts = torch.tensor([each.num_nodes for each in packed]).to(sums)
        return (torch.relu(self.pool(pooled / counts[:, None])),)


def _mlp(size: int, outputs: int) -> nn.Sequential:
    wide, narrow = _HEAD
    return nn.Sequential(
        nn.Linear(size, wide),
        nn.ReLU(),
        nn.Linear(wide, narrow),
        nn.ReLU(),
        nn.Linear(narrow, outputs),
    )
