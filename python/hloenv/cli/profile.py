# SPDX-License-Identifier: Apache-2.0
"""hloenv profile: where the time of a module goes."""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .._optional import needed_by
from ..cost.calibration import NUM_STEPS, calibrate, load_rates
from ..cost.profile import Kernel, ModuleProfile, profile
from ..cost.roofline import Rates
from ..errors import ArgumentError
from ..measurement.store import Store
from ..process.cpu_affinity import check_threads
from ..runtime.memory import fresh_text
from . import output
from .arguments import (
    add_engine,
    add_limit,
    add_module,
    add_store,
    engine_of,
    open_store,
)
from .load import load_module
from .numbers import add_count

DESCRIPTION = (
    "Times a module as a whole, and each of its kernels, and says what runs each "
    "kernel, its share of the time, its rates, and how far they are from the "
    "machine's peak: near 100 %, the machine is the limit; far below, another form or "
    "another decision may pay."
)
EXAMPLES = """\
examples:
  hloenv profile model.hlo
  hloenv profile train.py:step --threads 2 --top 30
  hloenv profile train.py:step --engine wheel
  hloenv profile model.hlo --json > profile.json
  hloenv profile model.hlo -o profile.png
"""
_MAX_NAME = 48
_COLUMNS = ("kernel", "run by", "runs", "time", "share", "GFLOP/s", "GB/s", "of peak")


def add_parser(parser: argparse.ArgumentParser) -> None:
    """Declares the arguments."""
    add_module(parser)
    add_limit(parser)
    add_count(parser, "--threads", "cores that the module runs on", 1)
    add_count(parser, "--top", "show only the N kernels with the largest share", 20)
    parser.add_argument(
        *("-o", "--output"),
        metavar="FILE",
        type=Path,
        help="also draw the shares, as .png, .svg or .pdf",
    )
    add_engine(parser, by_module=True)
    add_store(parser)


def run(args: argparse.Namespace) -> None:
    """Profiles `args.module`."""
    check_threads(args.threads)
    if args.output is not None:
        _check_suffix(args.output)
    module = load_module(args.module, args.max_instructions)
    with open_store(args) as store:
        rates = _rates(args, store)
        with output.progress("timing the kernels", is_shown=not args.json):
            found = profile(
                module, threads=args.threads, store=store, engine=engine_of(args)
            )
    if args.output is not None:
        draw(found, args.output)
    if args.json:
        kernels = [
            {**each, "of_peak": kernel.of_peak(rates)}
            for each, kernel in zip(
                found.to_json()["kernels"], found.kernels, strict=True
            )
        ]
        output.print_json({**found.to_json(), "kernels": kernels})
        return
    _print(found, rates, args.top)


def draw(found: ModuleProfile, path: Path, *, top: int = 20) -> None:
    """Draws the shares of the kernels as bars.

    Args:
        found: the profile.
        path: of the picture.
        top: number of bars; the other kernels are one.

    Raises:
        ImportError: matplotlib is missing.
    """
    with needed_by("hloenv profile -o", "matplotlib", "bench"):
        from matplotlib.figure import Figure
    shown = list(found.kernels[:top])
    shares = [each.share for each in shown]
    labels = [output.shortened(each.name, _MAX_NAME) for each in shown]
    rest = math.fsum(each.share for each in found.kernels[top:])
    if len(found.kernels) > top:
        shares.append(rest)
        labels.append(f"{len(found.kernels) - top} others")
    figure = Figure(figsize=(8, 1 + 0.3 * len(shares)), layout="constrained")
    axes = figure.add_subplot()
    axes.barh(labels[::-1], [100 * share for share in shares[::-1]])
    axes.set_xlabel("share of the time of all kernels, %")
    axes.set_title(
        f"{found.module}: {output.format_seconds(found.seconds)} a run", loc="left"
    )
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    figure.savefig(path, dpi=120)


def _check_suffix(path: Path) -> None:
    if path.suffix not in (".png", ".svg", ".pdf"):
        raise ArgumentError(
            f"-o draws .png, .svg or .pdf, got {path.name!r}; --json has the numbers"
        )


def _rates(args: argparse.Namespace, store: Store | None) -> Rates:
    """The machine's, measured now if the store has none."""
    rates = None if store is None else load_rates(store, args.threads)
    if rates is not None:
        return rates
    with output.track(("rates of the machine", NUM_STEPS), is_shown=not args.json) as (
        step,
    ):
        return calibrate(threads=args.threads, store=store, progress=step)


def _print(found: ModuleProfile, rates: Rates, top: int) -> None:
    kernels_s = math.fsum(each.seconds for each in found.kernels if each.seconds > 0)
    cores = "1 core" if found.threads == 1 else f"{found.threads} cores"
    output.print_table(
        _COLUMNS,
        [_row(each, rates) for each in found.kernels[:top]],
        title=f"{found.module}: {output.format_seconds(found.seconds)} a run on "
        f"{cores}; its kernels: {output.format_seconds(kernels_s)}",
        right=_COLUMNS[2:],
    )
    rest = found.kernels[top:]
    if rest:
        share = math.fsum(each.share for each in rest)
        output.print_line(f"\n{len(rest)} more kernels: {share:.1%} (see --top)")
    if fresh := fresh_text(found.fresh_bytes or 0):
        output.print_line(f"\n{fresh}; what writes them first waits for that")
    sources = [(each.name, each.source) for each in found.kernels[:top] if each.source]
    if sources:
        output.print_line()
        output.print_table(
            ("kernel", "operation and source line"),
            [(output.shortened(name, _MAX_NAME), source) for name, source in sources],
        )


def _row(kernel: Kernel, rates: Rates) -> Sequence[Any]:
    return (
        output.shortened(kernel.name, _MAX_NAME),
        kernel.emitter or kernel.opcode,
        output.format_count(kernel.runs),
        output.format_seconds(kernel.seconds),
        f"{kernel.share:.1%}",
        _rate(kernel.flops, kernel.seconds),
        _rate(kernel.bytes, kernel.seconds),
        "-" if math.isnan(peak := kernel.of_peak(rates)) else f"{peak:.0%}",
    )


def _rate(work: float, seconds: float) -> str:
    if not seconds > 0 or math.isnan(work):
        return "-"
    return f"{work / seconds * 1e-9:.3g}"
