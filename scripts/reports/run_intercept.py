#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compiles every module of a folder through an intercepted pipeline and checks it.

Running every stage, and accepting everything at every stage, must both give the module
of an uninterrupted compile; decisions in place must equal those outside.

    python scripts/reports/run_intercept.py  # target cpu
    python scripts/reports/run_intercept.py --target h100 --modules 30
    python scripts/reports/run_intercept.py --doc docs/interception.md
"""

from __future__ import annotations

import argparse
import datetime
import random
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests")]

from hloenv._markdown import table  # noqa: E402
from hloenv.bench.rows import geometric_mean  # noqa: E402
from hloenv.process.forkserver import run_jobs  # noqa: E402
from reporting import parser_of  # noqa: E402
from support.intercept_checks import Report  # noqa: E402


def modules_of(arguments: argparse.Namespace) -> list[Path]:
    """Returns a shuffled, deterministic sample of the folder."""
    paths = sorted(Path(arguments.folder).glob("**/*.txt"))
    paths = [path for path in paths if path.stat().st_size <= arguments.max_kb * 1024]
    random.Random(0).shuffle(paths)
    return paths[: arguments.modules]


def check(arguments: argparse.Namespace) -> dict[str, Report]:
    """Returns a report for each module."""
    paths = modules_of(arguments)
    jobs = [(str(path), arguments.target) for path in paths]
    reports: dict[str, Report] = {}
    outcomes = run_jobs(
        "support.intercept_checks:check",
        jobs,
        workers=arguments.workers,
        timeout=arguments.timeout,
    )
    for number, outcome in enumerate(outcomes, 1):
        path = paths[outcome.index]
        name = f"{path.parent.name}/{path.stem}"
        report = outcome.values[0] if outcome.values else Report()
        if outcome.error:
            report = Report(violations=(outcome.error.strip()[-500:],))
        reports[name] = report
        for violation in report.violations:
            print(f"{name}: {violation}", flush=True)
        print(f"\r{number}/{len(jobs)}", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    return dict(sorted(reports.items()))


def summary(reports: dict[str, Report], arguments: argparse.Namespace) -> str:
    """Markdown."""
    good = [report for report in reports.values() if report.stages]
    ratios = [report.run_s / report.plain_s for report in good]
    accepts = [report.accept_s / report.plain_s for report in good]
    violated = {name: each for name, each in reports.items() if each.violations}
    refused = {name: each.refused for name, each in reports.items() if each.refused}
    slowest = max(
        (name for name, each in reports.items() if each.stages),
        key=lambda name: reports[name].run_s / reports[name].plain_s,
        default="",
    )
    whole = {name: reason for report in good for name, reason in report.whole}
    over = "over an uninstrumented compile, geometric mean"
    figures = [
        ("modules", len(reports)),
        ("of these, XLA cannot compile", len(refused)),
        ("of these with a violation", len(violated)),
        ("stages", sum(report.stages for report in good)),
        ("alternatives", sum(report.alternatives for report in good)),
        (f"run() at every stage {over}", f"{geometric_mean(ratios):.2f}"),
        (f"the same, worst ({slowest})", f"{max(ratios, default=0):.2f}"),
        (
            f"capturing and accepting at every stage {over}",
            f"{geometric_mean(accepts):.2f}",
        ),
    ]
    lines = [
        f"## Target {arguments.target}",
        "",
        f"`python scripts/reports/run_intercept.py --target {arguments.target}`, "
        f"{datetime.date.today()}",
        "",
        *table(("", ""), figures),
        "",
    ]
    if whole:
        lines += ["Passes that were one indivisible alternative:", ""]
        lines += [f"* `{name}`: {reason}" for name, reason in sorted(whole.items())]
        lines += [""]
    lines += [
        f"* {name}: {line}"
        for name, each in violated.items()
        for line in each.violations
    ]
    return "\n".join(lines)


def write(text: str, path: Path, target: str) -> None:
    """Writes one target's section of the document."""
    head = (
        "# Interception: latest run\n\n"
        "Written by `scripts/reports/run_intercept.py`; do not edit.\n"
    )
    old = path.read_text() if path.exists() else head
    parts = old.split("\n## Target ")
    kept = [part for part in parts[1:] if not part.startswith(f"{target}\n")]
    kept.append(text.removeprefix("## Target "))
    path.write_text(
        head + "".join("\n## Target " + p.strip() + "\n" for p in sorted(kept))
    )


def main() -> None:
    """See the module's docstring."""
    parser = parser_of(__doc__)
    parser.add_argument("folder", nargs="?", default=ROOT.parent / "shared" / "hlo")
    parser.add_argument("--target", default="cpu")
    parser.add_argument("--modules", type=int, default=None, help="how many")
    parser.add_argument("--max-kb", type=int, default=10_000)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--timeout", type=float, default=300, help="seconds a module")
    arguments = parser.parse_args()
    reports = check(arguments)
    text = summary(reports, arguments)
    print(text)
    if arguments.doc:
        write(text, arguments.doc, arguments.target)
    sys.exit(any(report.violations for report in reports.values()))


if __name__ == "__main__":
    main()
