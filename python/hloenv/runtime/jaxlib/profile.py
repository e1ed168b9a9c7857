# SPDX-License-Identifier: Apache-2.0
"""Times of the thunks of a compiled function, from jax's profiler."""

from __future__ import annotations

import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import ExecuteError
from ..step_times import StepTimes

# Of jax's profiler: at this level and above, each thunk is an event.
_LEVEL = 3


@dataclass(frozen=True)
class _Event:
    """One run of a thunk."""

    run: int
    name: str
    start_ns: float
    end_ns: float


def profiled_steps(jax: Any, call: Callable[[], object], repeats: int) -> StepTimes:
    """Runs a compiled function under jax's profiler.

    Args:
        jax: the package.
        call: runs the function once and waits.
        repeats: number of runs.

    Raises:
        ExecuteError: the profiler recorded no run.
    """
    options = jax.profiler.ProfileOptions()
    options.host_tracer_level = _LEVEL
    options.python_tracer_level = 0
    totals = np.empty(repeats)
    with tempfile.TemporaryDirectory() as folder:
        with jax.profiler.trace(folder, profiler_options=options):
            for i in range(repeats):
                started = time.perf_counter_ns()
                call()
                totals[i] = time.perf_counter_ns() - started
        files = list(Path(folder).rglob("*.xplane.pb"))
        events = [
            event
            for file in files
            for event in _events(jax.profiler.ProfileData.from_file(str(file)))
        ]
    by_run: dict[int, list[_Event]] = defaultdict(list)
    for event in events:
        by_run[event.run].append(event)
    if len(by_run) != repeats:
        raise ExecuteError(
            f"jax's profiler recorded {len(by_run)} of {repeats} runs; time fewer runs"
        )
    counts: Counter[str] = Counter(event.name for event in events)
    times = [_self_times(each) for each in by_run.values()]
    durations = [[each.get(name, 0.0) for name in counts] for each in times]
    return StepTimes(
        list(counts),
        np.array(durations, np.float64).reshape(repeats, len(counts)),
        totals,
        tuple(count / repeats for count in counts.values()),
    )


def _events(profile: Any) -> Iterator[_Event]:
    """The thunks, with the time at which each was done.

    A thunk that continues on other threads ends with the event "end: NAME".
    """
    started: dict[int, _Event] = {}
    ends: dict[int, float] = {}
    for plane in profile.planes:
        for line in plane.lines:
            for event in line.events:
                stats = dict(event.stats)
                end_ns = event.start_ns + event.duration_ns
                if "hlo_op" in stats:
                    key = int(stats.get("_p", -1 - len(started)))
                    started[key] = _Event(
                        int(stats.get("run_id", 0)),
                        str(stats["hlo_op"]),
                        event.start_ns,
                        end_ns,
                    )
                elif event.name.startswith("end: ") and "_c" in stats:
                    ends[int(stats["_c"])] = event.start_ns
    for key, each in started.items():
        end_ns = max(each.end_ns, ends.get(key, each.end_ns))
        yield _Event(each.run, each.name, each.start_ns, end_ns)


def _self_times(events: list[_Event]) -> dict[str, float]:
    """The time of each thunk, without that of the thunks that it calls."""
    times: dict[str, float] = defaultdict(float)
    callers: list[_Event] = []
    for each in sorted(events, key=lambda event: (event.start_ns, -event.end_ns)):
        while callers and callers[-1].end_ns < each.end_ns:
            callers.pop()
        duration_ns = each.end_ns - each.start_ns
        times[each.name] += duration_ns
        if callers:
            times[callers[-1].name] -= duration_ns
        callers.append(each)
    return times
