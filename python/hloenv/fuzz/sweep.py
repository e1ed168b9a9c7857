# SPDX-License-Identifier: Apache-2.0
"""Checks cells of the matrix in child processes, within a time budget.

Missing cells are checked, the cheapest modules first. Kinds of checks alternate by the
time that each has used, so that a run that ends early covers all kinds, passes and
variants.
"""

from __future__ import annotations

import hashlib
import json
import random
import re
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from .._native import core
from ..process.forkserver import TIMEOUT, Job, Outcome, Pool
from .cells import Plan
from .invariants import Report
from .results import Results, Row
from .subjects import Subject
from .versions import FUNCTIONS

# Shares of the time budget by kind.
_SHARES = {"structure": 0.35, "values": 0.45, "compiled": 0.15, "default": 0.05}
# Shares of the tasks of a sample; "compiled" tasks take longest.
_SAMPLE_SHARES = {"structure": 0.45, "values": 0.4, "compiled": 0.1, "default": 0.05}
_MAX_REASON = 200
# Stages in which a crash of XLA is not a violation: users compile in a child process.
_CONTAINED = ("compile decided", "compile in float64")
# The stage in which a child compiles or runs the original module.
_OF_ORIGINAL = "expected"


@dataclass(frozen=True)
class Limits:
    """Limits of one check.

    Attributes:
        timeout_s: seconds for one cell.
        max_memory_bytes: bytes of a child.
        workers: number of concurrent children.
        nice: how much to lower their priority.
    """

    timeout_s: float = 60.0
    max_memory_bytes: int = 6 << 30
    workers: int = 2
    nice: int = 10


@dataclass(frozen=True)
class Task:
    """Passes to check on one module at one variant, in one child."""

    kind: str
    subject: Subject
    variant: str
    passes: tuple[str, ...]

    def job(self, limits: Limits) -> Job:
        """Returns the call for a child process."""
        arguments: tuple[object, ...] = (self.subject.text, self.variant, self.passes)
        if self.kind in ("values", "compiled"):
            arguments = (*arguments, self.subject.ranges)
        return Job(
            f"hloenv.fuzz.matrix:{FUNCTIONS[self.kind]}",
            arguments,
            limits.timeout_s,
            limits.max_memory_bytes,
            is_timed_by_value=True,
        )


def missing_tasks(
    plan: Plan,
    results: Results,
    kind: str,
    shard: tuple[int, int] = (0, 1),
    *,
    is_first: bool | None = None,
) -> Iterator[Task]:
    """Yields tasks of one kind without results, the cheapest modules first.

    Args:
        plan: the wanted cells.
        results: the known results.
        kind: of check.
        shard: (I, N) for part I of N of the modules, from 0.
        is_first: True for the cells checked on every module first, False for the
            remaining ones, None for both in this order.
    """
    if is_first is None:
        for each in (True, False):
            yield from missing_tasks(plan, results, kind, shard, is_first=each)
        return
    index, count = shard
    for subject in plan.subjects(kind):
        if int(subject.fingerprint[:8], 16) % count != index:
            continue
        for variant, names in plan.cells(kind, subject, is_first=is_first).items():
            left = [
                name
                for name in names
                if (kind, subject.fingerprint, variant, name) not in results
            ]
            if left:
                yield Task(kind, subject, variant, tuple(left))


def sampled_tasks(
    plan: Plan, seed: str, *, max_instructions: int, num_passes: int
) -> Iterator[Task]:
    """Yields random tasks endlessly; deterministic in the seed.

    Args:
        plan: what is wanted.
        seed: draws them.
        max_instructions: of a module.
        num_passes: of a task.
    """
    kinds = list(plan.extents)
    shares = [_SAMPLE_SHARES[kind] for kind in kinds]
    small = {
        kind: [
            subject
            for subject in sorted(plan.subjects(kind), key=lambda s: s.fingerprint)
            if subject.instruction_count <= max_instructions
        ]
        for kind in kinds
    }
    number = 0
    while True:
        rng = random.Random(f"{seed} {number}")
        number += 1
        (kind,) = rng.choices(kinds, shares)
        subject = rng.choice(small[kind])
        cells = plan.cells(kind, subject)
        variant = rng.choice(sorted(cells))
        names = cells[variant]
        chosen = tuple(rng.sample(names, min(num_passes, len(names))))
        yield Task(kind, subject, variant, chosen)


