# SPDX-License-Identifier: Apache-2.0
"""hloenv dataset: the modules that ship with the package."""

from __future__ import annotations

import argparse
import statistics
from collections import Counter
from pathlib import Path
from typing import Any

from ..dataset import reader
from ..errors import DatasetError
from . import output
from .arguments import add_action

DESCRIPTION = (
    "Counts, shows and checks the dataset: real modules of public JAX projects, one "
    "Parquet file per split, read from $HLOENV_DATASET or from the package."
)
EXAMPLES = """\
examples:
  hloenv dataset stats
  hloenv dataset show                      # every module, one line each
  hloenv dataset show --source jax-md --min-instructions 500
  hloenv dataset show 58604038 --text > module.hlo
  hloenv dataset show --extent real --split train
  hloenv dataset verify --split test
"""
_SIZES = (1, 10, 50, 200, 500, 1000, 2000, 5000, 10000)


def add_parser(parser: argparse.ArgumentParser) -> None:
    """Declares the arguments of each action."""
    actions = parser.add_subparsers(metavar="ACTION", dest="action", required=True)
    _add(actions, "stats", "count modules by source, split and size")
    show = _add(actions, "show", "list modules, or show one of them")
    show.add_argument(
        "fingerprint",
        nargs="?",
        metavar="FINGERPRINT",
        help="first digits of a fingerprint",
    )
    show.add_argument("--text", action="store_true", help="print the module's HLO text")
    show.add_argument("--source", metavar="NAME", help="only modules of this source")
    show.add_argument("--family", metavar="NAME", help="only modules of this family")
    show.add_argument("--min-instructions", metavar="N", type=int, default=0)
    show.add_argument("--max-instructions", metavar="N", type=int)
    _add(actions, "verify", "check every module against its recorded facts")


def _add(
    actions: argparse._SubParsersAction[argparse.ArgumentParser], name: str, text: str
) -> argparse.ArgumentParser:
    parser = add_action(actions, name, text)
    parser.add_argument(
        "--split",
        choices=(*reader.SPLITS, reader.UNSEEN, "all"),
        default="all",
        help="split to read (default all: every split but unseen)",
    )
    parser.add_argument(
        "--extent",
        choices=(*reader.EXTENTS, "all"),
        default="small",
        help="array extents: small (default), or those of real runs",
    )
    parser.add_argument(
        "--path", metavar="DIR", type=Path, help="folder of the Parquet files"
    )
    return parser


def run(args: argparse.Namespace) -> None:
    """Runs the action `args.action`."""
    _ACTIONS[args.action](
        reader.load(args.split, extent=args.extent, path=args.path), args
    )


def _stats(records: reader.Dataset, args: argparse.Namespace) -> None:
    counts = sorted(record.instruction_count for record in records)
    groups = {
        name: dict(sorted(Counter(getattr(r, name) for r in records).items()))
        for name in ("split", "family", "licence", "source")
    }
    at_least = {size: sum(n >= size for n in counts) for size in _SIZES}
    found: dict[str, Any] = {
        "modules": len(records),
        "sources": len(groups["source"]),
        "repositories": len({record.repository for record in records}),
        "instructions": sum(counts),
        "median_instructions": statistics.median(counts) if counts else 0,
        "max_instructions": max(counts, default=0),
        "train_steps": sum(r.name.endswith("train_step") for r in records),
        "at_least_instructions": {str(size): n for size, n in at_least.items()},
        **{f"by_{name}": group for name, group in groups.items()},
    }
    if args.json:
        output.print_json(found)
        return
    output.print_line(
        f"{output.format_count(len(records))} modules of "
        f"{found['sources']} sources in {found['repositories']} repositories, "
        f"{output.format_count(found['instructions'])} instructions "
        f"(median {output.format_count(found['median_instructions'])}, "
        f"most {output.format_count(found['max_instructions'])}), "
        f"{found['train_steps']} complete training steps"
    )
    output.print_line()
    output.print_table(
        ("instructions", "modules"),
        [(f">= {size:,}", output.format_count(n)) for size, n in at_least.items()],
        right=("instructions", "modules"),
    )
    for name, group in groups.items():
        output.print_line()
        rows = [(key, output.format_count(n)) for key, n in group.items()]
        output.print_table((name, "modules"), rows, right=("modules",))


