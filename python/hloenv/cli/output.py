# SPDX-License-Identifier: Apache-2.0
"""What commands print: tables for people, one JSON object for programs."""

from __future__ import annotations

import ctypes
import datetime
import json
import math
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout, suppress
from typing import TYPE_CHECKING, Any

from .._json import finite

if TYPE_CHECKING:
    from rich.console import Console

    from ..hlo.module import HloModule

# Of output that is no terminal: wide enough that nothing is cut.
_FILE_WIDTH = 1000
_FILE_FOLD_WIDTH = 100


def console(*, to_stderr: bool = False) -> Console:
    """A rich console that leaves HLO's brackets and numbers alone."""
    from rich.console import Console

    stream = sys.stderr if to_stderr else sys.stdout
    width = None if stream.isatty() else _FILE_WIDTH
    return Console(file=stream, width=width, markup=False, highlight=False, emoji=False)


def print_json(value: Any) -> None:
    """One JSON object on stdout. What is not finite becomes null."""
    print(json.dumps(finite(value), indent=1))


@contextmanager
def prints_on_stderr() -> Iterator[None]:
    """What is printed in the block, by Python or by others, goes to stderr.

    The one JSON object of a command is then all that is on stdout.
    """
    try:
        kept = os.dup(1)
        os.fstat(2)
    except OSError:  # it is closed
        yield
        return
    streams = sys.stdout, sys.__stdout__
    try:
        _flush(streams)
        os.dup2(2, 1)
        with redirect_stdout(sys.stderr):
            yield
    finally:
        _flush(streams)  # what others have kept of them
        os.dup2(kept, 1)
        os.close(kept)


def _flush(streams: Iterable[Any]) -> None:
    """Writes what Python and C have not written yet."""
    for each in streams:
        if each is not None:
            with suppress(OSError, ValueError):
                each.flush()
    ctypes.CDLL(None).fflush(None)


def printable(text: str) -> str:
    r"""The text with escapes in place of what a terminal would obey.

    Names, source files and metadata of a module may have control characters and marks
    that reverse the order of text; they become \x1b, \u202e. Line breaks stay.
    """
    if text.isprintable():
        return text
    return "".join(
        each
        if each == "\n" or each.isprintable()
        else each.encode("unicode_escape").decode()
        for each in text
    )


def print_line(*texts: str) -> None:
    """One line of text on stdout."""
    print(*map(printable, texts))


def print_error(kind: str, message: str) -> None:
    """One line on stderr, such as "hloenv: error: MESSAGE"."""
    print(f"hloenv: {kind}: {printable(' '.join(message.split()))}", file=sys.stderr)


def print_table(
    columns: Sequence[str],
    rows: Sequence[Sequence[object]],
    *,
    title: str | None = None,
    right: Sequence[str] = (),
    fold: Sequence[str] = (),
) -> None:
    """A table on stdout.

    Args:
        columns: headings.
        rows: cells, shown by `str`.
        title: a line above.
        right: headings of columns that hold numbers.
        fold: headings of columns that are wrapped when the terminal is narrow; the
            others keep their width.
    """
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(
        title=None if title is None else Text(printable(title), style="bold"),
        title_justify="left",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        show_edge=False,
        header_style="bold",
    )
    target = console()
    for column in columns:
        is_folded = column in fold
        table.add_column(
            column,
            justify="right" if column in right else "left",
            no_wrap=not is_folded,
            overflow="fold" if is_folded else "ellipsis",
            max_width=_FILE_FOLD_WIDTH
            if is_folded and not target.is_terminal
            else None,
        )
    for row in rows:
        table.add_row(*(Text(printable(str(cell))) for cell in row))
    if target.is_terminal:
        target.print(table)
        return
    with target.capture() as captured:
        target.print(table)
    for line in captured.get().splitlines():
        print(line.rstrip())


@contextmanager
def progress(text: str, *, is_shown: bool = True) -> Iterator[None]:
    """Says on stderr what takes its time: a spinner on a terminal, else a line."""
    if not is_shown:
        yield
        return
    stderr = console(to_stderr=True)
    if not stderr.is_terminal:
        stderr.print(f"{text} ...")
        yield
        return
    with stderr.status(text):
        yield


