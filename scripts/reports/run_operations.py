#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares operations, or networks, in jax and in PyTorch.

Those of operations.py or torch_networks.py in scripts/examples. Each runs in its own
process: by jax.jit, by hloenv.jit (which has decided during the first call), and by
PyTorch, the second interleaved with each of the others; all outputs are compared. Rows
are appended to a JSONL file; a repeated run continues.

    python scripts/reports/run_operations.py
    python scripts/reports/run_operations.py --doc docs/results/operations.md
    python scripts/reports/run_operations.py --file torch_networks.py --compile
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

import hloenv
from hloenv._markdown import table
from hloenv.bench.rows import geometric_mean
from hloenv.measurement.statistics import speedup_interval, speedup_of
from reporting import (
    Row,
    Rows,
    add_timing,
    count_of,
    decisions_of,
    from_example,
    head,
    parser_of,
    run_again,
    version_of_rows,
    write_page,
)

_TIMEOUT_S = 1800.0
_NOUNS = {"torch_networks.py": "networks"}
_ROUNDS = 5, 500  # minimum, maximum
_FEW: dict[str, Any] = {"rounds": (5, 5), "seconds": 0}
# Of PyTorch's time, within which the work on an operation is done.
_WITHIN = 1.5
# Of the median size of results: less is as good as 0, as are gradients with respect to
# what a normalization takes away.
_NEGLIGIBLE = 1e-3


def parse_arguments() -> argparse.Namespace:
    """Parses the command line."""
    parser = parser_of(__doc__)
    parser.add_argument(
        "--file", default="operations.py", help="of scripts/examples, with OPERATIONS"
    )
    add_timing(parser, 2.0, "build/operations.jsonl")
    parser.add_argument(
        "--compile", action="store_true", help="by torch.compile (max-autotune), too"
    )
    parser.add_argument("--one", help=argparse.SUPPRESS)
    return parser.parse_args()


def measure(operation: Any, seconds: float, cores: int, *, compiles: bool) -> Row:
    """Measures one operation in this process; `compiles` as --compile."""
    import jax
    import jax.numpy as jnp
    import torch

    from hloenv.jax.compare import take_turns

    torch.set_num_threads(cores)
    arrays = [jnp.asarray(each) for each in operation.arrays]
    tensors = operation.torch_tensors()
    others = operation.channels_last_tensors()
    both = [(lambda each=each: operation.torch(*each)) for each in (tensors, others)]
    single = take_turns(*(_without_result(each) for each in both), **_FEW)
    if min(single[1]) < min(single[0]):  # the better of its two layouts of images
        tensors = others
    ours = hloenv.jit(operation.jax, remember=False)
    calls = {
        "jax": partial(jax.jit(lambda *xs: operation.jax(*xs)), *arrays),
        "ours": partial(ours, *arrays),
        "torch": _without_result(lambda: operation.torch(*tensors)),
    }
    expected = operation.in_jax_layout(operation.torch(*tensors))
    is_equal = all(
        _is_close(calls[way](), expected, operation.off)
        for way in ("jax", "ours")
        for _ in range(2)
    )
    row: Row = {"is_equal": is_equal}
    row["decided"] = decisions_of(ours)
    for way in ("jax", "torch"):
        durations, count = _durations(calls[way], calls["ours"], seconds)
        row[f"{way}_ns"] = float(np.median(durations[0])) / count
        row[f"ours_by_{way}_ns"] = float(np.median(durations[1])) / count
        row[f"speedup_over_{way}"] = speedup_of(*durations)
        row[f"interval_over_{way}"] = list(speedup_interval(*durations))
    if compiles:
        row |= _compiled(operation, calls["ours"], seconds)
    return row


def _compiled(operation: Any, ours: Callable[[], Any], seconds: float) -> Row:
    """PyTorch's compiler, for the better of the two layouts of images."""
    import torch

    run = torch.compile(operation.torch, mode="max-autotune-no-cudagraphs")
    best: Row = {}
    begin = time.perf_counter()
    for tensors in (operation.torch_tensors(), operation.channels_last_tensors()):
        call = _without_result(partial(run, *tensors))
        try:
            call()
            durations, count = _durations(call, ours, seconds)
        except Exception as error:  # of a compiler: any
            best.setdefault("compile_error", f"{type(error).__name__}: {error}"[:200])
            continue
        single = float(np.median(durations[0])) / count
        if single < best.get("compiled_ns", math.inf):
            best |= {
                "compiled_ns": single,
                "speedup_over_compiled": speedup_of(*durations),
            }
    return best | {"torch_compile_s": time.perf_counter() - begin}


def _without_result(call: Callable[[], Any]) -> Callable[[], None]:
    """A call whose result is PyTorch's own, which jax does not wait for."""

    def run() -> None:
        call()

    return run


def _durations(first: Any, second: Any, seconds: float) -> tuple[Any, int]:
    from hloenv.jax.compare import take_turns

    single = take_turns(first, second, **_FEW)
    count = max(1, round(200_000 / min(min(each) for each in single)))
    return take_turns(
        first, second, rounds=_ROUNDS, seconds=seconds, calls=count
    ), count


