# SPDX-License-Identifier: Apache-2.0
"""hloenv fuzz: random modules, passes and decisions against the invariants."""

from __future__ import annotations

import argparse
import contextlib
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from .._files import check_folder
from ..errors import HloEnvError
from ..fuzz.campaign import Campaign, Limits, Summary
from ..fuzz.cases import REAL_SHARE
from ..fuzz.reproducers import read_case
from ..fuzz.subjects import DATASET, find_subjects
from ..hlo.passes import describe_pass
from . import output
from .arguments import add_pass
from .numbers import above_zero, add_count, share

DESCRIPTION = (
    "Checks the invariants of rewriting on random episodes: random modules (and real "
    "ones, from SOURCE), random passes and pipelines with random options, random "
    "decisions. Each case runs in a child process with a time and a memory limit. A "
    "failing case is reduced to a small module and few decisions, and saved as a "
    "module and a trace. The exit code is 1 if an invariant was broken."
)
EXAMPLES = """\
examples:
  hloenv fuzz --seconds 60
  hloenv fuzz dataset:train --cases 1000 --jobs 2
  hloenv fuzz models/ --cases 10000 --seed 7 --jobs 4 -o failures
  hloenv fuzz --pass algsimp --pass cse --cases 500
  hloenv fuzz --replay failures/invariant-4-0f1e2d3c.json
"""
_DEFAULT_SECONDS = 60.0
_MAX_KB = 60
# Approximate: the dataset records the instructions of a module, not its text length.
_INSTRUCTIONS_IN_A_KB = 10
# If stderr is not a terminal.
_CASES_IN_A_LINE = 100


class InvariantError(HloEnvError, AssertionError):
    """An invariant of rewriting does not hold."""


def add_parser(parser: argparse.ArgumentParser) -> None:
    """Declares the arguments."""
    parser.add_argument(
        "source",
        nargs="?",
        metavar="SOURCE",
        help="real modules: a folder of **/*.hlo and **/*.txt; or dataset, or "
        "dataset:SPLIT, which excludes random modules",
    )
    parser.add_argument(
        "--seconds",
        metavar="S",
        type=above_zero,
        help=f"start no case after S seconds (default {_DEFAULT_SECONDS:.0f}; no limit "
        "with --cases)",
    )
    add_count(parser, "--cases", "stop after N cases")
    add_count(parser, "--seed", "seed of the cases", 0, least=0)
    add_count(
        parser,
        "--first",
        "number of the first case, to continue an earlier run",
        0,
        least=0,
    )
    add_count(parser, "--jobs", "cases run concurrently", 1)
    add_pass(
        parser, "draw only this pass; repeat the option for several (default: all)"
    )
    add_count(parser, "--max-kb", "largest text of a real module, in KB", _MAX_KB)
    parser.add_argument(
        "--real",
        metavar="SHARE",
        type=share,
        help="share of the cases that use a real module (default "
        f"{REAL_SHARE:.2f}, or 1 with a dataset)",
    )
    parser.add_argument(
        "--timeout",
        metavar="S",
        type=above_zero,
        default=Limits.timeout_s,
        help=f"time limit of one case, in seconds (default {Limits.timeout_s:.0f})",
    )
    parser.add_argument(
        "--reduce-seconds",
        metavar="S",
        type=above_zero,
        default=Limits.reduce_s,
        help="time limit for the reduction of one failure, in seconds (default "
        f"{Limits.reduce_s:.0f})",
    )
    parser.add_argument(
        *("-o", "--output"),
        metavar="FOLDER",
        default="fuzz-failures",
        help="folder for the failing cases (default fuzz-failures)",
    )
    parser.add_argument(
        "--replay", metavar="FILE", help="check only this saved case again"
    )


def run(args: argparse.Namespace) -> None:
    """Runs a campaign, or one saved case.

    Raises:
        InvariantError: an invariant was broken.
    """
    for name in args.passes:
        describe_pass(name)
    limits = Limits(timeout_s=args.timeout, reduce_s=args.reduce_seconds)
    if args.replay is not None:
        case = read_case(Path(args.replay))
        summary = Campaign(limits=limits).check(case)
    else:
        check_folder(Path(args.output))
        sources, read = _real_modules(args.source, args.max_kb)
        share = 1.0 if _is_dataset(args.source) else REAL_SHARE
        campaign = Campaign(
            seed=args.seed,
            sources=sources,
            read=read,
            real_share=share if args.real is None else args.real,
            names=args.passes,
            output=Path(args.output),
            limits=limits,
            jobs=args.jobs,
        )
        seconds = args.seconds
        if seconds is None and args.cases is None:
            seconds = _DEFAULT_SECONDS
        shown = _progress(args.cases, seconds, is_shown=not args.json)
        try:
            with _termination_raised(), shown as progress:
                summary = campaign.run(
                    cases=args.cases,
                    seconds=seconds,
                    first=args.first,
                    progress=progress,
                )
        except KeyboardInterrupt:
            _show(args, campaign.summary)
            print(
                f"ended early; to check the cases after these: --first {campaign.next}",
                file=sys.stderr,
            )
            raise
    _show(args, summary)
    if summary.broken:
        total = sum(summary.broken.values())
        raise InvariantError(f"{total} invariants broken in {summary.cases} cases")


