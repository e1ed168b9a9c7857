# SPDX-License-Identifier: Apache-2.0
"""Agents that substitute as policies: one substitution in each round."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest

import hloenv
from hloenv.cli import main
from hloenv.cost.registry import get_estimator
from hloenv.envs import SubstitutionEnv
from hloenv.errors import ArgumentError
from hloenv.learn.substitution_config import SubstitutionConfig
from hloenv.learn.substitution_imitation import search
from hloenv.learn.substitution_policy import ROOM, SubstitutionPolicy
from hloenv.learn.substitution_training import train_substitution
from hloenv.policies import get_policy
from hloenv.policies.base import PolicySpecError
from hloenv.search.spaces import get_space
from hloenv.substitution.candidates import Expander
from substitution.modules import sum_of_products

pytestmark = pytest.mark.needs("torch_geometric", "safetensors", "tensorboard")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Of an agent that imitates greedy search on one module."""
    folder = tmp_path_factory.mktemp("agent")
    path = folder / "sum.hlo"
    path.write_text(sum_of_products().to_text())
    config = SubstitutionConfig(
        train=f"hloenv://file/{path}",
        validation=f"hloenv://file/{path}",
        demonstrations=6,
        imitation_rate=5e-3,
        steps=0,
        max_steps=4,
        max_candidates=12,
        width=16,
        rounds=1,
        seed=3,
    )
    train_substitution(config, folder / "run")
    return folder


@pytest.fixture
def policy(folder) -> SubstitutionPolicy:
    return get_policy(f"substitution:{folder / 'run' / 'best.safetensors'}")


def rounds_of(policy, module) -> tuple[list[int], hloenv.HloModule]:
    """How many alternatives each round accepts, and the module at the end."""
    env, accepted = hloenv.HloEnv(module), []
    for _ in range(policy.usual_rounds):
        decisions = policy(env.get_alternatives(*policy.usual_passes))
        accepted.append(int((decisions > 0).sum()))
        env.apply_alternatives(decisions)
    return accepted, env.module


def test_rounds_make_what_the_agent_makes(policy):
    found = policy.agent.improve(sum_of_products(), room=ROOM)
    steps = len(found.path)
    assert 0 < steps < policy.usual_rounds
    for _ in range(2):  # another module, though equal, is another episode
        accepted, module = rounds_of(policy, sum_of_products())
        assert accepted == [1] * steps + [0] * (policy.usual_rounds - steps)
        assert module.fingerprint() == found.module.fingerprint()


def test_a_module_without_alternatives_stays(policy):
    module = hloenv.HloModule.from_text(
        "HloModule m\nENTRY e { ROOT p = f32[4] parameter(0) }"
    )
    accepted, found = rounds_of(policy, module)
    assert accepted == [0] * policy.usual_rounds
    assert found.fingerprint() == module.fingerprint()


def test_alternatives_of_other_passes_are_refused(policy):
    alternatives = hloenv.HloEnv(sum_of_products()).get_alternatives("merge-dots")
    assert len(alternatives) > 0
    with pytest.raises(ArgumentError, match=r"capture the passes of policy\.usual"):
        policy(alternatives)


def test_the_command_takes_its_passes_and_rounds(folder, policy, capsys):
    path = str(folder / "sum.hlo")
    name = f"substitution:{folder / 'run' / 'best.safetensors'}"
    assert main(["optimize", path, "--policy", name, "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    accepted, module = rounds_of(policy, sum_of_products())
    ends = accepted.index(0) + 1
    assert [each["accepted"] for each in shown["rounds"]] == accepted[:ends]
    assert shown["fingerprint"] == module.fingerprint()
    words = ["--policy", name, "--pass", "substitutions", "--rounds", "1", "--json"]
    assert main(["optimize", path, *words]) == 0
    assert len(json.loads(capsys.readouterr().out)["rounds"]) == 1


def test_a_missing_checkpoint_says_what_makes_one():
    with pytest.raises(PolicySpecError, match="hloenv train substitution"):
        get_policy("substitution:none.safetensors")


def test_the_space_has_a_stop_for_each_round():
    stops = get_space("substitutions").stops
    assert len(stops) == 20
    assert len(set(stops)) == 1


def test_a_search_ends_after_its_time(folder):
    config = SubstitutionConfig(train=f"hloenv://file/{folder / 'sum.hlo'}")
    env: SubstitutionEnv = config.make_env()
    arguments = env, config.train, get_estimator("operators"), np.random.default_rng(0)
    assert len(search(*arguments).actions) > 1
    assert search(*arguments, seconds=0.0).actions == ()
    for bad in (0.0, -1.0, np.inf, np.nan):
        with pytest.raises(ArgumentError, match="search_seconds"):
            dataclasses.replace(config, search_seconds=bad)


def test_candidates_of_small_modules_have_room():
    module = hloenv.HloModule.from_text(
        """HloModule m
ENTRY e {
  a = f32[1000,4,4] parameter(0)
  b = f32[1000,4,4] parameter(1)
  ROOT c = f32[1000,4,4] dot(a, b), lhs_batch_dims={0}, rhs_batch_dims={0},
    lhs_contracting_dims={2}, rhs_contracting_dims={1}
}"""
    )
    rules = []
    for room in (0, 100):
        expander = Expander(["dot-forms"], room=room)
        found = expander.expand(module, max_instructions=expander.limit(module))
        rules.append({each.rule for each in found.candidates})
    assert "unrolled" in rules[1] - rules[0]
