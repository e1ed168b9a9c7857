# SPDX-License-Identifier: Apache-2.0
"""How a training run is shown: a bar on a terminal, otherwise some lines."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol, TypeVar

from .. import output


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
) -> Iterator[Callable[[_P], None]]:
    """A function to call with the progress of a run, which it shows on stderr.

    Args:
        steps: of the whole run.
        describe: the figures of the run, in one line.
        is_shown: whether anything is shown.
        unit: what is counted.
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
        task = bars.add_task("training", total=steps, shown="")

        def report(progress: _P) -> None:
            bars.update(task, completed=progress.step, shown=describe(progress))

        yield report


def _lines(
    steps: int, describe: Callable[[_P], str], unit: str
) -> Callable[[_P], None]:
    """A line for each tenth of the run."""
    every = steps / 10
    next_ = 0.0

    def report(progress: _P) -> None:
        nonlocal next_
        if progress.step < next_:
            return
        next_ = (progress.step // every + 1) * every
        line = f"{progress.step:,} of {steps:,} {unit}: {describe(progress)}"
        output.console(to_stderr=True).print(line)

    return report
