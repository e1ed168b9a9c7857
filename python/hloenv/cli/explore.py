# SPDX-License-Identifier: Apache-2.0
"""hloenv explore: look at rewrites, decide and measure, in a browser."""

from __future__ import annotations

import argparse
import contextlib
import json
import signal
import sys
import tempfile
import threading
import webbrowser
from pathlib import Path

from ..errors import ArgumentError
from ..explorer.backend import Backend, Target
from ..explorer.page import write_page
from ..explorer.result_files import read_results
from ..explorer.server import Server
from ..rewrite.trace import Trace
from . import output
from .arguments import (
    MODULE_HELP,
    add_limit,
    add_stops,
    add_store_file,
    check_output,
)
from .load import load_module
from .numbers import add_count
from .parser import UsageError

DESCRIPTION = (
    "Starts a server for this machine alone and opens its page in the browser: the "
    "graph of a module, its rewrites with before and after, decisions with estimates "
    "and measurements, XLA's own passes as a timeline, results of searches, tunings, "
    "trainings and benchmarks. With -o it writes one file instead, to read without "
    "hloenv."
)
EXAMPLES = """\
examples:
  hloenv explore model.hlo
  hloenv explore train.py:step
  hloenv explore hloenv://dataset/test/flax
  hloenv explore decided.hlo.trace.json --module model.hlo
  hloenv explore results.parquet                 # of hloenv bench; or its folder
  hloenv explore search.json                     # of hloenv search --json
  hloenv explore step.tuned                      # of hloenv tune; or its .journal
  hloenv explore runs/first                      # a run of hloenv train
  hloenv explore search.json --module model.hlo  # and the decisions of its candidates
  hloenv explore model.hlo -o page.html --timeline
  hloenv explore model.hlo -o page.html --stop ": algsimp cse" --stop "fusion: fusion"
"""


def add_parser(parser: argparse.ArgumentParser) -> None:
    """Declares the arguments."""
    parser.add_argument(
        "target",
        metavar="TARGET",
        help=f"{MODULE_HELP}; or a trace; or results: the output of hloenv search "
        "--json, an artefact or a .journal of hloenv tune, the folder of a run of "
        "hloenv train, the .parquet or the folder of hloenv bench",
    )
    parser.add_argument(
        "--module",
        metavar="MODULE",
        help="the module of a trace or of results",
    )
    add_limit(parser)
    parser.add_argument(
        *("-o", "--output"),
        metavar="FILE",
        help="write one read-only .html file with the same views, and start no server",
    )
    add_stops(
        parser,
        "with -o: a decision point to keep, of passes by name; repeat the option "
        "for several, in the order of the pipeline (default: where the target opens)",
    )
    parser.add_argument(
        "--timeline",
        action="store_true",
        help="with -o: also run XLA's own passes and add what each of them changed",
    )
    add_count(parser, "--port", "port of the server (default: a free one)", most=65535)
    parser.add_argument(
        "--token",
        metavar="TEXT",
        default="",
        help="token of the URL, to start a server again that its page has lost "
        "(default: a random one)",
    )
    parser.add_argument(
        "--no-open", action="store_true", help="print the URL and open no browser"
    )
    add_count(parser, "--threads", "cores that each module runs on", 1)
    add_store_file(parser, "SQLite file that caches the times of kernels")
    parser.add_argument(
        "--no-store", action="store_true", help="neither read nor write the store"
    )


def run(args: argparse.Namespace) -> None:
    """Serves `args.target` until Ctrl-C, or writes its page."""
    check_output(args.output)
    if args.output is None and (args.stops or args.timeline):
        option = "--stop" if args.stops else "--timeline"
        raise UsageError(f"{option} was given without -o; add -o FILE.html")
    target = open_target(args.target, args.module, args.max_instructions)
    if args.output is not None:
        _check_kept(args, target)
        _write(args, target)
        return
    store = None if args.no_store else str(args.store or "")
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, _exit)
    with (
        contextlib.closing(
            Backend(target, store=store, threads=args.threads)
        ) as backend,
        Server(backend, port=args.port or 0, token=args.token) as server,
        tempfile.TemporaryDirectory(prefix="hloenv-explorer-") as folder,
    ):
        backend.warm()
        _announce(args, server.url)
        if not args.no_open:
            webbrowser.open(_redirect(server.url, Path(folder)))
        threading.Event().wait()


def _exit(number: int, _: object) -> None:
    """Ends the command in order, so that it removes its temporary files."""
    sys.exit(128 + number)


def _redirect(url: str, folder: Path) -> str:
    """A file that leads to `url`: other users can read the arguments of a browser."""
    path = folder / "open.html"
    path.touch(mode=0o600)
    path.write_text(f'<meta http-equiv="refresh" content="0; url={url}">')
    return path.as_uri()


def open_target(
    name: str, module: str | None = None, max_instructions: int | None = None
) -> Target:
    """What TARGET names.

    Args:
        name: a MODULE, a trace, or a result file.
        module: the module of a trace or of results.
        max_instructions: rejects larger modules.

    Raises:
        ArgumentError: a trace without a module, a folder without results, or a file
            of another kind.
        HloEnvError: the module cannot be read.
    """
    path = Path(name)
    other = None if module is None else load_module(module, max_instructions)
    found = read_results(path)
    if found is not None:
        return Target(
            module or name,
            other,
            results=found.results,
            traces=found.traces,
            problem=f"{name} has results and no module; add --module MODULE",
        )
    if path.suffix == ".json":
        trace = Trace.load(path)
        if other is None:
            raise ArgumentError(
                f"{name} is a trace: its decisions are on a module, which it does not "
                "hold; add --module MODULE"
            )
        if trace.start.fingerprint != other.fingerprint():
            raise ArgumentError(
                f"{name} starts at another module than {module}: give --module the one "
                "that it was recorded on"
            )
        return Target(module or name, other, trace=trace)
    if module is not None:
        raise ArgumentError(
            f"--module goes with a trace or results, but {name} is a module itself"
        )
    return Target(name, load_module(name, max_instructions))


def _check_kept(args: argparse.Namespace, target: Target) -> None:
    """Checks that what the page is to keep can be found.

    Raises:
        UsageError: it cannot.
    """
    if target.module is None and (args.stops or args.timeline):
        option = "--stop" if args.stops else "--timeline"
        raise UsageError(f"{option} needs a module; add --module MODULE")
    if args.stops and target.trace is not None:
        raise UsageError(
            "--stop is for a module; a trace is kept with its decisions, where they "
            "were made: leave --stop out"
        )


def _announce(args: argparse.Namespace, url: str) -> None:
    if args.json:
        print(json.dumps({"url": url}), flush=True)
    else:
        print(f"{url}\nCtrl-C ends the server.", flush=True)


def _write(args: argparse.Namespace, target: Target) -> None:
    path = Path(args.output)
    if path.suffix not in (".html", ".htm"):
        raise ArgumentError(f"-o writes a .html file, got {path.name!r}")
    backend = Backend(target, store=None, threads=args.threads)
    try:
        with output.progress("collecting the page", is_shown=not args.json):
            size = write_page(
                backend, path, stops=args.stops, has_timeline=args.timeline
            )
    finally:
        backend.close()
    if args.json:
        output.print_json({"output": args.output, "bytes": size})
    else:
        output.print_line(f"{path}: {output.format_quantity(size, 'B')}")
