# SPDX-License-Identifier: Apache-2.0
"""hloenv graph: a module as Graphviz or JSON, also for Model Explorer."""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
from pathlib import Path

from .._files import naming
from ..errors import ArgumentError
from ..graph import dot, export, model_explorer
from ..graph.hlo_graph import HloGraph
from ..hlo.module import HloModule
from ..rewrite.env import HloEnv
from . import output
from .arguments import add_limit, add_module, add_passes, parse_passes
from .load import load_module

DESCRIPTION = (
    "Writes the graph of a module, or with --pass the graph of its alternatives, as "
    "Graphviz (.dot) or JSON (.json; with --format model-explorer, for Google's Model "
    "Explorer), or drawn by Graphviz's dot (.svg, .png, .pdf)."
)
EXAMPLES = """\
examples:
  hloenv graph model.hlo -o model.svg
  hloenv graph model.hlo --pass algsimp -o alternatives.json
  hloenv graph model.hlo --until fusion --pass fusion | less
  hloenv graph model.hlo --format model-explorer -o model.json
"""
_TEXTS, _DRAWN = ("dot", "json", "model-explorer"), ("svg", "png", "pdf")
_WRITERS = {
    "dot": dot.to_dot,
    "json": export.to_json,
    "model-explorer": model_explorer.to_model_explorer,
}


def add_parser(parser: argparse.ArgumentParser) -> None:
    """Declares the arguments."""
    add_module(parser)
    add_limit(parser)
    add_passes(parser, required=False)
    parser.add_argument(
        *("-o", "--output"),
        metavar="FILE",
        help="x.dot, x.json, x.svg, x.png or x.pdf (default: stdout)",
    )
    parser.add_argument(
        "--format",
        choices=_TEXTS,
        help="format of the output (default: by FILE's suffix, or dot)",
    )


def run(args: argparse.Namespace) -> None:
    """Writes the graph of `args.module`."""
    format_ = args.format or _format_of(args.output)
    if format_ in _DRAWN:
        _need_dot(args.output)  # before the work
    module, graph = _graph(args)
    sources = module.sources()
    if format_ in _DRAWN:
        _draw(dot.to_dot(graph, sources=sources), args.output, format_)
        _print_summary(args, graph, format_)
        return
    text = _WRITERS[format_](graph, sources=sources)
    if args.output is not None:
        with naming(args.output):
            Path(args.output).write_text(text + "\n", encoding="utf-8")
        _print_summary(args, graph, format_)
    elif not args.json:
        output.print_line(text)
    elif format_ != "dot":
        output.print_json(json.loads(text))
    else:
        output.print_json({"format": "dot", "text": text})


def _format_of(path: str | None) -> str:
    if path is None:
        return "dot"
    suffix = Path(path).suffix.removeprefix(".")
    if suffix not in ("dot", "json", *_DRAWN):
        raise ArgumentError(
            f"{path} has an unknown suffix; use .dot, .json, .svg, .png or .pdf, or "
            "select the format with --format"
        )
    return suffix


def _need_dot(path: str) -> None:
    if shutil.which("dot") is None:
        raise ArgumentError(
            f"{path} needs Graphviz's program dot, which is not installed; install "
            "Graphviz, or write a .dot file"
        )


def _draw(text: str, path: str, format_: str) -> None:
    done = subprocess.run(
        ["dot", f"-T{format_}", "-o", path],
        input=text,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise ArgumentError(f"Graphviz failed on {path}: {done.stderr.strip()}")


def _graph(args: argparse.Namespace) -> tuple[HloModule, HloGraph]:
    env = HloEnv(load_module(args.module, args.max_instructions))
    if args.until is not None:
        env.run_until(args.until)
    if not args.passes:
        return env.module, env.graph()
    alternatives = env.get_alternatives(*parse_passes(args.passes))
    return alternatives.module, alternatives.graph


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
        text = ", ".join(
            output.plural(number, name.removesuffix("s"))
            for name, number in counts.items()
        )
        output.print_line(f"{args.output}: {text}")
