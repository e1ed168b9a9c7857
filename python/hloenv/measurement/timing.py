# SPDX-License-Identifier: Apache-2.0
"""Times compiled modules against a baseline, until the speed-up is known."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..errors import CompileError
from ..runtime.executable import Executable, time_runs
from .statistics import noise_of_rounds, speedup_interval

# A duration is that of several runs where one is shorter than this.
_SHORTEST_NS = 20_000
_MAX_RUNS_AT_ONCE = 1000
# How many copies there are, one number after the other. Each look at the interval is a
# chance to stop on one that is narrow by accident, so there are few.
_COPIES = (3, 5, 8, 12, 18, 24)
# How long the runs of a copy take at first: long beside linking it, which takes about
# 2 % of compiling.
_COPY_NS = 10_000_000
_COPY_SHARE_OF_COMPILE = 0.05
_MIN_ROUNDS, _MAX_ROUNDS = 8, 256
# How much longer than so far they run where that is what the interval needs.
_LONGER = 3
# With a given number of rounds, each copy takes at least so many of them.
_ROUNDS_OF_A_COPY = 4
_MAX_GIVEN_COPIES = 6
# The first run at an address fetches code and memory, which takes milliseconds.
_WARMUP_BELOW_NS = 200_000_000
_MAX_KEPT_BYTES = 2**28


@dataclass(frozen=True)
class Plan:
    """Stopping rules of a timing.

    Attributes:
        repeats: rounds of each module; None to stop by the next three.
        precision: without `repeats`, a module is done if the half-width of the interval
            of its speed-up is below this share of the speed-up,
        give_up_below: or if the whole interval is below this,
        seconds: or if its runs have taken so long.
        seed: of the order of runs, and of the order of linking.
    """

    repeats: int | None = None
    precision: float = 0.01
    give_up_below: float = 0.9
    seconds: float = 2.0
    seed: int = 0


@dataclass
class Timing:
    """One module's runs, and the baseline's in the same rounds.

    Attributes:
        durations_ns: of one run of the module in each round, copy by copy.
        baseline_ns: of one run of the baseline in each round.
        copies: number of rounds of each copy of the code.
        stopped: the stopping rule that applied: "rounds", "precise", "slower", "time".
    """

    durations_ns: list[int] = field(default_factory=list)
    baseline_ns: list[int] = field(default_factory=list)
    copies: list[int] = field(default_factory=list)
    stopped: str = ""


class Copies:
    """An executable and copies of it at other addresses, linked when first asked for.

    They are kept, unless their scratch memory is large: a new copy would reuse the
    addresses of a freed one, and not be another sample of addresses. Keep the object to
    time other modules against the same baseline without linking the copies again.
    """

    def __init__(self, executable: Executable, *, share: float = 1.0):
        """Copy 0 is the executable itself.

        Args:
            executable: the first copy.
            share: of the memory that copies may keep.
        """
        self.executable = executable
        self._kept = [executable]
        scratch_bytes = max(executable._core.temp_bytes, 1)
        self._most_kept = 1 + int(_MAX_KEPT_BYTES * share) // scratch_bytes

    def get(self, index: int) -> Executable:
        """Copy `index`; the executable itself where XLA cannot export its code."""
        if index < len(self._kept):
            return self._kept[index]
        try:
            copy = self.executable.copy()
        except CompileError:  # timed where it is
            copy = self.executable
        if len(self._kept) < self._most_kept:
            self._kept.append(copy)
        return copy


def time_against(
    baseline: Copies,
    modules: Sequence[Executable],
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
    for copy, rounds, is_look in session.steps():
        session.time_copy(copy, rounds)
        session.look(is_look=is_look)
        if session.is_done:
            break
    return session.timings()


class _Session:
    def __init__(
        self,
        baseline: Copies,
        modules: Sequence[Executable],
        inputs: Sequence[Any],
        plan: Plan,
    ):
        self._all = [baseline.executable, *modules]
        share = 1 / len(modules)
        self._copies = [baseline, *(Copies(each, share=share) for each in modules)]
        self._inputs = inputs
        self._plan = plan
        self._rng = np.random.default_rng(plan.seed)
        # For each module its copies, each with the durations of both sides.
        self._durations: list[list[tuple[list[int], list[int]]]] = [[] for _ in modules]
        self._stopped = [""] * len(modules)
        self._started_ns = time.perf_counter_ns()
        self._run_ns = self._try_out()
        # The same for all: the first of several runs is not like the others.
        self._batch = min(max(1, _SHORTEST_NS // min(self._run_ns)), _MAX_RUNS_AT_ONCE)
        # The longest of the modules, in one round.
        self._round_ns = max(self._run_ns) * self._batch
        self._limit_ns = int(plan.seconds * 1e9 * len(self._all))

    def _try_out(self) -> list[int]:
        """About how long one run of each takes, in ns."""
        inputs = [self._inputs] * len(self._all)
        first = time_runs(self._all, inputs, repeats=1, warmup=0)
        if max(int(each[0]) for each in first) < _WARMUP_BELOW_NS:
            # The shorter of two is the less disturbed.
            first = time_runs(self._all, inputs, repeats=2, warmup=1)
        return [max(int(each.min()), 1) for each in first]

    def steps(self) -> Iterator[tuple[int, int, bool]]:
        """Which copy is next, for how many rounds, and whether to look then."""
        repeats = self._plan.repeats
        if repeats is not None:
            count = min(max(1, repeats // _ROUNDS_OF_A_COPY), _MAX_GIVEN_COPIES)
            for copy, rounds in enumerate(np.array_split(np.arange(repeats), count)):
                yield copy, len(rounds), False
            return
        # That each copy has had so far.
        rounds_so_far = self._first_rounds()
        before = 0
        for count in _COPIES:
            for copy in range(before, count):
                yield copy, rounds_so_far, copy == count - 1
            while self._needs_rounds():
                for copy in range(count):
                    yield copy, _LONGER * rounds_so_far, copy == count - 1
                rounds_so_far *= 1 + _LONGER
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
        """Whether all modules are."""
        return not self._active

    def time_copy(self, copy: int, rounds: int) -> None:
        """Times one copy of the baseline and of all modules that are not done."""
        which = [0, *(i + 1 for i in self._active)]
        # Also the order in which their outputs get their memory.
        self._rng.shuffle(which)
        copies = [self._copies[i].get(copy) for i in which]
        results = time_runs(
            copies,
            [self._inputs] * len(which),
            repeats=rounds,
            warmup=int(self._round_ns < _WARMUP_BELOW_NS),
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

    def look(self, *, is_look: bool) -> None:
        """Stops what is done."""
        is_late = time.perf_counter_ns() - self._started_ns > self._limit_ns
        if self._plan.repeats is not None or not (is_look or is_late):
            return
        for i in self._active:
            if len(self._durations[i]) < _COPIES[0]:
                continue
            low, high = speedup_interval(*self._flat(i))
            if high < self._plan.give_up_below:
                self._stopped[i] = "slower"
            elif is_look and high - low < self._plan.precision * (low + high):
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
        """The timings, all with a reason why they ended."""
        timings = []
        for index, why in enumerate(self._stopped):
            theirs, ours, copies = self._flat(index)
            timings.append(Timing(ours, theirs, copies, why or "rounds"))
        return timings