@contextlib.contextmanager
def _termination_raised() -> Iterator[None]:
    """SIGTERM is a KeyboardInterrupt too: of a job in the background, say."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _show(args: argparse.Namespace, summary: Summary) -> None:
    if args.json:
        output.print_json({"seed": args.seed, "first": args.first, **summary.to_json()})
    else:
        _print(summary)


def _is_dataset(source: str | None) -> bool:
    return source is not None and source.partition(":")[0] == DATASET


def _real_modules(
    source: str | None, max_kb: int
) -> tuple[list[str], Callable[[str], str]]:
    """The sources of real modules, and a function that reads one."""
    if source is None or not _is_dataset(source):
        return _paths(source, max_kb), str
    subjects, _ = find_subjects(source)
    by_name = {
        each.fingerprint: each
        for each in subjects
        if each.instruction_count <= max_kb * _INSTRUCTIONS_IN_A_KB
    }
    return sorted(by_name), lambda name: by_name[name].text


def _paths(folder: str | None, max_kb: int) -> list[str]:
    if folder is None:
        return []
    if not Path(folder).is_dir():
        raise FileNotFoundError(f"folder {folder} does not exist; name another SOURCE")
    paths = [*Path(folder).glob("**/*.hlo"), *Path(folder).glob("**/*.txt")]
    found = sorted(str(p) for p in paths if p.stat().st_size <= max_kb * 1024)
    if not found:
        raise FileNotFoundError(
            f"{folder} has no *.hlo or *.txt file <= {max_kb} KB; name another folder "
            "or raise --max-kb"
        )
    return found


@contextlib.contextmanager
def _progress(
    cases: int | None, seconds: float | None, *, is_shown: bool
) -> Iterator[Callable[[Summary], None]]:
    """A progress bar on stderr; in a log, one line per `_CASES_IN_A_LINE` cases."""
    console = output.console(to_stderr=True)
    if not is_shown:
        yield lambda _: None
        return
    if not console.is_terminal:
        yield (
            lambda summary: (
                None
                if summary.cases % _CASES_IN_A_LINE
                else print(_state(summary), file=sys.stderr, flush=True)
            )
        )
        return
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    bar = Progress(
        BarColumn(),
        TextColumn("{task.description}"),
        TimeElapsedColumn(),
        console=console,
    )
    total = cases if seconds is None else seconds
    with bar:
        task = bar.add_task("starting", total=total)

        def update(summary: Summary) -> None:
            done = summary.cases if seconds is None else summary.seconds
            bar.update(task, completed=done, description=_state(summary))

        yield update


def _state(summary: Summary) -> str:
    broken = sum(summary.broken.values())
    return f"{summary.cases} cases, {broken} invariants broken"


def _print(summary: Summary) -> None:
    invariants = sorted(
        {*summary.checked, *(_short(invariant) for invariant in summary.broken)}
    )
    broken: dict[str, int] = {}
    for invariant, count in summary.broken.items():
        broken[_short(invariant)] = broken.get(_short(invariant), 0) + count
    output.print_table(
        ("invariant", "checked", "broken"),
        [
            (invariant, summary.checked[invariant] or "-", broken.get(invariant, 0))
            for invariant in invariants
        ],
        right=("checked", "broken"),
    )
    output.print_line()
    for title, counts in (
        ("skipped", summary.skipped),
        ("XLA crashed, or a limit was reached", summary.died),
    ):
        if counts:
            output.print_table(
                (title, "times"),
                counts.most_common(12),
                right=("times",),
                fold=(title,),
            )
            output.print_line()
    for failure in summary.failures:
        output.print_line(failure.violation[:300])
        if failure.path:
            size = "" if failure.is_reduced else " (could not be reduced)"
            output.print_line(f"  {failure.path}{size}")
    output.print_line(
        f"{summary.cases} cases in {summary.seconds:.0f} s: {summary.steps} captures "
        f"of {len(summary.passes)} passes, "
        f"{output.plural(summary.alternatives, 'alternative')}, "
        f"{len(summary.opcodes)} opcodes"
    )


def _short(invariant: str) -> str:
    return invariant.removeprefix("invariant ")
