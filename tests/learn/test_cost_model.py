# SPDX-License-Identifier: Apache-2.0
"""Training of the learned cost model: data, training, resuming, the command."""

from __future__ import annotations

import dataclasses
import json
import shutil

import numpy as np
import pytest

from hloenv.cli import main
from hloenv.cost import KernelCache, KernelSplit
from hloenv.errors import ArgumentError, DatasetError
from hloenv.graph.hlo_graph import HloGraph
from hloenv.measurement.config import Settings
from hloenv.measurement.measurer import Measurer
from hloenv.measurement.store import Store

pytestmark = [
    pytest.mark.learn,
    pytest.mark.needs("gymnasium", "pyarrow", "safetensors"),
]

_SIZES = "?min_instructions=12&max_instructions=30"


def config(**changes):
    from hloenv.learn.cost_model import CostModelConfig

    settings = {
        "train": f"hloenv://dataset/train{_SIZES}",
        "validation": f"hloenv://dataset/validation{_SIZES}",
        "max_modules": 16,
        "max_validation": 10,
        "variants": 6,
        "steps": 6,
        "evaluate_every": 3,
        "members": 3,
        "width": 16,
        "rounds": 2,
        "modules_per_step": 3,
        "kernels_per_step": 16,
    }
    return CostModelConfig(**{**settings, **changes})


def times(self, split: KernelSplit, kernels=None):
    """In place of timing: what a kernel costs by a rule that no estimate knows."""
    wanted = range(len(split)) if kernels is None else kernels
    found = []
    for i in wanted:
        graph = HloGraph.from_module(split.extract([i]))
        elements = graph.element_count[~graph.is_parameter].sum()
        found.append(2e-8 + 1e-9 * elements + 4e-9 * graph.transcendentals.sum())
        self.num_timed += 1
    return found


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Of `config()`."""
    from hloenv.learn.cost_model import make_data

    folder = tmp_path_factory.mktemp("data")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(KernelCache, "times", times)
        make_data(config(), folder)
    return folder


@pytest.fixture(autouse=True)
def one_thread():
    """The graphs are small; threads of a loaded machine wait for each other."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def fake_times(monkeypatch):
    monkeypatch.setattr(KernelCache, "times", times)


def contents(folder):
    """By file; without the kernels' protos, which have numbers of the process."""
    from hloenv.learn.cost_model import read_shard

    found = {}
    for path in sorted(folder.rglob("*.npz")):
        fields = vars(read_shard(path)).items()
        shard = {key: value for key, value in fields if key != "modules"}
        found[path.name] = {
            key: np.array(value).tobytes() for key, value in shard.items()
        }
    return found


# --- data


def test_the_variants_of_a_module_differ_and_come_first_with_the_default(data) -> None:
    from hloenv.learn.cost_model import read_data

    shards = read_data(data, "train")
    assert len(shards) == 16
    for shard in shards:
        assert shard.spaces[0] == "xla-default"
        assert 1 <= shard.num_variants <= 6
        assert len(set(shard.fingerprints)) == len(shard.fingerprints)
        total = shard.total_s(shard.kernel_s)
        assert np.isfinite(total).all()
        assert (total > 0).all()
    assert sum(shard.num_variants for shard in shards) > 24
    # The splits are of different repositories.
    others = {shard.source for shard in read_data(data, "validation")}
    assert not others & {shard.source for shard in shards}


def test_interrupted_data_go_on_to_the_same_files(data, tmp_path, fake_times) -> None:
    from hloenv.learn.cost_model import make_data

    small = config(max_modules=2, max_validation=1)
    done = []

    def stop(made) -> None:
        done.append(made)
        if len(done) == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        make_data(small, tmp_path, report=stop)
    first = contents(tmp_path)
    assert len(first) == 1
    make_data(small, tmp_path, report=done.append)
    assert [each.step for each in done] == [1, 1, 2, 3]
    assert done[1].kernels == 0  # not again
    found = contents(tmp_path)
    assert len(found) == 3
    everything = contents(data)
    assert {name: everything[name] for name in found} == found


def test_data_of_other_settings_are_not_mixed(data, fake_times) -> None:
    from hloenv.learn.cost_model import make_data

    with pytest.raises(ArgumentError, match="have variants 6, not 7"):
        make_data(config(variants=7), data)


def test_damaged_data_are_an_error(data, tmp_path) -> None:
    from hloenv.learn.cost_model import read_data, read_shard

    path = next(iter((data / "train").glob("*.npz")))
    damaged = tmp_path / "train" / path.name
    damaged.parent.mkdir()
    damaged.write_bytes(path.read_bytes()[:-300])
    with pytest.raises(DatasetError, match="no file of training data"):
        read_shard(damaged)
    with np.load(path) as file:
        arrays = dict(file)
    np.savez(damaged, **{**arrays, "use_kernel": arrays["use_kernel"] + 10_000})
    with pytest.raises(DatasetError, match="do not fit"):
        read_shard(damaged)
    np.savez(damaged, **{**arrays, "kernel_s": np.array([None])})
    with pytest.raises(DatasetError, match="no file of training data"):
        read_shard(damaged)
    with pytest.raises(ArgumentError, match="has no data of validation"):
        read_data(tmp_path, "validation")


