#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks the laws of rewriting on a folder of modules, for every pass.

Tests check a sample; this is the whole matrix: passes (alone and in seeded pairs) x
modules x variants. Each module runs in its own child process, so that a CHECK failure
inside XLA is one line of the result. Results go into a JSONL file as they come, and a
run that is started again does only what is missing:

    python scripts/run_laws.py                        # ../shared/hlo, all passes
    python scripts/run_laws.py --values               # laws 4 and 5 too
    python scripts/run_laws.py --values 40            # ... on modules of up to 40 KB
    python scripts/run_laws.py --seconds 600 --pairs 8 --doc docs/laws.md
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import random
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from hloenv._native import core
from hloenv.errors import HloEnvError
from hloenv.fuzz import matrix as checks
from hloenv.fuzz.children import Outcome, run_jobs
from hloenv.module import HloModule

ROOT = Path(__file__).resolve().parent.parent

_ALL_KB = 10**6

Key = tuple[str, str, str, str, str]  # law set, fingerprint, variant, passes, version


def code_version() -> str:
    """Commit of the sources, with a mark when they were changed since."""

    def git(*arguments: str) -> str:
        return subprocess.run(
            ["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False
        ).stdout.strip()

    changed = git("status", "--porcelain", "--", "csrc", "python")
    return (git("rev-parse", "--short", "HEAD") or "unknown") + "+" * bool(changed)


class Matrix:
    """What is to be checked, and what has been."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.arguments = arguments
        self.version = code_version()
        self.versions = {
            "structure": arguments.structure_of or self.version,
            "values": self.version,
        }
        self.results_path = Path(arguments.results)
        self.results: dict[Key, dict[str, Any]] = {}
        self.unread: list[str] = []
        self._read_results()
        self.modules: list[tuple[Path, str]] = []
        # Small enough for laws 4 and 5.
        self.evaluated: set[str] = set()
        for path, fingerprint in self._modules():
            self.modules.append((path, fingerprint))
            if path.stat().st_size <= arguments.values * 1024:
                self.evaluated.add(fingerprint)

    def _read_results(self) -> None:
        if not self.results_path.exists():
            return
        for line in self.results_path.read_text().splitlines():
            record = json.loads(line)
            self.results[self._key_of(record)] = record

    @staticmethod
    def _key_of(record: dict[str, Any]) -> Key:
        return (
            record["laws"],
            record["fingerprint"],
            record["variant"],
            record["passes"],
            record["version"],
        )

    def _modules(self) -> Iterator[tuple[Path, str]]:
        paths = sorted(Path(self.arguments.folder).glob("**/*.txt"))
        paths += sorted(Path(self.arguments.folder).glob("**/*.hlo"))
        paths = [p for p in paths if p.stat().st_size <= self.arguments.max_kb * 1024]
        # A run that is cut short has then seen a bit of everything.
        random.Random(0).shuffle(paths)
        for path in paths[: self.arguments.modules]:
            try:
                yield path, HloModule.from_file(path).fingerprint()
            except HloEnvError as error:
                self.unread.append(f"{path.name}: {error}")

    def passes_of(self, fingerprint: str) -> list[str]:
        """Every pass, then pairs that depend on the module alone."""
        names = self.arguments.passes or checks.all_passes()
        rng = random.Random(fingerprint)
        pairs = [",".join(rng.sample(names, 2)) for _ in range(self.arguments.pairs)]
        return [*names, *dict.fromkeys(pairs)] if len(names) > 1 else list(names)

    def law_sets(self) -> list[str]:
        """The functions to run."""
        return ["structure", "values"] if self.evaluated else ["structure"]

    def missing(self, laws: str, variant: str, fingerprint: str) -> list[str]:
        """What has no result yet."""
        return [
            passes
            for passes in self.passes_of(fingerprint)
            if (laws, fingerprint, variant, passes, self.versions[laws])
            not in self.results
        ]

    def jobs(self) -> Iterator[tuple[str, tuple[Path, str], str, list[str]]]:
        """(laws, module, variant, passes) of all that is missing."""
        for module in self.modules:
            for variant in self.arguments.variants:
                for laws in self.law_sets():
                    if laws == "values" and module[1] not in self.evaluated:
                        continue
                    passes = self.missing(laws, variant, module[1])
                    if passes:
                        yield laws, module, variant, passes

    def add(
        self, laws: str, module: tuple[Path, str], variant: str, report: dict[str, Any]
    ) -> None:
        """Stores one result."""
        path, fingerprint = module
        record = {
            "laws": laws,
            "module": f"{path.parent.name}/{path.stem}",
            "fingerprint": fingerprint,
            "variant": variant,
            "version": self.version,
            **report,
        }
        self.results[self._key_of(record)] = record
        with self.results_path.open("a") as file:
            file.write(json.dumps(record) + "\n")

    def take(self, job: Any, outcome: Outcome) -> None:
        """Stores what a child found; the pass that killed it gets the blame."""
        laws, module, variant, passes = job
        for report in outcome.values:
            if report.passes:
                self.add(laws, module, variant, asdict(report))
                continue
            for each in passes:  # nothing can be checked on this module
                self.add(laws, module, variant, {**asdict(report), "passes": each})
        num_done = len([report for report in outcome.values if report.passes])
        if outcome.error and num_done < len(passes):
            violation = outcome.error.strip()
            kind = "skipped" if violation == "timeout" else "violations"
            self.add(
                laws,
                module,
                variant,
                {
                    "passes": passes[num_done],
                    "num_alternatives": 0,
                    "violations": [violation[:2000]] if kind == "violations" else [],
                    "skipped": "timeout" if kind == "skipped" else "",
                    "whole": [],
                },
            )


def run(matrix: Matrix) -> bool:
    """Checks what is missing, in rounds; returns whether everything is done."""
    deadline = time.monotonic() + matrix.arguments.seconds
    progress = _progress()
    while jobs := list(matrix.jobs()):
        num_before = len(matrix.results)
        for laws in matrix.law_sets():
            of_laws = [job for job in jobs if job[0] == laws]
            arguments = [
                (str(path), variant, passes)
                for _, (path, _), variant, passes in of_laws
            ]
            outcomes = run_jobs(
                f"hloenv.fuzz.matrix:check_{laws}",
                arguments,
                workers=matrix.arguments.workers,
                timeout=matrix.arguments.timeout,
                nice=19,
                is_timed_by_value=True,
            )
            for number, outcome in enumerate(outcomes, 1):
                matrix.take(of_laws[outcome.index], outcome)
                progress(laws, number, len(of_laws))
                if time.monotonic() > deadline:
                    outcomes.close()
                    return False
        if len(matrix.results) == num_before:
            return True
    return True


def _progress() -> Any:
    """A line that says how far a round is; a bar where rich is installed."""
    try:
        from rich.progress import Progress
    except ImportError:

        def plain(laws: str, number: int, total: int) -> None:
            print(f"\r{laws}: {number}/{total} modules", end="", file=sys.stderr)

        return plain
    bar = Progress()
    bar.start()
    tasks: dict[str, Any] = {}

    def update(laws: str, number: int, total: int) -> None:
        if laws not in tasks:
            tasks[laws] = bar.add_task(laws, total=total)
        bar.update(tasks[laws], completed=number, total=total)
        if number == total:
            bar.refresh()

    return update


def current(matrix: Matrix) -> list[dict[str, Any]]:
    """Results of this version of the code, on the modules of this run."""
    fingerprints = {fingerprint for _, fingerprint in matrix.modules}
    return [
        record
        for record in matrix.results.values()
        if record["version"] == matrix.versions[record["laws"]]
        and record["fingerprint"] in fingerprints
        and record["variant"] in matrix.arguments.variants
    ]


def document(matrix: Matrix, *, is_complete: bool) -> str:
    """The last result as Markdown."""
    records = current(matrix)
    lines = [
        "# Laws: the last run of the matrix",
        "",
        "Written by `scripts/run_laws.py`; do not edit. The laws are in "
        "`ARCHITECTURE.md`;",
        "the tests in `tests/laws` check a sample of what stands here.",
        "",
        f"* command: `{_command(matrix.arguments)}`",
        f"* date: {datetime.date.today().isoformat()}",
        f"* sources: {_sources(matrix)}; XLA of TensorFlow {core.tensorflow_version}; "
        f"Python {sys.version.split()[0]}",
        f"* variants: {', '.join(matrix.arguments.variants)}; pairs for each module: "
        f"{matrix.arguments.pairs}" + _limits(matrix.arguments),
        "* " + ("complete" if is_complete else "cut short by its time limit"),
        "",
        "| laws | modules | captures | alternatives | failures | skipped |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    names = {"structure": "1, 2, 3, 6, 7 and the verifier", "values": "4, 5"}
    for laws in ("structure", "values"):
        of_laws = [record for record in records if record["laws"] == laws]
        if not of_laws:
            continue
        modules = {record["fingerprint"] for record in of_laws}
        lines.append(
            f"| {names[laws]} | {len(modules)} | {len(of_laws)} | "
            f"{sum(record['num_alternatives'] for record in of_laws)} | "
            f"{sum(bool(record['violations']) for record in of_laws)} | "
            f"{sum(bool(record['skipped']) for record in of_laws)} |"
        )
    lines += ["", f"{len(matrix.modules)} modules were chosen.", ""]
    lines += _failures(records) + _skips(records) + _wholes(records)
    return "\n".join(lines) + "\n"


def _command(arguments: argparse.Namespace) -> str:
    """What gives this page again, wherever the modules lie."""
    options = f" --pairs {arguments.pairs}"
    if arguments.max_kb < _ALL_KB:
        options += f" --max-kb {arguments.max_kb}"
    if arguments.values:
        options += " --values" + f" {arguments.values}" * (arguments.values < _ALL_KB)
    if arguments.structure_of:
        options += f" --structure-of {arguments.structure_of}"
    return f"python scripts/run_laws.py{options} --timeout {arguments.timeout:g}"


def _sources(matrix: Matrix) -> str:
    versions = matrix.versions
    if versions["structure"] == versions["values"]:
        return versions["values"]
    return (
        f"{versions['values']} (laws 1, 2, 3, 6 and 7: {versions['structure']}, since "
        "when nothing has changed that they check)"
    )


def _limits(arguments: argparse.Namespace) -> str:
    """Which modules are too large, in words."""
    said = ""
    if arguments.max_kb < _ALL_KB:
        said += f"; modules of at most {arguments.max_kb} KB"
    if 0 < arguments.values < arguments.max_kb:
        said += f"; laws 4 and 5 on modules of at most {arguments.values} KB"
    return said


def _failures(records: list[dict[str, Any]]) -> list[str]:
    lines = ["## Failures", ""]
    failed = [record for record in records if record["violations"]]
    for record in sorted(failed, key=lambda r: (r["passes"], r["module"])):
        for violation in record["violations"]:
            first = " ".join(violation.split())[:300]
            lines.append(
                f"* `{record['passes']}` on {record['module']} ({record['variant']}): "
                f"{first}"
            )
    return [*lines, *([] if failed else ["None."]), ""]


def _skips(records: list[dict[str, Any]]) -> list[str]:
    counts: Counter[str] = Counter()
    for record in records:
        if record["skipped"]:
            reason = " ".join(record["skipped"].split())
            # Without the module's name, so that equal reasons count together.
            reason = reason.replace(f"'{record['module'].split('/')[1]}'", "…")
            parts = reason.split("'")
            counts[
                "'".join([*parts[:2], "…", *parts[4:]])[:160]
                if len(parts) > 4
                else reason[:160]
            ] += 1
    if not counts:
        return []
    lines = ["## Left out", "", "| reason | captures |", "| --- | ---: |"]
    return [*lines, *(f"| {r} | {n} |" for r, n in counts.most_common()), ""]


def _wholes(records: list[dict[str, Any]]) -> list[str]:
    reasons: dict[str, set[str]] = defaultdict(set)
    for record in records:
        for name, reason in record["whole"]:
            reasons[name].add(f"{record['module']}: {reason}")
    if not reasons:
        return []
    lines = ["## Passes that were one whole alternative", ""]
    for name in sorted(reasons):
        examples = sorted(reasons[name])
        lines.append(f"* `{name}`, {len(examples)} times, as on {examples[0]}")
    return [*lines, ""]


def main() -> int:
    """Runs what is missing, prints the table, writes the page."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "folder",
        nargs="?",
        default=os.environ.get("HLOENV_TEST_HLO", ROOT.parent / "shared" / "hlo"),
        help="HLO text, */*.txt and *.hlo (default: ../shared/hlo)",
    )
    parser.add_argument("--passes", nargs="*", help="names (default: all passes)")
    parser.add_argument("--pairs", type=int, default=6, help="pairs for each module")
    parser.add_argument(
        "--variants",
        nargs="*",
        default=["raw", "inlined"],
        choices=sorted(checks.VARIANTS),
    )
    parser.add_argument(
        "--values",
        metavar="KB",
        nargs="?",
        type=int,
        const=_ALL_KB,
        default=0,
        help="check laws 4 and 5 too, on modules of at most so much text",
    )
    parser.add_argument(
        "--structure-of",
        metavar="COMMIT",
        help="take laws 1, 2, 3, 6 and 7 from what was found with these sources, if "
        "nothing has changed since that they check",
    )
    parser.add_argument("--modules", type=int, default=None, help="at most so many")
    parser.add_argument(
        "--max-kb", type=int, default=_ALL_KB, help="of a module's text"
    )
    parser.add_argument("--seconds", type=float, default=1e9, help="stop after this")
    parser.add_argument(
        "--timeout", type=float, default=600, help="of one capture, in seconds"
    )
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--results", default="laws.jsonl", help="what was found so far")
    parser.add_argument("--doc", help="write the result to this Markdown file")
    matrix = Matrix(parser.parse_args())
    is_complete = run(matrix)
    page = document(matrix, is_complete=is_complete)
    print(page)
    if matrix.arguments.doc:
        Path(matrix.arguments.doc).parent.mkdir(parents=True, exist_ok=True)
        Path(matrix.arguments.doc).write_text(page)
    return int(any(record["violations"] for record in current(matrix)))


if __name__ == "__main__":
    sys.exit(main())
