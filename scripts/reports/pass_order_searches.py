# SPDX-License-Identifier: Apache-2.0
"""Searches of `run_pass_order.py` for orders of passes, without learning."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

import hloenv
from hloenv.envs import PassOrderEnv, target_independent_passes
from hloenv.envs.base import CompilerEnv
from hloenv.envs.pass_memo import Node, without_dead_code
from hloenv.learn import (
    BestOrder,
    TrainConfig,
    beam_search,
    fixed_order,
    greedy_search,
    random_search,
)

# Modules on which the best fixed order is chosen, edits that are tried, and rounds.
MAX_ORDER_MODULES, MAX_EDITS, MAX_ROUNDS = 80, 300, 25


@functools.cache
def usual_env() -> CompilerEnv:
    """The environment of an agent with the usual settings."""
    return TrainConfig().make_env()


def search_module(order: Sequence[str], uri: str) -> dict[str, Any]:
    """What searches without learning make of a module.

    Args:
        order: the fixed order of passes.
        uri: of the module.
    """
    env = usual_env()
    env.reset(options={"benchmark": uri})
    numbers = [env.action_of(name) for name in order]
    greedy = greedy_search(env)
    budget = greedy.num_steps
    found = {
        "default": fixed_order(env, default_order(env), max_rounds=1),
        "fixed": fixed_order(env, numbers),
        "greedy": greedy,
        "random": median_order(random_search(env, budget, seed=i) for i in range(3)),
        "beam": beam_search(env, 3 * budget, width=4),
        "edited": edited_order(env, numbers),
    }
    results = {
        "start": {"op_count": env.start.op_count},
        "compiler": compiled_until_layouts(env),
    } | {name: described(each) for name, each in found.items()}
    wide = env_with_options()
    wide.reset(options={"benchmark": uri})
    order_there = [wide.action_of(name) for name in order]
    return results | {"options": described(edited_order(wide, order_there))}


@functools.cache
def env_with_options() -> CompilerEnv:
    """The environment with one more action for each option that can be another."""
    passes = list(target_independent_passes())
    for name in target_independent_passes():
        for option in hloenv.describe_pass(name).options:
            if option.type == "bool":
                others: Sequence[Any] = [str(not option.default).lower()]
            else:
                others = [each for each in option.allowed if each != option.default]
            passes += [f"{name}:{option.name}={each}" for each in others]
    return PassOrderEnv(usual_env().benchmarks[0].uri, passes=passes)


def edited_order(env: CompilerEnv, order: Sequence[int]) -> BestOrder:
    """The best of `MAX_EDITS` random edits of an order on one module.

    Also those that leave as much are gone on from, so that plateaus are crossed.
    """
    best, found = list(order), fixed_order(env, order)
    num_steps, random = found.num_steps, np.random.default_rng(0)
    for _ in range(MAX_EDITS):
        changed = edited(best, len(env.passes), random)
        if not changed:
            continue
        other = fixed_order(env, changed)
        num_steps += other.num_steps
        if other.score <= found.score:
            best, found = changed, other
    found.num_steps = num_steps
    return found


def compiled_until_layouts(env: CompilerEnv) -> dict[str, Any]:
    """What all passes of XLA's CPU compiler leave up to the assignment of layouts."""
    module, steps = env.module_of(env.start), 0
    with hloenv.intercept(module) as pipeline:
        for stage in pipeline:
            if stage.name == "layout-assignment":
                module = stage.module
                break
            stage.run()
            steps += 1
    counts = without_dead_code(module).opcode_counts()
    return {"op_count": sum(counts.values()), "steps": steps}


def median_order(found: Iterable[BestOrder]) -> BestOrder:
    """The middle one of several, by what is left."""
    ordered = sorted(found, key=lambda each: each.node.op_count)
    return ordered[len(ordered) // 2]


def default_order(env: CompilerEnv) -> list[int]:
    """The target-independent passes that XLA's CPU compiler runs on the module.

    As interception shows them, repetitions included, up to the assignment of layouts.
    """
    numbers = {env.action_name(i): i for i in range(len(env.passes))}
    order = []
    with hloenv.intercept(env.module_of(env.start)) as pipeline:
        for stage in pipeline:
            if stage.name == "layout-assignment":
                break
            if stage.name in numbers:
                order.append(numbers[stage.name])
            stage.run()
    return order


def best_order(env: CompilerEnv) -> list[int]:
    """The order that leaves the fewest instructions on train, run to a fixed point.

    First the order that grows by the best next pass, then `MAX_EDITS` random edits, of
    which those that improve it are kept.
    """
    found = env.benchmarks
    chosen = np.random.default_rng(1).permutation(len(found))[:MAX_ORDER_MODULES]
    nodes = []
    for i in sorted(chosen):
        env.reset(options={"benchmark": found[i].uri})
        nodes.append(env.node)
    order, starts = list[int](), nodes
    while True:
        scores = []
        for number in range(len(env.passes)):
            following = [env.following(number, node) for node in nodes]
            scores.append(np.mean([np.log(each.op_count) for each in following]))
        best = int(np.argmin(scores))
        if scores[best] >= np.mean([np.log(node.op_count) for node in nodes]) - 1e-9:
            break
        order.append(best)
        nodes = [env.following(best, node) for node in nodes]
    random = np.random.default_rng(2)
    score = left_at_fixed_point(env, order, starts)
    for _ in range(MAX_EDITS):
        changed = edited(order, len(env.passes), random)
        if changed and (other := left_at_fixed_point(env, changed, starts)) < score:
            order, score = changed, other
    return order


def edited(order: list[int], num_passes: int, random: np.random.Generator) -> list[int]:
    """The order with a pass inserted, replaced, left out, or moved."""
    changed = list(order)
    kind, position = random.integers(4), int(random.integers(len(order) + 1))
    if kind == 0 or position == len(order):
        changed.insert(position, int(random.integers(num_passes)))
    elif kind == 1:
        changed[position] = int(random.integers(num_passes))
    else:
        moved = changed.pop(position)
        if kind == 3:
            changed.insert(int(random.integers(len(changed) + 1)), moved)
    return changed


def left_at_fixed_point(
    env: CompilerEnv, order: list[int], starts: Sequence[Node]
) -> float:
    """Mean of the logs of what an order leaves, run until nothing changes."""
    logs = []
    for start in starts:
        node = start
        for _ in range(MAX_ROUNDS):
            before = node
            for number in order:
                node = env.following(number, node)
            if node.fingerprint == before.fingerprint:
                break
        logs.append(np.log(max(node.op_count, 1)))
    return float(np.mean(logs))


def described(found: BestOrder) -> dict[str, Any]:
    """JSON of what was found."""
    return {
        "op_count": found.node.op_count,
        "steps": found.num_steps,
        "passes": found.passes,
    }
