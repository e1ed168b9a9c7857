# SPDX-License-Identifier: Apache-2.0
"""Training samples: the data of a module as arrays and tensors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from ...cost.learned.features import Kernels, kernels_of
from ...cost.learned.network import Ensemble, KernelTensors, Uses
from ...cost.learned.ranking import Ranking, rank
from ...errors import DatasetError
from ...hlo.module import HloModule
from .shards import Shard

# Kernels faster than this are as fast as the timing can tell.
_MIN_KERNEL_NS = 5.0
# The least difference of two times that counts: relative, and for each variant.
_MIN_DIFFERENCE = 0.01
_RESOLUTION_NS = 10.0
# Modules whose slowest variant is less than this slower than the best are not ranked.
_MIN_SPREAD = 0.02


@dataclass(frozen=True)
class Sample:
    """The variants of one module whose kernels all have times. V variants.

    Attributes:
        shard: the data.
        kernels: [K] of all variants.
        log_ns: [K] log of the kernels' times; NaN where unknown.
        weight: [K] largest share of a kernel in a variant.
        variants: [V] indices in the shard.
        uses: of the kernels by these variants.
        total_ns: [V] by the kernel cache, not below the timing's resolution.
        measured: [V] relative measured time; NaN where unknown.
    """

    shard: Shard
    kernels: Kernels
    log_ns: npt.NDArray[np.float32]
    weight: npt.NDArray[np.float32]
    variants: npt.NDArray[np.int64]
    uses: Uses
    total_ns: npt.NDArray[np.float64]
    measured: npt.NDArray[np.float64]

    @property
    def is_ranked(self) -> bool:
        """Whether its variants differ by more than the times' accuracy."""
        total = self.total_ns
        return len(total) >= 3 and bool(
            total.max() - total.min() > _MIN_SPREAD * total.min() + 4 * _RESOLUTION_NS
        )

    def ranking(self, log_totals: npt.NDArray[np.float64]) -> Ranking:
        """Compares [V] estimates with the kernel cache."""
        return rank(log_totals, self.total_ns)


def sample_of(shard: Shard, *, device: str = "cpu") -> Sample | None:
    """The sample of a module; None where no variant has all its kernels' times.

    Raises:
        DatasetError: the kernels in the data are damaged.
    """
    parts = [kernels_of(HloModule.from_proto(each)) for each in shard.modules]
    kernels = Kernels.concatenate(parts) if parts else None
    if kernels is None or len(kernels) != len(shard.kernel_s):
        raise DatasetError(
            f"the data of {shard.uri} have times of {len(shard.kernel_s)} kernels, and "
            f"{0 if kernels is None else len(kernels)} kernels; make the data again"
        )
    total = shard.total_s(shard.kernel_s) * 1e9
    variants = np.flatnonzero(np.isfinite(total))
    if not len(variants):
        return None
    number = np.full(shard.num_variants, -1, np.int64)
    number[variants] = np.arange(len(variants))
    of_use = number[shard.use_variant]
    is_used = of_use >= 0
    kernel, runs = shard.use_kernel[is_used], shard.use_runs[is_used]
    kernel_ns = np.maximum(shard.kernel_s * 1e9, _MIN_KERNEL_NS)
    weight = np.zeros(len(kernels))
    share = runs * kernel_ns[kernel] / np.maximum(total[variants], 1)[of_use[is_used]]
    np.maximum.at(weight, kernel, np.minimum(share, 1))

    def tensor(values: npt.NDArray[np.generic]) -> torch.Tensor:
        return torch.tensor(values, device=device)

    uses = Uses(
        tensor(of_use[is_used]),
        tensor(kernel),
        tensor(runs.astype(np.float32)),
        tensor((shard.overhead_s[variants] * 1e9).astype(np.float32)),
    )
    return Sample(
        shard,
        kernels,
        np.log(kernel_ns).astype(np.float32),
        weight.astype(np.float32),
        variants,
        uses,
        np.maximum(total[variants], _MIN_KERNEL_NS),
        shard.measured[variants],
    )


