#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Maps XLA's rewrites on the programs of the dataset at real extents.

For each program of the train and validation splits, every rewrite that XLA makes is
rejected alone: its worth is the estimated time without it over the time with it. Large
effects are measured. The cheapest programs of each repository come first.

    python scripts/reports/run_rewrite_map.py --seconds 3600 \
        --doc docs/results/xla_rewrites.md

Results are stored; a repeated run continues.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections import defaultdict
from pathlib import Path

from hloenv import dataset
from hloenv.bench.entries import entry_point
from hloenv.bench.version import commit_of, source_root
from hloenv.dataset import Record
from hloenv.errors import HloEnvError
from hloenv.rewrite_map import (
    MapSettings,
    ProgramMap,
    RewriteRow,
    find_rewrites,
    map_program,
)
from hloenv.rewrite_map.aggregate import aggregate
from hloenv.rewrite_map.known import rules_that_cost, write_known
from hloenv.rewrite_map.reproducer import Reproducer, run_script, write_reproducer
from reporting import append_line, read_lines, version_of_rows
from rewrite_map_page import write_page

_SPLITS = ("train", "validation")


def parse_arguments() -> argparse.Namespace:
    """Parses the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=1e9, help="stop after this")
    parser.add_argument("--program-seconds", type=float, default=240, help="of each")
    parser.add_argument(
        "--measure-s", type=float, default=1.0, help="of one measurement"
    )
    parser.add_argument("--threshold", type=float, default=0.03, help="to measure")
    parser.add_argument(
        "--measure", choices=("all", "costly", "none"), default="all", help="what"
    )
    parser.add_argument(
        "--match",
        action="append",
        default=[],
        metavar="TEXT",
        help="only programs with this text; may be repeated: in this order",
    )
    parser.add_argument(
        "--reproducers", type=int, default=0, help="write so many minimal programs"
    )
    parser.add_argument(
        "--folder",
        type=Path,
        default=Path("docs/results/xla_rewrites"),
        help="of the minimal programs",
    )
    parser.add_argument("--results", type=Path, default=Path("build/rewrite_map.jsonl"))
    parser.add_argument("--store", default="build/rewrite_map.sqlite")
    parser.add_argument(
        "--known", action="store_true", help="write the table of rules that cost"
    )
    parser.add_argument("--note", default="", help="a sentence for the page")
    parser.add_argument("--doc", type=Path, help="write the page to this file")
    return parser.parse_args()


def programs(texts: list[str]) -> list[Record]:
    """The programs, in turns of their repositories, the cheapest of each first.

    Args:
        texts: parts of names, for only the programs with one of them, in this order.
    """
    of_repository: defaultdict[str, list[Record]] = defaultdict(list)
    for split in _SPLITS:
        for record in dataset.load(split, extent="real"):
            of_repository[record.repository].append(record)
    ranked = []
    for records in of_repository.values():
        records.sort(key=lambda each: each.flops)
        ranked += [(rank, record) for rank, record in enumerate(records)]
    ranked.sort(key=lambda each: (each[0], each[1].flops))
    every = [record for _, record in ranked]
    if not texts:
        return every
    chosen = [each for text in texts for each in every if text in name_of(each)]
    return list({each.fingerprint: each for each in chosen}.values())


def name_of(record: Record) -> str:
    """The name of a program on the page."""
    return f"{record.source}/{record.name}"


def map_record(
    record: Record, known: ProgramMap | None, arguments: argparse.Namespace
) -> ProgramMap:
    """Maps one program, or what was left of it."""
    settings = MapSettings(
        seconds=arguments.program_seconds,
        threshold=arguments.threshold,
        measure=arguments.measure,
        measure_s=arguments.measure_s,
        store=arguments.store,
    )
    inputs = None if arguments.measure == "none" else record.inputs()
    found = map_program(
        record.module, settings, program=name_of(record), inputs=inputs, known=known
    )
    found.repository = record.repository
    found.entry_point = entry_point(record.source, record.name)
    found.split = record.split
    return found


def read_results(path: Path) -> dict[str, ProgramMap]:
    """The maps of earlier runs, by program."""
    # The latest map of a program has the rows of the earlier ones; those of other
    # sources, or of another machine, do not count.
    version = version_of_rows()
    own = [line for line in read_lines(path) if line.pop("version", "") == version]
    return {each.program: each for each in map(ProgramMap.from_json, own)}


def add_missing(
    records: list[Record], found: dict[str, ProgramMap], arguments: argparse.Namespace
) -> None:
    """Maps what is missing, then what is left of others, as far as the time allows."""
    end, version = time.monotonic() + arguments.seconds, version_of_rows()
    arguments.results.parent.mkdir(parents=True, exist_ok=True)
    missing = [each for each in records if name_of(each) not in found]
    others = [each for each in records if name_of(each) in found]
    for record in [*missing, *others]:
        name = name_of(record)
        known = found.get(name)
        if time.monotonic() > end:
            return
        if known is not None and _is_done(known, arguments):
            continue
        each = found[name] = map_record(record, known, arguments)
        line = each.to_json() | {"version": version}
        append_line(arguments.results, line)
        print(
            f"{name}: {len(each.rows)} of {each.num_rewrites} rewrites, "
            f"{each.seconds:.0f} s {each.error}",
            file=sys.stderr,
        )


def _is_done(known: ProgramMap, arguments: argparse.Namespace) -> bool:
    """Whether nothing of a program is left to estimate or to measure."""
    if known.error:
        return True
    important = known.costly(arguments.threshold)
    if arguments.measure == "all":
        important = important + known.paying(arguments.threshold)
    is_measured = arguments.measure == "none" or not any(
        math.isnan(row.measured) and not row.error for row in important
    )
    return not known.num_left and is_measured


def write_reproducers(
    records: list[Record], found: dict[str, ProgramMap], arguments: argparse.Namespace
) -> list[Reproducer]:
    """Writes minimal programs of the worst rewrites, one of each rule and class."""
    path = arguments.folder / "reproducers.json"
    known = []
    if path.exists():
        known = [Reproducer.from_json(each) for each in json.loads(path.read_text())]
    if not arguments.reproducers:
        return known
    arguments.folder.mkdir(parents=True, exist_ok=True)
    modules = {name_of(record): record for record in records}
    for program, row in _worst(list(found.values()), arguments.threshold):
        if sum(each.shows_cost for each in known) >= arguments.reproducers:
            break
        if program not in modules or any(
            row.identity.startswith(each.name[-8:]) for each in known
        ):
            continue
        made = _reproducer(modules[program], row, arguments.folder)
        if made is not None:
            known.append(made)
            path.write_text(
                json.dumps([each.to_json() for each in known], indent=1) + "\n"
            )
    return known


def _worst(maps: list[ProgramMap], threshold: float) -> list[tuple[str, RewriteRow]]:
    worst: dict[tuple[str, str, str], tuple[str, RewriteRow]] = {}
    for each in maps:
        for row in each.costly(threshold):
            if math.isnan(row.measured):
                continue
            key = row.pass_name, row.rule, row.shape_class
            if key not in worst or row.best_worth < worst[key][1].best_worth:
                worst[key] = each.program, row
    return sorted(worst.values(), key=lambda each: each[1].best_worth)


def _reproducer(record: Record, row: RewriteRow, folder: Path) -> Reproducer | None:
    module = record.module
    try:
        rewrites = {each.identity: each for each in find_rewrites(module)}
        made = write_reproducer(
            module, rewrites[row.identity], folder, program=name_of(record)
        )
    except (HloEnvError, KeyError) as error:
        print(f"{row.rule} of {name_of(record)}: {error}", file=sys.stderr)
        return None
    if made is not None and not made.shows_cost:
        for file in filter(None, (made.hlo, made.script)):
            (folder / file).unlink()
    elif made is not None:
        run_script(made, folder)
        print(
            f"{made.name}: {made.worth:.3g}, jax {made.jax_worth:.3g}", file=sys.stderr
        )
    return made


def main() -> int:
    """Maps missing programs and writes the page."""
    arguments = parse_arguments()
    commit = str(commit_of(source_root()))  # before any file is written
    records = programs(arguments.match)
    found = read_results(arguments.results)
    add_missing(records, found, arguments)
    reproducers = write_reproducers(records, found, arguments)
    maps = [found[name_of(each)] for each in records if name_of(each) in found]
    if not maps:
        raise SystemExit("nothing was mapped")
    if arguments.known:
        write_known(rules_that_cost(aggregate(maps)))
    text = write_page(maps, reproducers, arguments, commit, len(records))
    print(text)
    if arguments.doc is not None:
        arguments.doc.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
