#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tunes the constants of the fixed rules on train, and selects on validation.

    python scripts/reports/tune_rules.py --modules 120 --doc docs/leaderboard/tuning.md

Each constant has a grid of values. All values are measured on a sample of the train
split, with a limit per entry point; the best few are measured on a sample of the
validation split, and the best of these is chosen. Constants are tuned one after the
other. The score is that of the leaderboard: the geometric mean by entry point, where a
failure counts as 1. The test splits are never loaded.

Results are stored; a repeated run with the same sources continues. The sources are not
changed; the last lines of the output name the changes.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from hloenv import dataset
from hloenv._markdown import table
from hloenv.bench import joint
from hloenv.bench.entries import entry_point
from hloenv.bench.flags import baseline_flags, use
from hloenv.bench.rows import Row
from hloenv.bench.runner import version_store
from hloenv.bench.statistics import Headline, headline
from hloenv.bench.tables import interval
from hloenv.bench.version import bench_version
from hloenv.cost import kernels
from hloenv.cost.kernel_cache import KernelCache
from hloenv.cost.kernels import KernelSplit
from hloenv.errors import HloEnvError
from hloenv.hlo.module import HloModule
from hloenv.hlo.pipeline import finish
from hloenv.measurement.config import Settings
from hloenv.measurement.measurer import Measurer
from hloenv.measurement.record import Measurement
from hloenv.measurement.store import Store
from hloenv.policies import get_policy
from hloenv.process.cpu_affinity import CoreLease
from hloenv.process.forkserver import run_jobs
from hloenv.runtime.machine import this_machine
from hloenv.search import spaces
from reporting import Rows, head, parser_of, write_page

TRAIN, VALIDATION = "train", "validation"
# Number of values that proceed from train to validation.
KEPT = 3
_STEP = "_GRAPH_STEP_NS"


@dataclass(frozen=True)
class Values:
    """The constants of the rules.

    Attributes:
        max_products: largest dot that rules lower to tiled LLVM IR.
        step_ns: overhead of ThunkExecutor between two thunks of a dataflow graph.
        min_gain: fraction of XLA's time that `best-rule` must save, by estimate.
    """

    max_products: int = spaces.SMALL_DOT_PRODUCTS
    step_ns: float = getattr(kernels, _STEP)
    min_gain: float = joint.MIN_GAIN


@dataclass(frozen=True)
class Constant:
    """One constant of `Values`.

    Attributes:
        name: in `Values`.
        where: in the sources.
        rule: method that measures it.
        grid: its values.
    """

    name: str
    where: str
    rule: str
    grid: tuple[float, ...]


CONSTANTS = (
    Constant(
        "max_products",
        "SMALL_DOT_PRODUCTS in python/hloenv/search/spaces.py",
        "small-dots/accept-all",
        (1000, 4000, 8000, 16000, 32000, 64000, 128000),
    ),
    Constant(
        "step_ns",
        f"{_STEP} in python/hloenv/cost/kernels.py",
        "careful/best-rule",
        (0.0, 20.0, 40.0, 60.0, 90.0, 150.0),
    ),
    Constant(
        "min_gain",
        "MIN_GAIN in python/hloenv/bench/joint.py",
        "careful/best-rule",
        (0.0, 0.02, 0.05, 0.1, 0.2, 0.3),
    ),
)


def decided(
    module: HloModule, rule: str, candidates: Sequence[Values], cache: KernelCache
) -> list[HloModule | str]:
    """Returns a rule's final module with each of the values, or the error."""
    space_name, _, player = rule.partition("/")
    space = spaces.get_space(space_name)
    made: list[HloModule | str] = []
    if player != "best-rule":
        for values in candidates:
            limited = with_limit(space, values.max_products)
            try:
                made.append(spaces.decide(module, limited, get_policy(player)).module)
            except HloEnvError as error:
                made.append(f"{type(error).__name__}: {error}")
        return made
    (limit,) = {values.max_products for values in candidates}
    finished: list[HloModule] = []
    timed: list[tuple[KernelSplit, list[float | str]]] = []
    for variant, prefix in joint.fixed_rules(module, with_limit(space, limit)):
        try:
            final = finish(variant.game.play(prefix))
            split = KernelSplit(final, threads=cache.threads)
        except HloEnvError:
            if not finished:  # XLA's own
                raise
            continue
        finished.append(final)
        timed.append((split, cache.times(split)))
    for values in candidates:
        setattr(kernels, _STEP, values.step_ns)
        seconds = [total_s(*each) for each in timed]
        made.append(finished[joint.index_of_fastest(seconds, values.min_gain)])
    return made


def total_s(split: KernelSplit, times: Sequence[float | str]) -> float:
    """Returns the estimate of a module; infinite if a kernel has no time."""
    seconds = [each for each in times if not isinstance(each, str)]
    return split.total_s(seconds) if len(seconds) == len(times) else math.inf


