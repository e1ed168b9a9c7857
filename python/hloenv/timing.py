# SPDX-License-Identifier: Apache-2.0
"""Times compiled modules against a baseline, until it is known which is faster."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .errors import CompileError
from .executable import Executable, time_runs
from .intervals import speedup_interval

# A duration is that of several runs where one is shorter than this.
_SHORTEST_NS = 20_000
_MOST_RUNS_AT_ONCE = 1000
# After so many copies the interval is looked at. Each look is a chance to stop on a
# narrow interval that is narrow by accident, so there are few.
_LOOKS = (4, 6, 9, 14, 24)
# How long the runs of one copy take: long beside linking it, which takes about 2 % of
# compiling. The copies after the third look take longer, since these did not do.
_COPY_NS = 20_000_000
_COPY_SHARE_OF_COMPILE = 0.08
_FEWEST_ROUNDS, _MOST_ROUNDS = 8, 256
_LONGER = (1, 2, 4, 4, 4)
# With a given number of rounds, each copy takes at least so many of them.
_ROUNDS_OF_A_COPY = 4
_MOST_GIVEN_COPIES = 12
# The first run at an address fetches code and memory, which takes milliseconds.
_WARMUP_BELOW_NS = 200_000_000
_MOST_KEPT_BYTES = 2**28


@dataclass(frozen=True)
class Plan:
    """How long to go on.

    Attributes:
        repeats: rounds of each module; None for as many as it takes.
        precision: without `repeats`, a module is done when half of the interval of its
            speed-up is narrower than this share of the speed-up,
        give_up_below: or when the whole interval lies below this,
        seconds: or when its runs have taken so long.
        seed: of the order of runs, and of what is linked first.
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
        durations_ns: of one run of the module in each round.
        baseline_ns: of one run of the baseline in each round.
        copies: how many of the rounds each copy of the code took.
        stopped: why it is done: "rounds", "precise", "slower" or "time".
    """

    durations_ns: list[int] = field(default_factory=list)
    baseline_ns: list[int] = field(default_factory=list)
    copies: list[int] = field(default_factory=list)
    stopped: str = ""


class Copies:
    """An executable and copies of it at other addresses, linked when first asked for.

    They are kept, unless their scratch memory is large: the next copy would take the
    place of one that has gone, and be no other sample of where code and memory may
    lie. Keep the object to time other modules against the same baseline: each timing
    is still one with as many different copies, and none of them is linked again.
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
        self._most_kept = 1 + int(_MOST_KEPT_BYTES * share) // scratch_bytes

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

    After some rounds all of them go on as fresh copies at other addresses: see
    `intervals`.

    Returns:
        One timing for each module.
    """
    session = _Session(baseline, modules, inputs, plan)
    for copy, rounds in enumerate(session.rounds_of_copies()):
        session.run_copy(copy, rounds)
        if all(timing.stopped for timing in session.timings):
            break
    return session.finish()


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
        self.timings = [Timing() for _ in modules]
        self._started_ns = time.perf_counter_ns()
        self._run_ns = self._try_out()
        # The same for all: the first of several runs is not like the others.
        self._batch = min(max(1, _SHORTEST_NS // min(self._run_ns)), _MOST_RUNS_AT_ONCE)
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

    def rounds_of_copies(self) -> list[int]:
        """How many rounds each copy takes."""
        repeats = self._plan.repeats
        if repeats is not None:
            count = min(max(1, repeats // _ROUNDS_OF_A_COPY), _MOST_GIVEN_COPIES)
            return [len(each) for each in np.array_split(np.arange(repeats), count)]
        compile_ns = max(each.compile_ns for each in self._all)
        copy_ns = max(_COPY_NS, _COPY_SHARE_OF_COMPILE * compile_ns)
        rounds = np.clip(copy_ns / (2 * self._round_ns), _FEWEST_ROUNDS, _MOST_ROUNDS)
        affordable = self._plan.seconds * 1e9 / (2 * _LOOKS[0] * self._round_ns)
        first = int(max(min(rounds, affordable), 1))
        counts = np.diff(_LOOKS, prepend=0)
        return [
            first * longer
            for longer, count in zip(_LONGER, counts, strict=True)
            for _ in range(count)
        ]

    def run_copy(self, copy: int, rounds: int) -> None:
        """Times one copy of the baseline and of all modules that are not done."""
        active = [i for i, timing in enumerate(self.timings) if not timing.stopped]
        which = [0, *(i + 1 for i in active)]
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
        durations = dict(zip(which, results, strict=True))
        is_late = time.perf_counter_ns() - self._started_ns > self._limit_ns
        for i in active:
            timing = self.timings[i]
            timing.durations_ns += durations[i + 1].tolist()
            timing.baseline_ns += durations[0].tolist()
            timing.copies.append(rounds)
            if self._plan.repeats is None:
                timing.stopped = self._verdict(timing, is_late)
            if timing.stopped:
                self._copies[i + 1] = Copies(self._all[i + 1])  # frees the others

    def _verdict(self, timing: Timing, is_late: bool) -> str:
        count = len(timing.copies)
        is_look = count in _LOOKS
        if not is_look and not (is_late and count > _LOOKS[0]):
            return ""
        low, high = speedup_interval(
            timing.baseline_ns, timing.durations_ns, timing.copies
        )
        if high < self._plan.give_up_below:
            return "slower"
        if is_look and high - low < self._plan.precision * (low + high):
            return "precise"
        return "time" if is_late else ""

    def finish(self) -> list[Timing]:
        """The timings, all with a reason why they ended."""
        for timing in self.timings:
            timing.stopped = timing.stopped or "rounds"
        return self.timings
