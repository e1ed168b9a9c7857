# SPDX-License-Identifier: Apache-2.0
"""hloenv train rewrite, and --policy gnn."""

from __future__ import annotations

import json

import pytest

from envs.modules import SMALL

pytestmark = pytest.mark.needs("gymnasium", "torch_geometric", "safetensors")

_CONFIG = """
train = "hloenv://dataset/train?max_instructions=30"
validation = "hloenv://dataset/validation?max_instructions=30"
estimator = "roofline"
demonstrations = 2
estimates = 4
imitation_epochs = 2
steps = 8
evaluate_every = 8
num_envs = 2
max_validation = 2
width = 8
rounds = 1
[ppo]
num_steps = 4
"""


def test_a_policy_is_trained_resumed_and_used(run, tmp_path) -> None:
    config, folder = tmp_path / "a.toml", tmp_path / "run"
    config.write_text(_CONFIG)
    words = ("train", "rewrite", str(config), "-o", str(folder))
    code, out, err = run(*words)
    assert code == 0, err
    best = folder / "best.safetensors"
    assert f"wrote {best}; on 1 validation modules" in out
    assert "of 12 steps: ppo, return" in err
    code, _, err = run(*words)
    assert code == 1
    assert "has a run already; resume it, or give another folder" in err
    code, out, err = run(
        *("train", "rewrite", "-o", str(folder), "--resume", "--steps", "16", "--json")
    )
    assert code == 0, err
    made = json.loads(out)
    assert made["config"]["steps"] == 16
    assert made["policy"] == str(best)
    assert {"xla", "random", "gnn"} <= set(made["validation"])

    module = tmp_path / "small.hlo"
    module.write_text(SMALL)
    code, out, err = run("optimize", str(module), "--policy", f"gnn:{best}")
    assert code == 0, err
    assert f"gnn:{best}" in out
    words = (
        "search",
        str(module),
        "--policy",
        f"gnn:{best}",
        "--estimator",
        "roofline",
    )
    code, out, err = run(*words, "--estimates", "3", "--measurements", "1", "--json")
    assert code == 0, err
    assert json.loads(out)["search"] == f"policy:gnn:{best}"


@pytest.mark.parametrize("kind", ["rewrite", "substitution"])
def test_a_run_of_no_steps_gives_the_untrained_network(run, tmp_path, kind) -> None:
    config, folder = tmp_path / "a.toml", tmp_path / "run"
    module = tmp_path / "small.hlo"
    module.write_text(SMALL)
    uri = f"hloenv://file/{module}"
    config.write_text(
        f'train = "{uri}"\nvalidation = "{uri}"\nestimator = "roofline"\n'
        "demonstrations = 0\nimitation_epochs = 0\nsteps = 0\nwidth = 8\n"
    )
    code, out, err = run("train", kind, str(config), "-o", str(folder))
    assert code == 0, err
    assert "0 of 0 steps" in err
    assert f"wrote {folder / 'best.safetensors'}" in out


def test_policies_that_are_not_there_are_one_line(run, tmp_path) -> None:
    module, other = tmp_path / "small.hlo", tmp_path / "other.safetensors"
    module.write_text(SMALL)
    other.write_bytes(b"no weights")
    for command in ("optimize", "search"):
        code, _, err = run(command, str(module), "--policy", f"gnn:{other}")
        assert code != 0
        assert "is no checkpoint of hloenv train rewrite" in err
    code, _, err = run("optimize", str(module), "--policy", f"gnn:{tmp_path / 'no'}")
    assert code != 0
    assert "`hloenv train rewrite` makes one" in err


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ("step = 3", "no setting is named 'step'"),
        ('space = "live"', "has no decision points"),
        ('train = "hloenv://nowhere"', "no benchmarks are at 'hloenv://nowhere'"),
        ("[ppo]\nspeed = 1.0", "ppo has no setting 'speed'; it has"),
        ('[ppo]\nclip = "much"', "clip must be >= 0, got 'much'"),
        ('estimator = "crystal-ball"', "no estimator is named 'crystal-ball'"),
    ],
)
def test_a_wrong_configuration_is_one_line(run, tmp_path, wrong, message) -> None:
    config, folder = tmp_path / "a.toml", tmp_path / "run"
    config.write_text(wrong)
    code, _, err = run("train", "rewrite", str(config), "-o", str(folder))
    assert code == 1
    assert message in err
    assert not folder.exists()  # the next try is not refused


def test_a_small_run_takes_no_configuration(run, tmp_path) -> None:
    folder = str(tmp_path / "run")
    code, _, err = run("train", "rewrite", "a.toml", "--small", "-o", folder)
    assert code == 1
    assert "--small is a configuration" in err
