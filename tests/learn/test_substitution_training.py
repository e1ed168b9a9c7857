# SPDX-License-Identifier: Apache-2.0
"""Training of agents that substitute: what they learn, their files, resuming."""

from __future__ import annotations

import dataclasses
import json
import math

import numpy as np
import pytest
import torch

import hloenv
from hloenv._checkpoints import read_checkpoint, write_checkpoint
from hloenv.cost.registry import get_estimator
from hloenv.envs import SubstitutionEnv
from hloenv.errors import ArgumentError, HloEnvError
from hloenv.hlo.python_passes import remove_pass
from hloenv.learn import substitution_training
from hloenv.learn.agent import CheckpointError
from hloenv.learn.substitution_agent import (
    SubstitutionAgent,
    load_substitution_agent,
    network_of,
)
from hloenv.learn.substitution_config import SubstitutionConfig
from hloenv.learn.substitution_imitation import (
    examples_of,
    read_walks,
    search,
    write_walks,
)
from hloenv.learn.substitution_training import train_substitution
from hloenv.substitution import greedy
from substitution.modules import sum_of_products

pytestmark = pytest.mark.needs("torch_geometric", "safetensors", "tensorboard")


@pytest.fixture(scope="module")
def config(tmp_path_factory) -> SubstitutionConfig:
    """A run of seconds on one module that substitutions improve."""
    path = tmp_path_factory.mktemp("modules") / "sum.hlo"
    path.write_text(sum_of_products().to_text())
    return SubstitutionConfig(
        train=f"hloenv://file/{path}",
        validation=f"hloenv://file/{path}",
        demonstrations=0,
        steps=384,
        max_steps=4,
        max_candidates=12,
        num_envs=4,
        width=16,
        rounds=1,
        evaluate_every=64,
        seed=3,
        ppo={"num_steps": 8, "minibatch_size": 16, "learning_rate": 5e-3},
    )


def short(config: SubstitutionConfig, **changes) -> SubstitutionConfig:
    return dataclasses.replace(config, steps=32, evaluate_every=32, **changes)


def same_weights(one, other) -> bool:
    ours, theirs = one.network.state_dict(), other.network.state_dict()
    return all(torch.equal(ours[name], theirs[name]) for name in ours)


def test_an_agent_learns_to_substitute(config, tmp_path):
    reports = []
    agent = train_substitution(config, tmp_path / "run", report=reports.append)
    found = agent.improve(sum_of_products(), get_estimator("operators"))
    assert found.speedup > 1.05
    assert found.path
    assert found.cost < found.start_cost
    assert reports[-1].best_score == pytest.approx(found.speedup)
    report = json.loads((tmp_path / "run" / "report.json").read_text())
    assert set(report["methods"]) == {"agent", "random", "greedy"}
    assert (tmp_path / "run" / "curve.csv").read_text().count("\n") > 2
    saved = load_substitution_agent(tmp_path / "run" / "best.safetensors")
    assert same_weights(agent, saved)
    assert saved.notes["validation"]["agent"] == pytest.approx(found.speedup)


@pytest.mark.parametrize("agent", ["shared", "xrlflow"])
def test_an_agent_imitates_greedy_search(config, agent, tmp_path):
    config = dataclasses.replace(
        config, agent=agent, demonstrations=6, imitation_rate=5e-3, steps=0
    )
    reports = []
    agent = train_substitution(config, tmp_path / "run", report=reports.append)
    phases = [each.phase for each in reports]
    assert phases == sorted(phases)
    assert set(phases) == {"demonstrations", "imitation"}
    assert [each.step for each in reports][:26] == list(range(1, 27))
    assert config.total == 26
    estimator = get_estimator("operators")
    found = agent.improve(sum_of_products(), estimator)
    best = greedy(sum_of_products(), estimator)
    assert found.speedup == pytest.approx(best.speedup)
    assert found.num_costs <= len(best.path) + 2 < best.num_costs
    alone = agent.improve(sum_of_products())
    assert alone.num_costs == 0
    assert math.isnan(alone.speedup)
    assert get_estimator("operators").estimate_many([alone.module])[0].seconds < (
        best.start_cost
    )