class Sweep:
    """Runs tasks in child processes and stores their results.

    Attributes:
        num_cells: number of checked cells.
        seconds: of child processes, by kind.
    """

    def __init__(
        self,
        results: Results,
        *,
        name: str,
        limits: Limits | None = None,
        failures: Path | None = None,
    ) -> None:
        """Does not run anything.

        Args:
            results: stores the rows.
            name: name of the file to append to.
            limits: of each check.
            failures: a folder for modules with violations.
        """
        self.results = results
        self.limits = limits or Limits()
        self.num_cells = 0
        self.seconds: dict[str, float] = defaultdict(float)
        self._name = name
        self._failures = failures

    def run(
        self,
        queues: Sequence[Iterator[Task]],
        *,
        seconds: float,
        progress: Callable[[Sweep], None] = lambda _: None,
    ) -> bool:
        """Runs the tasks, each time from the queue whose kind has used the least time.

        Args:
            queues: tasks; each queue in its own order.
            seconds: time after which no task is started and running children are ended.
            progress: called after each task.

        Returns:
            Whether the queues are empty.
        """
        deadline = time.monotonic() + seconds
        waiting = _Queues(queues)
        running: dict[int, Task] = {}
        with Pool(workers=self.limits.workers, nice=self.limits.nice) as pool:
            while True:
                while len(running) < self.limits.workers + 1:
                    task = waiting.take(self.seconds)
                    if task is None:
                        break
                    running[pool.submit(task.job(self.limits))] = task
                if not running:
                    return True
                outcome = pool.next(timeout_s=deadline - time.monotonic())
                if outcome is None:
                    return False
                task = running.pop(outcome.index)
                self.seconds[task.kind] += outcome.seconds
                if rest := self._take(pool, task, outcome):
                    waiting.put_back(rest)
                progress(self)

    def _take(self, pool: Pool, task: Task, outcome: Outcome) -> Task | None:
        """Stores a child's results; returns the task of its unchecked cells."""
        rows = [self._row(task, report) for report in outcome.values]
        left = task.passes[len(rows) :]
        if outcome.error and left:
            if not outcome.started:
                rows += [self._ended(task, outcome, each) for each in left]
                left = ()
            else:
                rows.append(self._ended(task, outcome, left[0]))
                left = left[1:]
        self.results.add(rows, self._name)
        self.num_cells += len(rows)
        for row in rows:
            if row.violations and self._failures is not None:
                _save_failure(pool, self._failures, task, row)
        return replace(task, passes=left) if left else None

    def _row(self, task: Task, report: Report) -> Row:
        skipped = Counter(general(each, task) for each in report.skipped)
        return self._new(task, report, skipped)

    def _new(self, task: Task, report: Report, skipped: Mapping[str, int]) -> Row:
        row = Row(
            task.kind,
            task.subject.fingerprint,
            task.subject.name,
            task.variant,
            report.passes,
            self.results.versions.of(task.kind, report.passes),
            report.num_alternatives,
            report.num_checks,
            report.violations,
            dict(skipped),
            report.whole,
            tensorflow=core.tensorflow_version,
        )
        return self.results.stamped(row)

    def _ended(self, task: Task, outcome: Outcome, passes: str) -> Row:
        """The row of a cell whose child did not finish."""
        stage = re.sub(r" \[[-\d, ]*\]$", "", outcome.note)
        lines = outcome.error.strip().splitlines() or [""]
        # Only XLA's texts are generalized: only they may name the module.
        words = ""
        if outcome.error == TIMEOUT:
            reason = f"timeout: {stage.split(' ')[0]}"
        elif "MemoryError" in outcome.error or "bad_alloc" in outcome.error:
            reason = f"memory limit: {stage.split(' ')[0]}"
        elif not outcome.started:
            reason = f"XLA crashed before any decision: {stage}: "
            words = outcome.last_line
        elif outcome.note.startswith(_OF_ORIGINAL):
            reason = f"XLA crashed on the original module: {stage}: "
            words = outcome.last_line
        elif outcome.note.startswith(_CONTAINED):
            reason = "XLA crashed on the decided module: "
            words = f"{lines[0]} {outcome.last_line}"
        else:
            text = f"crash: {outcome.note[:300]}: {lines[0]} {outcome.last_line}"
            report = Report(passes, 0, (text[:2000],))
            return self._row(task, report)
        reason = (reason + general(words, task))[:_MAX_REASON]
        return self._new(task, Report(passes, 0), {reason: 1})


class _Queues:
    """Several queues; the next task is from the one that has used the least time."""

    def __init__(self, queues: Sequence[Iterator[Task]]) -> None:
        self._queues = list(queues)
        self._heads: list[Task | None] = [None] * len(queues)
        self._returned: list[Task] = []

    def take(self, seconds: dict[str, float]) -> Task | None:
        if self._returned:
            return self._returned.pop()
        for i, queue in enumerate(self._queues):
            if self._heads[i] is None:
                self._heads[i] = next(queue, None)
        heads = [(i, head) for i, head in enumerate(self._heads) if head is not None]
        if not heads:
            return None
        i, head = min(heads, key=lambda h: seconds[h[1].kind] / _SHARES[h[1].kind])
        self._heads[i] = None
        # Running tasks count as well, so that queues alternate.
        seconds[head.kind] += 1e-3
        return head

    def put_back(self, task: Task) -> None:
        self._returned.append(task)


def general(reason: str, task: Task) -> str:
    """Removes details of one module from a reason, to count equal reasons."""
    name = rf"(?<!\w){re.escape(task.subject.name)}(?!\w)"
    text = re.sub(name, "…", " ".join(reason.split()))
    text = re.sub(r"module '[^']*'", "module '…'", text)
    text = re.sub(r"(?<!\w)'[^'\s]*[.\d][^'\s]*'|%[\w.\-]+", "'…'", text)
    text = re.sub(r"\b\w+\[[\d,]*\](\{[\d,]*\})?", "SHAPE", text)
    text = re.sub(r"\{[\d, ]+\}|\b\d+ (elements|dimensions)", "N", text)
    return text[:_MAX_REASON]


def _save_failure(pool: Pool, folder: Path, task: Task, row: Row) -> None:
    """Writes the captured module and its violations."""
    folder.mkdir(parents=True, exist_ok=True)
    key = "|".join((*row.key, row.version))
    name = re.sub(r"[^\w]+", "-", f"{row.kind}-{row.passes}")[:60]
    name += "-" + hashlib.sha256(key.encode()).hexdigest()[:8]
    text, variant = task.subject.text, task.variant
    outcome = pool.run(Job("hloenv.fuzz.matrix:text_at", (text, variant), 60.0))
    if not outcome.error:
        text, variant = outcome.value, "raw"
    (folder / f"{name}.hlo").write_text(text + "\n", encoding="utf-8")
    data = json.loads(row.to_json()) | {"file": f"{name}.hlo", "file_variant": variant}
    (folder / f"{name}.json").write_text(json.dumps(data, indent=1), encoding="utf-8")
