# SPDX-License-Identifier: Apache-2.0
"""hloenv show: a module's size, cost and opcodes."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from ..hlo.array_spec import ArraySpec
from ..hlo.module import HloModule
from . import output
from .arguments import add_limit, add_module
from .load import load_module

DESCRIPTION = (
    "Shows a module's size, cost, fingerprint, inputs, outputs and opcodes. Costs are "
    "those of XLA's cost analysis; a loop's body counts once."
)
EXAMPLES = """\
examples:
  hloenv show model.hlo
  hloenv show model.pb --json
  hloenv show train.py:step        # JAX: see `hloenv --help` for what step returns
"""
_MAX_SPECS = 8


def add_parser(parser: argparse.ArgumentParser) -> None:
    """Declares the arguments."""
    add_module(parser)
    add_limit(parser)
    parser.add_argument(
        "--text", action="store_true", help="print the module's HLO text"
    )


def run(args: argparse.Namespace) -> None:
    """Shows `args.module`."""
    module = load_module(args.module, args.max_instructions)
    if args.json:
        output.print_json(
            summary(module) | ({"text": module.to_text()} if args.text else {})
        )
    elif args.text:
        output.print_line(module.to_text())
    else:
        _print(module)


def summary(module: HloModule) -> dict[str, Any]:
    """The facts that are printed, JSON-able."""
    return {
        "name": module.name,
        "fingerprint": module.fingerprint(),
        "instructions": module.instruction_count,
        "computations": module.computation_count,
        "cost": asdict(module.cost()),
        "inputs": [_spec(spec) for spec in module.input_specs()],
        "outputs": [_spec(spec) for spec in module.output_specs()],
        "opcodes": module.opcode_counts(),
    }


def _print(module: HloModule) -> None:
    cost = module.cost()
    output.print_table(
        ("module", module.name),
        [
            ("fingerprint", module.fingerprint()),
            ("instructions", output.format_count(module.instruction_count)),
            ("computations", output.format_count(module.computation_count)),
            ("flops", output.format_quantity(cost.flops)),
            ("transcendentals", output.format_quantity(cost.transcendentals)),
            ("bytes moved", output.format_quantity(cost.bytes, "B")),
            ("inputs", _specs(module.input_specs())),
            ("outputs", _specs(module.output_specs())),
        ],
        fold=(module.name,),
    )
    output.print_line()
    counts = sorted(
        module.opcode_counts().items(), key=lambda item: (-item[1], item[0])
    )
    output.print_table(
        ("opcode", "instructions", "share"),
        [
            (opcode, output.format_count(n), f"{n / module.instruction_count:.1%}")
            for opcode, n in counts
        ],
        right=("instructions", "share"),
    )


def _spec(spec: ArraySpec) -> dict[str, Any]:
    return {"dtype": spec.hlo_dtype, "shape": list(spec.shape)}


def _specs(specs: Sequence[ArraySpec]) -> str:
    shown = ", ".join(
        f"{spec.hlo_dtype}[{','.join(map(str, spec.shape))}]"
        for spec in specs[:_MAX_SPECS]
    )
    rest = len(specs) - _MAX_SPECS
    return f"{len(specs)}: {shown}" + (f", and {rest} more" if rest > 0 else "")
