# SPDX-License-Identifier: Apache-2.0
"""The environments of rewrites."""

from __future__ import annotations

import math
import pickle

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

import hloenv.envs
from envs.modules import small
from hloenv import HloModule
from hloenv.envs import (
    EpisodeOverError,
    GraphVectorEnv,
    PassOrderEnv,
    RewriteAllEnv,
    RewriteEnv,
)
from hloenv.envs.candidates import ALIKE, PASSES, CandidateTable, candidate_features
from hloenv.envs.game_memo import Play
from hloenv.envs.rewards import get_reward, list_rewards
from hloenv.errors import ArgumentError, PassError
from hloenv.hlo.pipeline import finish
from hloenv.rewrite.env import HloEnv, replay
from hloenv.rewrite.game import DecisionPoint, Game
from hloenv.search.spaces import get_space

DATASET = "hloenv://dataset/train?max_instructions=40"
ENVS = [RewriteEnv, RewriteAllEnv]


def rng_action(env, rng):
    """A random action that the mask allows."""
    masks = env.action_masks()
    if isinstance(env, RewriteEnv):
        return int(rng.choice(np.flatnonzero(masks)))
    rows = env.candidates()
    if rows is None:
        return np.zeros(0, np.int64)
    choose = [
        rng.choice(rows.choice[(rows.alternative == a) & rows.allowed] + 1)
        for a in range(len(rows.first))
    ]
    return np.array(choose)


def roll(env, seed, steps=25):
    """What a random agent sees."""
    rng = np.random.default_rng(seed)
    observation, info = env.reset(seed=seed)
    seen = [observation["x"].sum(), info["benchmark"]]
    for _ in range(steps):
        observation, reward, terminated, truncated, info = env.step(
            rng_action(env, rng)
        )
        seen += [observation["x"].tobytes(), observation["allowed"].tobytes(), reward]
        seen += [info["op_count"], info["round"], env.node.fingerprint]
        if terminated or truncated:
            observation, info = env.reset()
            seen += [observation["x"].tobytes(), info["benchmark"]]
    return seen


@pytest.mark.parametrize("name", ["hloenv/Rewrite-v0", "hloenv/RewriteAll-v0"])
def test_gymnasium_accepts_the_environment(name) -> None:
    kind = "alternatives" if "All" in name else "candidates"
    env = gymnasium.make(name, benchmark=DATASET, **{f"max_{kind}": 64})
    check_env(env.unwrapped)


@pytest.mark.needs("stable_baselines3")
@pytest.mark.filterwarnings("ignore:Your observation .* has an unconventional shape")
@pytest.mark.parametrize("make", ENVS)
def test_stable_baselines_accepts_the_environment(make) -> None:
    from stable_baselines3.common.env_checker import check_env as check

    check(make(DATASET))


@pytest.mark.parametrize("make", ENVS)
def test_the_same_actions_give_the_same_episodes(make) -> None:
    first, second = (roll(make(DATASET), seed=3) for _ in range(2))
    assert first == second
    assert any(isinstance(each, float) and each != 0 for each in first)


@pytest.mark.parametrize("make", ENVS)
def test_deciding_nothing_is_xlas_default(make) -> None:
    env = make(small())
    env.reset()
    rewards = []
    while not env.is_over:
        nothing = 0 if make is RewriteEnv else np.zeros(len(env.decisions), np.int64)
        rewards.append(env.step(nothing)[1])
    assert env.is_complete
    assert rewards == [0.0] * len(rewards)
    assert env.node is env.start


