# SPDX-License-Identifier: Apache-2.0
"""What is known about the rewrites of one program, as data."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from .accepted import AcceptedRewrite


@dataclass
class RewriteRow:
    """One rewrite of XLA's, and the program's time without it.

    Worth is the time without the rewrite over the time with it: above 1 the rewrite
    pays, below 1 it costs. Everything else is as XLA decides, except that the rewrites
    that cost in an earlier round are rejected.

    Attributes:
        identity: a hash of the original and its replacement.
        entries: that reject it, as in `hlo.decided`.
        pass_name: the pass that makes it.
        path: of its first run that does, with the pipelines around it.
        path_occurrence: number of that run of the path, from 1.
        rule: what becomes what, without shapes.
        shape_class: class of the original by type and size.
        before: the original with types and attributes.
        after: the operations that replace it.
        count: number of equal rewrites, which are all rejected together.
        lost: other rewrites of the same run that change nothing without it.
        stopped: passes that do not run on a module without it.
        source: JAX operation and source line; "" if unknown.
        round: 1, or the round in which the rewrites that cost in earlier ones are
            rejected.
        base_s: estimated time of the program of this round, in seconds.
        without_s: the same without this rewrite, and all equal ones.
        without_one_s: the same with one of them rejected; NaN if not estimated.
        is_noop: whether XLA's kernels are the same without it.
        worth: estimated.
        measured: measured worth; NaN if it was not measured.
        low: lower end of the 95 % interval of `measured`.
        high: upper end of it.
        error: why there is no estimate or measurement; "" if there is none.
    """

    identity: str
    entries: tuple[str, ...]
    pass_name: str
    path: str
    path_occurrence: int
    rule: str
    shape_class: str
    before: str
    after: str
    count: int
    lost: int = 0
    stopped: tuple[str, ...] = ()
    source: str = ""
    round: int = 1
    base_s: float = math.nan
    without_s: float = math.nan
    without_one_s: float = math.nan
    is_noop: bool = False
    worth: float = math.nan
    measured: float = math.nan
    low: float = math.nan
    high: float = math.nan
    error: str = ""

    @classmethod
    def of(cls, rewrite: AcceptedRewrite) -> RewriteRow:
        """A row without times."""
        return cls(
            rewrite.identity,
            tuple(sorted(rewrite.entries)),
            rewrite.pass_name,
            rewrite.path,
            rewrite.path_occurrence,
            rewrite.rule,
            rewrite.shape_class,
            str(rewrite.before),
            rewrite.after_text,
            rewrite.count,
            rewrite.lost,
            rewrite.stopped,
            rewrite.source,
        )

    @property
    def best_worth(self) -> float:
        """Measured if it was measured, else estimated."""
        return self.worth if math.isnan(self.measured) else self.measured

    def costs(self, threshold: float) -> bool:
        """Whether it costs at least this share of the time.

        A measured one does if its interval excludes that it pays.
        """
        is_certain = math.isnan(self.high) or self.high < 1
        return self.best_worth <= 1 / (1 + threshold) and is_certain

    def pays(self, threshold: float) -> bool:
        """Whether the program without it takes at least this share longer.

        A measured one does if its interval excludes that it costs.
        """
        is_certain = math.isnan(self.low) or self.low > 1
        return self.best_worth >= 1 + threshold and is_certain


@dataclass
class ProgramMap:
    """The rewrites of one program.

    Attributes:
        program: its name.
        repository: URL of its project; "" if unknown.
        entry_point: the program without its sizes; "" if unknown.
        split: of the dataset; "" for other programs.
        reference_s: estimated time as XLA compiles it, in seconds.
        num_rewrites: distinct rewrites of XLA's that can be rejected.
        rows: of those that were tried.
        together_s: estimated time without all that cost; NaN if there is none.
        together: its measured worth, the time without them over the time with them.
        together_low: lower end of the 95 % interval of `together`.
        together_high: upper end of it.
        together_error: why `together` was not measured; "" if it was.
        seconds: that it took.
        error: why it was not finished; "" if it was.
    """

    program: str
    repository: str = ""
    entry_point: str = ""
    split: str = ""
    reference_s: float = math.nan
    num_rewrites: int = 0
    rows: list[RewriteRow] = field(default_factory=list)
    together_s: float = math.nan
    together: float = math.nan
    together_low: float = math.nan
    together_high: float = math.nan
    together_error: str = ""
    seconds: float = 0.0
    error: str = ""

    @property
    def num_left(self) -> int:
        """Rewrites that were not tried for lack of time."""
        return max(0, self.num_rewrites - len(self.rows))

    def costly(self, threshold: float) -> list[RewriteRow]:
        """Rows whose rewrite costs at least this share of the time, worst first."""
        rows = [row for row in self.rows if row.costs(threshold)]
        return sorted(rows, key=lambda row: row.best_worth)

    def paying(self, threshold: float) -> list[RewriteRow]:
        """Rows whose rewrite pays at least this share of the time, best first."""
        rows = [row for row in self.rows if row.pays(threshold)]
        return sorted(rows, key=lambda row: -row.best_worth)

    def to_json(self) -> dict[str, Any]:
        """Plain dicts, lists, strings and numbers; NaN is None."""
        found: dict[str, Any] = without_nan(asdict(self))
        return found

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> ProgramMap:
        """Reads the result of `to_json`."""
        fields = with_nan(data)
        fields["rows"] = [_row_from_json(row) for row in data["rows"]]
        return cls(**fields)


def _row_from_json(data: Mapping[str, Any]) -> RewriteRow:
    fields = with_nan(data)
    for name in ("entries", "stopped"):
        fields[name] = tuple(fields[name])
    return RewriteRow(**fields)


def with_nan(data: Mapping[str, Any]) -> dict[str, Any]:
    """`data` with NaN for None."""
    return {key: math.nan if value is None else value for key, value in data.items()}


def without_nan(value: Any) -> Any:
    """`value` with None for NaN, at any depth, and lists for tuples."""
    if isinstance(value, float):
        return None if math.isnan(value) else value
    if isinstance(value, dict):
        return {key: without_nan(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [without_nan(each) for each in value]
    return value
