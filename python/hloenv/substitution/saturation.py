# SPDX-License-Identifier: Apache-2.0
"""Equality saturation by egglog, for the rules that terms can express.

The entry computation becomes an e-graph, the rules add what is equal, and extraction
chooses the cheapest module. Computations of loops and branches stay as they are.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from ..cost.roofline import Rates
from ..errors import ArgumentError
from ..hlo.module import HloModule
from .egraph import Egraph, Entry
from .extraction import Extraction, Method, check_method, extract


@dataclass(frozen=True)
class SaturationLimits:
    """When saturation ends, and how long extraction may take.

    Attributes:
        iterations: rounds of all rules.
        nodes: e-nodes; no further round starts above them.
        seconds: for the rounds; no further round starts after them.
        extraction_seconds: for the integer program.
    """

    iterations: int = 8
    nodes: int = 5_000
    seconds: float = 30.0
    extraction_seconds: float = 30.0

    def __post_init__(self) -> None:
        """Checks the limits.

        Raises:
            ArgumentError: a limit that is not positive.
        """
        for name, value in vars(self).items():
            if not value > 0:
                raise ArgumentError(f"{name} must be positive, got {value}")


@dataclass(frozen=True)
class Saturated:
    """The result of equality saturation, as `saturate` returns it.

    Attributes:
        module: the cheapest module that was extracted.
        extraction: the chosen nodes and their cost.
        start_cost: cost of the nodes of the start, by the same model.
        num_nodes: e-nodes in the end.
        num_classes: e-classes in the end.
        num_iterations: rounds of the rules.
        is_saturated: whether the last round added nothing.
        seconds: of wall-clock time.
    """

    module: HloModule
    extraction: Extraction
    start_cost: float
    num_nodes: int
    num_classes: int
    num_iterations: int
    is_saturated: bool
    seconds: float


def saturate(
    module: HloModule,
    *,
    method: Method = "ilp",
    limits: SaturationLimits | None = None,
    rates: Rates | None = None,
) -> Saturated:
    """Saturates the entry of a module, and extracts the cheapest one.

    Args:
        module: at the start of XLA's pipeline, without control dependencies.
        method: of extraction: an integer program without cycles, or greedy.
        limits: of size and time.
        rates: of the machine, for the costs of operators.

    Raises:
        ArgumentError: the module has a position or control dependencies, or there is no
            such method.
        ImportError: egglog is not installed.
        InvalidModuleError: the module was loaded with `verify=False`, and XLA's
            verifier rejects it or what is extracted from it.
    """
    started = time.perf_counter()
    check_method(method)
    limits = limits or SaturationLimits()
    rates = rates or Rates()
    entry = Entry(module)
    graph = Egraph(entry)
    start_cost = sum(graph.read().costs(rates).values())
    iterations, is_saturated = _run(graph, limits, started)
    return extracted(
        graph,
        entry,
        method=method,
        limits=limits,
        rates=rates,
        start_cost=start_cost,
        num_iterations=iterations,
        is_saturated=is_saturated,
        started=started,
    )


def extracted(
    graph: Egraph,
    entry: Entry,
    *,
    method: Method,
    limits: SaturationLimits,
    rates: Rates,
    start_cost: float,
    num_iterations: int,
    is_saturated: bool,
    started: float,
) -> Saturated:
    """The cheapest module of an e-graph.

    Args:
        graph: the e-graph.
        entry: that it was made from.
        method: of extraction.
        limits: of the extraction.
        rates: of the machine.
        start_cost: as for `Saturated`.
        num_iterations: as for `Saturated`.
        is_saturated: as for `Saturated`.
        started: when the building began, by `time.perf_counter`.
    """
    read = graph.read()
    chosen = extract(
        read.classes,
        read.costs(rates),
        read.roots,
        method=method,
        seconds=limits.extraction_seconds,
    )
    return Saturated(
        module=entry.module_of(chosen.nodes, read),
        extraction=chosen,
        start_cost=start_cost,
        num_nodes=sum(map(len, read.classes.values())),
        num_classes=len(read.classes),
        num_iterations=num_iterations,
        is_saturated=is_saturated,
        seconds=time.perf_counter() - started,
    )


def _run(graph: Egraph, limits: SaturationLimits, started: float) -> tuple[int, bool]:
    """Runs rounds of the rules; returns their number and whether they ended."""
    for number in range(1, limits.iterations + 1):
        if not graph.run_all():
            return number, True
        is_late = time.perf_counter() - started > limits.seconds
        if is_late or graph.num_nodes() > limits.nodes:
            return number, False
    return limits.iterations, False
