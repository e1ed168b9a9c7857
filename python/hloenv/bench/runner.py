# SPDX-License-Identifier: Apache-2.0
"""Runs methods on modules; rows of the same version of the code are reused."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from .._plugins import digest_of
from ..cost.registry import DEFAULT_ESTIMATOR, describe_estimator
from ..errors import ArgumentError
from ..measurement.config import Settings
from ..measurement.store import RecordKey, Store
from ..process.forkserver import TIMEOUT, Job, Outcome, Pool
from ..runtime.machine import this_machine
from .entries import Entry
from .flags import baseline_flags
from .methods import Method, as_method
from .rows import Row
from .task import Task, noted
from .version import bench_version, commit_of, source_root

# Errors that another run retries.
_RETRIED_ERRORS = (
    "MeasureTimeout",
    "ImportError",
    "ModuleNotFoundError",
    "MemoryError",
)
_LABELS = (
    *("module", "source", "family", "split"),
    *("repository", "entry_point", "extent"),
)
_MAX_ERROR_CHARS = 500
SeededMethod = tuple[str, int]


@dataclass(frozen=True)
class Plan:
    """Settings of a benchmark.

    Attributes:
        methods: policies, searches and baselines.
        seeds: of the random methods; the others have seed 0.
        settings: of the measurements.
        estimates: maximum for a search.
        measurements: maximum for a search.
        search_s: time limit of a search for proposals and estimates, in seconds; None
            for no limit.
        module_s: time limit for all policies and searches on one module, and for all
            baselines, in seconds; a method that does not finish gets an error.
        estimator: name of the cost model of searches and of "best-rule".
        again: do not reuse rows of the store.
        flags: XLA flags, for the baseline and for the methods.
        version: of the code; rows of other versions are not reused.
        commit: for the rows.
    """

    methods: tuple[Method, ...]
    seeds: tuple[int, ...] = (0,)
    settings: Settings = field(default_factory=Settings)
    estimates: int = 200
    measurements: int = 20
    search_s: float | None = None
    module_s: float = 1800.0
    estimator: str = DEFAULT_ESTIMATOR
    again: bool = False
    flags: str = field(default_factory=baseline_flags)
    version: str = field(default_factory=bench_version)
    commit: str = field(default_factory=lambda: commit_of(source_root()).label)

    def seeded_methods(self) -> list[tuple[Method, int]]:
        """Methods with seeds; one seed if the method is not random."""
        return [
            (method, seed)
            for method in self.methods
            for seed in (self.seeds if method.is_random else (0,))
        ]


def run(
    entries: Sequence[Entry],
    plan: Plan,
    store: Store,
    *,
    workers: int = 1,
    seconds: float | None = None,
    on_module: Callable[[], None] = lambda: None,
) -> list[Row]:
    """Runs the methods on all modules, several at a time, each in its own process.

    Rows are stored when they are ready; an interrupted run with the same sources
    continues where it was. Timeouts are retried, and keep their row if the run ends
    before.

    Args:
        entries: the modules.
        plan: the methods and settings.
        store: of the rows; measurements and kernel times are stored in a file of this
            version in the same folder.
        workers: concurrent modules, each on `plan.settings.threads` cores.
        seconds: time after which no module is started.
        on_module: called after each module.

    Returns:
        The rows of all modules that were started, in the order of the entries.
    """
    names = Counter(each.name for each in entries)
    if len(names) < len(entries):
        ((name, count),) = names.most_common(1)
        raise ArgumentError(
            f"{count} modules have the name {name!r}, but names must be unique; rename "
            "a file or its folder"
        )
    ends = None if seconds is None else time.monotonic() + seconds
    rows: dict[str, dict[SeededMethod, Row]] = {}
    missing: list[_Part] = []
    for entry in entries:
        rows[entry.name] = _stored(entry, plan, store)
        todo = [
            (method.name, seed)
            for method, seed in plan.seeded_methods()
            if _is_open(rows[entry.name].get((method.name, seed)))
        ]
        missing += _parts(entry, todo)
        if not todo:
            on_module()
    for entry, row in _play(missing, plan, store, workers, ends, on_module):
        store.put(_key(entry, row.method, row.seed, plan), row.to_json())
        rows[entry.name][row.method, row.seed] = row
    return [row for each in rows.values() for row in each.values()]


def _stored(entry: Entry, plan: Plan, store: Store) -> dict[SeededMethod, Row]:
    """Rows of the module from earlier runs of this version."""
    methods = [(method.name, seed) for method, seed in plan.seeded_methods()]
    keys = [_key(entry, *method, plan) for method in methods]
    found = [None] * len(keys) if plan.again else store.get_many(keys)
    # The row may be of an equal module with another name.
    own = {key: getattr(_row(entry, plan), key) for key in _LABELS}
    return {
        method: replace(Row.from_json(value), **own)
        for method, value in zip(methods, found, strict=True)
        if value is not None
    }


def _is_open(row: Row | None) -> bool:
    """Whether the row is missing or to be retried."""
    return row is None or row.error.startswith(_RETRIED_ERRORS)


@dataclass(frozen=True)
class _Part:
    """Methods that one child process runs on a module."""

    entry: Entry
    methods: tuple[SeededMethod, ...]
    is_baseline: bool

    @property
    def key(self) -> tuple[str, bool]:
        return self.entry.name, self.is_baseline

    @property
    def function(self) -> str:
        if self.is_baseline:
            return "hloenv.bench.baselines:play_baselines"
        return "hloenv.bench.play:play"


def _parts(entry: Entry, methods: Sequence[SeededMethod]) -> list[_Part]:
    """Separates baselines, which fork and need a process that has not used XLA."""
    is_baseline = {method: as_method(method[0]).is_baseline for method in methods}
    parts = [
        _Part(entry, tuple(p for p in methods if is_baseline[p] == kind), kind)
        for kind in (False, True)
    ]
    return [part for part in parts if part.methods]


def _play(
    missing: Sequence[_Part],
    plan: Plan,
    store: Store,
    workers: int,
    ends: float | None,
    on_module: Callable[[], None],
) -> Iterator[tuple[Entry, Row]]:
    """Yields rows; after a crash, the module continues without the failed method."""
    waiting = list(reversed(missing))
    unfinished = Counter(part.entry.name for part in missing)
    begun: set[str] = set()
    running: dict[int, _Part] = {}
    used_s: dict[tuple[str, bool], float] = {}
    with Pool(workers=workers) as pool:
        while waiting or running:
            if ends is not None and time.monotonic() > ends:
                # Finishes begun modules: only complete ones count.
                waiting = [part for part in waiting if part.entry.name in begun]
            while waiting and len(running) < workers:
                part = waiting.pop()
                begun.add(part.entry.name)
                left_s = plan.module_s - used_s.get(part.key, 0.0)
                job = Job(
                    part.function,
                    (_task(part, plan, store),),
                    timeout_s=max(left_s, 1.0),
                )
                running[pool.submit(job)] = part
            if not running:
                return
            outcome = pool.next()
            part = running.pop(outcome.index)
            used_s[part.key] = used_s.get(part.key, 0.0) + outcome.seconds
            left = list(part.methods)
            for row in outcome.values:
                left.remove((row.method, row.seed))
                yield part.entry, row
            for name, seed in _failed_methods(outcome, left):
                left.remove((name, seed))
                yield part.entry, _failed(part.entry, plan, name, seed, outcome)
            if left:
                waiting.append(replace(part, methods=tuple(left)))
                continue
            unfinished[part.entry.name] -= 1
            if not unfinished[part.entry.name]:
                on_module()


def _failed(entry: Entry, plan: Plan, name: str, seed: int, outcome: Outcome) -> Row:
    return replace(
        _row(entry, plan),
        method=name,
        seed=seed,
        error=_reason(outcome, plan),
        measured_at=time.time(),
        definition=as_method(name).definition,
    )


def _failed_methods(outcome: Outcome, left: list[SeededMethod]) -> list[SeededMethod]:
    """The methods that caused a crash: at least one, so that the run terminates."""
    if not outcome.error or outcome.error == TIMEOUT:
        return list(left)
    noted_ones = outcome.note.splitlines()
    return [each for each in left if noted(*each) in noted_ones] or list(left)


def _reason(outcome: Outcome, plan: Plan) -> str:
    """The error in one line, which starts with the name of its class."""
    if outcome.error == TIMEOUT:
        return f"MeasureTimeout: not finished within the module's {plan.module_s:g} s"
    if outcome.error.startswith("Traceback"):
        return outcome.last_line[:_MAX_ERROR_CHARS]
    return "WorkerError: " + " ".join(outcome.error.split())[-_MAX_ERROR_CHARS:]


def _task(part: _Part, plan: Plan, store: Store) -> Task:
    return Task(
        text=part.entry.text,
        row=_row(part.entry, plan),
        methods=part.methods,
        settings=plan.settings,
        estimates=plan.estimates,
        measurements=plan.measurements,
        search_s=plan.search_s,
        store=str(version_store(Path(store.path), plan.version)),
        flags=plan.flags,
        estimator=plan.estimator,
        record=part.entry.record,
    )


def version_store(path: Path, version: str) -> Path:
    """Path of the store of measurements and kernel times of one version of the code."""
    return path.with_name(f"{path.stem}-bench-{version}{path.suffix}")


def _row(entry: Entry, plan: Plan) -> Row:
    return Row(
        module=entry.name,
        fingerprint=entry.fingerprint,
        source=entry.source,
        family=entry.family,
        split=entry.split,
        method="",
        seed=0,
        threads=plan.settings.threads,
        engine=plan.settings.engine,
        repository=entry.repository,
        entry_point=entry.entry_point,
        extent=entry.extent,
        flags=plan.flags,
        version=plan.version,
        commit=plan.commit,
    )


def _key(entry: Entry, method: str, seed: int, plan: Plan) -> RecordKey:
    machine, settings, known = this_machine(), plan.settings, as_method(method)
    variant = [
        *(method, seed, asdict(settings)),
        *(plan.version, known.definition, _inputs_of(entry)),
    ]
    if known.is_search:
        variant += [plan.estimates, plan.measurements, plan.search_s]
    if plan.estimator != DEFAULT_ESTIMATOR and (known.is_search or known.picks_rule):
        origin = describe_estimator(plan.estimator).origin
        variant += [plan.estimator, digest_of(origin)]
    return RecordKey(
        kind="bench",
        fingerprint=entry.fingerprint,
        finish="",
        flags=plan.flags,
        target="cpu",
        machine=machine.id,
        variant=json.dumps(variant),
    )


def _inputs_of(entry: Entry) -> str:
    if entry.record is None:
        return "random"
    return repr((entry.record.input_ranges, entry.record.input_distributions))


__all__ = ["Entry", "Plan", "run", "version_store"]
