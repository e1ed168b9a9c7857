# SPDX-License-Identifier: Apache-2.0
"""The environment of substitution."""

from __future__ import annotations

import math
import pickle
from dataclasses import replace

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

import hloenv
from hloenv.cost.base import Estimate
from hloenv.cost.operators import OperatorSum
from hloenv.envs import EpisodeOverError, PassOrderEnv, SubstitutionEnv, rewards, spaces
from hloenv.errors import ArgumentError, InvalidModuleError, PassError
from hloenv.hlo.python_passes import add_pass, remove_pass
from hloenv.rules import Rule
from hloenv.rules.passes import RulePass
from hloenv.substitution.candidates import Expander
from substitution.modules import sum_of_products


def make(**arguments) -> SubstitutionEnv:
    return SubstitutionEnv(sum_of_products(), max_candidates=40, **arguments)


def index_of(env: SubstitutionEnv, rule: str) -> int:
    return 1 + [each.rule for each in env.candidates()].index(rule)


def test_gymnasium_accepts_the_environment() -> None:
    env = gymnasium.make(
        "hloenv/Substitution-v0", benchmark=sum_of_products(), max_candidates=40
    )
    check_env(env.unwrapped)


@pytest.mark.needs("stable_baselines3")
@pytest.mark.filterwarnings("ignore:Your observation .* has an unconventional shape")
def test_stable_baselines_accepts_the_environment() -> None:
    from stable_baselines3.common.env_checker import check_env as check

    check(make())


def test_a_step_is_one_substitution_and_pays_what_it_saves() -> None:
    env = make()
    _, info = env.reset(seed=0)
    assert info["candidates"] == len(env.candidates()) == info["action_mask"].sum() - 1
    number = index_of(env, "factor-dot-left-operands")
    before, after = OperatorSum().estimate_many(
        [env.module, env.candidates()[number - 1].module]
    )
    _, reward, terminated, truncated, info = env.step(number)
    saved = 100 * (before.seconds - after.seconds) / before.seconds
    assert reward == pytest.approx(saved)
    assert (terminated, truncated) == (False, False)
    assert info["rule"] == "factor-dot-left-operands@s"
    assert env.module.opcode_counts()["dot"] == 1
    assert env.validate().is_valid


def test_no_op_ends_the_episode() -> None:
    env = make()
    env.reset()
    assert env.step(0)[1:4] == (0.0, True, False)
    with pytest.raises(EpisodeOverError):
        env.step(0)


def test_another_module_is_drawn_where_a_pass_fails(monkeypatch) -> None:
    env = SubstitutionEnv("hloenv://dataset/train?max_instructions=40")
    env.reset(seed=5)
    first = env.module.fingerprint()
    expand = Expander.expand

    def fails(self, module, **limits):
        if module.fingerprint() == first:
            raise PassError("it fails")
        return expand(self, module, **limits)

    monkeypatch.setattr(Expander, "expand", fails)
    env.reset(seed=5)
    assert env.module.fingerprint() != first


class Unsure(OperatorSum):
    """Cannot estimate one module."""

    def __init__(self, bad: str) -> None:
        super().__init__()
        self.bad = bad

    def _estimate(self, module):
        if module.fingerprint() == self.bad:
            return Estimate(math.nan, error="it fails")
        return super()._estimate(module)


@pytest.mark.parametrize("reward", ["saved", "estimate"])
def test_what_cannot_be_estimated_pays_nothing_until_it_can(
    reward, monkeypatch
) -> None:
    env = make(reward=f"{reward}:operators")
    env.reset()
    totals = []
    for bad in ("", env.candidates()[0].fingerprint):
        monkeypatch.setattr(rewards, "_estimator", lambda _, bad=bad: Unsure(bad))
        env.reset()
        paid = [env.step(1)[1] for _ in range(2)]
        totals.append(sum(paid))
    assert paid[0] == 0.0
    assert totals[0] == pytest.approx(totals[1])
    assert env.reward_of(f"{reward}:operators") == pytest.approx(paid[1])


def test_an_episode_is_truncated() -> None:
    env = make(max_steps=2)
    env.reset()
    assert env.step(1)[2:4] == (False, False)
    assert env.step(1)[2:4] == (False, True)


def test_an_action_without_a_candidate_changes_nothing() -> None:
    env = make()
    env.reset()
    *_, info = env.step(40)
    assert not info["changed"]
    for action in (-1, 41, 1.5, "x"):
        with pytest.raises(ArgumentError, match="an action must be"):
            env.step(action)


