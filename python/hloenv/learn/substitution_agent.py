# SPDX-License-Identifier: Apache-2.0
"""Agents that substitute: their checkpoints, and what they make of a module."""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from .._files import replacing
from .._version import __version__
from ..cost.base import Estimator
from ..envs.substitution import SubstitutionEnv
from ..errors import ArgumentError, HloEnvError
from ..hlo.module import HloModule
from ..substitution.search import Substituted
from .agent import CheckpointError
from .gnn import one_thread
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

    def improve(self, module: HloModule, estimator: Estimator) -> Substituted:
        """The cheapest module of one episode, in which the likeliest action is taken.

        Raises:
            ArgumentError: the module cannot be estimated.
            HloEnvError: a pass fails on the module.
        """

        def likeliest(observation: Any) -> int:
            with torch.no_grad(), one_thread():
                return int(Decisions(self.network([observation])).mode()[0])

        return play(self.config.make_env(module), likeliest, estimator)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes a checkpoint; the file is replaced once it is complete.

        Raises:
            OSError: it cannot be written.
        """
        from safetensors.torch import save

        described = {
            "format": _FORMAT,
            "kind": _KIND,
            "version": __version__,
            "features": feature_names(),
            "config": self.config.to_dict(),
            "notes": self.notes,
        }
        weights = {
            name: tensor.detach().cpu().contiguous().clone()
            for name, tensor in self.network.state_dict().items()
        }
        data = save(weights, metadata={_KEY: json.dumps(described)})
        with replacing(Path(path)) as draft:
            draft.write_bytes(data)


def load_substitution_agent(path: str | os.PathLike[str]) -> SubstitutionAgent:
    """Reads a checkpoint; nothing that is in it is executed.

    Raises:
        FileNotFoundError: there is none.
        CheckpointError: it is damaged, of another kind, or its features are not those
            of this version of hloenv.
    """
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(os.fspath(path), framework="pt") as file:
            described = json.loads((file.metadata() or {})[_KEY])
            weights = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        if (described["kind"], described["format"]) != (_KIND, _FORMAT):
            raise ValueError(f"it holds {described['kind']!r}")
        if described["features"] != feature_names():
            raise ValueError(
                f"its features are not those of hloenv {__version__}; train it again"
            )
        config = SubstitutionConfig.from_dict(described["config"])
        network = network_of(config)
        network.load_state_dict(weights)
        if not all(bool(each.isfinite().all()) for each in weights.values()):
            raise ValueError("a weight is not finite")
        network.eval()
        return SubstitutionAgent(network, config, dict(described["notes"]))
    except FileNotFoundError:
        raise
    except (
        *(SafetensorError, HloEnvError, LookupError, OSError),
        *(RuntimeError, TypeError, ValueError),
    ) as error:
        text = str(error).strip().partition("\n")[0]
        raise CheckpointError(
            f"{path} is no checkpoint of hloenv train substitution: {text}"
        ) from None


def network_of(config: SubstitutionConfig) -> nn.Module:
    """A new network of a configuration."""
    if config.agent == "xrlflow":
        return XRLflowNetwork(config.max_candidates)
    return RewriteNetwork(config.width, config.rounds)


def play(
    env: SubstitutionEnv, choose: Callable[[Any], int], estimator: Estimator
) -> Substituted:
    """The cheapest module of one episode.

    Args:
        env: of one module.
        choose: from an observation to an action.
        estimator: of the cost of a module.

    Raises:
        ArgumentError: the module cannot be estimated.
        HloEnvError: a pass fails on the module.
    """
    started = time.perf_counter()
    observation, _ = env.reset()
    first = best = env.module
    cost = start_cost = _seconds(estimator, first)
    if not math.isfinite(cost):
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
            num_failed += not math.isfinite(seconds)
            if seconds < cost:
                best, cost, best_path = env.module, seconds, tuple(path)
    return Substituted(
        module=best,
        cost=cost,
        start_cost=start_cost,
        path=best_path,
        num_steps=steps,
        num_costs=len(path) + 1,
        num_failed=num_failed,
        seconds=time.perf_counter() - started,
        is_complete=not env.error,
    )


def _seconds(estimator: Estimator, module: HloModule) -> float:
    (estimate,) = estimator.estimate_many([module])
    return estimate.seconds if estimate.is_ok else math.inf
