#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares operations in jaxlib's library YNNPACK with XLA's own code for them.

Plain jax.jit gives reductions and convolutions of float32 to the library; an option of
the compiler leaves either, or both, to XLA's own code. Each function is compiled in all
four ways, which are timed in turns in one process. Rows are appended to a JSONL file; a
repeated run continues.

    python scripts/reports/run_library.py
    python scripts/reports/run_library.py --doc docs/results/library.md
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from hloenv._markdown import table
from hloenv.jax import from_jax, library
from hloenv.jax.compare import take_turns
from hloenv.measurement.statistics import speedup_interval, speedup_of
from hloenv.runtime.jaxlib.options import compile_lowered
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
# What is left to XLA's own code, by the column of the page.
_WAYS = {
    "no reductions": frozenset({"reductions"}),
    "no convolutions": frozenset({"convolutions"}),
    "neither": frozenset({"reductions", "convolutions"}),
}
# Those that are measured, by the heading of a table.
_GROUPS = {
    "Reductions": ["no reductions"],
    "Convolutions": ["no convolutions"],
    "Networks": list(_WAYS),
}


@dataclass(frozen=True)
class Case:
    """A function of arrays of float32.

    Attributes:
        group: one of `_GROUPS`.
        name: distinguishes the cases.
        function: of the arrays.
        shapes: of the arrays.
    """

    group: str
    name: str
    function: Callable[..., Any]
    shapes: list[tuple[int, ...]]


def cases() -> Iterator[Case]:
    """All cases."""
    yield from _reductions()
    yield from _convolutions()
    yield from _networks()


def _reductions() -> Iterator[Case]:
    import jax
    import jax.numpy as jnp

    case = partial(Case, "Reductions")
    for columns in (2, 3, 4, 8, 16, 32, 64, 128, 1024):
        shape = 2**18 // columns, columns
        size = f"of [{shape[0]}, {columns}]"
        yield case(f"sums {size} by rows", lambda x: x.sum(-1), [shape])
        yield case(f"maxima {size} by rows", lambda x: x.max(-1), [shape])
    for columns in (4, 16, 64, 1024):
        shape = 2**18 // columns, columns
        size = f"of [{shape[0]}, {columns}]"
        yield case(f"sums {size} by columns", lambda x: x.sum(0), [shape])
        exponentials = lambda x: jnp.exp(x).sum(0)  # noqa: E731
        yield case(f"sums of exp {size} by columns", exponentials, [shape])
        yield case(f"softmax {size}", jax.nn.softmax, [shape])
        yield case(f"layer norm {size}", _normalized, [shape])
    for size in (3, 8, 32):
        shapes = [(512, size), (512, size)]
        name = f"among 512 points of {size} coordinates"
        yield case(f"distances {name}", _distances, shapes)
        yield case(f"forces {name}", _forces, shapes)
    for channels in (16, 64, 256):
        side = int((2**15 / channels) ** 0.5)
        shape = 8, side, side, channels
        batch_norm = partial(_normalized, axes=(0, 1, 2))
        yield case(f"batch norm of {list(shape)}", batch_norm, [shape])
    for rows, columns in ((10, 10_000), (10, 90_000), (100, 20_000)):
        size = f"of {rows} slices of {columns:,}"
        shape = rows, columns
        yield case(f"sums {size}", lambda x: x.sum(0), [shape])
        yield case(f"variances {size}", lambda x: x.var(0), [shape])
        yield case(f"log-sum-exp {size}", partial(jax.nn.logsumexp, axis=0), [shape])
    yield case("sum of [512, 512]", lambda x: x.sum(), [(512, 512)])
    loss = lambda x, y: ((x - y) ** 2).mean()  # noqa: E731
    yield case("squared error of [512, 512]", loss, [(512, 512)] * 2)


def _normalized(x: Any, axes: tuple[int, ...] = (-1,)) -> Any:
    centered = x - x.mean(axes, keepdims=True)
    return centered / ((centered**2).mean(axes, keepdims=True) + 1e-5) ** 0.5


def _distances(x: Any, y: Any) -> Any:
    return ((x[:, None] - y[None]) ** 2).sum(-1)


def _forces(x: Any, y: Any) -> Any:
    import jax.numpy as jnp

    return jnp.tanh(x[:, None] - y[None]).sum(1)


# Images, side, input and output features, side of the window, stride, groups.
_SIZES = (
    *((1, 224, 3, 64, 7, 2, 1), (1, 64, 3, 64, 7, 2, 1), (32, 28, 1, 32, 3, 1, 1)),
    *((8, 32, 3, 16, 3, 1, 1), (1, 56, 64, 64, 3, 1, 1), (1, 28, 128, 128, 3, 1, 1)),
    *((1, 14, 256, 256, 3, 1, 1), (1, 7, 512, 512, 3, 1, 1)),
    *((1, 16, 128, 128, 3, 1, 1), (1, 8, 256, 256, 3, 1, 1), (1, 4, 512, 512, 3, 1, 1)),
    *((1, 56, 64, 128, 3, 2, 1), (1, 28, 128, 256, 3, 2, 1), (8, 32, 32, 32, 3, 1, 1)),
    *((8, 16, 64, 64, 3, 1, 1), (1, 56, 64, 256, 1, 1, 1), (1, 28, 512, 128, 1, 1, 1)),
    *((1, 7, 512, 2048, 1, 1, 1), (1, 14, 256, 256, 3, 1, 32)),
    *((1, 56, 64, 64, 3, 1, 64), (1, 14, 384, 384, 7, 1, 384)),
)


