# SPDX-License-Identifier: Apache-2.0
"""Calls an executable of hloenv's inside jax's traces.

The code that TensorFlow's XLA compiled runs as one custom call of jaxlib's: on jaxlib's
own buffers, without copies, without the GIL, and without Python.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from .._native import core
from ..errors import CompileError
from ..runtime.executable import Executable
from ..runtime.jaxlib.package import NOT_IN_JAX, require_jax

_TARGET = "hloenv_run"


def call_executable(executable: Executable) -> Callable[..., list[Any]]:
    """A function of jax arrays that runs an executable.

    It may be called inside `jax.jit`, `lax.scan` and, one element after the other,
    `vmap`; it has no derivative.

    Args:
        executable: of `hloenv.compile`. It lives as long as the process, since compiled
            functions of jax may call it at any time.

    Returns:
        A function from one array for each flat leaf of the parameters to a list of one
        array for each flat leaf of the result.

    Raises:
        CompileError: the module takes or returns tokens, numbers of less than a byte,
            or arrays in another layout than jax's.
        ImportError: jax is missing or too old.
    """
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
    key = executable.module.fingerprint()
    core.publish_executable(key, executable._core)
    types = [
        jax.ShapeDtypeStruct(spec.shape, spec.dtype) for spec in executable.output_specs
    ]

    def call(*arrays: Any) -> list[Any]:
        run = jax.ffi.ffi_call(_TARGET, types, vmap_method="sequential")
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
