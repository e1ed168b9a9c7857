# SPDX-License-Identifier: Apache-2.0
"""Training of policies of rewrites: demonstrations, imitation, PPO, files, workers."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch

from hloenv.cost.base import Estimate
from hloenv.envs import RewriteAllEnv, RewriteEnv
from hloenv.errors import ArgumentError, HloEnvError, WorkerError
from hloenv.learn import imitation, rewrite_training, run_state
from hloenv.learn.agent import CheckpointError
from hloenv.learn.curve import read_curve
from hloenv.learn.gnn import load_gnn
from hloenv.learn.networks import RewriteNetwork
from hloenv.learn.rewrite_config import RewriteConfig
from hloenv.learn.rewrite_evaluation import Validation
from hloenv.learn.rewrite_training import train_rewrite
from hloenv.learn.run_setup import drawn, halves
from hloenv.learn.substitution_imitation import read_walks
from hloenv.learn.workers import run_tasks
from hloenv.policies import get_policy
from learn.worker_tasks import double_or_die, touch

pytestmark = pytest.mark.needs("torch_geometric", "safetensors", "tensorboard")

TINY = RewriteConfig(
    train="hloenv://dataset/train?max_instructions=30",
    validation="hloenv://dataset/validation?max_instructions=30",
    estimator="roofline",
    demonstrations=3,
    estimates=6,
    imitation_epochs=3,
    steps=16,
    evaluate_every=8,
    num_envs=2,
    max_validation=2,
    width=8,
    rounds=1,
    ppo={"num_steps": 4, "minibatch_size": 8, "num_epochs": 1},
)


def varied(**changes) -> RewriteConfig:
    return dataclasses.replace(TINY, **changes)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run, and what it reported."""
    folder = tmp_path_factory.mktemp("run") / "made"
    reports = []
    model = train_rewrite(TINY, folder, report=reports.append)
    return folder, model, reports


def weights(path):
    return load_gnn(path).network.state_dict()


def test_a_run_leaves_its_files_and_reports_each_phase(run) -> None:
    folder, model, reports = run
    assert {each.phase for each in reports} == {"demonstrations", "imitation", "ppo"}
    assert reports[-1].step == TINY.total
    assert model.notes["config"] == TINY.to_dict()
    found = json.loads((folder / "report.json").read_text())
    assert {"gnn", "random", "fewest-ops"} <= set(found["policies"])
    # On modules that did not choose the best checkpoint.
    uris = drawn(TINY.validation, TINY.max_validation, seed=0)
    chosen, reported = halves(uris)
    assert found["modules"] == reported
    assert not set(chosen) & set(reported)
    # Imitation's last pass, its best network, and PPO's two evaluations.
    steps = [int(row["step"]) for row in read_curve(folder / "curve.csv")]
    assert steps == [6, 6, 14, 22]
    assert list((folder / "tensorboard").iterdir())


def test_the_same_seed_gives_the_same_policy(run, tmp_path) -> None:
    folder, *_ = run
    train_rewrite(TINY, tmp_path / "again")
    first, second = (
        weights(f / "last.safetensors") for f in (folder, tmp_path / "again")
    )
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_a_killed_run_resumes(tmp_path, monkeypatch) -> None:
    class Killed(BaseException):
        pass

    kept = rewrite_training._Run.checkpoint
    calls = []

    def checkpoint(self):
        kept(self)
        calls.append(self.phase)
        if len(calls) == 2:
            raise Killed

    monkeypatch.setattr(rewrite_training._Run, "checkpoint", checkpoint)
    with pytest.raises(Killed):
        train_rewrite(TINY, tmp_path / "run")
    searched = []
    monkeypatch.setattr(imitation, "demonstrate", searched.append)
    assert RewriteConfig.of_run(tmp_path / "run") == TINY
    model = train_rewrite(TINY, tmp_path / "run", resume=True)
    assert searched == []
    assert calls == ["imitation", "ppo", "ppo"]
    assert model.notes["step"] <= TINY.total
    again = train_rewrite(TINY, tmp_path / "run", resume=True)
    assert again.notes == model.notes


def test_the_best_policy_is_kept_after_a_crash_in_a_checkpoint(
    tmp_path, monkeypatch
) -> None:
    class Killed(BaseException):
        pass

    scores = iter([1.0, 1.0, 2.0, 1.5, *[1.2] * 20])
    monkeypatch.setattr(rewrite_training._Run, "evaluate", lambda _: next(scores))
    save, calls = run_state.save, []

    def killed(*arguments):
        calls.append(0)
        if len(calls) == 2:
            raise Killed
        save(*arguments)

    monkeypatch.setattr(run_state, "save", killed)
    with pytest.raises(Killed):
        train_rewrite(TINY, tmp_path)
    model = train_rewrite(TINY, tmp_path, resume=True)
    assert model.notes["validation_score"] == 2.0


