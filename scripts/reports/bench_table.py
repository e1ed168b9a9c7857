# SPDX-License-Identifier: Apache-2.0
"""Writes the results of the benchmarks into docs/results/benchmarks.md.

usage: python scripts/reports/bench_table.py build/bench.json
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

PAGE = Path(__file__).resolve().parents[2] / "docs/results/benchmarks.md"
BEGIN, END = "<!-- benchmarks: begin -->", "<!-- benchmarks: end -->"


def table(report: dict) -> str:
    """Returns the table, and a line on the origin of its figures."""
    machine, commit = report["machine_info"], report["commit_info"]
    cpu = machine["cpu"].get("brand_raw", machine["machine"])
    lines = [
        f"`bash scripts/bench.sh`, {report['datetime'][:10]}, one core of {cpu}, "
        f"Python {machine['python_version']}, sources {commit.get('id', 'unknown')[:7]}"
        + (" with changes" if commit.get("dirty") else "")
        + ":",
        "",
        "| what | wanted | measured |",
        "| --- | --- | --- |",
    ]
    for benchmark in report["benchmarks"]:
        for row in benchmark["extra_info"].get("rows", []):
            lines.append("| " + " | ".join(row) + " |")
    return "\n".join(lines)


def main() -> None:
    """Replaces the text between the two marks."""
    text = PAGE.read_text()
    before, rest = text.split(BEGIN)
    after = rest.split(END)[1]
    body = table(json.loads(Path(sys.argv[1]).read_text()))
    PAGE.write_text(f"{before}{BEGIN}\n{body}\n{END}{after}")
    print(body)


if __name__ == "__main__":
    main()
