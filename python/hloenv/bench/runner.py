# SPDX-License-Identifier: Apache-2.0
"""Goes through modules and methods; nothing of one version is played twice."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

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

# Errors that say more of the moment than of the method: tried again by another run.
_PASSING = ("MeasureTimeout", "ImportError", "ModuleNotFoundError", "MemoryError")
_LABELS = (
    *("module", "source", "family", "split"),
    *("repository", "entry_point", "extent"),
)
_LONGEST = 500
Player = tuple[str, int]


@dataclass(frozen=True)
class Plan:
    """What is played, and how.

    Attributes:
        methods: policies, searches and baselines.
        seeds: of those that draw random numbers; the others have seed 0.
        settings: how to measure.
        estimates: that a search may make.
        measurements: that a search may make.
        search_s: seconds that a search may propose and estimate; None for no limit.
        module_s: seconds that all policies and searches together may take on one
            module, and all baselines; what is not done by then is an error.
        again: play what the store has already.
        flags: of XLA, for the baseline and for what is decided.
        version: of the code; rows of another one are not reused.
        commit: that rows are to name.
    """

    methods: tuple[Method, ...]
    seeds: tuple[int, ...] = (0,)
    settings: Settings = field(default_factory=Settings)
    estimates: int = 200
    measurements: int = 20
    search_s: float | None = None
    module_s: float = 1800.0
    again: bool = False
    flags: str = field(default_factory=baseline_flags)
    version: str = field(default_factory=bench_version)
    commit: str = field(default_factory=lambda: commit_of(source_root()).label)

    def players(self) -> list[tuple[Method, int]]:
        """Methods with seeds; one seed where it makes no difference."""
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
    """Plays all modules, several at a time, each in a process of its own.

    Rows are saved as they come: a run that was interrupted goes on where it was, with
    the same sources. What timed out is tried again; where there is no time to, its row
    is the one that says so.

    Args:
        entries: the modules.
        plan: the methods, and how to measure.
        store: where rows are kept; measurements and times of kernels are kept beside
            it, in a file of this version.
        workers: modules at the same time, each on `plan.settings.threads` cores.
        seconds: time after which no module is started.
        on_module: called when a module is done.

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
    rows: dict[str, dict[Player, Row]] = {}
    missing: list[_Part] = []
    for entry in entries:
        rows[entry.name] = _stored(entry, plan, store)
        todo = [
            (method.name, seed)
            for method, seed in plan.players()
            if _is_open(rows[entry.name].get((method.name, seed)))
        ]
        missing += _parts(entry, todo)
        if not todo:
            on_module()
    for entry, row in _play(missing, plan, store, workers, ends, on_module):
        store.put(_key(entry, row.method, row.seed, plan), row.to_json())
        rows[entry.name][row.method, row.seed] = row
    return [row for each in rows.values() for row in each.values()]


def _stored(entry: Entry, plan: Plan, store: Store) -> dict[Player, Row]:
    """What an earlier run of this version has found on the module."""
    players = [(method.name, seed) for method, seed in plan.players()]
    keys = [_key(entry, *player, plan) for player in players]
    found = [None] * len(keys) if plan.again else store.get_many(keys)
    # The module may have been played under another name.
    own = {key: getattr(_row(entry, plan), key) for key in _LABELS}
    return {
        player: replace(Row.from_json(value), **own)
        for player, value in zip(players, found, strict=True)
        if value is not None
    }


def _is_open(row: Row | None) -> bool:
    """Whether a row is still to be made, or to be made again."""
    return row is None or row.error.startswith(_PASSING)


@dataclass(frozen=True)
class _Part:
    """Methods that one child process plays on a module."""

    entry: Entry
    players: tuple[Player, ...]
    is_baseline: bool

    @property
    def key(self) -> tuple[str, bool]:
        return self.entry.name, self.is_baseline

    @property
    def function(self) -> str:
        if self.is_baseline:
            return "hloenv.bench.baselines:play_baselines"
        return "hloenv.bench.play:play"


def _parts(entry: Entry, players: Sequence[Player]) -> list[_Part]:
    """Baselines fork for themselves, so they have another process than the others."""
    is_baseline = {player: as_method(player[0]).is_baseline for player in players}
    parts = [
        _Part(entry, tuple(p for p in players if is_baseline[p] == kind), kind)
        for kind in (False, True)
    ]
    return [part for part in parts if part.players]


def _play(
    missing: Sequence[_Part],
    plan: Plan,
    store: Store,
    workers: int,
    ends: float | None,
    on_module: Callable[[], None],
) -> Iterator[tuple[Entry, Row]]:
    """Yields rows; after a crash, a module continues without the failed method."""
    waiting = list(reversed(missing))
    unfinished = Counter(part.entry.name for part in missing)
    begun: set[str] = set()
    running: dict[int, _Part] = {}
    used_s: dict[tuple[str, bool], float] = {}
    with Pool(workers=workers) as pool:
        while waiting or running:
            if ends is not None and time.monotonic() > ends:
                # What has been begun is finished: a module counts for all.
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
            left = list(part.players)
            for row in outcome.values:
                left.remove((row.method, row.seed))
                yield part.entry, row
            for name, seed in _to_blame(outcome, left):
                left.remove((name, seed))
                yield part.entry, _failed(part.entry, plan, name, seed, outcome)
            if left:
                waiting.append(replace(part, players=tuple(left)))
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


def _to_blame(outcome: Outcome, left: list[Player]) -> list[Player]:
    """The methods that caused a crash: at least one, so that the run terminates."""
    if not outcome.error or outcome.error == TIMEOUT:
        return list(left)
    at_work = [each for each in left if noted(*each) == outcome.note]
    return at_work[:1] or list(left)


def _reason(outcome: Outcome, plan: Plan) -> str:
    """Why there is no row, in a line that starts with a class of errors."""
    if outcome.error == TIMEOUT:
        return (
            f"MeasureTimeout: the module's {plan.module_s:g} s were over before this "
            "was played"
        )
    if outcome.error.startswith("Traceback"):
        return outcome.error.strip().splitlines()[-1][:_LONGEST]
    return "WorkerError: " + " ".join(outcome.error.split())[-_LONGEST:]


def _task(part: _Part, plan: Plan, store: Store) -> Task:
    return Task(
        text=part.entry.text,
        row=_row(part.entry, plan),
        players=part.players,
        settings=plan.settings,
        estimates=plan.estimates,
        measurements=plan.measurements,
        search_s=plan.search_s,
        store=str(version_store(Path(store.path), plan.version)),
        flags=plan.flags,
        record=part.entry.record,
    )


def version_store(path: Path, version: str) -> Path:
    """Where measurements and times of kernels of one version of the code are kept."""
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
        repository=entry.repository,
        entry_point=entry.entry_point,
        extent=entry.extent,
        flags=plan.flags,
        version=plan.version,
        commit=plan.commit,
    )


def _key(entry: Entry, method: str, seed: int, plan: Plan) -> RecordKey:
    machine, settings = this_machine(), plan.settings
    variant = [
        *(method, seed, asdict(settings)),
        *(plan.version, as_method(method).definition, _inputs_of(entry)),
    ]
    if "/search:" in method:
        variant += [plan.estimates, plan.measurements, plan.search_s]
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