def test_one_step_decides_one_alternative() -> None:
    env = RewriteEnv(small(), space="algsimp")
    _, info = env.reset()
    rows = env.candidates()
    row = int(np.flatnonzero(rows.allowed & (rows.choice == 1))[0])
    assert info["action_mask"][row + 1] == 1
    _, _, terminated, _, info = env.step(row + 1)
    assert not terminated
    assert env.decisions[rows.alternative[row]] == 1
    assert (np.delete(env.decisions, rows.alternative[row]) == -1).all()
    assert info["changed"]
    # It is decided once.
    own = env.candidates().alternative == rows.alternative[row]
    assert not env.candidates().allowed[own].any()
    before = env.node
    assert env.step(row + 1)[4]["changed"] is False
    assert env.node is before
    assert env.step(0)[2]


def test_the_module_is_that_of_the_game() -> None:
    env = RewriteAllEnv(small(), space="early-and-fusion")
    env.reset()
    rng = np.random.default_rng(0)
    while not env.is_over:
        env.step(rng_action(env, rng))
    game = Game(small(), get_space("early-and-fusion").stops)
    made = finish(game.play(env.prefix))
    assert finish(env.module).fingerprint() == made.fingerprint()
    replayed = replay(env.trace, small())
    assert finish(replayed.module).fingerprint() == made.fingerprint()


def test_rewards_are_of_the_estimated_time() -> None:
    env = RewriteAllEnv(small(), space="algsimp", reward="roofline")
    env.reset()
    # Nothing is rewritten, also not by XLA's later passes.
    _, reward, *_ = env.step(np.ones(len(env.decisions), np.int64))
    value = get_reward("roofline").value
    before, after = value(env, env.start), value(env, env.node)
    assert reward == pytest.approx(math.log(before / after))
    assert env.reward_of("estimate:roofline") == pytest.approx(reward)
    assert {"estimate:NAME", "measured:STEPS"} <= set(list_rewards(families=True))


@pytest.mark.parametrize("make", ENVS)
def test_a_fork_and_a_pickle_go_on_alone(make) -> None:
    env = make(small())
    env.reset(seed=1)
    rng = np.random.default_rng(2)
    env.step(rng_action(env, rng))
    fork, again = env.fork(), pickle.loads(pickle.dumps(env))
    for twin in (fork, again):
        assert twin.node.fingerprint == env.node.fingerprint
        assert np.array_equal(twin.decisions, env.decisions)
        assert np.array_equal(twin.action_masks(), env.action_masks())
    kept, length = env.node.fingerprint, len(env.actions)
    action = rng_action(env, rng)
    ends = [twin.step(action)[1] for twin in (fork, again)]
    assert (env.node.fingerprint, len(env.actions)) == (kept, length)
    assert env.step(action)[1] == pytest.approx(ends[0]) == pytest.approx(ends[1])


@pytest.mark.parametrize("make", ENVS)
def test_a_state_is_repeated_and_validated(make) -> None:
    env = make(small())
    env.reset(seed=1)
    rng = np.random.default_rng(2)
    while not env.is_over:
        env.step(rng_action(env, rng))
    twin = make(small())
    twin.reset()
    twin.apply(type(env.state).from_json(env.state.to_json()))
    assert twin.node.fingerprint == env.node.fingerprint
    assert twin.state.reward == pytest.approx(env.state.reward)


@pytest.mark.compile
def test_validation_compares_outputs() -> None:
    env = RewriteAllEnv(small(), space="algsimp")
    env.reset()
    env.step(np.ones(len(env.decisions), np.int64))
    assert env.validate().is_valid
    env.node = env.start
    assert env.validate().problems == ("the same passes give another module",)


def test_steps_are_cut_at_the_limit() -> None:
    env = RewriteEnv(small(), space="algsimp", max_steps=1)
    env.reset()
    assert env.step(1)[2:4] == (False, True)
    with pytest.raises(EpisodeOverError):
        env.step(0)


def test_a_module_without_alternatives_ends_at_once() -> None:
    text = "HloModule e\nENTRY e { ROOT p = f32[4] parameter(0) }"
    for make, action in ((RewriteEnv, 0), (RewriteAllEnv, [])):
        env = make(HloModule.from_text(text), space="algsimp")
        _, info = env.reset()
        assert info["alternatives"] == 0
        assert env.candidates() is None
        _, reward, terminated, _, _ = env.step(action)
        assert (reward, terminated) == (0.0, True)


