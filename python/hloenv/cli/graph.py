# SPDX-License-Identifier: Apache-2.0
"""hloenv graph: a module as Graphviz or JSON."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from .. import convert
from ..env import HloEnv
from ..graph import HloGraph
from . import output
from .arguments import add_limit, add_module, add_passes, parse_passes
from .inputs import load_module

DESCRIPTION = (
    "Writes the graph of a module, or with --pass the graph of its alternatives, as "
    "Graphviz (.dot) or JSON (.json)."
)
EXAMPLES = """\
examples:
  hloenv graph model.hlo -o model.dot && dot -Tsvg model.dot -o model.svg
  hloenv graph model.hlo --pass algsimp -o alternatives.json
  hloenv graph model.hlo --format dot | dot -Tpng > model.png
"""


def add_parser(parser: argparse.ArgumentParser) -> None:
    """Declares the arguments."""
    add_module(parser)
    add_limit(parser)
    add_passes(parser, required=False)
    parser.add_argument(
        *("-o", "--output"), metavar="FILE", help="x.dot or x.json; stdout by default"
    )
    parser.add_argument(
        "--format",
        choices=("dot", "json"),
        help="by default that of FILE's name, or dot",
    )


def run(args: argparse.Namespace) -> None:
    """Writes the graph of `args.module`."""
    format_ = args.format or _format_of(args.output)
    graph = _graph(args)
    text = convert.to_json(graph) if format_ == "json" else convert.to_dot(graph)
    if args.output is not None:
        Path(args.output).write_text(text + "\n", encoding="utf-8")
        _print_summary(args, graph, format_)
    elif not args.json:
        output.print_line(text)
    elif format_ == "json":
        output.print_json(json.loads(text))
    else:
        output.print_json({"format": "dot", "text": text})


def _format_of(path: str | None) -> str:
    return "json" if path is not None and path.endswith(".json") else "dot"


def _graph(args: argparse.Namespace) -> HloGraph:
    env = HloEnv(load_module(args.module, args.max_instructions))
    if args.until is not None:
        env.run_until(args.until)
    if not args.passes:
        return env.graph()
    return env.get_alternatives(*parse_passes(args.passes)).graph


def _print_summary(args: argparse.Namespace, graph: HloGraph, format_: str) -> None:
    counts = {
        "nodes": graph.num_nodes,
        "edges": graph.num_edges,
        "computations": graph.num_computations,
        "alternatives": graph.num_alternatives,
    }
    if args.json:
        output.print_json({"output": args.output, "format": format_, **counts})
    else:
        text = ", ".join(f"{number} {name}" for name, number in counts.items())
        output.print_line(f"{args.output}: {text}")
