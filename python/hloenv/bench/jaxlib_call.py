# SPDX-License-Identifier: Apache-2.0
"""Compiles a module with jaxlib and calls it through `jax.jit`.

The module is converted to StableHLO, which the lowering rule of a primitive inserts
into the jitted function. The rest is plain `jax.jit`: jaxlib's XLA with its default
flags, jax's C++ dispatch, arrays on the device.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from .._native import core
from ..errors import CompileError
from ..hlo.module import HloModule

# Layout attributes that the conversion keeps. jax's own modules have no layouts, and
# jaxlib's runtime crashes on some modules that do.
_LAYOUTS = ("result_layout", "xla_shape")
# Element types that jax arrays do not support.
_SUB_BYTE = frozenset({"s2", "u2", "s4", "u4", "s1", "u1", "f4e2m1fn"})


@dataclass(frozen=True, eq=False)
class Program:
    """A module for jaxlib. Instances are never equal, so that jax compiles each.

    Attributes:
        stablehlo: bytecode or text of an MLIR module with a function `main`.
        outputs: shape and dtype of each result of `main`.
    """

    stablehlo: bytes = field(repr=False)
    outputs: tuple[tuple[tuple[int, ...], Any], ...]


def program_of(module: HloModule) -> Program:
    """Converts a module to StableHLO.

    Raises:
        CompileError: jaxlib cannot read or convert it, or jax does not support a type.
    """
    from jaxlib import _jax

    specs = [*module.input_specs(), *module.output_specs()]
    for spec in specs:
        if spec.hlo_dtype in _SUB_BYTE or spec.hlo_dtype == "token":
            raise CompileError(f"jax does not support arrays of {spec.hlo_dtype}")
    readable = HloModule._wrap(core.readable_by_jaxlib(module._core))
    try:
        stablehlo = _jax.mlir.hlo_to_stablehlo(readable.to_proto())
    except Exception as error:  # jaxlib raises no specific class
        raise CompileError(f"jaxlib cannot convert it to StableHLO: {error}") from None
    outputs = tuple((tuple(each.shape), each.dtype) for each in module.output_specs())
    return Program(stablehlo, outputs)


def jit(program: Program) -> Callable[..., tuple[Any, ...]]:
    """A new `jax.jit` function of one array for each input; compiles when called."""
    import jax

    primitive = _primitive()

    def hlo_module(*arrays: Any) -> tuple[Any, ...]:
        return tuple(primitive.bind(*arrays, program=program))

    function: Callable[..., tuple[Any, ...]] = jax.jit(hlo_module, keep_unused=True)
    return function


@functools.cache
def _primitive() -> Any:
    import jax
    from jax.extend.core import Primitive
    from jax.interpreters import mlir
    from jaxlib.cpu import _lapack

    # jax does this only when it lowers a function that calls LAPACK.
    _lapack.initialize()
    primitive: Any = Primitive("hlo_module")
    primitive.multiple_results = True

    def abstract_eval(*_: Any, program: Program) -> list[Any]:
        return [jax.core.ShapedArray(*each) for each in program.outputs]

    primitive.def_abstract_eval(abstract_eval)
    mlir.register_lowering(primitive, _lower)
    return primitive


def _lower(context: Any, *arguments: Any, program: Program) -> Sequence[Any]:
    """Merges the program's functions into jax's module, and calls its `main`."""
    from jax._src.interpreters.mlir import merge_mlir_modules
    from jaxlib.mlir import ir
    from jaxlib.mlir.dialects import func

    ours = context.module_context
    with ours.context:
        module = ir.Module.parse(program.stablehlo)
    module.operation.walk(_without_layouts)
    main = ir.SymbolTable(module.operation)["main"]
    results = ir.FunctionType(ir.TypeAttr(main.attributes["function_type"]).value)
    types = results.results
    name = merge_mlir_modules(
        ours.module, "hlo_module", module, dst_symtab=ours.symbol_table
    )
    call = func.CallOp(types, ir.FlatSymbolRefAttr.get(name), arguments)
    found: Sequence[Any] = call.results
    return found


def _without_layouts(operation: Any) -> Any:
    from jaxlib.mlir import ir

    for name in _LAYOUTS:
        if name in operation.attributes:
            del operation.attributes[name]
    return ir.WalkResult.ADVANCE
