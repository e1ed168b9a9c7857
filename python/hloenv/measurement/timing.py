# SPDX-License-Identifier: Apache-2.0
"""Times compiled modules against a baseline, until the interval is narrow."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..errors import CompileError
from ..runtime.executable import AnyExecutable, time_runs
from .statistics import noise_of_rounds, speedup_interval

# Runs shorter than this are timed in batches.
MIN_DURATION_NS = 20_000
_MAX_RUNS_AT_ONCE = 1000
# Numbers of copies after which the interval is checked. Each check may stop on an
# interval that is narrow by chance, so there are few.
_COPIES = (3, 5, 8, 12, 18, 24)
# Initial run time of a copy: much longer than linking it, which takes about 2 % of the
# compile time.
_COPY_NS = 10_000_000
_COPY_SHARE_OF_COMPILE = 0.05
_MIN_ROUNDS, _MAX_ROUNDS = 8, 256
# Additional rounds of a copy if rounds narrow the interval, relative to those so far.
_MORE_ROUNDS = 3
# Minimum rounds of a copy for a given number of rounds.
_ROUNDS_OF_A_COPY = 4
_MAX_GIVEN_COPIES = 6
# Runs longer than this have no warm-up.
WARMUP_BELOW_NS = 200_000_000
_MAX_KEPT_BYTES = 2**28


@dataclass(frozen=True)
class Plan:
    """Stopping rules of a timing.

    Attributes:
        repeats: rounds of each module; None to stop by the next three.
        precision: without `repeats`, a module is done if the half-width of the interval
            of its speed-up is below this share of the speed-up,
        give_up_below: or if the whole interval is below this,
        seconds: or if the total time of its runs exceeds this.
        seed: of the order of runs, and of the order of linking.
    """

    repeats: int | None = None
    precision: float = 0.01
    give_up_below: float = 0.9
    seconds: float = 2.0
    seed: int = 0


@dataclass
class Timing:
    """Durations of a module and of the baseline in the same rounds.

    Attributes:
        durations_ns: one run of the module in each round, copy by copy.
        baseline_ns: one run of the baseline in each round.
        copies: number of rounds of each copy of the code.
        stopped: the stopping rule that applied: "rounds", "precise", "slower", "time".
    """

    durations_ns: list[int] = field(default_factory=list)
    baseline_ns: list[int] = field(default_factory=list)
    copies: list[int] = field(default_factory=list)
    stopped: str = ""


class Copies:
    """An executable and copies of it at other addresses, linked on first use.

    Copies are kept unless their scratch memory is large: a new copy would reuse the
    addresses of a freed one, and would not be another sample of addresses. Reuse the
    object to time several modules against one baseline without linking again.
    """

    def __init__(self, executable: AnyExecutable, *, share: float = 1.0):
        """Copy 0 is the executable itself.

        Args:
            executable: the first copy.
            share: of the memory limit for kept copies.
        """
        self.executable = executable
        self._kept = [executable]
        scratch_bytes = max(executable.temp_bytes, 1)
        self._max_kept = 1 + int(_MAX_KEPT_BYTES * share) // scratch_bytes

    def get(self, index: int) -> AnyExecutable:
        """Copy `index`; the executable itself if XLA cannot export its code."""
        if index < len(self._kept):
            return self._kept[index]
        try:
            copy = self.executable.copy()
        except CompileError:
            copy = self.executable
        if len(self._kept) < self._max_kept:
            self._kept.append(copy)
        return copy


def time_against(
    baseline: Copies,
    modules: Sequence[AnyExecutable],
    inputs: Sequence[Any],
    plan: Plan,
) -> list[Timing]:
    """Times modules and their baseline in rounds, each round in a random order.

    All of them run as several copies at different addresses: see `statistics`. While
    the interval is too wide, the timing adds either rounds or copies, whichever narrows
    it more.

    Returns:
        One timing for each module.
    """
    session = _Session(baseline, modules, inputs, plan)
    for copy, rounds, is_check in session.steps():
        session.time_copy(copy, rounds)
        session.check(is_check=is_check)
        if session.is_done:
            break
    return session.timings()


class _Session:
    def __init__(
        self,
        baseline: Copies,
        modules: Sequence[AnyExecutable],
        inputs: Sequence[Any],
        plan: Plan,
    ):
        self._all = [baseline.executable, *modules]
        share = 1 / len(modules)
        self._copies = [baseline, *(Copies(each, share=share) for each in modules)]
        self._inputs = inputs
        self._plan = plan
        self._rng = np.random.default_rng(plan.seed)
        # For each module and copy: durations of the module and of the baseline.
        self._durations: list[list[tuple[list[int], list[int]]]] = [[] for _ in modules]
        self._stopped = [""] * len(modules)
        self._started_ns = time.perf_counter_ns()
        self._run_ns = self._estimate_runs()
        # Equal for all, since the first run of a batch differs from the others.
        self._batch = min(
            max(1, MIN_DURATION_NS // min(self._run_ns)), _MAX_RUNS_AT_ONCE
        )
        # Of the slowest module.
        self._round_ns = max(self._run_ns) * self._batch
        self._limit_ns = int(plan.seconds * 1e9 * len(self._all))

    def _estimate_runs(self) -> list[int]:
        """Approximate duration of one run of each, in ns."""
        inputs = [self._inputs] * len(self._all)
        first = time_runs(self._all, inputs, repeats=1, warmup=0)
        if max(int(each[0]) for each in first) < WARMUP_BELOW_NS:
            # The minimum of two runs is less disturbed.
            first = time_runs(self._all, inputs, repeats=2, warmup=1)
        return [max(int(each.min()), 1) for each in first]

    def steps(self) -> Iterator[tuple[int, int, bool]]:
        """Yields the next copy, its rounds, and whether to check afterwards."""
        repeats = self._plan.repeats
        if repeats is not None:
            count = min(max(1, repeats // _ROUNDS_OF_A_COPY), _MAX_GIVEN_COPIES)
            for copy, rounds in enumerate(np.array_split(np.arange(repeats), count)):
                yield copy, len(rounds), False
            return
        # Of each copy.
        rounds_so_far = self._first_rounds()
        before = 0
        for count in _COPIES:
            for copy in range(before, count):
                yield copy, rounds_so_far, copy == count - 1
            while self._needs_rounds():
                for copy in range(count):
                    yield copy, _MORE_ROUNDS * rounds_so_far, copy == count - 1
                rounds_so_far *= 1 + _MORE_ROUNDS
            before = count

    def _first_rounds(self) -> int:
        compile_ns = max(each.compile_ns for each in self._all)
        copy_ns = max(_COPY_NS, _COPY_SHARE_OF_COMPILE * compile_ns)
        rounds = np.clip(copy_ns / (2 * self._round_ns), _MIN_ROUNDS, _MAX_ROUNDS)
        affordable = self._plan.seconds * 1e9 / (2 * _COPIES[0] * self._round_ns)
        return int(max(min(rounds, affordable), 1))

    def _needs_rounds(self) -> bool:
        shares = [noise_of_rounds(*self._flat(i)) for i in self._active]
        return bool(np.mean(shares) > 0.5)

    @property
    def _active(self) -> list[int]:
        return [i for i, why in enumerate(self._stopped) if not why]

    @property
    def is_done(self) -> bool:
        """Whether all modules are done."""
        return not self._active

    def time_copy(self, copy: int, rounds: int) -> None:
        """Times one copy of the baseline and of all modules that are not done."""
        which = [0, *(i + 1 for i in self._active)]
        # Also the order in which the outputs are allocated.
        self._rng.shuffle(which)
        copies = [self._copies[i].get(copy) for i in which]
        results = time_runs(
            copies,
            [self._inputs] * len(which),
            repeats=rounds,
            warmup=int(self._round_ns < WARMUP_BELOW_NS),
            batch=[self._batch] * len(which),
            seed=int(self._rng.integers(2**32)),
        )
        durations = {i: each.tolist() for i, each in zip(which, results, strict=True)}
        for i in self._active:
            groups = self._durations[i]
            if copy == len(groups):
                groups.append(([], []))
            groups[copy][0].extend(durations[i + 1])
            groups[copy][1].extend(durations[0])

    def check(self, *, is_check: bool) -> None:
        """Applies the stopping rules."""
        is_late = time.perf_counter_ns() - self._started_ns > self._limit_ns
        if self._plan.repeats is not None or not (is_check or is_late):
            return
        for i in self._active:
            if len(self._durations[i]) < _COPIES[0]:
                continue
            low, high = speedup_interval(*self._flat(i))
            if high < self._plan.give_up_below:
                self._stopped[i] = "slower"
            elif is_check and high - low < self._plan.precision * (low + high):
                self._stopped[i] = "precise"
            elif is_late:
                self._stopped[i] = "time"
            if self._stopped[i]:
                self._copies[i + 1] = Copies(self._all[i + 1])  # frees the others

    def _flat(self, index: int) -> tuple[list[int], list[int], list[int]]:
        """Durations of the baseline and of a module, and the rounds of each copy."""
        groups = self._durations[index]
        return (
            [each for _, theirs in groups for each in theirs],
            [each for ours, _ in groups for each in ours],
            [len(ours) for ours, _ in groups],
        )

    def timings(self) -> list[Timing]:
        """The timings, with the stopping rule of each."""
        timings = []
        for index, why in enumerate(self._stopped):
            theirs, ours, copies = self._flat(index)
            timings.append(Timing(ours, theirs, copies, why or "rounds"))
        return timings
