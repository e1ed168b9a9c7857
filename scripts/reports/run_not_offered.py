#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares forms of operations that hloenv does not choose on a CPU with XLA's own.

Each pair of functions, written in jax, is compiled by plain jax.jit and timed in turns
in one process. docs/design/xla.md says why the forms are not chosen. Rows are appended
to a JSONL file; a repeated run continues.

    python scripts/reports/run_not_offered.py
    python scripts/reports/run_not_offered.py --doc docs/results/not_offered.md
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import Any

import numpy as np

from hloenv._markdown import table
from hloenv.jax.compare import take_turns
from hloenv.measurement.statistics import speedup_interval, speedup_of
from reporting import (
    Row,
    Rows,
    add_timing,
    count_of,
    head,
    parser_of,
    run_again,
    version_of_rows,
    write_page,
)

_TIMEOUT_S = 300.0
_ROUNDS = 7, 300  # minimum, maximum
Function = Callable[..., Any]


@dataclass(frozen=True)
class Case:
    """A function and its other form.

    Attributes:
        group: what the form is, the heading of its table.
        name: of the case.
        plain: of arrays of float32.
        other: the same in another form.
        shapes: of the arrays, whose numbers are in [0.1, 0.4).
    """

    group: str
    name: str
    plain: Function
    other: Function
    shapes: tuple[tuple[int, ...], ...]


def cases() -> Iterator[Case]:
    """All cases."""
    yield from _loops()
    yield from _top_k()
    yield from _padded()
    yield from _joined()
    yield from _scatters()
    yield from _distances()


def _loops() -> Iterator[Case]:
    import jax
    import jax.numpy as jnp

    def repeated(step: Function, count: int, unroll: int, *arrays: Any) -> Any:
        def body(state: Any, _: None) -> Any:
            return step(state, *arrays[1:]), None

        return jax.lax.scan(body, arrays[0], None, count, unroll=unroll)[0]

    def newton(y: Any, a: Any) -> Any:
        return y * (1.5 - 0.5 * a * y * y)

    def sinkhorn(u: Any, kernel: Any) -> Any:
        return 1 / (kernel @ (1 / (kernel.T @ u + 1e-3)) + 1e-3)

    def cell(h: Any, w: Any) -> Any:
        return jnp.tanh(h @ w)

    def stencil(x: Any) -> Any:
        rolled = (jnp.roll(x, s, d) for s in (1, -1) for d in (0, 1))
        return 0.25 * sum(rolled)

    def runge_kutta(y: Any) -> Any:
        def f(y: Any) -> Any:
            return 1 - y * y

        a = f(y)
        b = f(y + 0.05 * a)
        c = f(y + 0.05 * b)
        return y + 0.1 / 6 * (a + 2 * b + 2 * c + f(y + 0.1 * c))

    for name, step, count, shapes in (
        ("Newton, 2^20 numbers, 5 times", newton, 5, ((1 << 20,),) * 2),
        ("Newton, 64 numbers, 8 times", newton, 8, ((64,),) * 2),
        ("Sinkhorn, 512x512, 8 times", sinkhorn, 8, ((512,), (512, 512))),
        ("recurrence, 16x64, 128 times", cell, 128, ((16, 64), (64, 64))),
        ("stencil, 512x512, 4 times", stencil, 4, ((512, 512),)),
        ("Runge-Kutta, 2^20 numbers, 8 times", runge_kutta, 8, ((1 << 20,),)),
        ("Runge-Kutta, 64 numbers, 400 times", runge_kutta, 400, ((64,),)),
    ):
        plain, other = (partial(repeated, step, count, k) for k in (1, 8))
        yield Case("Eight iterations of a loop in one", name, plain, other, shapes)


def _top_k() -> Iterator[Case]:
    import jax
    import jax.numpy as jnp

    def by_reductions(k: int, x: Any) -> Any:
        at = jax.lax.broadcasted_iota(jnp.int32, x.shape, 1)
        values, indices, left = [], [], x
        for _ in range(k):
            values.append(left.max(1))
            is_it = left == values[-1][:, None]
            indices.append(jnp.where(is_it, at, x.shape[1]).min(1))
            left = jnp.where(at == indices[-1][:, None], -jnp.inf, left)
        return jnp.stack(values, 1), jnp.stack(indices, 1)

    for rows, width, k in ((4096, 4096, 5), (64, 32_000, 8), (256, 1024, 2)):
        yield Case(
            *("The largest numbers of rows by reductions", f"{k} of {rows}x{width}"),
            *(partial(_flipped, jax.lax.top_k, k), partial(by_reductions, k)),
            ((rows, width),),
        )


def _flipped(fn: Function, second: Any, first: Any) -> Any:
    return fn(first, second)


def _padded() -> Iterator[Case]:
    import jax
    import jax.numpy as jnp

    def convolved(x: Any, kernel: Any) -> Any:
        order = "NHWC", "HWIO", "NHWC"
        return jax.lax.conv_general_dilated(
            x, kernel, (1, 1), "SAME", dimension_numbers=order
        )

    def padded(x: Any, kernel: Any) -> Any:
        inputs, outputs = (-each % 16 for each in kernel.shape[2:])
        x = jnp.pad(x, ((0, 0),) * 3 + ((0, inputs),))
        kernel = jnp.pad(kernel, ((0, 0), (0, 0), (0, inputs), (0, outputs)))
        result = convolved(x, kernel)
        return result[..., : result.shape[3] - outputs]

    for size, inputs, outputs in ((3, 3, 32), (3, 20, 40), (3, 65, 130), (1, 250, 250)):
        yield Case(
            "Channels of a convolution padded to multiples of 16",
            f"{size}x{size}, {inputs} to {outputs}",
            *(convolved, padded),
            ((4, 28, 28, inputs), (size, size, inputs, outputs)),
        )


