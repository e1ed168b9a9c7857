# SPDX-License-Identifier: Apache-2.0
"""Measuring modules: how fast, against what, and whether the outputs are right."""

from __future__ import annotations

import os
import pickle
from collections.abc import Sequence
from typing import Any, cast, overload

from .arrays import OutputComparison, compare_outputs, random_inputs
from .child import Child
from .cores import CoreLease
from .errors import ArgumentError
from .executable import Executable, Finish, compile
from .group import Group
from .inputs import as_inputs
from .measurement import MeasureFailure, Measurement
from .module import HloModule, as_module
from .settings import Settings, header
from .store import Store

__all__ = [
    "Executable",
    "Finish",
    "MeasureFailure",
    "Measurement",
    "Measurer",
    "OutputComparison",
    "Settings",
    "compare_outputs",
    "compile",
    "measure",
    "random_inputs",
]

ModuleLike = HloModule | str | os.PathLike[str]
Inputs = Sequence[Any] | str | os.PathLike[str]


# A string is a sequence of strings to the type checker; the first overload takes it.
@overload
def measure(
    module: ModuleLike,
    *,
    baseline: ModuleLike | None = ...,
    inputs: Inputs | None = ...,
    store: Store | None = ...,
    again: bool = ...,
    **settings: Any,
) -> Measurement: ...


@overload
def measure(
    module: Sequence[ModuleLike],
    *,
    baseline: ModuleLike | None = ...,
    inputs: Inputs | None = ...,
    store: Store | None = ...,
    again: bool = ...,
    **settings: Any,
) -> list[Measurement]: ...


def measure(
    module: ModuleLike | Sequence[ModuleLike],
    *,
    baseline: ModuleLike | None = None,
    inputs: Inputs | None = None,
    store: Store | None = None,
    again: bool = False,
    **settings: Any,
) -> Measurement | list[Measurement]:
    """Times modules against a baseline in a child process.

    The baseline and the modules run in rounds, in a random order in each, pinned to
    one core (`threads`), as several copies of their code. They go on until the
    speed-up is known within 1 % (`precision`) or the module is clearly slower. The
    outputs of each module are compared with the baseline's on two sets of inputs. What
    goes wrong with a module is in its record, and never stops the others.

    Args:
        module: one module, or several.
        baseline: what to compare with, by default the module itself with nothing
            decided (the first, of several). It takes the rest of XLA's pipeline from
            its place on; a raw module takes all of it, XLA's default.
        inputs: one array for each flat leaf of the parameters, or a .npz or
            .safetensors file of them (`inputs.load_inputs`); by default random ones.
        store: where measurements are looked up, and kept.
        again: measure what the store has already.
        **settings: any of `Settings`: `repeats=100`, `timeout_s=10`, `threads=2`, ...

    Returns:
        One measurement, or a list in the order of the modules.

    Raises:
        ArgumentError: a setting out of its range, no modules, or unfit inputs.
        HloEnvError: the baseline itself cannot be compiled or run.
    """
    is_one = isinstance(module, (HloModule, str, os.PathLike))
    given = [module] if is_one else list(cast("Sequence[ModuleLike]", module))
    modules = [as_module(cast("ModuleLike", each)) for each in given]
    if not modules:
        raise ArgumentError("measure needs at least one module")
    with Measurer(Settings(**settings), store=store, again=again) as measurer:
        results = measurer.measure(modules, baseline=baseline, inputs=inputs)
    return results[0] if is_one else results


class Measurer:
    """Measures one group of modules after the other, in a process that stays warm.

    Attributes:
        settings: of all measurements.
    """

    def __init__(
        self,
        settings: Settings | None = None,
        *,
        store: Store | None = None,
        again: bool = False,
    ):
        """Takes its cores; the process starts with the first measurement.

        Args:
            settings: how to measure.
            store: where measurements are looked up, and kept.
            again: measure what the store has already.

        Raises:
            ArgumentError: there are not so many cores.
        """
        self.settings = settings or Settings()
        self._store = store
        self._again = again
        self._lease = CoreLease(self.settings.threads)
        self._child: Child | None = None
        # What the process holds: the baseline's identity, and what came with it.
        self._held = ""
        self._baseline_compile_ns = 0
        self._is_interrupted = False

    def measure(
        self,
        modules: Sequence[HloModule],
        *,
        baseline: ModuleLike | None = None,
        inputs: Inputs | None = None,
    ) -> list[Measurement]:
        """As `hloenv.measure`, for several modules.

        Raises:
            ArgumentError: the inputs do not fit the baseline.
            HloEnvError: the baseline itself cannot be compiled or run.
        """
        self._is_interrupted = False
        if baseline is None:
            first = modules[0]
            original = HloModule._wrap(first._core, place=first.place)
        else:
            original = as_module(baseline)
        group = Group(self, list(modules), original, as_inputs(inputs, original))
        if self._store is None:
            return group.measure(list(range(len(modules))))
        keys = [group.keys.of(module) for module in modules]
        found = [None] * len(keys) if self._again else self._store.get_many(keys)
        missing = [i for i, value in enumerate(found) if value is None]
        measured = group.measure(missing) if missing else []
        self._store.put_many(
            [
                (keys[i], result.to_json())
                for i, result in zip(missing, measured, strict=True)
            ]
        )
        results = dict(zip(missing, measured, strict=True))
        return [
            results[i] if value is None else Measurement.from_json(value)
            for i, value in enumerate(found)
        ]

    def child_with(self, group: Group) -> Child:
        """The process, with the group's baseline in it.

        Raises:
            HloEnvError: the baseline itself cannot be compiled or run.
        """
        settings = self.settings
        if self._child is None or not self._child.is_alive:
            self._child = Child(
                max_memory_bytes=settings.max_memory_bytes, cores=self._lease.cores
            )
            self._held = ""
        if self._held != group.keys.identity:
            request = {
                "do": "baseline",
                "seeds": list(
                    range(settings.seed, settings.seed + settings.input_sets)
                ),
                **header(group.baseline, "legalize"),
            }
            blobs = [group.baseline.to_proto()]
            if group.inputs is not None:
                blobs.append(pickle.dumps(group.inputs))
            answer, _ = self._child.request(
                request, *blobs, timeout_s=settings.timeout_s
            )
            self._held = group.keys.identity
            self._baseline_compile_ns = answer["compile_ns"]
        return self._child

    @property
    def cores(self) -> tuple[int, ...]:
        """Numbers of the cores that compile and run."""
        return self._lease.cores

    @property
    def is_interrupted(self) -> bool:
        """Whether the measurement under way is to end."""
        return self._is_interrupted

    @property
    def baseline_compile_ns(self) -> int:
        """How long XLA's backend took for the baseline."""
        return self._baseline_compile_ns

    def interrupt(self) -> None:
        """Ends the measurement under way, from any thread: a WorkerError there.

        The next call starts afresh.
        """
        self._is_interrupted = True
        child = self._child
        if child is not None:
            child.kill()

    def close(self) -> None:
        """Ends the process and gives its cores back; any number of calls."""
        if self._child is not None:
            self._child.close()
        self._lease.release()

    def __enter__(self) -> Measurer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
