# SPDX-License-Identifier: Apache-2.0
"""Proximal policy optimization where each observation has its own actions.

For environments whose observations are graphs of any size, with *groups* of
*candidates*, of which one of each group is chosen. A single group is the usual action:
one of many candidates, of which one may stand for No-Op. This file knows neither the
graphs nor the environment:

* A network is a `torch.nn.Module` whose call takes a list of B observations, which may
  be anything, and returns `Scores` (`scores.py`): a score for each candidate, its
  group, the observation of each group, and the value of each observation. A candidate
  that must not be chosen has the score -inf; an observation may have no group.
* Environments come several at a time, as `hloenv.envs.GraphVectorEnv`: `num_envs`,
  `reset(seed=)` gives (observations, infos) and `step(actions)` gives (observations,
  rewards, terminated, truncated, infos), all lists of `num_envs`. An episode that ends
  is followed by the next one, and "final_obs" in its info is its last
  observation. An action is the position of the chosen candidate in each group:
  [groups] int64, or an int where `scalar_actions` is on and there is one group.

    ppo = GraphPPO(network, envs, PPOConfig(learning_rate=5e-4), seed=0)
    ppo.train(100_000, report=print)

The losses are those of Schulman et al. (2017). A decision of each group has its own
ratio to the old policy, clipped by itself, with the advantage of its step; an
observation weighs as much as any other, however many groups it has.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from .ppo_config import PPOConfig as PPOConfig
from .scores import Decisions, TrainingError

# Episodes over which the mean return is reported.
_EPISODES = 100
# Largest normalized reward.
_MAX_REWARD = 10.0
# Smallest deviation of advantages, of values that are about 1: where nothing is to be
# gained, the errors of the values are no reason to change the policy.
_MIN_DEVIATION = 0.05


class VectorEnv(Protocol):
    """Several environments; see the head of this file."""

    num_envs: int

    def reset(self, *, seed: int | None = None) -> tuple[list[Any], list[Any]]:
        """First observations and infos."""

    def step(self, actions: Sequence[Any]) -> tuple[Any, Any, Any, Any, Any]:
        """Observations, rewards, terminated, truncated, infos."""


@dataclass(frozen=True)
class Update:
    """One update of the networks.

    Attributes:
        step: steps of all environments so far.
        episode_return: mean over the last 100 episodes; nan before the first has ended.
        entropy: of a decision, in nats.
        policy_loss, value_loss: means over the minibatches.
        approx_kl: divergence of the last policy from the one that acted, in nats.
        clip_fraction: share of the decisions whose ratio was clipped.
        explained_variance: of the returns by the values before the update.
        bad_rewards: rewards of the run that were not finite, which count as 0.
        seconds: of the update and of the steps before it.
    """

    step: int
    episode_return: float
    entropy: float
    policy_loss: float
    value_loss: float
    approx_kl: float
    clip_fraction: float
    explained_variance: float
    bad_rewards: int
    seconds: float


@dataclass
class _Step:
    """One step of one environment."""

    observation: Any
    chosen: Tensor  # [groups]
    log_prob: Tensor  # [groups]
    value: float
    advantage: float = 0.0


class GraphPPO:
    """The algorithm, its networks and its environments.

    Attributes:
        network, optimizer: what learns, and how.
        generator: of all random numbers but those of the environments.
        step: steps of all environments so far.
    """

    def __init__(
        self,
        network: nn.Module,
        envs: VectorEnv,
        config: PPOConfig | None = None,
        *,
        seed: int = 0,
        scalar_actions: bool = False,
        device: str | torch.device = "cpu",
    ) -> None:
        """Begins; the environments are reset by the first step.

        Args:
            network: from a list of observations to `Scores`.
            envs: several environments.
            config: settings.
            seed: of the drawn actions, the minibatches and the episodes.
            scalar_actions: whether an action is an int, not an array.
            device: of the network.
        """
        self.network = network.to(device)
        self.config = config or PPOConfig()
        self.step = 0
        self._envs = envs
        self._seed = seed
        self._scalar = scalar_actions
        self._device = torch.device(device)
        self.generator = torch.Generator().manual_seed(seed)
        self.optimizer = torch.optim.Adam(
            network.parameters(), lr=self.config.learning_rate, eps=1e-5
        )
        self._observations: list[Any] | None = None
        self._running = np.zeros(envs.num_envs)
        self._returns: deque[float] = deque(maxlen=_EPISODES)
        # Discounted, of the running episodes, and the moments of all of them.
        self._discounted = np.zeros(envs.num_envs)
        self.moments = Moments()
        self._bad_rewards = 0

    def train(
        self, steps: int, report: Callable[[Update], None] = lambda _: None
    ) -> None:
        """Learns until the environments have made `steps` steps in all.

        Args:
            steps: those before a resume included.
            report: called after each update.

        Raises:
            TrainingError: the network has no finite output any more.
        """
        while self.step < steps:
            started = time.monotonic()
            if self.config.anneal:
                left = max(1 - self.step / steps, 0.0)
                self.optimizer.param_groups[0]["lr"] = self.config.learning_rate * left
            report(self.update(self.collect(), started))

    # --- acting

    @torch.no_grad()
    def collect(self) -> list[_Step]:
        """Makes `num_steps` steps in each environment, with their advantages."""
        num_envs, config = self._envs.num_envs, self.config
        if self._observations is None:
            seed = self._seed + self.step  # not the same episodes after a resume
            self._observations, _ = self._envs.reset(seed=seed)
        self.network.eval()
        steps: list[list[_Step]] = []
        rewards = np.zeros((config.num_steps, num_envs))
        is_last = np.zeros((config.num_steps, num_envs), np.bool_)
        expected = np.zeros((config.num_steps, num_envs))
        for number in range(config.num_steps):
            row = self._act(self._observations)
            steps.append(row)
            answers = self._envs.step([self._action(each.chosen) for each in row])
            self._observations, reward, terminated, truncated, infos = answers
            rewards[number] = self._checked(np.asarray(reward, np.float64))
            is_last[number] = np.asarray(terminated) | np.asarray(truncated)
            self._count(rewards[number], is_last[number])
            self._measure(rewards[number], is_last[number])
            cut = np.flatnonzero(np.asarray(truncated) & ~np.asarray(terminated))
            if config.bootstraps and len(cut):
                finals = [infos[i]["final_obs"] for i in cut]
                values = self.network(finals).values.cpu().numpy()
                expected[number, cut] = config.gamma * values
            self.step += num_envs
        if config.normalize_rewards:
            limits = -_MAX_REWARD, _MAX_REWARD
            rewards = np.clip(rewards / self.moments.deviation, *limits)
        last = self.network(self._observations).values.cpu().numpy()
        values = np.array([[each.value for each in row] for row in steps])
        advantages = advantages_of(
            rewards + expected, values, last, is_last, config.gamma, config.gae_lambda
        )
        for row, each in zip(steps, advantages, strict=True):
            for made, advantage in zip(row, each, strict=True):
                made.advantage = float(advantage)
        return [each for row in steps for each in row]

    def _act(self, observations: list[Any]) -> list[_Step]:
        scores = self.network(observations)
        decisions = Decisions(scores)
        chosen = decisions.sample(self.generator)
        count = len(observations)
        log_probs = decisions.split(decisions.log_prob(chosen).cpu(), count)
        values = scores.values.tolist()
        split = decisions.split(chosen.cpu(), count)
        return list(map(_Step, observations, split, log_probs, values))

    def _action(self, chosen: Tensor) -> Any:
        return int(chosen[0]) if self._scalar else chosen.numpy()

    def _checked(self, rewards: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        is_bad = ~np.isfinite(rewards)
        self._bad_rewards += int(is_bad.sum())
        return np.where(is_bad, 0.0, rewards)

    def _count(
        self, rewards: npt.NDArray[np.float64], is_last: npt.NDArray[np.bool_]
    ) -> None:
        self._running += rewards
        self._returns.extend(self._running[is_last].tolist())
        self._running[is_last] = 0

    def _measure(
        self, rewards: npt.NDArray[np.float64], is_last: npt.NDArray[np.bool_]
    ) -> None:
        self._discounted = self.config.gamma * self._discounted + rewards
        self.moments.add(self._discounted)
        self._discounted[is_last] = 0

    # --- learning

    def update(self, batch: list[_Step], started: float | None = None) -> Update:
        """Changes the network by the steps of `collect`.

        Raises:
            TrainingError: the network has no finite output any more.
        """
        started = time.monotonic() if started is None else started
        self.network.train()
        logged: list[dict[str, float]] = []
        for _ in range(self.config.num_epochs):
            logged += self._epoch(batch)
            limit = self.config.target_kl
            if limit and logged[-1]["approx_kl"] > limit:
                break
        values = np.array([each.value for each in batch])
        returns = values + np.array([each.advantage for each in batch])
        spread = returns.var()
        explained = 1 - (returns - values).var() / spread if spread > 0 else math.nan
        means = {key: float(np.mean([row[key] for row in logged])) for key in logged[0]}
        return Update(
            step=self.step,
            episode_return=float(np.mean(self._returns)) if self._returns else math.nan,
            explained_variance=float(explained),
            bad_rewards=self._bad_rewards,
            seconds=time.monotonic() - started,
            **(means | {"approx_kl": logged[-1]["approx_kl"]}),
        )

    def _epoch(self, batch: list[_Step]) -> Iterator[dict[str, float]]:
        order = torch.randperm(len(batch), generator=self.generator).tolist()
        count = math.ceil(len(order) / self.config.minibatch_size)
        for part in np.array_split(order, count):  # none has a single step
            loss, row = self._loss([batch[i] for i in part])
            if not math.isfinite(row["policy_loss"] + row["value_loss"]):
                raise TrainingError("a loss is not finite; lower the learning_rate")
            self.optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            largest = self.config.max_grad_norm
            nn.utils.clip_grad_norm_(self.network.parameters(), largest)
            self.optimizer.step()
            yield row

    def _loss(self, steps: list[_Step]) -> tuple[Tensor, dict[str, float]]:
        config = self.config
        scores = self.network([each.observation for each in steps])
        decisions, values = Decisions(scores), scores.values

        def as_tensor(numbers: list[float]) -> Tensor:
            return torch.tensor(numbers, dtype=values.dtype, device=self._device)

        advantages = as_tensor([each.advantage for each in steps])
        old_values = as_tensor([each.value for each in steps])
        returns = advantages + old_values
        if config.normalize_advantages and len(steps) > 1:
            advantages = advantages - advantages.mean()
            least = _MIN_DEVIATION if config.normalize_rewards else 1e-8
            advantages = advantages / advantages.std().clamp(min=least)
        chosen = torch.cat([each.chosen for each in steps]).to(self._device)
        old = torch.cat([each.log_prob for each in steps]).to(self._device)
        log_ratio = decisions.log_prob(chosen) - old
        ratio = log_ratio.exp()
        worth = advantages[decisions.owners]
        clipped = ratio.clamp(1 - config.clip, 1 + config.clip)
        policy_loss = decisions.per_observation(
            -torch.minimum(worth * ratio, worth * clipped)
        )
        value_loss = (values - returns).square()
        if config.value_clip:
            moved = (values - old_values).clamp(-config.value_clip, config.value_clip)
            kept = (old_values + moved - returns).square()
            value_loss = torch.maximum(value_loss, kept)
        value_loss = 0.5 * value_loss.mean()
        entropy = decisions.per_observation(decisions.entropy())
        loss = policy_loss + config.value_weight * value_loss - config.entropy * entropy
        with torch.no_grad():
            divergence = decisions.per_observation(ratio - 1 - log_ratio)
            is_clipped = ((ratio - 1).abs() > config.clip).to(values)
            clip_fraction = decisions.per_observation(is_clipped)
        return loss, {
            "policy_loss": policy_loss.item(),
            "value_loss": value_loss.item(),
            "entropy": entropy.item(),
            "approx_kl": divergence.item(),
            "clip_fraction": clip_fraction.item(),
        }


@dataclass
class Moments:
    """Count, mean and variance of numbers that come in parts (Chan et al., 1983)."""

    count: float = 0.0
    mean: float = 0.0
    variance: float = 0.0

    def add(self, numbers: npt.NDArray[np.float64]) -> None:
        """Adds a part."""
        count = self.count + len(numbers)
        step = float(numbers.mean()) - self.mean
        sums = self.variance * self.count + float(numbers.var()) * len(numbers)
        between = step**2 * self.count * len(numbers) / count
        self.mean += step * len(numbers) / count
        self.variance, self.count = (sums + between) / count, count

    @property
    def deviation(self) -> float:
        """The standard deviation; 1 where all numbers are equal."""
        deviation = math.sqrt(self.variance)
        # Equal numbers differ by rounding.
        return deviation if deviation > 1e-9 * abs(self.mean) else 1.0


def advantages_of(
    rewards: npt.NDArray[np.float64],
    values: npt.NDArray[np.float64],
    last: npt.NDArray[np.float64],
    is_last: npt.NDArray[np.bool_],
    gamma: float,
    gae_lambda: float,
) -> npt.NDArray[np.float64]:
    """[T, N] generalized advantage estimates of T steps of N environments.

    Args:
        rewards: [T, N] of the steps.
        values: [T, N] of the observations before them.
        last: [N] of the observations after the last step.
        is_last: [T, N] whether the episode ended with the step.
        gamma: discount.
        gae_lambda: weight of longer returns.
    """
    advantages = np.zeros_like(rewards)
    following, carried = last, np.zeros_like(last)
    for number in range(len(rewards) - 1, -1, -1):
        goes_on = ~is_last[number]
        delta = rewards[number] + gamma * following * goes_on - values[number]
        carried = delta + gamma * gae_lambda * goes_on * carried
        advantages[number] = carried
        following = values[number]
    return advantages
