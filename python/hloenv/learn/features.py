# SPDX-License-Identifier: Apache-2.0
"""What the policies of Stable-Baselines3 see: vectors, and a graph network."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from gymnasium import spaces
from stable_baselines3.common.policies import ActorCriticPolicy
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from torch import nn

from ..envs.spaces import MAX_NODES

_WIDTH = 48
_ROUNDS = 3


class HloFeatures(BaseFeaturesExtractor):
    """Observations to one vector: scaled to 0..1; graphs by `GraphEncoder`.

    Counts and costs, which spread over many orders of magnitude, become log(1 + x).
    """

    def __init__(
        self, observation_space: spaces.Space[Any], hidden: tuple[str, ...] = ()
    ) -> None:
        """Takes the space; observations named in `hidden` are seen as zeros."""
        parts = _parts(observation_space)
        widths = (_width(part.space) for part in parts)
        super().__init__(observation_space, features_dim=sum(widths))
        self._seen = parts
        self._hidden = frozenset(hidden)
        self._encoders = nn.ModuleDict(
            {
                part.name: GraphEncoder(part.space)
                for part in parts
                if isinstance(part.space, spaces.Dict)
            }
        )

    def forward(self, observations: Any) -> torch.Tensor:
        """[batch, features]."""
        seen = []
        for part in self._seen:
            given = part.of(observations)
            if part.name in self._encoders:
                value = self._encoders[part.name](given)
            else:
                value = _scaled(given.flatten(1).float(), part.space)
            seen.append(torch.zeros_like(value) if part.name in self._hidden else value)
        return torch.cat(seen, dim=1)


class GraphEncoder(nn.Module):
    """`graph_padded` to a vector: opcodes and sizes, passed along the edges."""

    def __init__(self, space: spaces.Dict) -> None:
        """Takes the space, which has the number of opcodes and of features."""
        super().__init__()
        from torch_geometric.nn import SAGEConv

        opcode: Any = space["opcode"]
        nodes: Any = space["nodes"]
        num_features = nodes.shape[1]
        self._opcode = nn.Embedding(int(opcode.high.max()) + 1, 16)
        self._first = nn.Linear(16 + num_features, _WIDTH)
        # Along the edges, and against them.
        self._forward = nn.ModuleList(SAGEConv(_WIDTH, _WIDTH) for _ in range(_ROUNDS))
        self._backward = nn.ModuleList(SAGEConv(_WIDTH, _WIDTH) for _ in range(_ROUNDS))
        self._scale = float(nodes.high.max())

    def forward(self, graphs: dict[str, torch.Tensor]) -> torch.Tensor:
        """[batch, 2 * width]: the mean and the maximum over the nodes."""
        from torch_geometric.nn import global_max_pool, global_mean_pool

        is_node = graphs["node_mask"].bool()
        batch_size, device = len(is_node), is_node.device
        # Padding is left out: most modules are far smaller than the largest.
        position = torch.cumsum(is_node.flatten().long(), 0) - 1
        batch = torch.arange(batch_size, device=device)[:, None].expand_as(is_node)
        batch = batch[is_node]
        is_edge = graphs["edge_mask"].bool()
        offset = torch.arange(batch_size, device=device)[:, None] * MAX_NODES
        moved = graphs["edges"].long() + offset[:, None]
        edges = moved.transpose(0, 1)[:, is_edge]
        edges = position[edges]
        opcodes = self._opcode(graphs["opcode"].long()[is_node])
        sizes = graphs["nodes"].float()[is_node] / self._scale
        nodes = torch.relu(self._first(torch.cat([opcodes, sizes], dim=1)))
        for along, against in zip(self._forward, self._backward, strict=True):
            passed = along(nodes, edges) + against(nodes, edges.flip(0))
            nodes = nodes + torch.relu(passed)
        mean = global_mean_pool(nodes, batch, batch_size)
        return torch.cat([mean, global_max_pool(nodes, batch, batch_size)], dim=1)


@dataclass(frozen=True)
class _Part:
    """One observation of several.

    Attributes:
        name: of the observation.
        space: a graph's is a dictionary.
        prefix: of its keys; None if it is not one of several.
    """

    name: str
    space: spaces.Space[Any]
    prefix: str | None

    def of(self, observations: Any) -> Any:
        if self.prefix is None:
            return observations
        if isinstance(self.space, spaces.Dict):
            return {key: observations[self.prefix + key] for key in self.space.spaces}
        return observations[self.prefix]


def _parts(space: spaces.Space[Any]) -> list[_Part]:
    if not isinstance(space, spaces.Dict) or "node_mask" in space.spaces:
        return [_Part("observation", space, None)]
    names = {
        key.rpartition(".")[0] for key in space.spaces if key.endswith(".node_mask")
    }
    parts = [
        _Part(key, each, key)
        for key, each in space.spaces.items()
        if key.partition(".")[0] not in names
    ]
    for name in sorted(names):
        fields = {
            key.removeprefix(f"{name}."): each
            for key, each in space.spaces.items()
            if key.startswith(f"{name}.")
        }
        parts.append(_Part(name, spaces.Dict(fields), f"{name}."))
    return parts


def _width(space: spaces.Space[Any]) -> int:
    if isinstance(space, spaces.Dict):
        return 2 * _WIDTH
    return int(spaces.utils.flatdim(space))


def _scaled(values: torch.Tensor, space: Any) -> torch.Tensor:
    """Values of any size as log(1 + |x|) with their sign, over that of the largest."""
    low, high = float(space.low.min()), float(space.high.max())
    largest = max(-low, high)
    if largest <= 1:
        return values
    scaled = values.sign() * values.abs().log1p()
    return scaled / math.log1p(largest) if math.isfinite(largest) else scaled


def asymmetric(policy_class: type[ActorCriticPolicy]) -> Any:
    """A policy class whose critic sees more than its actor, which sees zeros there."""

    class AsymmetricPolicy(policy_class):  # type: ignore[misc, valid-type]
        def __init__(self, *args: Any, critic_only: tuple[str, ...], **kwargs: Any):
            self._hidden = critic_only
            super().__init__(*args, share_features_extractor=False, **kwargs)

        def make_features_extractor(self) -> BaseFeaturesExtractor:
            # The actor's is made first.
            hidden, self._hidden = self._hidden, ()
            return HloFeatures(self.observation_space, hidden)

    return AsymmetricPolicy
