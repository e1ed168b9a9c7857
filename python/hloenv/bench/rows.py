# SPDX-License-Identifier: Apache-2.0
"""Rows of the raw results: one method on one module."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from .._optional import needed_by


@dataclass(frozen=True)
class Row:
    """The result of one method on one module.

    Attributes:
        module: source and name in the dataset, or folder and file.
        fingerprint: of the module before any pass.
        source: its project.
        repository: URL of the project; intervals are clustered by it.
        entry_point: the program that the module is a function of; the unit of the
            headline.
        family: field of that project, "" if unknown.
        split: dataset split, "" for other modules.
        extent: "small" or "real", as in the dataset.
        method: "SPACE/POLICY" or "SPACE/search:NAME".
        seed: of the method.
        threads: cores that the module ran on.
        same: whether the final module equals that of XLA's default; it is then not
            timed, and the speed-up is 1.
        speedup: XLA's default time over the method's; NaN on error.
        low: lower end of the 95 % interval of `speedup`.
        high: upper end.
        baseline_ns: median of a run with XLA's default.
        median_ns: median of a run with the method.
        instructions: of the final module.
        baseline_instructions: of the final module of XLA's default.
        flops: of the final module, by XLA's cost analysis.
        baseline_flops: the same for XLA's default.
        bytes: read and written, by XLA's cost analysis.
        baseline_bytes: the same for XLA's default.
        compile_ns: time of XLA's backend.
        decide_s: seconds for all decisions; for a search, until its end.
        alternatives: number of decided alternatives.
        accepted: number of these that did not keep the original.
        worst_error: largest difference of the outputs from the original's, relative to
            the tolerance; NaN if unknown.
        estimates: number of estimates of a search.
        measurements: number of measurements of a search, without the final one.
        curve: of a search: (estimates, best estimated speed-up so far) at each rise.
        changes: how often each kind of decision differs from XLA's own.
        error: the error message, or "".
        flags: XLA flags of the baseline and of all methods that do not change them.
        engine: the XLA that compiled and ran, as in `hloenv.compile`.
        definition: of the method and its space.
        version: of the code that made this row.
        commit: of its sources, with "+changes" if they differed from it.
        measured_at: time, in seconds since the epoch.
    """

    module: str
    fingerprint: str
    source: str
    family: str
    split: str
    method: str
    seed: int
    threads: int
    same: bool = False
    speedup: float = math.nan
    low: float = math.nan
    high: float = math.nan
    baseline_ns: float = math.nan
    median_ns: float = math.nan
    instructions: int = 0
    baseline_instructions: int = 0
    flops: float = math.nan
    baseline_flops: float = math.nan
    bytes: float = math.nan
    baseline_bytes: float = math.nan
    compile_ns: int = 0
    decide_s: float = math.nan
    alternatives: int = 0
    accepted: int = 0
    worst_error: float = math.nan
    estimates: int = 0
    measurements: int = 0
    curve: tuple[tuple[int, float], ...] = ()
    changes: Mapping[str, int] = field(default_factory=dict)
    error: str = ""
    repository: str = ""
    entry_point: str = ""
    extent: str = "small"
    flags: str = ""
    engine: str = "wheel"
    definition: str = ""
    version: str = ""
    commit: str = ""
    measured_at: float = 0.0

    @property
    def is_ok(self) -> bool:
        """Whether there is no error."""
        return not self.error

    @property
    def is_search(self) -> bool:
        """Whether the method is a search."""
        return "/search:" in self.method

    @property
    def is_baseline(self) -> bool:
        """Whether the method is another compiler or other flags, without decisions."""
        return self.method.startswith("baseline/")

    @property
    def unit(self) -> tuple[str, str]:
        """Repository and entry point; source and module if these are unknown."""
        return self.repository or self.source, self.entry_point or self.module

    @property
    def verdict(self) -> str:
        """By the interval: "win", "loss" or "tie"; or "error"."""
        if not self.is_ok:
            return "error"
        if self.low > 1:
            return "win"
        return "loss" if self.high < 1 else "tie"

    def to_json(self) -> dict[str, Any]:
        """Plain values, for `from_json`; no error is None."""
        return {**asdict(self), "error": self.error or None}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Row:
        """Reads the result of `to_json`."""
        known = {each.name for each in fields(cls)}
        values = {name: value for name, value in data.items() if name in known}
        if "contestant" in data:  # the earlier name
            values.setdefault("method", data["contestant"])
        values["error"] = values.get("error") or ""
        values["curve"] = tuple(tuple(each) for each in values.get("curve", ()))
        return cls(**values)


def require_pyarrow() -> None:
    """Checks that results can be written.

    Raises:
        ImportError: pyarrow is missing.
    """
    with needed_by("the benchmark, which writes Parquet files,", "pyarrow", "bench"):
        import pyarrow  # noqa: F401


def write_parquet(rows: Iterable[Row], path: Path) -> None:
    """Writes all rows, `curve` and `changes` as JSON text."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    records = []
    for row in rows:
        record = row.to_json()
        record["curve"] = json.dumps(record["curve"])
        record["changes"] = json.dumps(record["changes"])
        records.append(record)
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(records), path, compression="zstd")


def read_parquet(path: Path) -> list[Row]:
    """Reads a file of `write_parquet`."""
    import pyarrow.parquet as pq

    rows = []
    for record in pq.read_table(path).to_pylist():
        record["curve"] = json.loads(record["curve"])
        record["changes"] = json.loads(record["changes"])
        rows.append(Row.from_json(record))
    return rows


def geometric_mean(values: Sequence[float]) -> float:
    """The geometric mean; NaN without values."""
    if not values:
        return math.nan
    return math.exp(math.fsum(math.log(each) for each in values) / len(values))
