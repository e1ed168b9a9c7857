# SPDX-License-Identifier: Apache-2.0
"""hloenv bench: the leaderboard of policies and searches."""

from __future__ import annotations

import argparse
import os
import random
from pathlib import Path

from ..bench import runner
from ..bench.contestants import (
    BEST_RULE,
    HEURISTICS,
    SEARCHES,
    THREADED_HEURISTICS,
    THREADED_SEARCHES,
    as_contestants,
)
from ..bench.rows import Row, require_pyarrow, write_parquet
from ..bench.runner import Entry, Plan, from_dataset, from_files
from ..bench.spaces import SPACES
from ..errors import ArgumentError
from ..machine import this_machine
from ..policies import list_policies
from ..settings import Settings
from ..store import Store
from . import output
from .arguments import not_negative, positive

DESCRIPTION = (
    "Plays modules with policies and searches, compiles what they decide, compares its "
    "outputs with the original's, and times it against XLA's default. Writes the raw "
    "results (results.parquet), a report (report.md, report.html) and plots. A run "
    "that was interrupted goes on where it was: everything is in the store."
)
EXAMPLES = """\
examples:
  hloenv bench --quick                              # ten minutes, a first look
  hloenv bench --split test --modules 200           # the table of all heuristics
  hloenv bench -c fusion/fuse-by-bytes -c live/keep-original a.hlo b.hlo
  hloenv bench --search --contestant fusion/search:evolve --threads 2
  hloenv bench --list                               # spaces, policies, searches
"""
_QUICK_MODULES, _QUICK_SECONDS, _QUICK_MODULE_SECONDS = 40, 600.0, 90


def add_parser(parser: argparse.ArgumentParser) -> None:
    """Declares the arguments."""
    parser.add_argument(
        "files",
        metavar="MODULE",
        nargs="*",
        type=Path,
        help="HLO text or protos, or folders of *.txt and *.hlo; "
        "by default a split of the dataset",
    )
    parser.add_argument(
        *("-c", "--contestant"),
        dest="contestants",
        metavar="SPACE/POLICY",
        action="append",
        help="who takes part, such as fusion/fuse-by-bytes or all/search:evolve; "
        "repeat it (default: all fixed heuristics)",
    )
    parser.add_argument(
        "--search", action="store_true", help="searches too, not policies alone"
    )
    parser.add_argument("--list", action="store_true", help="what there is, and end")
    parser.add_argument(
        "--split",
        choices=("train", "validation", "test"),
        default="test",
        help="of the dataset (default test)",
    )
    counts = (
        ("--modules", None, "a random sample of so many modules"),
        ("--max-instructions", 20_000, "leave larger modules out"),
        ("--min-instructions", 1, "leave smaller modules out"),
        ("--threads", 1, "cores that a module runs on"),
        ("--seeds", 1, "of contestants that draw random numbers"),
        ("--estimates", 200, "that a search may make"),
        ("--measurements", 20, "that a search may make"),
        ("--module-timeout", 1800, "seconds for all contestants on one module"),
    )
    for name, default, text in counts:
        shown = "" if default is None else f" (default {default})"
        parser.add_argument(
            name, metavar="N", type=positive, default=default, help=text + shown
        )
    parser.add_argument(
        "--seed",
        metavar="N",
        type=not_negative,
        default=0,
        help="of the sample and the first of the contestants (default 0)",
    )
    parser.add_argument(
        "--seconds", metavar="S", type=positive, help="start no module after so long"
    )
    parser.add_argument(
        "--search-seconds",
        metavar="S",
        type=positive,
        help="that a search may propose and estimate",
    )
    parser.add_argument(
        "--precision",
        metavar="SHARE",
        type=float,
        default=0.02,
        help="half the width of the wanted interval of a speed-up (default 0.02)",
    )
    parser.add_argument(
        "--workers",
        metavar="N",
        type=positive,
        help="modules at the same time (default: as many as there are cores for)",
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help=f"{_QUICK_MODULES} modules at most, {_QUICK_SECONDS / 60:.0f} minutes, "
        f"{_QUICK_MODULE_SECONDS} seconds for each",
    )
    parser.add_argument(
        "--store",
        metavar="FILE",
        help="where rows, measurements and times of kernels are kept (default: "
        "$HLOENV_STORE, or hloenv/store.sqlite in the user's cache folder)",
    )
    parser.add_argument(
        "--again", action="store_true", help="play what is in the store already"
    )
    parser.add_argument(
        *("-o", "--output"),
        metavar="FOLDER",
        type=Path,
        default=Path("bench"),
        help="where results, report and plots go (default ./bench)",
    )


