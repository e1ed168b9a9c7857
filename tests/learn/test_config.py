# SPDX-License-Identifier: Apache-2.0
"""Configurations of training runs."""

from __future__ import annotations

import dataclasses
import json

import pytest

from hloenv.errors import ArgumentError
from hloenv.learn import TrainConfig, list_algorithms


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
        ("network = [64, 0]", "widths in network"),
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
