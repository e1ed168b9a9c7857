# SPDX-License-Identifier: Apache-2.0
"""Compiles a module with jaxlib and calls it through `jax.jit`.

The module becomes a call inside a jitted function (`hloenv.runtime.jaxlib`). The rest
is plain `jax.jit`: jaxlib's XLA with its default flags, jax's C++ dispatch, arrays on
the device.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..errors import CompileError
from ..hlo.module import HloModule
from ..runtime.jaxlib.package import NOT_IN_JAX
from ..runtime.jaxlib.stablehlo import function_of

Program = Callable[..., list[Any]]


def program_of(module: HloModule) -> Program:
    """Converts a module for `jit`.

    Raises:
        CompileError: jaxlib cannot read or convert it, or jax does not support a type.
    """
    import jax

    for spec in (*module.input_specs(), *module.output_specs()):
        if spec.hlo_dtype in NOT_IN_JAX:
            raise CompileError(f"jax does not support arrays of {spec.hlo_dtype}")
    avals = [
        jax.core.ShapedArray(tuple(each.shape), each.dtype)
        for each in module.output_specs()
    ]
    return function_of(module, avals)


def jit(program: Program) -> Callable[..., tuple[Any, ...]]:
    """A new `jax.jit` function of one array for each input; compiles when called."""
    import jax

    def hlo_module(*arrays: Any) -> tuple[Any, ...]:
        return tuple(program(*arrays))

    function: Callable[..., tuple[Any, ...]] = jax.jit(hlo_module, keep_unused=True)
    return function
