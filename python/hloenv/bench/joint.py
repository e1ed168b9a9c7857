# SPDX-License-Identifier: Apache-2.0
"""Joint search over decisions before fusion and at fusion.

The result of algebraic simplification determines which fusions are possible. A
*pre-fusion variant* is a module after a fixed rule at an earlier decision point. All
variants are estimated with fixed rules for the fusions; then the search runs on the
best variant, and on the earlier decision points of the best two. All share one budget.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..cost.base import estimate_of
from ..errors import HloEnvError
from ..hlo.module import HloModule
from ..policies import get_policy
from ..rewrite.game import DecisionPoint, Game, Prefix
from ..search import get_search
from ..search.driver import (
    Budget,
    Candidate,
    SearchResult,
    confirm_best,
    run_search,
)
from ..search.initial import starting_points
from ..search.spaces import Space

if TYPE_CHECKING:
    from ..cost.base import Estimator
    from ..measurement.pool import Evaluator

# Number of the best variants whose earlier decision points are searched too.
_NUM_EARLY = 2
# Share of XLA's time that a rule must save, because of the error of estimates.
# scripts/reports/tune_rules.py sets it.
MIN_GAIN = 0.02
# Share of the estimates for the first round on all variants.
_FIRST_SHARE = 0.4


@dataclass(frozen=True)
class PreFusionVariant:
    """A module after the decisions at an earlier decision point.

    Attributes:
        name: the decisions, in words; "" for XLA's own variant.
        game: the remaining decisions.
        stop: the earlier decision point; None for XLA's own variant.
    """

    name: str
    game: Game
    stop: DecisionPoint | None = None


@dataclass
class JointResult:
    """Result of a search over variants.

    Attributes:
        game: of the best variant; XLA's own if nothing is faster.
        variant: name of the variant; "" for XLA's own.
        prefix: the decisions of `game`.
        is_faster: whether it is faster in a second measurement.
        num_estimates: number of estimated candidates.
        num_measured: number of measured candidates.
        baseline_ns: median of XLA's default; NaN if no candidate ran.
        curve: minimum estimate after each estimate, in seconds.
    """

    game: Game
    variant: str
    prefix: Prefix
    is_faster: bool
    num_estimates: int
    num_measured: int
    baseline_ns: float
    curve: list[float]


def search_variants(
    module: HloModule,
    space: Space,
    search: str,
    *,
    estimator: Estimator,
    evaluator: Evaluator,
    budget: Budget,
    seed: int,
    inputs: Sequence[Any] | None = None,
) -> JointResult:
    """Estimates all variants, searches the best, and measures the best candidates.

    Raises:
        HloEnvError: the module itself cannot be compiled or run.
    """
    variants = make_variants(module, space)
    searches = [get_search(search, each.game, seed=seed) for each in variants]
    started = time.monotonic()
    first = max(1, int(budget.estimates * _FIRST_SHARE / len(variants)))
    curve: list[float] = []
    found: dict[int, SearchResult] = {}

    def continue_search(index: int, estimates: int) -> None:
        before = len(searches[index].history)
        seconds = budget.seconds
        if seconds is not None:
            seconds = max(seconds - (time.monotonic() - started), 1e-3)
        found[index] = run_search(
            searches[index],
            estimator,
            budget=Budget(before + estimates, 0, seconds),
        )
        curve.extend(each for _, each in found[index].estimate_curve[before:])

    def has_choice(variant: PreFusionVariant) -> bool:
        with contextlib.suppress(HloEnvError):
            return any(len(each) for each in variant.game.complete())
        return False

    for index, variant in enumerate(variants):
        if has_choice(variant):
            if first <= budget.estimates - len(curve):
                continue_search(index, first)
        elif index > 0 and budget.estimates > len(curve):
            # A variant is a candidate even if it has no alternatives left.
            with contextlib.suppress(HloEnvError):
                prefix = variant.game.complete()
                played = variant.game.play(prefix)
                estimate = estimate_of(estimator, played)
                curve.append(estimate.seconds if estimate.is_ok else math.inf)
                if estimate.is_ok:
                    only = Candidate(prefix, estimate.seconds, played.fingerprint())
                    found[index] = SearchResult(evaluated=[only])
    ranked = sorted(found, key=lambda index: _best_s(found[index]))
    searched = [index for index in ranked[:1] if has_choice(variants[index])]
    early = dict.fromkeys(
        stop for i in ranked if (stop := variants[i].stop) is not None
    )
    for stop in list(early)[:_NUM_EARLY]:
        variant = PreFusionVariant("", Game(module, (stop, *space.stops)))
        if has_choice(variant):
            searched.append(len(variants))
            variants.append(variant)
            searches.append(get_search(search, variant.game, seed=seed))
    left = budget.estimates - len(curve)
    for index in searched:
        if left >= len(searched):
            continue_search(index, left // len(searched))
    chosen = _chosen(found, budget.measurements)
    modules = [variants[index].game.play(each.prefix) for index, each in chosen]
    # Without candidates, XLA's default is still timed.
    results = evaluator.evaluate(modules or [module], baseline=module, inputs=inputs)
    best, _ = confirm_best(
        modules.__getitem__, results[: len(chosen)], evaluator, module, inputs
    )
    variant = variants[0]
    prefix = variant.game.complete()
    if best is not None:
        index, candidate = chosen[best]
        variant, prefix = variants[index], candidate.prefix
    return JointResult(
        variant.game,
        variant.name,
        prefix,
        best is not None,
        len(curve),
        len(chosen),
        next((each.baseline_median_ns for each in results if each.is_ok), math.nan),
        np.minimum.accumulate(curve).tolist(),
    )


def pick_rule(module: HloModule, space: Space, estimator: Estimator) -> JointResult:
    """The decisions of the fixed rule and variant with the lowest estimate.

    XLA's own decisions are kept unless a rule saves the share `MIN_GAIN` of their time.

    Raises:
        HloEnvError: the module itself cannot be compiled.
    """
    rules: list[tuple[PreFusionVariant, Prefix]] = []
    seconds: list[float] = []
    for variant, prefix in fixed_rules(module, space):
        try:
            estimate = estimate_of(estimator, variant.game.play(prefix))
        except HloEnvError:
            if not rules:
                raise
            continue
        rules.append((variant, prefix))
        seconds.append(estimate.seconds if estimate.is_ok else math.inf)
    best = index_of_fastest(seconds, MIN_GAIN)
    variant, prefix = rules[best]
    return JointResult(
        variant.game, variant.name, prefix, best > 0, len(rules), 0, math.nan, []
    )


def fixed_rules(
    module: HloModule, space: Space
) -> Iterator[tuple[PreFusionVariant, Prefix]]:
    """The decisions of each fixed rule on each variant, XLA's own first.

    Raises:
        HloEnvError: the module itself cannot be compiled.
    """
    for index, variant in enumerate(make_variants(module, space)):
        try:
            prefixes = starting_points(variant.game)
        except HloEnvError:
            if index == 0:
                raise
            continue
        for prefix in prefixes:
            yield variant, prefix


def index_of_fastest(seconds: Sequence[float], min_gain: float) -> int:
    """Index of the lowest estimate; 0 unless it saves the share `min_gain` of that.

    Args:
        seconds: of XLA's own decisions, then of others; infinite if there is no
            estimate, without which nothing is known to be faster than the first.
        min_gain: of the first.
    """
    if not math.isfinite(seconds[0]):
        return 0
    best, best_s = 0, seconds[0] * (1 - min_gain)
    for index, each in enumerate(seconds[1:], 1):
        if each < best_s:
            best, best_s = index, each
    return best


def make_variants(module: HloModule, space: Space) -> list[PreFusionVariant]:
    """Distinct pre-fusion variants; the first is XLA's own."""
    variants = [PreFusionVariant("", Game(module, space.stops))]
    seen = set()
    with contextlib.suppress(HloEnvError):
        seen.add(variants[0].game.alternatives().module.fingerprint())
    for stop, policy in space.variants:
        try:
            early = Game(module, (stop,))
            decided = early.follow_policy(get_policy(policy))
            game = Game(early.play(decided), space.stops)
            fingerprint = game.alternatives().module.fingerprint()
        except HloEnvError:
            continue
        if fingerprint not in seen:
            seen.add(fingerprint)
            name = f"{'+'.join(map(str, stop.passes))} by {policy}"
            variants.append(PreFusionVariant(name, game, stop))
    return variants


def _best_s(found: SearchResult) -> float:
    return min((each.estimate_s for each in found.evaluated), default=float("inf"))


def _chosen(found: dict[int, SearchResult], count: int) -> list[tuple[int, Candidate]]:
    """The best candidate of each variant, then the others by estimate.

    The errors of estimates are correlated within a variant.
    """
    by_variant = {
        index: sorted(each.evaluated, key=lambda candidate: candidate.estimate_s)
        for index, each in found.items()
    }
    chosen = [(index, each[0]) for index, each in by_variant.items() if each]
    rest = [(i, candidate) for i, each in by_variant.items() for candidate in each[1:]]
    chosen.sort(key=lambda pair: pair[1].estimate_s)
    rest.sort(key=lambda pair: pair[1].estimate_s)
    return (chosen + rest)[:count]