@contextmanager
def track(
    *works: tuple[str, int], is_shown: bool = True
) -> Iterator[list[Callable[[], None]]]:
    """Counts long work on stderr: bars with the rate and the time left.

    Where stderr is no terminal, a line at the beginning.

    Args:
        *works: what is counted, and how many steps it has.
        is_shown: whether anything is.

    Yields:
        For each of the works what to call after a step.
    """
    stderr = console(to_stderr=True)
    if not is_shown or not stderr.is_terminal:
        if is_shown:
            parts = (f"{text} ({total})" for text, total in works)
            stderr.print(f"{', '.join(parts)} ...")
        yield [lambda: None for _ in works]
        return
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=stderr) as bars:

        def counter(text: str, total: int) -> Callable[[], None]:
            task = bars.add_task(text, total=total, rate="", start=False)

            def advance() -> None:
                bars.start_task(task)
                bars.advance(task)
                speed = bars.tasks[task].speed
                rate = "" if speed is None else f"{60 * speed:.0f} a minute"
                bars.update(task, rate=rate)

            return advance

        yield [counter(text, total) for text, total in works]


def shortened(text: str, longest: int = 60) -> str:
    """The text, or as much of its beginning as fits, and "..."."""
    return text if len(text) <= longest else f"{text[: longest - 3]}..."


def format_count(value: float) -> str:
    """Digits in groups of three: "12,345"; "-" for what is unknown."""
    return "-" if math.isnan(value) else f"{value:,.0f}"


def plural(number: int, noun: str) -> str:
    """A number of things: "1 alternative", "1,200 alternatives"."""
    return f"{number:,} {noun}{'s' * (number != 1)}"


def format_quantity(value: float, unit: str = "") -> str:
    """Three or four digits and a prefix: "1.234 M"; "-" for what is unknown."""
    if math.isnan(value):
        return "-"
    for prefix in ("", "k", "M", "G", "T"):
        if abs(value) < 1000:
            break
        if prefix != "T":
            value /= 1000
    digits = f"{value:.4g}"
    return f"{digits} {prefix}{unit}".rstrip()


def format_seconds(value: float) -> str:
    """A time in the unit that suits it: "63.2 us"."""
    if math.isnan(value):
        return "-"
    for scale, unit in ((1, "s"), (1e-3, "ms"), (1e-6, "us")):
        if value >= scale:
            return f"{value / scale:.3g} {unit}"
    return f"{value / 1e-9:.3g} ns"


# When the command began: earlier measurements are from the store.
_began = time.time()


def begin() -> None:
    """Notes that a command begins."""
    global _began
    _began = time.time()


def print_store_note(times: Iterable[float]) -> None:
    """Says which measurements are from the store.

    Args:
        times: when each was made, in seconds since 1970; 0 if unknown.
    """
    times = list(times)
    earlier = [each for each in times if each < _began]
    if not earlier:
        return
    known = [datetime.date.fromtimestamp(each) for each in earlier if each > 0]
    when = f", measured {_span(known)}" if known else ""
    print_line(
        f"{len(earlier)} of {len(times)} measurements are from the store{when}; "
        "--again measures them again"
    )


def print_flag_note(module: HloModule, engine: str) -> None:
    """Says where the baseline differs from XLA with its own flags.

    Args:
        module: the baseline.
        engine: that compiles it.
    """
    from ..hlo.passes import describe_pass

    flag = "xla_cpu_enable_fast_min_max"
    counts = module.opcode_counts()
    if engine != "wheel" or not {"maximum", "minimum"} & counts.keys():
        return
    if flag in os.environ.get("XLA_FLAGS", ""):
        return
    # XLA's flags may come from a file, too.
    options = {each.name: each.default for each in describe_pass("algsimp").options}
    if not options["minmax_propagate_nan"]:
        return
    print_line(
        f"compiled with {flag}=false, so that minimum and maximum keep NaN\n"
        f"whatever is fused; XLA's own default is faster: XLA_FLAGS=--{flag}=true"
    )


def _span(dates: Sequence[datetime.date]) -> str:
    first, last = min(dates), max(dates)
    return f"on {first}" if first == last else f"from {first} to {last}"
