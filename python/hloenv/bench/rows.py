# SPDX-License-Identifier: Apache-2.0
"""One method on one module: a row of the raw results."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Row:
    """What became of a module that one method has played.

    Attributes:
        module: its name: source and name in the dataset, or folder and file.
        fingerprint: of the module as JAX lowered it.
        source: project that it is from.
        repository: URL of the project; by it intervals are clustered.
        entry_point: what the module is one function of, such as a training step; the
            unit of the headline.
        family: field of that project, "" if unknown.
        split: of the dataset, "" outside it.
        extent: "small" or "real", as in the dataset.
        method: "SPACE/POLICY" or "SPACE/search:NAME".
        seed: of the method.
        threads: cores that the module ran on.
        same: whether the result is the very module that XLA's default gives, which is
            then not timed: its speed-up is 1.
        speedup: XLA's default time over the method's; NaN on error.
        low: lower end of the 95 % interval of `speedup`.
        high: upper end.
        baseline_ns: median of a run as XLA compiles by default.
        median_ns: median of a run as decided.
        instructions: of the final module.
        baseline_instructions: of the one that XLA's default gives.
        flops: of the final module, by XLA's cost analysis.
        baseline_flops: likewise.
        bytes: read and written.
        baseline_bytes: likewise.
        compile_ns: by XLA's backend.
        decide_s: seconds until everything was decided; of a search, until its end.
        alternatives: that were decided.
        accepted: of them, those that did not keep the original.
        worst_error: largest difference of the outputs from the original's, relative to
            the tolerance; NaN where it is unknown.
        estimates: that a search made.
        measurements: that a search made, without the last that is reported here.
        curve: of a search: (estimates, best estimated speed-up so far) where it rose.
        changes: how often each kind of decision differs from XLA's own.
        error: "" or what went wrong.
        flags: of XLA, for the baseline and for every method that does not change them.
        definition: of the method and its space.
        version: of the code that made this row.
        commit: that its sources were from, "+changes" where they differed from it.
        measured_at: when, in seconds since the epoch.
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
    definition: str = ""
    version: str = ""
    commit: str = ""
    measured_at: float = 0.0

    @property
    def is_ok(self) -> bool:
        """Whether it was decided, ran, and computed the same."""
        return not self.error

    @property
    def is_search(self) -> bool:
        """Whether the method is a search."""
        return "/search:" in self.method

    @property
    def is_baseline(self) -> bool:
        """Whether the method decides nothing: another compiler, or other flags."""
        return self.method.startswith("baseline/")

    @property
    def unit(self) -> tuple[str, str]:
        """Repository and entry point; the module itself where they are unknown."""
        return self.repository or self.source, self.entry_point or self.module

    @property
    def verdict(self) -> str:
        """By the interval: "win", "loss", "tie"; or "error"."""
        if not self.is_ok:
            return "error"
        if self.low > 1:
            return "win"
        return "loss" if self.high < 1 else "tie"

    def to_json(self) -> dict[str, Any]:
        """Plain values; `from_json` reads them back. No error is None."""
        return {**asdict(self), "error": self.error or None}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Row:
        """Reads what `to_json` wrote."""
        known = {each.name for each in fields(cls)}
        values = {name: value for name, value in data.items() if name in known}
        values["error"] = values.get("error") or ""
        values["curve"] = tuple(tuple(each) for each in values.get("curve", ()))
        return cls(**values)


def require_pyarrow() -> None:
    """Does nothing where results can be written.

    Raises:
        ImportError: pyarrow is missing; says what to install.
    """
    try:
        import pyarrow  # noqa: F401
    except ImportError:
        raise ImportError(
            "the benchmark's results go into Parquet files, for which it needs "
            "pyarrow: pip install 'hloenv[bench]'"
        ) from None


def write_parquet(rows: Iterable[Row], path: Path) -> None:
    """All rows, `curve` and `changes` as JSON text."""
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
    """What `write_parquet` wrote."""
    import pyarrow.parquet as pq

    rows = []
    for record in pq.read_table(path).to_pylist():
        record["curve"] = json.loads(record["curve"])
        record["changes"] = json.loads(record["changes"])
        rows.append(Row.from_json(record))
    return rows


def geometric_mean(values: Sequence[float]) -> float:
    """NaN without values."""
    if not values:
        return math.nan
    return math.exp(math.fsum(math.log(each) for each in values) / len(values))
