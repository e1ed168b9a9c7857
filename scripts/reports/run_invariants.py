#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks the invariants of rewriting: passes x modules x positions in XLA's pipeline.

Tests check a sample; this checks the full matrix (`hloenv.fuzz.cells` defines its
extent). Each module runs in its own child process, so that a crash of XLA is one row of
the result. Results are appended to JSONL files; a repeated run only checks missing
cells, and several shards may run concurrently. --doc writes the page and an archive of
the results next to it; every run continues from docs/invariants.parquet.

    python scripts/reports/run_invariants.py --seconds 600  # the shipped dataset
    python scripts/reports/run_invariants.py --shard 0/2  # a half of the modules
    python scripts/reports/run_invariants.py dataset:test --kinds structure
    python scripts/reports/run_invariants.py ../shared/hlo
    python scripts/reports/run_invariants.py --only 1f2e --passes algsimp
    python scripts/reports/run_invariants.py --sample 20261122 --seconds 100
    python scripts/reports/run_invariants.py --seconds 0 --doc docs/invariants.md
"""

from __future__ import annotations

import argparse
import datetime
import sys
import time
from pathlib import Path

from hloenv._native import core
from hloenv.bench.version import commit_of
from hloenv.fuzz import archive, cells
from hloenv.fuzz.results import Results, Row
from hloenv.fuzz.subjects import find_subjects
from hloenv.fuzz.summary import Summary
from hloenv.fuzz.sweep import Limits, Sweep, missing_tasks, sampled_tasks
from hloenv.fuzz.versions import CodeVersions, is_stale
from reporting import parser_of, write_page

ROOT = Path(__file__).resolve().parents[2]
_SAMPLE_INSTRUCTIONS = 800
_SAMPLE_PASSES = 6


def _shard(text: str) -> tuple[int, int]:
    index, _, count = text.partition("/")
    if not (index.isdigit() and count.isdigit() and int(index) < int(count)):
        raise argparse.ArgumentTypeError(f"{text!r} is not I/N with I from 0 to N-1")
    return int(index), int(count)


def parse_arguments() -> argparse.Namespace:
    """Parses the command line."""
    parser = parser_of(__doc__)
    parser.add_argument(
        "source",
        nargs="?",
        default="dataset",
        help="dataset, dataset:SPLIT, or a folder of HLO text (default: dataset)",
    )
    parser.add_argument("--results", type=Path, default=ROOT / "invariants")
    parser.add_argument(
        "--archives",
        nargs="*",
        type=Path,
        default=[ROOT / "docs" / "invariants.parquet"],
        metavar="FILE",
        help="results of other machines (default: docs/invariants.parquet)",
    )
    parser.add_argument(
        "--kinds", nargs="*", choices=sorted(cells.default_extents()), help="of checks"
    )
    parser.add_argument("--passes", nargs="*", default=[], help="only these")
    parser.add_argument("--variants", nargs="*", default=[], help="only these")
    parser.add_argument(
        "--only",
        metavar="PREFIX",
        default="",
        help="prefix of a fingerprint; check this module again",
    )
    parser.add_argument("--shard", type=_shard, default=(0, 1), metavar="I/N")
    parser.add_argument("--seconds", type=float, default=1e9, help="stop after this")
    parser.add_argument("--timeout", type=float, default=60.0, help="of one cell")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--nice", type=int, default=10)
    parser.add_argument(
        "--accept",
        nargs="*",
        default=[],
        metavar="VERSION",
        help="results of these versions of the code count too, if they are of the "
        "same TensorFlow, but for failures, because nothing that they check has "
        "changed since",
    )
    parser.add_argument(
        "--retry",
        action="store_true",
        help="check cells again that exceeded time or memory",
    )
    parser.add_argument("--sample", metavar="SEED", help="check random cells endlessly")
    parser.add_argument("--failures", type=Path, help="save modules that fail here")
    return parser.parse_args()


def _header(
    arguments: argparse.Namespace, versions: CodeVersions, kinds: list[str]
) -> list[str]:
    listed = versions.described(kinds)
    if arguments.accept:
        listed += f" (and results of {', '.join(arguments.accept)})"
    return [
        f"modules: {arguments.source}; {datetime.date.today().isoformat()}",
        f"sources: {commit_of(ROOT)}; versions of the checked code: {listed}; XLA of "
        f"TensorFlow {core.tensorflow_version}; Python {sys.version.split()[0]}",
    ]


def read_results(arguments: argparse.Namespace, versions: CodeVersions) -> Results:
    """Reads results, without those that the command line requests again."""
    beside = [arguments.doc.with_suffix(".parquet")] if arguments.doc else []
    paths = {path.resolve(): path for path in (*arguments.archives, *beside)}
    archived = [
        row for path in paths.values() if path.is_file() for row in archive.read(path)
    ]
    results = Results(arguments.results, versions, arguments.accept, archived=archived)
    if results.num_damaged:
        print(f"warning: {results.num_damaged} damaged lines", file=sys.stderr)

    def is_wanted(row: Row) -> bool:
        # Violations of other versions of the code are checked again.
        is_old = bool(row.violations) and row.version != versions.of(
            row.kind, row.passes
        )
        is_named = arguments.only and row.fingerprint.startswith(arguments.only)
        return bool(is_old or is_named or (arguments.retry and row.is_limited))

    results.look_again(is_wanted)
    return results


class _Progress:
    """Prints a line on stderr every ten seconds."""

    def __init__(self) -> None:
        self._last = 0.0

    def __call__(self, sweep: Sweep) -> None:
        now = time.monotonic()
        if now - self._last < 10:
            return
        self._last = now
        spent = ", ".join(f"{k} {s:.0f} s" for k, s in sorted(sweep.seconds.items()))
        num_failed = sum(bool(r.violations) for r in sweep.results.rows.values())
        print(
            f"{sweep.num_cells} cells, {num_failed} failures so far ({spent})",
            file=sys.stderr,
            flush=True,
        )


def main() -> int:
    """Checks missing cells and writes the page; returns 1 if there are violations."""
    arguments = parse_arguments()
    if is_stale(ROOT, Path(core.__file__)):
        print("warning: csrc/ is newer than the extension", file=sys.stderr)
    subjects, unread = find_subjects(arguments.source)
    subjects = [s for s in subjects if s.fingerprint.startswith(arguments.only)]
    extents = cells.default_extents()
    kinds = arguments.kinds or list(extents)
    plan = cells.Plan(
        subjects,
        [extents[kind] for kind in kinds],
        passes=arguments.passes,
        variants=arguments.variants,
    )
    # Of all kinds, so that kinds that are not checked now stay in the archive.
    versions = CodeVersions.of_sources(ROOT, cells.candidates())
    results = read_results(arguments, versions)
    index, count = arguments.shard
    sweep = Sweep(
        results,
        name=f"shard-{index}-of-{count}",
        limits=Limits(
            arguments.timeout, workers=arguments.workers, nice=arguments.nice
        ),
        failures=arguments.failures,
    )
    if arguments.sample:
        sample = sampled_tasks(
            plan,
            arguments.sample,
            max_instructions=_SAMPLE_INSTRUCTIONS,
            num_passes=_SAMPLE_PASSES,
        )
        rounds = [[sample]]
    else:
        # Of every kind the cells of every module, before further ones of any.
        rounds = [
            [
                missing_tasks(plan, results, kind, arguments.shard, is_first=is_first)
                for kind in kinds
            ]
            for is_first in (True, False)
        ]
    deadline = time.monotonic() + arguments.seconds
    for queues in rounds:
        left = deadline - time.monotonic()
        if left > 0:
            sweep.run(queues, seconds=left, progress=_Progress())
    for line in unread:
        print(f"unread: {line}", file=sys.stderr)
    summary = Summary(plan, results)
    header = _header(arguments, versions, kinds)
    write_page(summary.to_markdown(header).splitlines(), arguments.doc)
    if arguments.doc:
        archive.write(arguments.doc.with_suffix(".parquet"), results.everything())
    return int(bool(summary.failures))


if __name__ == "__main__":
    sys.exit(main())
