# SPDX-License-Identifier: Apache-2.0
"""The algorithms, by name: classes of Stable-Baselines3 and sb3-contrib."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from .._optional import needed_by
from .._registry import Registry, load_attribute
from ..errors import ArgumentError
from .tensorboard import without_tensorflow

# Arguments of the classes that `hloenv.learn.training` sets.
_RESERVED = frozenset(
    {
        *("self", "policy", "env", "seed", "device", "policy_kwargs"),
        *("tensorboard_log", "verbose", "_init_setup_model"),
    }
)


@dataclass(frozen=True)
class Algorithm:
    """One algorithm.

    Attributes:
        location: of its class, "module:attribute".
        has_critic: whether it has a value function of its own; else it has a replay
            buffer.
        defaults: arguments that differ from the library's.
    """

    location: str
    has_critic: bool = True
    defaults: Mapping[str, Any] = field(default_factory=dict)

    def arguments(self) -> tuple[str, ...]:
        """What a configuration may set: the class's arguments but for hloenv's own."""
        names = inspect.signature(self.load().__init__).parameters
        return tuple(name for name in names if name not in _RESERVED)

    def load(self) -> Any:
        """The class.

        Raises:
            ImportError: Stable-Baselines3 or sb3-contrib is not installed.
        """
        # Stable-Baselines3 imports TensorBoard.
        with without_tensorflow(), needed_by("an agent", "Stable-Baselines3", "rl"):
            return load_attribute(self.location)


_REGISTRY: Registry[Algorithm] = Registry("algorithm", "algorithms", ArgumentError)


def register_algorithm(name: str, summary: str, algorithm: Algorithm) -> None:
    """Registers an algorithm with the interface of Stable-Baselines3's.

    Raises:
        ValueError: the name is taken.
    """
    _REGISTRY.add(name, summary, algorithm)


def get_algorithm(name: str) -> Algorithm:
    """The algorithm of a name.

    Raises:
        ArgumentError: no algorithm has this name.
    """
    return _REGISTRY.find(name)[0]


def list_algorithms() -> dict[str, str]:
    """Names and summaries of all algorithms."""
    return _REGISTRY.summaries()


_ROLLOUT = {"n_steps": 128, "gamma": 0.99}
_PPO = _ROLLOUT | {
    "batch_size": 256,
    "n_epochs": 6,
    "ent_coef": 0.01,
    "target_kl": 0.05,
}
_DQN = {
    "buffer_size": 50_000,
    "learning_starts": 2_000,
    "train_freq": 4,
    "target_update_interval": 1_000,
    "exploration_fraction": 0.4,
}

register_algorithm(
    "dqn",
    "Deep Q-learning: off policy, with a replay buffer.",
    Algorithm("stable_baselines3:DQN", has_critic=False, defaults=_DQN),
)
register_algorithm(
    "a2c",
    "Advantage actor-critic.",
    Algorithm("stable_baselines3:A2C", defaults={"ent_coef": 0.01}),
)
register_algorithm(
    "ppo",
    "Proximal policy optimization.",
    Algorithm("stable_baselines3:PPO", defaults=_PPO),
)
register_algorithm(
    "trpo",
    "Trust region policy optimization.",
    Algorithm("sb3_contrib:TRPO", defaults=_ROLLOUT | {"batch_size": 256}),
)
register_algorithm(
    "maskable-ppo",
    "Proximal policy optimization without the passes known to change nothing.",
    Algorithm("sb3_contrib:MaskablePPO", defaults=_PPO),
)
