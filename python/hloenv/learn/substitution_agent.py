# SPDX-License-Identifier: Apache-2.0
"""Agents that substitute: their checkpoints, and what they make of a module."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from .._checkpoints import (
    check_finite,
    damage_as,
    read_checkpoint,
    write_checkpoint,
)
from .._version import __version__
from ..cost.base import Estimator, estimate_of
from ..cost.learned.threads import one_thread
from ..cost.registry import UnknownEstimatorError
from ..envs.substitution import SubstitutionEnv
from ..errors import ArgumentError, UnknownPassError
from ..hlo.module import HloModule
from ..substitution.search import Substituted
from .agent import CheckpointError
from .networks import RewriteNetwork, feature_names
from .scores import Decisions
from .substitution_config import SubstitutionConfig
from .xrlflow import XRLflowNetwork

_FORMAT = 1
_KEY = "hloenv"
_KIND = "substitution"


@dataclass(frozen=True)
class SubstitutionAgent:
    """A network that was trained on substitutions.

        agent = load_substitution_agent("runs/substitution/best.safetensors")
        found = agent.improve(module, get_estimator("operators"))

    Attributes:
        network: from observations to scores.
        config: of the training.
        notes: what the checkpoint says of it.
    """

    network: nn.Module
    config: SubstitutionConfig
    notes: dict[str, Any]

    def improve(
        self, module: HloModule, estimator: Estimator | None = None, *, room: int = 0
    ) -> Substituted:
        """The module of one episode, in which the likeliest action is taken.

        Candidates that the episode has seen are not taken: rules undo each other.

        Args:
            module: before layout assignment.
            estimator: by which the episode's cheapest module counts; without one, its
                last, and the costs are NaN.
            room: instructions that a candidate may add to a small module in any case.

        Raises:
            ArgumentError: the module cannot be estimated.
            HloEnvError: a pass fails on the module.
        """
        env = self.config.make_env(module, room=room)
        env.skip_rewards()
        return play(env, self.chooser(env), estimator)

    def chooser(self, env: SubstitutionEnv) -> Callable[[Any], int]:
        """From an observation to the likeliest action of an episode that begins.

        Args:
            env: of the episode.
        """
        seen: set[str] = set()

        def likeliest(observation: Any) -> int:
            seen.add(env.module.fingerprint())
            known = [each.fingerprint in seen for each in env.candidates()]
            with torch.no_grad(), one_thread():
                scores = self.network([observation])
                hidden = torch.tensor([False, *known], device=scores.logits.device)
                logits = scores.logits.masked_fill(hidden, -torch.inf)
                return int(Decisions(scores._replace(logits=logits)).mode()[0])

        return likeliest

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes a checkpoint; the file is replaced once it is complete.

        Raises:
            OSError: it cannot be written.
        """
        described = {
            "format": _FORMAT,
            "kind": _KIND,
            "version": __version__,
            "features": feature_names(),
            "config": self.config.to_dict(),
            "notes": self.notes,
        }
        write_checkpoint(path, _KEY, described, self.network.state_dict())


def load_substitution_agent(path: str | os.PathLike[str]) -> SubstitutionAgent:
    """Reads a checkpoint; nothing that is in it is executed.

    Raises:
        FileNotFoundError: there is none.
        CheckpointError: it is damaged, of another kind, or its features are not those
            of this version of hloenv; or it was trained with passes or a cost that are
            not registered here.
    """
    message = f"{path} is no checkpoint of hloenv train substitution"
    with damage_as(CheckpointError, message):
        described, weights = read_checkpoint(
            path, _KEY, maker="hloenv train substitution"
        )
        if (described["kind"], described["format"]) != (_KIND, _FORMAT):
            raise ValueError(f"it holds {described['kind']!r}")
        if described["features"] != feature_names():
            raise ValueError(
                f"its features are not those of hloenv {__version__}; train it again"
            )
        try:
            config = SubstitutionConfig.from_dict(described["config"])
        except (UnknownPassError, UnknownEstimatorError) as error:
            raise CheckpointError(
                f"{path} was trained with what is not registered here: {error}; import "
                "the file that registers it first (commands: --import FILE)"
            ) from None
        network = network_of(config)
        network.load_state_dict(weights)
        check_finite(weights)
        network.eval()
        return SubstitutionAgent(network, config, dict(described["notes"]))


def network_of(config: SubstitutionConfig) -> nn.Module:
    """A new network of a configuration."""
    if config.agent == "xrlflow":
        return XRLflowNetwork(config.max_candidates)
    return RewriteNetwork(config.width, config.rounds)


def play(
    env: SubstitutionEnv, choose: Callable[[Any], int], estimator: Estimator | None
) -> Substituted:
    """The cheapest module of one episode; the last without an estimator.

    Args:
        env: of one module.
        choose: from an observation to an action.
        estimator: of the cost of a module; None for costs of NaN.

    Raises:
        ArgumentError: the module cannot be estimated.
        HloEnvError: a pass fails on the module.
    """
    started = time.perf_counter()
    observation, _ = env.reset()
    first = best = env.module
    cost = start_cost = _seconds(estimator, first)
    if math.isinf(cost):
        raise ArgumentError(f"module {first.name!r} cannot be estimated")
    path: list[str] = []
    best_path: tuple[str, ...] = ()
    num_failed = steps = 0
    is_over = False
    while not is_over:
        observation, _, terminated, truncated, info = env.step(choose(observation))
        is_over = terminated or truncated
        steps += 1
        if info["rule"]:
            path.append(info["rule"])
            seconds = _seconds(estimator, env.module)
            num_failed += math.isinf(seconds)
            if estimator is None or seconds < cost:
                best, cost, best_path = env.module, seconds, tuple(path)
    return Substituted(
        module=best,
        cost=cost,
        start_cost=start_cost,
        path=best_path,
        num_steps=steps,
        num_costs=len(path) + 1 if estimator else 0,
        num_failed=num_failed,
        seconds=time.perf_counter() - started,
        is_complete=not env.error,
    )


def _seconds(estimator: Estimator | None, module: HloModule) -> float:
    if estimator is None:
        return math.nan
    estimate = estimate_of(estimator, module)
    return estimate.seconds if estimate.is_ok else math.inf