def losses(
    ensemble: Ensemble,
    samples: Sequence[Sample],
    drawn: Sequence[tuple[Sample, npt.NDArray[np.int64]]],
    *,
    device: str,
) -> tuple[torch.Tensor, torch.Tensor]:
    """What training makes small.

    Args:
        ensemble: M networks.
        samples: R modules whose variants are ranked.
        drawn: D modules, and some kernels of each, for the regression alone.
        device: of the networks.

    Returns:
        [M, R + D] regression of the log times of kernels, and [M, R] ranking.
    """
    every = [(each, np.arange(len(each.kernels))) for each in samples]
    every += drawn
    parts = [each.kernels for each in samples]
    parts += [each.kernels.select(which) for each, which in drawn]
    logs, embeddings = ensemble(KernelTensors(Kernels.concatenate(parts), device))
    ends = np.cumsum([0, *(len(each) for each in parts)]).tolist()
    regressions, rankings = [], []
    for i, ((sample, which), start, end) in enumerate(
        zip(every, ends, ends[1:], strict=False)
    ):
        own = logs[:, start:end]
        regressions.append(_regression(own, sample, which))
        if i < len(samples):
            totals = ensemble.totals(own, embeddings[:, start:end], sample.uses)
            rankings.append(_ranking(totals, sample))
    return torch.stack(regressions, 1), torch.stack(rankings, 1)


# Weight of a kernel that takes no share of its module's time; 1 with all of it.
_MIN_WEIGHT = 0.1


def _regression(
    logs: torch.Tensor, sample: Sample, which: npt.NDArray[np.int64]
) -> torch.Tensor:
    """[M] of log times of some kernels, weighted by their share of the module's."""
    wanted = torch.tensor(sample.log_ns[which], device=logs.device)
    weight = torch.tensor(sample.weight[which], device=logs.device) + _MIN_WEIGHT
    weight = torch.where(torch.isnan(wanted), 0.0, weight)
    error = torch.nn.functional.smooth_l1_loss(
        logs, torch.nan_to_num(wanted).expand_as(logs), reduction="none", beta=0.5
    )
    return (error * weight).sum(1) / weight.sum().clamp(min=1e-6)


def _ranking(totals: torch.Tensor, sample: Sample) -> torch.Tensor:
    """[M] of pairs of variants: by the kernel cache and, where known, measured."""
    loss = _pairwise(totals, np.log(sample.total_ns), _accuracy(sample.total_ns))
    known = np.flatnonzero(np.isfinite(sample.measured))
    if len(known) < 2:
        return loss
    logs = np.log(sample.measured[known])
    least = np.full((len(known), len(known)), _MIN_DIFFERENCE)
    return loss + _pairwise(totals[:, known], logs, least)


def _accuracy(total_ns: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """[V, V] differences of log times that may be due to the timing."""
    smaller = np.minimum(total_ns[:, None], total_ns[None])
    return _MIN_DIFFERENCE + 2 * _RESOLUTION_NS / np.maximum(smaller, 1)


# Log times that differ by more than a few of this are ranked with certainty.
_TEMPERATURE = 0.05
# Pairs that differ by more than this count alike.
_FULL_WEIGHT = 0.1


def _pairwise(
    totals: torch.Tensor,
    logs: npt.NDArray[np.float64],
    least: npt.NDArray[np.float64],
) -> torch.Tensor:
    """[M] how far all pairs are from their order and their difference."""
    wanted = logs[:, None] - logs[None]
    first, second = np.nonzero(wanted > least)
    if not len(first):
        return totals.new_zeros(len(totals))
    difference = totals[:, first] - totals[:, second]
    wanted_pairs = totals.new_tensor(wanted[first, second])
    weight = (wanted_pairs / _FULL_WEIGHT).clamp(max=1)
    order = torch.nn.functional.softplus(-difference / _TEMPERATURE)
    size = torch.nn.functional.smooth_l1_loss(
        difference, wanted_pairs.expand_as(difference), reduction="none", beta=0.1
    )
    return ((order + size) * weight).sum(1) / weight.sum()


def totals_of(
    ensemble: Ensemble, samples: Sequence[Sample], *, device: str
) -> list[npt.NDArray[np.float64]]:
    """[M, V] log ns of the variants of each sample, as the networks are now."""
    results = []
    with torch.inference_mode():
        for sample in samples:
            logs, embeddings = ensemble(KernelTensors(sample.kernels, device))
            totals = ensemble.totals(logs, embeddings, sample.uses)
            results.append(totals.cpu().double().numpy())
    return results
