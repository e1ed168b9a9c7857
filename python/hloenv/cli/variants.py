# SPDX-License-Identifier: Apache-2.0
"""The modules that `hloenv optimize` compares, and their table."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ..cost.base import Estimator, estimate_of
from ..cost.roofline import estimate_seconds
from ..errors import HloEnvError
from ..graph.hlo_graph import HloGraph
from ..hlo.module import HloModule, ModuleCost
from ..measurement.record import Measurement
from ..runtime.executable import legalized
from . import output

XLA_DEFAULT = "XLA's default"


@dataclass
class Variant:
    """One row of the table.

    Attributes:
        name: "original", the policy's name, or `XLA_DEFAULT`.
        module: after the decisions, before the rest of XLA's passes.
        is_decided: whether it results from decisions, including all rejected.
        final: the module that XLA's backend compiles; None if a pass failed.
        estimate_s: estimate of one run of `final`, in seconds.
        measured_s: median of one run, in seconds.
        speedup: median time of `XLA_DEFAULT` over this one's.
        speedup_interval: of 95 % confidence, by bootstrap.
        output_error: difference of an output from that of XLA's default on the same
            inputs, at the element with the largest share of its tolerance.
        output_excess: that share of the tolerance; above 1 is wrong.
        error: the error message, "" if nothing failed.
        measurement: source of the times; None without.
    """

    name: str
    module: HloModule
    is_decided: bool
    final: HloModule | None = None
    estimate_s: float = math.nan
    measured_s: float = math.nan
    speedup: float = math.nan
    speedup_interval: tuple[float, float] = (math.nan, math.nan)
    output_error: float = math.nan
    output_excess: float = math.nan
    error: str = ""
    measurement: Measurement | None = None

    def to_json(self) -> dict[str, Any]:
        """JSON-able; "decided" and "final" are sizes and costs, null if unknown."""
        return {
            "name": self.name,
            "decided": _sizes(self.module) if self.is_decided else None,
            "final": None if self.final is None else _sizes(self.final),
            "estimate_s": self.estimate_s,
            "measured_s": self.measured_s,
            "speedup": self.speedup,
            "speedup_interval": list(self.speedup_interval),
            "output_error": self.output_error,
            "output_excess": self.output_excess,
            "error": self.error or None,
        }


def make_variants(
    module: HloModule, start: HloModule, decided: HloModule, *, name: str
) -> list[Variant]:
    """The original, the decided module, and XLA's default.

    Args:
        module: as loaded.
        start: at the position in the pipeline where it was decided.
        decided: after the decisions.
        name: of the policy.
    """
    # Both omit the same decided passes, so that they are comparable.
    rejected = HloModule._wrap(
        start._core, position=start.position, decided=decided.decided
    )
    return [
        Variant("original", rejected, is_decided=True),
        Variant(name, decided, is_decided=True),
        Variant(XLA_DEFAULT, module, is_decided=False),
    ]


def compare(
    variants: list[Variant], estimator: Estimator | None = None
) -> list[Variant]:
    """Runs the rest of XLA's passes on each and fills in `final` and `estimate_s`.

    Args:
        variants: to fill in.
        estimator: of `estimate_s`; None for a roofline of `final`.
    """
    for variant in variants:
        try:
            variant.final = legalized(variant.module, "legalize")
        except HloEnvError as error:
            variant.error = str(error)
            continue
        if estimator is None:
            variant.estimate_s = estimate_seconds(HloGraph.from_module(variant.final))
        else:
            estimate = estimate_of(estimator, variant.module)
            variant.estimate_s, variant.error = estimate.seconds, estimate.error
    return variants


def print_variants(
    variants: Sequence[Variant], *, title: str, is_measured: bool, estimator: str | None
) -> None:
    """One column for each variant.

    Args:
        variants: to print.
        title: of the table.
        is_measured: whether there are measured times.
        estimator: name of the one of `compare`; None for its roofline.
    """
    decided = [_cells(each.module if each.is_decided else None) for each in variants]
    final = [_cells(each.final) for each in variants]
    names = ("instructions", "flops", "bytes moved")
    rows = list(zip(names, *decided, strict=True))
    rows += zip((f"final {name}" for name in names), *final, strict=True)
    estimates = (output.format_seconds(each.estimate_s) for each in variants)
    rows.append(("estimated time", *estimates))
    if is_measured:
        cells = [_measured_cells(each, variants[0]) for each in variants]
        rows += zip(_MEASURED, *cells, strict=True)
    columns = ("", *(each.name for each in variants))
    output.print_table(columns, rows, title=title, right=columns[1:])
    for variant in variants:
        if variant.error:
            output.print_line(f"{variant.name}: {' '.join(variant.error.split())}")
    what = (
        "a static roofline of the final\nmodule, with one iteration for a loop of "
        "unknown trip count"
        if estimator is None
        else f"by {estimator}"
    )
    output.print_line(f"\nfinal: after the rest of XLA's passes; estimated: {what}")
    if is_measured:
        output.print_line(
            f"output error: against {XLA_DEFAULT} on the same random inputs; in\n"
            "brackets as a share of the tolerance; above 100 % is wrong"
        )
        _print_notes(variants)


def _print_notes(variants: Sequence[Variant]) -> None:
    """How the speed-ups are to be read, and which of them say little."""
    ends = [each.speedup_interval for each in variants]
    if not all(math.isfinite(high) for _, high in ends):
        output.print_line(
            "-: timed in one round, which tells no speed-up; add --measure"
        )
        return
    output.print_line(
        f"over {XLA_DEFAULT}: the median ratio of runs in pairs, not the ratio of the\n"
        "measured times"
    )
    wide = [
        each.name
        for each in variants
        if each.speedup_interval[1] > _WIDE * each.speedup_interval[0]
    ]
    if wide:
        output.print_line(
            f"warning: the interval of {' and '.join(wide)} is wider than {_WIDE}x: "
            "other processes\nload the cores; measure again with --again when they end"
        )


# An interval whose ends are further apart by this factor says little.
_WIDE = 2

_MEASURED = (
    "measured time",
    "over the original",
    f"over {XLA_DEFAULT}",
    "95 % interval",
    "output error",
)


def _measured_cells(variant: Variant, original: Variant) -> list[str]:
    low, high = variant.speedup_interval
    # One round, as --force without --measure makes, tells no speed-up.
    is_known = math.isfinite(high) and math.isfinite(original.speedup_interval[1])
    over_original = original.measured_s / variant.measured_s
    return [
        output.format_seconds(variant.measured_s),
        _ratio(over_original if is_known else math.nan),
        _ratio(variant.speedup if is_known else math.nan),
        f"{low:.3f} to {high:.3f}" if is_known else "-",
        _error(variant),
    ]


def _ratio(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.3f}x"


def _error(variant: Variant) -> str:
    if math.isnan(variant.output_error):
        return "-"
    return f"{variant.output_error:.2g} ({variant.output_excess:.1%})"


def _cells(module: HloModule | None) -> list[str]:
    if module is None:
        return ["-"] * 3
    cost = module.cost()
    return [
        output.format_count(module.instruction_count),
        output.format_quantity(cost.flops),
        output.format_quantity(cost.bytes, "B"),
    ]


def _sizes(module: HloModule) -> dict[str, Any]:
    cost: ModuleCost = module.cost()
    return {"instructions": module.instruction_count, **asdict(cost)}