def test_an_agent_goes_back_to_no_module(config, monkeypatch):
    """Rules undo each other, and a network that knows nothing takes any."""
    seen = []
    step = SubstitutionEnv.step

    def watched(env, action):
        found = step(env, action)
        seen.append(env.module.fingerprint())
        return found

    monkeypatch.setattr(SubstitutionEnv, "step", watched)
    torch.manual_seed(0)
    config = dataclasses.replace(config, max_steps=30, agent="xrlflow")
    agent = SubstitutionAgent(network_of(config), config, {})
    with torch.no_grad():
        agent.network.policy[-1].bias[0] = -1e9  # never No-Op
    agent.improve(sum_of_products())
    # The last step may find nothing new, and end the episode.
    assert len(set(seen[:-1])) == len(seen) - 1 > 2


def test_demonstrations_that_are_there_are_not_searched_again(
    config, tmp_path, monkeypatch
):
    class StopError(Exception):
        pass

    def stop(progress):
        if progress.step == 2:
            raise StopError

    folder = tmp_path / "run"
    config = short(config, demonstrations=3)
    with pytest.raises(StopError):
        train_substitution(config, folder, report=stop)
    lines = (folder / "demonstrations.jsonl").read_text().splitlines()
    assert len(lines) == 2
    searches = []

    def counted(*args, **kwargs):
        searches.append(args)
        return search(*args, **kwargs)

    monkeypatch.setattr(substitution_training, "search", counted)
    agent = train_substitution(config, folder, resume=True)
    assert len(searches) == 1
    monkeypatch.undo()
    assert same_weights(agent, train_substitution(config, tmp_path / "whole"))


def test_a_search_that_is_cut_is_made_again(config, tmp_path):
    env, estimator = config.make_env(), get_estimator("operators")
    walk = search(env, config.train, estimator, np.random.default_rng(0))
    path = tmp_path / "demonstrations.jsonl"
    write_walks(path, [walk, walk])
    assert read_walks(path) == [walk, walk]
    path.write_bytes(path.read_bytes()[:-9])
    assert read_walks(path) == [walk]


def test_demonstrations_of_another_module(config, tmp_path):
    env = config.make_env()
    estimator = get_estimator("operators")
    walk = search(env, config.train, estimator, np.random.default_rng(0))
    assert len(examples_of(config.make_env(), walk, 0.9)) == len(walk.actions)
    other = dataclasses.replace(walk, right=((99,), *walk.right[1:]))
    with pytest.raises(ArgumentError, match="of another version"):
        examples_of(config.make_env(), other, 0.9)
    (tmp_path / "run").mkdir()
    write_walks(tmp_path / "run" / "demonstrations.jsonl", [other])
    with pytest.raises(ArgumentError, match=r"of another version.*delete its file"):
        train_substitution(short(config, demonstrations=1), tmp_path / "run")


def test_nothing_to_imitate(config, tmp_path):
    path = tmp_path / "plain.hlo"
    path.write_text("HloModule m\nENTRY e { ROOT x = f32[2] parameter(0) }\n")
    config = short(config, train=f"hloenv://file/{path}", demonstrations=2)
    with pytest.raises(ArgumentError, match="demonstrations = 0"):
        train_substitution(config, tmp_path / "run")


@pytest.mark.parametrize("demonstrations", [0, 3])
@pytest.mark.parametrize("agent", ["shared", "xrlflow"])
def test_a_seed_gives_the_same_agent(config, agent, demonstrations, tmp_path):
    config = short(config, agent=agent, demonstrations=demonstrations)
    runs = [train_substitution(config, tmp_path / name) for name in "ab"]
    assert same_weights(*runs)


def test_an_interrupted_run_resumes(config, tmp_path, monkeypatch):
    class StopError(Exception):
        pass

    def stop(progress):
        if progress.step >= 64:
            raise StopError

    folder = tmp_path / "run"
    config = dataclasses.replace(short(config), steps=96)
    with pytest.raises(StopError):
        train_substitution(config, folder, report=stop)
    assert SubstitutionConfig.of_run(folder) == config
    reports = []
    train_substitution(config, folder, resume=True, report=reports.append)
    assert reports[0].step > 32
    assert reports[-1].step == 96


