# SPDX-License-Identifier: Apache-2.0
"""Wrappers, rewards, observations and vectors of environments."""

from __future__ import annotations

import itertools
import pickle

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import hloenv.envs
from envs.modules import SMALL, small
from hloenv import HloGraph, HloModule
from hloenv.envs import (
    GraphVectorEnv,
    IterateBenchmarks,
    LogEpisodes,
    PassOrderEnv,
    PotentialShaping,
    ValidateEpisodes,
    cost_potential,
)
from hloenv.errors import ArgumentError

FEW = ["cse", "algsimp", "dce"]
STOP = len(FEW)


def returns(
    env: gymnasium.Env, gamma: float, horizon: int
) -> dict[tuple[int, ...], float]:
    """Discounted return of each sequence of actions that ends with a stop."""
    result = {}
    for length in range(horizon):
        for actions in itertools.product(range(STOP), repeat=length):
            env.reset(seed=0)
            rewards = [float(env.step(each)[1]) for each in (*actions, STOP)]
            result[actions] = sum(gamma**t * r for t, r in enumerate(rewards))
    return result


@pytest.mark.parametrize("text", [SMALL, SMALL.replace("constant(1)", "constant(2)")])
@pytest.mark.parametrize("gamma", [1.0, 0.9])
def test_shaping_keeps_the_optimal_policies(text, gamma) -> None:
    module = HloModule.from_text(text)
    plain = returns(PassOrderEnv(module, passes=FEW), gamma, 4)
    env = PotentialShaping(PassOrderEnv(module, passes=FEW), gamma=gamma)
    shaped = returns(env, gamma, 4)
    start = cost_potential(env.unwrapped)
    assert start < 0
    for actions, value in plain.items():
        # Every return moves by the start's potential, so no order of policies changes.
        assert shaped[actions] == pytest.approx(value + 1.0)
    best = max(plain.values())
    optimal = {key for key, value in plain.items() if value == pytest.approx(best)}
    most = max(shaped.values())
    assert optimal == {
        key for key, value in shaped.items() if value == pytest.approx(most)
    }
    assert 0 < len(optimal) < len(plain)


def test_shaping_with_any_potential_sums_to_a_difference() -> None:
    env = PotentialShaping(
        PassOrderEnv(small(), passes=FEW),
        lambda env: -env.node.op_count / 10,
        gamma=1.0,
    )
    env.reset()
    total = plain = 0.0
    for action in (1, 0, 2):
        _, reward, *_, info = env.step(action)
        total += reward
        plain += info["unshaped_reward"]
    removed = env.unwrapped.start.op_count - env.unwrapped.node.op_count
    assert total == pytest.approx(plain + removed / 10)


def test_benchmarks_in_turns() -> None:
    uri = "hloenv://dataset/test/flax?max_instructions=60"
    env = IterateBenchmarks(PassOrderEnv(uri))
    expected = [each.uri for each in hloenv.envs.find_benchmarks(uri)]
    assert len(expected) > 1
    seen = [env.reset()[1]["benchmark"] for _ in range(2 * len(expected))]
    assert seen == expected * 2
    assert env.reset(seed=3)[1]["benchmark"] == expected[0]
    assert (
        env.reset(options={"benchmark": expected[-1]})[1]["benchmark"] == expected[-1]
    )


def test_episodes_are_logged_when_they_end(tmp_path) -> None:
    path = tmp_path / "episodes.csv"
    env = LogEpisodes(PassOrderEnv(small(), passes=FEW), path)
    for _ in range(2):
        env.reset()
        for action in (1, 0, STOP):
            env.step(action)
    states = hloenv.envs.read_csv(path)
    assert [each.passes for each in states] == [("algsimp", "cse", "stop")] * 2
    assert states[0].reward > 0


@pytest.mark.needs("pyarrow")
def test_episodes_are_logged_to_parquet(tmp_path) -> None:
    from pyarrow import parquet

    path = tmp_path / "episodes.parquet"
    for _ in range(2):  # a second process adds to what there is
        env = LogEpisodes(PassOrderEnv(small(), passes=FEW), path, every=2)
        for length in range(3):
            env.reset()
            for action in [*range(length), STOP]:
                env.step(action)
        env.close()
    rows = parquet.read_table(path).to_pylist()
    assert len(list(path.iterdir())) == 4
    assert [len(row["passes"]) for row in rows] == [1, 2, 3, 1, 2, 3]
    assert rows[1]["passes"] == ["cse", "stop"]
    assert rows[1]["reward"] > 0