def test_the_best_network_of_imitation_goes_on(tmp_path, monkeypatch) -> None:
    found = []

    def evaluate(self):
        found.append({k: v.clone() for k, v in self.network.state_dict().items()})
        return [1.1, 1.4, 1.3, 1.2][min(len(found), 4) - 1]

    monkeypatch.setattr(rewrite_training._Run, "evaluate", evaluate)
    config = varied(imitation_epochs=5, evaluate_passes=2, steps=0)
    train_rewrite(config, tmp_path)
    last = weights(tmp_path / "last.safetensors")
    assert len(found) == 4  # passes 2, 4 and 5, and the network that goes on
    assert all(torch.equal(last[name], found[1][name]) for name in last)
    assert not all(torch.equal(last[name], found[2][name]) for name in last)


@pytest.mark.parametrize("mode", ["all", "one"])
def test_features_are_normalized_without_demonstrations(tmp_path, mode) -> None:
    config = varied(mode=mode, demonstrations=0, imitation_epochs=0, steps=0)
    network = train_rewrite(config, tmp_path).network
    assert not bool((network.node_scale == 1).all())
    assert not bool((network.row_mean == 0).all())


def test_folders_and_configurations_are_checked(run, tmp_path) -> None:
    folder, *_ = run
    with pytest.raises(ArgumentError, match="has a run already"):
        train_rewrite(TINY, folder)
    with pytest.raises(ArgumentError, match="width 8, not"):
        train_rewrite(varied(width=16), folder, resume=True)
    with pytest.raises(ArgumentError, match="no run to resume"):
        train_rewrite(TINY, tmp_path / "nothing", resume=True)
    with pytest.raises(ArgumentError, match="no setting 'speed'"):
        train_rewrite(varied(ppo={"speed": 1}), tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_a_damaged_state_is_refused(run, tmp_path) -> None:
    folder, *_ = run
    for name in ("config.json", "demonstrations.jsonl"):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    (tmp_path / "resume.safetensors").write_bytes(b"x" * 40)
    with pytest.raises(CheckpointError, match="cannot be resumed"):
        train_rewrite(TINY, tmp_path, resume=True)


def test_a_demonstration_that_is_cut_is_searched_again(
    run, tmp_path, monkeypatch
) -> None:
    folder, *_ = run
    (tmp_path / "config.json").write_bytes((folder / "config.json").read_bytes())
    whole = (folder / "demonstrations.jsonl").read_bytes()
    path = tmp_path / "demonstrations.jsonl"
    path.write_bytes(whole[:-20])
    searched, demonstrate = [], imitation.demonstrate

    def counted(task):
        searched.append(task.uri)
        return demonstrate(task)

    monkeypatch.setattr(imitation, "demonstrate", counted)
    train_rewrite(TINY, tmp_path, resume=True)
    assert searched == [json.loads(whole.splitlines()[-1])["uri"]]
    assert path.read_bytes() == whole


def test_demonstrations_of_another_version_are_named(run, tmp_path) -> None:
    folder, *_ = run
    (tmp_path / "config.json").write_bytes((folder / "config.json").read_bytes())
    found = imitation.read_demonstrations(folder / "demonstrations.jsonl")
    others = [
        dataclasses.replace(
            each,
            decisions=tuple((*row, 0) for row in each.decisions),
            relevant=tuple((*row, False) for row in each.relevant),
        )
        for each in found.values()
    ]
    imitation.write_demonstrations(tmp_path / "demonstrations.jsonl", others)
    with pytest.raises(ArgumentError, match=r"another version.*delete its file"):
        train_rewrite(TINY, tmp_path, resume=True)


@pytest.mark.parametrize(
    "damage", [b'{"uri": "x"', b"\xff", b"[]", b'{"uri": "x"}', b"", b"3"]
)
def test_damaged_demonstrations_are_named(run, tmp_path, damage) -> None:
    folder, *_ = run
    whole = (folder / "demonstrations.jsonl").read_bytes()
    path = tmp_path / "demonstrations.jsonl"
    path.write_bytes(damage + b"\n" + whole)
    for read in (imitation.read_demonstrations, read_walks):
        with pytest.raises(CheckpointError, match=f"line 1 of {path} is damaged"):
            read(path)


@pytest.mark.parametrize(
    "values",
    [
        {"mode": "some"},
        {"space": "live"},
        {"steps": -1},
        {"workers": 0},
        {"imitation_rate": 0.0},
        {"imitation_rate": float("inf")},
        {"imitation_rate": float("nan")},
        {"device": "tpu"},
        {"estimates": 0},
    ],
)
def test_settings_out_of_range_are_refused(values) -> None:
    with pytest.raises(ArgumentError, match=next(iter(values))):
        varied(**values)


def test_settings_are_read_from_toml(tmp_path) -> None:
    path = tmp_path / "a.toml"
    path.write_text('mode = "one"\nimitation_rate = 1\n[ppo]\nclip = 0.1\n')
    config = RewriteConfig.read(path)
    assert (config.mode, config.ppo) == ("one", {"clip": 0.1})
    assert isinstance(config.make_env(), RewriteEnv)
    path.write_text("no_such = 1")
    with pytest.raises(ArgumentError, match="no_such"):
        RewriteConfig.read(path)


def test_one_after_the_other_is_trained_too(tmp_path) -> None:
    model = train_rewrite(varied(mode="one", max_steps=6, steps=8), tmp_path / "run")
    assert not model.is_joint


@pytest.mark.parametrize("make", [RewriteAllEnv, RewriteEnv])
def test_imitation_learns_what_was_shown(make) -> None:
    uri = TINY.train
    env = make(uri, observation="alternatives", space="algsimp")
    rng = np.random.default_rng(0)
    examples = []
    for benchmark in list(env.benchmarks)[:12]:
        env.reset(options={"benchmark": benchmark.uri})
        if not len(env.decisions):
            continue
        # Nothing is ever rewritten.
        decisions = (tuple([0] * len(env.decisions)),)
        relevant = (tuple([True] * len(env.decisions)),)
        shown = imitation.Demonstration(benchmark.uri, decisions, relevant, 1.0)
        examples += imitation.examples_of(env, shown, rng)
    assert len(examples) > 3
    torch.manual_seed(0)
    network = RewriteNetwork(16, 1)
    network.normalize([each.observation for each in examples])
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-2)
    generator = torch.Generator().manual_seed(0)
    losses = [
        imitation.imitate(network, examples, optimizer=optimizer, generator=generator)
        for _ in range(30)
    ]
    assert losses[-1] < losses[0] / 2


