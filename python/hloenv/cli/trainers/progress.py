# SPDX-License-Identifier: Apache-2.0
"""How a training run is shown: its progress, its figures, and its results."""

from __future__ import annotations

import datetime
import json
import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeVar

from ...errors import ArgumentError
from .. import output

if TYPE_CHECKING:
    from ...learn.ppo_run import Progress


class HasStep(Protocol):
    """A training run at one time."""

    @property
    def step(self) -> int:
        """Steps so far."""
        ...


_P = TypeVar("_P", bound=HasStep)


@contextmanager
def shown(
    steps: int,
    describe: Callable[[_P], str],
    *,
    is_shown: bool,
    unit: str = "steps",
    what: str = "training",
) -> Iterator[Callable[[_P], None]]:
    """A function to call with the progress of a run, which it shows on stderr.

    Args:
        steps: of the whole run.
        describe: the figures of the run, in one line.
        is_shown: whether anything is shown.
        unit: what is counted.
        what: is done.
    """
    stderr = output.console(to_stderr=True)
    if not is_shown:
        yield lambda _: None
        return
    if not stderr.is_terminal:
        yield _lines(steps, describe, unit)
        return
    from rich import progress as bars_of

    columns = (
        bars_of.TextColumn("{task.description}"),
        bars_of.BarColumn(),
        bars_of.TextColumn("{task.fields[shown]}"),
        bars_of.TextColumn("left"),
        bars_of.TimeRemainingColumn(),
    )
    with bars_of.Progress(*columns, console=stderr) as bars:
        task = bars.add_task(what, total=steps, shown="")

        def report(progress: _P) -> None:
            bars.update(task, completed=progress.step, shown=describe(progress))

        yield report


def figures(*given: tuple[str, float, str]) -> str:
    """Names and values of the figures that are known, in one line.

    Args:
        *given: name, value (NaN if it is not known) and format of each.
    """
    return ", ".join(
        f"{name} {value:{form}}" for name, value, form in given if not math.isnan(value)
    )


def describe(progress: Progress) -> str:
    """The figures of a training by PPO, in one line."""
    known = figures(
        ("loss", progress.loss, ".3f"),
        ("return", progress.episode_return, ".3f"),
        ("entropy", progress.entropy, ".2f"),
        ("speed-up", progress.score, ".3f"),
        ("best", progress.best_score, ".3f"),
    )
    return f"{progress.phase}, {known}" if known else progress.phase


def read_report(folder: str, methods: str) -> tuple[dict[str, float], int]:
    """Speed-ups of the methods that a run compares, and the number of modules.

    Args:
        folder: of the run.
        methods: key of the methods in its report.

    Raises:
        ArgumentError: the report is damaged.
        FileNotFoundError: there is none.
    """
    path = Path(folder) / "report.json"
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        scores = {name: row["speedup"] for name, row in found[methods].items()}
        return scores, len(found["modules"])
    except (AttributeError, LookupError, TypeError, ValueError):
        raise ArgumentError(
            f"{path} is not the report of a run of hloenv train"
        ) from None


def print_scores(scores: Mapping[str, float]) -> None:
    """Prints the methods, the fastest first."""
    for name, score in sorted(scores.items(), key=lambda item: -item[1]):
        output.print_line(f"  {name:16s} {score:.3f}")


def _lines(
    steps: int, describe: Callable[[_P], str], unit: str
) -> Callable[[_P], None]:
    """A line for each tenth of the run."""
    every = max(steps, 1) / 10
    next_ = 0.0
    began, first = time.monotonic(), math.nan

    def report(progress: _P) -> None:
        nonlocal next_, began, first
        if progress.step < next_:
            return
        next_ = (progress.step // every + 1) * every
        line = f"{progress.step:,} of {steps:,} {unit}: {describe(progress)}"
        if math.isnan(first):
            # A run that goes on does not begin with its first step.
            began, first = time.monotonic(), progress.step
        elif progress.step > first:
            rate = (time.monotonic() - began) / (progress.step - first)
            # The last rollout may be longer than what is left.
            seconds = max(0, round((steps - progress.step) * rate))
            left = datetime.timedelta(seconds=seconds)
            line += f", {left} left"
        output.console(to_stderr=True).print(line)

    return report
