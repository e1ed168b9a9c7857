# SPDX-License-Identifier: Apache-2.0
"""hloenv run: runs passes in order."""

from __future__ import annotations

import argparse
from typing import Any

from ..hlo.passes import run_passes
from . import output
from .arguments import add_limit, add_module, add_pass, check_output, parse_passes
from .load import load_module

DESCRIPTION = (
    "Runs passes one after the other and shows what each of them changes. Nothing is "
    "decided: each pass makes all of its rewrites."
)
EXAMPLES = """\
examples:
  hloenv run model.hlo --pass algsimp --pass cse --pass dce
  hloenv run model.hlo --pass algsimp+cse* -o simplified.hlo
  hloenv run hloenv://dataset/test/flax --pass cse
"""


def add_parser(parser: argparse.ArgumentParser) -> None:
    """Declares the arguments."""
    add_module(parser)
    add_pass(
        parser,
        "a pass; repeat the option for several, in order. With options: "
        "NAME:OPTION=VALUE,...; a pipeline to a fixed point: NAME+NAME* (quote the *)",
    )
    parser.add_argument(
        *("-o", "--output"), metavar="FILE", help="save the module: .pb or text"
    )
    add_limit(parser)


def run(args: argparse.Namespace) -> None:
    """Runs `args.passes` on `args.module`."""
    check_output(args.output)
    module = start = load_module(args.module, args.max_instructions)
    steps: list[dict[str, Any]] = []
    for each in parse_passes(args.passes):
        result = run_passes(module, each)
        module = result.module
        steps.append(
            {
                "pass": each.name,
                "changed": result.changed,
                "instructions": module.instruction_count,
            }
        )
    if args.output is not None:
        module.save(args.output)
    if args.json:
        output.print_json(
            {
                "start_fingerprint": start.fingerprint(),
                "fingerprint": module.fingerprint(),
                "steps": steps,
                "output": args.output,
            }
        )
        return
    count = start.instruction_count
    rows = [("", output.format_count(count), "")]
    for step in steps:
        difference = step["instructions"] - count
        count = step["instructions"]
        shown = f"{difference:+d}" if step["changed"] else "unchanged"
        rows.append((step["pass"], output.format_count(count), shown))
    output.print_table(
        ("pass", "instructions", "change"), rows, right=("instructions", "change")
    )
    if args.output is not None:
        output.print_line(f"wrote {args.output}")
