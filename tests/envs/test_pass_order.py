# SPDX-License-Identifier: Apache-2.0
"""The environment of pass ordering."""

from __future__ import annotations

import contextlib
import os
import pickle
import re
import signal
import threading
from dataclasses import replace

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

import hloenv.envs
from envs.modules import small
from hloenv import HloModule, Pass, Pipeline, describe_pass, list_passes, run_passes
from hloenv.envs import EpisodeOverError, EpisodeState, PassOrderEnv
from hloenv.errors import ArgumentError, PassError, UnknownPassError, WorkerError

DATASET = "hloenv://dataset/test/flax?max_instructions=120"
FEW = ["cse", "algsimp", "dce", "tuple-simplifier"]


def roll(env: PassOrderEnv, seed: int, steps: int = 60) -> list[object]:
    """What a random agent sees."""
    rng = np.random.default_rng(seed)
    observation, info = env.reset(seed=seed)
    seen: list[object] = [observation.tolist(), info["benchmark"]]
    for _ in range(steps):
        action = int(rng.integers(env.num_actions))
        observation, reward, terminated, truncated, info = env.step(action)
        seen += [
            observation.tolist(),
            reward,
            info["op_count"],
            info["action_mask"].tolist(),
        ]
        if terminated or truncated:
            observation, info = env.reset()
            seen += [observation.tolist(), info["benchmark"]]
    return seen


@pytest.mark.parametrize(
    "observation",
    [
        *("op_counts", "op_counts_normalized", "cost", "pass_history", "pass_counts"),
        *("lookahead", "graph_padded", "op_counts+cost"),
    ],
)
def test_gymnasium_accepts_the_environment(observation) -> None:
    env = gymnasium.make(
        "hloenv/PassOrder-v0",
        benchmark="hloenv://dataset/test/flax?max_instructions=120",
        observation=observation,
    )
    check_env(env.unwrapped)


@pytest.mark.needs("stable_baselines3")
@pytest.mark.filterwarnings("ignore:Your observation .* has an unconventional shape")
@pytest.mark.parametrize(
    "observation",
    ["op_counts", "op_counts_normalized", "graph_padded", "graph_padded+pass_counts"],
)
def test_stable_baselines_accepts_the_environment(observation) -> None:
    from stable_baselines3.common.env_checker import check_env as check

    check(PassOrderEnv(DATASET, observation=observation))


def test_the_passes_are_xlas_and_each_says_why_it_is_target_independent() -> None:
    passes = hloenv.envs.target_independent_passes()
    assert len(passes) >= 53
    assert set(passes) <= set(list_passes())
    assert not any(describe_pass(name).candidate for name in passes)
    assert all(len(why) > 20 for why in passes.values())
    # Of their own; three decompositions share theirs.
    assert len(set(passes.values())) >= len(passes) - 5


def test_the_lookahead_is_what_each_pass_then_does() -> None:
    env = PassOrderEnv(small(), passes=FEW, observation="lookahead+pass_counts")
    observation, _ = env.reset()
    count = env.node.op_count
    for number in range(len(FEW)):
        twin = env.fork()
        twin.step(number)
        changed, share = observation["lookahead"][:, number]
        assert bool(changed) == (twin.node is not env.node)
        assert share == pytest.approx((count - twin.node.op_count) / count)
        assert twin.observe("pass_counts")[number] == pytest.approx(1 / env.max_steps)
        assert twin.observe("pass_counts").sum() == pytest.approx(1 / env.max_steps)
    assert observation["lookahead"][0].any()


def test_the_log_rewards_of_an_episode_add_up() -> None:
    env = PassOrderEnv(small(), passes=FEW, reward="op_count_log")
    env.reset()
    total = sum(float(env.step(number)[1]) for number in range(len(FEW)))
    assert total == pytest.approx(np.log(env.start.op_count / env.node.op_count))


def test_an_episode_ends_by_stop_or_by_its_length() -> None:
    env = PassOrderEnv(small(), passes=FEW, max_steps=3)
    env.reset()
    assert env.step(len(FEW))[2:4] == (True, False)
    env.reset()
    ends = [env.step(0)[2:4] for _ in range(3)]
    assert ends == [(False, False), (False, False), (False, True)]
    for action in (0, len(FEW)):
        with pytest.raises(EpisodeOverError, match="call reset"):
            env.step(action)


