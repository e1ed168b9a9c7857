# SPDX-License-Identifier: Apache-2.0
"""The registry of cost models."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterator
from typing import Any

from .._plugins import attribute_of_file, check_call, check_entry, split_file
from .._registry import Info, Registry
from ..errors import ArgumentError, HloEnvError
from ..measurement.store import Store
from ..runtime.executable import Engine
from .base import Estimator

DEFAULT_ESTIMATOR = "kernel-cache"


class UnknownEstimatorError(HloEnvError, LookupError):
    """No estimator has this name."""


_REGISTRY: Registry[Callable[..., Estimator]] = Registry(
    *("estimator", "estimators", UnknownEstimatorError),
    group="hloenv.cost",
    is_random=True,
)


def register_estimator(
    name: str,
    summary: str,
    make: Callable[..., Estimator] | str,
    *,
    is_deterministic: bool = False,
) -> None:
    """Registers a cost model under a name, also for the command line.

    Args:
        name: lower case, words joined by "-"; of a family with a specification, then
            ":" and the specification: "learned:CHECKPOINT".
        summary: one sentence.
        make: from `threads=` and `store=` to the estimator, as in `get_estimator`; of
            a family also `spec=`; or its location, "package.module:name".
        is_deterministic: whether a module has the same estimate each time on one
            machine: nothing is measured.

    Raises:
        ArgumentTypeError: the summary is no text, as where it and `make` are swapped.
        ValueError: the name is taken.
    """
    check_entry(name, summary, make)
    _REGISTRY.add(name, summary, make, is_random=not is_deterministic)


def list_estimators(*, families: bool = False) -> tuple[str, ...]:
    """Names of all estimators, sorted; or of the families that take a specification."""
    return _REGISTRY.names(families=families)


def describe_estimator(name: str) -> Info:
    """Describes an estimator.

    Raises:
        UnknownEstimatorError: no estimator has this name.
    """
    return _REGISTRY.describe(name)


def get_estimator(
    name: str = DEFAULT_ESTIMATOR,
    *,
    threads: int = 1,
    store: Store | None = None,
    engine: Engine = "wheel",
) -> Estimator:
    """Makes the estimator of this name.

    Args:
        name: one of `list_estimators()`, or a member of a family; or "my.py:Name", a
            class or a function of that file that takes `threads=` and `store=`.
        threads: cores that the modules will run on.
        store: where it may keep what it has measured.
        engine: the XLA that will run the modules, as in `hloenv.compile`; for
            estimators that take `engine=`.

    Raises:
        UnknownEstimatorError: no estimator has this name.
        ArgumentError: what the file has under that name makes no estimator; or the
            process has fewer cores than `threads`.
        PluginError: the file cannot be imported.
    """
    spec = None
    if own := split_file(name):
        make = attribute_of_file(*own)
    else:
        make, spec = _REGISTRY.find(name)
    if not callable(make):
        raise ArgumentError(
            f"{name} is a {type(make).__name__}; it must be a class or a function that "
            "takes threads= and store="
        )
    given: dict[str, Any] = {"threads": threads, "store": store}
    if spec is not None:
        given["spec"] = spec
    if "engine" in inspect.signature(make).parameters:
        given["engine"] = engine
    check_call(make, f"{name}(*, {', '.join(given)})", **given)
    estimator: Estimator = make(**given)
    if not hasattr(estimator, "estimate_many"):
        raise ArgumentError(
            f"{name} makes a {type(estimator).__name__}; it must make an estimator, "
            "which has estimate_many (see hloenv.cost.Estimator)"
        )
    return estimator


@contextlib.contextmanager
def open_estimator(
    name: str = DEFAULT_ESTIMATOR,
    *,
    threads: int = 1,
    store: Store | None = None,
    engine: Engine = "wheel",
) -> Iterator[Estimator]:
    """The estimator of this name; its `close()`, if it has one, is called at the end.

    Arguments and errors are those of `get_estimator`.
    """
    estimator = get_estimator(name, threads=threads, store=store, engine=engine)
    try:
        yield estimator
    finally:
        getattr(estimator, "close", lambda: None)()


register_estimator(
    DEFAULT_ESTIMATOR,
    "the sum of the kernels, each of which is compiled and timed once",
    "hloenv.cost.kernel_cache:KernelCache",
)
register_estimator(
    "operators",
    "the sum of the instructions as they are, without XLA's passes, as in TASO",
    "hloenv.cost.operators:OperatorSum",
    is_deterministic=True,
)
register_estimator(
    "roofline",
    "arithmetic and memory traffic, at the rates of `hloenv calibrate` if it has run",
    "hloenv.cost.calibration:calibrated_roofline",
    is_deterministic=True,
)
register_estimator(
    "learned",
    "networks trained on timed kernels: nothing is compiled or run",
    "hloenv.cost.learned.estimator:make_learned",
    is_deterministic=True,
)
register_estimator(
    "learned:CHECKPOINT",
    "the same, of `hloenv train cost-model`; [CHECKPOINT,]measure-above=SPREAD times "
    "kernels where the networks disagree by more, such as 0.1 for 10 %",
    "hloenv.cost.learned.estimator:make_learned",
)
