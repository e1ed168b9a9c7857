# SPDX-License-Identifier: Apache-2.0
"""Results of checks as one small Parquet file that is committed to the repository.

A row of the file holds all cells with the same module, kind of check, version and
outcome. Texts of violations and skips, and the numbers of comparisons, are kept
exactly. Clean and skipped cells of a row share the oldest of their times, so that none
looks newer than it is; broken cells, and cells that were checked again, keep their own
time.
"""

from __future__ import annotations

import itertools
import json
import math
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from .._files import replacing
from .._optional import needed_by
from .results import Row, without_collector

_FORMAT = 1
_METADATA = b"hloenv.invariants"
_LEVEL = 12  # of zstd

_Cell = tuple[int, int, int]  # code, alternatives, checks
_Group = tuple[str, str, str, str, str, str, bool, float]


def write(path: Path, rows: Iterable[Row]) -> None:
    """Writes an archive atomically.

    Args:
        path: replaced if it exists.
        rows: one for each cell.

    Raises:
        ImportError: pyarrow is not installed.
    """
    pa = _pyarrow()
    rows = list(rows)
    variants = sorted({row.variant for row in rows})
    names = sorted({name for row in rows for name in row.passes.split(",")})
    code_of = _Codes(variants, names)
    groups: dict[_Group, list[_Cell]] = defaultdict(list)
    oldest: dict[_Group, float] = {}
    for row in rows:
        is_exact = bool(row.violations) or row.is_again
        group = (
            *(row.kind, row.fingerprint, row.module, row.version, row.tensorflow),
            _outcome(row),
            row.is_again,
            row.time if is_exact else 0.0,
        )
        cell = code_of(row.variant, row.passes), row.num_alternatives, row.num_checks
        groups[group].append(cell)
        time = row.time if is_exact else float(math.floor(row.time))
        oldest[group] = min(oldest.get(group, time), time)
    # Sorted rows compress best.
    order = sorted(groups, key=lambda g: (g[0], g[3], g[5], len(groups[g]), g[1], g[7]))
    cells = [sorted(groups[group]) for group in order]
    flat = np.array(list(itertools.chain(*cells)), np.int64).reshape(-1, 3)
    ends = np.cumsum([0, *map(len, cells)])

    def of_cells(column: int) -> Any:
        values = pa.array(flat[:, column].astype(np.int32 if column else np.int64))
        return pa.ListArray.from_arrays(pa.array(ends, pa.int32()), values)

    texts = ("kind", "fingerprint", "module", "version", "tensorflow", "outcome")
    columns = {
        name: pa.array([group[i] for group in order], pa.string())
        for i, name in enumerate(texts)
    }
    columns["is_again"] = pa.array([group[6] for group in order], pa.bool_())
    columns["time"] = pa.array([oldest[group] for group in order], pa.float64())
    columns |= {name: of_cells(i) for i, name in enumerate(_OF_CELLS)}
    described = {"format": _FORMAT, "variants": variants, "passes": names}
    table = pa.table(columns).replace_schema_metadata(
        {_METADATA: json.dumps(described).encode()}
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as draft:
        pa.parquet.write_table(
            table,
            draft,
            compression="zstd",
            compression_level=_LEVEL,
            use_dictionary=[*texts],
            row_group_size=1 << 30,
        )


_OF_CELLS = ("cells", "alternatives", "checks")


def read(path: Path) -> list[Row]:
    """Returns the rows of an archive.

    Raises:
        ImportError: pyarrow is not installed.
        OSError: the file cannot be read.
        ValueError: it is not an archive.
    """
    pa = _pyarrow()
    try:
        with without_collector():
            return _rows(pa.parquet.read_table(path))
    except (pa.ArrowException, KeyError, IndexError, TypeError) as error:
        raise ValueError(
            f"{path} is not an archive of results ({error}): restore it from git, "
            "or delete it"
        ) from error


def _rows(table: Any) -> list[Row]:
    described = json.loads((table.schema.metadata or {})[_METADATA])
    if described["format"] != _FORMAT:
        raise TypeError(f"format {described['format']}, this reads {_FORMAT}")
    name_of = _Codes(described["variants"], described["passes"]).name
    lists = [table[name].combine_chunks() for name in _OF_CELLS]
    codes, alternatives, checks = (each.flatten().to_pylist() for each in lists)
    names = {code: name_of(code) for code in set(codes)}
    ends = lists[0].offsets.to_pylist()
    columns = [
        table[name].to_pylist()
        for name in (
            *("kind", "fingerprint", "module", "version", "tensorflow", "outcome"),
            *("is_again", "time"),
        )
    ]
    rows: list[Row] = []
    new = Row.__new__
    outcomes: dict[str, tuple[Any, ...]] = {}
    for i, group in enumerate(zip(*columns, strict=True)):
        kind, fingerprint, module, version, tensorflow, outcome, is_again, time = group
        if outcome not in outcomes:
            violations, skipped, whole = json.loads(outcome) if outcome else ((),) * 3
            whole = tuple((name, why) for name, why in whole)
            outcomes[outcome] = tuple(violations), dict(skipped), whole
        violations, skipped, whole = outcomes[outcome]
        first = Row(
            *(kind, fingerprint, module, "", "", version),
            violations=violations,
            skipped=skipped,
            whole=whole,
            time=time,
            is_again=is_again,
            tensorflow=tensorflow,
        )
        for j in range(ends[i], ends[i + 1]):
            # Four times as fast as `dataclasses.replace`.
            row = new(Row)
            fields = row.__dict__
            fields.update(first.__dict__)
            fields["variant"], fields["passes"] = names[codes[j]]
            fields["num_alternatives"] = alternatives[j]
            fields["num_checks"] = checks[j]
            rows.append(row)
    return rows


class _Codes:
    """Assigns a number to each (variant, passes) pair."""

    def __init__(self, variants: list[str], names: list[str]) -> None:
        self._variants = variants
        self._names = names
        self._number_of = {name: i for i, name in enumerate(names, 1)}
        self._variant_of = {name: i for i, name in enumerate(variants)}

    def __call__(self, variant: str, passes: str) -> int:
        number = 0
        for name in passes.split(","):
            number = number * (len(self._names) + 1) + self._number_of[name]
        return number * len(self._variants) + self._variant_of[variant]

    def name(self, code: int) -> tuple[str, str]:
        """Returns the variant and the passes of a number."""
        number, variant = divmod(code, len(self._variants))
        names = []
        while number:
            number, name = divmod(number, len(self._names) + 1)
            names.append(self._names[name - 1])
        return self._variants[variant], ",".join(reversed(names))


def _outcome(row: Row) -> str:
    """Violations, skips and indivisible passes as JSON; "" if there are none."""
    if not (row.violations or row.skipped or row.whole):
        return ""
    return json.dumps([row.violations, row.skipped, row.whole], separators=(",", ":"))


def _pyarrow() -> Any:
    with needed_by("the archive of results", "pyarrow", "store"):
        import pyarrow
        import pyarrow.parquet
    return pyarrow
