# SPDX-License-Identifier: Apache-2.0
"""Agents that were trained: their checkpoints, and what they do on a module.

A checkpoint is one safetensors file: the weights of the networks, and JSON with the
configuration. Reading it executes nothing that is in it.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .._checkpoints import (
    check_finite,
    damage_as,
    read_checkpoint,
    write_checkpoint,
)
from .._version import __version__
from ..dataset.benchmarks import find_benchmarks
from ..envs.base import CompilerEnv
from ..errors import ArgumentError, HloEnvError
from ..graph.hlo_graph import opcodes
from ..hlo.module import HloModule
from .algorithms import get_algorithm
from .baselines import BestOrder, Score
from .config import TrainConfig

_FORMAT = 1
_KEY = "hloenv"
_MAKER = "hloenv train pass-order"
# Of policies without probabilities: share of actions that are drawn.
_EXPLORATION = 0.1
# Actions and observations are the same for all.
_ANY_BENCHMARK = "hloenv://generated/0"
DEFAULT_CHECKPOINT = Path(__file__).with_name("pass_order.safetensors")


class CheckpointError(HloEnvError, ValueError):
    """A checkpoint cannot be read, or was made for another environment."""


@dataclass(frozen=True)
class Agent:
    """A policy over actions.

    Attributes:
        config: with which it was trained.
        policy: of Stable-Baselines3.
        notes: what the checkpoint says of its training: steps, score, version.
    """

    config: TrainConfig
    policy: Any
    notes: dict[str, Any]

    def act(
        self, env: CompilerEnv, observation: Any, *, deterministic: bool = True
    ) -> int:
        """The action for an observation, the likeliest or a drawn one.

        None that the environment knows to change nothing, whether or not the algorithm
        takes masks: it would be the likeliest again, to the end of the episode.
        Policies without probabilities draw any of the others in one of ten steps.
        """
        import torch

        allowed = torch.from_numpy(env.action_masks())
        with torch.no_grad():
            scores = self._scores(observation).masked_fill(~allowed, -torch.inf)
        if deterministic:
            return int(scores.argmax())
        if not get_algorithm(self.config.algorithm).has_critic:
            if torch.rand(()) >= _EXPLORATION:
                return int(scores.argmax())
            scores = torch.where(allowed, 0.0, -torch.inf)
        return int(torch.multinomial(scores.softmax(0), 1))

    def _scores(self, observation: Any) -> Any:
        """[actions] logits, or expected returns of a policy without probabilities."""
        self.policy.set_training_mode(False)
        batch, _ = self.policy.obs_to_tensor(observation)
        if hasattr(self.policy, "q_net"):
            return self.policy.q_net(batch)[0].cpu()
        return self.policy.get_distribution(batch).distribution.logits[0].cpu()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes a checkpoint; the file is replaced once it is complete.

        Raises:
            OSError: it cannot be written.
        """
        env = self.config.make_env(_ANY_BENCHMARK)
        described = {
            **self.notes,
            "format": _FORMAT,
            "version": __version__,
            "config": self.config.to_dict(),
            "actions": [env.action_name(i) for i in range(env.num_actions)],
            "opcodes": list(opcodes()),
        }
        write_checkpoint(path, _KEY, described, self.policy.state_dict())


def load_agent(path: str | os.PathLike[str] = DEFAULT_CHECKPOINT) -> Agent:
    """Reads a checkpoint; by default, the one that hloenv ships.

    Raises:
        FileNotFoundError: there is none.
        CheckpointError: it is damaged, of a later version, or has other actions or
            opcodes than its environment has now.
    """
    with damage_as(CheckpointError, f"{path} is no checkpoint of an agent"):
        described, weights = read_checkpoint(path, _KEY, maker=_MAKER)
        if described["format"] != _FORMAT:
            raise CheckpointError(
                f"{path}: format {described['format']}, this version reads {_FORMAT}"
            )
        # Before there was any, none was imitated.
        config = TrainConfig.from_dict({"imitate": "", **described["config"]})
        env = config.make_env(_ANY_BENCHMARK)
        actions = [env.action_name(i) for i in range(env.num_actions)]
        if actions != described["actions"]:
            raise CheckpointError(
                f"{path}: its actions are not those of this version of hloenv: "
                f"{_difference(described['actions'], actions)}; train it again"
            )
        if described["opcodes"] != list(opcodes()):
            raise CheckpointError(
                f"{path}: it observes other opcodes than this version of hloenv has: "
                f"{_difference(described['opcodes'], list(opcodes()))}; train it again"
            )
        policy = make_policy(config, env)
        policy.load_state_dict(weights)
        check_finite(weights)
    known = ("format", "config", "opcodes")
    notes = {k: v for k, v in described.items() if k not in known}
    return Agent(config, policy, notes)


