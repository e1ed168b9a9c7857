# SPDX-License-Identifier: Apache-2.0
"""Modules compiled by jaxlib and called from Python.

A module before XLA's passes goes in as StableHLO, and jaxlib's whole pipeline runs on
it. A final module goes in at jaxlib's hook in front of its scheduler, in the place of a
small module with the same inputs and outputs.
"""

from __future__ import annotations

import contextlib
import itertools
import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..._native import core
from ..._typing import Array
from ...errors import ArgumentError, CompileError, ExecuteError, HloEnvError
from ...hlo.module import HloModule, read_trusted
from ..buffers import place_array
from ..random_inputs import random_inputs
from .hook import module_name, register, to_jaxlib, without_persistent_cache
from .options import Options, check_options, compile_lowered, refuse_wrong
from .package import require_injection, require_jax
from .profile import profiled_steps
from .stablehlo import avals_of, check_types, program_of

if TYPE_CHECKING:
    from ...hlo.array_spec import ArraySpec
    from ..step_times import StepTimes

_USER = "engine='jaxlib'"
# An array in an entry layout, and its dimensions from minor to major.
_LAYOUT = re.compile(r"\w+\[[^\]]*\](?:\{([\d,]*)[^}]*\})?")
_names = itertools.count(1)
# A longer compilation is not repeated to get the same code at another address.
_MAX_COPY_NS = 1_000_000_000
# In place of a run that is not timed, where runs take longer.
PAUSE_S = 0.05


def compile_by_jaxlib(
    module: HloModule, *, is_final: bool, options: Options | None = None
) -> JaxlibExecutable:
    """Compiles a module by jaxlib for one CPU device.

    Args:
        module: before XLA's passes; with `is_final`, after them.
        is_final: whether jaxlib runs no more passes than its scheduler on it.
        options: of jaxlib's compiler, as in `hloenv.compile`.

    Raises:
        ArgumentError: `options` are not XLA's flags.
        CompileError: jaxlib cannot convert or compile the module, or jax has no arrays
            of one of its types.
        ImportError: jax is missing or too old.
    """
    require_injection(_USER)
    # Before a module with the same interface is made, which has no tokens.
    check_types(module)
    core.check_runs_in_jaxlib(module._core)
    if core.has_donations(module._core):
        # jaxlib drops the donations of a module that it gets at its hook.
        module = HloModule._wrap(core.without_donations(module._core))
    given = check_options(options)
    refuse_wrong(module, given)
    return JaxlibExecutable(_Source(module, is_final, given))


@dataclass(frozen=True)
class _Source:
    """What an executable is compiled from."""

    module: HloModule
    is_final: bool
    options: Options

    def compile(self) -> tuple[Any, HloModule, int]:
        """The `jax.stages.Compiled`, its module, and the nanoseconds that it took."""
        jax = require_jax(_USER)
        given = _with_interface_of(self.module) if self.is_final else self.module
        program = program_of(given)

        def function(*arrays: Any) -> tuple[Any, ...]:
            return tuple(program(*arrays))

        function.__name__ = function.__qualname__ = f"hloenv_{next(_names)}"
        seen = _Seen(f"jit_{function.__name__}", self.module if self.is_final else None)
        layouts = {}
        if self.is_final:
            arguments, results = _formats(jax, self.module.entry_layout)
            layouts = {"in_shardings": arguments, "out_shardings": results}
        with on_cpu(jax):
            jitted = jax.jit(function, keep_unused=True, **layouts)
            lowered = jitted.lower(*avals_of(jax, self.module.input_specs()))
            started = time.perf_counter_ns()
            with seen.registered(), without_persistent_cache():
                try:
                    compiled = compile_lowered(lowered, self.options)
                except jax.errors.JaxRuntimeError as error:
                    reason = seen.reason or error
                    raise CompileError(
                        f"jaxlib cannot compile module {self.module.name!r}: {reason}"
                    ) from None
        return compiled, seen.result(), time.perf_counter_ns() - started


