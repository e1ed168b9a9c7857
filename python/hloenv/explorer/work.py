# SPDX-License-Identifier: Apache-2.0
"""Long work of a session: estimates, measurements, XLA's own pipeline.

Each function runs in a child process of its own, which is ended to cancel it. It takes
pickled modules and a path to which it writes its progress, one JSON line at a time.
"""

from __future__ import annotations

import contextlib
import json
import math
import pickle
import re
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from .._native import core
from ..cost.base import decided_module
from ..cost.kernel_cache import KernelCache
from ..errors import HloEnvError
from ..hlo.module import HloModule
from ..hlo.passes import list_passes
from ..measurement.measurer import measure as measure_modules
from ..measurement.store import Store
from ..rewrite.alternatives import Alternatives
from ..rewrite.interception import LiveStage, intercept
from .graph_data import graph_data
from .schema import (
    CompareResult,
    DecisionDifference,
    EstimateResult,
    GraphData,
    KernelDifference,
    KernelRow,
    MeasureResult,
    RankResult,
    StageRow,
    Timeline,
)

_POLL_S = 0.2
_NUMBER = re.compile(r"(\.\d+)+$")


class Progress:
    """Writes how far work is, for the process that shows it."""

    def __init__(self, path: str) -> None:
        self._path = Path(path)

    def __call__(self, phase: str, done: int = 0, total: int = 0) -> None:
        """Notes a phase, and how many of its parts are done; 0 if unknown."""
        line = json.dumps({"phase": phase, "done": done, "total": total})
        with self._path.open("a", encoding="utf-8") as file:
            file.write(line + "\n")


@contextlib.contextmanager
def _store(path: str | None) -> Iterator[Store | None]:
    """The store of a path; "" is the usual one, None is none."""
    if path is None:
        yield None
        return
    with Store(Path(path) if path else None) as store:
        yield store


@contextlib.contextmanager
def _polled(read: Callable[[], int], say: Callable[[int], None]) -> Iterator[None]:
    """Reports a number several times a second, from another thread."""
    is_done = threading.Event()

    def watch() -> None:
        while not is_done.wait(_POLL_S):
            say(read())

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        is_done.set()
        watcher.join()


def estimate(
    progress_path: str, default: bytes, decided: bytes, store: str | None, threads: int
) -> tuple[EstimateResult, GraphData | None]:
    """Estimates of XLA's default and of the decisions, and the final module's graph."""
    progress = Progress(progress_path)
    modules: list[HloModule] = [pickle.loads(default), pickle.loads(decided)]
    progress("running XLA's passes")
    total = sum(_num_kernels(each, threads) for each in modules)
    with (
        _store(store) as known,
        KernelCache(threads=threads, store=known) as cache,
        _polled(
            lambda: cache.num_timed,
            lambda done: progress("timing kernels", done, max(total, done)),
        ),
    ):
        first, second = cache.estimate_many(modules)
        rows = cache.kernels(modules[1]) if second.is_ok else []
    final = decided_module(modules[1], threads=threads) if second.is_ok else None
    sources = final.sources() if final is not None else {}
    kernels: list[KernelRow] = [
        {
            "name": row["name"],
            "opcode": row["opcode"],
            "runs": row["runs"],
            "seconds": _zero_if_unknown(row["runs"] * row["seconds"]),
            "source": str(sources[row["name"]]) if row["name"] in sources else "",
        }
        for row in rows
    ]
    graph = None
    if final is not None:
        times = {row["name"]: row["seconds"] for row in kernels}
        graph = graph_data(final, kernel_s=times)
    result: EstimateResult = {
        "default_s": _known(first.seconds),
        "decided_s": _known(second.seconds),
        "kernels": kernels,
        "error": first.error or second.error,
    }
    return result, graph


def _num_kernels(module: HloModule, threads: int) -> int:
    try:
        graph = core.KernelGraph(decided_module(module, threads=threads)._core)
    except HloEnvError:
        return 0
    return len(set(graph.fingerprints))


def measure(
    progress_path: str, default: bytes, decided: bytes, store: str | None, threads: int
) -> MeasureResult:
    """Times the decided module against XLA's default, and compares the outputs."""
    Progress(progress_path)("compiling both modules, then timing them in turns")
    modules: list[HloModule] = [pickle.loads(default), pickle.loads(decided)]
    with _store(store) as known:
        found = measure_modules(
            modules[1], baseline=modules[0], threads=threads, store=known
        )
    low, high = found.speedup_interval
    outputs = "" if found.outputs is None else str(found.outputs)
    return {
        "default_s": _known(found.baseline_median_ns * 1e-9),
        "decided_s": _known(found.median_ns * 1e-9),
        "speedup": _known(found.speedup),
        "low": _known(low),
        "high": _known(high),
        "outputs": outputs,
        "error": "" if found.error is None else str(found.error),
    }


def rank(
    progress_path: str,
    alternatives: bytes,
    xla: bytes,
    pairs: Sequence[tuple[int, int]],
    store: str | None,
    threads: int,
) -> RankResult:
    """Estimates single choices, everything else left to XLA.

    Args:
        progress_path: of the progress.
        alternatives: pickled.
        xla: [A] what "left to XLA" means, pickled.
        pairs: alternative and choice of each; 0 forbids XLA the rewrite.
        store: of kernel times.
        threads: cores of a run.
    """
    progress = Progress(progress_path)
    captured: Alternatives = pickle.loads(alternatives)
    undecided = pickle.loads(xla)
    timed: list[list[float]] = []
    error = ""
    with _store(store) as known, KernelCache(threads=threads, store=known) as cache:
        progress("estimating XLA's default", 0, len(pairs))
        default = cache.estimate(captured.apply(undecided, partial=True))
        for done, (index, choice) in enumerate(pairs):
            if not default.is_ok:
                break
            progress("estimating choices", done, len(pairs))
            decisions = undecided.copy()
            decisions[index] = choice
            found = cache.estimate(captured.apply(decisions, partial=True))
            if found.is_ok:
                timed.append([index, choice, found.seconds - default.seconds])
            error = error or found.error
    return {
        "default_s": _known(default.seconds),
        "timed": timed,
        "error": default.error or (error if not timed else ""),
    }