def _convolutions() -> Iterator[Case]:
    for images, side, inputs, outputs, window, stride, groups in _SIZES:
        name = f"{window}x{window} of {images} x {side}x{side}x{inputs} to {outputs}"
        name += f", stride {stride}" if stride > 1 else ""
        name += f", {groups} groups" if groups > 1 else ""
        shapes = [
            (images, side, side, inputs),
            (window, window, inputs // groups, outputs),
        ]
        function = partial(_convolve, stride=stride, groups=groups)
        yield Case("Convolutions", name, function, shapes)


def _convolve(x: Any, kernel: Any, stride: int = 1, groups: int = 1) -> Any:
    import jax

    return jax.lax.conv_general_dilated(
        x,
        kernel,
        (stride, stride),
        "SAME",
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
        feature_group_count=groups,
    )


def _networks() -> Iterator[Case]:
    import jax

    def last_blocks(x: Any, *kernels: Any, pools: bool) -> Any:
        """Of a ResNet-18: two blocks, of which the second halves the image."""
        for number, kernel in enumerate(kernels):
            y = jax.nn.relu(_convolve(x, kernel, stride=2 if number == 2 else 1))
            x = x + y if x.shape == y.shape else y
        return x.mean((1, 2)) if pools else x

    for side in (8, 14, 28):
        shapes = [(1, side, side, 256)]
        shapes += [(3, 3, 256, 256)] * 2 + [(3, 3, 256, 512), (3, 3, 512, 512)]
        name = f"last blocks of a residual network, of {side}x{side}x256"
        for pools in (False, True):
            function = partial(last_blocks, pools=pools)
            title = f"{name}, with its mean" if pools else name
            yield Case("Networks", title, function, shapes)


def measure(name: str, seconds: float) -> Row:
    """Measures one case in this process."""
    import jax

    (case,) = (each for each in cases() if each.name == name)
    random = np.random.default_rng(0)
    # Kernels are small, so that sums of their products are too.
    arrays = [
        jax.numpy.asarray(
            random.standard_normal(shape, np.float32) * (0.02 if i else 1)
        )
        for i, shape in enumerate(case.shapes)
    ]
    lowered = jax.jit(case.function).lower(*arrays)
    plain = lowered.compile()
    expected = np.asarray(plain(*arrays))
    options = library.options_for(from_jax(case.function, *arrays))
    row: Row = {"rule": library.left_out_of(options), "is_equal": True}
    for way in _GROUPS[case.group]:
        other = compile_lowered(lowered, library.without(_WAYS[way]))
        row["is_equal"] &= np.allclose(
            other(*arrays), expected, rtol=1e-3, atol=1e-3 * abs(expected).max()
        )
        calls = [partial(_run, each, arrays) for each in (plain, other)]
        durations = take_turns(*calls, rounds=_ROUNDS, seconds=seconds)
        row["ns"] = float(np.median(durations[0]))
        row[way] = [speedup_of(*durations), *speedup_interval(*durations)]
    return row


def _run(compiled: Any, arrays: list[Any]) -> None:
    compiled(*arrays).block_until_ready()


def report(rows: list[Row], arguments: argparse.Namespace) -> list[str]:
    """The page."""
    lines = [
        *head("Operations in YNNPACK and in XLA's own code", rows),
        f"* float32, on {count_of(arguments.cores, 'core')}; speed-ups over plain "
        "jax.jit where reductions, convolutions or both are left to XLA's own code "
        f"(`{library.OPTION}`), timed in turns",
        "* the rule's estimates were set with these cases, and with programs of train "
        "and validation, in view",
        "",
        "*Rule* is what `hloenv.jit` tries to leave to XLA's own code; it uses that "
        "where it is measured to be faster.",
    ]
    for group, ways in _GROUPS.items():
        names = [each.name for each in cases() if each.group == group]
        found = [_cells(row, ways) for row in rows if row["name"] in names]
        columns = "operation", "jax.jit", *ways, "rule"
        aligned = f"lr{'r' * len(ways)}l"
        lines += ["", f"## {group}", "", *table(columns, found, aligned)]
    return lines


def _cells(row: Row, ways: list[str]) -> tuple[str, ...]:
    if "error" in row or not row["is_equal"]:
        nothing = [""] * (len(ways) + 1)
        return row["name"], *nothing, row.get("error", "outputs differ")
    speedups = ("{:.2f} ({:.2f} to {:.2f})".format(*row[way]) for way in ways)
    return row["name"], f"{row['ns'] / 1e6:.3f} ms", *speedups, row["rule"] or "nothing"


def main() -> int:
    """Measures missing cases and writes the page."""
    parser = parser_of(__doc__)
    add_timing(parser, 2.0, "build/library.jsonl")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        print(json.dumps(measure(arguments.one, arguments.seconds)))
        return 0
    version, cores = version_of_rows(seconds=arguments.seconds), arguments.cores
    known = Rows(arguments.rows, "name", "version", "cores")
    rows = []
    for case in cases():
        if arguments.match not in case.name:
            continue
        columns = {"name": case.name, "version": version, "cores": cores}
        words = ["--one", case.name, "--seconds", str(arguments.seconds)]
        run = partial(run_again, words, num_cores=cores, timeout_s=_TIMEOUT_S)
        rows.append(known.get_or_add(columns, run))
    write_page(report(rows, arguments), arguments.doc)
    return 0


if __name__ == "__main__":
    sys.exit(main())