class JaxlibExecutable:
    """A module compiled by jaxlib as a function of arrays.

    It is called from Python as jax.jit calls a function: its times contain jax's
    dispatch, some microseconds a call.

    Attributes:
        module: the input of jaxlib's scheduler and backend.
        input_specs: one for each flat leaf of the parameters.
        output_specs: one for each flat leaf of the result.
        compile_ns: time of jaxlib's compiler, with its passes, in nanoseconds.
    """

    def __init__(self, source: _Source):
        """Use `hloenv.compile(..., engine="jaxlib")`."""
        self._source = source
        self._jax: Any = require_jax(_USER)
        self._compiled, self.module, self.compile_ns = source.compile()
        self.input_specs = source.module.input_specs()
        self.output_specs = source.module.output_specs()

    def __call__(self, *arrays: Any) -> tuple[Array, ...]:
        """Runs once; arguments and result as of `Executable`.

        Raises:
            ArgumentError: an array of wrong shape or dtype, or a wrong number.
            ExecuteError: the module failed while it ran.
        """
        placed = self._placed(arrays)
        with on_cpu(self._jax):
            try:
                outputs = self._compiled(*placed)
                # The copies belong to the caller.
                return tuple(np.array(each) for each in outputs)
            except self._jax.errors.JaxRuntimeError as error:
                raise ExecuteError(str(error)) from None

    def call_of(self, inputs: Sequence[Any] | None) -> Callable[[], object]:
        """A function without arguments that runs once and waits.

        Args:
            inputs: as for `__call__`; None for `random_inputs`.
        """
        given = random_inputs(self._source.module) if inputs is None else inputs
        with on_cpu(self._jax):
            formats = self._compiled.input_formats[0]
            arrays = self._jax.device_put(self._placed(given), list(formats))
        function, wait = self._compiled, self._jax.block_until_ready
        return lambda: wait(function(*arrays))

    def run(
        self,
        repeats: int = 100,
        *,
        inputs: Sequence[Any] | None = None,
        warmup: int = 1,
    ) -> np.ndarray[Any, np.dtype[np.int64]]:
        """Times runs, as `Executable.run` does, but from Python: see `time_calls`."""
        return time_calls(
            [self.call_of(inputs)], [1], repeats=repeats, warmup=warmup, seed=0
        )[0]

    def time_steps(
        self,
        repeats: int = 10,
        *,
        inputs: Sequence[Any] | None = None,
        warmup: int = 1,
    ) -> StepTimes:
        """Times the thunks by jax's profiler, also those of loops.

        The time of a loop is without that of its thunks. Short thunks appear some
        hundred nanoseconds longer than they are.

        Args:
            repeats: number of timed runs.
            inputs: the arguments of all runs; by default `random_inputs`.
            warmup: untimed runs before the first timed one.
        """
        call = self.call_of(inputs)
        with on_cpu(self._jax):
            for _ in range(warmup):
                call()
            return profiled_steps(self._jax, call, repeats)

    @property
    def temp_bytes(self) -> int:
        """Size of the scratch memory of a run."""
        analysis = self._compiled.memory_analysis()
        return int(getattr(analysis, "temp_size_in_bytes", 0))

    def copy(self) -> JaxlibExecutable:
        """The same code at another address: compiled again.

        Raises:
            CompileError: that would take more than a second.
        """
        if self.compile_ns > _MAX_COPY_NS:
            raise CompileError(
                f"compiling again would take {self.compile_ns * 1e-9:.1f} s"
            )
        return JaxlibExecutable(self._source)

    def _placed(self, arrays: Sequence[Any]) -> list[Any]:
        if len(arrays) != len(self.input_specs):
            raise ArgumentError(
                f"the module takes {len(self.input_specs)} arrays, got {len(arrays)}"
            )
        return [
            place_array(value, spec, _row_major(spec), f"argument {index}")
            for index, (value, spec) in enumerate(
                zip(arrays, self.input_specs, strict=True)
            )
        ]

    def __repr__(self) -> str:
        return (
            f"<JaxlibExecutable {self.module.name!r}: {len(self.input_specs)} inputs, "
            f"{len(self.output_specs)} outputs>"
        )


