# SPDX-License-Identifier: Apache-2.0
"""From a configuration to a recipe, and to what is compiled and measured."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass

import numpy as np

from .._typing import Int64Array
from ..errors import ArgumentError
from ..hlo.module import HloModule, identity
from ..jax.auto import first_passes
from ..jax.decide import as_pipelines, decide_in_rounds, only_rules
from ..jax.recipe import Built, Recipe
from ..policies import get_policy
from ..rewrite.env import HloEnv
from ..rewrite.game import DecisionPoint, Game, Prefix
from ..rewrite.trace import Trace
from ..runtime.jaxlib.options import EXTRA, OptionValue
from ..search.spaces import SEARCH_SPACE, get_space
from .decisions import LEFT, Choice
from .space import Configuration, Space


@dataclass(frozen=True)
class Candidate:
    """A configuration of one module, ready to be measured.

    Attributes:
        configuration: what was chosen.
        recipe: how to compile it.
        built: what is compiled.
        key: the same for candidates that are compiled in the same way.
    """

    configuration: Configuration
    recipe: Recipe
    built: Built
    key: str


def graph_points() -> tuple[DecisionPoint, ...]:
    """The decision points of `Configuration.graph`: those of `hloenv search`."""
    return get_space(SEARCH_SPACE["wheel"]).stops


def build_candidate(
    space: Space, configuration: Configuration, module: HloModule
) -> Candidate:
    """Decides the rewrites of a configuration, and makes what is compiled.

    Args:
        space: of the configuration.
        configuration: canonical.
        module: from before XLA's passes, without donations.

    Raises:
        HloEnvError: a pass fails, or the engines cannot compile the result.
    """
    recipe = recipe_of(space, configuration, module)
    built = recipe.build(module)
    key = repr(
        (
            identity(built.module),
            built.finish,
            built.engine,
            sorted(built.options.items()),
        )
    )
    return Candidate(configuration, recipe, built, key)


def recipe_of(space: Space, configuration: Configuration, module: HloModule) -> Recipe:
    """The recipe of a configuration for one module.

    Raises:
        HloEnvError: a pass fails.
    """
    pipeline, backend = space.engines(configuration)
    chosen = space.chosen(configuration)
    options: dict[str, OptionValue] = {}
    for _, choice in chosen:
        if choice.option is not None:
            name, value = choice.option
            if name == EXTRA and name in options:
                value = f"{options[name]},{value}"
            options[name] = value
    if configuration.graph:
        trace: Trace | None = _trace_of_graph(configuration, module)
    else:
        trace = _trace_of_policies(
            [choice for _, choice in chosen if choice.point is not None],
            {decision.name for decision, choice in chosen if choice.name == LEFT},
            module,
            is_free=pipeline == "jaxlib",
        )
    loops = any(choice.loops for _, choice in chosen)
    return Recipe(trace, pipeline, backend, loops, dict(sorted(options.items())))


def _trace_of_policies(
    choices: list[Choice], left: Container[str], module: HloModule, *, is_free: bool
) -> Trace | None:
    """The decisions of a policy at each point; None if nothing is decided.

    Args:
        choices: in the order of XLA's pipeline, those in rounds first.
        left: labels of rules that are left to XLA.
        module: to decide.
        is_free: whether rewrites that are not taken are left to XLA's passes, rather
            than rejected.
    """
    env = HloEnv(module)
    in_rounds = [each for each in choices if each.in_rounds]
    if in_rounds:
        env.run(*first_passes(module))
    is_decided = False
    for choice in in_rounds:
        assert choice.point is not None
        policy = only_rules(get_policy(choice.policy), lambda rule: rule not in left)
        counts = decide_in_rounds(env, policy, as_pipelines(choice.point.passes))
        is_decided |= bool(counts.accepted)
    rest = [each for each in choices if not each.in_rounds]
    points = tuple(each.point for each in rest if each.point is not None)
    if points:
        game = Game(env.module, points)
        prefix: Prefix = ()
        for choice in rest:
            default = game.default(prefix)
            decisions = game.ask_policy(get_policy(choice.policy), prefix)
            if is_free:
                decisions = np.where(decisions == 0, -1, decisions)
            is_decided |= bool((decisions != default).any())
            prefix = (*prefix, decisions)
        game.episode(prefix, after=env)
    return env.trace if is_decided else None


def _trace_of_graph(configuration: Configuration, module: HloModule) -> Trace:
    game = Game(module, graph_points())
    prefix: Prefix = tuple(np.asarray(each, np.int64) for each in configuration.graph)
    _check_prefix(game, prefix)
    return game.episode(prefix).trace


def _check_prefix(game: Game, prefix: Prefix) -> None:
    for stop in range(len(game.stops)):
        found = len(game.alternatives(prefix[:stop]))
        if stop >= len(prefix) or found != len(prefix[stop]):
            raise ArgumentError(
                f"the decisions are for another module: decision point {stop} has "
                f"{found} alternatives"
            )


def graph_of(prefix: Prefix) -> tuple[tuple[int, ...], ...]:
    """A prefix as `Configuration.graph` has it."""

    def plain(decisions: Int64Array) -> tuple[int, ...]:
        return tuple(int(each) for each in decisions)

    return tuple(plain(each) for each in prefix)
