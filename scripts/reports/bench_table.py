# SPDX-License-Identifier: Apache-2.0
"""Writes the results of the benchmarks into docs/results/benchmarks.md.

usage: python scripts/reports/bench_table.py build/bench.json
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from hloenv._markdown import table
from reporting import with_part

PAGE = Path(__file__).resolve().parents[2] / "docs/results/benchmarks.md"


def part(report: dict) -> list[str]:
    """The table, and a line on the origin of its figures."""
    machine, commit = report["machine_info"], report["commit_info"]
    cpu = machine["cpu"].get("brand_raw", machine["machine"])
    rows = [
        row
        for benchmark in report["benchmarks"]
        for row in benchmark["extra_info"].get("rows", [])
    ]
    return [
        f"`bash scripts/bench.sh`, {report['datetime'][:10]}, one core of {cpu}, "
        f"Python {machine['python_version']}, sources {commit.get('id', 'unknown')[:7]}"
        + (" with changes" if commit.get("dirty") else "")
        + ":",
        "",
        *table(("what", "target", "measured"), rows, "lll"),
    ]


def main() -> None:
    """Writes the part of the page between the marks."""
    lines = part(json.loads(Path(sys.argv[1]).read_text()))
    PAGE.write_text(with_part(PAGE.read_text(), "benchmarks", lines))
    print("\n".join(lines))


if __name__ == "__main__":
    main()
