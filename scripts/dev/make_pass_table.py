#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Captures every pass on a folder of modules and writes a table of the results.

    python scripts/dev/make_pass_table.py            # ../shared/hlo, some minutes

Each module is captured as lowered by JAX, with calls inlined, and before XLA's fusion.
Writes docs/passes.md, and python/hloenv/hlo/pass_table.json, which `hloenv passes`
reads.
"""

from __future__ import annotations

import argparse
import datetime
import json
import random
import sys
import time
import warnings
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import hloenv
from hloenv._markdown import table
from hloenv.cli.passes import group_of

ROOT = Path(__file__).resolve().parents[2]
HEADINGS = (
    "pass",
    "group",
    "floats",
    "nodes",
    "sites",
    "indivisible",
    "choices",
    "overhead",
    "invariants 2, 3",
)
_MIN_TIME_S = 2e-4  # shorter runs do not measure overhead


@dataclass
class Row:
    """The results of one pass."""

    captures: int = 0
    refused: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    choices: int = 0
    reasons: Counter[str] = field(default_factory=Counter)
    broken: list[str] = field(default_factory=list)
    ratios: list[float] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """Returns the data that the command line shows."""
        return {"kinds": dict(self.kinds), "reasons": sorted(self.reasons)}


def variants(path: Path) -> list[tuple[str, hloenv.HloModule]]:
    """Returns the three forms of a module."""
    module = hloenv.HloModule.from_file(path)
    inlined = hloenv.run_passes(module, "call-inliner", "dce").module
    placed = hloenv.run_until(module, "fusion")
    return [("raw", module), ("inlined", inlined), ("before fusion", placed)]


def capture(name: str, module: hloenv.HloModule, where: str, row: Row) -> None:
    """Captures a pass and checks invariants 2 and 3."""
    env = hloenv.HloEnv(module)
    started = time.perf_counter()
    try:
        alternatives = env.get_alternatives(name)
    except (hloenv.PassError, hloenv.PositionError):
        row.refused += 1
        return
    seconds = time.perf_counter() - started
    row.captures += 1
    row.choices += int(alternatives.num_choices.sum()) - len(alternatives)
    for alternative in alternatives:
        row.kinds[alternative.kind] += 1
    for reason in alternatives.indivisible.values():
        row.reasons[_without_names(reason)] += 1
    rejected = alternatives.apply(alternatives.reject_all())
    if rejected.fingerprint() != module.fingerprint():
        row.broken.append(f"invariant 2 on {where}")
    if hloenv.describe_pass(name).candidate:
        return
    started = time.perf_counter()
    # With the options of the environment at this position.
    native = hloenv.HloEnv(module)
    native.run(name)
    native_s = time.perf_counter() - started
    if seconds > _MIN_TIME_S:
        row.ratios.append(seconds / native_s)
    accepted = alternatives.apply(alternatives.decisions_for(name))
    # rng-expander draws new seeds in each run.
    if name != "rng-expander" and accepted.fingerprint() != native.fingerprint():
        row.broken.append(f"invariant 3 on {where}")


def _without_names(reason: str) -> str:
    return "'...'".join(reason.split("'")[::2])


def measure(arguments: argparse.Namespace) -> tuple[dict[str, Row], int]:
    """Returns a row for each pass, and the number of modules."""
    paths = sorted(Path(arguments.folder).glob("**/*.txt"))
    paths = [path for path in paths if path.stat().st_size <= arguments.max_kb * 1024]
    random.Random(0).shuffle(paths)
    rows = {name: Row() for name in hloenv.list_passes()}
    deadline = time.monotonic() + arguments.seconds
    for number, path in enumerate(paths):
        if time.monotonic() > deadline:
            return rows, number
        for variant, module in variants(path):
            for name, row in rows.items():
                capture(name, module, f"{path.parent.name}/{path.stem} {variant}", row)
        print(f"\r{number + 1}/{len(paths)}", end="", file=sys.stderr, flush=True)
    return rows, len(paths)


def document(rows: dict[str, Row], num_modules: int) -> str:
    """Markdown."""
    broken = {name: row.broken for name, row in rows.items() if row.broken}
    lines = [
        "# Passes",
        "",
        "Written by `scripts/dev/make_pass_table.py`; do not edit. "
        f"{datetime.date.today()}, {num_modules} modules, each raw, inlined and in "
        "front of XLA's fusion; XLA of TensorFlow "
        f"{hloenv._native.core.tensorflow_version}.",
        "",
        "*nodes*: alternatives of one value; *sites*: of several together; "
        "*indivisible*: of the module. *overhead*: geometric mean of get_alternatives "
        "over native pass and clone (one cold run each). *invariants 2, 3*: reject all "
        "and accept all, by fingerprint. *floats*: numerical guarantee for floats, see "
        "`python/hloenv/hlo/numerics.py`.",
        "",
    ]
    cells = []
    for name, row in rows.items():
        ratio = f"{np.exp(np.mean(np.log(row.ratios))):.2f}" if row.ratios else "-"
        invariants = f"{row.captures} hold"
        if row.broken:
            invariants = f"{len(row.broken)} of {row.captures} broken"
        kinds = [row.kinds[kind] for kind in ("instruction", "sites", "pass")]
        numerics = hloenv.describe_pass(name).numerics
        cells.append(
            (
                *(f"`{name}`", group_of(name), numerics),
                *(*kinds, row.choices, ratio, invariants),
            )
        )
    lines += table(HEADINGS, cells, "lllrrrrrl")
    lines += ["", f"{len(rows)} passes.", "", "## Whole modules", ""]
    for name, row in rows.items():
        lines += [f"* `{name}`: {reason} ({n})" for reason, n in row.reasons.items()]
    lines += ["", "## Left out", ""]
    lines += [f"* `{name}`: {why}" for name, why in hloenv.excluded_passes().items()]
    if broken:
        lines += ["", "## Broken invariants", ""]
        lines += [
            f"* `{name}`: {', '.join(where[:5])}" for name, where in broken.items()
        ]
    return "\n".join(lines) + "\n"


def main() -> None:
    """See the module's docstring."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", nargs="?", default=ROOT.parent / "shared" / "hlo")
    parser.add_argument("--max-kb", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=600)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", hloenv.PositionWarning)
    rows, num_modules = measure(arguments)
    (ROOT / "docs" / "passes.md").write_text(document(rows, num_modules))
    facts = {name: row.to_json() for name, row in rows.items()}
    path = ROOT / "python" / "hloenv" / "hlo" / "pass_table.json"
    path.write_text(json.dumps(facts, indent=1, sort_keys=True) + "\n")
    sys.exit(any(row.broken for row in rows.values()))


if __name__ == "__main__":
    main()
