# SPDX-License-Identifier: Apache-2.0
"""hloenv apply: replays a trace on its module."""

from __future__ import annotations

import argparse

from ..rewrite.env import replay
from . import output
from .arguments import add_limit, add_module
from .load import load_module

DESCRIPTION = (
    "Replays a trace of decisions, as `hloenv optimize -o` saves it, on the module "
    "that it was recorded on. Fails if the module differs, or if the resulting module "
    "has another fingerprint than the recorded one."
)
EXAMPLES = """\
examples:
  hloenv apply decided.hlo.trace.json model.hlo -o again.hlo
  hloenv apply decided.hlo.trace.json model.hlo --json
"""


def add_parser(parser: argparse.ArgumentParser) -> None:
    """Declares the arguments."""
    parser.add_argument("trace", metavar="TRACE", help="a saved trace (JSON)")
    add_module(parser)
    add_limit(parser)
    parser.add_argument(
        *("-o", "--output"), metavar="FILE", help="save the decided module: .pb or text"
    )


def run(args: argparse.Namespace) -> None:
    """Replays `args.trace` on `args.module`."""
    module = load_module(args.module, args.max_instructions)
    env = replay(args.trace, module)
    if args.output is not None:
        env.module.save(args.output)
    result = {
        "steps": len(env.trace.steps),
        "start_fingerprint": module.fingerprint(),
        "fingerprint": env.fingerprint(),
        "instructions": [module.instruction_count, env.module.instruction_count],
        "output": args.output,
    }
    if args.json:
        output.print_json(result)
        return
    before, after = result["instructions"]
    output.print_line(
        f"{result['steps']} steps: {before} -> {after} instructions, fingerprint "
        f"{result['fingerprint']}, as recorded"
    )
    if args.output is not None:
        output.print_line(f"wrote {args.output}")
