# SPDX-License-Identifier: Apache-2.0
"""Calls a module inside jax.jit, in the place of the function it was lowered from.

The module goes back as StableHLO, so jaxlib compiles it with its whole pipeline, and
jax's dispatch, donations and persistent cache work as for any function. The call has no
derivative and no batched form: it is for functions that are called with values.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from typing import Any

from ..errors import CompileError
from ..hlo.module import HloModule
from .injection import to_jaxlib
from .lowering import require_jax


class _Body:
    """What one call runs: StableHLO as bytecode."""

    def __init__(self, bytecode: bytes) -> None:
        self.bytecode = bytecode


class _Handle:
    """Stands for a body in jax's caches, which live longer than functions do.

    Attributes:
        out_avals: types of the results.
        kept: numbers of the arguments that the module takes.
        body: a weak reference.
    """

    def __init__(self, out_avals: Any, kept: list[int], body: _Body) -> None:
        self.out_avals = out_avals
        self.kept = kept
        self.body = weakref.ref(body)


def call_module(module: HloModule, traced: Any, lowered: Any) -> Callable[..., Any]:
    """The function of `traced`, as a call of `module`.

    Args:
        module: before XLA's passes, with the parameters and outputs of `lowered`.
        traced: a `jax.stages.Traced`.
        lowered: the `jax.stages.Lowered` of `traced`.

    Returns:
        A function of the arguments of `traced`, to be called while jax.jit traces it.
        Static arguments are ignored.

    Raises:
        CompileError: jaxlib cannot read the module.
        ImportError: jax is missing or too old.
    """
    jax = require_jax("hloenv.jit")
    body = _Body(_stablehlo(module))
    kept = sorted(lowered._lowering.compile_args["kept_var_idx"])
    handle = _Handle(traced.jaxpr.out_avals, kept, body)
    tree = jax.tree.structure(traced.out_info)
    num_leaves = len(traced.jaxpr.in_avals)

    def function(*args: Any, **kwargs: Any) -> Any:
        leaves = [
            leaf
            for leaf in jax.tree.leaves((args, kwargs))
            if isinstance(leaf, jax.core.Tracer)
        ]
        assert body is not None  # lives as long as the function
        assert len(leaves) == num_leaves, (len(leaves), num_leaves)
        return jax.tree.unflatten(tree, _primitive().bind(*leaves, handle=handle))

    return function


def _stablehlo(module: HloModule) -> bytes:
    jax = require_jax("hloenv.jit")
    from jaxlib import xla_client

    xla: Any = xla_client
    try:
        return bytes(xla._xla.mlir.hlo_to_stablehlo(to_jaxlib(module)))
    except (AttributeError, jax.errors.JaxRuntimeError, ValueError) as error:
        raise CompileError(
            f"jaxlib {jax.lib.__version__} cannot read the decided module as "
            f"StableHLO: {error}"
        ) from error


@functools.cache
def _primitive() -> Any:
    """The primitive of these calls: multiple results, parameter `handle`."""
    from jax.extend.core import Primitive
    from jax.interpreters import mlir

    primitive: Any = Primitive("hloenv_call")
    primitive.multiple_results = True
    primitive.def_abstract_eval(lambda *_, handle: handle.out_avals)
    mlir.register_lowering(primitive, _lower, platform="cpu")
    return primitive


def _lower(context: Any, *values: Any, handle: _Handle) -> Any:
    """Adds the body to the module that jax is lowering, and a call of it."""
    from jax.interpreters import mlir
    from jaxlib.mlir import ir
    from jaxlib.mlir.dialects import func

    body = handle.body()
    assert body is not None  # the function that was traced holds it
    target = context.module_context
    with target.module.context:
        submodule = ir.Module.parse(body.bytecode)
    main: Any = ir.SymbolTable(submodule.operation)["main"]
    name = mlir.merge_mlir_modules(
        target.module, "hloenv_call", submodule, dst_symtab=target.symbol_table
    )
    kept = [values[i] for i in handle.kept]
    return func.CallOp(main.type.results, ir.FlatSymbolRefAttr.get(name), kept).results
