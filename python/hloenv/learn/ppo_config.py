# SPDX-License-Identifier: Apache-2.0
"""Settings of `GraphPPO`."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

from ..errors import ArgumentError


@dataclass(frozen=True)
class PPOConfig:
    """Settings of the algorithm.

    Attributes:
        num_steps: steps of each environment between two updates.
        learning_rate: of Adam.
        anneal: whether it decreases linearly to 0 over the run.
        gamma: discount of a step.
        gae_lambda: of the generalized advantage estimation.
        num_epochs: passes over the steps of an update.
        minibatch_size: steps of a minibatch.
        clip: of the ratio of the new probability of a decision to its old one.
        value_clip: largest change of a value in one update; 0 for no limit.
        entropy: weight of the entropy.
        value_weight: weight of the value loss.
        max_grad_norm: gradients are scaled down to this norm.
        target_kl: an update ends early when the approximate Kullback-Leibler divergence
            is above it; 0 for never.
        normalize_advantages: whether those of a minibatch have mean 0 and deviation 1;
            less than 1 where normalized rewards have hardly any.
        normalize_rewards: whether rewards are in units of the standard deviation of the
            returns so far, and at most 10 of these: policy and value share layers and
            one limit of their gradients, so that a value far from 1 leaves the policy
            little of both (Engstrom et al., 2020).
        bootstraps: whether a truncated episode is worth what the value function expects
            after it; not where the limit is part of the task, and observed.
    """

    num_steps: int = 32
    learning_rate: float = 5e-4
    anneal: bool = False
    gamma: float = 0.99
    gae_lambda: float = 0.95
    num_epochs: int = 4
    minibatch_size: int = 64
    clip: float = 0.2
    value_clip: float = 0.0
    entropy: float = 0.01
    value_weight: float = 0.5
    max_grad_norm: float = 0.5
    target_kl: float = 0.05
    normalize_advantages: bool = True
    normalize_rewards: bool = True
    bootstraps: bool = False

    def __post_init__(self) -> None:
        """Checks the numbers.

        Raises:
            ArgumentError: one of them is out of range.
        """
        for field in fields(self):
            value = getattr(self, field.name)
            is_number = isinstance(value, (int, float)) and math.isfinite(value)
            if not (is_number and value >= 0):
                raise ArgumentError(f"{field.name} must be >= 0, got {value!r}")
            if field.name in ("learning_rate", "clip", "max_grad_norm") and not value:
                raise ArgumentError(f"{field.name} must be > 0, got 0")
            if field.name in ("gamma", "gae_lambda") and value > 1:
                raise ArgumentError(f"{field.name} must be <= 1, got {value}")
        for name in ("num_steps", "num_epochs", "minibatch_size"):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise ArgumentError(f"{name} must be an integer >= 1, got {value!r}")
