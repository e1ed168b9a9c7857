# SPDX-License-Identifier: Apache-2.0
"""hloenv store: shows, moves and removes stored measurements."""

from __future__ import annotations

import argparse
import contextlib
import time
from dataclasses import asdict

from ..errors import StoreError
from ..measurement.store import Store, StoreInfo, default_path
from . import output
from .arguments import add_action, add_store_file

DESCRIPTION = (
    "Manages the store, one SQLite file that caches all measurements. Any number of "
    "programs may use it while these commands run."
)
EXAMPLES = """\
examples:
  hloenv store info
  hloenv store export results.parquet
  hloenv store import other-machine.parquet
  hloenv store prune --failed --older-than 7d
  hloenv store prune --kind kernel --dry-run
  hloenv store repair
"""
_UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}


def add_parser(parser: argparse.ArgumentParser) -> None:
    """Declares the arguments of each action."""
    actions = parser.add_subparsers(metavar="ACTION", dest="action", required=True)
    _add(actions, "info", "count records by kind and machine")
    export = _add(actions, "export", "write all records to a file")
    export.add_argument("file", metavar="FILE", help="*.parquet or *.jsonl")
    import_ = _add(
        actions,
        "import",
        "import the records of a file; of equal keys the newest is kept",
    )
    import_.add_argument(
        "file", metavar="FILE", help="*.parquet, *.jsonl, or another store's *.sqlite"
    )
    _add(actions, "repair", "remove the records whose checksums do not match")
    prune = _add(actions, "prune", "remove the records that meet all conditions")
    prune.add_argument("--kind", metavar="KIND", help="as in `hloenv store info`")
    prune.add_argument("--machine", metavar="ID", help="as in `hloenv store info`")
    prune.add_argument(
        "--older-than",
        metavar="AGE",
        type=_age,
        help="90s, 30m, 12h, 7d, 4w; without a unit: seconds",
    )
    prune.add_argument("--failed", action="store_true", help="only records of failures")
    prune.add_argument("--all", action="store_true", help="everything")
    prune.add_argument("--dry-run", action="store_true", help="only count them")


def _add(
    actions: argparse._SubParsersAction[argparse.ArgumentParser], name: str, text: str
) -> argparse.ArgumentParser:
    parser = add_action(actions, name, text)
    add_store_file(parser, "the store's file")
    return parser


def _age(text: str) -> float:
    unit = _UNITS_S.get(text[-1:])
    with contextlib.suppress(ValueError):
        seconds = float(text if unit is None else text[:-1]) * (unit or 1)
        if 0 <= seconds < float("inf"):
            return seconds
    raise argparse.ArgumentTypeError(
        f"must be an age, such as 90s, 30m, 12h, 7d or 4w, got {text!r}"
    )


def run(args: argparse.Namespace) -> None:
    """Runs the action `args.action`."""
    path = default_path() if args.store is None else args.store
    if args.action != "import" and not path.exists():
        raise StoreError(
            f"there is no store at {path}; measure a module or run "
            "`hloenv store import` to create it, or give another path with --store"
        )
    with Store(path) as store:
        _ACTIONS[args.action](store, args)


def _info(store: Store, args: argparse.Namespace) -> None:
    info = store.info()
    if args.json:
        totals = {
            name: getattr(info, name)
            for name in ("records", "failures", "oldest", "newest")
        }
        output.print_json({**asdict(info), **totals})
    else:
        _print_info(info)


def _print_info(info: StoreInfo) -> None:
    output.print_line(info.path)
    output.print_line(
        f"{output.format_count(info.records)} records, "
        f"{output.format_count(info.failures)} of them failures, "
        f"{output.format_quantity(info.size_bytes, 'B')}, schema {info.schema_version}"
    )
    if not info.counts:
        return
    output.print_line()
    numbers = ("records", "failures")
    output.print_table(
        ("kind", "machine", *numbers, "oldest", "newest"),
        [
            (
                count.kind,
                count.machine,
                output.format_count(count.records),
                output.format_count(count.failures),
                _local_time(count.oldest),
                _local_time(count.newest),
            )
            for count in info.counts
        ],
        right=numbers,
    )


def _local_time(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds))


def _export(store: Store, args: argparse.Namespace) -> None:
    with output.progress(f"exporting {store.path}", is_shown=not args.json):
        count = store.export(args.file)
    if args.json:
        output.print_json({"path": args.file, "records": count})
    else:
        output.print_line(f"{args.file}: {output.format_count(count)} records")


def _import(store: Store, args: argparse.Namespace) -> None:
    with output.progress(f"importing {args.file}", is_shown=not args.json):
        counts = store.import_(args.file)
    if args.json:
        output.print_json({"path": args.file, **counts._asdict()})
    else:
        output.print_line(
            f"{args.file}: {output.format_count(counts.added)} records added, "
            f"{output.format_count(counts.replaced)} replaced by newer ones, "
            f"{output.format_count(counts.unchanged)} unchanged"
        )


def _prune(store: Store, args: argparse.Namespace) -> None:
    values = (args.kind, args.machine, args.older_than)
    if args.all == (args.failed or any(value is not None for value in values)):
        raise StoreError(
            "the records to remove are not clear; give either conditions (--kind, "
            "--machine, --older-than, --failed; all must hold) or --all"
        )
    count = store.prune(
        kind=args.kind,
        machine=args.machine,
        older_than_s=args.older_than,
        failed_only=args.failed,
        all_=args.all,
        dry_run=args.dry_run,
    )
    if args.json:
        output.print_json({"records": count, "dry_run": args.dry_run})
    else:
        done = "would be removed" if args.dry_run else "removed"
        output.print_line(f"{output.format_count(count)} records {done}")


def _repair(store: Store, args: argparse.Namespace) -> None:
    count = store.repair()
    if args.json:
        output.print_json({"records": count})
    else:
        output.print_line(f"{output.format_count(count)} damaged records removed")


_ACTIONS = {
    "info": _info,
    "export": _export,
    "import": _import,
    "prune": _prune,
    "repair": _repair,
}