@pytest.mark.compile
def test_episodes_are_validated_when_they_end() -> None:
    env = ValidateEpisodes(PassOrderEnv(small(), passes=FEW))
    env.reset()
    assert "validation" not in env.step(1)[4]
    assert env.step(STOP)[4]["validation"].is_valid


def test_an_action_takes_the_last_step_back(tmp_path) -> None:
    inner = PassOrderEnv(small(), passes=FEW, max_steps=6, has_undo=True)
    env = LogEpisodes(PotentialShaping(inner, gamma=1.0), tmp_path / "episodes.csv")
    undo = STOP + 1
    assert inner.action_space.n == inner.num_actions == undo + 1
    _, info = env.reset()
    assert len(info["action_mask"]) == undo + 1
    assert not info["action_mask"][undo]
    start = inner.node
    _, reward, *_ = env.step(1)
    _, back, _, _, info = env.step(undo)
    assert back == pytest.approx(-reward)
    assert reward != 0
    assert inner.node is start
    assert not info["action_mask"][undo]
    assert not env.step(undo)[4]["changed"]  # nothing to take back
    env.step(1)
    twin = pickle.loads(pickle.dumps(inner))
    assert twin.state == inner.state
    for each in (inner, twin):
        each.step(undo)
        assert each.node.fingerprint == start.fingerprint
    assert env.step(1)[3]
    (state,) = hloenv.envs.read_csv(tmp_path / "episodes.csv")
    assert state.passes == ("algsimp", "undo", "undo", "algsimp", "undo", "algsimp")
    inner.apply(state)
    assert inner._passes_of_path() == [inner.passes[1]]


def test_wrappers_are_for_these_environments() -> None:
    with pytest.raises(ArgumentError, match=r"hloenv\.envs"):
        IterateBenchmarks(gymnasium.make("CartPole-v1"))


# Those that need torch have a mark; those that measure are not deterministic.
_REWARDS = set(hloenv.envs.list_rewards()) - {"kernel_cache", "runtime"}


@pytest.mark.parametrize(
    "name",
    [
        *sorted(_REWARDS),
        pytest.param(
            "estimate:learned",
            marks=[pytest.mark.learn, pytest.mark.needs("safetensors")],
        ),
    ],
)
def test_deterministic_rewards_lie_in_their_range(name) -> None:
    env = PassOrderEnv(small(), passes=FEW, reward=name)
    space = env.reward_space
    assert space.deterministic
    assert space.unit
    env.reset()
    rewards = [env.step(action)[1] for action in (1, 0, 2, 0)]
    assert all(space.range[0] <= each <= space.range[1] for each in rewards)
    # XLA's own simplification makes one module of them all before an estimate.
    assert any(rewards) == (name not in ("roofline", "estimate:learned"))
    if name != "op_count":
        assert rewards[-1] == 0  # nothing changed
    env.reset()
    assert [env.step(action)[1] for action in (1, 0, 2, 0)] == rewards


@pytest.mark.compile
def test_the_run_time_is_rewarded_at_the_end() -> None:
    env = PassOrderEnv(small(), passes=FEW, reward="runtime")
    env.reset()
    assert env.step(1)[1] == 0
    _, reward, _, _, info = env.step(STOP)
    low, high = info["runtime"]["speedup_interval"]
    assert low <= info["runtime"]["speedup"] <= high
    assert reward == pytest.approx(np.log(info["runtime"]["speedup"]))


@pytest.mark.compile
def test_after_a_reward_at_the_end_nothing_is_to_be_expected() -> None:
    env = PassOrderEnv(small(), passes=FEW, reward="runtime", max_steps=1)
    env.reset()
    assert env.step(1)[2:4] == (True, False)