@pytest.mark.compile
def test_measured_times_come_from_the_store(tmp_path, fake_times) -> None:
    from hloenv.learn.cost_model import make_data, read_data
    from hloenv.learn.cost_model.data import draw_benchmarks

    small = config(max_modules=1, variants=1)
    (benchmark,) = draw_benchmarks(small.train, 1, seed=0)
    module = benchmark.load()
    with Store(tmp_path / "store.sqlite") as store:
        with Measurer(Settings(repeats=4, seconds=0.1), store=store) as measurer:
            (measured,) = measurer.measure([module], baseline=module)
        splits = [("train", small.train, 1)]
        make_data(small, tmp_path / "data", splits=splits, store=store)
    (shard,) = read_data(tmp_path / "data", "train")
    ratio = measured.median_ns / measured.baseline_median_ns
    assert shard.measured.tolist() == pytest.approx([ratio])


# --- training


def test_training_lowers_the_loss_and_ranks_unseen_modules(data, tmp_path) -> None:
    from hloenv.learn.cost_model import train

    given = config(steps=60, evaluate_every=20, learning_rate=5e-3)
    model = train(given, data, tmp_path / "run")
    rows = (tmp_path / "run" / "curve.csv").read_text().splitlines()[1:]
    losses = [float(row.split(",")[1]) for row in rows[1:]]  # none before the first
    assert losses[-1] < 0.7 * losses[0]
    # By chance 0; the modules are of repositories that training has not seen.
    assert model.notes["validation"]["kendall"] > 0.25
    assert model.notes["validation"]["spearman"] > 0.25


def test_kernels_below_the_clocks_resolution_are_trained_on(data, tmp_path) -> None:
    from hloenv.learn.cost_model import train
    from hloenv.learn.cost_model.shards import read_shard, write_shard

    own = shutil.copytree(data, tmp_path / "data")
    for path in own.rglob("*.npz"):
        shard = read_shard(path)
        # A variant without any time, as of a module of a few numbers.
        used = shard.use_kernel[shard.use_variant == 1]
        kernel_s = shard.kernel_s.copy()
        kernel_s[used] = 0.0
        overhead_s = np.where(np.arange(shard.num_variants) == 1, 0, shard.overhead_s)
        write_shard(
            path, dataclasses.replace(shard, kernel_s=kernel_s, overhead_s=overhead_s)
        )
    train(config(), own, tmp_path / "run")
    rows = (tmp_path / "run" / "curve.csv").read_text().splitlines()[1:]
    losses = [float(row.split(",")[1]) for row in rows]
    assert np.isfinite(losses[1:]).all()


