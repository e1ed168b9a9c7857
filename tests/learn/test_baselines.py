# SPDX-License-Identifier: Apache-2.0
"""Searches for pass orders without learning."""

from __future__ import annotations

import itertools

import pytest

from envs.modules import small
from hloenv import run_passes
from hloenv.envs import EpisodeOverError, PassOrderEnv
from hloenv.errors import ArgumentError
from hloenv.learn import beam_search, fixed_order, greedy_search, random_search

FEW = ["cse", "algsimp", "dce", "tuple-simplifier"]


@pytest.fixture
def env() -> PassOrderEnv:
    made = PassOrderEnv(small(), passes=FEW, max_steps=4)
    made.reset()
    return made


def smallest(env: PassOrderEnv, length: int) -> int:
    """Instructions of the best module of all sequences."""
    counts = []
    for numbers in itertools.product(range(len(env.passes)), repeat=length):
        node = env.start
        for number in numbers:
            node = env.following(number, node)
            counts.append(node.op_count)
    return min(counts)


@pytest.mark.parametrize(
    "search",
    [
        lambda env: random_search(env, 200, seed=1),
        greedy_search,
        lambda env: beam_search(env, 200, width=4),
    ],
    ids=["random", "greedy", "beam"],
)
def test_a_search_finds_the_best_of_all_sequences(env, search) -> None:
    found = search(env)
    assert found.node.op_count == found.score == smallest(env, 4)
    module = small()
    for number in found.passes:
        module = run_passes(module, env.passes[number]).module
    assert module.fingerprint() == found.node.fingerprint
    assert env.node is env.start


def test_a_search_runs_no_more_passes_than_its_budget(env) -> None:
    for budget in (1, 3, 7):
        assert random_search(env, budget).num_steps <= budget
        assert beam_search(env, budget).num_steps <= budget
        assert greedy_search(env, budget).num_steps <= budget
    nothing = greedy_search(env, 1, score=lambda _: 0.0)
    assert nothing.node is env.start
    assert nothing.passes == ()


def test_a_beam_keeps_modules_that_are_no_improvement(env) -> None:
    """What a pass makes worse, the next may make better than the start."""
    start, by = env.start.fingerprint, {}
    for number in range(len(env.passes)):
        by[env.following(number).fingerprint] = number

    def score(node) -> float:
        if node.fingerprint == start:
            return 1.0
        return 2.0 if node.fingerprint in by else 0.0

    assert greedy_search(env, score=score).node is env.start
    assert beam_search(env, 200, score=score).score == 0.0


def test_a_fixed_order_runs_until_a_round_changes_nothing(env) -> None:
    found = fixed_order(env, range(len(FEW)))
    node = found.node
    assert all(env.following(i, node) is node for i in range(len(FEW)))
    once = fixed_order(env, range(len(FEW)), max_rounds=1)
    assert once.num_steps == len(FEW)


def test_a_random_episode_without_a_change_does_not_end_the_search() -> None:
    """Of many passes, few change the start."""
    passes = ["cse", *("map-inline", "call-inliner", "rng-expander", "qr_expander")]
    env = PassOrderEnv(small(), passes=passes, max_steps=1)
    env.reset()
    for seed in range(5):
        found = random_search(env, 40, seed=seed)
        assert found.passes == (0,)
    nothing = PassOrderEnv(small(), passes=passes[1:], max_steps=1)
    nothing.reset()
    assert random_search(nothing, 1000).num_steps == 4


def test_equal_seeds_find_equal_sequences(env) -> None:
    first = random_search(env, 30, seed=5)
    assert random_search(env, 30, seed=5) == first


def test_wrong_arguments_are_errors(env) -> None:
    with pytest.raises(ArgumentError, match=r"budget must be an integer >= 1, got 0"):
        random_search(env, 0)
    with pytest.raises(ArgumentError, match="width"):
        beam_search(env, 10, width=0)
    with pytest.raises(EpisodeOverError):
        greedy_search(PassOrderEnv(small(), passes=FEW))