def test_states_repeat_fork_and_pickle() -> None:
    env = make()
    env.reset()
    env.step(2)
    env.step(1)
    twin = env.fork()
    twin.step(0)
    assert (env.is_over, twin.is_over) == (False, True)
    other = make()
    with pytest.raises(ArgumentError):
        other.action_of("fly")
    again = pickle.loads(pickle.dumps(env))
    assert again.module.fingerprint() == env.module.fingerprint()
    assert [again.action_of(name) for name in env.action_names] == [2, 1]


def test_the_rows_and_the_graph_are_those_of_the_candidates() -> None:
    env = make(observation="substitution_graph")
    observation, _ = env.reset()
    rows = observation.candidates
    assert len(rows) == len(env.candidates())
    alternatives = env.expansion().alternatives
    for number, candidate in enumerate(env.candidates()):
        decisions = alternatives.reject_all()
        decisions[rows.alternative[number]] = rows.choice[number]
        made = alternatives.apply(decisions)
        assert made.fingerprint() == candidate.fingerprint
    padded = env.observe("substitutions")
    assert padded["allowed"].sum() == len(rows)
    np.testing.assert_allclose(padded["x"][: len(rows)], rows.x)


@pytest.mark.needs("torch_geometric")
def test_the_graphs_are_those_of_the_candidates() -> None:
    env = make(observation="candidate_graphs")
    observation, _ = env.reset()
    whole, *partial = observation.graphs
    expected = hloenv.to_pyg(env.module)
    rows = whole.unpack()
    np.testing.assert_array_equal(rows.opcode, expected.opcode)
    np.testing.assert_array_equal(rows.edge_index, expected.edge_index)
    np.testing.assert_array_equal(rows.edge_attr, expected.edge_attr)
    assert len(partial) == len(env.candidates())
    for packed, candidate in zip(partial, env.candidates(), strict=True):
        assert packed.reference is whole
        rows = packed.unpack()
        # The nodes of the reference that are left, and the rows, are all of the nodes.
        left = whole.num_nodes + rows.times.sum()
        assert packed.num_nodes == left + packed.num_rows
        assert packed.num_nodes == hloenv.to_pyg(candidate.module).num_nodes
        assert 0 < packed.num_rows < packed.num_nodes
        assert rows.edge_index[1].max(initial=0) < packed.num_rows
    assert observation == env.observe("candidate_graphs")
    # Equal graphs of a state are one object.
    assert env.observe("candidate_graphs").graphs[1] is partial[0]


def test_actions_are_of_what_was_observed(monkeypatch) -> None:
    env = make()
    env.reset()
    expected = [each.fingerprint for each in env.candidates()]
    expand = env.expander.expand

    def other(module, *, max_instructions):
        made = expand(module, max_instructions=max_instructions)
        return replace(made, candidates=made.candidates[::-1])

    # As if another environment had expanded an equal module in between.
    monkeypatch.setattr(env.expander, "expand", other)
    assert [each.fingerprint for each in env.fork().candidates()] == expected
    env.step(1)
    assert env.node.fingerprint == expected[0]


def test_an_observation_that_fails_ends_the_episode(monkeypatch) -> None:
    env = make()
    env.reset()
    start = env.node
    observe = env._observation.observe

    def fails(own):
        if own.node is not start:
            raise InvalidModuleError("no costs")
        return observe(own)

    monkeypatch.setattr(env, "_observation", replace(env._observation, observe=fails))
    _, reward, terminated, truncated, info = env.step(1)
    assert (reward, terminated, truncated) == (0.0, True, False)
    assert "no costs" in info["error"]
    assert env.node is start


def test_a_pickle_after_an_error_has_the_steps_before_it(monkeypatch) -> None:
    env = make()
    env.reset()
    env.step(1)
    node = env.node
    compute = env._reward.compute

    def fails(own):
        if own.node is not node:
            raise InvalidModuleError("no costs")
        return compute(own)

    monkeypatch.setattr(env, "_reward", replace(env._reward, compute=fails))
    env.step(1)
    assert env.error
    twin = pickle.loads(pickle.dumps(env))
    assert twin.node.fingerprint == env.node.fingerprint == node.fingerprint
    assert twin.error == env.error


def test_a_padded_graph_keeps_the_end_of_a_larger_one(monkeypatch) -> None:
    env = make()
    env.reset()
    whole = env.observe("graph_padded")
    count, edges = int(whole["node_mask"].sum()), int(whole["edge_mask"].sum())
    monkeypatch.setattr(spaces, "MAX_NODES", 3)
    monkeypatch.setattr(spaces, "MAX_EDGES", 2)
    part = env.observe("graph_padded")
    np.testing.assert_array_equal(part["opcode"], whole["opcode"][count - 3 : count])
    np.testing.assert_array_equal(part["nodes"], whole["nodes"][count - 3 : count])
    kept = int(part["edge_mask"].sum())
    assert kept > 0
    np.testing.assert_array_equal(
        part["edges"][:, :kept] + count - 3, whole["edges"][:, edges - kept : edges]
    )


