# SPDX-License-Identifier: Apache-2.0
"""Results of invariant checks, in files shared by any number of runs.

Each concurrent run (shard) appends one JSON line per cell to its own file; archives
(`archive.py`) carry results between machines. Lines that are not rows are counted as
damaged and skipped.

Of several rows of one cell, one is selected:

* Rows of the current code precede rows of other versions, of which the newest is
  selected.
* Within one version a violation precedes newer clean rows: the checks are seeded, so an
  intermittent violation is one too. Only a later row of a repeated check
  (`Row.is_again`) replaces it.
* Otherwise the newest is selected; rows that ran out of time or memory come last.
"""

from __future__ import annotations

import contextlib
import gc
import json
import math
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from .._native import core
from .versions import CodeVersions

# Kind of check, fingerprint, variant, passes.
Key = tuple[str, str, str, str]

# Prefixes of skip reasons that depend on the machine or the limits.
LIMITS = ("timeout", "memory limit")


@dataclass(frozen=True)
class Row:
    """The result of one cell.

    Attributes:
        kind: "structure", "values", "compiled" or "default".
        fingerprint: fingerprint of the module.
        module: its name.
        variant: variant of the module.
        passes: names joined by ",".
        version: version of the checked code, see `CodeVersions`.
        num_alternatives: alternatives of the capture.
        num_checks: number of comparisons.
        violations: messages of the broken invariants.
        skipped: number of skipped checks by reason.
        whole: indivisible passes, with the reason.
        time: seconds since 1970; 0 if unknown.
        is_again: whether the row is from a repeated check.
        tensorflow: version of the TensorFlow whose XLA was checked; "" if unknown.
    """

    kind: str
    fingerprint: str
    module: str
    variant: str
    passes: str
    version: str
    num_alternatives: int = 0
    num_checks: int = 0
    violations: tuple[str, ...] = ()
    skipped: dict[str, int] = field(default_factory=dict)
    whole: tuple[tuple[str, str], ...] = ()
    time: float = 0.0
    is_again: bool = False
    tensorflow: str = ""

    @property
    def key(self) -> Key:
        """The cell of the row."""
        return self.kind, self.fingerprint, self.variant, self.passes

    @property
    def state(self) -> str:
        """The outcome: "failed", "checked", "partly" or "skipped"."""
        if self.violations:
            return "failed"
        if not self.num_checks:
            return "skipped"
        return "partly" if self.skipped else "checked"

    @property
    def is_limited(self) -> bool:
        """Whether time or memory ran out."""
        return any(reason.startswith(LIMITS) for reason in self.skipped)

    def to_json(self) -> str:
        """One line."""
        data = {key: value for key, value in asdict(self).items() if value}
        return json.dumps(data, separators=(",", ":"))

    @classmethod
    def from_json(cls, line: str) -> Row:
        """Reads what `to_json` wrote.

        Raises:
            ValueError: the line is not a row.
        """
        try:
            data: dict[str, Any] = json.loads(line)
            data["violations"] = tuple(data.get("violations", ()))
            data["whole"] = tuple((name, why) for name, why in data.get("whole", ()))
            row = cls(**data)
            is_sound = row._is_sound()
        except (AttributeError, RecursionError, TypeError) as error:
            raise ValueError(f"not a row: {error}") from error
        if not is_sound:
            raise ValueError(f"not a row: {line[:80]!r}")
        return row

    def _is_sound(self) -> bool:
        """Whether all fields have the right types."""
        texts = (*self.key, self.module, self.version, self.tensorflow)
        texts = (*texts, *self.violations, *self.skipped, *sum(self.whole, ()))
        counts = (self.num_alternatives, self.num_checks, *self.skipped.values())
        return (
            all(isinstance(each, str) for each in texts)
            and all(isinstance(each, int) for each in counts)
            and isinstance(self.is_again, bool)
            and isinstance(self.time, (int, float))
            and math.isfinite(self.time)
        )