def run(args: argparse.Namespace) -> None:
    """Plays."""
    if args.list:
        _list()
        return
    is_threaded = args.threads > 1
    names = list(args.contestants or HEURISTICS)
    if is_threaded and not args.contestants:
        names += THREADED_HEURISTICS
    if args.search:
        names += SEARCHES + THREADED_SEARCHES * is_threaded
    contestants = as_contestants(names)
    require_pyarrow()  # before hours of work, not after
    entries = _entries(args)
    module_s = args.module_timeout
    if args.quick:
        module_s = min(module_s, _QUICK_MODULE_SECONDS)
    plan = Plan(
        contestants=contestants,
        seeds=tuple(range(args.seed, args.seed + args.seeds)),
        settings=Settings(
            threads=args.threads, precision=args.precision, timeout_s=300
        ),
        estimates=args.estimates,
        measurements=args.measurements,
        search_s=args.search_seconds,
        module_s=module_s,
        again=args.again,
    )
    cores = len(os.sched_getaffinity(0)) // args.threads
    seconds = _QUICK_SECONDS if args.quick else args.seconds
    with (
        Store(args.store) as store,
        output.track(("modules", len(entries)), is_shown=not args.json) as (done,),
    ):
        rows = runner.run(
            entries,
            plan,
            store,
            workers=args.workers or max(1, cores),
            seconds=seconds,
            on_module=done,
        )
    _write(args, rows)


def _entries(args: argparse.Namespace) -> list[Entry]:
    entries = from_files(_paths(args.files)) if args.files else from_dataset(args.split)
    low, high = args.min_instructions, args.max_instructions
    entries = [each for each in entries if low <= each.instruction_count <= high]
    count = args.modules or (_QUICK_MODULES if args.quick else None)
    if count is not None:
        random.Random(args.seed).shuffle(entries)
        entries = entries[:count]
    if not entries:
        raise ArgumentError("no module is left to play: see --min-instructions")
    return entries


def _paths(given: list[Path]) -> list[Path]:
    found = []
    for path in given:
        if path.is_dir():
            inside = sorted([*path.rglob("*.txt"), *path.rglob("*.hlo")])
            if not inside:
                raise ArgumentError(f"{path} holds no *.txt and no *.hlo")
            found += inside
        else:
            found.append(path)
    return found


def _write(args: argparse.Namespace, rows: list[Row]) -> None:
    from ..bench.report import html, largest_wins, markdown, tables

    folder: Path = args.output
    folder.mkdir(parents=True, exist_ok=True)
    write_parquet(rows, folder / "results.parquet")
    try:
        from ..bench.plots import write_plots

        plots = write_plots(rows, folder)
    except ImportError:
        plots = []
    text = markdown(rows, _facts(rows), plots)
    (folder / "report.md").write_text(text)
    (folder / "report.html").write_text(html(text))
    if args.json:
        output.print_json([row.to_json() for row in rows])
        return
    for title, (columns, cells) in tables(rows).items():
        if title.startswith("By module"):
            continue
        output.print_table(columns, cells, title=title, right=columns[1:])
        output.print_line()
    for line in largest_wins(rows):
        output.print_line(f"* {line}")
    written = ["report.md", "report.html", "results.parquet", *plots]
    output.print_line(f"\nwrote {folder}/{', '.join(written)}")
    if not plots:
        output.print_line("no plots: matplotlib is missing (pip install hloenv[bench])")


def _facts(rows: list[Row]) -> dict[str, str]:
    import datetime
    import sys

    machine = this_machine()
    command = " ".join(["hloenv", *sys.argv[1:]])
    return {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "machine": f"{machine.cpu}, {os.cpu_count()} cores",
        "command": f"`{command}`",
        "modules": str(len({row.module for row in rows})),
        "threads": ", ".join(str(each) for each in sorted({r.threads for r in rows})),
    }


def _list() -> None:
    from ..searches import list_searches

    rows = [(space.name, space.summary) for space in SPACES.values()]
    output.print_table(("space", "what is decided"), rows, fold=("what is decided",))
    output.print_line("\npolicies: " + ", ".join((*list_policies(), BEST_RULE)))
    searches = ", ".join(f"search:{name}" for name in list_searches())
    output.print_line("searches: " + searches)
