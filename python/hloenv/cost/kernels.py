# SPDX-License-Identifier: Apache-2.0
"""A module as the kernels that XLA's CPU backend makes of it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
import numpy.typing as npt

from .._native import core
from ..hlo.decided import changed_since
from ..hlo.module import HloModule
from .base import decided_module

# Overhead per thunk of concurrent thunk execution over sequential execution (a few ns),
# if ThunkExecutor runs the sequence as a dataflow graph. Of 55 modules of the
# train split without while loops (9 to 320 thunks, one core): median 32 ns, upper
# quartile 71 ns, 90 % quantile 111 ns.
_GRAPH_STEP_NS = 60.0
# The same with several threads, of which each may wake another: what makes up for the
# measured time of the graph over that of its steps in order. Of 17 modules of the train
# split (7 to 100 kernels, two cores): quartiles 208, 628 and 1,124 ns.
_SHARED_STEP_NS = 600.0


class KernelSplit:
    """The distinct kernels of one module, and how its time is the sum of theirs.

    Loops, calls and conditionals are expanded to the kernels inside them. K kernels.

    Attributes:
        module: after all passes that determine its kernels.
        threads: cores that it will run on.
        fingerprints: [K] equal ones are the same kernel, in other modules too.
    """

    def __init__(self, module: HloModule, *, threads: int = 1) -> None:
        """Runs the rest of XLA's passes that determine the kernels.

        Raises:
            CompileError: a pass fails on the module.
        """
        self.module = decided_module(module, threads=threads)
        self.threads = threads
        self._graph = core.KernelGraph(self.module._core)
        self.fingerprints: list[str] = self._graph.fingerprints

    def __len__(self) -> int:
        return len(self.fingerprints)

    @cached_property
    def names(self) -> list[str]:
        """[K] name of one instruction of each kernel."""
        return list(self._graph.names)

    @cached_property
    def opcodes(self) -> list[str]:
        """[K] opcode of that instruction."""
        return list(self._graph.opcodes)

    @cached_property
    def num_runs(self) -> npt.NDArray[np.float64]:
        """[K] runs in one run of the module.

        A loop with unknown trip count runs 16 times; the branches of a conditional have
        equal probability.
        """
        return np.array(self._graph.num_runs, np.float64)

    @cached_property
    def overhead_s(self) -> float:
        """Seconds of one run, if no kernel takes time."""
        return self.total_s([0.0] * len(self))

    def total_s(self, kernels_s: Sequence[float] | npt.NDArray[np.float64]) -> float:
        """Seconds of one run of the module.

        If ThunkExecutor runs a computation as a dataflow graph, each kernel costs some
        ns more, and with several threads some hundreds, but the computation ends with
        its last kernel, if each starts as soon as possible.

        Args:
            kernels_s: [K] seconds of one run of each kernel.
        """
        kernels_ns = [float(each) * 1e9 for each in kernels_s]
        step_ns = _GRAPH_STEP_NS if self.threads == 1 else _SHARED_STEP_NS
        total: float = self._graph.total_ns(kernels_ns, self.threads, step_ns)
        return total * 1e-9

    def extract(self, kernels: Sequence[int]) -> HloModule:
        """A module that runs each of `kernels` once, on separate parameters.

        Its result is a tuple; element i is that of `kernels[i]`.
        """
        return HloModule._wrap(
            self._graph.extract(list(kernels)),
            position=self.module.position,
            decided=changed_since(self.module._decided),
        )
