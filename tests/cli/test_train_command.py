# SPDX-License-Identifier: Apache-2.0
"""hloenv train, and --policy pass-order."""

from __future__ import annotations

import json

import pytest

from envs.modules import SMALL
from hloenv import HloModule, run_passes

pytestmark = pytest.mark.needs(
    "gymnasium", "stable_baselines3", "sb3_contrib", "safetensors"
)

_CONFIG = """
train = "hloenv://dataset/train?max_instructions=40"
validation = "hloenv://dataset/validation?max_instructions=40"
passes = ["algsimp", "cse", "dce"]
max_steps = 4
steps = 32
num_envs = 2
network = [8]
evaluate_every = 16
max_validation = 2
[arguments]
n_steps = 8
batch_size = 16
"""


def test_an_agent_is_trained_resumed_and_used(run, tmp_path) -> None:
    config, folder = tmp_path / "a.toml", tmp_path / "run"
    config.write_text(_CONFIG)
    words = ("train", "pass-order", str(config), "-o", str(folder))
    code, out, err = run(*words)
    assert code == 0, err
    best = folder / "best.safetensors"
    assert f"wrote {best}" in out
    assert "of 32 steps: return" in err
    assert "0:00:00 left" in err
    picture = folder / "curve.png"
    assert picture.exists() == (f"wrote {picture}" in out)
    code, out, err = run(*words)
    assert code == 1
    assert "has a run already; resume it, or give another folder" in err
    code, out, err = run(*words, "--resume", "--steps", "48", "--json")
    assert code == 0, err
    made = json.loads(out)
    assert made["config"]["steps"] == 48
    # The folder knows the configuration.
    code, out, err = run("train", "pass-order", "-o", str(folder), "--resume", "--json")
    assert code == 0, err
    assert json.loads(out)["config"] == made["config"]
    assert made["agent"] == str(best)

    module = tmp_path / "small.hlo"
    module.write_text(SMALL)
    code, out, err = run("optimize", str(module), "--policy", f"pass-order:{best}")
    assert code == 0, err
    assert f"pass-order:{best}" in out
    decided = tmp_path / "decided.hlo"
    words = ("optimize", str(module), "--policy", "pass-order", "-o", str(decided))
    code, out, err = run(*words, "--force", "--json")
    assert code == 0, err
    fingerprint = json.loads(out)["fingerprint"]
    assert HloModule.from_file(decided).fingerprint() == fingerprint
    assert fingerprint != HloModule.from_text(SMALL).fingerprint()


def test_an_agents_module_has_no_dead_code(run, tmp_path) -> None:
    """As in the environment that the agent plays in."""
    module, decided = tmp_path / "dead.hlo", tmp_path / "decided.hlo"
    module.write_text(SMALL.replace("  one =", "  dead = f32[4] negate(x)\n  one ="))
    words = ("optimize", str(module), "--policy", "pass-order", "-o", str(decided))
    code, _, err = run(*words, "--force", "--json")
    assert code == 0, err
    made = HloModule.from_file(decided)
    clean = run_passes(made, "dce").module
    assert made.instruction_count == clean.instruction_count
    assert "negate" not in made.to_text()


@pytest.mark.needs("matplotlib")
def test_the_curve_is_drawn_after_ctrl_c_too(monkeypatch, run, tmp_path):
    folder = tmp_path / "run"

    def train(config, output, **_):
        folder.mkdir()
        (folder / "curve.csv").write_text("step,score,seconds\n0,1.0,1\n9,0.5,2\n")
        raise KeyboardInterrupt

    monkeypatch.setattr("hloenv.learn.training.train", train)
    assert run("train", "pass-order", "-o", str(folder))[0] == 130
    assert (folder / "curve.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--policy", "pass-order:nothing"), "nothing"),
        (
            ("--policy", "pass-order", "--pass", "cse"),
            "leave --pass, --until and --rounds out",
        ),
    ],
)
def test_wrong_agents_are_one_line(run, tmp_path, words, message) -> None:
    module = tmp_path / "small.hlo"
    module.write_text(SMALL)
    code, _, err = run("optimize", str(module), *words)
    assert code == 1
    assert message in err.splitlines()[-1]


def test_a_wrong_configuration_is_one_line(run, tmp_path) -> None:
    config, folder = tmp_path / "a.toml", tmp_path / "run"
    words = ("train", "pass-order", str(config), "-o", str(folder))
    for wrong, message in (
        ("step = 3", f"{config}: no setting is named 'step'"),
        ('train = "hloenv://nowhere"', "no benchmarks are at 'hloenv://nowhere'"),
        ("[arguments]\nlearning_rat = 1.0", "has no argument 'learning_rat'; it has"),
        ("[arguments]\nseed = 1", "has no argument 'seed'"),
        ("seed = -1", "seed must be >= 0"),
        ("steps = '\x80'".encode("latin-1"), f"{config}: this is not text: byte 0x80"),
    ):
        config.write_bytes(wrong if isinstance(wrong, bytes) else wrong.encode())
        code, _, err = run(*words)
        assert code == 1
        assert message in err
        assert not folder.exists()  # the next try is not refused
    code, _, err = run("train", "pass-order", "-o", str(folder), "--resume")
    assert code == 1
    assert "has no run to resume" in err
