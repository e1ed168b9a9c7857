# SPDX-License-Identifier: Apache-2.0
"""hloenv bench: the leaderboard of policies, searches and baselines."""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path

from .._files import check_folder
from .._registry import Info
from ..bench import runner
from ..bench.baselines import BASELINES
from ..bench.entries import Entry, from_dataset, from_files, sample
from ..bench.methods import (
    BASELINE_METHODS,
    BEST_RULE,
    HEURISTICS,
    SEARCHES,
    THREADED_HEURISTICS,
    THREADED_SEARCHES,
    as_methods,
)
from ..bench.rows import require_pyarrow
from ..bench.runner import Plan
from ..cost.registry import DEFAULT_ESTIMATOR, describe_estimator, list_estimators
from ..dataset.reader import EXTENTS
from ..errors import ArgumentError
from ..measurement.config import Settings
from ..measurement.store import Store
from ..policies import describe_policy, list_policies
from ..search.spaces import SPACES
from . import output
from .arguments import add_engine, add_estimator, add_store_file
from .bench_files import Finished, write_report
from .numbers import add_count

DESCRIPTION = (
    "Runs policies and searches on modules, compiles the decided modules, compares "
    "their outputs with the original's, and times them against XLA's default. Writes "
    "the raw results (results.parquet), a report (report.md, report.html) and plots. "
    "An interrupted run resumes from the store if the sources are unchanged. The "
    "baselines, jax.jit and other flags of XLA, are methods of every leaderboard."
)
EXAMPLES = """\
examples:
  hloenv bench --quick                              # ten minutes, a first look
  hloenv bench --split test --modules 200           # the table of all heuristics
  hloenv bench -c fusion/fuse-by-bytes -c live/keep-original a.hlo b.hlo
  hloenv bench --search --method fusion/search:evolve --threads 2
  hloenv bench --split test --extent real -c runtime/accept-all   # real sizes
  hloenv bench --list                               # what methods are made of
"""
_QUICK_MODULES, _QUICK_SECONDS, _QUICK_MODULE_SECONDS = 40, 600.0, 90


def add_parser(parser: argparse.ArgumentParser) -> None:
    """Declares the arguments."""
    parser.add_argument(
        "files",
        metavar="MODULE",
        nargs="*",
        type=Path,
        help="HLO text or protos, or folders of *.txt and *.hlo (default: the "
        "dataset's split that --split names)",
    )
    parser.add_argument(
        *("-c", "--method", "--contestant"),
        dest="methods",
        metavar="SPACE/POLICY",
        action="append",
        help="a method, such as fusion/fuse-by-bytes, all/search:evolve or "
        "baseline/jax.jit; repeat the option for several (default: all heuristics)",
    )
    parser.add_argument(
        "--no-baselines",
        action="store_true",
        help="leave out the baselines: jax.jit and other flags of XLA (with --engine "
        "jaxlib, jax.jit is what all methods are compared with)",
    )
    add_engine(parser)
    parser.add_argument("--search", action="store_true", help="include the searches")
    parser.add_argument(
        "--list",
        action="store_true",
        help="list spaces, policies, searches, estimators; then exit",
    )
    parser.add_argument(
        "--split",
        choices=("train", "validation", "test", "unseen"),
        default="test",
        help="split of the dataset (default test); unseen: projects on which no "
        "method was tuned",
    )
    parser.add_argument(
        "--extent",
        choices=EXTENTS,
        default="small",
        help="array extents of the dataset's modules: small, or those of real runs "
        "(default small)",
    )
    parser.add_argument(
        "--source",
        dest="sources",
        metavar="PROJECT",
        action="append",
        default=[],
        help="only modules of this project of the split; repeat the option for several "
        "(`hloenv dataset stats --split SPLIT` lists them)",
    )
    counts = (
        ("--modules", None, "size of a random sample of the modules"),
        ("--max-instructions", 20_000, "largest module, in instructions"),
        ("--min-instructions", 1, "smallest module, in instructions"),
        ("--threads", 1, "cores that each module runs on"),
        ("--seeds", 1, "number of seeds for each random method"),
        ("--estimates", 200, "candidates that each search may estimate"),
        ("--measurements", 20, "candidates that each search may measure"),
        ("--module-timeout", 1800, "seconds for all methods on one module"),
    )
    for name, default, text in counts:
        add_count(parser, name, text, default)
    add_count(
        parser,
        "--seed",
        "seed of the sample, and first seed of the methods",
        0,
        least=0,
    )
    add_count(parser, "--seconds", "start no module after S seconds", metavar="S")
    add_estimator(
        parser,
        f"of searches and of {BEST_RULE} (default {DEFAULT_ESTIMATOR})",
        DEFAULT_ESTIMATOR,
    )
    add_count(
        parser,
        "--search-seconds",
        "time limit of each search for its proposals and estimates",
        metavar="S",
    )
    parser.add_argument(
        "--precision",
        metavar="SHARE",
        type=float,
        default=0.02,
        help="target half-width of the 95 %% interval of a speed-up (default 0.02)",
    )
    add_count(
        parser,
        "--workers",
        "modules that run concurrently (default: available cores / threads)",
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help=f"{_QUICK_MODULES} modules at most, {_QUICK_SECONDS / 60:.0f} minutes, "
        f"{_QUICK_MODULE_SECONDS} seconds for each",
    )
    add_store_file(
        parser, "SQLite file that caches rows, measurements and kernel times"
    )
    parser.add_argument(
        "--again", action="store_true", help="run again what the store holds"
    )
    parser.add_argument(
        *("-o", "--output"),
        metavar="FOLDER",
        type=Path,
        default=Path("bench"),
        help="folder for results, report and plots (default ./bench)",
    )