def time_calls(
    calls: Sequence[Callable[[], object]],
    batch: Sequence[int],
    *,
    repeats: int,
    warmup: int,
    seed: int,
) -> list[np.ndarray[Any, np.dtype[np.int64]]]:
    """Times Python functions in rounds, in a random order in each.

    Each duration follows a run of the same function that is not timed, or a pause if
    that is long: jax frees the memory of a run after its results are there, and so in
    the time of the next one.

    Args:
        calls: functions that run and wait.
        batch: runs of each per duration.
        repeats: number of timed rounds.
        warmup: untimed rounds before the first timed one.
        seed: of the order.

    Returns:
        For each function [repeats] int64, the duration of one run in each round, in
        nanoseconds.
    """
    rng = np.random.default_rng(seed)
    clock = time.perf_counter_ns
    durations = np.empty((len(calls), repeats), np.int64)
    last_ns = [0] * len(calls)
    with on_cpu(require_jax(_USER)):
        for index in range(-warmup, repeats):
            for i in rng.permutation(len(calls)):
                call, count = calls[i], batch[i]
                if max(last_ns) > 1e9 * PAUSE_S:
                    time.sleep(PAUSE_S)
                else:
                    call()
                started = clock()
                for _ in range(count):
                    call()
                elapsed = last_ns[i] = (clock() - started) // count
                if index >= 0:
                    durations[i, index] = max(elapsed, 1)
    return list(durations)


class _Seen:
    """The module of one compilation, as jaxlib's hook sees it."""

    def __init__(self, name: str, replacement: HloModule | None) -> None:
        self._name = name
        self._replacement = replacement
        self._module: HloModule | None = replacement
        self._is_replaced = False
        self.reason = ""

    @contextlib.contextmanager
    def registered(self) -> Iterator[None]:
        unregister = register(self._transform)
        try:
            yield
        finally:
            unregister()

    def _transform(self, proto: bytes) -> bytes | None:
        if module_name(proto) != self._name:
            return None
        try:
            theirs = HloModule._wrap(core.readable_here(read_trusted(proto)._core))
        except HloEnvError as error:
            # It runs all the same; only its text is missing.
            self.reason = f"jaxlib's module cannot be read: {error}"
            return None
        final = self._replacement
        if final is None:
            self._module = theirs
            return None
        if theirs.entry_layout != final.entry_layout:
            self.reason = (
                f"it takes and returns {final.entry_layout}, but arrays of jax have "
                f"the layout {theirs.entry_layout}"
            )
            raise CompileError(self.reason)
        self._is_replaced = True
        return to_jaxlib(final)

    def result(self) -> HloModule:
        """The module that was compiled.

        Raises:
            CompileError: jaxlib did not call the hook.
        """
        if self._module is None or (self._replacement and not self._is_replaced):
            raise CompileError(self.reason or "jaxlib did not call its hook")
        return self._module


@contextlib.contextmanager
def on_cpu(jax: Any) -> Iterator[None]:
    """On the CPU, with 64-bit types, whatever jax's settings are."""
    with jax.enable_x64(True), jax.default_device(jax.devices("cpu")[0]):
        yield


def _formats(jax: Any, entry_layout: str) -> tuple[Any, ...]:
    """Types of jax for the orders in memory of a module's inputs and outputs."""
    from jax.experimental.layout import Format, Layout

    sharding = jax.sharding.SingleDeviceSharding(jax.devices("cpu")[0])
    return tuple(
        tuple(
            Format(Layout(tuple(map(int, reversed(order.split(","))))), sharding)
            if order
            else None
            for order in _LAYOUT.findall(side)
        )
        for side in entry_layout.split("->")
    )


def _row_major(spec: ArraySpec) -> list[int]:
    return list(range(len(spec.shape) - 1, -1, -1))


def _with_interface_of(module: HloModule) -> HloModule:
    """A module of constants with the inputs and outputs of `module`."""
    lines = []
    for i, spec in enumerate(module.input_specs()):
        lines.append(f"p{i} = {_shape(spec)} parameter({i})")
    outputs = module.output_specs()
    for i, spec in enumerate(outputs):
        lines.append(f"z{i} = {spec.hlo_dtype}[] constant({_zero(spec.hlo_dtype)})")
        lines.append(f"o{i} = {_shape(spec)} broadcast(z{i}), dimensions={{}}")
    shapes = ", ".join(_shape(spec) for spec in outputs)
    names = ", ".join(f"o{i}" for i in range(len(outputs)))
    lines.append(f"ROOT r = ({shapes}) tuple({names})")
    body = "\n  ".join(lines)
    return HloModule.from_text(f"HloModule interface\n\nENTRY e {{\n  {body}\n}}\n")


def _shape(spec: ArraySpec) -> str:
    return f"{spec.hlo_dtype}[{','.join(map(str, spec.shape))}]"


def _zero(hlo_dtype: str) -> str:
    if hlo_dtype == "pred":
        return "false"
    return "(0, 0)" if hlo_dtype in ("c64", "c128") else "0"
