#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures the forms of products whose first operand is transposed.

Each form of one product is measured beside jaxlib's own, in jaxlib, over random sizes
and types; what the policy known-forms takes of them follows from the table.

    python scripts/reports/run_forms.py
    python scripts/reports/run_forms.py --match bfloat16 --seconds 0.5
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import hloenv
from hloenv._markdown import table
from hloenv.bench.rows import geometric_mean
from hloenv.policies import get_policy
from hloenv.policies.known_forms import FORM_PASSES
from reporting import Row, Rows, count_of, head, parser_of, version_of_rows, write_page

# How many products, and of which sizes.
_CASES = 120
_SIZES = (
    *(4, 7, 10, 12, 16, 24, 32, 48, 60, 64, 96, 120, 128, 150, 192, 256, 320, 400),
    *(512, 640, 784, 900, 1024, 1500, 2048, 3000),
)


def parse_arguments() -> argparse.Namespace:
    """Parses the command line."""
    parser = parser_of(__doc__)
    parser.add_argument("--match", default="", help="only cases with this text")
    parser.add_argument("--threads", type=int, default=1, help="of the executables")
    parser.add_argument("--seconds", type=float, default=2.0, help="of each timing")
    parser.add_argument("--rows", type=Path, default=Path("build/forms.jsonl"))
    return parser.parse_args()


def cases() -> Iterator[tuple[str, Any, tuple[Any, ...]]]:
    """Name, function and arguments (by shape) of each product."""
    import jax
    import jax.numpy as jnp

    def product(x: Any, y: Any) -> Any:
        return jnp.matmul(jnp.swapaxes(x, -1, -2), y)

    def both(x: Any, y: Any) -> Any:
        return product(x, jnp.swapaxes(y, -1, -2))

    generator = np.random.default_rng(0)
    names = set()
    while len(names) < _CASES:
        kind = generator.choice(("float32", "float64", "bfloat16"), p=(0.6, 0.2, 0.2))
        rows, terms, columns = generator.choice(_SIZES, 3).tolist()
        batch = int(generator.choice((1, 1, 1, 4, 16, 64)))
        is_both = bool(generator.integers(3) == 0)
        work = batch * rows * terms * columns
        elements = batch * max(rows * terms, terms * columns, rows * columns)
        if not 2**14 <= work <= 2**28 or elements > 2**22:
            continue
        sizes = f"{batch} x {rows} x {terms} by {columns}"
        name = f"{kind} product across its rows, {sizes}" + (
            ", both" if is_both else ""
        )
        if name in names:
            continue
        names.add(name)
        front = () if batch == 1 else (batch,)
        right = (columns, terms) if is_both else (terms, columns)
        yield (
            name,
            both if is_both else product,
            (
                jax.ShapeDtypeStruct((*front, terms, rows), jnp.dtype(kind)),
                jax.ShapeDtypeStruct((*front, *right), jnp.dtype(kind)),
            ),
        )


def measure(function: Any, given: tuple[Any, ...], **settings: Any) -> Row:
    """Measures each form of a product."""
    import jax

    with jax.enable_x64(any(each.dtype.itemsize == 8 for each in given)):
        module = hloenv.HloModule.from_jax(function, *given)
    alternatives = hloenv.HloEnv(module).get_alternatives(*FORM_PASSES)
    taken = get_policy("known-forms")(alternatives)
    forms = {
        choice.rule: (each.index, index)
        for each in alternatives
        for index, choice in enumerate(each.choices)
        if index
    }
    modules = []
    for at, choice in forms.values():
        decisions = np.zeros(len(alternatives), np.int64)
        decisions[at] = choice
        modules.append(alternatives.apply(decisions))
    row: Row = {
        "taken": [rule for rule, (at, choice) in forms.items() if taken[at] == choice],
        "forms": {},
        "xla_ns": None,
    }
    if not modules:
        return row
    results = hloenv.measure(modules, baseline=module, engine="jaxlib", **settings)
    for rule, result in zip(forms, results, strict=True):
        if not result.is_ok:
            row["forms"][rule] = {"error": result.error.message}
            continue
        row["xla_ns"] = float(np.median(result.baseline_ns))
        row["forms"][rule] = {
            "speedup": result.speedup,
            "interval": list(result.speedup_interval),
        }
    return row


def report(rows: list[Row], arguments: argparse.Namespace) -> list[str]:
    """The page."""
    cells = []
    for row in rows:
        for rule, form in row["forms"].items():
            taken = "taken" if rule in row["taken"] else ""
            if "error" in form:
                cells.append((row["name"], rule, "", "", form["error"], taken))
                continue
            low, high = form["interval"]
            cells.append(
                (
                    *(row["name"], rule, f"{row['xla_ns'] / 1e3:.1f} us"),
                    *(f"{form['speedup']:.2f}", f"{low:.2f} to {high:.2f}", taken),
                )
            )
    gains = [
        min(row["forms"][rule].get("speedup", 0.0) for rule in row["taken"])
        for row in rows
        if row["taken"]
    ]
    lost = sum(gain < 0.97 for gain in gains)
    return [
        *head("Products across their rows", rows),
        f"* speed-up: the time of jaxlib's own form over that of the form, on "
        f"{count_of(arguments.threads, 'core')}, with its 95 % interval; *taken*: by "
        "the policy `known-forms`",
        f"* of {len(rows)} products {len(gains)} have a form that is taken: the "
        f"geometric mean of its speed-up is {geometric_mean(gains or [1.0]):.2f}, the "
        f"least {min(gains, default=1.0):.2f}, and {lost} are below 0.97",
        "",
        *table(
            ("product", "form", "XLA's own", "speed-up", "interval", ""),
            cells,
            "llrrll",
        ),
    ]


def main() -> int:
    """Measures missing cases and writes the page."""
    arguments = parse_arguments()
    version = version_of_rows(seconds=arguments.seconds)
    known = Rows(arguments.rows, "name", "version", "threads")
    rows = []
    for name, function, given in cases():
        if arguments.match not in name:
            continue
        columns = {"name": name, "version": version, "threads": arguments.threads}
        settings = {"threads": arguments.threads, "seconds": arguments.seconds}
        run = partial(measure, function, given, **settings)
        rows.append(known.get_or_add(columns, run))
    if not rows:
        raise SystemExit(f"no case has {arguments.match!r} in its name")
    write_page(report(rows, arguments), arguments.doc)
    return 0


if __name__ == "__main__":
    sys.exit(main())