@pytest.mark.compile
def test_measured_kernels_as_reward(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("HLOENV_STORE", str(tmp_path / "store"))
    env = PassOrderEnv(small(), passes=FEW, reward="kernel_cache")
    env.reset()
    assert all(np.isfinite(env.step(action)[1]) for action in (1, 0))


def test_users_register_observations_and_rewards() -> None:
    from hloenv.envs.rewards import _REGISTRY as REWARDS
    from hloenv.envs.spaces import _REGISTRY as OBSERVATIONS

    hloenv.envs.register_observation(
        "size",
        "Number of instructions.",
        lambda _: spaces.Box(0, 1e9, (1,), np.float64),
        lambda env: np.array([env.node.op_count], np.float64),
    )
    hloenv.envs.register_reward(
        "minus-one", "Short episodes.", unit="1", compute=lambda _: -1.0
    )
    try:
        env = PassOrderEnv(small(), passes=FEW, observation="size", reward="minus-one")
        observation, _ = env.reset()
        assert observation.tolist() == [small().instruction_count]
        assert env.step(0)[1] == -1.0
        assert env.observe("op_counts").sum() == env.node.op_count
        assert env.reward_of("op_count") == -env.node.op_count / env.start.op_count
    finally:
        OBSERVATIONS.remove("size")
        REWARDS.remove("minus-one")


@pytest.mark.parametrize(
    "value", [np.nan, np.inf, "a", None, [1.0], np.float32(np.nan)], ids=str
)
def test_a_reward_that_is_no_finite_number_is_an_error(value) -> None:
    from hloenv.envs.rewards import _REGISTRY as REWARDS

    hloenv.envs.register_reward("odd", "Odd.", unit="1", compute=lambda _: value)
    try:
        env = PassOrderEnv(small(), passes=FEW, reward="odd")
        env.reset()
        with pytest.raises(ArgumentError, match=r"reward 'odd' is .*a finite number"):
            env.step(0)
        assert env.actions == []
        assert not env.is_over
        with pytest.raises(ArgumentError, match="reward 'odd' is"):
            env.reward_of("odd")
    finally:
        REWARDS.remove("odd")


def test_padded_graphs_are_the_module() -> None:
    env = PassOrderEnv(small(), passes=FEW, observation="graph_padded")
    observation, _ = env.reset()
    assert env.observation_space.contains(observation)
    count = small().instruction_count
    assert observation["node_mask"].sum() == count
    names = hloenv.envs.observed_opcodes()
    seen = [names[i - 1] for i in observation["opcode"][:count]]
    assert sorted(set(seen)) == sorted(small().opcode_counts())
    edges = observation["edges"][:, observation["edge_mask"].astype(bool)]
    assert edges.shape[1] == HloGraph.from_module(small()).num_edges


@pytest.mark.learn
def test_graphs_in_a_vector_of_environments() -> None:
    uri = "hloenv://dataset/test/flax?max_instructions=100"
    makers = [lambda: PassOrderEnv(uri, observation="graph", max_steps=4)] * 2
    vector = GraphVectorEnv(makers)
    observations, infos = vector.reset(seed=1)
    alone = PassOrderEnv(uri, observation="graph", max_steps=4)
    seed = int(np.random.SeedSequence(1).generate_state(2)[1])
    observation, info = alone.reset(seed=seed)
    assert infos[1]["benchmark"] == info["benchmark"]
    assert observations[1].num_nodes == observation.num_nodes
    for step in range(4):
        observations, rewards, terminated, truncated, infos = vector.step([step, step])
        observation, reward, *_ = alone.step(step)
        assert rewards[1] == reward
        assert truncated.tolist() == [step == 3] * 2
        assert not terminated.any()
    assert infos[1]["final_obs"].num_nodes == observation.num_nodes
    assert infos[1]["final_info"]["op_count"] == alone.node.op_count
    with pytest.raises(ArgumentError, match="one action for each of 2"):
        vector.step([0])
    before = [list(env.actions) for env in vector.envs]
    with pytest.raises(ArgumentError, match="an action must be an integer"):
        vector.step([0, 1000])
    assert [env.actions for env in vector.envs] == before  # none was stepped
    vector.close()
    with pytest.raises(ArgumentError, match="at least one"):
        GraphVectorEnv([])


def test_gymnasiums_own_vectors_in_processes() -> None:
    uri = "hloenv://dataset/test/flax?max_instructions=100"
    vector = gymnasium.vector.AsyncVectorEnv(
        [lambda: PassOrderEnv(uri)] * 2, context="spawn"
    )
    try:
        observations, _ = vector.reset(seed=[1, 2])
        alone = PassOrderEnv(uri)
        observation, _ = alone.reset(seed=2)
        assert np.array_equal(observations[1], observation)
        for action in (0, 1, 5):
            observations, rewards, *_ = vector.step([action, action])
            observation, reward, *_ = alone.step(action)
            assert np.array_equal(observations[1], observation)
            assert rewards[1] == pytest.approx(reward)
    finally:
        vector.close()