def test_a_step_is_the_pass() -> None:
    env = PassOrderEnv(small(), passes=FEW)
    env.reset()
    module = small()
    for name in ("algsimp", "cse", "dce"):
        _, reward, _, _, info = env.step(FEW.index(name))
        before = module.instruction_count
        module = run_passes(module, name).module
        assert env.module.fingerprint() == module.fingerprint()
        assert info["op_count"] == module.instruction_count
        assert reward == (before - module.instruction_count) / small().instruction_count
    assert env.node.op_count < env.start.op_count


def test_passes_with_options_are_actions_of_their_own() -> None:
    env = PassOrderEnv(small(), passes=["cse", Pass("cse", is_layout_sensitive=True)])
    assert env.num_actions == 3
    env.reset()
    assert env.step(1)[4]["changed"]


def test_equal_seeds_give_equal_rollouts_here_and_in_another_process(run_child) -> None:
    env = PassOrderEnv(DATASET, observation="op_counts")
    seen = roll(env, 3)
    assert roll(env, 3) == seen  # the memo answers
    assert roll(PassOrderEnv(DATASET, observation="op_counts"), 3) == seen
    assert roll(PassOrderEnv(DATASET, observation="op_counts"), 4) != seen
    code = f"""
from envs.test_pass_order import roll
from hloenv.envs import PassOrderEnv
import hashlib
seen = roll(PassOrderEnv({DATASET!r}, observation="op_counts"), 3)
print(hashlib.sha256(repr(seen).encode()).hexdigest())
"""
    import hashlib
    from pathlib import Path

    tests = str(Path(__file__).resolve().parent.parent)
    printed = run_child(f"import sys; sys.path.insert(0, {tests!r})\n{code}").stdout
    assert printed.strip() == hashlib.sha256(repr(seen).encode()).hexdigest()


def test_the_memo_runs_each_pass_once_for_each_module() -> None:
    env = PassOrderEnv(small(), passes=FEW)
    runs = []
    for _ in range(5):
        env.reset()
        for action in (0, 1, 2, 0, 1, 2):
            env.step(action)
        runs.append(env.memo.num_runs)
    assert 0 < runs[0] <= 6
    assert runs == runs[:1] * 5


def test_evicted_modules_are_made_again() -> None:
    from hloenv.envs.pass_memo import PassMemo

    passes = [Pass(name) for name in FEW]
    roomy, tight = PassMemo(passes), PassMemo(passes, max_instructions=1, max_nodes=2)
    for order in ((0, 1, 2), (1, 0, 2), (1, 2, 0)):
        nodes = [memo.start(small) for memo in (roomy, tight)]
        for action in order:
            nodes = [
                memo.run(node, action)
                for memo, node in zip((roomy, tight), nodes, strict=True)
            ]
            assert nodes[0].fingerprint == nodes[1].fingerprint
            assert tight.module(nodes[1]).fingerprint() == nodes[0].fingerprint
            assert len(tight._modules) == 1
            assert len(tight._following) <= 2


def test_masks_name_what_is_known_to_change_nothing() -> None:
    env = PassOrderEnv(small(), passes=FEW)
    _, info = env.reset()
    assert info["action_mask"].all()
    dce = FEW.index("dce")
    info = env.step(dce)[4]
    assert not info["changed"]
    assert np.flatnonzero(info["action_mask"] == 0).tolist() == [dce]
    assert env.action_masks().tolist() == info["action_mask"].astype(bool).tolist()
    assert env.step(FEW.index("cse"))[4]["action_mask"].all()


def test_a_dry_run_of_all_passes_gives_exact_masks() -> None:
    env = PassOrderEnv(small(), passes=FEW, dry_run=True)
    _, info = env.reset()
    changes = [run_passes(small(), name).changed for name in FEW]
    assert info["action_mask"].tolist() == [*map(int, changes), 1]
    assert set(changes) == {True, False}


def test_a_fork_goes_its_own_way() -> None:
    env = PassOrderEnv(small(), passes=FEW)
    env.reset(seed=1)
    env.step(1)
    twin = env.fork()
    assert twin.state == env.state
    twin.step(0)
    assert (len(env.actions), len(twin.actions)) == (1, 2)
    assert env.node is not twin.node
    runs = env.memo.num_runs
    env.step(0)
    assert env.memo.num_runs == runs
    assert env.node.fingerprint == twin.node.fingerprint
    assert env.np_random.integers(1000) == twin.np_random.integers(1000)