def compare(
    progress_path: str,
    first: bytes,
    second: bytes,
    names: tuple[str, str],
    decisions: list[DecisionDifference],
    store: str | None,
    threads: int,
) -> CompareResult:
    """The kernels in which two modules differ, the largest gains first.

    Args:
        progress_path: of the progress.
        first: the module of the first method, pickled.
        second: of the second method.
        names: of the methods.
        decisions: in which they differ.
        store: of kernel times.
        threads: cores of a run.
    """
    progress = Progress(progress_path)
    modules: list[HloModule] = [pickle.loads(first), pickle.loads(second)]
    rows: list[list[dict[str, Any]]] = []
    with (
        _store(store) as known,
        KernelCache(threads=threads, store=known) as cache,
        _polled(lambda: cache.num_timed, lambda done: progress("timing kernels", done)),
    ):
        estimates = cache.estimate_many(modules)
        for module, each in zip(modules, estimates, strict=True):
            rows.append(cache.kernels(module) if each.is_ok else [])
    is_ok = all(each.is_ok for each in estimates)
    return {
        "first": names[0],
        "second": names[1],
        "first_s": _known(estimates[0].seconds),
        "second_s": _known(estimates[1].seconds),
        "differences": kernel_differences(*rows) if is_ok else [],
        "decisions": decisions,
        "error": estimates[0].error or estimates[1].error,
    }


def kernel_differences(
    first: Sequence[dict[str, Any]], second: Sequence[dict[str, Any]]
) -> list[KernelDifference]:
    """What only one module runs, or runs more often, by name; by gain.

    Kernels that both run equally often cancel out. Those that are left are grouped by
    their names without numbers ("add_reduce_fusion"), which say what is computed:
    nothing says which kernel of one module became which of the other.
    """
    runs: dict[str, float] = {}
    example: dict[str, dict[str, Any]] = {}
    names: dict[tuple[int, str], list[str]] = {}
    for side, (rows, sign) in enumerate(((first, -1.0), (second, 1.0))):
        for row in rows:
            key = row["fingerprint"]
            runs[key] = runs.get(key, 0.0) + sign * row["runs"]
            example[key] = row
            names.setdefault((side, key), []).append(row["name"])
    groups: dict[str, KernelDifference] = {}
    for key, difference in runs.items():
        if difference == 0:
            continue
        row = example[key]
        seconds = _zero_if_unknown(abs(difference) * row["seconds"])
        stem = _NUMBER.sub("", row["name"])
        group = groups.setdefault(
            stem,
            {
                "name": stem,
                "opcode": row["opcode"],
                "names_first": [],
                "names_second": [],
                "first_s": 0.0,
                "second_s": 0.0,
                "gain_s": 0.0,
            },
        )
        if difference < 0:
            group["first_s"] += seconds
            group["names_first"] += names[0, key]
        else:
            group["second_s"] += seconds
            group["names_second"] += names[1, key]
    for group in groups.values():
        group["gain_s"] = group["first_s"] - group["second_s"]
    return sorted(groups.values(), key=lambda each: -abs(each["gain_s"]))


def timeline(
    progress_path: str, module: bytes, target: str
) -> tuple[Timeline, dict[int, tuple[bytes, bytes]]]:
    """XLA's own pipeline on a module, and the modules around each pass that changed it.

    Args:
        progress_path: of the progress.
        module: at the start of the pipeline.
        target: as for `hloenv.intercept`.
    """
    progress = Progress(progress_path)
    start: HloModule = pickle.loads(module)
    known = frozenset(list_passes())
    stages: list[StageRow] = []
    around: dict[int, tuple[bytes, bytes]] = {}
    current = start
    current_bytes = start.to_bytes()
    cost = start.cost()
    with intercept(start, target=target) as pipeline:
        for stage in pipeline:
            row = _run_stage(stage, known)
            if row["changed"]:
                after = pipeline.stage.module if pipeline.stage else pipeline.module
                after_bytes = after.to_bytes()
                around[len(stages)] = (current_bytes, after_bytes)
                current, current_bytes = after, after_bytes
                with contextlib.suppress(HloEnvError):
                    cost = after.cost()
            row["instructions"] = current.instruction_count
            row["flops"], row["bytes"] = _known(cost.flops), _known(cost.bytes)
            stages.append(row)
            progress(f"pass {stage.path}", len(stages))
    return (
        {
            "target": target,
            "first_instructions": start.instruction_count,
            "stages": stages,
        },
        around,
    )


def _run_stage(stage: LiveStage, known: frozenset[str]) -> StageRow:
    begin = time.perf_counter()
    changed = stage.run()
    return {
        "index": stage.index,
        "name": stage.name,
        "path": stage.path,
        "occurrence": stage.path_occurrence,
        "changed": changed,
        "seconds": time.perf_counter() - begin,
        "instructions": 0,
        "flops": None,
        "bytes": None,
        "is_decidable": stage.name in known,
    }


def _known(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _zero_if_unknown(value: float) -> float:
    return value if math.isfinite(value) else 0.0