def with_limit(space: spaces.Space, max_products: int) -> spaces.Space:
    """Returns the space with another limit for small dots."""
    own, other = spaces.small_dots(), spaces.small_dots(max_products)
    stops = tuple(other if each == own else each for each in space.stops)
    return replace(space, stops=stops)


def measure(
    text: str,
    record: Any,
    rule: str,
    candidates: Sequence[dict[str, Any]],
    settings: Settings,
    flags: str,
    store: str,
) -> list[tuple[float, str]]:
    """Returns speedup and error for each of the values; runs in a child process.

    Equal modules are measured once.
    """
    use(flags)
    lease = CoreLease(settings.threads)
    try:
        os.sched_setaffinity(0, lease.cores)
        module = HloModule.from_text(text)
        default = finish(module).fingerprint()
        with KernelCache(threads=settings.threads, store=Store(store)) as cache:
            made = decided(module, rule, [Values(**each) for each in candidates], cache)
    finally:
        lease.release()
    different = {
        each.fingerprint(): each
        for each in made
        if not isinstance(each, str) and each.fingerprint() != default
    }
    measured: dict[str, Measurement] = {}
    if different:
        inputs = record.inputs(seed=settings.seed) if record is not None else None
        with Measurer(settings) as measurer:
            found = measurer.measure(
                list(different.values()), baseline=module, inputs=inputs
            )
        measured.update(zip(different, found, strict=True))
    results = []
    for each in made:
        if isinstance(each, str):
            results.append((1.0, each))
        elif (found_one := measured.get(each.fingerprint())) is None:
            results.append((1.0, ""))
        elif found_one.error is not None:
            results.append((1.0, str(found_one.error)))
        else:
            results.append((found_one.speedup, ""))
    return results


def sample(split: str, args: argparse.Namespace, *, needs_dots: bool) -> list[Any]:
    """Returns a random sample with a limit per entry point."""
    assert split in (TRAIN, VALIDATION)
    records = [
        record
        for record in dataset.load(split)
        if args.min_instructions <= record.instruction_count <= args.max_instructions
        and (record.opcode_counts.get("dot", 0) > 0 or not needs_dots)
    ]
    random.Random(args.seed).shuffle(records)
    taken: Counter[str] = Counter()
    chosen = []
    for record in records:
        point = entry_point(record.source, record.name)
        if taken[point] < args.per_entry and len(chosen) < args.modules:
            taken[point] += 1
            chosen.append(record)
    return chosen


class Tuning:
    """Measurements, stored in a file of JSON lines."""

    def __init__(self, args: argparse.Namespace) -> None:
        """Reads the results of earlier runs of this version."""
        self._args = args
        self._settings = Settings(
            finish="none", precision=args.precision, timeout_s=300
        )
        self._flags = baseline_flags()
        self._known = Rows(args.results, "key")

    def _key(self, record: Any, rule: str, values: Values) -> str:
        return json.dumps(
            [
                *(bench_version(), self._flags, this_machine().id),
                *(self._args.precision, record.fingerprint, rule, asdict(values)),
            ]
        )

    def scores(
        self, split: str, constant: Constant, candidates: Sequence[Values]
    ) -> list[Headline]:
        """Returns the headline of each of the values on the sample of a split."""
        needs_dots = constant.name == "max_products"
        records = sample(split, self._args, needs_dots=needs_dots)
        if not records:
            raise SystemExit(f"no module of {split} is left: see --help")
        self._fill(split, records, constant, candidates)
        return [
            headline(
                [
                    self._row(record, self._key(record, constant.rule, v))
                    for record in records
                ]
            )
            for v in candidates
        ]

    def _fill(
        self,
        split: str,
        records: Sequence[Any],
        constant: Constant,
        candidates: Sequence[Values],
    ) -> None:
        """Measures missing values."""
        missing = [
            record
            for record in records
            if any(
                self._known.get(self._key(record, constant.rule, v)) is None
                for v in candidates
            )
        ]
        store = str(version_store(Path(self._args.store), bench_version()))
        jobs = [
            (
                *(record.text, self._drawn(record), constant.rule),
                [asdict(v) for v in candidates],
                *(self._settings, self._flags, store),
            )
            for record in missing
        ]
        outcomes = run_jobs(
            "tune_rules:measure",
            jobs,
            workers=self._args.workers,
            timeout=self._args.timeout,
        )
        for number, outcome in enumerate(outcomes if jobs else (), 1):
            record = missing[outcome.index]
            if outcome.error:
                results = [(1.0, outcome.last_line)] * len(candidates)
            else:
                results = outcome.value
            for v, (speedup, error) in zip(candidates, results, strict=True):
                key = self._key(record, constant.rule, v)
                self._known.add({"key": key, "speedup": speedup, "error": error})
            print(
                f"{constant.name}, {split}: {number}/{len(missing)} "
                f"{record.source}/{record.name}",
                file=sys.stderr,
            )

    def _drawn(self, record: Any) -> Any:
        return record if record.input_distributions else None

    def _row(self, record: Any, key: str) -> Row:
        known = self._known.get(key)
        assert known is not None
        return Row(
            *(record.name, record.fingerprint, record.source, record.family),
            *(record.split, "tuning", 0, self._settings.threads),
            speedup=known["speedup"],
            error=known["error"],
            repository=record.repository,
            entry_point=entry_point(record.source, record.name),
        )


