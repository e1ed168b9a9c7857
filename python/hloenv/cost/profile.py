# SPDX-License-Identifier: Apache-2.0
"""Where the time of a module goes, kernel by kernel."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from ..graph.hlo_graph import HloGraph, opcodes
from ..hlo.module import HloModule
from ..hlo.pipeline import finish
from ..hlo.source import Source
from ..measurement.measurer import measure
from ..measurement.store import Store
from ..process.cpu_affinity import CoreLease, as_if_on
from ..rewrite.sandbox import Sandbox
from ..runtime.executable import Engine, compile
from ..runtime.jaxlib import JaxlibExecutable
from ..runtime.memory import fresh_bytes
from .base import decided_module
from .kernel_cache import KernelCache
from .roofline import Rates

_SECONDS = 0.5  # of the runs of the whole module
_MIN_RUNS, _MAX_RUNS = 3, 50  # under jax's profiler
# What XLA calls a thunk, and what that means.
_EMITTERS = {
    "kernel": "LLVM kernel",
    "dot": "library (Eigen)",
    "convolution": "library (Eigen)",
    "ynn-fusion": "library (YNNPACK)",
    "onednn-fusion": "library (oneDNN)",
    "fft": "library (FFT)",
    "sort": "runtime",
    "topk": "runtime",
    "copy": "copy",
    "custom-call": "custom call",
    "while": "loop",
}
_ONEDNN = "__onednn$"


@dataclass(frozen=True)
class Kernel:
    """One kernel of a module.

    Attributes:
        name: of its instruction, after XLA's passes.
        opcode: of that instruction.
        emitter: what runs it: "LLVM kernel", "library (Eigen)", ...; "" if unknown.
        runs: in one run of the module.
        seconds: of all these runs; NaN if it could not be timed.
        share: of the time of all kernels.
        flops: operations of all runs, with exp, log and the like; NaN if unknown.
        bytes: that all runs read and write; NaN if unknown.
        source: the operation and the source line, from the frontend's metadata.
        transcendentals: exp, log and the like of all runs; NaN if unknown.
    """

    name: str
    opcode: str
    emitter: str
    runs: float
    seconds: float
    share: float
    flops: float
    bytes: float
    source: str
    transcendentals: float = math.nan

    def of_peak(self, rates: Rates) -> float:
        """The largest share of a peak of the machine: of arithmetic or of memory.

        What a run reads and writes beyond the caches counts at the rate of the memory;
        exp, log and the like at their own. 1 means that the machine is the limit; far
        below, that the code is.
        """
        if not self.seconds > 0:
            return math.nan
        in_caches = min(self.bytes, self.runs * rates.cache_bytes)
        bounds_s = (
            self.flops / rates.dot_flops_per_s,
            self.transcendentals / rates.transcendentals_per_s,
            in_caches / rates.cache_bytes_per_s
            + (self.bytes - in_caches) / rates.memory_bytes_per_s,
        )
        known = [each for each in bounds_s if not math.isnan(each)]
        return max(known, default=math.nan) / self.seconds


@dataclass(frozen=True)
class ModuleProfile:
    """Where the time of a module goes.

    Attributes:
        module: its name.
        threads: cores that it ran on.
        seconds: of one run, measured as a whole.
        kernels: those with the largest share first.
        fresh_bytes: memory that a run gets from the system anew, for which the kernels
            wait that write it first; None if unknown.
    """

    module: str
    threads: int
    seconds: float
    kernels: Sequence[Kernel]
    fresh_bytes: int | None = None

    def to_json(self) -> dict[str, Any]:
        """The attributes, JSON-able."""
        return asdict(self)


def profile(
    module: HloModule,
    *,
    threads: int = 1,
    store: Store | None = None,
    engine: Engine = "wheel",
) -> ModuleProfile:
    """Times a module, and each of its kernels.

    The module runs as `hloenv.compile` makes it. Kernels of the wheel's XLA are timed
    alone, as by the kernel cache: with operands in the caches. Those of jaxlib are
    timed in runs of the module, by jax's profiler.

    Args:
        module: before or between XLA's passes, or after them.
        threads: cores that it runs on.
        store: of kernel times; known ones are reused.
        engine: the XLA that compiles and runs it, as in `hloenv.compile`.

    Raises:
        ArgumentError: the process has fewer cores than `threads`.
        CompileError: XLA cannot compile the module.
        ImportError: `engine="jaxlib"`, and jax is missing or too old.
        MeasureError: it cannot be timed.
    """
    whole = measure(
        module, threads=threads, seconds=_SECONDS, store=store, engine=engine
    ).check()
    fresh: int | None = None
    if engine == "jaxlib":
        rows, decided, fresh = _timed_in_runs(module, threads)
    else:
        rows, decided = _timed_alone(module, threads, store)
    work = _work_of(decided)
    sources = decided.sources()
    total = math.fsum(
        row["runs"] * row["seconds"] for row in rows if row["seconds"] > 0
    )
    kernels = []
    for row in rows:
        seconds = row["runs"] * row["seconds"]
        flops, moved, others = work.get(row["name"], (math.nan, math.nan, math.nan))
        kernels.append(
            Kernel(
                row["name"],
                row["opcode"],
                row["emitter"],
                row["runs"],
                seconds,
                seconds / total if total else 0.0,
                flops * row["runs"],
                moved * row["runs"],
                str(sources.get(row["name"], Source("", "", 0))),
                others * row["runs"],
            )
        )
    seconds = whole.median_ns * 1e-9
    return ModuleProfile(module.name, threads, seconds, kernels, fresh)


_Rows = list[dict[str, Any]]


def _timed_alone(
    module: HloModule, threads: int, store: Store | None
) -> tuple[_Rows, HloModule]:
    """The kernels of the wheel's XLA, and the module that they are of."""
    with as_if_on(threads):
        final = finish(module)
    emitters = dict(compile(final, finish="none", isolate=True)._core.steps)
    # Of `module`: XLA's passes may fail on what they have finished.
    with KernelCache(threads=threads, store=store) as cache:
        rows = cache.kernels(module)
    for row in rows:
        row["emitter"] = _EMITTERS.get(emitters.get(row["name"], ""), "")
    return rows, decided_module(module, threads=threads)