def test_states_are_data_that_another_environment_repeats(tmp_path) -> None:
    env = PassOrderEnv(DATASET)
    roll(env, 0, 50)
    state = env.state
    assert state.passes
    assert EpisodeState.from_json(state.to_json()) == state
    hloenv.envs.write_csv(tmp_path / "s.csv", [state, state])
    assert hloenv.envs.read_csv(tmp_path / "s.csv") == [state, state]
    other = PassOrderEnv(DATASET)
    other.apply(state)
    assert other.state.reward == pytest.approx(state.reward)
    assert other.module.fingerprint() == env.module.fingerprint()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        "[]",
        '{"benchmark": 1}',
        "nonsense",
        '{"benchmark": "", "passes": [], "reward": null, "seconds": 0}',
    ],
)
def test_what_is_no_state_is_an_error(text) -> None:
    with pytest.raises(ArgumentError, match="state"):
        EpisodeState.from_json(text)


@pytest.mark.compile
def test_a_valid_episode_and_a_wrong_one() -> None:
    env = PassOrderEnv(small(), passes=FEW)
    env.reset()
    for action in (1, 0, 2):
        env.step(action)
    assert env.validate().is_valid
    env._rewards[0] += 1.0
    (problem,) = env.validate().problems
    assert "the reward is" in problem
    env._rewards[0] -= 1.0
    env.actions.pop(0)
    assert "another module" in " ".join(env.validate().problems)


def test_the_command_line_repeats_the_episode(capsys) -> None:
    env = PassOrderEnv(DATASET, passes=FEW)
    env.reset(seed=0)
    for action in (1, 0, 2):
        env.step(action)
    import shlex

    from hloenv.cli import main

    words = shlex.split(env.commandline())
    assert words[0] == "hloenv"
    assert main([*words[1:], "--json"]) == 0
    assert env.node.fingerprint in capsys.readouterr().out


def test_an_environment_pickles_with_its_episode() -> None:
    env = PassOrderEnv(small(), passes=FEW, render_mode="ansi")
    fresh = pickle.loads(pickle.dumps(env))
    assert fresh.reset(seed=0)[1]["op_count"] == small().instruction_count
    env.reset(seed=5)
    env.step(1)
    twin = pickle.loads(pickle.dumps(env))
    assert twin.state == env.state
    assert twin.render() == env.render()
    assert twin.step(0)[1] == env.step(0)[1]
    assert twin.np_random.integers(1000) == env.np_random.integers(1000)


def test_renderings() -> None:
    env = PassOrderEnv(small(), passes=FEW, render_mode="ansi")
    env.reset()
    env.step(1)
    assert re.search(r"algsimp +\d+ +-\d+ +\+0\.", env.render())
    env = PassOrderEnv(small(), passes=FEW, render_mode="rgb_array")
    env.reset()
    env.step(1)
    image = env.render()
    assert (image.shape, image.dtype) == ((480, 640, 3), np.uint8)
    assert image.min() < 100


@pytest.mark.parametrize("action", [-1, 5, 1.5, "cse", None])
def test_actions_out_of_range_are_errors(action) -> None:
    env = PassOrderEnv(small(), passes=FEW)
    with pytest.raises(EpisodeOverError, match="call reset"):
        env.step(0)
    env.reset()
    with pytest.raises(ArgumentError, match="integer from 0 to 4"):
        env.step(action)
    assert not env.is_over


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"benchmark": "hloenv://nothing/train"}, ArgumentError, "gpt2-train"),
        ({"benchmark": 3}, ArgumentError, "HloModule or a URI"),
        ({"observation": "op_count"}, ArgumentError, "did you mean 'op_counts'"),
        ({"reward": "speed"}, ArgumentError, "no reward"),
        ({"passes": []}, ArgumentError, "at least one"),
        ({"passes": ["algsimpp"]}, UnknownPassError, "algsimp"),
        ({"max_steps": 0}, ArgumentError, ">= 1"),
        ({"render_mode": "human"}, ArgumentError, "rgb_array"),
    ],
)
def test_arguments_that_do_not_fit(arguments, error, words) -> None:
    with pytest.raises(error, match=re.compile(re.escape(words), re.IGNORECASE)):
        PassOrderEnv(**{"benchmark": small(), **arguments})