def _show(records: reader.Dataset, args: argparse.Namespace) -> None:
    if args.fingerprint is not None:
        _show_one(records.find(args.fingerprint), args)
        return
    if args.text:
        raise DatasetError(
            "--text was given without a fingerprint; name one module: "
            "hloenv dataset show FINGERPRINT --text"
        )
    chosen = records.select(
        source=args.source,
        family=args.family,
        min_instructions=args.min_instructions,
        max_instructions=args.max_instructions,
    )
    for name in ("source", "family"):
        known = sorted({getattr(record, name) for record in records})
        if getattr(args, name) not in (None, *known):
            raise DatasetError(
                f"no module has {name} {getattr(args, name)!r}; known: "
                f"{', '.join(known)}"
            )
    if args.json:
        output.print_json({"modules": [_described(record) for record in chosen]})
        return
    if not len(chosen):
        output.print_line("no modules match")
        return
    output.print_table(
        ("fingerprint", "split", "source", "instructions", "flops", "name"),
        [
            (
                record.fingerprint[:8],
                record.split,
                record.source,
                output.format_count(record.instruction_count),
                output.format_quantity(record.flops),
                record.name,
            )
            for record in chosen
        ],
        right=("instructions", "flops"),
    )


def _show_one(record: reader.Record, args: argparse.Namespace) -> None:
    if args.text:
        text = record.text
        if args.json:
            output.print_json({**_described(record), "text": text})
        else:
            output.print_line(text.rstrip())
        return
    described = _described(record)
    if args.json:
        output.print_json(described)
        return
    ranges = described.pop("input_ranges")
    described.pop("input_distributions")
    opcodes = described.pop("opcode_counts")
    rows = [(name.replace("_", " "), str(value)) for name, value in described.items()]
    output.print_table(("", ""), rows)
    for each in ranges:
        output.print_line(f"input {each['parameter']}: {each['low']} to {each['high']}")
    for drawn in record.input_distributions:
        low, wide = drawn.location, drawn.scale
        drawn_from = f"{drawn.distribution}({low:g}, {wide:g})"
        output.print_line(f"input {drawn.parameter}: {drawn_from}")
    output.print_line()
    often = sorted(opcodes.items(), key=lambda pair: (-pair[1], pair[0]))
    counted = [(name, output.format_count(n)) for name, n in often]
    output.print_table(("opcode", "instructions"), counted, right=("instructions",))


def _described(record: reader.Record) -> dict[str, Any]:
    names = [name for name in record.__dataclass_fields__ if not name.startswith("_")]
    values = {name: getattr(record, name) for name in names}
    values["input_ranges"] = [vars(each) for each in record.input_ranges]
    distributions = record.input_distributions
    values["input_distributions"] = [each._asdict() for each in distributions]
    return values


def _verify(records: reader.Dataset, args: argparse.Namespace) -> None:
    problems = []
    by_repository: dict[str, set[str]] = {}
    seen: dict[str, reader.Record] = {}
    with output.track(("modules", len(records)), is_shown=not args.json) as (step,):
        for record in records:
            for problem in reader.check(record):
                problems.append((record, problem))
            if record.fingerprint in seen:
                other = seen[record.fingerprint]
                problems.append((record, f"duplicate of {other.source}: {other.name}"))
            seen[record.fingerprint] = record
            by_repository.setdefault(record.repository, set()).add(record.split)
            step()
    torn = sorted(name for name, splits in by_repository.items() if len(splits) > 1)
    if args.json:
        output.print_json(
            {
                "modules": len(records),
                "problems": [
                    {"source": r.source, "name": r.name, "problem": problem}
                    for r, problem in problems
                ],
                "repositories_in_several_splits": torn,
            }
        )
    for record, problem in [] if args.json else problems:
        output.print_line(f"{record.source}: {record.name}: {problem}")
    if problems or torn:
        raise DatasetError(
            f"{len(problems)} problems in {len(records)} modules; repositories in "
            f"several splits: {', '.join(torn) or 'none'}"
        )
    if not args.json:
        output.print_line(
            f"{output.format_count(len(records))} modules: all match their records, "
            "no duplicates, no repository in two splits"
        )


_ACTIONS = {"stats": _stats, "show": _show, "verify": _verify}
