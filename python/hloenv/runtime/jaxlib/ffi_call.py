# SPDX-License-Identifier: Apache-2.0
"""Calls an executable of hloenv's inside jax's traces.

The code that TensorFlow's XLA compiled runs as one custom call of jaxlib's: on jaxlib's
own buffers, without copies, without the GIL, and without Python.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from ..._native import core
from ...errors import CompileError
from .executable import on_cpu
from .hook import without_persistent_cache
from .package import NOT_IN_JAX, require_jax
from .stablehlo import avals_of

if TYPE_CHECKING:
    from ...hlo.array_spec import ArraySpec
    from ...hlo.module import HloModule

_TARGET = "hloenv_run"
_numbers = itertools.count(1)
# How many callers of each published executable there are.
_uses: Counter[str] = Counter()
_uses_lock = threading.Lock()


class Executable(Protocol):
    """What is needed of a `hloenv.runtime.Executable`."""

    module: HloModule
    input_specs: tuple[ArraySpec, ...]
    output_specs: tuple[ArraySpec, ...]
    _core: core.Executable


def call_executable(executable: Executable) -> Callable[..., list[Any]]:
    """A function of jax arrays that runs an executable.

    It may be called inside `jax.jit`, `lax.scan` and, one element after the other,
    `vmap`; it has no derivative. A result of a module with donations takes over the
    memory of the donated argument, if nothing else needs that.

    Args:
        executable: of `hloenv.compile`. It lives as long as the process, since compiled
            functions of jax may call it at any time, or until `discard_executable`.

    Returns:
        A function from one array for each flat leaf of the parameters to a list of one
        array for each flat leaf of the result.

    Raises:
        CompileError: the module takes or returns tokens, numbers of less than a byte,
            or arrays in another layout than jax's.
        ImportError: jax is missing or too old.
    """
    key = executable.module.fingerprint()
    call = _call_of(executable, key)
    with _uses_lock:
        core.publish_executable(key, executable._core)
        _uses[key] += 1
    return call


def discard_executable(executable: Executable) -> None:
    """Takes one `call_executable` back: no function of jax calls it any more.

    The executable is freed unless equal ones are in use.
    """
    key = executable.module.fingerprint()
    with _uses_lock:
        _uses[key] -= 1
        if _uses[key] <= 0:
            del _uses[key]
            core.retract_executable(key)


@contextlib.contextmanager
def called_in_jax(
    executable: Executable, inputs: Sequence[Any]
) -> Iterator[Callable[[], object]]:
    """A function without arguments that runs an executable as jax calls it.

    Its time contains jax's dispatch, like that of a `JaxlibExecutable`.

    Args:
        executable: of `hloenv.compile`; it is freed after the block.
        inputs: one array for each flat leaf of the parameters.

    Raises:
        CompileError: as `call_executable`.
    """
    jax = require_jax("hloenv.jax.call_executable")
    # Copies of the code at other addresses are other executables.
    key = f"{executable.module.fingerprint()} {next(_numbers)}"
    jitted = jax.jit(_call_of(executable, key))
    device = jax.devices("cpu")[0]
    core.publish_executable(key, executable._core)
    try:
        with on_cpu(jax), without_persistent_cache():
            compiled = jitted.lower(*avals_of(jax, executable.input_specs)).compile()
            arrays = [jax.device_put(each, device) for each in inputs]
        yield lambda: jax.block_until_ready(compiled(*arrays))
    finally:
        core.retract_executable(key)


def _call_of(executable: Executable, key: str) -> Callable[..., list[Any]]:
    """Calls what is published under `key`."""
    _register()
    jax = require_jax("hloenv.jax.call_executable")
    specs = executable.input_specs, executable.output_specs
    layouts = executable._core.inputs, executable._core.outputs
    for kind, kind_specs, kind_layouts in zip(
        ("input", "output"), specs, layouts, strict=True
    ):
        for index, (spec, leaf) in enumerate(
            zip(kind_specs, kind_layouts, strict=True)
        ):
            _check(f"{kind} {index}", spec, leaf[2])
    donated = {
        given: result
        for given, result in executable._core.donations
        if specs[0][given] == specs[1][result]
    }
    types = [
        jax.ShapeDtypeStruct(spec.shape, spec.dtype) for spec in executable.output_specs
    ]

    def call(*arrays: Any) -> list[Any]:
        run = jax.ffi.ffi_call(
            _TARGET, types, vmap_method="sequential", input_output_aliases=donated
        )
        return list(run(*arrays, key=key))

    return call


def _check(name: str, spec: Any, layout: tuple[int, ...]) -> None:
    if spec.hlo_dtype in NOT_IN_JAX:
        raise CompileError(
            f"{name} has type {spec.hlo_dtype}, which hloenv cannot pass between jax "
            "and the executable"
        )
    if list(layout) != list(range(len(layout)))[::-1]:
        raise CompileError(
            f"{name} has layout {list(layout)} (minor to major); jax passes arrays in "
            "row-major order only: lower the module with jax's default layouts"
        )


@functools.cache
def _register() -> None:
    jax = require_jax("hloenv.jax.call_executable")
    if not hasattr(jax, "ffi"):
        raise ImportError(f"hloenv.jax needs jax.ffi; jax {jax.__version__} has none")
    jax.ffi.register_ffi_target(_TARGET, core.ffi_call_handler(), platform="cpu")