def test_other_options_of_reset_are_errors() -> None:
    with pytest.raises(ArgumentError, match="benchmark"):
        PassOrderEnv(small()).reset(options={"bench": 1})


def test_a_pass_that_fails_ends_the_episode(monkeypatch) -> None:
    env = PassOrderEnv(small(), passes=FEW)

    def fail(*_):
        error = WorkerError("the process crashed")
        error.is_kill = True
        raise error

    monkeypatch.setattr(env, "runner", lambda: fail)
    env.reset()
    observation, reward, terminated, truncated, info = env.step(0)
    assert (reward, terminated, truncated) == (0.0, True, False)
    assert info["error"] == "WorkerError: the process crashed"
    assert info["action_mask"].tolist() == [0, 1, 1, 1, 1]
    assert env.observation_space.contains(observation)
    assert env.state.passes == ("cse",)
    monkeypatch.undo()
    # Another process ended it: it is tried again.
    env.reset()
    assert "error" not in env.step(0)[4]


def test_a_pass_that_crashes_is_not_tried_again(monkeypatch) -> None:
    env = PassOrderEnv(small(), passes=FEW)
    calls = []

    def crash(*_):
        calls.append(0)
        raise WorkerError("the process crashed")

    monkeypatch.setattr(env, "runner", lambda: crash)
    for _ in range(2):
        env.reset()
        assert env.step(0)[4]["error"] == "WorkerError: the process crashed"
    assert len(calls) == 1


def test_a_failure_is_remembered_without_what_it_went_through(monkeypatch) -> None:
    env = PassOrderEnv(small(), passes=FEW, isolate=False)
    calls = []

    def fail(*_):
        calls.append(0)
        raise PassError("no")

    monkeypatch.setattr(env, "runner", lambda: fail)
    for _ in range(20):
        env.reset()
        assert env.step(0)[4]["error"] == "PassError: no"
    assert len(calls) == 1
    assert env.validate().is_valid


def test_a_reward_that_fails_ends_the_episode(monkeypatch) -> None:
    def fail(_):
        raise ArgumentError("no reward today")

    env = PassOrderEnv(small(), passes=FEW)
    env.reset()
    monkeypatch.setattr(env, "_reward", replace(env.reward_space, compute=fail))
    _, reward, terminated, _, info = env.step(1)
    assert (reward, terminated) == (0.0, True)
    assert info["error"] == "ArgumentError: no reward today"
    assert len(env.state.passes) == 1


def test_actions_have_different_names() -> None:
    options = Pass("cse", is_layout_sensitive=True)
    env = PassOrderEnv(small(), passes=["cse", options])
    assert env.action_name(1) == "cse:is_layout_sensitive=true"
    env.reset()
    env.step(1)
    other = PassOrderEnv(small(), passes=["cse", options])
    other.apply(env.state)
    assert other.actions == [1]
    for twice in (["cse", "cse"], ["cse", Pipeline("stop", ["dce"])]):
        with pytest.raises(ArgumentError, match="two actions are named"):
            PassOrderEnv(small(), passes=twice)


@pytest.mark.compile
def test_a_module_as_benchmark_of_one_episode() -> None:
    env = PassOrderEnv(DATASET, passes=FEW)
    env.reset(options={"benchmark": small()})
    env.step(1)
    twin = pickle.loads(pickle.dumps(env))
    assert twin.state == env.state
    fork = env.fork()
    fork.apply(env.state)
    assert fork.node.fingerprint == env.node.fingerprint
    assert env.validate().is_valid
    with pytest.raises(ArgumentError, match="hloenv://file/PATH"):
        env.commandline()


def test_pipelines_on_the_command_line() -> None:
    flat = Pipeline(
        "flat", ["algsimp", Pass("cse", is_layout_sensitive=True)], fixed_point=True
    )
    nested = Pipeline("nested", [flat, "dce"])
    env = PassOrderEnv(DATASET, passes=[flat, nested])
    env.reset(seed=0)
    env.step(0)
    assert env.commandline().endswith("--pass 'algsimp+cse:is_layout_sensitive=true*'")
    env.reset(seed=0)
    env.step(1)
    with pytest.raises(ArgumentError, match="not flat"):
        env.commandline()


def test_before_the_first_reset_there_is_no_episode() -> None:
    env = PassOrderEnv(small(), passes=FEW)
    for use in (env.action_masks, env.validate, env.commandline, lambda: env.state):
        with pytest.raises(EpisodeOverError, match="reset"):
            use()


