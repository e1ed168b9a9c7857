# SPDX-License-Identifier: Apache-2.0
"""Compiling modules and running them."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING, Any, Literal, cast, get_args, overload

import numpy as np

from .._native import core
from .._registry import load_attribute
from .._typing import Array
from ..errors import ArgumentError, CompileError
from ..hlo import pipeline
from ..hlo.module import as_module
from ..process import child
from . import ffi
from .buffers import place_array
from .jaxlib import JaxlibExecutable, compile_by_jaxlib, time_calls
from .jaxlib.ffi_call import called_in_jax
from .jaxlib.options import Options, check_options
from .random_inputs import random_inputs
from .step_times import StepTimes

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Sequence

    from ..hlo.array_spec import ArraySpec
    from ..hlo.module import HloModule

Finish = Literal["legalize", "xla", "none"]
Engine = Literal["wheel", "jaxlib"]


@overload
def compile(
    module: HloModule | str | os.PathLike[str],
    *,
    finish: Finish = ...,
    isolate: bool | None = ...,
    engine: Literal["wheel"] = ...,
) -> Executable: ...


@overload
def compile(
    module: HloModule | str | os.PathLike[str], *, tuned: Any
) -> Executable | JaxlibExecutable: ...


@overload
def compile(
    module: HloModule | str | os.PathLike[str],
    *,
    finish: Finish = ...,
    isolate: bool | None = ...,
    engine: Engine,
    options: Options | None = ...,
    tuned: Any = ...,
) -> Executable | JaxlibExecutable: ...


def compile(
    module: HloModule | str | os.PathLike[str],
    *,
    finish: Finish = "legalize",
    isolate: bool | None = None,
    engine: Engine = "wheel",
    options: Options | None = None,
    tuned: Any = None,
) -> Executable | JaxlibExecutable:
    """Compiles a module for the CPU.

    Args:
        module: a module, HLO text or a path.
        finish: the passes that run before XLA's backend. "legalize": the rest of XLA's
            pipeline from the module's position, without the rejected rewrites and the
            passes that would redo them (`skip_rules`). "xla": XLA's whole pipeline;
            decisions are ignored. "none": no pass, the module is final.
        isolate: whether to compile in a child process first. XLA's backend crashes on
            some modules; in the child process, that becomes a CompileError. It takes
            the time of a second compile. By default, this is on for modules that XLA
            itself would not produce: with `finish="none"`, with decided passes, or
            with fusions before layout assignment.
        engine: the XLA that compiles and runs: "wheel", that of TensorFlow's wheel; or
            "jaxlib", that of jax.jit. jaxlib runs its own pipeline on a module from
            before XLA's passes, unless rewrites were rejected, which it would redo.
            Other modules go through the rest of the wheel's pipeline, and replace
            jaxlib's in front of its scheduler.
        options: XLA's flags for this compilation, by name without dashes, such as
            `{"xla_cpu_prefer_vector_width": 512}`; for `engine="jaxlib"`. The wheel's
            XLA reads the flags of its process once, from XLA_FLAGS.
        tuned: what `hloenv.tune` has returned for this module, or the path where it was
            saved; instead of all other arguments.

    Returns:
        An `Executable`; of "jaxlib", a `JaxlibExecutable`, whose `module` is what
        jaxlib's passes have made.

    Raises:
        ArgumentError: `engine` is not one of these, or takes no options.
        ArtefactError: `tuned` is for another module, machine or version.
        CompileError: XLA rejects the module or crashes on it, or a custom call in it
            has no implementation.
        ForkError: this process was forked from one that had compiled: start it with
            "spawn" or "forkserver".
        ImportError: `engine="jaxlib"`, and jax is missing or too old.
        PositionError: the pipeline does not reach the module's position again.
    """
    module = as_module(module)
    if tuned is not None:
        if (finish, isolate, engine, options) != ("legalize", None, "wheel", None):
            raise ArgumentError(
                "tuned= decides how the module is compiled: leave finish, isolate, "
                "engine and options out"
            )
        compile_tuned = load_attribute("hloenv.jax.artefact:compile_tuned")
        return cast("AnyExecutable", compile_tuned(module, tuned))
    _check_finish(finish)
    check_engine(engine)
    options = check_options(options)
    if options and engine != "jaxlib":
        raise ArgumentError(
            f"options={options} need engine='jaxlib'; the wheel's XLA reads XLA_FLAGS "
            "once, when it starts"
        )
    if isolate is None:
        is_xlas_own = finish == "xla" or (finish == "legalize" and not module.decided)
        isolate = not is_xlas_own or _has_early_fusions(module)
    if isolate:
        child.try_compile(module.to_bytes(), finish, engine=engine)
    if engine == "jaxlib":
        return _compile_by_jaxlib(module, finish, options)
    final = legalized(module, finish)
    started_ns = time.perf_counter_ns()
    compiled = core.compile(final._core)
    return Executable(compiled, final, time.perf_counter_ns() - started_ns)


def check_engine(engine: str) -> None:
    """Rejects what is not an `Engine`.

    Raises:
        ArgumentError: no engine has this name.
    """
    if engine not in get_args(Engine):
        raise ArgumentError(
            f"engine must be one of {', '.join(get_args(Engine))}, got {engine!r}"
        )


def _compile_by_jaxlib(
    module: HloModule, finish: Finish, options: Options
) -> JaxlibExecutable:
    is_free = not pipeline.restricts_pipeline(module)
    if finish == "xla" or (finish == "legalize" and is_free):
        return compile_by_jaxlib(module, is_final=False, options=options)
    # Custom calls are jaxlib's, not those that the wheel knows.
    final = module if finish == "none" else pipeline.finish(module)
    return compile_by_jaxlib(final, is_final=True, options=options)


def legalized(module: HloModule, finish: Finish) -> HloModule:
    """The module that XLA's backend compiles in `compile`.

    Raises:
        CompileError: as `compile`.
        PositionError: as `compile`.
    """
    _check_finish(finish)
    ffi.register_for(module)
    core.check_runs_in_wheel(module._core)
    if finish == "none":
        return module
    if finish == "xla":
        module = type(module)._wrap(module._core)
    try:
        return pipeline.finish(module)
    except CompileError as error:
        if finish == "xla" or module.decided or not _has_early_fusions(module):
            raise
        raise CompileError(
            f"{error}; the module has fusions: if it comes from finish() or "
            'intercept(), it is final, compile it with finish="none"'
        ) from None


def _check_finish(finish: str) -> None:
    if finish not in get_args(Finish):
        raise CompileError(
            f"finish must be one of {', '.join(get_args(Finish))}, got {finish!r}"
        )


def _has_early_fusions(module: HloModule) -> bool:
    return module.position is None and "fusion" in module.opcode_counts()


class Executable:
    """A compiled module as a function of arrays.

    Any number of threads may call one executable concurrently; it runs without the
    GIL.

    Attributes:
        module: the input of XLA's backend.
        input_specs: one for each flat leaf of the parameters.
        output_specs: one for each flat leaf of the result.
        compile_ns: time of XLA's backend, in nanoseconds.
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
                tokens. Numpy arrays that are aligned to 64 bytes (as the results of
                executables are) are used in place, all others are copied. None of
                them is modified, even if the module aliases them with its outputs.

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
        """Times consecutive runs, without Python in between.

        Args:
            repeats: number of timed runs.
            inputs: the arguments of all runs; by default `random_inputs`.
            warmup: untimed runs before the first timed one.

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
        """Times the thunks of the executable: its kernels, copies and loops.

        The thunks run sequentially in XLA's order, even if XLA would run several
        concurrently, and then once more as XLA runs them.

        Args:
            repeats: number of timed runs.
            inputs: the arguments of all runs; by default `random_inputs`.
            warmup: untimed runs before the first timed one.
            is_warm: run each kernel twice and time the second run, whose operands are
                in the caches, as after the kernel that wrote them.
        """
        arguments = tuple(random_inputs(self.module) if inputs is None else inputs)
        return StepTimes(
            *core.time_steps(self._caller, arguments, warmup, repeats, is_warm)
        )

    def call_of(self, inputs: Sequence[Any] | None) -> Callable[[], object]:
        """A function without arguments that runs once.

        Args:
            inputs: as for `__call__`; None for `random_inputs`.
        """
        given = tuple(random_inputs(self.module) if inputs is None else inputs)
        return lambda: self(*given)

    @property
    def temp_bytes(self) -> int:
        """Size of the scratch memory of a run."""
        return self._core.temp_bytes

    def copy(self) -> Executable:
        """A copy of the code at another address.

        The address of code changes its speed by some percent; accurate timings use
        several copies. Takes about a hundredth of the time to compile.

        Raises:
            CompileError: XLA cannot export this code.
        """
        return Executable(self._core.copy(), self.module, self.compile_ns)

    def __repr__(self) -> str:
        return (
            f"<Executable {self.module.name!r}: {len(self.input_specs)} inputs, "
            f"{len(self.output_specs)} outputs>"
        )


AnyExecutable = Executable | JaxlibExecutable


def time_runs(
    executables: Sequence[AnyExecutable],
    inputs: Sequence[Sequence[Any] | None],
    *,
    repeats: int,
    warmup: int = 1,
    batch: Sequence[int] | None = None,
    seed: int = 0,
) -> list[np.ndarray[Any, np.dtype[np.int64]]]:
    """Times several executables in rounds, in a random order in each.

    A temporary disturbance of the machine then affects all of them equally, and the
    executable that runs before each one varies.

    Args:
        executables: the executables to time; with one of jaxlib among them, jax calls
            all of them, so that all times contain its dispatch.
        inputs: the arguments of each; None for `random_inputs`.
        repeats: number of timed rounds.
        warmup: untimed rounds before the first timed one.
        batch: runs of each executable per duration, by default 1; more if one run is
            too short for the clock.
        seed: of the order.

    Returns:
        For each executable [repeats] int64, the duration of one run in each round, in
        nanoseconds.
    """
    batch = [1] * len(executables) if batch is None else list(batch)
    if any(isinstance(each, JaxlibExecutable) for each in executables):
        with contextlib.ExitStack() as stack:
            calls = [
                _call_in_jax(each, values, stack)
                for each, values in zip(executables, inputs, strict=True)
            ]
            return time_calls(calls, batch, repeats=repeats, warmup=warmup, seed=seed)
    own = cast("Sequence[Executable]", executables)
    arguments = [
        tuple(random_inputs(each.module) if values is None else values)
        for each, values in zip(own, inputs, strict=True)
    ]
    callers = [each._caller for each in own]
    return core.time_callers(callers, arguments, batch, warmup, repeats, seed)


def _call_in_jax(
    executable: AnyExecutable,
    inputs: Sequence[Any] | None,
    stack: contextlib.ExitStack,
) -> Callable[[], object]:
    if isinstance(executable, Executable):
        given = random_inputs(executable.module) if inputs is None else inputs
        with contextlib.suppress(CompileError):  # jax has no such arrays
            return stack.enter_context(called_in_jax(executable, given))
    return executable.call_of(inputs)


def _placer(
    specs: Sequence[ArraySpec], layouts: Sequence[Sequence[int]]
) -> Callable[[int, Any], Array]:
    # Must not reference the executable: a cycle through C++ is never collected, so the
    # code would never be freed.
    def place(index: int, value: Any) -> Array:
        return place_array(value, specs[index], layouts[index], f"argument {index}")

    return place


def _dtype(spec: ArraySpec) -> np.dtype[Any] | None:
    return None if spec.hlo_dtype == "token" else spec.dtype