def test_a_demonstration_that_does_not_fit_is_refused() -> None:
    env = RewriteAllEnv(TINY.train, observation="alternatives", space="fusion")
    uri = next(
        each.uri
        for each in env.benchmarks
        if env.reset(options={"benchmark": each.uri})[1]["alternatives"]
    )
    shown = imitation.Demonstration(uri, ((0,) * 999,), ((True,) * 999,), 1.0)
    with pytest.raises(ArgumentError, match="another version"):
        imitation.examples_of(env, shown, np.random.default_rng(0))


class Fails:
    """An estimator whose estimates are not numbers."""

    def estimate_many(self, modules):
        return [Estimate(float("nan"), error="no") for _ in modules]


def test_costs_that_are_not_numbers_are_left_out(run) -> None:
    folder, *_ = run
    uris = json.loads((folder / "report.json").read_text())["modules"]
    with pytest.raises(ArgumentError, match="can be estimated"):
        Validation(uris, "algsimp", Fails())

    class Once(Fails):
        """Only XLA's default has an estimate."""

        seen = 0

        def estimate_many(self, modules):
            self.seen += 1
            if self.seen > len(uris):
                return super().estimate_many(modules)
            return [Estimate(1.0) for _ in modules]

    score = Validation(uris, "algsimp", Once()).score(get_policy("keep-original"))
    assert score.speedups == (1.0,) * len(uris)
    assert score.failures == len(uris)


def test_tasks_of_a_lost_worker_run_again() -> None:
    answers = dict(run_tasks(double_or_die, [0, 1, 2, 3, 4], workers=2))
    assert isinstance(answers.pop(3), WorkerError)
    assert isinstance(answers.pop(2), HloEnvError)
    assert answers == {0: 0, 1: 2, 4: 8}


def test_tasks_that_wait_do_not_run_after_an_error(tmp_path) -> None:
    answers = run_tasks(touch, [str(tmp_path / str(i)) for i in range(50)], workers=2)
    next(answers)
    answers.close()
    assert len(list(tmp_path.iterdir())) < 10


def test_workers_end_with_a_process_that_is_killed(tmp_path) -> None:
    script = """
import sys
from learn.worker_tasks import touch
from hloenv.learn.workers import run_tasks
if __name__ == "__main__":
    paths = [f"{sys.argv[1]}/{i}" for i in range(1000)]
    for _, pid in run_tasks(touch, paths, workers=2):
        print(pid, flush=True)
"""
    file = tmp_path / "script.py"
    file.write_text(script)
    tests = str(Path(__file__).resolve().parent.parent)
    with subprocess.Popen(
        [sys.executable, str(file), str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "PYTHONPATH": tests},
    ) as process:
        worker = int(process.stdout.readline())
        process.kill()
    deadline = time.monotonic() + 20
    while _is_alive(worker) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not _is_alive(worker)


def _is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def test_tasks_run_here_in_order() -> None:
    assert list(run_tasks(abs, [3, -2])) == [(0, 3), (1, 2)]
    with pytest.raises(ArgumentError, match="workers"):
        list(run_tasks(abs, [1], workers=0))
