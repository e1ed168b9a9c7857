# SPDX-License-Identifier: Apache-2.0
"""Training, checkpoints and what agents do."""

from __future__ import annotations

import csv
import dataclasses
import json
import math
import shutil

import numpy as np
import pytest
import torch

from envs.modules import small
from hloenv import run_passes
from hloenv.cost.learned.checkpoint import load_cost_model
from hloenv.envs import PassOrderEnv
from hloenv.errors import ArgumentError
from hloenv.graph.hlo_graph import opcodes
from hloenv.learn import (
    Agent,
    CheckpointError,
    TrainConfig,
    evaluate,
    load_agent,
    order_passes,
    train,
)
from hloenv.learn.agent import make_policy
from hloenv.learn.evaluation import Evaluation

pytestmark = [
    pytest.mark.needs("stable_baselines3", "sb3_contrib", "safetensors"),
    pytest.mark.filterwarnings("ignore:.*mini-batch"),
]

TINY = TrainConfig(
    train="hloenv://dataset/train?max_instructions=40",
    validation="hloenv://dataset/validation?max_instructions=40",
    passes=("cse", "algsimp", "dce", "call-inliner"),
    max_steps=6,
    steps=64,
    num_envs=2,
    network=(16,),
    evaluate_every=32,
    max_validation=3,
    arguments={"n_steps": 16, "batch_size": 16, "n_epochs": 1},
)


