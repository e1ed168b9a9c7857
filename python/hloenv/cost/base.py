# SPDX-License-Identifier: Apache-2.0
"""Estimators: predict the run time of a module without running it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from ..errors import ArgumentTypeError, PositionError
from ..hlo.module import HloModule
from ..hlo.pipeline import run_until
from ..process.cpu_affinity import as_if_on

# From this pass on, XLA only inserts copies.
LAST_DECISION = "copy-insertion"


@dataclass(frozen=True)
class Estimate:
    """Estimated run time of a module.

    Attributes:
        seconds: of one run; NaN with an error.
        num_kernels: different kernels in the module.
        num_timed: those of them that were timed for this estimate.
        error: why there is no estimate, "" if there is one.
    """

    seconds: float
    num_kernels: int = 0
    num_timed: int = 0
    error: str = ""

    @property
    def is_ok(self) -> bool:
        """Whether `seconds` is a number."""
        return not math.isnan(self.seconds)


class Estimator(Protocol):
    """A cost model: `Roofline`, `KernelCache`, or a learned one."""

    def estimate_many(self, modules: Sequence[HloModule]) -> list[Estimate]:
        """One estimate for each module; a failure is the error of its estimate."""
        ...


def estimates_of(estimator: Estimator, modules: Sequence[HloModule]) -> list[Estimate]:
    """What `estimator.estimate_many` returns, checked: it may be a user's.

    Plain numbers are taken as seconds.

    Raises:
        ArgumentTypeError: it is no estimator, or does not return one estimate for each
            module.
    """
    kind = type(estimator).__name__
    if not callable(getattr(estimator, "estimate_many", None)):
        given = repr(estimator) if isinstance(estimator, str) else kind
        raise ArgumentTypeError(
            "an estimator has a method estimate_many, as "
            f"hloenv.cost.get_estimator('roofline') has, got {given}"
        )
    found = estimator.estimate_many(modules)
    if not isinstance(found, Iterable):
        raise ArgumentTypeError(
            f"{kind}.estimate_many returns {found!r}; it must return a list of one "
            "Estimate, or number of seconds, for each module"
        )
    estimates = list(found)
    if len(estimates) != len(modules):
        raise ArgumentTypeError(
            f"{kind}.estimate_many returns {len(estimates)} estimates for "
            f"{len(modules)} modules; it must return one for each, in their order"
        )
    return [_as_estimate(each, kind) for each in estimates]


def estimate_of(estimator: Estimator, module: HloModule) -> Estimate:
    """The estimate of one module; errors as in `estimates_of`."""
    (estimate,) = estimates_of(estimator, [module])
    return estimate


def _as_estimate(found: object, kind: str) -> Estimate:
    if isinstance(found, Estimate):
        return found
    if isinstance(found, int | float | np.number) and not isinstance(found, bool):
        return Estimate(float(found))
    raise ArgumentTypeError(
        f"{kind}.estimate_many returns a list with {found!r}; each entry must be an "
        "hloenv.cost.Estimate, or a number of seconds"
    )


def decided_module(module: HloModule, *, threads: int = 1) -> HloModule:
    """`module` after all passes of XLA that determine its kernels.

    Args:
        module: at any position in XLA's pipeline.
        threads: cores that it will run on.

    Raises:
        CompileError: a pass fails on the module.
    """
    try:
        with as_if_on(threads):
            return run_until(module, LAST_DECISION)
    except PositionError:
        if module.position is None:
            raise
        return module  # past it already
