#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""An agent that substitutes, on held-out programs, beside the fixed rules.

    python scripts/reports/run_substitution_policy.py runs/substitution/best.safetensors

The agent takes one substitution, or one form of an operation, in each round, and
estimates nothing; the rules are those of `hloenv.jit`. jaxlib compiles what they make,
beside the original. Training: scripts/reports/substitution.toml. Run times need a quiet
machine; what has been measured is not measured again.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Sequence
from pathlib import Path

from hloenv._checkpoints import read_checkpoint
from hloenv._markdown import table
from hloenv.bench.rows import Row, read_parquet
from hloenv.bench.statistics import (
    baselines_ns,
    by_duration,
    headline,
    total_speedup,
)
from hloenv.cli import main as run_command
from reporting import head, parser_of, write_page

SPACE = "substitutions"
RULES = "forms/known-forms"
_BEST = 8  # programs that are shown


def arguments() -> argparse.Namespace:
    """What the command line says."""
    parser = parser_of(__doc__)
    parser.add_argument("agent", type=Path, metavar="CHECKPOINT")
    parser.add_argument("--split", default="test", help="test, validation or unseen")
    parser.add_argument("--extent", default="real", help="small or real")
    parser.add_argument("--modules", type=int, help="size of a sample of the modules")
    parser.add_argument("--max-instructions", type=int, default=1200)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument(
        "-o", "--output", type=Path, default=Path("bench/substitution_policy")
    )
    return parser.parse_args()


def methods_of(args: argparse.Namespace) -> dict[str, str]:
    """Their names on the page; the agent is the first."""
    agent = f"{SPACE}/substitution:{args.agent}"
    return {agent: "the agent, without estimates", RULES: "fixed rules of `hloenv.jit`"}


def rows_of(args: argparse.Namespace) -> list[Row]:
    """The rows of all methods.

    Raises:
        SystemExit: `hloenv bench` fails.
    """
    words = ["bench", "--split", args.split, "--extent", args.extent]
    words += ["--no-baselines", "--engine", "jaxlib", "-o", str(args.output)]
    for name in ("max_instructions", "threads", "modules"):
        value = getattr(args, name)
        if value is not None:
            words += [f"--{name.replace('_', '-')}", str(value)]
    for method in methods_of(args):
        words += ["-c", method]
    if code := run_command(words):
        sys.exit(code)
    return read_parquet(args.output / "results.parquet")


def lines_of(rows: Sequence[Row], methods: dict[str, str]) -> list[str]:
    """The tables: of the methods, by duration, and of the largest gains."""
    own = {name: [row for row in rows if row.method == name] for name in methods}
    times = baselines_ns(rows)
    cells, durations = [], []
    for name, title in methods.items():
        each, found = headline(own[name]), own[name]
        seconds = [row.decide_s for row in found if math.isfinite(row.decide_s)]
        worst = min(row.speedup if row.is_ok else 1.0 for row in found)
        cells.append(
            (
                title,
                f"{each.mean:.3f} ({each.low:.3f} to {each.high:.3f})",
                f"{total_speedup(found, times):.3f}",
                f"{worst:.3f}",
                f"{sum(not row.is_ok for row in found)}",
                f"{math.fsum(seconds) / max(1, len(seconds)):.2f} s",
            )
        )
        durations += [
            (title, kind, f"{part.mean:.3f}", str(part.modules))
            for kind, part in by_duration(found, times).items()
        ]
    best = sorted(
        own[next(iter(methods))],
        key=lambda row: -(row.speedup if row.is_ok else 1.0),
    )[:_BEST]
    gains = [
        (row.module, f"{row.speedup:.3f}", ", ".join(list(row.changes)[:3]))
        for row in best
    ]
    columns = "method", "speed-up", "total time", "worst", "errors", "deciding a module"
    return [
        "",
        *table(columns, cells, "lrrrrr"),
        "",
        "## By duration",
        "",
        *table(("method", "duration", "speed-up", "modules"), durations, "llrr"),
        "",
        "## Largest gains of the agent",
        "",
        *table(("module", "speed-up", "some of its substitutions"), gains, "lrl"),
    ]


def main() -> None:
    """Measures, and writes the page."""
    args = arguments()
    rows = rows_of(args)
    described, _ = read_checkpoint(args.agent, "hloenv")
    modules = len({row.module for row in rows})
    lines = head("An agent that substitutes")
    lines += [
        f"* {modules} modules of the split {args.split}, {args.extent} extents, on "
        f"{args.threads} core, compiled by jaxlib; speed-up over the module as it is: "
        "geometric mean over programs, intervals by repository, an error counts as 1; "
        f"in the space {SPACE}, the rules in forms",
        f"* the agent's training: `{json.dumps(described['notes'])}`",
        *lines_of(rows, methods_of(args)),
    ]
    write_page(lines, args.doc)


if __name__ == "__main__":
    main()