def test_folders_that_do_not_fit(config, tmp_path):
    config = short(config)
    with pytest.raises(ArgumentError, match="no run to resume"):
        train_substitution(config, tmp_path / "none", resume=True)
    folder = tmp_path / "run"
    train_substitution(config, folder)
    with pytest.raises(ArgumentError, match="has a run already"):
        train_substitution(config, folder)
    with pytest.raises(ArgumentError, match="max_steps 4, not 5"):
        train_substitution(
            dataclasses.replace(config, max_steps=5), folder, resume=True
        )


def test_a_run_of_an_earlier_version_says_so(config, tmp_path):
    folder = tmp_path / "run"
    train_substitution(short(config), folder)
    path = folder / "resume.safetensors"
    described, tensors = read_checkpoint(path, "hloenv")
    del described["moments"]
    write_checkpoint(path, "hloenv", described, tensors)
    later = dataclasses.replace(short(config), steps=64)
    with pytest.raises(CheckpointError, match="earlier version"):
        train_substitution(later, folder, resume=True)


def test_a_run_resumes_with_a_lower_learning_rate(config, tmp_path):
    folder = tmp_path / "run"
    train_substitution(short(config), folder)
    lower = dataclasses.replace(
        short(config), steps=64, ppo=config.ppo | {"learning_rate": 1e-5}
    )
    steps = []
    train_substitution(
        lower, folder, resume=True, report=lambda each: steps.append(each.step)
    )
    assert steps[-1] == 64


def test_a_module_that_fails_counts_as_one(config, tmp_path, monkeypatch):
    def fail(*_, **__):
        raise HloEnvError("refused")

    monkeypatch.setattr(substitution_training, "greedy", fail)
    train_substitution(short(config), tmp_path / "run")
    report = json.loads((tmp_path / "run" / "report.json").read_text())
    assert report["methods"]["greedy"]["speedups"] == [1.0]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"agent": "other"}, "agent must be one of shared, xrlflow"),
        ({"steps": -1}, "steps must be >= 0"),
        ({"device": "tpu"}, "device must be"),
        ({"passes": ()}, "passes must name one"),
        ({"demonstrations": -1}, "demonstrations must be >= 0"),
        ({"imitation_rate": 0.0}, "imitation_rate must be > 0"),
        ({"imitation_rate": math.inf}, "imitation_rate must be finite, got inf"),
    ],
)
def test_settings_that_are_wrong(config, changes, message):
    with pytest.raises(ArgumentError, match=message):
        dataclasses.replace(config, **changes)


def test_an_agent_of_rules_in_python(config, tmp_path):
    """What `hloenv.rule` registers can be trained on, alone."""
    hloenv.rule(
        "own-factor",
        before="""
            ab = dot(a, b), $dims
            cb = dot(c, b), $dims
            ROOT r = add(ab, cb)
        """,
        after="""
            s = add(a, c)
            ROOT r = dot(s, b), $dims
        """,
        where=lambda match: match["a"].dims == match["c"].dims,
    )
    folder = tmp_path / "run"
    try:
        own = short(config, passes=("own-factor",))
        agent = train_substitution(own, folder)
        found = agent.improve(sum_of_products(), get_estimator("operators"))
        assert len(found.path) == 1
        report = json.loads((folder / "report.json").read_text())
        assert report["methods"]["greedy"]["speedup"] > 1
    finally:
        remove_pass("own-factor")
    with pytest.raises(CheckpointError, match=r"own-factor.*--import FILE"):
        load_substitution_agent(folder / "best.safetensors")


def test_checkpoints_that_are_none(config, tmp_path):
    path = tmp_path / "damaged.safetensors"
    path.write_bytes(b"nothing")
    with pytest.raises(CheckpointError, match="is no checkpoint of hloenv train"):
        load_substitution_agent(path)
    with pytest.raises(FileNotFoundError):
        load_substitution_agent(tmp_path / "none.safetensors")
    from hloenv.learn.gnn import DEFAULT_CHECKPOINT

    with pytest.raises(CheckpointError, match="'rewrite'"):
        load_substitution_agent(DEFAULT_CHECKPOINT)