def run(args: argparse.Namespace) -> None:
    """Runs the methods on the modules and writes the report."""
    if args.list:
        _list()
        return
    check_folder(args.output)
    is_threaded = args.threads > 1
    names = list(args.methods or HEURISTICS)
    if is_threaded and not args.methods:
        names += THREADED_HEURISTICS
    if args.search:
        names += SEARCHES + THREADED_SEARCHES * is_threaded
    if not args.no_baselines and args.engine == "wheel":
        names += BASELINE_METHODS
    methods = as_methods(names)
    require_pyarrow()  # before hours of work, not after
    entries, sampled = _entries(args)
    module_s = args.module_timeout
    if args.quick:
        module_s = min(module_s, _QUICK_MODULE_SECONDS)
    plan = Plan(
        methods=methods,
        seeds=tuple(range(args.seed, args.seed + args.seeds)),
        settings=Settings(
            engine=args.engine,
            threads=args.threads,
            precision=args.precision,
            timeout_s=300,
        ),
        estimates=args.estimates,
        measurements=args.measurements,
        search_s=args.search_seconds,
        module_s=module_s,
        estimator=args.estimator,
        again=args.again,
    )
    cores = len(os.sched_getaffinity(0)) // args.threads
    seconds = _QUICK_SECONDS if args.quick else args.seconds
    workers = args.workers or max(1, cores)
    started = time.time()
    with Store(args.store) as store:
        with output.track(("modules", len(entries)), is_shown=not args.json) as (done,):
            rows = runner.run(
                entries,
                plan,
                store,
                workers=workers,
                seconds=seconds,
                on_module=done,
            )
        write_report(
            Finished(rows, entries, plan, store, sampled, started, workers),
            args.output,
            is_json=args.json,
        )


def _entries(args: argparse.Namespace) -> tuple[list[Entry], str]:
    """The modules, and a description of how they were chosen."""
    if args.files:
        if args.sources:
            raise ArgumentError(
                f"--source {args.sources[0]} chooses among the modules of the dataset, "
                "and files are given; leave out one of the two"
            )
        entries, part = from_files(_paths(args.files)), "files"
    else:
        entries = from_dataset(args.split, extent=args.extent, sources=args.sources)
        part = f"{args.split} split, {args.extent} extents"
        if args.sources:
            part += f", projects {', '.join(sorted(set(args.sources)))}"
    low, high = args.min_instructions, args.max_instructions
    entries = [each for each in entries if low <= each.instruction_count <= high]
    if not entries:
        raise ArgumentError(
            f"none of the modules ({part}) has {low} to {high} instructions; change "
            "--min-instructions or --max-instructions"
        )
    words = f"{part}, {low} to {high} instructions: {len(entries)} modules"
    count = args.modules or (_QUICK_MODULES if args.quick else None)
    if count is None or count >= len(entries):
        return entries, f"all of {words}"
    return (
        sample(entries, count, args.seed),
        f"{count} at random, seed {args.seed}, of {words}",
    )


def _paths(given: list[Path]) -> list[Path]:
    found = []
    for path in given:
        if path.is_dir():
            inside = sorted([*path.rglob("*.txt"), *path.rglob("*.hlo")])
            if not inside:
                raise ArgumentError(
                    f"folder {path} has no *.txt or *.hlo file; name another folder"
                )
            found += inside
        else:
            found.append(path)
    return found


def _list() -> None:
    from ..search import describe_search, list_searches

    rows = [(space.name, space.summary) for space in SPACES.values()]
    output.print_table(("space", "what is decided"), rows, fold=("what is decided",))
    policies = [_named(describe_policy(name)) for name in list_policies()]
    output.print_line("\npolicies: " + ", ".join((*policies, BEST_RULE)))
    searches = [f"search:{_named(describe_search(name))}" for name in list_searches()]
    output.print_line("searches: " + ", ".join(searches))
    estimators = [_named(describe_estimator(name)) for name in list_estimators()]
    output.print_line("estimators: " + ", ".join(estimators) + "\n")
    baselines = [(f"baseline/{each.name}", each.summary) for each in BASELINES.values()]
    output.print_table(("baseline", "definition"), baselines, fold=("definition",))


def _named(info: Info) -> str:
    return info.name + (f" (from {info.origin})" if info.origin != "hloenv" else "")
