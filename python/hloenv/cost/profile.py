# SPDX-License-Identifier: Apache-2.0
"""Where the time of a module goes, kernel by kernel."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from ..graph.hlo_graph import HloGraph
from ..hlo.module import HloModule
from ..hlo.pipeline import finish
from ..hlo.source import Source
from ..measurement.measurer import measure
from ..measurement.store import Store
from ..runtime.executable import compile
from .base import decided_module
from .kernel_cache import KernelCache
from .roofline import Rates

_SECONDS = 0.5  # of the runs of the whole module
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

    def of_peak(self, rates: Rates) -> float:
        """The larger share of the machine's peak: of arithmetic or of memory.

        1 means that the machine is the limit; far below, that the code is.
        """
        if not self.seconds > 0:
            return math.nan
        shares = (
            self.flops / self.seconds / rates.dot_flops_per_s,
            self.bytes / self.seconds / rates.cache_bytes_per_s,
        )
        return max((each for each in shares if not math.isnan(each)), default=math.nan)


@dataclass(frozen=True)
class ModuleProfile:
    """Where the time of a module goes.

    Attributes:
        module: its name.
        threads: cores that it ran on.
        seconds: of one run, measured as a whole.
        kernels: those with the largest share first.
    """

    module: str
    threads: int
    seconds: float
    kernels: Sequence[Kernel]

    def to_json(self) -> dict[str, Any]:
        """The attributes, JSON-able."""
        return asdict(self)


def profile(
    module: HloModule, *, threads: int = 1, store: Store | None = None
) -> ModuleProfile:
    """Times a module, and each of its kernels alone.

    The module runs with the rest of XLA's passes, as `hloenv.compile` makes it. Kernels
    are timed in a child process, as by the kernel cache: with operands in the caches.

    Args:
        module: before or between XLA's passes, or after them.
        threads: cores that it runs on.
        store: of kernel times; known ones are reused.

    Raises:
        ArgumentError: the process has fewer cores than `threads`.
        CompileError: XLA cannot compile the module.
        MeasureError: it cannot be timed.
    """
    final = finish(module)
    emitters = dict(compile(final, finish="none", isolate=True)._core.steps)
    whole = measure(module, threads=threads, seconds=_SECONDS, store=store).check()
    with KernelCache(threads=threads, store=store) as cache:
        rows = cache.kernels(final)
    decided = decided_module(final, threads=threads)
    work = _work_of(decided)
    sources = decided.sources()
    total = math.fsum(
        row["runs"] * row["seconds"] for row in rows if row["seconds"] > 0
    )
    kernels = []
    for row in rows:
        seconds = row["runs"] * row["seconds"]
        flops, moved = work.get(row["name"], (math.nan, math.nan))
        kernels.append(
            Kernel(
                row["name"],
                row["opcode"],
                _EMITTERS.get(emitters.get(row["name"], ""), ""),
                row["runs"],
                seconds,
                seconds / total if total else 0.0,
                flops * row["runs"],
                moved * row["runs"],
                str(sources.get(row["name"], Source("", "", 0))),
            )
        )
    return ModuleProfile(module.name, threads, whole.median_ns * 1e-9, kernels)


def _work_of(module: HloModule) -> dict[str, tuple[float, float]]:
    """Operations and bytes of one run of each instruction, by name."""
    graph = HloGraph.from_module(module)
    flops = np.where(graph.flops < 0, math.nan, graph.flops + graph.transcendentals)
    moved = np.where(graph.bytes_accessed < 0, math.nan, graph.bytes_accessed)
    return {
        name: (float(flops[i]), float(moved[i]))
        for i, name in enumerate(graph.node_names)
    }
