# SPDX-License-Identifier: Apache-2.0
"""What the reports share: options, stored rows, child processes, pages."""

from __future__ import annotations

import argparse
import contextlib
import datetime
import hashlib
import json
import math
import os
import random
import shlex
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

from hloenv._plugins import attribute_of_file
from hloenv.bench.entries import entry_point
from hloenv.bench.statistics import clustered_interval
from hloenv.bench.version import commit_of, git_output, source_root
from hloenv.dataset.reader import Record
from hloenv.runtime.machine import this_machine

Row = dict[str, Any]


def parser_of(description: str | None) -> argparse.ArgumentParser:
    """A parser with the option --doc, the page to write.

    Args:
        description: of the script: its docstring.
    """
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--doc", type=Path, metavar="FILE.md", help="the page to write")
    return parser


def add_dataset(parser: argparse.ArgumentParser, split: str) -> None:
    """The options --split, --extent and --seed: programs, and those that are drawn.

    Args:
        parser: that gets them.
        split: the default.
    """
    parser.add_argument("--split", default=split, help="of the dataset")
    parser.add_argument("--extent", default="real", help="small or real")
    parser.add_argument("--seed", type=int, default=0, help="of what is drawn")


def add_timing(parser: argparse.ArgumentParser, seconds: float, rows: str) -> None:
    """The options --match, --cores, --seconds and --rows.

    Args:
        parser: that gets them.
        seconds: of each timing by default.
        rows: the file of rows, by default.
    """
    parser.add_argument("--match", default="", help="only what has this in its name")
    parser.add_argument("--cores", type=int, default=1, help="that each may use")
    parser.add_argument("--seconds", type=float, default=seconds, help="of each timing")
    parser.add_argument("--rows", type=Path, default=Path(rows))


class Rows:
    """Rows in a file of JSON lines: a repeated run finds those of the run before."""

    def __init__(self, path: Path, *key: str) -> None:
        """Reads the file, if it exists; of rows with the same key, the last counts.

        Args:
            path: of the file. Lines that an interrupted run has not finished are
                skipped.
            key: the columns that tell the rows apart.
        """
        path.parent.mkdir(parents=True, exist_ok=True)
        self._path, self._key = path, key
        self._rows = {self._key_of(row): row for row in read_lines(path)}
        self._own: set[tuple[Any, ...]] = set()

    def _key_of(self, row: Row) -> tuple[Any, ...]:
        return tuple(row.get(column) for column in self._key)

    def get(self, *key: Any) -> Row | None:
        """The row with these values of the key's columns.

        None too for an error of an earlier run, such as a timeout beside other work:
        it is tried again.
        """
        row = self._rows.get(key)
        is_retried = row is not None and row.get("error") and key not in self._own
        return None if is_retried else row

    def add(self, row: Row) -> None:
        """Appends a row to the file; the row gets the time as "measured_at"."""
        row["measured_at"] = _now().isoformat(timespec="seconds")
        key = self._key_of(row)
        self._rows[key] = row
        self._own.add(key)
        append_line(self._path, row)

    def get_or_add(self, columns: Row, measure: Callable[[], Row]) -> Row:
        """The row with the key of some columns; prints it.

        Args:
            columns: of the row, those of the key among them.
            measure: gives its other columns, where there is no such row yet.
        """
        row = self.get(*self._key_of(columns))
        if row is None:
            row = columns | measure()
            self.add(row)
        print(json.dumps(row), flush=True)
        return row

    def all(self) -> list[Row]:
        """All rows, the oldest first."""
        return list(self._rows.values())


def read_lines(path: Path) -> list[Row]:
    """The rows of a file of JSON lines, without damaged ones; none if it is absent."""
    rows = []
    for line in path.read_text().splitlines() if path.exists() else []:
        with contextlib.suppress(ValueError):
            row = json.loads(line)
            if isinstance(row, dict):
                rows.append(row)
    return rows


def append_line(path: Path, row: Row) -> None:
    """Appends a row as a line that is on disk when this returns."""
    # An earlier line that was not finished must not eat this one.
    with path.open("a") as file:
        file.write(f"\n{json.dumps(row)}\n")
        file.flush()
        os.fsync(file.fileno())


# What rows of reports are measured by, under the repository's root.
_SOURCES = ("csrc", "dataset", "python", "scripts")
_WORDS = "scripts/reports/profiles.toml"  # on which no row depends
_PACKAGES = ("jax", "jaxlib", "numpy", "tensorflow-cpu", "torch")


def version_of_rows(**settings: object) -> str:
    """Of rows that may be reused: sources, versions of packages, and the machine.

    Args:
        settings: what else the rows depend on, such as seconds of a timing.
    """
    root = source_root()
    digest = hashlib.sha256()
    words = ["ls-files", "-z", "--cached", "--others", "--exclude-standard", "--"]
    found = git_output(root, *words, *_SOURCES).split("\0")
    for name in sorted(filter(None, found)):
        path = root / name
        if path.is_file() and name != _WORDS:
            digest.update(f"{name}\n".encode() + path.read_bytes())
    for package in _PACKAGES:
        with contextlib.suppress(PackageNotFoundError):
            digest.update(f"{package} {version(package)}\n".encode())
    digest.update(json.dumps(settings, sort_keys=True).encode())
    return f"{digest.hexdigest()[:16]} {this_machine().id}"