def test_a_resumed_run_ends_as_an_uninterrupted_one(data, tmp_path) -> None:
    from hloenv.learn.cost_model import train

    def stop(progress) -> None:
        if progress.step == 4:
            raise KeyboardInterrupt

    train(config(), data, tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        train(config(), data, tmp_path / "parts", report=stop)
    train(config(), data, tmp_path / "parts", resume=True)
    for name in ("best.safetensors", "last.safetensors"):
        whole, parts = ((tmp_path / each / name) for each in ("whole", "parts"))
        assert whole.read_bytes() == parts.read_bytes(), name
    train(config(seed=1), data, tmp_path / "other")
    other = (tmp_path / "other" / "last.safetensors").read_bytes()
    assert other != (tmp_path / "whole" / "last.safetensors").read_bytes()


@pytest.mark.parametrize("damage", [b"", b"\xff" * 40, b"PK" * 80, b"3", b"[]"])
def test_a_damaged_run_is_one_line(data, tmp_path, damage) -> None:
    from hloenv.learn.cost_model import train
    from hloenv.learn.cost_model.training import data_of_run

    folder = tmp_path / "run"
    settings = config(steps=2)
    train(settings, data, folder)
    (folder / "resume.pt").write_bytes(damage)
    with pytest.raises(ArgumentError, match="is damaged, or not of this run") as error:
        train(settings, data, folder, resume=True)
    assert "weights_only" not in str(error.value)
    (folder / "data_folder.json").write_bytes(damage)
    with pytest.raises(ArgumentError, match="name that folder with --data"):
        data_of_run(folder)


def test_attention_is_trained_with_the_rest(data, tmp_path) -> None:
    from hloenv.cost.learned.estimator import LearnedCost
    from hloenv.learn.cost_model import train
    from hloenv.learn.cost_model.data import draw_benchmarks

    given = config(has_attention=True, members=1)
    model = train(given, data, tmp_path / "run")
    weights = [each.last.weight.abs().max() for each in model.ensemble.attentions]
    assert len(weights) == 1
    last = LearnedCost(tmp_path / "run" / "last.safetensors")
    assert last.model.ensemble.attentions[0].last.weight.abs().max() > 0
    (benchmark,) = draw_benchmarks(given.train, 1, seed=0)
    assert last.estimate_many([benchmark.load()])[0].is_ok


def test_wrong_settings_are_errors(data, tmp_path) -> None:
    from hloenv.learn.cost_model import train

    for changes, message in (
        ({"members": 0}, "members must be >= 1, got 0"),
        ({"learning_rate": 0.0}, "learning_rate must be between 0 and 1"),
        ({"dropout": 1.0}, "dropout must be at least 0 and below 1"),
        ({"width": 6}, "width must be a multiple of 4"),
        ({"measured": "some"}, "measured must be one of store, all, none"),
        ({"seed": -1}, "seed must be >= 0"),
        ({"ranking_weight": float("inf")}, "ranking_weight must be finite, got inf"),
    ):
        with pytest.raises(ArgumentError, match=message):
            config(**changes)
    with pytest.raises(ArgumentError, match="has no data of train"):
        train(config(), tmp_path / "nothing", tmp_path / "run")
    assert not (tmp_path / "run").exists()
    with pytest.raises(ArgumentError, match="has no run to resume"):
        train(config(), data, tmp_path / "run", resume=True)
    train(config(steps=1), data, tmp_path / "run")
    with pytest.raises(ArgumentError, match="has a run already"):
        train(config(steps=1), data, tmp_path / "run")
    with pytest.raises(ArgumentError, match="width 16, not 8"):
        train(config(width=8), data, tmp_path / "run", resume=True)
    (tmp_path / "run" / "resume.pt").write_bytes(b"nothing")
    with pytest.raises(ArgumentError, match="is damaged"):
        train(config(), data, tmp_path / "run", resume=True)


def test_a_run_takes_the_data_of_its_own_configuration(
    data, tmp_path, fake_times
) -> None:
    from hloenv.learn.cost_model import make_data, train

    folder = tmp_path / "data"
    shutil.copytree(data, folder)
    # Another run shares the folder: its training modules are our validation modules.
    make_data(config(train=config().validation, max_modules=3), folder)
    model = train(config(steps=1), folder, tmp_path / "run")
    assert model.notes["train_modules"] <= config().max_modules
    with pytest.raises(ArgumentError, match="in train and in validation"):
        train(config(train=config().validation), folder, tmp_path / "other")
    with pytest.raises(ArgumentError, match="has the data in"):
        train(config(steps=2), data, tmp_path / "run", resume=True)
    train(config(steps=2), folder, tmp_path / "run", resume=True)


def test_validation_modules_that_cannot_be_ranked_are_an_error(
    tmp_path, monkeypatch
) -> None:
    from hloenv.learn.cost_model import make_data, train

    def flat(self, split, kernels=None):
        return [1e-9] * len(range(len(split)) if kernels is None else kernels)

    monkeypatch.setattr(KernelCache, "times", flat)
    small = config(max_modules=2, max_validation=1, variants=3)
    make_data(small, tmp_path / "data")
    with pytest.raises(ArgumentError, match="no validation module"):
        train(small, tmp_path / "data", tmp_path / "run")
    assert not (tmp_path / "run").exists()


# --- the command


def test_the_command_makes_the_data_trains_and_resumes(
    data, tmp_path, fake_times, capsys
) -> None:
    def run(*argv: str) -> tuple[int, str, str]:
        code = main(argv)
        return code, *capsys.readouterr()

    path, folder = tmp_path / "a.toml", tmp_path / "run"
    given = dataclasses.replace(config(), steps=3).to_dict()
    path.write_text(
        "\n".join(f"{key} = {json.dumps(value)}" for key, value in given.items())
    )
    store = ("--store", str(tmp_path / "store.sqlite"))
    words = ("train", "cost-model", str(path), "-o", str(folder), "--data", str(data))
    code, out, err = run(*words, *store)
    assert code == 0, err
    assert f"wrote {folder / 'best.safetensors'}: after" in out
    assert "Kendall's tau is" in out
    assert "of 3 steps: loss" in err
    code, _, err = run(*words, *store)
    assert code == 1
    assert "has a run already" in err
    resumed = ("train", "cost-model", "-o", str(folder))
    code, out, err = run(*resumed, "--resume", "--steps", "4", "--json", *store)
    assert code == 0, err
    made = json.loads(out)
    assert made["config"]["steps"] == 4
    assert made["data"] == str(data)
    assert not (folder / "data").exists()
    assert made["left_out"] == {}
    assert set(made["validation"]) == {"kendall", "spearman", "slowdown"}
