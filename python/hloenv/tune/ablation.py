# SPDX-License-Identifier: Apache-2.0
"""What the decisions of each stage are worth, for the report."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from .journal import Result
from .space import Configuration, Space

PLAIN = Configuration()


def plain_result() -> Result:
    """That of the program as it is."""
    return Result(PLAIN, speedup=1.0, interval=(1.0, 1.0))


def rows_alone(
    space: Space,
    best: Mapping[str, Result],
    known: Mapping[Configuration, Result],
    again: Callable[[Result, int], Result | None],
) -> list[dict[str, Any]]:
    """The best of each stage that was tuned alone, over the engine that it needs.

    Args:
        space: of the decisions.
        best: by stage.
        known: results by configuration.
        again: measures a result afresh, in a round; None if no time is left.
    """
    rows = []
    for round_, (stage, result) in enumerate(best.items()):
        engine = space.without(result.configuration, stage)
        found = again(result, round_)
        below = again(known.get(engine, plain_result()), round_)
        own = None if found is None or below is None else over(found, below)
        rows.append(stage_row(stage, space, result.configuration, own, None))
    return rows


def rows_of_best(
    space: Space,
    best: Configuration,
    result_of: Callable[[Configuration], Result | None],
) -> list[dict[str, Any]]:
    """Each stage of a configuration: alone, and what the rest is without it.

    Args:
        space: of the decisions.
        best: the configuration.
        result_of: of another one; None if there was no time for it.
    """
    rows = []
    for stage in space.stages:
        names = {each.name for each in space.of_stage(stage)}
        if not any(name in names for name, _ in best.choices):
            continue
        alone = space.only(best, stage)
        found = result_of(alone)
        below = result_of(space.without(alone, stage))
        rest = result_of(space.without(best, stage))
        own = None if found is None or below is None else over(found, below)
        rows.append(stage_row(stage, space, best, own, rest))
    return rows


def over(result: Result, base: Result) -> Result:
    """The result with its speed-up over another one, in place of the baseline's."""
    if not (result.is_ok and base.is_ok):
        return result if base.is_ok else replace(result, error=base.error)
    low, high = base.interval
    return replace(
        result,
        speedup=result.speedup / base.speedup,
        interval=(result.interval[0] / high, result.interval[1] / low),
    )


def stage_row(
    stage: str,
    space: Space,
    configuration: Configuration,
    alone: Result | None,
    without: Result | None,
) -> dict[str, Any]:
    """A stage in the report."""
    names = {each.name for each in space.of_stage(stage)}
    chosen = [pair for pair in configuration.choices if pair[0] in names]

    def worth(result: Result | None) -> list[float] | None:
        if result is None or not result.is_ok:
            return None
        return [result.speedup, *result.interval]

    return {
        "stage": stage,
        "decided": ", ".join("=".join(pair) for pair in chosen) or "xla",
        "alone": worth(alone),
        "without": worth(without),
    }
