# SPDX-License-Identifier: Apache-2.0
"""PPO over observations that have their own candidates."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
import torch

from hloenv.errors import ArgumentError
from hloenv.learn.graph_ppo import GraphPPO, Moments, PPOConfig, advantages_of
from hloenv.learn.scores import Decisions, Scores, TrainingError


def scores(groups, owners, logits, num=2):
    return Scores(
        torch.tensor(logits, dtype=torch.float32),
        torch.tensor(groups),
        torch.tensor(owners),
        torch.zeros(num),
    )


class Bandits:
    """Observations are lists of groups of numbers; the largest of each is right."""

    num_envs = 4

    def __init__(self, length=3, is_truncated=False):
        self.length = length
        self.is_truncated = is_truncated
        self.seeds = []

    def reset(self, *, seed=None):
        self.seeds.append(seed)
        self.rng = np.random.default_rng(seed)
        self.done = [0] * self.num_envs
        self.now = [self.draw() for _ in range(self.num_envs)]
        return list(self.now), [{}] * self.num_envs

    def draw(self):
        sizes = self.rng.integers(2, 6, size=self.rng.integers(1, 4))
        return [torch.tensor(self.rng.random(n), dtype=torch.float32) for n in sizes]

    def step(self, actions):
        rewards, last, infos = [], [], []
        for i, action in enumerate(actions):
            assert len(action) == len(self.now[i])
            right = [
                int(g.argmax()) == a for g, a in zip(self.now[i], action, strict=True)
            ]
            rewards.append(float(np.mean(right)))
            self.done[i] += 1
            ends = self.done[i] == self.length
            last.append(ends)
            self.now[i] = self.draw()
            infos.append({"final_obs": self.draw()} if ends else {})
            self.done[i] *= not ends
        none = [False] * self.num_envs
        ended = (none, last) if self.is_truncated else (last, none)
        return list(self.now), rewards, *ended, infos


class Net(torch.nn.Module):
    """Scores each number by itself."""

    def __init__(self, seed=0):
        super().__init__()
        torch.manual_seed(seed)
        self.score = torch.nn.Sequential(
            torch.nn.Linear(1, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1)
        )
        self.value = torch.nn.Parameter(torch.zeros(()))

    def forward(self, observations):
        sizes = [len(group) for each in observations for group in each]
        owners = [i for i, each in enumerate(observations) for _ in each]
        numbers = torch.cat([group for each in observations for group in each])
        return Scores(
            self.score(numbers[:, None])[:, 0],
            torch.repeat_interleave(torch.tensor(sizes)),
            torch.tensor(owners),
            self.value.expand(len(observations)),
        )


FAST = PPOConfig(num_steps=16, learning_rate=1e-2, minibatch_size=16, target_kl=0)


def test_the_agent_learns_what_is_right_in_groups_of_any_size() -> None:
    returns = []
    ppo = GraphPPO(Net(), Bandits(length=1), FAST, seed=1)
    ppo.train(800, lambda update: returns.append(update.episode_return))
    assert returns[0] < 0.5
    assert returns[-1] > 0.8


def test_the_same_seed_gives_the_same_weights() -> None:
    ends = []
    for seed in (3, 3, 4):
        ppo = GraphPPO(Net(), Bandits(), FAST, seed=seed)
        ppo.train(128)
        ends.append(torch.cat([p.flatten() for p in ppo.network.parameters()]))
    assert torch.equal(ends[0], ends[1])
    assert not torch.equal(ends[0], ends[2])


def test_truncated_episodes_are_worth_what_would_have_come() -> None:
    bootstrapping = dataclasses.replace(FAST, bootstraps=True)
    ppo = GraphPPO(Net(), Bandits(length=1, is_truncated=True), bootstrapping)
    with torch.no_grad():
        ppo.network.value.fill_(10.0)
    ended = GraphPPO(ppo.network, Bandits(length=1), bootstrapping)
    cut, whole = ppo.collect(), ended.collect()
    # Each step is an episode: reward - value, and gamma * 10 where it was cut.
    gaps = {
        round(a.advantage - b.advantage, 4) for a, b in zip(cut, whole, strict=True)
    }
    assert gaps == {9.9}


def test_a_limit_that_is_observed_ends_an_episode() -> None:
    ppo = GraphPPO(Net(), Bandits(length=1, is_truncated=True), FAST)
    with torch.no_grad():
        ppo.network.value.fill_(10.0)
    ended = GraphPPO(ppo.network, Bandits(length=1), FAST)
    advantages = [[each.advantage for each in ppo.collect()] for ppo in (ppo, ended)]
    assert advantages[0] == advantages[1]


def test_the_unit_of_the_rewards_does_not_matter() -> None:
    def trained(config: PPOConfig, factor: float) -> torch.Tensor:
        class Scaled(Bandits):
            def step(self, actions):
                observations, rewards, *others = super().step(actions)
                return observations, [factor * each for each in rewards], *others

        ppo = GraphPPO(Net(), Scaled(length=4), config, seed=1)
        ppo.train(192)
        return torch.cat([p.detach().flatten() for p in ppo.network.parameters()])

    one, large = (trained(FAST, factor) for factor in (1.0, 1000.0))
    assert torch.allclose(one, large, atol=1e-4)
    raw = dataclasses.replace(FAST, normalize_rewards=False)
    one, large = (trained(raw, factor) for factor in (1.0, 1000.0))
    assert not torch.allclose(one, large, atol=1e-2)


def test_moments_are_those_of_all_parts() -> None:
    rng = np.random.default_rng(0)
    moments, parts = Moments(), [rng.normal(3, 2, size) for size in (1, 5, 100)]
    assert moments.deviation == 1
    for part in parts:
        moments.add(part)
    numbers = np.concatenate(parts)
    assert moments.mean == pytest.approx(numbers.mean())
    assert moments.deviation == pytest.approx(numbers.std())


def test_equal_numbers_have_no_unit() -> None:
    moments = Moments()
    for size in (3, 7):
        moments.add(np.full(size, 0.1))
    assert moments.deviation == 1


def test_no_minibatch_has_a_single_step(monkeypatch) -> None:
    config = dataclasses.replace(FAST, num_steps=13, minibatch_size=17)
    ppo = GraphPPO(Net(), Bandits(), config)
    sizes = []
    loss = ppo._loss
    monkeypatch.setattr(
        ppo, "_loss", lambda steps: sizes.append(len(steps)) or loss(steps)
    )
    batch = ppo.collect()
    assert len(batch) % 17 == 1
    ppo.update(batch)
    assert min(sizes) > 1
    assert max(sizes) <= 17


def test_advantages_are_those_of_the_definition() -> None:
    rewards = np.array([[1.0], [0.0], [2.0]])
    values = np.array([[0.5], [0.25], [1.0]])
    is_last = np.array([[False], [True], [False]])
    found = advantages_of(rewards, values, np.array([4.0]), is_last, 0.5, 0.5)
    second = 0.0 - 0.25
    first = 1.0 + 0.5 * 0.25 - 0.5 + 0.25 * second
    third = 2.0 + 0.5 * 4.0 - 1.0
    assert found[:, 0] == pytest.approx([first, second, third])


def test_probabilities_are_those_of_each_group() -> None:
    made = scores([0, 0, 1, 1, 1], [0, 1], [0, 0, 1, -math.inf, 1])
    decisions = Decisions(made)
    assert decisions.log_probs.exp().tolist() == pytest.approx([0.5, 0.5, 0.5, 0, 0.5])
    assert decisions.entropy().tolist() == pytest.approx([math.log(2)] * 2)
    assert decisions.mode().tolist() == [0, 0]
    generator = torch.Generator().manual_seed(0)
    drawn = torch.stack([decisions.sample(generator) for _ in range(400)])
    assert set(drawn[:, 0].tolist()) == {0, 1}
    assert set(drawn[:, 1].tolist()) == {0, 2}  # 1 is masked
    assert 150 < int((drawn[:, 1] == 2).sum()) < 250


def test_masked_candidates_have_no_gradient() -> None:
    logits = torch.tensor([0.0, -math.inf, 1.0], requires_grad=True)
    zeros = torch.zeros(3, dtype=torch.int64)
    decisions = Decisions(Scores(logits, zeros, zeros[:1], torch.zeros(1)))
    (decisions.entropy() + decisions.log_prob(torch.tensor([2]))).sum().backward()
    assert torch.isfinite(logits.grad).all()
    assert logits.grad[1] == 0


def test_observations_weigh_the_same_however_many_groups_they_have() -> None:
    decisions = Decisions(scores([0, 1, 2, 3], [0, 0, 0, 1], [0.0] * 4))
    assert decisions.per_observation(torch.tensor([1.0, 1.0, 1.0, 5.0])) == 3.0
    assert [len(e) for e in decisions.split(torch.zeros(4), 3)] == [3, 1, 0]


@pytest.mark.parametrize("logits", [[0, math.nan], [-math.inf, -math.inf]])
def test_a_group_without_a_finite_score_is_an_error(logits) -> None:
    with pytest.raises(TrainingError, match="no finite score"):
        Decisions(scores([0, 0], [0], logits, num=1))


def test_rewards_that_are_not_finite_count_as_0() -> None:
    class Bad(Bandits):
        def step(self, actions):
            observations, rewards, *rest = super().step(actions)
            return observations, [math.nan, math.inf, *rewards[2:]], *rest

    updates = []
    ppo = GraphPPO(Net(), Bad(), FAST)
    ppo.train(64, updates.append)
    assert updates[-1].bad_rewards == 32
    assert math.isfinite(updates[-1].episode_return)


def test_an_update_ends_early_where_the_policy_has_changed_enough() -> None:
    counts = []
    for target_kl in (0.0, 1e-9):
        config = PPOConfig(num_steps=8, num_epochs=5, target_kl=target_kl)
        ppo = GraphPPO(Net(), Bandits(), config)
        ppo.train(32)
        counts.append(int(next(iter(ppo.optimizer.state.values()))["step"]))
    assert counts == [5, 1] or counts == [5, 2]


@pytest.mark.parametrize(
    "values",
    [
        {"gamma": 1.5},
        {"clip": 0.0},
        {"learning_rate": math.nan},
        {"num_steps": 0},
        {"num_steps": 8.5},
        {"minibatch_size": 0.5},
        {"num_epochs": True},
        {"entropy": -1.0},
    ],
)
def test_settings_out_of_range_are_refused(values) -> None:
    with pytest.raises(ArgumentError, match=next(iter(values))):
        PPOConfig(**values)
