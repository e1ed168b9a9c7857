# SPDX-License-Identifier: Apache-2.0
"""hloenv calibrate: the constants of the static estimate, measured on this machine."""

from __future__ import annotations

import argparse
from dataclasses import asdict

from ..cost.calibration import NUM_STEPS, calibrate, rows
from ..measurement.store import Store
from ..process.cpu_affinity import check_threads
from ..runtime.machine import this_machine
from . import output
from .arguments import add_store_file
from .numbers import add_count

DESCRIPTION = (
    "Measures this machine's arithmetic rates and memory bandwidths with small "
    "modules, in a child process pinned to its own core, and saves them in the store: "
    "the constants of the roofline, which estimates modules without running them. "
    "Takes about 20 s."
)
EXAMPLES = """\
examples:
  hloenv calibrate
  hloenv calibrate --threads 2 --store results.sqlite
"""


def add_parser(parser: argparse.ArgumentParser) -> None:
    """Declares the arguments."""
    add_count(parser, "--threads", "cores that each module runs on", 1)
    add_store_file(parser, "SQLite file for the result")


def run(args: argparse.Namespace) -> None:
    """Calibrates and saves."""
    check_threads(args.threads)
    with (
        Store(args.store) as store,
        output.track(("modules timed", NUM_STEPS), is_shown=not args.json) as (step,),
    ):
        rates = calibrate(threads=args.threads, store=store, progress=step)
    machine = this_machine()
    if args.json:
        output.print_json(
            {
                "rates": asdict(rates),
                "threads": args.threads,
                "machine": machine.to_json(),
                "store": str(store.path),
            }
        )
        return
    cores = "1 core" if args.threads == 1 else f"{args.threads} cores"
    output.print_table(
        ("rate", "value"),
        [
            (
                name,
                output.format_seconds(value)
                if unit == "s"
                else output.format_quantity(value, unit),
            )
            for name, value, unit in rows(rates)
        ],
        title=f"{cores} of {machine.cpu}",
        right=("value",),
    )
    output.print_line(f"\nsaved in {store.path}")
