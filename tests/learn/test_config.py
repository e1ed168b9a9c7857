# SPDX-License-Identifier: Apache-2.0
"""Configurations of training runs."""

from __future__ import annotations

import dataclasses
import json

import pytest

from hloenv.errors import ArgumentError
from hloenv.learn import TrainConfig, list_algorithms
from hloenv.learn.config import FIXED_ORDER
from hloenv.learn.rewrite_config import RewriteConfig
from hloenv.learn.substitution_config import SubstitutionConfig


def test_a_file_sets_what_it_names(tmp_path) -> None:
    path = tmp_path / "a.toml"
    path.write_text(
        'algorithm = "ppo"\nsteps = 7\npasses = ["cse", "dce"]\n'
        "[arguments]\nlearning_rate = 1e-3\n"
    )
    config = TrainConfig.read(path)
    assert (config.algorithm, config.steps) == ("ppo", 7)
    assert config.passes == ("cse", "dce")
    assert config.arguments == {"learning_rate": 1e-3}
    assert config.max_steps == TrainConfig().max_steps
    again = TrainConfig.from_dict(json.loads(json.dumps(config.to_dict())))
    assert again == config


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("step = 3", "no setting is named 'step'; there are algorithm"),
        ("steps = 0", "steps must be >= 1, got 0"),
        ("steps = true", "steps must be int, got True"),
        ('steps = "many"', "steps must be int"),
        ("network = 64", "network must be a list, got 64"),
        ("network = [64, 0]", "network must be at most 16 widths"),
        ("passes = [3]", "passes must be str, got 3"),
        ('algorithm = "pop"', "no algorithm is named 'pop'.*Did you mean 'ppo'"),
        (
            'algorithm = "dqn"\ncritic_observation = "cost"',
            "dqn has no value function",
        ),
        ("steps 3", "a.toml: "),
    ],
)
def test_a_wrong_file_says_what_is_wrong(tmp_path, text, message) -> None:
    path = tmp_path / "a.toml"
    path.write_text(text)
    with pytest.raises(ArgumentError, match=message):
        TrainConfig.read(path)


def test_a_file_that_is_not_text_is_named(tmp_path) -> None:
    path = tmp_path / "a.toml"
    path.write_bytes(b"PK\x03\xff")
    with pytest.raises(ArgumentError, match=r"a\.toml: this is not text: byte 0xff"):
        TrainConfig.read(path)


@pytest.mark.parametrize(
    ("config", "values"),
    [
        (TrainConfig, {"reward": "estimate:FILE:Cost"}),
        (SubstitutionConfig, {"estimator": "FILE:Cost"}),
        (SubstitutionConfig, {"reward": "saved:FILE:Cost"}),
        (RewriteConfig, {"estimator": "FILE:Cost"}),
        (RewriteConfig, {"search": "FILE:Cost"}),
    ],
)
def test_a_configuration_runs_no_file(tmp_path, config, values) -> None:
    """Checkpoints have configurations, and reading one must not run a file."""
    file, ran = tmp_path / "own.py", tmp_path / "ran"
    file.write_text(f"open({str(ran)!r}, 'w')\nclass Cost: ...\n")
    given = {name: each.replace("FILE", str(file)) for name, each in values.items()}
    with pytest.raises(ArgumentError, match="may not name a file"):
        config.from_dict(given)
    assert not ran.exists()


@pytest.mark.parametrize("config", [SubstitutionConfig, RewriteConfig])
def test_networks_are_not_too_large(config) -> None:
    with pytest.raises(ArgumentError, match="width must be from 1 to"):
        config(width=10**6)
    for network in ((10**6,), (8,) * 100):
        with pytest.raises(ArgumentError, match="network must be at most 16 widths"):
            TrainConfig(network=network)


def test_the_order_is_imitated_where_it_can_be() -> None:
    assert TrainConfig().order == FIXED_ORDER
    for other in (
        {"imitate": ""},
        {"algorithm": "dqn"},
        {"reward": "kernel_cache"},
        {"passes": ("cse",)},
    ):
        assert not dataclasses.replace(TrainConfig(), **other).order
    with pytest.raises(ArgumentError, match="dqn has no probabilities"):
        TrainConfig(algorithm="dqn", imitate="cse")
    with pytest.raises(ArgumentError, match="imitation_rate must be above 0"):
        TrainConfig(imitation_rate=0.0)


def test_unknown_parts_of_the_environment_are_errors() -> None:
    for change in (
        {"observation": "ops"},
        {"reward": "ops"},
        {"train": "hloenv://nowhere"},
        {"critic_observation": "ops"},
    ):
        with pytest.raises(ArgumentError):
            dataclasses.replace(TrainConfig(), **change).make_env()


def test_the_critic_may_observe_more() -> None:
    config = TrainConfig(observation="op_counts", critic_observation="cost+op_counts")
    assert config.observations == "op_counts+cost"
    space = config.make_env("hloenv://generated/0").observation_space
    assert set(space.spaces) == {"op_counts", "cost"}


def test_algorithms_are_those_of_the_papers() -> None:
    assert {"dqn", "a2c", "trpo", "ppo", "maskable-ppo"} <= set(list_algorithms())
