# SPDX-License-Identifier: Apache-2.0
"""Agents that imitate an order of passes."""

from __future__ import annotations

import dataclasses
import functools
from pathlib import Path

import numpy as np
import pytest

from envs.modules import small
from hloenv import HloModule
from hloenv.envs import PassOrderEnv
from hloenv.errors import ArgumentError, UnknownPassError
from hloenv.learn import Agent, TrainConfig, load_agent, order_passes, train, training
from hloenv.learn.demonstrations import demonstrate, order_of
from hloenv.learn.training import _Run

pytestmark = [
    pytest.mark.needs("stable_baselines3", "sb3_contrib", "safetensors"),
    pytest.mark.filterwarnings("ignore:.*mini-batch"),
]

FEW = ("cse", "algsimp", "dce", "call-inliner")
TRAIN = "hloenv://dataset/train?max_instructions=40"
TINY = TrainConfig(
    train=TRAIN,
    validation="hloenv://dataset/validation?max_instructions=40",
    passes=FEW,
    imitate="cse+algsimp+dce*",
    demonstrations=30,
    imitation_epochs=80,
    imitation_rate=3e-3,
    max_steps=6,
    steps=16,
    num_envs=2,
    network=(32,),
    max_validation=3,
    arguments={"n_steps": 8, "batch_size": 16, "n_epochs": 1},
)


@pytest.fixture
def file(tmp_path) -> str:
    path = tmp_path / "small.hlo"
    path.write_text(small().to_text())
    return f"hloenv://file/{path}"


def test_demonstrations_are_what_the_order_changes(file) -> None:
    env = PassOrderEnv(file, passes=FEW, reward="op_count_delta")
    shown = demonstrate(env, "call-inliner+cse+algsimp*", [file], gamma=0.5)
    env.reset()
    rewards = [env.step(FEW.index(name))[1] for name in ("cse", "algsimp")]
    # More may follow: the order runs to a fixed point.
    assert list(shown.actions[:2]) == [FEW.index("cse"), FEW.index("algsimp")]
    assert all(rewards)
    rest = shown.returns[2] if len(shown.returns) > 2 else 0.0
    assert shown.returns[1] == pytest.approx(rewards[1] + 0.5 * rest)
    assert shown.returns[0] == pytest.approx(rewards[0] + 0.5 * shown.returns[1])
    first, _ = env.reset()
    np.testing.assert_array_equal(shown.observations[0], first)


def test_orders_are_of_the_actions(file) -> None:
    env = PassOrderEnv(file, passes=("cse", "algsimp:is_layout_sensitive=true"))
    assert order_of(env, "cse") == ([0], 1)
    assert order_of(env, "algsimp:is_layout_sensitive=true+cse") == ([1, 0], 1)
    assert order_of(env, "cse*")[1] > 1
    with pytest.raises(ArgumentError, match="no action 'dce'"):
        order_of(env, "cse+dce")
    with pytest.raises(UnknownPassError):
        order_of(env, "cse+csee")
    with pytest.raises(ArgumentError, match="changes no module"):
        demonstrate(env, "cse", [], gamma=1.0)


def test_an_agent_takes_the_order_over(tmp_path) -> None:
    taught = train(TINY, tmp_path / "taught")
    plain = train(dataclasses.replace(TINY, imitate=""), tmp_path / "plain")
    assert _agreement(taught) > max(0.6, _agreement(plain))


def _agreement(agent: Agent) -> float:
    """Share of the steps of the order that the agent would take, too."""
    env = agent.config.make_env()
    uris = [each.uri for each in env.benchmarks[:30]]
    shown = demonstrate(env, TINY.imitate, uris, gamma=0.99)
    taken = [int(agent._scores(each).argmax()) for each in shown.observations]
    return float(np.mean(np.array(taken) == shown.actions))


def test_an_order_that_is_none_leaves_no_folder(tmp_path) -> None:
    config = dataclasses.replace(TINY, imitate="cse+logistic-expander")
    with pytest.raises(ArgumentError, match="no action 'logistic-expander'"):
        train(config, tmp_path / "run")
    assert not Path(tmp_path / "run" / "config.json").exists()


def test_demonstrations_that_are_too_large_leave_no_folder(tmp_path, monkeypatch):
    real = training.demonstrate
    small_room = functools.partial(real, max_bytes=1000)
    monkeypatch.setattr(training, "demonstrate", small_room)
    with pytest.raises(ArgumentError, match="demonstrations take more than 0 MiB"):
        train(TINY, tmp_path / "run")
    assert not Path(tmp_path / "run" / "config.json").exists()


def test_runs_of_other_seeds_have_other_episodes(tmp_path) -> None:
    """Stable-Baselines3 seeds its environments by consecutive numbers."""
    seeds = set()
    for seed in range(6):
        config = dataclasses.replace(TINY, seed=seed, imitate="")
        run = _Run(config, tmp_path / str(seed), lambda _: None, resume=False)
        for step in (0, 1024):
            first = run._seed(step)
            seeds |= set(range(first, first + 64))
        run.close()
    assert len(seeds) == 6 * 2 * 64


def test_several_modules_are_not_one(file) -> None:
    agent = load_agent()
    with pytest.raises(ArgumentError, match="modules have this URI"):
        order_passes(agent, "hloenv://dataset/test", max_episodes=1)
    found = order_passes(agent, file, max_episodes=1)
    assert found.node.op_count < HloModule.from_file(file[14:]).instruction_count
