# SPDX-License-Identifier: Apache-2.0
"""Goes through modules and contestants; nothing is played twice."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from ..errors import ArgumentError
from ..fuzz.children import TIMEOUT, Job, Outcome, Pool
from ..machine import this_machine
from ..module import HloModule
from ..settings import Settings
from ..store import RecordKey, Store
from .contestants import Contestant
from .play import Task, noted
from .rows import Row

# Errors that say more of the moment than of the contestant.
_PASSING = ("MeasureTimeout", "ImportError", "ModuleNotFoundError", "MemoryError")
_LABELS = ("module", "source", "family", "split")
_LONGEST = 500


@dataclass(frozen=True)
class Entry:
    """A module that is played.

    Attributes:
        name: unique among the entries.
        text: HLO text.
        fingerprint: of the module.
        source: project, "" if unknown.
        family: field of the project, "" if unknown.
        split: of the dataset, "" outside it.
        instruction_count: of all computations.
    """

    name: str
    text: str = field(repr=False)
    fingerprint: str
    source: str = ""
    family: str = ""
    split: str = ""
    instruction_count: int = 0


@dataclass(frozen=True)
class Plan:
    """What is played, and how.

    Attributes:
        contestants: policies and searches.
        seeds: of those that draw random numbers; the others have seed 0.
        settings: how to measure.
        estimates: that a search may make.
        measurements: that a search may make.
        search_s: seconds that a search may propose and estimate; None for no limit.
        module_s: seconds that all contestants together may take on one module; what
            is not done by then is an error.
        again: play what the store has already.
    """

    contestants: tuple[Contestant, ...]
    seeds: tuple[int, ...] = (0,)
    settings: Settings = field(default_factory=Settings)
    estimates: int = 200
    measurements: int = 20
    search_s: float | None = None
    module_s: float = 1800.0
    again: bool = False

    def players(self) -> list[tuple[Contestant, int]]:
        """Contestants with seeds; one seed where it makes no difference."""
        return [
            (contestant, seed)
            for contestant in self.contestants
            for seed in (self.seeds if contestant.is_random else (0,))
        ]


def from_dataset(split: str, *, sources: Sequence[str] = ()) -> list[Entry]:
    """The modules of a split of the dataset."""
    from ..dataset import load

    return [
        Entry(
            f"{record.source}/{record.name}",
            record.text,
            record.fingerprint,
            record.source,
            record.family,
            split,
            record.instruction_count,
        )
        for record in load(split)
        if not sources or record.source in sources
    ]


def from_files(paths: Iterable[Path]) -> list[Entry]:
    """Modules in files, each from a project of its folder's name."""
    entries = []
    for path in paths:
        module = HloModule.from_file(path)
        entries.append(
            Entry(
                f"{path.absolute().parent.name}/{path.stem}",
                module.to_text(),
                module.fingerprint(),
                path.absolute().parent.name,
                instruction_count=module.instruction_count,
            )
        )
    return entries


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

    Rows are saved as they come: a run that was interrupted goes on where it was.

    Args:
        entries: the modules.
        plan: who plays them.
        store: where rows, measurements and times of kernels are kept.
        workers: modules at the same time, each on `plan.settings.threads` cores.
        seconds: no module is started any more after so long.
        on_module: called when a module is done.

    Returns:
        The rows of all modules that were started, in the order of the entries.
    """
    names = Counter(each.name for each in entries)
    if len(names) < len(entries):
        ((name, count),) = names.most_common(1)
        raise ArgumentError(
            f"{count} modules have the name {name!r}, by which results are told apart; "
            "rename a file or its folder"
        )
    ends = None if seconds is None else time.monotonic() + seconds
    rows: dict[str, dict[tuple[str, int], Row]] = {each.name: {} for each in entries}
    missing: list[tuple[Entry, list[tuple[str, int]]]] = []
    for entry in entries:
        players = [(contestant.name, seed) for contestant, seed in plan.players()]
        keys = [_key(entry, *player, plan) for player in players]
        found = [None] * len(keys) if plan.again else store.get_many(keys)
        for player, value in zip(players, found, strict=True):
            if value is not None:
                # The module may have been played under another name.
                own = {key: getattr(_row(entry, plan), key) for key in _LABELS}
                rows[entry.name][player] = replace(Row.from_json(value), **own)
        todo = [each for each in players if each not in rows[entry.name]]
        if todo:
            missing.append((entry, todo))
        else:
            on_module()
    for entry, row in _play(missing, plan, store, workers, ends, on_module):
        # What another run may not meet is tried again.
        if not row.error.startswith(_PASSING):
            store.put(_key(entry, row.contestant, row.seed, plan), row.to_json())
        rows[entry.name][row.contestant, row.seed] = row
    return [row for each in rows.values() for row in each.values()]


def _play(
    missing: list[tuple[Entry, list[tuple[str, int]]]],
    plan: Plan,
    store: Store,
    workers: int,
    ends: float | None,
    on_module: Callable[[], None],
) -> Iterator[tuple[Entry, Row]]:
    """Rows as they come; a module whose process dies goes on without the cause."""
    waiting = list(reversed(missing))
    running: dict[int, tuple[Entry, list[tuple[str, int]]]] = {}
    used_s: dict[str, float] = {}
    with Pool(workers=workers) as pool:
        while waiting or running:
            while waiting and len(running) < workers:
                if ends is not None and time.monotonic() > ends:
                    # What has been begun is finished: a module counts for all.
                    waiting = [each for each in waiting if each[0].name in used_s]
                    if not waiting:
                        break
                entry, players = waiting.pop()
                job = Job(
                    "hloenv.bench.play:play",
                    (_task(entry, players, plan, store),),
                    timeout_s=max(plan.module_s - used_s.get(entry.name, 0.0), 1.0),
                )
                running[pool.submit(job)] = (entry, players)
            if not running:
                return
            outcome = pool.next()
            entry, players = running.pop(outcome.index)
            used_s[entry.name] = used_s.get(entry.name, 0.0) + outcome.seconds
            left = list(players)
            for row in outcome.values:
                left.remove((row.contestant, row.seed))
                yield entry, row
            for name, seed in _to_blame(outcome, left):
                left.remove((name, seed))
                error = _reason(outcome, plan)
                yield (
                    entry,
                    replace(_row(entry, plan), contestant=name, seed=seed, error=error),
                )
            if left:
                waiting.append((entry, left))
            else:
                on_module()


def _to_blame(outcome: Outcome, left: list[tuple[str, int]]) -> list[tuple[str, int]]:
    """Whom the process died of: at least one, so that it comes to an end."""
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


def _task(
    entry: Entry, players: list[tuple[str, int]], plan: Plan, store: Store
) -> Task:
    return Task(
        text=entry.text,
        row=_row(entry, plan),
        players=tuple(players),
        settings=plan.settings,
        estimates=plan.estimates,
        measurements=plan.measurements,
        search_s=plan.search_s,
        store=str(store.path),
    )


def _row(entry: Entry, plan: Plan) -> Row:
    return Row(
        module=entry.name,
        fingerprint=entry.fingerprint,
        source=entry.source,
        family=entry.family,
        split=entry.split,
        contestant="",
        seed=0,
        threads=plan.settings.threads,
    )


def _key(entry: Entry, contestant: str, seed: int, plan: Plan) -> RecordKey:
    machine, settings = this_machine(), plan.settings
    variant = [contestant, seed, asdict(settings)]
    if "/search:" in contestant:
        variant += [plan.estimates, plan.measurements, plan.search_s]
    return RecordKey(
        kind="bench",
        fingerprint=entry.fingerprint,
        finish="",
        flags=machine.flags,
        target="cpu",
        machine=machine.id,
        variant=json.dumps(variant),
    )
