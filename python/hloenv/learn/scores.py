# SPDX-License-Identifier: Apache-2.0
"""Scores of candidates in groups, and the choice of one candidate of each group."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from ..errors import HloEnvError


class TrainingError(HloEnvError, RuntimeError):
    """Training cannot continue: the network has no finite output any more."""


class Scores(NamedTuple):
    """What a network says about B observations with G groups and X candidates.

    Attributes:
        logits: [X] float, -inf for what must not be chosen.
        groups: [X] int64, the group of each candidate, ascending, without gaps.
        owners: [G] int64, the observation of each group, ascending.
        values: [B] float, the expected return.
    """

    logits: Tensor
    groups: Tensor
    owners: Tensor
    values: Tensor


class Decisions:
    """The distribution over one candidate of each group, by `Scores`."""

    def __init__(self, scores: Scores) -> None:
        """Normalizes the scores of each group.

        Raises:
            TrainingError: a score is NaN, or a group has no candidate to choose.
        """
        self.groups, self.owners = scores.groups, scores.owners
        self.num_groups = len(scores.owners)
        highest = self._highest(scores.logits.detach())
        if not bool(torch.isfinite(highest).all() & ~scores.logits.isnan().any()):
            raise TrainingError(
                "a group has no finite score: all its candidates are masked, or the "
                "network has diverged; resume with a lower learning_rate"
            )
        shifted = scores.logits - highest[self.groups]
        total = self._sum(shifted.exp()).log()
        # [G] logarithm of the sum of the exponentials of each group's scores.
        self.log_normalizers = highest + total
        # [X] log-probabilities of the candidates.
        self.log_probs = shifted - total[self.groups]
        sizes = torch.bincount(self.groups, minlength=self.num_groups)
        self._first = torch.cumsum(sizes, 0) - sizes

    def sample(self, generator: torch.Generator) -> Tensor:
        """[G] drawn positions; the numbers are drawn on the CPU."""
        uniform = torch.rand(len(self.log_probs), generator=generator)
        noise = -torch.log(-torch.log(uniform.clamp(1e-20, 1 - 1e-7)))
        return self._best(self.log_probs + noise.to(self.log_probs))

    def mode(self) -> Tensor:
        """[G] positions of the likeliest; of equals the first."""
        return self._best(self.log_probs)

    def log_prob(self, chosen: Tensor) -> Tensor:
        """[G] log-probability of the candidate at each position."""
        return self.log_probs[self._first + chosen]

    def entropy(self) -> Tensor:
        """[G] in nats."""
        log_probs = self.log_probs.clamp(min=-1e9)  # 0 * -inf is NaN
        return self._sum(-log_probs.exp() * log_probs)

    def per_observation(self, values: Tensor) -> Tensor:
        """Mean over observations of the mean over their groups of [G] values."""
        if not self.num_groups:
            return values.sum()
        counts = torch.bincount(self.owners).to(values)
        weights = 1 / counts[self.owners]
        return (values * weights).sum() / weights.sum()

    def split(self, values: Tensor, num_observations: int) -> list[Tensor]:
        """[G] values, those of each observation by themselves."""
        counts = torch.bincount(self.owners, minlength=num_observations)
        return list(torch.split(values, counts.tolist()))

    def _sum(self, values: Tensor) -> Tensor:
        return values.new_zeros(self.num_groups).index_add(0, self.groups, values)

    def _highest(self, values: Tensor) -> Tensor:
        start = values.new_full((self.num_groups,), -math.inf)
        return start.scatter_reduce(0, self.groups, values, "amax")

    def _best(self, values: Tensor) -> Tensor:
        values = values.detach()
        position = torch.arange(len(values), device=values.device)
        position = position - self._first[self.groups]
        is_best = values == self._highest(values)[self.groups]
        last = len(values)
        start = position.new_full((self.num_groups,), last)
        candidates = torch.where(is_best, position, last)
        return start.scatter_reduce(0, self.groups, candidates, "amin")
