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
_ROUNDS_OF_A_COPY = 8
_MOST_COPIES = 24
_FEWEST_COPIES = 6
# With a given number of rounds, each copy takes at least so many.
_FEWEST_ROUNDS = 4


@dataclass(frozen=True)
class Plan:
    """How long to go on.

    Attributes:
        repeats: rounds of each module; None for as many as it takes.
        precision: without `repeats`, a module is done when half of the interval of its
            speed-up is narrower than this,
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


def time_against(
    baseline: Executable,
    modules: Sequence[Executable],
    inputs: Sequence[Any],
    plan: Plan,
) -> list[Timing]:
    """Times modules and their baseline in rounds, each round in a random order.

    After some rounds all of them go on as fresh copies at other addresses, linked in a
    random order: see `intervals`.

    Returns:
        One timing for each module.
    """
    session = _Session(baseline, modules, inputs, plan)
    for rounds in session.rounds_of_copies():
        session.run_copy(rounds)
        if all(timing.stopped for timing in session.timings):
            break
    return session.finish()


class _Session:
    def __init__(
        self,
        baseline: Executable,
        modules: Sequence[Executable],
        inputs: Sequence[Any],
        plan: Plan,
    ):
        self._all = [baseline, *modules]
        self._inputs = inputs
        self._plan = plan
        self._rng = np.random.default_rng(plan.seed)
        self.timings = [Timing() for _ in modules]
        tried = time_runs(self._all, [inputs] * len(self._all), repeats=2, warmup=1)
        # One run, in ns; the shorter of two is the less disturbed.
        self._run_ns = [max(int(each.min()), 1) for each in tried]
        self._batch = [
            min(max(1, _SHORTEST_NS // run_ns), _MOST_RUNS_AT_ONCE)
            for run_ns in self._run_ns
        ]
        self._deadline_ns = time.perf_counter_ns() + int(
            plan.seconds * 1e9 * len(self._all)
        )

    def rounds_of_copies(self) -> list[int]:
        """How many rounds each copy takes."""
        repeats = self._plan.repeats
        if repeats is not None:
            copies = min(max(1, repeats // _FEWEST_ROUNDS), _MOST_COPIES // 2)
            return [len(each) for each in np.array_split(np.arange(repeats), copies)]
        round_ns = max(
            run_ns * batch
            for run_ns, batch in zip(self._run_ns, self._batch, strict=True)
        )
        affordable = self._plan.seconds * 1e9 / (2 * _FEWEST_COPIES * round_ns)
        return [int(np.clip(affordable, 1, _ROUNDS_OF_A_COPY))] * _MOST_COPIES

    def run_copy(self, rounds: int) -> None:
        """Times one copy of the baseline and of all modules that are not done."""
        active = [i for i, timing in enumerate(self.timings) if not timing.stopped]
        which = [0, *(i + 1 for i in active)]
        baseline_ns, *durations = time_runs(
            self._copies(which),
            [self._inputs] * len(which),
            repeats=rounds,
            warmup=1,
            batch=[self._batch[i] for i in which],
            seed=int(self._rng.integers(2**32)),
        )
        is_late = time.perf_counter_ns() > self._deadline_ns
        for i, durations_ns in zip(active, durations, strict=True):
            timing = self.timings[i]
            timing.durations_ns += durations_ns.tolist()
            timing.baseline_ns += baseline_ns.tolist()
            timing.copies.append(rounds)
            if self._plan.repeats is None:
                timing.stopped = self._verdict(timing, is_late)

    def _verdict(self, timing: Timing, is_late: bool) -> str:
        count = len(timing.copies)
        if count < _FEWEST_COPIES or (count % 2 and not is_late):
            return ""
        low, high = speedup_interval(
            timing.baseline_ns, timing.durations_ns, timing.copies
        )
        if high - low < 2 * self._plan.precision:
            return "precise"
        if high < self._plan.give_up_below:
            return "slower"
        return "time" if is_late else ""

    def _copies(self, which: Sequence[int]) -> list[Executable]:
        copies: dict[int, Executable] = {}
        for position in self._rng.permutation(len(which)):
            executable = self._all[which[position]]
            try:
                copies[position] = executable.copy()
            except CompileError:  # code that XLA cannot export is timed where it is
                copies[position] = executable
        return [copies[position] for position in range(len(which))]

    def finish(self) -> list[Timing]:
        """The timings, all with a reason why they ended."""
        for timing in self.timings:
            timing.stopped = timing.stopped or "rounds"
        return self.timings