def _timed_in_runs(module: HloModule, threads: int) -> tuple[_Rows, HloModule, int]:
    """As `run_by_jaxlib`, in a child process."""
    lease = CoreLease(threads)
    function = f"{__name__}:{run_by_jaxlib.__name__}"
    try:
        with Sandbox(cores=lease.cores) as child:
            found: tuple[_Rows, HloModule, int] = child.call(function, module)
    finally:
        lease.release()
    return found


def run_by_jaxlib(module: HloModule) -> tuple[_Rows, HloModule, int]:
    """Times the thunks of runs by jaxlib, in this process.

    Returns:
        For each thunk its "name", "opcode", "emitter", "runs" in one run of the module,
        and "seconds" of each, the most expensive first; the module after jaxlib's
        passes; and the bytes that a run gets from the system anew.
    """
    executable = compile(module, engine="jaxlib", isolate=False)
    assert isinstance(executable, JaxlibExecutable)
    executable.run(1)
    before = fresh_bytes()
    once_s = float(np.median(executable.run(_MIN_RUNS))) * 1e-9
    fresh = (fresh_bytes() - before) // _MIN_RUNS
    rounds = int(np.clip(_SECONDS / max(once_s, 1e-9), _MIN_RUNS, _MAX_RUNS))
    times = executable.time_steps(rounds)
    graph = HloGraph.from_module(executable.module)
    known = opcodes()
    opcode_of = {
        name: known[graph.opcode[i]] for i, name in enumerate(graph.node_names)
    }
    per_run = np.median(times.durations_ns, axis=0) * 1e-9
    # What the profiler itself takes at each thunk.
    excess_s = max(float(per_run.sum()) - once_s, 0.0) / max(sum(times.runs), 1)
    rows = []
    for thunk, runs, seconds in zip(times.names, times.runs, per_run, strict=True):
        # A custom call's thunk has its target after the instruction's name.
        name = thunk.partition(_ONEDNN)[0]
        opcode = opcode_of.get(name, "")
        rows.append(
            {
                "name": name,
                "opcode": opcode,
                "emitter": _emitter_of(thunk, opcode),
                "runs": runs,
                "seconds": max(float(seconds) / runs - excess_s, 0.0),
            }
        )
    rows.sort(key=lambda row: -row["runs"] * row["seconds"])
    return rows, executable.module, fresh


def _emitter_of(name: str, opcode: str) -> str:
    """What runs a thunk of jaxlib, as far as its instruction tells."""
    if name.startswith("ynn_fusion"):
        return _EMITTERS["ynn-fusion"]
    if name.startswith("onednn_fusion") or _ONEDNN in name:
        return _EMITTERS["onednn-fusion"]
    if opcode == "fusion":
        return _EMITTERS["kernel"]
    return _EMITTERS.get(opcode, "")


def _work_of(module: HloModule) -> dict[str, tuple[float, float, float]]:
    """Operations, bytes, and exp and the like of a run of each instruction, by name."""
    graph = HloGraph.from_module(module)
    flops = np.where(graph.flops < 0, math.nan, graph.flops + graph.transcendentals)
    moved = np.where(graph.bytes_accessed < 0, math.nan, graph.bytes_accessed)
    others = np.where(graph.transcendentals < 0, math.nan, graph.transcendentals)
    return {
        name: (float(flops[i]), float(moved[i]), float(others[i]))
        for i, name in enumerate(graph.node_names)
    }