class Results:
    """The rows of a folder and of archives, and a file to append to.

    Attributes:
        versions: of the current code.
        rows: the selected row of each cell, of the requested versions.
        num_damaged: number of lines that are not rows.
    """

    def __init__(
        self,
        folder: Path,
        versions: CodeVersions,
        accepted: Collection[str] = (),
        *,
        archived: Iterable[Row] = (),
    ) -> None:
        """Reads all files.

        Args:
            folder: created if it does not exist.
            versions: of the current code.
            accepted: other versions whose rows are accepted, if the TensorFlow version
                is the same.
            archived: rows from archives.
        """
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self.versions = versions
        self._accepted = frozenset(accepted)
        self._tensorflow = ("", core.tensorflow_version)
        self.num_damaged = 0
        self.rows: dict[Key, Row] = {}
        # All rows of cells with several.
        self._several: dict[Key, list[Row]] = {}
        # The newest row of cells that only have rows of other versions.
        self._others: dict[Key, Row] = {}
        with without_collector():
            for row in archived:
                self._take(row)
            for path in sorted(folder.glob("*.jsonl")):
                for row in self._read(path):
                    self._take(row)

    def _take(self, row: Row) -> None:
        key = row.key
        current = self.versions.of(row.kind, row.passes)
        is_wanted = current and (row.version in {current, *self._accepted})
        if not is_wanted or row.tensorflow not in self._tensorflow:
            other = self._others.setdefault(key, row)
            if _age(row) > _age(other):
                self._others[key] = row
            return
        rows = self._several.get(key)
        if rows is None and key not in self.rows:
            self.rows[key] = row
            return
        if rows is None:
            rows = self._several[key] = [self.rows[key]]
        if row not in rows:
            rows.append(row)
        self.rows[key] = _winner(rows, current)

    def add(self, rows: Iterable[Row], name: str) -> None:
        """Appends rows to the file of this name."""
        with (self._folder / f"{name}.jsonl").open("ab+") as file:
            # A killed run may have left an incomplete line.
            file.seek(max(0, file.tell() - 1))
            if file.read(1) not in (b"", b"\n"):
                file.write(b"\n")
            for row in rows:
                self._take(row)
                file.write(row.to_json().encode() + b"\n")

    def look_again(self, is_wanted: Callable[[Row], bool]) -> None:
        """Removes rows from `rows`, so that their cells are checked again."""
        for key, row in list(self.rows.items()):
            if is_wanted(row):
                self._several.setdefault(key, [row])
                del self.rows[key]

    def stamped(self, row: Row) -> Row:
        """Returns the row with a time later than all other rows of the cell."""
        known = self._several.get(row.key) or [
            rows[row.key] for rows in (self.rows, self._others) if row.key in rows
        ]
        latest = max((each.time for each in known), default=0.0)
        now = max(time.time(), math.nextafter(latest, math.inf))
        is_again = row.key in self._several and row.key not in self.rows
        return replace(row, time=now, is_again=is_again)

    def everything(self) -> Iterator[Row]:
        """Yields one row of each known cell, including those of other versions."""
        yield from self.rows.values()
        for key, rows in self._several.items():
            if key not in self.rows:
                yield _winner(rows, self.versions.of(key[0], key[3]))
        for key, row in self._others.items():
            if key not in self.rows and key not in self._several:
                yield row

    def __contains__(self, key: Key) -> bool:
        return key in self.rows

    def _read(self, path: Path) -> Iterator[Row]:
        for line in path.read_bytes().splitlines():
            try:
                row = Row.from_json(line.decode())
            except ValueError:
                self.num_damaged += bool(line)
                continue
            yield row


@contextlib.contextmanager
def without_collector() -> Iterator[None]:
    """Disables garbage collection: scanning a million acyclic rows takes seconds."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _age(row: Row) -> tuple[float, str]:
    return row.time, row.version


def _winner(rows: Sequence[Row], version: str) -> Row:
    """Selects the row of a cell; `version` is that of the current code."""
    of_version: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        of_version[row.version].append(row)
    if version in of_version:
        return _winner_of_version(of_version[version])
    return max(map(_winner_of_version, of_version.values()), key=_age)


def _winner_of_version(rows: Sequence[Row]) -> Row:
    def newest(row: Row) -> tuple[bool, float, str]:
        return not row.is_limited, row.time, row.to_json()

    broken = max((row for row in rows if row.violations), key=newest, default=None)
    if broken is None or any(
        row.is_again and not row.is_limited and row.time > broken.time for row in rows
    ):
        return max(rows, key=newest)
    return broken