def test_a_pass_that_ends_its_process_ends_the_episode() -> None:
    """Not this process: modules from outside run in a child process."""
    env = PassOrderEnv(small(), passes=FEW)
    env.reset()
    env.step(0)
    sandbox = env._sandbox
    assert sandbox is not None
    assert sandbox._child is not None
    pid = sandbox._child._process.pid
    os.kill(pid, signal.SIGSTOP)  # so that it ends while the pass runs
    killer = threading.Timer(0.5, os.kill, (pid, signal.SIGKILL))
    killer.start()
    info = env.step(1)[4]
    killer.join()
    assert "error" in info
    env.reset()
    assert "error" not in env.step(2)[4]
    env.close()


DEAD = """HloModule dead

p {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT s = f32[] add(a, b)
}

q {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT s = f32[] add(a, b)
}

ENTRY e {
  x = f32[8] parameter(0)
  z = f32[] constant(0)
  d = f32[8] negate(x)
  u = f32[] reduce(x, z), dimensions={0}, to_apply=p
  v = f32[] reduce(x, z), dimensions={0}, to_apply=q
  ROOT r = f32[] add(u, v)
}
"""


def test_code_that_nothing_needs_does_not_count() -> None:
    """Fingerprints ignore it, so counts would depend on what the memo saw first."""
    module = HloModule.from_text(DEAD)
    env = PassOrderEnv(module, passes=["cse", Pipeline("both", ["cse", "dce"])])
    _, info = env.reset()
    clean = run_passes(module, "dce").module
    assert info["op_count"] == clean.instruction_count < module.instruction_count
    counts = []
    for action in (0, 1, 0):
        env.reset()
        _, _, _, _, info = env.step(action)
        assert info["changed"]
        assert info["op_count"] == env.module.instruction_count
        counts.append(info["op_count"])
        assert env.validate().is_valid
    assert len(set(counts)) == 1


def test_the_command_line_removes_what_nothing_needs(tmp_path) -> None:
    path = tmp_path / "dead.hlo"
    path.write_text(DEAD)
    env = PassOrderEnv(f"hloenv://file/{path}", passes=["cse"])
    env.reset()
    env.step(0)
    words = env.commandline().split()
    assert words[3:] == ["--pass", "dce", "--pass", "cse", "--pass", "dce"]


def test_passes_of_a_search_remove_what_nothing_needs() -> None:
    env = PassOrderEnv(HloModule.from_text(DEAD), passes=["cse", "algsimp"])
    env.reset()
    names = [each.name for each in env.passes_of([1, 0])]
    assert names == ["dce", "cse", "dce"]  # algsimp changes nothing


def test_a_reward_that_fails_takes_the_step_back() -> None:
    text = """HloModule m
ENTRY e {
  x = f32[4] parameter(0)
  b = f32[4] exponential(x)
  c = f32[4] exponential(x)
  ROOT r = f32[4] add(b, c)
}
"""
    env = PassOrderEnv(HloModule.from_text(text), passes=["cse"])
    env.reset()
    before = env.node

    def fails(_: object) -> float:
        raise ArgumentError("no")

    env._reward = replace(env.reward_space, compute=fails)
    _, _, terminated, _, info = env.step(0)
    assert terminated
    assert "no" in info["error"]
    assert env.node is before
    assert env.validate().is_valid
    assert pickle.loads(pickle.dumps(env)).node.fingerprint == before.fingerprint


@pytest.mark.parametrize("name", ["runtime", "measured:5", "saved_measured:5"])
def test_measured_rewards_decrease_the_estimated_time(name) -> None:
    space = hloenv.envs.get_reward(name)
    assert space.value is hloenv.envs.get_reward("kernel_cache").value


def test_different_seeds_have_no_episodes_in_common() -> None:
    env = PassOrderEnv(DATASET, passes=FEW)
    with contextlib.closing(hloenv.envs.GraphVectorEnv([env.fork] * 8)) as envs:
        drawn = [
            [info["benchmark"] for info in envs.reset(seed=seed)[1]] for seed in (0, 1)
        ]
        again = [info["benchmark"] for info in envs.reset(seed=0)[1]]
    assert drawn[0][1:] != drawn[1][:-1]
    assert again == drawn[0]
