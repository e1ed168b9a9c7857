# SPDX-License-Identifier: Apache-2.0
"""Episodes as data and as observations: what is claimed of them is checked."""

from __future__ import annotations

import pickle
import subprocess
import sys
import threading
from dataclasses import replace

import gymnasium
import pytest
from gymnasium.utils.env_checker import check_env

import hloenv.envs
from envs.modules import small
from hloenv import Pass, run_passes
from hloenv.envs import (
    EpisodeOverError,
    EpisodeState,
    GraphVectorEnv,
    PassOrderEnv,
    PotentialShaping,
    cost_potential,
    read_csv,
    write_csv,
)
from hloenv.envs.pass_memo import PassMemo
from hloenv.envs.state import append_csv
from hloenv.errors import ArgumentError, PassError

DATASET = "hloenv://dataset/test/flax?max_instructions=120"
FEW = ["cse", "algsimp", "dce", "tuple-simplifier"]


def played(**options) -> PassOrderEnv:
    env = PassOrderEnv(small(), passes=FEW, **options)
    env.reset()
    for action in (1, 0):
        env.step(action)
    return env


def test_a_claimed_reward_is_checked() -> None:
    env = played()
    assert env.validate(env.state).is_valid
    (problem,) = env.validate(replace(env.state, reward=999.0)).problems
    assert "999" in problem
    (problem,) = env.validate(replace(env.state, passes=("cse",))).problems
    assert "another episode" in problem


def failing(monkeypatch) -> PassOrderEnv:
    """An episode whose last pass fails, in each replay too."""

    def run(module, item):
        if item == Pass("dce"):
            raise PassError("it fails")
        return run_passes(module, item)

    monkeypatch.setattr(PassOrderEnv, "runner", lambda _: run)
    env = played()
    env.step(FEW.index("dce"))
    assert env.state.error == "PassError: it fails"
    return env


def test_a_failed_episode_is_validated_up_to_its_failure(monkeypatch) -> None:
    env = failing(monkeypatch)
    assert env.validate().is_valid
    env._rewards[0] += 123.0
    assert any("reward" in each for each in env.validate().problems)


def test_a_failure_that_does_not_come_again_is_a_problem(monkeypatch) -> None:
    env = failing(monkeypatch)
    monkeypatch.undo()
    assert any("'PassError: it fails'" in each for each in env.validate().problems)


def test_a_claimed_failure_is_checked(monkeypatch) -> None:
    env = played(reward="op_count")
    claimed = replace(env.state, error="PassError: no")
    assert any("not by 'PassError: no'" in e for e in env.validate(claimed).problems)


def test_states_with_errors_are_kept(tmp_path, monkeypatch) -> None:
    state = failing(monkeypatch).state
    write_csv(tmp_path / "states.csv", [state])
    assert read_csv(tmp_path / "states.csv") == [state]
    assert EpisodeState.from_json(state.to_json()) == state


def test_states_that_cannot_be_written_leave_those_before(tmp_path) -> None:
    path = tmp_path / "states.csv"
    state = EpisodeState("uri", ("cse",), 0.5, 1.0)
    write_csv(path, [state])

    def states():
        yield state
        raise OSError("no space left")

    with pytest.raises(OSError, match="no space"):
        write_csv(path, states())
    assert read_csv(path) == [state]


@pytest.mark.parametrize(
    "content",
    [
        b"\xff\xfe\x00",
        b"benchmark,passes,reward,seconds,error\n" + b"u" * 200_000 + b",[],1,1,\n",
        b"benchmark,passes,reward,seconds,error\nuri," + b"[" * 10_000 + b",1,1,\n",
        b"benchmark,passes,reward,seconds\nuri,[],1,1\n",
    ],
)
def test_other_files_hold_no_states(tmp_path, content) -> None:
    path = tmp_path / "other.csv"
    path.write_bytes(content)
    with pytest.raises(ArgumentError):
        read_csv(path)


def test_numbers_without_bounds_are_no_states() -> None:
    text = EpisodeState("uri", (), 0.0, 1.0).to_json()
    with pytest.raises(ArgumentError, match="not a state in JSON"):
        EpisodeState.from_json(text.replace("0.0", "9" * 400))