def varied(**changes) -> TrainConfig:
    return dataclasses.replace(TINY, **changes)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run, and what it reported."""
    folder = tmp_path_factory.mktemp("run")
    reports = []
    agent = train(TINY, folder, report=reports.append)
    return folder, agent, reports


def test_a_run_leaves_curve_and_agents(run) -> None:
    folder, agent, reports = run
    with (folder / "curve.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [int(row["step"]) for row in rows] == [0, 32, 64]
    assert all(0 < float(row["score"]) <= 1 for row in rows)
    assert min(float(row["score"]) for row in rows) == agent.notes["validation_score"]
    assert reports[-1].step == 64
    assert np.isfinite(reports[-1].entropy)
    assert json.loads((folder / "config.json").read_text()) == TINY.to_dict()
    assert load_agent(folder / "last.safetensors").notes["steps"] == 64


def test_a_checkpoint_acts_as_the_agent_that_was_saved(run, tmp_path) -> None:
    _, agent, _ = run
    path = tmp_path / "copy.safetensors"
    agent.save(path)
    copy = load_agent(path)
    env = TINY.make_env()
    for seed in range(5):
        observation, _ = env.reset(seed=seed)
        assert copy.act(env, observation) == agent.act(env, observation)


def test_a_run_of_equal_seed_is_equal(run, tmp_path) -> None:
    folder, agent, _ = run
    again = train(TINY, tmp_path / "again")
    for name, tensor in agent.policy.state_dict().items():
        assert tensor.equal(again.policy.state_dict()[name]), name
    other = train(varied(seed=1), tmp_path / "other")
    assert any(
        not tensor.equal(other.policy.state_dict()[name])
        for name, tensor in agent.policy.state_dict().items()
    )
    with pytest.raises(ArgumentError, match="has a run already"):
        train(TINY, folder)


def test_a_run_resumes_where_it_was_killed(tmp_path) -> None:
    class KilledError(Exception):
        pass

    def kill(progress) -> None:
        if progress.step > 32:
            raise KilledError

    folder = tmp_path / "run"
    with pytest.raises(KilledError):
        train(TINY, folder, report=kill)
    steps = []
    train(TINY, folder, resume=True, report=lambda each: steps.append(each.step))
    assert steps == [64]  # goes on after the last rollout that was evaluated
    train(varied(steps=96), folder, resume=True)
    with (folder / "curve.csv").open(newline="") as file:
        assert [int(row["step"]) for row in csv.DictReader(file)] == [0, 32, 64, 96]
    assert json.loads((folder / "config.json").read_text())["steps"] == 96
    with pytest.raises(ArgumentError, match=r"max_steps 6, not 7"):
        train(varied(max_steps=7), folder, resume=True)
    with pytest.raises(ArgumentError, match="no run to resume"):
        train(TINY, tmp_path / "nothing", resume=True)


def test_an_agent_prefers_what_pays(tmp_path) -> None:
    """One module, where the first of five passes removes all that can be removed."""
    path = tmp_path / "small.hlo"
    path.write_text(small().to_text())
    config = varied(
        train=f"hloenv://file/{path}",
        validation=f"hloenv://file/{path}",
        passes=("cse", "dce", "tuple-simplifier", "call-inliner", "map-inline"),
        max_steps=1,
        steps=600,
        evaluate_every=600,
        arguments={"n_steps": 30, "batch_size": 30, "learning_rate": 0.01},
    )
    untrained = make_policy(config, config.make_env())
    env = config.make_env()
    env.reset()
    agent = train(config, tmp_path / "run")
    assert agent.act(env, env.observe(config.observations)) == 0
    import torch

    observation, _ = untrained.obs_to_tensor(env.observe(config.observations))
    with torch.no_grad():
        before = untrained.get_distribution(observation).distribution.probs[0, 0]
        after = agent.policy.get_distribution(observation).distribution.probs[0, 0]
    assert before < 0.5 < after


@pytest.mark.parametrize(
    "changes",
    [
        {"algorithm": "dqn", "arguments": {"learning_starts": 16}},
        {"algorithm": "a2c", "arguments": {}},
        {"algorithm": "ppo"},
        {"algorithm": "trpo", "arguments": {"n_steps": 16, "batch_size": 16}},
        {"shaping": True},
        {"critic_observation": "cost"},
        {"observation": "lookahead+pass_counts"},
        {"observation": "graph_padded+pass_counts"},
        {"observation": "op_counts"},
    ],
    ids=lambda changes: "-".join(map(str, changes.values()))[:40],
)
def test_every_algorithm_and_observation_trains_and_resumes(tmp_path, changes) -> None:
    config = varied(steps=32, evaluate_every=16, **changes)
    agent = train(config, tmp_path)
    assert 0 < agent.notes["validation_score"] <= 1
    longer = dataclasses.replace(config, steps=64)
    train(longer, tmp_path, resume=True)
    # Algorithms end with a whole rollout.
    assert 64 <= load_agent(tmp_path / "last.safetensors").notes["steps"] <= 80


def test_the_actor_does_not_see_what_only_the_critic_may() -> None:
    config = varied(critic_observation="cost")
    env = config.make_env()
    env.reset()
    policy = make_policy(config, env)
    seen = env.observe(config.observations)
    other = seen | {"cost": seen["cost"] + 1e12}
    first, _ = policy.obs_to_tensor(seen)
    second, _ = policy.obs_to_tensor(other)
    assert policy.get_distribution(first).distribution.logits.equal(
        policy.get_distribution(second).distribution.logits
    )
    assert not policy.predict_values(first).equal(policy.predict_values(second))


def test_padding_does_not_change_what_a_graph_encodes() -> None:
    import torch

    from hloenv.learn.features import GraphEncoder

    env = PassOrderEnv(small(), observation="graph_padded")
    observation, _ = env.reset()
    torch.manual_seed(0)
    encoder = GraphEncoder(env.observation_space)
    batch = {
        key: torch.tensor(np.stack([value] * 2)) for key, value in observation.items()
    }
    num_nodes = int(observation["node_mask"].sum())
    # Garbage where the masks are 0, of the second copy.
    batch["opcode"][1, num_nodes:] = 5
    batch["nodes"][1, num_nodes:] = 3.0
    batch["edges"][1, :, int(observation["edge_mask"].sum()) :] = num_nodes + 1
    with torch.no_grad():
        first, second = encoder(batch)
        torch.testing.assert_close(first, second)
        # One graph alone is encoded as in a batch.
        alone = encoder({key: value[:1] for key, value in batch.items()})[0]
    torch.testing.assert_close(first, alone)


def test_the_shipped_agent_orders_passes(tmp_path) -> None:
    agent = load_agent()
    module = small()
    found = order_passes(agent, module, budget=150)
    assert found.num_steps <= 150
    made = agent.config.make_env(module).passes
    for number in found.passes:
        module = run_passes(module, made[number]).module
    assert module.fingerprint() == found.node.fingerprint
    assert found.node.op_count < small().instruction_count
    assert order_passes(agent, small(), budget=150).passes == found.passes


@pytest.mark.parametrize("algorithm", ["ppo", "dqn", "maskable-ppo"])
def test_no_agent_takes_a_pass_that_changed_nothing(algorithm) -> None:
    config = varied(algorithm=algorithm, arguments={})
    env = config.make_env(small())
    agent = Agent(config, make_policy(config, env), {})
    observation, _ = env.reset(seed=0)
    taken = []
    for number in range(env.num_actions - 1):
        action = agent.act(env, observation, deterministic=number % 2 == 0)
        assert env.action_masks()[action]
        observation, _, terminated, truncated, info = env.step(action)
        taken.append((action, info["changed"]))
        if terminated or truncated:
            break
    idle = [action for action, changed in taken if not changed]
    assert idle
    # Twice only where another pass has changed the module in between.
    assert len(set(idle)) > len(idle) // 2


def test_agents_without_probabilities_draw_some_actions(tmp_path) -> None:
    config = varied(algorithm="dqn", arguments={"learning_starts": 16}, steps=16)
    agent = train(config, tmp_path)
    env = config.make_env()
    observation, _ = env.reset(seed=0)
    best = agent.act(env, observation)
    drawn = [agent.act(env, observation, deterministic=False) for _ in range(300)]
    assert drawn.count(best) > 200
    assert len(set(drawn)) > 1


def test_looking_ahead_counts_as_running_the_passes(tmp_path) -> None:
    config = varied(observation="lookahead", steps=16, evaluate_every=16)
    agent = train(config, tmp_path)
    found = order_passes(agent, small(), budget=1000, max_episodes=1)
    assert found.num_steps >= len(config.passes) + 1
    runs = [order_passes(agent, small(), budget=b).num_steps for b in (1, 5)]
    assert runs == [5, 5]  # all four passes, and one step
    for wrong in ({"budget": 0}, {"max_episodes": 0}):
        with pytest.raises(ArgumentError, match="must be an integer >= 1, got 0"):
            order_passes(agent, small(), **wrong)


def test_an_agent_is_judged_by_what_its_reward_decreases(tmp_path) -> None:
    config = varied(reward="flops", steps=16, evaluate_every=16)
    agent = train(config, tmp_path)
    env = config.make_env("hloenv://dataset/validation?max_instructions=60")
    result = evaluate(agent, [env.benchmarks[0].uri], env=env)
    env.reset(options={"benchmark": env.benchmarks[0].uri})
    assert result.before == (env.cost_of(env.start).flops,)


def test_a_replay_buffer_that_needs_too_much_memory_is_an_error(tmp_path) -> None:
    config = varied(algorithm="dqn", observation="graph_padded", arguments={})
    with pytest.raises(ArgumentError, match=r"takes 1\d GiB, more than 4; give"):
        train(config, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_observations_of_unknown_size_are_seen(tmp_path) -> None:
    import torch
    from gymnasium import spaces

    from hloenv.learn.features import HloFeatures

    space = spaces.Dict(
        {
            "a": spaces.Box(-np.inf, np.inf, (2,), np.float32),
            "b.x": spaces.Box(-50, 50, (1,), np.float32),
        }
    )
    features = HloFeatures(space)
    seen = features({"a": torch.tensor([[-3.0, 1e9]]), "b.x": torch.tensor([[-50.0]])})
    assert seen.shape == (1, 3)
    assert seen[0, 0] < 0 < seen[0, 1]
    assert seen[0, 2] == -1


def test_an_evaluation_is_one_episode_for_each_module() -> None:
    agent = load_agent()
    env = agent.config.make_env("hloenv://dataset/validation?max_instructions=60")
    uris = [each.uri for each in env.benchmarks[:3]]
    result = evaluate(agent, uris, env=env)
    assert result.benchmarks == tuple(uris)
    for uri, before, after in zip(uris, result.before, result.after, strict=True):
        env.reset(options={"benchmark": uri})
        assert before == env.node.op_count
        counts = [before]
        observation, is_over = env.observe(agent.config.observations), False
        while not is_over:
            action = agent.act(env, observation)
            observation, _, terminated, truncated, info = env.step(action)
            is_over = terminated or truncated
            counts.append(info["op_count"])
        assert after == min(counts)
    ratios = np.array(result.after) / np.array(result.before)
    assert result.score == pytest.approx(np.exp(np.log(ratios).mean()))


@pytest.mark.parametrize(
    ("before", "after", "score"),
    [(10.0, 0.0, 1e-3), (0.0, 0.0, 1.0), (10.0, 5.0, 0.5), (math.nan, 3.0, 1.0)],
)
def test_what_falls_to_zero_is_the_largest_gain(before, after, score) -> None:
    found = Evaluation(("uri",), (before,), (after,))
    assert found.score == pytest.approx(score)


def test_a_policy_whose_weights_are_not_finite_is_refused(run, tmp_path) -> None:
    folder, _, _ = run
    agent = load_agent(folder / "best.safetensors")
    with torch.no_grad():
        next(agent.policy.parameters()).fill_(math.nan)
    agent.save(tmp_path / "nan.safetensors")
    with pytest.raises(CheckpointError, match="not finite"):
        load_agent(tmp_path / "nan.safetensors")


def test_a_missing_checkpoint_says_what_makes_one(tmp_path) -> None:
    with pytest.raises(FileNotFoundError, match="`hloenv train pass-order` makes one"):
        load_agent(tmp_path / "none.safetensors")
    with pytest.raises(FileNotFoundError, match="`hloenv train cost-model` makes one"):
        load_cost_model(tmp_path / "none.safetensors")


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("resume.zip", b"", r"resume\.zip is damaged, or not of this run"),
        ("resume.zip", b"PK" * 80, r"resume\.zip is damaged, or not of this run"),
        ("resume.zip", None, r"lacks resume\.zip, without which"),
        ("curve.csv", b"\xff" * 90, "is not the curve of a run"),
        ("config.json", b"\xff" * 90, r"config\.json is damaged, no JSON"),
        ("config.json", b"[]", r"no configuration of such a run.*object of settings"),
        ("config.json", b'{"width": 3}', "another command of `hloenv train` may have"),
    ],
)
def test_a_damaged_run_is_one_line(run, tmp_path, name, data, message) -> None:
    folder, _, _ = run
    copied = tmp_path / "run"
    shutil.copytree(folder, copied)
    if data is None:
        (copied / name).unlink()
    else:
        (copied / name).write_bytes(data)
    with pytest.raises(ArgumentError, match=message) as error:
        train(TrainConfig.of_run(copied), copied, resume=True)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("cut", [0, 4, 100, -1])
def test_damaged_checkpoints_are_errors(run, tmp_path, cut) -> None:
    folder, _, _ = run
    data = (folder / "best.safetensors").read_bytes()
    path = tmp_path / "damaged.safetensors"
    path.write_bytes(data[:cut])
    with pytest.raises(CheckpointError, match="is no checkpoint of an agent"):
        load_agent(path)


def test_checkpoints_of_other_actions_or_versions_are_errors(
    run, tmp_path, monkeypatch
) -> None:
    _, agent, _ = run
    path = tmp_path / "agent.safetensors"
    with monkeypatch.context() as patched:
        patched.setattr(PassOrderEnv, "action_name", lambda _, number: f"gone{number}")
        agent.save(path)
    with pytest.raises(CheckpointError, match=r"gone gone0, .*; new algsimp, call-inl"):
        load_agent(path)
    monkeypatch.setattr("hloenv.learn.agent._FORMAT", 99)
    agent.save(path)
    monkeypatch.undo()
    with pytest.raises(CheckpointError, match="format 99, this version reads 1"):
        load_agent(path)
    with monkeypatch.context() as patched:
        patched.setattr("hloenv.learn.agent.opcodes", lambda: ("gone", *opcodes()[1:]))
        agent.save(path)
    with pytest.raises(CheckpointError, match=r"observes other opcodes.*gone gone"):
        load_agent(path)
    wider = dataclasses.replace(agent.config, network=(17,))
    Agent(wider, agent.policy, {}).save(path)
    with pytest.raises(CheckpointError, match="is no checkpoint"):
        load_agent(path)
    with pytest.raises(FileNotFoundError):
        load_agent(tmp_path / "nothing")


def test_a_full_disk_keeps_the_earlier_checkpoint(run, tmp_path, monkeypatch) -> None:
    from pathlib import Path

    _, agent, _ = run
    path = tmp_path / "agent.safetensors"
    agent.save(path)
    before = path.read_bytes()

    def fails(self, data) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", fails)
    with pytest.raises(OSError, match="No space left"):
        agent.save(path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]
