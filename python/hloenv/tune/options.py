# SPDX-License-Identifier: Apache-2.0
"""What a tuning may take and decide."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np

from .._plugins import split_file
from ..errors import ArgumentError, ArgumentTypeError
from ..search import UnknownSearchError, describe_search
from ..search.driver import DEFAULT_SEARCH
from .decisions import CLASSES, Class
from .stages import check_stages

# "alone": each stage with XLA's own choices at all others. "sequence": one stage after
# the other, each on the result of those before. "jointly": a bandit chooses the stage
# of the next measurement, and stages are looked at again.
Mode = Literal["alone", "sequence", "jointly"]
DEFAULT_SECONDS = 300.0
DEFAULT_TIMEOUT_S = 120.0


@dataclass(frozen=True)
class TuneOptions:
    """Options of `hloenv.tune`.

    Attributes:
        seconds: budget of one program; the last check comes after it.
        measurements: new measurements of one program; None for no limit.
        mode: how the stages are tuned.
        stages: names of those to decide; None for all.
        numerics: the widest numerical class of the decisions.
        seed: of proposals, inputs and orders.
        threads: cores of each measurement; None for those of this process.
        workers: concurrent measurements here; None for cores over threads.
        executor: where to measure, such as `RayExecutor()`; None for here.
        batch: proposals that are made before their results are known; None for one for
            each worker, and two at least.
        is_warm: whether configurations that were best for near modules are tried.
        search: the search over single rewrites, as in `hloenv.search`; "" for none.
        keep: whether the result is kept for `hloenv.jit` in other processes, and the
            measurements for the next tuning.
        is_again: whether what earlier tunings have measured is measured again.
        timeout_s: seconds that each program may take to compile, to run once, and for
            each set of runs.
    """

    seconds: float = DEFAULT_SECONDS
    measurements: int | None = None
    mode: Mode = "jointly"
    stages: tuple[str, ...] | None = None
    numerics: Class = "reassociating"
    seed: int = 0
    threads: int | None = None
    workers: int | None = None
    executor: Any = None
    batch: int | None = None
    is_warm: bool = True
    search: str = DEFAULT_SEARCH
    keep: bool = True
    is_again: bool = False
    timeout_s: float = DEFAULT_TIMEOUT_S

    def __post_init__(self) -> None:
        """Checks the values.

        Raises:
            ArgumentError: one is not allowed.
            ArgumentTypeError: one is of another type.
        """
        for name in ("seconds", "timeout_s"):
            value = getattr(self, name)
            if not _is_number(value):
                raise ArgumentTypeError(f"{name} must be a number > 0, got {value!r}")
            if not 0 < value < math.inf:
                raise ArgumentError(f"{name} must be a number > 0, got {value}")
        _check_count("seed", self.seed, least=0)
        for name, least in (
            ("measurements", 0),
            *[("threads", 1), ("workers", 1), ("batch", 1)],
        ):
            if (value := getattr(self, name)) is not None:
                _check_count(name, value, least=least)
        cores = os.cpu_count() or 1
        if self.threads is not None and self.executor is None and self.threads > cores:
            raise ArgumentError(
                f"threads must be an integer from 1 to {cores}, the cores of this "
                f"machine, got {self.threads}"
            )
        for name in ("is_warm", "keep", "is_again"):
            if not isinstance(value := getattr(self, name), bool):
                raise ArgumentTypeError(f"{name} must be a bool, got {value!r}")
        if self.mode not in get_args(Mode):
            raise ArgumentError(
                f"mode must be one of {', '.join(get_args(Mode))}, got {self.mode!r}"
            )
        if self.numerics not in CLASSES:
            raise ArgumentError(
                f"numerics must be one of {', '.join(CLASSES)}, got {self.numerics!r}"
            )
        stages: Any = self.stages
        if stages is not None:
            if isinstance(stages, str) or not isinstance(stages, Iterable):
                raise ArgumentTypeError(
                    f"stages must be a tuple of names, got {stages!r}"
                )
            check_stages(stages)
        if self.executor is not None and not callable(
            getattr(self.executor, "submit", None)
        ):
            raise ArgumentTypeError(
                "executor must be an object with a method `submit`, such as "
                f"RayExecutor(), or None, got {self.executor!r}"
            )
        _check_search(self.search)

    @property
    def proposals(self) -> int:
        """Proposals that are made before their results are known."""
        return self.batch or max(2, self.workers or 0)

    @property
    def cores(self) -> int:
        """Cores of each measurement."""
        return self.threads or len(os.sched_getaffinity(0))


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(
        value, bool
    )


def _check_count(name: str, value: Any, *, least: int) -> None:
    if not isinstance(value, (int, np.integer)) or isinstance(value, bool):
        raise ArgumentTypeError(f"{name} must be an integer >= {least}, got {value!r}")
    if value < least:
        raise ArgumentError(f"{name} must be an integer >= {least}, got {value}")


def _check_search(search: object) -> None:
    if not isinstance(search, str):
        raise ArgumentTypeError(
            f"search must be the name of a search, or '' for none, got {search!r}"
        )
    if not search or split_file(search):
        return
    try:
        describe_search(search)
    except UnknownSearchError as error:
        raise ArgumentError(f"search: {error}") from None