def test_the_rows_of_all_alternatives_are_shown() -> None:
    env = RewriteAllEnv(
        small(), space="early-and-fusion", max_alternatives=3, max_choices=2
    )
    observation, info = env.reset()
    assert info["alternatives"] == 3
    assert len(env.candidates()) == len(observation["x"]) == 3 * 3
    assert observation["alternative"].max() == 2


@pytest.mark.parametrize("name", ["pass_counts", "pass_history"])
def test_actions_without_numbers_are_not_counted(name) -> None:
    with pytest.raises(ArgumentError, match=rf"{name}.*RewriteAllEnv"):
        RewriteAllEnv(small(), observation=name)


def test_vectors_of_the_declared_size_are_taken_leniently() -> None:
    env = RewriteAllEnv(small(), space="algsimp", max_alternatives=40)
    env.reset(seed=0)
    env.action_space.seed(0)
    assert len(env.action_masks()) == 40 * 5
    assert env.step(env.action_space.sample())[2]


@pytest.mark.parametrize(
    ("make", "action"),
    [
        (RewriteEnv, -1),
        (RewriteEnv, 1025),
        (RewriteEnv, True),
        (RewriteEnv, 1.0),
        (RewriteAllEnv, 3),
        (RewriteAllEnv, [0]),
        (RewriteAllEnv, [[0]]),
        (RewriteAllEnv, [9, 0, 0, 0]),
        (RewriteAllEnv, [0.5, 0, 0, 0]),
    ],
)
def test_actions_out_of_range_are_refused(make, action) -> None:
    env = make(small(), space="algsimp")
    env.reset()
    if isinstance(action, list) and len(action) == 4:
        action = action + [0] * (len(env.decisions) - 4)
    with pytest.raises(ArgumentError, match="action"):
        env.step(action)
    assert not env.actions


def test_bad_arguments_are_refused() -> None:
    with pytest.raises(ArgumentError, match="decision points"):
        RewriteEnv(small(), space="live")
    with pytest.raises(ArgumentError, match="decision points"):
        RewriteEnv(small(), space=())
    with pytest.raises(ArgumentError, match="max_candidates"):
        RewriteEnv(small(), max_candidates=0)
    with pytest.raises(ArgumentError, match="max_choices"):
        RewriteAllEnv(small(), max_choices=1)
    with pytest.raises(ArgumentError, match="measured:STEPS"):
        RewriteEnv(small(), reward="measured:often")
    with pytest.raises(LookupError, match="no estimator"):
        RewriteEnv(small(), reward="estimate:nothing")
    with pytest.raises(ArgumentError, match="Rewrite-v0"):
        PassOrderEnv(small(), observation="candidates")


def test_rows_say_what_xla_decides() -> None:
    env = HloEnv(small())
    env.run_until("fusion")
    alternatives = env.get_alternatives("fusion", "general-fusion")
    rows = CandidateTable(alternatives).rows()
    default = alternatives.decisions_for("fusion")
    assert default.any()
    assert np.array_equal(rows.default, default)
    assert np.array_equal(rows.decisions(np.zeros(len(default), np.int64)), default)
    everything = np.zeros(len(default), np.int64)
    assert np.array_equal(rows.decisions(rows.positions(everything)), everything)
    columns = {name: i for i, name in enumerate(candidate_features())}
    assert rows.x[:, columns["is_as_xla"]].sum() == len(default)
    assert rows.x[:, columns["is_xlas"]].sum() == len(default)
    assert np.isfinite(rows.x).all()
    same = (rows.choice == default[rows.alternative]) & (rows.choice >= 0)
    assert not rows.allowed[same].any()