FULL_DISK = """
import errno, resource, signal, sys
from hloenv.envs import EpisodeState
from hloenv.envs.state import append_csv

state = EpisodeState("uri", ("cse",) * 99, 0.5, 1.0)
path = sys.argv[1]
append_csv(path, [state])
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
size = len(open(path, "rb").read())
resource.setrlimit(resource.RLIMIT_FSIZE, (size + 50, resource.RLIM_INFINITY))
try:
    append_csv(path, [state])
except OSError as error:
    assert error.errno == errno.EFBIG
else:
    raise AssertionError("it was written")
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
append_csv(path, [state])
"""


def test_a_full_disk_leaves_no_half_a_row(tmp_path) -> None:
    path = tmp_path / "states.csv"
    subprocess.run([sys.executable, "-c", FULL_DISK, str(path)], check=True)
    first, second = read_csv(path)
    assert first == second


def test_states_are_not_added_to_another_file(tmp_path) -> None:
    path = tmp_path / "other.csv"
    path.write_text("a,b\n1,2\n")
    with pytest.raises(ArgumentError, match="begins with 'a,b'"):
        append_csv(path, [EpisodeState("uri", (), 0.0, 0.0)])
    assert path.read_text() == "a,b\n1,2\n"


def test_a_set_of_benchmarks_is_drawn_from() -> None:
    env = PassOrderEnv(small(), passes=FEW)
    drawn = {
        env.reset(seed=seed, options={"benchmark": DATASET})[1]["benchmark"]
        for seed in range(12)
    }
    assert len(drawn) > 3


def test_before_the_first_reset_there_is_nothing_to_see() -> None:
    env = PassOrderEnv(small(), passes=FEW)
    for look in (
        lambda: env.observe("op_counts"),
        lambda: env.reward_of("op_count"),
        lambda: env.module,
    ):
        with pytest.raises(EpisodeOverError, match="reset"):
            look()


def test_a_state_that_is_too_long_changes_nothing() -> None:
    env = played(max_steps=3)
    before = env.state
    longer = replace(before, passes=("cse",) * 4)
    with pytest.raises(EpisodeOverError, match="4 steps, an episode here 3"):
        env.apply(longer)
    assert env.state == before


def test_a_state_that_goes_on_after_its_end_is_an_error() -> None:
    env = played(max_steps=4)
    with pytest.raises(EpisodeOverError, match="step 1 of 2 of the state ends"):
        env.apply(replace(env.state, passes=("stop", "cse")))


def test_a_replay_that_fails_earlier_is_a_problem(monkeypatch) -> None:
    env = played(max_steps=4)
    real = PassMemo.run

    def fail(memo, *arguments):
        if memo is env.memo:
            return real(memo, *arguments)
        raise PassError("too slow today")

    monkeypatch.setattr(PassMemo, "run", fail)
    problems = env.validate().problems
    assert any(
        "ends the episode here: PassError: too slow" in each for each in problems
    )


def test_an_observation_that_fails_twice_does_not_leave_step(monkeypatch) -> None:
    env = PassOrderEnv(small(), passes=FEW)
    first, _ = env.reset()

    def fail(*_):
        raise PassError("gone")

    broken = replace(env._observation, observe=fail)
    monkeypatch.setattr(env, "_observation", broken)
    observation, reward, terminated, _, info = env.step(1)
    assert terminated
    assert info["error"] == "PassError: gone"
    assert observation is first
    assert (reward, len(env.state.passes), len(env.nodes)) == (0.0, 1, 2)


def test_an_undo_without_anything_to_undo_is_not_on_the_command_line(tmp_path) -> None:
    path = tmp_path / "dead.hlo"
    path.write_text(
        "HloModule dead\n\nENTRY main {\n  a = f32[4] parameter(0)\n"
        "  d = f32[4] tanh(a)\n  n = f32[4] negate(a)\n  ROOT r = f32[4] negate(n)\n}\n"
    )
    env = PassOrderEnv(f"hloenv://file/{path}", passes=FEW, has_undo=True)
    env.reset()
    assert env.commandline().endswith("--pass dce")
    env.step(env.num_actions - 1)
    env.step(FEW.index("algsimp"))
    assert env.commandline().endswith("--pass dce --pass algsimp")