def test_a_failed_measurement_is_as_if_it_were_not_due(monkeypatch) -> None:
    monkeypatch.setattr(rewards, "_log_speedup", lambda _: None)
    for name, expected in (("saved_measured:1", 0.1), ("measured:1", 0.0)):
        env = make(reward=name)
        env.reset()
        assert env.step(1)[1] == pytest.approx(expected)
        assert env.measured_node is env.start


def test_an_expander_keeps_few_candidates(monkeypatch) -> None:
    monkeypatch.setattr("hloenv.substitution.candidates._MAX_INSTRUCTIONS", 10)
    expander = Expander()
    module = sum_of_products()
    first = expander.expand(module, max_instructions=100)
    assert expander.expand(module, max_instructions=100) is first
    expander.expand(first.candidates[0].module, max_instructions=100)
    assert expander.expand(module, max_instructions=100) is not first


def test_the_observations_are_of_this_environment_only() -> None:
    with pytest.raises(ArgumentError, match="Substitution-v0"):
        PassOrderEnv(sum_of_products(), observation="substitutions")


@pytest.mark.parametrize(
    "reward", ["saved:fly", "saved_measured:0", "saved_measured:x"]
)
def test_wrong_rewards_are_refused(reward) -> None:
    with pytest.raises(LookupError if "fly" in reward else ArgumentError):
        make(reward=reward)


@pytest.mark.parametrize("family", ["saved", "estimate"])
def test_rewards_are_as_deterministic_as_their_estimator(family) -> None:
    for name, expected in {
        **dict.fromkeys(("operators", "roofline", "learned"), True),
        "kernel-cache": False,
        "learned:a,measure-above=0.1": False,
    }.items():
        assert rewards.get_reward(f"{family}:{name}").deterministic == expected


def test_the_sparse_reward_pays_a_little_in_between() -> None:
    env = make(reward="saved_measured:5")
    env.reset()
    assert env.step(1)[1] == pytest.approx(0.1)


def test_a_rule_that_never_ends_is_capped_by_size() -> None:
    grow = Rule(
        "grow",
        "ROOT r = maximum(a, b)",
        """
        n = negate(a)
        p = negate(n)
        ROOT r = maximum(p, b)
        """,
    )
    add_pass(RulePass("growing", [grow]))
    try:
        env = SubstitutionEnv(sum_of_products(), passes=("growing",), max_steps=50)
        env.reset()
        while not env.is_over:
            *_, info = env.step(1)
        assert info["left_out"] > 0
        assert len(env.actions) < 10
        assert env.module.instruction_count <= 2 * env.start.op_count
    finally:
        remove_pass("growing")


def test_improvements_add_up_to_the_gain_of_the_best_module() -> None:
    env = make(reward="improved:operators", max_steps=12)
    rng = np.random.default_rng(0)
    gained = []
    for seed in range(2):
        _, info = env.reset(seed=seed)
        modules, rewards_ = [env.module], []
        is_over = False
        while not is_over:
            action = int(rng.choice(np.flatnonzero(info["action_mask"])))
            if len(modules) == 1 + seed:  # one that pays, among others
                action = index_of(env, "factor-dot-left-operands")
            _, reward, terminated, truncated, info = env.step(action)
            modules.append(env.module)
            rewards_.append(reward)
            is_over = terminated or truncated
        times = [each.seconds for each in OperatorSum().estimate_many(modules)]
        assert min(rewards_) >= 0
        assert sum(rewards_) == pytest.approx(math.log(times[0] / min(times)))
        gained.append(sum(rewards_))
    assert max(gained) > 0


def test_fewer_instructions_than_ever_are_an_improvement() -> None:
    env = PassOrderEnv(sum_of_products(), reward="op_count_improved", max_steps=8)
    rng = np.random.default_rng(1)
    _, info = env.reset(seed=0)
    counts, total, is_over = [info["op_count"]], 0.0, False
    while not is_over:
        action = int(rng.integers(env.num_actions - 1))
        _, reward, terminated, truncated, info = env.step(action)
        counts.append(info["op_count"])
        total += reward
        is_over = terminated or truncated
    assert total == pytest.approx(math.log(counts[0] / min(counts)))