def _joined() -> Iterator[Case]:
    import jax.numpy as jnp

    def apart(x: Any, *weights: Any) -> Any:
        return [x @ each for each in weights]

    def joined(x: Any, *weights: Any) -> Any:
        return jnp.split(x @ jnp.concatenate(weights, 1), len(weights), 1)

    for rows, width in ((8, 512), (64, 512), (196, 768)):
        yield Case(
            "Three products of one array as one",
            f"{rows}x{width} by {width}x{width}",
            *(apart, joined),
            ((rows, width), *((width, width),) * 3),
        )


def _scatters() -> Iterator[Case]:
    import jax
    import jax.numpy as jnp

    def segments(count: int, x: Any) -> Any:
        rows = jnp.arange(x.shape[0])
        return (rows * 7919) % count

    def scattered(count: int, x: Any) -> Any:
        return jax.ops.segment_sum(x, segments(count, x), count)

    def in_order(count: int, x: Any) -> Any:
        order = jnp.argsort(segments(count, x))
        return jax.ops.segment_sum(
            x[order], segments(count, x)[order], count, indices_are_sorted=True
        )

    def one_hot(count: int, x: Any) -> Any:
        which = segments(count, x)[:, None] == jnp.arange(count)[None]
        return which.astype(x.dtype).T @ x

    for form, other in (("sorted segments", in_order), ("one-hot product", one_hot)):
        for rows, count, width in ((10_000, 100, 32), (2_000, 500, 64)):
            yield Case(
                "Sums of segments without a scatter",
                f"{form}, {rows}x{width} to {count}",
                *(partial(scattered, count), partial(other, count)),
                ((rows, width),),
            )


def _distances() -> Iterator[Case]:

    def apart(x: Any, y: Any) -> Any:
        return ((x[:, None] - y[None]) ** 2).sum(-1)

    def product(x: Any, y: Any) -> Any:
        return (x * x).sum(1)[:, None] + (y * y).sum(1)[None] - 2 * x @ y.T

    for offset in (0.0, 100.0):
        yield Case(
            "Squares of distances as a product",
            f"1000 points of 64 numbers around {offset:g}",
            lambda x, y, offset=offset: apart(x + offset, y + offset),
            lambda x, y, offset=offset: product(x + offset, y + offset),
            ((1000, 64),) * 2,
        )


def measure(case: Case, seconds: float) -> Row:
    """Measures one case in this process."""
    import jax

    rng = np.random.default_rng(0)
    arrays = [
        jax.device_put(rng.uniform(0.1, 0.4, shape).astype(np.float32))
        for shape in case.shapes
    ]
    calls = [
        partial(jax.jit(function), *arrays) for function in (case.plain, case.other)
    ]
    outputs = [jax.tree.leaves(jax.device_get(call())) for call in calls]
    durations = take_turns(*calls, rounds=_ROUNDS, seconds=seconds)
    low, high = speedup_interval(*durations)
    return {
        "jax_ns": float(np.median(durations[0])),
        "speedup": speedup_of(*durations),
        "low": low,
        "high": high,
        "error": "",
        "difference": max(
            float(np.abs(a - b).max() / max(np.abs(a).max(), 1e-30))
            for a, b in zip(*outputs, strict=True)
        ),
    }


def page(rows: list[Row], cores: int) -> list[str]:
    """The page: a table for each form."""
    lines = [
        *head("Forms that are not chosen", rows),
        f"* float32, on {count_of(cores, 'core')}; speed-up of the other form over "
        "the usual one, both by plain jax.jit, timed in turns; difference: the "
        "largest, relative to the largest number of the output",
        "",
        "[Choices that are not offered](../design/xla.md#choices-that-are-not-offered) "
        "says why.",
        "",
    ]
    for group, found in groupby(rows, key=lambda row: row["group"]):
        cells = [
            (
                row["name"],
                f"{row['jax_ns'] / 1e6:.3f}",
                f"{row['speedup']:.3f} ({row['low']:.3f} to {row['high']:.3f})",
                f"{row['difference']:.0e}",
            )
            if not row["error"]
            else (row["name"], "-", row["error"], "-")
            for row in found
        ]
        columns = "case", "jax.jit, ms", "speed-up", "difference"
        lines += [f"## {group}", "", *table(columns, cells), ""]
    return lines


def main() -> int:
    """Measures what is missing and writes the page."""
    parser = parser_of(__doc__)
    add_timing(parser, 2.0, "build/not_offered.jsonl")
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    every = list(cases())
    if arguments.one is not None:
        print(json.dumps(measure(every[arguments.one], arguments.seconds)))
        return 0
    version, cores = version_of_rows(seconds=arguments.seconds), arguments.cores
    known, rows = Rows(arguments.rows, "group", "name", "version", "cores"), []
    for number, case in enumerate(every):
        if arguments.match not in f"{case.group}, {case.name}":
            continue
        columns = {"group": case.group, "name": case.name}
        columns |= {"version": version, "cores": cores}
        words = ["--one", str(number), "--seconds", str(arguments.seconds)]
        run = partial(run_again, words, num_cores=cores, timeout_s=_TIMEOUT_S)
        rows.append(known.get_or_add(columns, run))
    if not rows:
        raise SystemExit(f"no case has {arguments.match!r}")
    write_page(page(rows, cores), arguments.doc)
    return 0


if __name__ == "__main__":
    sys.exit(main())