def test_features_name_the_passes_of_the_spaces() -> None:
    stops = [
        stop for name in ("forms-to-fusion", "all") for stop in get_space(name).stops
    ]
    names = {
        each if isinstance(each, str) else each.name
        for stop in stops
        for each in stop.passes
    }
    assert {ALIKE.get(name, name) for name in names} <= set(PASSES)


@pytest.mark.compile
def test_a_pass_that_no_network_knows_is_marked_as_one_like_it() -> None:
    module = HloModule.from_text(
        "HloModule m\nENTRY e { x = f32[8] parameter(0)\n ROOT s = f32[8] sine(x) }"
    )
    alternatives = HloEnv(module).get_alternatives("math-forms")
    rows = CandidateTable(alternatives).rows()
    column = candidate_features().index("by_sort-forms")
    assert rows.x[rows.choice == 1, column].tolist() == [1.0]


@pytest.mark.needs("torch", "torch_geometric")
def test_graphs_are_observed_several_at_a_time() -> None:
    def make():
        return RewriteAllEnv(DATASET, observation="alternatives")

    envs = GraphVectorEnv([make, make])
    try:
        observations, _ = envs.reset(seed=0)
        for _ in range(3):
            actions = [
                np.zeros(0 if o.candidates is None else len(o.candidates.first), int)
                for o in observations
            ]
            observations, rewards, *_ = envs.step(actions)
            assert np.isfinite(rewards).all()
    finally:
        envs.close()
    assert all(o.graph.num_nodes > 0 for o in observations)
    assert observations[0] == observations[0]
    assert observations[0] != 1


def test_a_decision_point_that_is_not_reached_is_an_error_of_reset() -> None:
    env = RewriteEnv(small(), space=[DecisionPoint(("algsimp",), where="no-such-pass")])
    with pytest.raises(hloenv.errors.HloEnvError, match="no-such-pass"):
        env.reset()


def test_render_shows_the_steps() -> None:
    env = RewriteEnv(small(), space="algsimp", render_mode="ansi")
    env.reset()
    env.step(0)
    assert "apply" in env.render()


@pytest.mark.parametrize("make", ENVS)
def test_a_pass_that_fails_between_decision_points_ends_the_episode(
    make, monkeypatch
) -> None:
    env = make(small(), space="early-and-fusion")
    env.reset()
    table = Play.table

    def fails(self, prefix):
        if prefix:
            raise PassError("it fails")
        return table(self, prefix)

    monkeypatch.setattr(Play, "table", fails)
    action = 0 if make is RewriteEnv else np.zeros(len(env.decisions), np.int64)
    observation, reward, terminated, truncated, info = env.step(action)
    assert (reward, terminated, truncated) == (0.0, True, False)
    assert "it fails" in info["error"]
    assert info["alternatives"] == 0
    assert not observation["allowed"].any()
    again = pickle.loads(pickle.dumps(env))
    assert again.error == env.error


def test_there_is_no_episode_after_a_reset_that_failed(monkeypatch) -> None:
    env = RewriteEnv(small(), space="algsimp")
    env.reset()

    def fails(*_):
        raise PassError("it fails")

    monkeypatch.setattr(Play, "table", fails)
    with pytest.raises(PassError):
        env.reset()
    with pytest.raises(EpisodeOverError):
        env.step(0)


def test_another_module_is_drawn_where_a_pass_fails(monkeypatch) -> None:
    env = RewriteEnv("hloenv://dataset/train?max_instructions=40", space="algsimp")
    env.reset(seed=5)
    first = env.state.benchmark
    start, failed = RewriteEnv._start, []

    def fails(self, benchmark):
        if benchmark.uri == first:
            failed.append(benchmark.uri)
            raise PassError("it fails")
        return start(self, benchmark)

    monkeypatch.setattr(RewriteEnv, "_start", fails)
    env.reset(seed=5)
    assert failed == [first]
    assert env.state.benchmark != first
    with pytest.raises(PassError):
        env.reset(options={"benchmark": first})