def test_passes_are_texts_with_options() -> None:
    env = PassOrderEnv(small(), passes=["cse:is_layout_sensitive=true", "cse+dce*"])
    assert env.passes[0] == Pass("cse", is_layout_sensitive=True)
    assert [env.action_name(i) for i in range(2)] == [
        "cse:is_layout_sensitive=true",
        "cse+dce*",
    ]


def test_the_run_time_of_an_unchanged_module_is_not_measured(monkeypatch) -> None:
    def fail(*_):
        raise AssertionError("it is measured")

    monkeypatch.setattr(hloenv.envs.rewards, "_log_speedup", fail)
    env = PassOrderEnv(small(), passes=FEW, reward="runtime")
    env.reset()
    assert env.step(len(FEW))[1] == 0.0


def test_a_measurement_outlives_pickling() -> None:
    env = played()
    env.measured, env.measured_node = 0.5, env.node
    env.step(2)
    twin = pickle.loads(pickle.dumps(env))
    assert twin.measured_node.fingerprint == env.measured_node.fingerprint
    assert env.measured_node is not env.start


def test_forks_run_passes_at_the_same_time() -> None:
    both = threading.Barrier(2, timeout=60)
    memo = PassMemo([Pass("algsimp"), Pass("cse")])
    start = memo.start(small)

    def run(module, item):
        both.wait()
        return run_passes(module, item)

    threads = [
        threading.Thread(target=memo.run, args=(start, number, run))
        for number in (0, 1)
    ]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert not both.broken
    assert memo.num_runs == 2


@pytest.mark.learn
def test_graphs_are_observed_and_compared_by_gymnasium() -> None:
    def make():
        return PassOrderEnv(DATASET, passes=FEW, observation="graph")

    # The render check needs an environment that has been registered.
    check_env(make(), skip_render_check=True)
    envs = gymnasium.vector.SyncVectorEnv([make, make])
    observations, _ = envs.reset(seed=1)
    assert len(observations) == 2


@pytest.mark.learn
def test_an_observed_graph_is_computed_once() -> None:
    env = PassOrderEnv(small(), passes=FEW, observation="graph")
    first, _ = env.reset()
    again = env.observe("graph")
    assert again == first
    again.x[:] = -1.0
    assert env.observe("graph") == first
    padded = env.observe("graph_padded")
    padded["opcode"][:] = -1
    assert env.observe("graph_padded")["opcode"].min() >= 0
    changed = env.step(1)[0]
    assert changed != first


@pytest.mark.learn
def test_wrapped_environments_in_a_vector_of_graphs() -> None:
    def make():
        env = gymnasium.make(
            "hloenv/PassOrder-v0", benchmark=DATASET, observation="graph", passes=FEW
        )
        return PotentialShaping(env, cost_potential, gamma=0.99)

    envs = GraphVectorEnv([make, make])
    assert envs.metadata["autoreset_mode"] == gymnasium.vector.AutoresetMode.SAME_STEP
    envs.reset(seed=0, options={"benchmark": DATASET})
    _, rewards, terminated, _, infos = envs.step([len(FEW), 0])
    assert terminated.tolist() == [True, False]
    assert rewards.shape == (2,)
    assert "final_obs" in infos[0]
    assert "final_obs" not in infos[1]
    with pytest.raises(ArgumentError, match="integer from 0 to 4"):
        envs.step([0, 5])
    envs.close()


@pytest.mark.learn
def test_wrappers_with_other_actions_in_a_vector_of_graphs() -> None:
    def make():
        env = PassOrderEnv(DATASET, passes=FEW, observation="graph")
        return gymnasium.wrappers.TransformAction(
            env, lambda action: int(action) - 10, gymnasium.spaces.Discrete(5, start=10)
        )

    envs = GraphVectorEnv([make])
    envs.reset(seed=0)
    assert envs.step([10])[4][0]["benchmark"]
    envs.close()
