#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures the forms of dots and reductions that the policy known-forms takes.

Each form of one operation is measured beside jaxlib's own, in jaxlib, over a grid of
sizes; the thresholds in hloenv/policies/known_forms.py follow from the table.

    python scripts/reports/run_forms.py
    python scripts/reports/run_forms.py --match "across its rows" --seconds 0.5
"""

from __future__ import annotations

import argparse
import functools
import itertools
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import hloenv
from hloenv._markdown import table
from hloenv.bench.rows import geometric_mean
from hloenv.policies import get_policy
from hloenv.policies.known_forms import FORM_PASSES
from reporting import Row, Rows, count_of, head, parser_of, version_of_rows, write_page

_ROWS = (1, 2, 4, 8, 16)
_MATRICES = (
    *((64, 64), (128, 128), (256, 256), (1024, 64), (64, 1024), (64, 4096)),
    *((768, 768), (3072, 768), (768, 3072), (2048, 2048), (20000, 256), (50257, 768)),
)
_ATTENDED = (  # batch, positions, heads, features
    *((1, 512, 12, 64), (4, 256, 8, 64), (1, 128, 12, 64), (2, 512, 8, 32)),
    *((8, 64, 4, 32), (8, 16, 4, 16), (1, 2048, 8, 64)),
)
_CACHED = (  # batch, positions, heads, features
    *((1, 128, 8, 64), (1, 512, 12, 64), (4, 256, 8, 64), (8, 128, 8, 32)),
    *((1, 2048, 32, 64), (16, 1024, 8, 64), (1, 64, 4, 32), (64, 32, 4, 32)),
)
_SCANNED = (  # sizes, dimension
    *(((n,), 0) for n in (16, 32, 100, 1000, 10000, 100000, 1000000)),
    *(((20, 20), d) for d in (0, 1)),
    *(((100, 100), d) for d in (0, 1)),
    *(((1000, 1000), d) for d in (0, 1)),
    *(((10000, 32), d) for d in (0, 1)),
    *(((16, 500), 1), ((8, 50257), 1), ((32, 10000), 1), ((96, 1024), 1)),
    *(((1000, 64), 1), ((10000, 16), 1), ((100000, 8), 1), ((4, 1000), 0)),
    *(((64, 64, 64), d) for d in (0, 1, 2)),
    *(((100, 1000, 3), 1), ((16, 128, 64), 1)),
)
# Of products that are read across their rows: how many, and of which sizes.
_CROSSED = 120
_CROSSED_SIZES = (
    *(4, 7, 10, 12, 16, 24, 32, 48, 60, 64, 96, 120, 128, 150, 192, 256, 320, 400),
    *(512, 640, 784, 900, 1024, 1500, 2048, 3000),
)
_REDUCED = (
    *((100000, 4), (10000, 8), (10000, 16), (4096, 32), (4096, 64), (4096, 128)),
    *((256, 1000), (64, 32000), (1, 50257), (16, 16), (16, 1000)),
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
    """Name, function and arguments (by shape) of each case."""
    import jax
    import jax.numpy as jnp

    def array(*shape: int) -> Any:
        return jax.ShapeDtypeStruct(shape, np.float32)

    for rows, (columns, terms) in itertools.product(_ROWS, _MATRICES):
        given = array(rows, terms), array(columns, terms), array(columns)
        name = f"{rows} x {terms} by {columns} x {terms}, transposed"
        yield f"dot, {name}", lambda x, w, _: x @ w.T, given
        yield f"dot and bias, {name}", lambda x, w, b: x @ w.T + b, given
    for batch, length, heads, features in _ATTENDED:
        weights = array(batch, heads, length, length)
        given = weights, array(batch, length, heads, features)
        yield (
            f"attention's values, {batch} x {length} x {heads} x {features}",
            lambda p, v: jnp.einsum("bhqk,bkhd->bqhd", p, v),
            given,
        )
    for columns, terms in _MATRICES:
        given = array(terms, columns), array(256, terms)
        yield (
            f"dot of {terms} x {columns} and 256 x {terms}, both transposed",
            lambda x, y: x.T @ y.T,
            given,
        )
    for batch, length, heads, features in _CACHED:
        given = array(batch, 1, heads, features), array(batch, length, heads, features)
        name = f"{batch} x {length} x {heads} x {features}"
        yield (
            f"decode step's weights, {name}",
            lambda q, k: jnp.einsum("bqhd,bkhd->bhqk", q, k),
            given,
        )
        yield (
            f"decode step's values, {name}",
            lambda p, v: jnp.einsum("bhqk,bkhd->bqhd", p, v),
            (array(batch, heads, 1, length), given[1]),
        )
        yield (
            f"decode step's values, {name}, heads first",
            lambda p, v: jnp.einsum("bhqk,bhkd->bhqd", p, v),
            (array(batch, heads, 1, length), array(batch, heads, length, features)),
        )
    yield from crossed_dots()
    yield from scans()
    for rows, reduced in _REDUCED:
        given = (array(rows, reduced),)
        yield f"argmax of {rows} x {reduced}", lambda x: jnp.argmax(x, axis=-1), given
        given = (array(reduced, rows),)
        yield (
            f"argmin of {rows} x {reduced}, of columns",
            lambda x: jnp.argmin(x, axis=0),
            given,
        )


def crossed_dots() -> Iterator[tuple[str, Any, tuple[Any, ...]]]:
    """As `cases`, of products of random sizes whose first operand is transposed."""
    import jax
    import jax.numpy as jnp

    def product(x: Any, y: Any) -> Any:
        return jnp.matmul(jnp.swapaxes(x, -1, -2), y)

    def both(x: Any, y: Any) -> Any:
        return product(x, jnp.swapaxes(y, -1, -2))

    generator = np.random.default_rng(0)
    names = set()
    while len(names) < _CROSSED:
        kind = generator.choice(("float32", "float64", "bfloat16"), p=(0.6, 0.2, 0.2))
        rows, terms, columns = generator.choice(_CROSSED_SIZES, 3).tolist()
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


def scans() -> Iterator[tuple[str, Any, tuple[Any, ...]]]:
    """As `cases`, of cumulative reductions."""
    import jax
    import jax.numpy as jnp

    operations = {
        "cumsum": ("float32", "int32", "bfloat16"),
        "cummax": ("float32",),
        "cumprod": ("float32",),
        "cumlogsumexp": ("float32",),
    }
    for name, types in operations.items():
        for kind, is_reversed, (sizes, axis) in itertools.product(
            types, (False, True), _SCANNED
        ):
            if is_reversed and (name, kind) != ("cumsum", "float32"):
                continue
            text = f"{name} of {kind}, {' x '.join(map(str, sizes))}, dimension {axis}"
            yield (
                text + (", reversed" if is_reversed else ""),
                functools.partial(
                    getattr(jax.lax, name), axis=axis, reverse=is_reversed
                ),
                (jax.ShapeDtypeStruct(sizes, jnp.dtype(kind)),),
            )


def measure(function: Any, given: tuple[Any, ...], **settings: Any) -> Row:
    """Measures each form of a function of one operation."""
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
        *head("Forms of dots and of reductions", rows),
        f"* speed-up: the time of jaxlib's own form over that of the form, on "
        f"{count_of(arguments.threads, 'core')}, with its 95 % interval; *taken*: by "
        "the policy `known-forms`",
        f"* of {len(rows)} operations {len(gains)} have a form that is taken: the "
        f"geometric mean of its speed-up is {geometric_mean(gains or [1.0]):.2f}, the "
        f"least {min(gains, default=1.0):.2f}, and {lost} are below 0.97",
        "",
        *table(
            ("operation", "form", "XLA's own", "speed-up", "interval", ""),
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
        row = known.get(name, version, arguments.threads)
        if row is None:
            settings = {"threads": arguments.threads, "seconds": arguments.seconds}
            row = {"name": name, "version": version, "threads": arguments.threads}
            row |= measure(function, given, **settings)
            known.add(row)
        rows.append(row)
        print(json.dumps(row), flush=True)
    if not rows:
        raise SystemExit(f"no case has {arguments.match!r} in its name")
    write_page(report(rows, arguments), arguments.doc)
    return 0


if __name__ == "__main__":
    sys.exit(main())
