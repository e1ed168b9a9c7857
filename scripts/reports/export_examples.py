#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the modules that an agent of substitutions is trained on.

    python scripts/reports/export_examples.py -o build/substitution_modules

Those of the dataset's training split with real extents, and the operations and programs
of scripts/examples on which the fixed rules were set, not `unseen.py`: one file each.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from pathlib import Path

import hloenv
from hloenv.envs import find_benchmarks
from hloenv.errors import HloEnvError
from reporting import from_example

_PROGRAMS = (
    *("batches", "draws", "filters", "geometry", "narrow", "networks", "pairings"),
    *("points", "programs", "rolls", "signals", "stencils", "tables"),
)
_INLINING = "call-inliner", "tuple-simplifier", "cse"


def modules(max_instructions: int) -> Iterator[tuple[str, hloenv.HloModule]]:
    """Names and modules."""
    for name, make in from_example("operations.py", "OPERATIONS").items():
        operation = make()
        yield name, hloenv.HloModule.from_jax(operation.jax, *operation.arrays)
    for file in _PROGRAMS:
        for name, (_, make) in from_example(f"{file}.py", "PROGRAMS").items():
            function, arguments = make()
            yield f"{file} {name}", hloenv.HloModule.from_jax(function, *arguments)
    split = f"hloenv://dataset/train?extent=real&max_instructions={max_instructions}"
    for benchmark in find_benchmarks(split):
        yield benchmark.uri.rpartition("/real_")[2], benchmark.load()


def main() -> None:
    """Writes those that are small enough."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--max-instructions", type=int, default=1200)
    args = parser.parse_args()
    args.output.mkdir(parents=True, exist_ok=True)
    count = 0
    for name, module in modules(args.max_instructions):
        try:
            module = hloenv.run_passes(module, *_INLINING).module
        except HloEnvError as error:
            print(f"{name}: {error}")
            continue
        if module.instruction_count <= args.max_instructions:
            file = re.sub(r"[^\w=]+", "_", name).strip("_")
            module.save(args.output / f"{file}.hlo")
            count += 1
    print(f"wrote {count} modules to {args.output}")


if __name__ == "__main__":
    main()
