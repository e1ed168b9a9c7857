# SPDX-License-Identifier: Apache-2.0
"""Compiling modules and running them."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

import numpy as np

from .._native import core
from .._typing import Array
from ..errors import CompileError
from ..hlo import pipeline, position
from ..hlo.module import as_module, decided_of
from ..process import child
from . import ffi
from .buffers import place_array
from .random_inputs import random_inputs

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Sequence

    from ..hlo.module import decided_of
from ..hlo.module import ArraySpec, HloModule

Finish = Literal["legalize", "xla", "none"]


def compile(
    module: HloModule | str | os.PathLike[str],
    *,
    finish: Finish = "legalize",
    isolate: bool | None = None,
) -> Executable:
    """Compiles a module for the CPU.

    Args:
        module: a module, HLO text or a path.
        finish: what still runs before XLA's backend. "legalize": the rest of XLA's
            pipeline from the module's place on, but for the rewrites that were rejected
            and the passes that would redo them (`skip_rules`). "xla": XLA's whole
            pipeline, whatever has been decided. "none": nothing, the module is final.
        isolate: whether to compile in a child process first. XLA ends the process
            over some modules that its backend cannot take; the child takes that blow
            and it comes back as a CompileError. It takes the time of a second
            compile. By default wherever this is not just what XLA does by itself:
            `finish="none"`, modules on which passes have been decided, and modules
            that hold fusions before layouts are assigned.

    Raises:
        CompileError: XLA refuses the module, or dies of it, or nobody implements a
            custom call in it.
        ForkError: this process was forked from one that had compiled: start it with
            "spawn" or "forkserver".
        PositionError: XLA does not come by the module's place again.
    """
    module = as_module(module)
    _check_finish(finish)
    if isolate is None:
        is_xlas_own = finish == "xla" or (finish == "legalize" and not module.decided)
        isolate = not is_xlas_own or _has_early_fusions(module)
    if isolate:
        child.try_compile(
            module.to_proto(),
            {
                "place": position.as_tuple(module.position),
                "decided": decided_of(module),
                "finish": finish,
            },
        )
    final = legalized(module, finish)
    started_ns = time.perf_counter_ns()
    compiled = core.compile(final._core)
    return Executable(compiled, final, time.perf_counter_ns() - started_ns)


def legalized(module: HloModule, finish: Finish) -> HloModule:
    """The module that `compile` hands to XLA's backend.

    Raises:
        CompileError: as `compile`.
        PositionError: as `compile`.
    """
    _check_finish(finish)
    ffi.register_for(module)
    core.check_custom_calls(module._core)
    if finish == "none":
        return module
    if finish == "xla":
        module = type(module)._wrap(module._core)
    return pipeline.finish(module)


def _check_finish(finish: str) -> None:
    if finish not in get_args(Finish):
        raise CompileError(
            f"finish is {finish!r}; it is one of {', '.join(get_args(Finish))}"
        )


def _has_early_fusions(module: HloModule) -> bool:
    return module.position is None and "fusion" in module.opcode_counts()


class Executable:
    """A compiled module as a function of arrays.

    Any number of threads may call one executable at the same time; the GIL is free
    while it runs.

    Attributes:
        module: what XLA's backend got.
        input_specs: one for each flat leaf of the parameters.
        output_specs: one for each flat leaf of the result.
        compile_ns: how long XLA's backend took, in nanoseconds.
    """

    __slots__ = (
        "_caller",
        "_core",
        "compile_ns",
        "input_specs",
        "module",
        "output_specs",
    )

    def __init__(self, compiled: core.Executable, module: HloModule, compile_ns: int):
        """Use `compile`."""
        self._core = compiled
        self.module = module
        self.compile_ns = compile_ns
        self.input_specs = module.input_specs()
        self.output_specs = module.output_specs()
        self._caller = core.Caller(
            compiled,
            [_dtype(spec) for spec in self.input_specs],
            [_dtype(spec) for spec in self.output_specs],
            _placer(self.input_specs, [leaf[2] for leaf in compiled.inputs]),
        )

    def __call__(self, *arrays: Any) -> tuple[Array | None, ...]:
        """Runs once.

        Args:
            *arrays: one for each flat leaf of the parameters, in order: numpy arrays
                or anything with `__dlpack__`; Python numbers for scalars; None for
                tokens. Numpy arrays that are aligned to 64 bytes (what executables
                return is) are used in place, all others are copied. None of them is
                changed, also where the module says that it overwrites them.

        Returns:
            One new array for each flat leaf of the result, None for tokens.

        Raises:
            ArgumentError: an array of wrong shape or dtype, or a wrong number.
            ExecuteError: the module failed while it ran.
        """
        outputs: tuple[Array | None, ...] = self._caller.call(arrays)
        return outputs

    def run(
        self,
        repeats: int = 100,
        *,
        inputs: Sequence[Any] | None = None,
        warmup: int = 1,
    ) -> np.ndarray[Any, np.dtype[np.int64]]:
        """Times runs one after the other, without Python in between.

        Args:
            repeats: how many runs are timed.
            inputs: the arguments of all runs; by default `random_inputs`.
            warmup: runs before the first that is timed.

        Returns:
            [repeats] int64, the duration of each run in nanoseconds.
        """
        return time_runs([self], [inputs], repeats=repeats, warmup=warmup)[0]

    def time_steps(
        self,
        repeats: int = 10,
        *,
        inputs: Sequence[Any] | None = None,
        warmup: int = 1,
        is_warm: bool = False,
    ) -> StepTimes:
        """Times what XLA starts one by one: its kernels, copies, loops.

        They run one after the other in XLA's order, also where XLA would run several
        at the same time, and then once more as XLA runs them.

        Args:
            repeats: how many runs are timed.
            inputs: the arguments of all runs; by default `random_inputs`.
            warmup: runs before the first that is timed.
            is_warm: run each kernel twice and count the second run, which finds what
                it reads in the caches, as behind the kernel that wrote it.
        """
        arguments = tuple(random_inputs(self.module) if inputs is None else inputs)
        return StepTimes(
            *core.time_steps(self._caller, arguments, warmup, repeats, is_warm)
        )

    def copy(self) -> Executable:
        """The same code once more, at another address.

        Where code lies in memory changes how fast it runs, by some percent; timings
        that matter are spread over several copies. Takes a hundredth of compiling.

        Raises:
            CompileError: XLA cannot hand out this code.
        """
        return Executable(self._core.copy(), self.module, self.compile_ns)

    def __repr__(self) -> str:
        return (
            f"<Executable {self.module.name!r}: {len(self.input_specs)} inputs, "
            f"{len(self.output_specs)} outputs>"
        )


class StepTimes(NamedTuple):
    """How long each step of an executable takes.

    Attributes:
        names: of the instruction behind each of S steps.
        durations_ns: [repeats, S] float64, of each step by itself, in nanoseconds.
        totals_ns: [repeats] float64, of all of them as XLA runs them, in nanoseconds.
    """

    names: list[str]
    durations_ns: np.ndarray[Any, np.dtype[np.float64]]
    totals_ns: np.ndarray[Any, np.dtype[np.float64]]


def time_runs(
    executables: Sequence[Executable],
    inputs: Sequence[Sequence[Any] | None],
    *,
    repeats: int,
    warmup: int = 1,
    batch: Sequence[int] | None = None,
    seed: int = 0,
) -> list[np.ndarray[Any, np.dtype[np.int64]]]:
    """Times several executables in rounds, in a random order in each.

    What disturbs the machine for a while then disturbs all of them alike, and none of
    them always follows the same.

    Args:
        executables: what to time.
        inputs: the arguments of each; None for `random_inputs`.
        repeats: how many rounds are timed.
        warmup: rounds before the first that is timed.
        batch: how often each executable runs for one duration, by default once; more
            where one run is too short for the clock.
        seed: of the order.

    Returns:
        For each executable [repeats] int64, the duration of one run in each round, in
        nanoseconds.
    """
    arguments = [
        tuple(random_inputs(executable.module) if values is None else values)
        for executable, values in zip(executables, inputs, strict=True)
    ]
    callers = [executable._caller for executable in executables]
    batch = [1] * len(executables) if batch is None else list(batch)
    return core.time_callers(callers, arguments, batch, warmup, repeats, seed)


def _placer(
    specs: Sequence[ArraySpec], layouts: Sequence[Sequence[int]]
) -> Callable[[int, Any], Array]:
    # Knows nothing of the executable: a cycle through C++ is never collected, and
    # would keep the code for ever.
    def place(index: int, value: Any) -> Array:
        return place_array(value, specs[index], layouts[index], f"argument {index}")

    return place


def _dtype(spec: ArraySpec) -> np.dtype[Any] | None:
    return None if spec.hlo_dtype == "token" else spec.dtype
