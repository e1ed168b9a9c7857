# SPDX-License-Identifier: Apache-2.0
"""The networks of the learned cost model: an ensemble over graphs of kernels.

Message passing runs within each kernel, never between kernels. The network predicts a
time per element for each instruction of a kernel, one factor and one constant time for
the whole kernel; the estimate of the kernel is the factor times the sum of the
instructions' times, plus the constant. That of a module is the sum over its kernels, so
that what two variants have in common has the same time in both.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn
from torch_geometric.nn import GINEConv
from torch_geometric.utils import scatter, softmax

from ...graph.hlo_graph import dtypes, opcodes
from .features import (
    Kernels,
    edge_features,
    kernel_features,
    kernel_node_features,
)

_OPCODE_WIDTH = 16
_TYPE_WIDTH = 6
# A kernel without work, in log ns.
_FIRST_FLOOR = 2.0
# An element or operation, in log ns, before training.
_FIRST_COST = -2.0
_HEADS = 4


@dataclass(frozen=True)
class Shape:
    """What determines the weights.

    Attributes:
        members: networks of the ensemble.
        width: of the hidden layers.
        rounds: of message passing.
        has_attention: whether variants of one module attend to each other.
        dropout: share of the values that training leaves out; no weights depend on it.
    """

    members: int = 3
    width: int = 48
    rounds: int = 3
    has_attention: bool = False
    dropout: float = 0.0

    def to_json(self) -> dict[str, Any]:
        """The attributes."""
        return asdict(self)


class KernelTensors:
    """`Kernels` as tensors on a device."""

    def __init__(self, kernels: Kernels, device: torch.device | str = "cpu") -> None:
        def tensor(values: npt.NDArray[Any]) -> torch.Tensor:
            # A copy: torch warns of arrays that are read-only.
            return torch.tensor(np.ascontiguousarray(values), device=device)

        self.num_kernels = len(kernels)
        self.opcode = tensor(kernels.opcode)
        self.callee_opcode = tensor(kernels.callee_opcode)
        self.dtype = tensor(kernels.dtype)
        self.x = tensor(kernels.x)
        self.work = tensor(kernels.work)
        self.node_kernel = tensor(kernels.node_kernel)
        self.edges = tensor(kernels.edges)
        self.edge_x = tensor(kernels.edge_x)
        self.kernel_x = tensor(kernels.kernel_x)


class Scaling(nn.Module):
    """Columns minus their mean over their deviation, both kept with the weights."""

    mean: torch.Tensor
    scale: torch.Tensor

    def __init__(self, num_columns: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(num_columns))
        self.register_buffer("scale", torch.ones(num_columns))

    def fit(self, values: npt.NDArray[np.float32]) -> None:
        """Takes mean and deviation from [rows, columns] training data."""
        deviation = values.std(axis=0)
        deviation[deviation < 1e-3] = 1.0  # columns that are constant there
        self.mean.copy_(torch.from_numpy(values.mean(axis=0)))
        self.scale.copy_(torch.from_numpy(deviation))

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        """[rows, columns], limited to what training data can resemble."""
        scaled: torch.Tensor = ((values - self.mean) / self.scale).clamp(-8, 8)
        return scaled


class KernelNetwork(nn.Module):
    """One member: log ns and an embedding of each kernel."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        width = shape.width
        num_inputs = len(kernel_node_features()) + 2 * _OPCODE_WIDTH + _TYPE_WIDTH
        self.opcode = nn.Embedding(len(opcodes()), _OPCODE_WIDTH)
        self.callee = nn.Embedding(len(opcodes()) + 1, _OPCODE_WIDTH)
        self.dtype = nn.Embedding(len(dtypes()), _TYPE_WIDTH)
        self.first = nn.Linear(num_inputs, width)
        edge_width = len(edge_features())

        def conv() -> GINEConv:
            inner = nn.Sequential(nn.Linear(width, width))
            return GINEConv(inner, edge_dim=edge_width)

        self.forward_convs = nn.ModuleList(conv() for _ in range(shape.rounds))
        self.backward_convs = nn.ModuleList(conv() for _ in range(shape.rounds))
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(shape.rounds))
        last = nn.Linear(width, 1)
        nn.init.constant_(last.bias, _FIRST_COST)
        self.cost = nn.Sequential(nn.Linear(width, width), nn.ReLU(), last)
        num_pooled = 2 * width + len(kernel_features())
        self.pooled = nn.Sequential(nn.Linear(num_pooled, width), nn.ReLU())
        self.dropout = nn.Dropout(shape.dropout)
        self.factor = nn.Linear(width, 2)
        nn.init.zeros_(self.factor.weight)
        nn.init.zeros_(self.factor.bias)

    def forward(
        self,
        kernels: KernelTensors,
        x: torch.Tensor,
        edge_x: torch.Tensor,
        kernel_x: torch.Tensor,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """[K] log ns and [K, width] embeddings; the features are scaled."""
        inputs = (
            *(self.opcode(kernels.opcode), self.callee(kernels.callee_opcode)),
            *(self.dtype(kernels.dtype), x),
        )
        nodes = torch.relu(self.first(torch.cat(inputs, dim=1)))
        edges, turned = kernels.edges, kernels.edges.flip(0)
        layers = zip(self.forward_convs, self.backward_convs, self.norms, strict=True)
        for along, against, norm in layers:
            passed = along(nodes, edges, edge_x) + against(nodes, turned, edge_x)
            nodes = nodes + self.dropout(torch.relu(norm(passed)))
        of_kernel, count = kernels.node_kernel, kernels.num_kernels
        logs = self.cost(nodes).squeeze(1) + kernels.work
        largest = scatter(logs.detach(), of_kernel, dim_size=count, reduce="max")
        summed = scatter(
            torch.exp(logs - largest[of_kernel]), of_kernel, dim_size=count
        )
        work = largest + torch.log(summed)
        share = softmax(logs, of_kernel, num_nodes=count)[:, None]
        mean = scatter(nodes, of_kernel, dim_size=count, reduce="mean")
        weighted = scatter(nodes * share, of_kernel, dim_size=count)
        embedding = self.pooled(torch.cat([mean, weighted, kernel_x], dim=1))
        factor, floor = self.factor(self.dropout(embedding)).unbind(1)
        return torch.logaddexp(work + factor, _FIRST_FLOOR + floor), embedding


class VariantAttention(nn.Module):
    """A correction of the log time of each variant, from all variants of its module."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first = nn.Linear(width + 1, width)
        self.attention = nn.MultiheadAttention(width, _HEADS, batch_first=True)
        self.norm = nn.LayerNorm(width)
        self.last = nn.Linear(width, 1)
        nn.init.zeros_(self.last.weight)
        nn.init.zeros_(self.last.bias)

    def forward(self, embeddings: torch.Tensor, logs: torch.Tensor) -> torch.Tensor:
        """[V] corrections of [V, width] embeddings and [V] log times of one module."""
        relative = (logs - logs.mean())[:, None]
        variants = self.first(torch.cat([embeddings, relative], dim=1))[None]
        attended, _ = self.attention(variants, variants, variants, need_weights=False)
        correction: torch.Tensor = self.last(self.norm(variants + attended))
        return correction[0, :, 0]


@dataclass(frozen=True)
class Uses:
    """The kernels of V variants of one module. T uses.

    Attributes:
        variant: [T] int64.
        kernel: [T] int64.
        runs: [T] float32 runs of the kernel in one run of the variant.
        overhead_ns: [V] float32 besides the kernels.
    """

    variant: torch.Tensor
    kernel: torch.Tensor
    runs: torch.Tensor
    overhead_ns: torch.Tensor


class Ensemble(nn.Module):
    """M networks of different starts; their spread says how much is unknown."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.node_scaling = Scaling(len(kernel_node_features()))
        self.edge_scaling = Scaling(len(edge_features()))
        self.kernel_scaling = Scaling(len(kernel_features()))
        self.networks = nn.ModuleList(
            KernelNetwork(shape) for _ in range(shape.members)
        )
        self.attentions = nn.ModuleList(
            VariantAttention(shape.width)
            for _ in range(shape.members if shape.has_attention else 0)
        )

    def fit_scaling(self, kernels: Kernels) -> None:
        """Takes the normalisation from the training data."""
        self.node_scaling.fit(kernels.x)
        self.edge_scaling.fit(kernels.edge_x)
        self.kernel_scaling.fit(kernels.kernel_x)

    def forward(self, kernels: KernelTensors) -> tuple[torch.Tensor, torch.Tensor]:
        """[M, K] log ns of the kernels, and [M, K, width] embeddings."""
        scaled = (
            self.node_scaling(kernels.x),
            self.edge_scaling(kernels.edge_x),
            self.kernel_scaling(kernels.kernel_x),
        )
        results = [network(kernels, *scaled) for network in self.networks]
        logs, embeddings = zip(*results, strict=True)
        return torch.stack(logs), torch.stack(embeddings)

    def totals(
        self, logs: torch.Tensor, embeddings: torch.Tensor, uses: Uses
    ) -> torch.Tensor:
        """[M, V] log ns of variants of one module, on one core.

        Args:
            logs: [M, K] of the kernels.
            embeddings: [M, K, width] of the kernels.
            uses: of the kernels.
        """
        spent = torch.exp(logs[:, uses.kernel]) * uses.runs
        zeros = uses.overhead_ns.expand(len(logs), -1)
        total = torch.log(zeros.index_add(1, uses.variant, spent) + 1.0)
        return total + self.corrections(spent, total, embeddings, uses)

    def corrections(
        self,
        spent: torch.Tensor,
        total: torch.Tensor,
        embeddings: torch.Tensor,
        uses: Uses,
    ) -> torch.Tensor:
        """[M, V] what attention adds to `total`; zeros without it."""
        if not self.attentions:
            return torch.zeros_like(total)
        shares = spent / torch.exp(total)[:, uses.variant]
        weighted = embeddings[:, uses.kernel] * shares[..., None]
        num_variants = total.shape[1]
        pooled = weighted.new_zeros(len(total), num_variants, weighted.shape[2])
        pooled = pooled.index_add(1, uses.variant, weighted)
        each = zip(self.attentions, pooled, total, strict=True)
        return torch.stack([attend(*inputs) for attend, *inputs in each])