def mean_by_entry_point(
    rows: Iterable[tuple[str, str, float]],
) -> tuple[float, float, float, int]:
    """Geometric mean of the means of entry points, its interval, and their number.

    Args:
        rows: repository, entry point and speed-up of each program.

    Returns:
        The mean, the ends of its 95 % interval by repository, the number of entry
        points.
    """
    units: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for repository, point, speedup in rows:
        units[repository][point].append(math.log(speedup))
    clusters = [
        np.array([np.mean(logs) for logs in points.values()])
        for points in units.values()
    ]
    values = np.concatenate(clusters)
    low, high = clustered_interval(clusters)
    return math.exp(values.mean()), low, high, len(values)


def drawn_by_entry_point(records: Iterable[Record], seed: int) -> list[Record]:
    """One program of each entry point, drawn at random; by name of the entry point."""
    points: dict[str, list[Record]] = defaultdict(list)
    for record in records:
        points[entry_point(record.source, record.name)].append(record)
    generator = random.Random(seed)
    return [generator.choice(points[point]) for point in sorted(points)]


def interval_text(low: float, high: float) -> str:
    """The interval in words; "-" where one repository gives none."""
    return "-" if math.isnan(low) else f"{low:.3f} to {high:.3f}"


def run_again(words: Sequence[str], *, num_cores: int, timeout_s: float) -> Row:
    """Runs this script in a child process on its own cores.

    Args:
        words: its arguments.
        num_cores: how many cores it may use.
        timeout_s: after which it is killed.

    Returns:
        The JSON of its last line; the reason as "error" if there is none.
    """
    cores = sorted(os.sched_getaffinity(0))[-num_cores:]
    try:
        child = subprocess.run(
            [sys.executable, sys.argv[0], *words],
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
            preexec_fn=lambda: os.sched_setaffinity(0, cores),
        )
    except subprocess.TimeoutExpired:
        return {"error": f"not done in {timeout_s:g} s"}
    lines = child.stdout.splitlines()
    if child.returncode != 0 or not lines:
        last = (child.stderr.strip().splitlines() or ["no message"])[-1]
        return {"error": f"exit code {child.returncode}: {last[:200]}"}
    row: Row = json.loads(lines[-1])
    return row


def rows_of_programs(
    records: Iterable[Record],
    known: Rows,
    words: Sequence[str],
    *,
    timeout_s: float,
    version: str,
    cores: int,
    columns: Row | None = None,
) -> list[Row]:
    """A row of each program, by this script with `--one` where there is none yet.

    Args:
        records: the programs.
        known: rows by fingerprint, version, cores and `columns`; new ones are added.
        words: the script's other arguments.
        timeout_s: of each program.
        version: of `version_of_rows`.
        cores: that each may use.
        columns: others of the rows.
    """
    rows = []
    for record in records:
        found = {
            "name": f"{record.source}/{record.name}",
            "fingerprint": record.fingerprint,
            "repository": record.repository,
            "entry_point": entry_point(record.source, record.name),
            "version": version,
            "cores": cores,
            **(columns or {}),
        }
        run = partial(
            run_again,
            [*words, "--one", record.fingerprint],
            num_cores=cores,
            timeout_s=timeout_s,
        )
        rows.append(known.get_or_add(found, run))
    return rows


def head(title: str, rows: Iterable[Row] = ()) -> list[str]:
    """The first lines of a page: its title, and what its figures come from.

    Args:
        title: of the page.
        rows: of `Rows` that it shows: the page says when they were measured.
    """
    script = f"scripts/reports/{Path(sys.argv[0]).name}"
    times = sorted(row["measured_at"] for row in rows if "measured_at" in row)
    measured = []
    if times:
        first, last = (each[:16].replace("T", " ") for each in (times[0], times[-1]))
        measured = [f"* rows measured: {first} to {last} UTC"]
    return [
        f"# {title}",
        "",
        f"Written by `{script}`; do not edit.",
        "",
        f"* command: `{shlex.join(['python', script, *sys.argv[1:]])}`",
        f"* date: {_now().date()}",
        *measured,
        f"* machine: {this_machine().cpu}, {os.cpu_count()} cores",
        f"* sources: commit {commit_of(source_root())}",
    ]


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)


def from_example(file: str, name: str) -> Any:
    """What a file of scripts/examples calls `name`."""
    folder = Path(__file__).parents[1] / "examples"
    if str(folder) not in sys.path:  # they import each other
        sys.path.insert(0, str(folder))
    return attribute_of_file(str(folder / file), name)


def decisions_of(function: Any) -> dict[str, int]:
    """What a function of hloenv.jit uses: rewrites by rule, options of the compiler.

    Args:
        function: that has been called with one signature.
    """
    used = function.decided[0] if function.decided else None
    parts = [part for part in (used, used and used.then) if part is not None]
    found = {rule: n for part in parts for rule, n in sorted(part.accepted.items())}
    left_out = [part.left_out for part in parts if part.left_out]
    found |= {f"{each} not in the library": 1 for each in left_out}
    return found | (
        {"compiled by the wheel": 1} if used and used.engine == "wheel" else {}
    )


def count_of(number: int, word: str) -> str:
    """Such as "one core" and "2 cores"."""
    return f"one {word}" if number == 1 else f"{number} {word}s"


def write_page(lines: Iterable[str], path: Path | None) -> None:
    """Prints a page, and writes it to the file if there is one."""
    text = "\n".join(lines) + "\n"
    print(text)
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def with_part(text: str, name: str, lines: Iterable[str]) -> str:
    """A page with other lines between the marks of a part.

    Raises:
        ValueError: it has no such marks.
    """
    begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    before, has_begin, rest = text.partition(begin)
    _, has_end, after = rest.partition(end)
    if not has_begin or not has_end:
        raise ValueError(f"the page needs the lines {begin} and {end}")
    return "\n".join([f"{before}{begin}", *lines, f"{end}{after}"])
