# SPDX-License-Identifier: Apache-2.0
"""Results of passes, computed once for each module and pass.

Episodes reach the same modules over and over. A `Node` stands for a module; the module
itself is kept while there is room, and is else made again from the node before it.

Fingerprints ignore dead code, instructions that nothing needs, but counts and passes do
not. So it is removed from the start and after each pass: equal fingerprints are equal
counts, and a pass is rewarded for what it leaves.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from .._typing import Int64Array
from ..errors import ForkError, HloEnvError, MeasureTimeout, WorkerError
from ..graph.hlo_graph import opcodes
from ..hlo.module import HloModule, ModuleCost
from ..hlo.passes import Pass, PassRun, Pipeline, run_passes

Runner = Callable[..., PassRun]
# Observations that are kept.
_MAX_OBSERVED = 64


@cache
def opcode_index() -> dict[str, int]:
    """Position of each opcode in a vector of operation counts."""
    return {name: index for index, name in enumerate(opcodes())}


class Node:
    """A module that passes have made.

    Attributes:
        fingerprint: the module's.
        parent: the node whose module a pass changed into this one; None at the start.
        via: number of this pass.
        counts: [number of opcodes] instructions by opcode, read-only.
        op_count: their sum.
        is_cleaned: whether dead code was removed to make it.
        values: estimates of the module, by what made them.
    """

    __slots__ = (
        *("cost", "counts", "fingerprint", "is_cleaned", "load", "op_count", "parent"),
        *("values", "via"),
    )

    def __init__(
        self,
        module: HloModule,
        parent: Node | None = None,
        via: int = -1,
        load: Callable[[], HloModule] | None = None,
        is_cleaned: bool = False,
    ) -> None:
        """Takes what describes `module`, without the module itself."""
        self.fingerprint = module.fingerprint()
        self.is_cleaned = is_cleaned
        self.parent = parent
        self.via = via
        self.load = load
        self.cost: ModuleCost | None = None
        self.values: dict[object, float] = {}
        counts = np.zeros(len(opcode_index()), np.int64)
        for name, count in module.opcode_counts().items():
            counts[opcode_index()[name]] = count
        counts.flags.writeable = False
        self.counts: Int64Array = counts
        self.op_count = int(counts.sum())


def without_dead_code(module: HloModule) -> HloModule:
    """The module without what it does not need; itself if there is nothing of it."""
    cleaned = run_passes(module, "dce").module
    # It does not say that it changes a module of which it removes computations only.
    return cleaned if cleaned.instruction_count < module.instruction_count else module


@dataclass(frozen=True)
class _Failure:
    """Why a pass fails on a module."""

    kind: type[HloEnvError]
    message: str


class PassMemo:
    """Runs passes on nodes, for several threads too.

    Attributes:
        num_runs: passes that were run, not answered from memory.
    """

    def __init__(
        self,
        passes: Sequence[Pass | Pipeline],
        *,
        max_nodes: int = 20_000,
        max_instructions: int = 1_000_000,
    ) -> None:
        """Knows nothing yet.

        Args:
            passes: by number.
            max_nodes: how many results are remembered.
            max_instructions: of all modules that are kept.
        """
        self.num_runs = 0
        self._passes = tuple(passes)
        self._max_nodes = max_nodes
        self._room = max_instructions
        self._lock = threading.RLock()
        self._following: OrderedDict[tuple[str, int], Node | _Failure] = OrderedDict()
        self._modules: OrderedDict[str, HloModule] = OrderedDict()
        self._observed: OrderedDict[tuple[str, str], Any] = OrderedDict()

    def start(self, load: Callable[[], HloModule]) -> Node:
        """The node of a module that no pass has changed.

        Raises:
            HloEnvError: the module cannot be read.
        """
        loaded = load()
        module = without_dead_code(loaded)
        is_cleaned = module is not loaded
        node = Node(module, load=load, is_cleaned=is_cleaned)
        self._keep(node, module)
        return node

    def run(self, node: Node, number: int, runner: Runner = run_passes) -> Node:
        """The node after a pass: `node` itself if the pass changes nothing.

        Raises:
            HloEnvError: the pass fails, or ends the process of the runner.
        """
        found = self._find(node, number, runner)
        if isinstance(found, _Failure):
            raise found.kind(found.message)
        # Equal modules are one result, whichever node led to the first of them.
        return node if found.fingerprint == node.fingerprint else found

    def _find(self, node: Node, number: int, runner: Runner) -> Node | _Failure:
        key = (node.fingerprint, number)
        with self._lock:
            known = self._following.get(key)
            if known is not None:
                self._following.move_to_end(key)
                return known
            self.num_runs += 1
        found: Node | _Failure
        # Without the lock: other threads run passes meanwhile.
        try:
            found = self._run(node, number, runner)
        except (MeasureTimeout, ForkError):
            raise  # it may be the machine's fault, or this process's
        except HloEnvError as error:
            if isinstance(error, WorkerError) and error.is_kill:
                raise  # another process did it
            # Not the exception, which holds on to the frames it went through.
            found = _Failure(type(error), str(error))
        with self._lock:
            found = self._following.setdefault(key, found)
            if len(self._following) > self._max_nodes:
                self._following.popitem(last=False)
        return found

    def module(self, node: Node, runner: Runner = run_passes) -> HloModule:
        """The module of a node; `runner` runs its passes again where it has to.

        Raises:
            HloEnvError: as `run`.
        """
        missing = []
        module = self._kept(node)
        while module is None:
            missing.append(node)
            if node.parent is None:
                assert node.load is not None
                module = without_dead_code(node.load())
                self._keep(missing.pop(), module)
                break
            node = node.parent
            module = self._kept(node)
        while missing:
            node = missing.pop()
            module = without_dead_code(runner(module, self._passes[node.via]).module)
            self._keep(node, module)
        return module

    def _kept(self, node: Node) -> HloModule | None:
        with self._lock:
            return self._modules.get(node.fingerprint)

    def observed(self, node: Node, name: str, observe: Callable[[], Any]) -> Any:
        """What `observe` makes of a node; the last ones are kept.

        Args:
            node: of the module.
            name: of the observation.
            observe: computes it. The result is kept: callers give away copies.
        """
        key = (node.fingerprint, name)
        with self._lock:
            if key in self._observed:
                self._observed.move_to_end(key)
                return self._observed[key]
        result = observe()
        with self._lock:
            self._observed[key] = result
            if len(self._observed) > _MAX_OBSERVED:
                self._observed.popitem(last=False)
        return result

    def cost(self, node: Node, runner: Runner = run_passes) -> ModuleCost:
        """XLA's cost analysis of a node's module."""
        if node.cost is None:
            node.cost = self.module(node, runner).cost()
        return node.cost

    def _run(self, node: Node, number: int, runner: Runner) -> Node:
        result = runner(self.module(node, runner), self._passes[number])
        if not result.changed:
            return node
        module = without_dead_code(result.module)
        is_cleaned = module is not result.module
        following = Node(module, node, number, is_cleaned=is_cleaned)
        if following.fingerprint != node.fingerprint:
            self._keep(following, module)
        return following

    def _keep(self, node: Node, module: HloModule) -> None:
        with self._lock:
            if node.fingerprint in self._modules:
                self._modules.move_to_end(node.fingerprint)
                return
            self._modules[node.fingerprint] = module
            self._room -= module.instruction_count
            while self._room < 0 and len(self._modules) > 1:
                _, dropped = self._modules.popitem(last=False)
                self._room += dropped.instruction_count