def _is_close(outputs: Any, expected: list[Any], off: float | None) -> bool:
    """Whether outputs are as expected; `off` as of an `Operation`."""
    found = outputs if isinstance(outputs, tuple) else (outputs,)
    found = [np.asarray(each) for each in found]
    if [each.shape for each in found] != [each.shape for each in expected]:
        return False
    if off is None:
        return all(
            np.allclose(each, other, rtol=1e-3, atol=1e-3 * np.abs(other).max())
            for each, other in zip(found, expected, strict=True)
        )
    sizes = [_rms(each) for each in expected]
    negligible = _NEGLIGIBLE * float(np.median(sizes))
    return all(
        _rms(each - other) <= off * size + negligible
        for each, other, size in zip(found, expected, sizes, strict=True)
    )


def _rms(array: Any) -> float:
    return float(np.sqrt(np.square(array, dtype=np.float64).mean()))


def report(rows: list[Row], arguments: argparse.Namespace) -> list[str]:
    """The page."""
    noun = _NOUNS.get(arguments.file, "operations")
    cells, over_jax, over_torch = [], [], []
    over_compiled = [
        row["speedup_over_compiled"]
        for row in rows
        if row.get("is_equal") and "speedup_over_compiled" in row
    ]
    for row in rows:
        if "error" in row or not row["is_equal"]:
            over_jax.append(1.0)
            cells.append((row["name"], *[""] * 7, row.get("error", "outputs differ")))
            continue
        over_jax.append(row["speedup_over_jax"])
        over_torch.append(row["speedup_over_torch"])
        low, high = row["interval_over_jax"]
        decided = ", ".join(f"{n} x {rule}" for rule, n in row["decided"].items())
        times = (row[name] / 1e6 for name in ("jax_ns", "ours_by_jax_ns", "torch_ns"))
        cells.append(
            (
                row["name"],
                *(f"{each:.3f} ms" for each in times),
                _of_compiled(row),
                *(f"{over_jax[-1]:.2f}", f"{low:.2f} to {high:.2f}"),
                f"{1 / over_torch[-1]:.2f}",
                decided or "nothing",
            )
        )
    within = sum(each >= 1 / _WITHIN for each in over_torch)
    plain = [
        row["jax_ns"] / row["ours_by_jax_ns"] / row["speedup_over_torch"]
        for row in rows
        if row.get("is_equal")
    ]
    within_plain = sum(each <= _WITHIN for each in plain)
    columns = (
        *(noun.removesuffix("s"), "jax.jit", "hloenv.jit", "PyTorch", "torch.compile"),
        *("hloenv.jit over jax.jit", "interval", "hloenv.jit's time over PyTorch's"),
        "decided",
    )
    return [
        *head(f"{noun.capitalize()} in jax and in PyTorch", rows),
        f"* {len(rows)} {noun} of `scripts/examples/{arguments.file}`, on "
        f"{count_of(arguments.cores, 'core')}; medians; hloenv.jit after its decision, "
        "interleaved with each of the others; outputs compared, failures count as 1",
        f"* the rules were set with these {noun} in view",
        "",
        f"hloenv.jit over jax.jit: geometric mean {geometric_mean(over_jax):.2f}. "
        f"Within {_WITHIN} times PyTorch's time: {within} of {len(rows)} with "
        f"hloenv.jit, {within_plain} with jax.jit.",
        *(
            [
                f"Within {_WITHIN} times the time of torch.compile (max-autotune, the "
                "better of its two layouts of images): "
                f"{sum(each >= 1 / _WITHIN for each in over_compiled)} of the "
                f"{len(over_compiled)} that it compiles; hloenv.jit over it: geometric "
                f"mean {geometric_mean(over_compiled):.2f}."
            ]
            * bool(over_compiled)
        ),
        "",
        *table(columns, cells, "lrrrrrlrl"),
    ]


def _of_compiled(row: Row) -> str:
    if "compiled_ns" in row:
        return f"{row['compiled_ns'] / 1e6:.3f} ms"
    return "fails" if "compile_error" in row else ""


def main() -> int:
    """Measures missing operations and writes the page."""
    arguments = parse_arguments()
    operations = from_example(arguments.file, "OPERATIONS")
    if arguments.one:
        found = measure(
            *(operations[arguments.one](), arguments.seconds, arguments.cores),
            compiles=arguments.compile,
        )
        print(json.dumps(found))
        return 0
    chosen = [name for name in operations if arguments.match in name]
    if not chosen:
        raise SystemExit(f"no operation has {arguments.match!r} in its name")
    settings = {"seconds": arguments.seconds, "compile": arguments.compile}
    version, cores = version_of_rows(**settings), arguments.cores
    known = Rows(arguments.rows, "name", "version", "cores")
    rows = []
    for name in chosen:
        columns = {"name": name, "version": version, "cores": cores}
        words = ["--one", name, "--file", arguments.file, "--cores", str(cores)]
        words += ["--seconds", str(arguments.seconds)]
        words += ["--compile"] * arguments.compile
        run = partial(run_again, words, num_cores=cores, timeout_s=_TIMEOUT_S)
        rows.append(known.get_or_add(columns, run))
    write_page(report(rows, arguments), arguments.doc)
    return 0


if __name__ == "__main__":
    sys.exit(main())