def tune(
    constant: Constant, values: Values, tuning: Tuning
) -> tuple[Values, list[tuple[str, ...]]]:
    """Returns the values with this constant tuned, and the lines of its table."""
    candidates = [
        replace(values, **{constant.name: type(getattr(values, constant.name))(each)})
        for each in constant.grid
    ]
    on_train = tuning.scores(TRAIN, constant, candidates)
    present = getattr(Values(), constant.name)

    def rank(i: int, found: Headline) -> tuple[float, bool]:
        # Ties keep the value in the sources.
        return -found.mean, getattr(candidates[i], constant.name) != present

    ranked = sorted(range(len(candidates)), key=lambda i: rank(i, on_train[i]))
    kept = sorted(ranked[:KEPT])
    on_validation = dict(
        zip(
            kept,
            tuning.scores(VALIDATION, constant, [candidates[i] for i in kept]),
            strict=True,
        )
    )
    chosen = min(kept, key=lambda i: rank(i, on_validation[i]))
    lines = []
    for i, each in enumerate(candidates):
        found = on_validation.get(i)
        lines.append(
            (
                f"{getattr(each, constant.name):g}" + " (chosen)" * (i == chosen),
                *(f"{on_train[i].mean:.4f}", interval(on_train[i])),
                "-" if found is None else f"{found.mean:.4f}",
                "-" if found is None else interval(found),
                f"{on_train[i].modules}, {found.modules if found else '-'}",
            )
        )
    return candidates[chosen], lines


def page(
    tables: dict[str, list[tuple[str, ...]]], values: Values, args: argparse.Namespace
) -> list[str]:
    """The tables and the chosen values as Markdown."""
    lines = [
        *head("Constants of the fixed rules"),
        f"* version of the sources: {bench_version()}; one thread, pinned",
        f"* baseline: XLA of the wheel with `{baseline_flags() or 'no flags'}`",
        f"* samples: at most {args.modules} modules of each split, seed {args.seed}, "
        f"at most {args.per_entry} of an entry point, {args.min_instructions} to "
        f"{args.max_instructions} instructions",
        "",
        f"Geometric means by entry point over XLA's default. The best {KEPT} on train "
        "were measured on validation, whose best was chosen.",
    ]
    columns = ("value", "train", "95 %", "validation", "95 %", "modules")
    for constant in CONSTANTS:
        if constant.name not in tables:
            continue
        lines += ["", f"## {constant.name}: {constant.where}", ""]
        lines += [f"By `{constant.rule}`.", ""]
        lines += table(columns, tables[constant.name])
    lines += ["", "## Chosen", ""]
    lines += [
        f"* {each.where}: {getattr(values, each.name):g}"
        f" (in the sources: {getattr(Values(), each.name):g})"
        for each in CONSTANTS
        if each.name in tables
    ]
    return lines


def main() -> None:
    """Tunes the constants one after the other and prints the chosen values."""
    parser = parser_of(__doc__)
    names = [each.name for each in CONSTANTS]
    parser.add_argument("--constant", action="append", choices=names, help="only it")
    parser.add_argument("--modules", type=int, default=120, help="of each split")
    parser.add_argument("--per-entry", type=int, default=4, help="of an entry point")
    parser.add_argument("--seed", type=int, default=0, help="of the samples")
    parser.add_argument("--min-instructions", type=int, default=1)
    parser.add_argument("--max-instructions", type=int, default=3000)
    parser.add_argument("--precision", type=float, default=0.01)
    parser.add_argument("--timeout", type=float, default=900, help="of one module")
    parser.add_argument("--workers", type=int, default=1, help="modules at once")
    parser.add_argument("--results", type=Path, default=Path("tune_rules.jsonl"))
    parser.add_argument("--store", default="tune_rules.sqlite", help="times of kernels")
    args = parser.parse_args()
    tuning, values = Tuning(args), Values()
    tables = {}
    for constant in CONSTANTS:
        if not args.constant or constant.name in args.constant:
            values, tables[constant.name] = tune(constant, values, tuning)
    write_page(page(tables, values, args), args.doc)


if __name__ == "__main__":
    main()