def policy_arguments(config: TrainConfig) -> dict[str, Any]:
    """What Stable-Baselines3 needs to make the networks: `policy_kwargs`."""
    from .features import HloFeatures

    arguments: dict[str, Any] = {"net_arch": list(config.network)}
    if config.critic_observation:
        own = set(config.observations.split("+")) - set(config.observation.split("+"))
        return arguments | {"critic_only": tuple(sorted(own))}
    return arguments | {"features_extractor_class": HloFeatures}


def policy_class(config: TrainConfig, env: CompilerEnv) -> Any:
    """The class of the networks."""
    from gymnasium import spaces

    algorithm = get_algorithm(config.algorithm).load()
    is_dict = isinstance(env.observation_space, spaces.Dict)
    made = algorithm.policy_aliases["MultiInputPolicy" if is_dict else "MlpPolicy"]
    if config.critic_observation:
        from .features import asymmetric

        return asymmetric(made)
    return made


def make_policy(config: TrainConfig, env: CompilerEnv) -> Any:
    """New networks, on the CPU."""
    policy = policy_class(config, env)(
        env.observation_space,
        env.action_space,
        lambda _: 0.0,
        **policy_arguments(config),
    )
    policy.set_training_mode(False)
    return policy


def order_passes(
    agent: Agent,
    module: HloModule | str,
    *,
    budget: int | None = 450,
    max_episodes: int | None = None,
    seed: int = 0,
    score: Score | None = None,
    env: CompilerEnv | None = None,
) -> BestOrder:
    """The best module of several episodes of an agent.

    The first episode takes the likeliest actions, the others draw them.

    Args:
        agent: which passes to run.
        module: the start, or the URI of one benchmark.
        budget: passes that may run; None for no limit. What an agent observes may run
            passes, too: "lookahead" all of them on each module that it has not seen.
        max_episodes: that may be played; by default as many as the budget allows.
        seed: of the drawn actions.
        score: what is to be small; by default what the agent's reward decreases.
        env: with a memo of earlier results; it is reset. By default a new one.

    Raises:
        ArgumentError: no such benchmark, or several; `budget` or `max_episodes` is not
            positive, or neither is a limit.
    """
    import torch

    for name, value in (("budget", budget), ("max_episodes", max_episodes)):
        if value is not None and value < 1:
            raise ArgumentError(f"{name} must be an integer >= 1, got {value}")
    if budget is None and max_episodes is None:
        raise ArgumentError("give budget or max_episodes, or the search never ends")
    (module, *others) = (
        [module]
        if isinstance(module, HloModule)
        else [each.uri for each in find_benchmarks(module)]
    )
    if others:
        raise ArgumentError(
            f"{len(others) + 1} modules have this URI; give one of theirs: {module}"
        )
    own = env or agent.config.make_env(module)
    if env is None:
        own.skip_rewards()
    try:
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(seed)
            limit = math.inf if budget is None else budget
            return _play(agent, own, module, limit, max_episodes, score)
    finally:
        if env is None:
            own.close()


def _play(
    agent: Agent,
    env: CompilerEnv,
    module: HloModule | str,
    budget: float,
    max_episodes: int | None,
    score: Score | None,
) -> BestOrder:
    looks_ahead = "lookahead" in agent.config.observations.split("+")
    seen: set[str] = set()
    num_steps = num_episodes = 0
    found: BestOrder | None = None
    while num_steps < budget and num_episodes != max_episodes:
        observation, _ = env.reset(options={"benchmark": module})
        value = score or (lambda node: env.reward_space.value(env, node))
        found = found or BestOrder(env.start, (), value(env.start))
        is_over, passes = False, list[int]()
        while not is_over and num_steps < budget:
            if looks_ahead and env.node.fingerprint not in seen:
                seen.add(env.node.fingerprint)
                num_steps += len(env.passes)
            action = agent.act(env, observation, deterministic=num_episodes == 0)
            observation, _, terminated, truncated, info = env.step(action)
            is_over = terminated or truncated
            num_steps += 1
            if info["changed"]:
                passes.append(action)
                found.offer(env.node, passes, value(env.node))
        num_episodes += 1
    assert found is not None
    found.num_steps = num_steps
    return found


def _difference(before: list[str], now: list[str]) -> str:
    gone = sorted(set(before) - set(now))
    new = sorted(set(now) - set(before))
    if not gone and not new:
        return "their order differs"
    return f"gone {', '.join(gone) or '-'}; new {', '.join(new) or '-'}"
