# SPDX-License-Identifier: Apache-2.0
"""Calls a module inside jax's traces, in the place of the function it was lowered from.

The module goes back as StableHLO, so jaxlib compiles it with its whole pipeline, and
jax's dispatch, donations and persistent cache work as for any function. The public way
into jax is an `Exported`: one is made of a function of the same types, and its module
is replaced. Derivatives and batches of the call are those of the function itself.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

from ..errors import CompileError
from ..hlo.module import HloModule
from .injection import to_jaxlib
from .lowering import require_jax


@dataclasses.dataclass(frozen=True, eq=False)
class _Body:
    """What one call runs, and the function that it stands for.

    Attributes:
        call: takes and returns flat lists of arrays; traced by jax.
        jaxpr: the `ClosedJaxpr` of the plain function, on the same lists.
    """

    call: Callable[..., list[Any]]
    jaxpr: Any

    def plain(self, *leaves: Any) -> list[Any]:
        """The plain function, on flat lists."""
        jax = require_jax("hloenv.jit")
        from jax.extend.core import jaxpr_as_fun

        return jax.jit(jaxpr_as_fun(self.jaxpr))(*leaves)  # type: ignore[no-any-return]


def call_module(module: HloModule, traced: Any, lowered: Any) -> Callable[..., Any]:
    """The function of `traced`, as a call of `module`.

    Args:
        module: before XLA's passes, with the parameters and outputs of `lowered`.
        traced: a `jax.stages.Traced`.
        lowered: the `jax.stages.Lowered` of `traced`.

    Returns:
        A function of the arguments of `traced`, to be called while jax traces it.
        Static arguments are ignored.

    Raises:
        CompileError: jaxlib cannot read the module.
        ImportError: jax is missing or too old.
    """
    jax = require_jax("hloenv.jit")
    kept = sorted(lowered._lowering.compile_args["kept_var_idx"])
    call = _exported(
        module,
        [traced.jaxpr.in_avals[i] for i in kept],
        traced.jaxpr.out_avals,
    )
    tree = jax.tree.structure(traced.out_info)
    body = _Body(lambda *leaves: call(*(leaves[i] for i in kept)), traced.jaxpr)
    num_leaves = len(traced.jaxpr.in_avals)

    def function(*args: Any, **kwargs: Any) -> Any:
        leaves = [
            leaf
            for leaf in jax.tree.leaves((args, kwargs))
            if isinstance(leaf, jax.core.Tracer)
        ]
        assert len(leaves) == num_leaves, (len(leaves), num_leaves)
        return jax.tree.unflatten(tree, _primitive().bind(*leaves, body=body))

    return function


def _exported(
    module: HloModule, in_avals: list[Any], out_avals: list[Any]
) -> Callable[..., list[Any]]:
    """A function on arrays that runs the module."""
    jax = require_jax("hloenv.jit")
    from jax import export
    from jaxlib import xla_client

    xla: Any = xla_client
    try:
        stablehlo = xla._xla.mlir.hlo_to_stablehlo(to_jaxlib(module))
    except (AttributeError, jax.errors.JaxRuntimeError, ValueError) as error:
        raise CompileError(
            f"jaxlib {jax.version.__version__} cannot read the decided module as "
            f"StableHLO: {error}"
        ) from error
    in_types, out_types = (
        [_data_type(aval) for aval in avals] for avals in (in_avals, out_avals)
    )

    def same_types(*_: Any) -> list[Any]:
        return [jax.numpy.zeros(each.shape, each.dtype) for each in out_types]

    exported = export.export(jax.jit(same_types, keep_unused=True), platforms=("cpu",))(
        *in_types
    )
    run: Any = dataclasses.replace(exported, mlir_module_serialized=stablehlo).call

    def call(*leaves: Any) -> list[Any]:
        outputs = run(*(_data(leaf) for leaf in leaves))
        return [
            jax.random.wrap_key_data(output, impl=aval.dtype._impl.name)
            if _is_key(aval)
            else output
            for output, aval in zip(outputs, out_avals, strict=True)
        ]

    return call


def _is_key(aval: Any) -> bool:
    jax = require_jax("hloenv.jit")
    return bool(jax.dtypes.issubdtype(aval.dtype, jax.dtypes.prng_key))


def _data(leaf: Any) -> Any:
    return require_jax("hloenv.jit").random.key_data(leaf) if _is_key(leaf) else leaf


def _data_type(aval: Any) -> Any:
    jax = require_jax("hloenv.jit")
    if _is_key(aval):
        aval = jax.eval_shape(
            jax.random.key_data, jax.ShapeDtypeStruct(aval.shape, aval.dtype)
        )
    return jax.ShapeDtypeStruct(aval.shape, aval.dtype)


@functools.cache
def _primitive() -> Any:
    """The primitive of these calls: multiple results, parameter `body`."""
    jax = require_jax("hloenv.jit")
    from jax.extend.core import Primitive
    from jax.interpreters import ad, batching, mlir

    primitive: Any = Primitive("hloenv_call")
    primitive.multiple_results = True
    primitive.def_abstract_eval(lambda *_, body: body.jaxpr.out_avals)
    primitive.def_impl(lambda *leaves, body: jax.jit(body.call)(*leaves))
    mlir.register_lowering(
        primitive,
        mlir.lower_fun(lambda *leaves, body: body.call(*leaves), multiple_results=True),
    )

    def differentiate(primals: Any, tangents: Any, *, body: _Body) -> Any:
        tangents = tuple(map(ad.instantiate_zeros, tangents))
        return jax.jvp(body.plain, tuple(primals), tangents)

    def batch(leaves: Any, axes: Any, *, body: _Body) -> Any:
        outputs = jax.vmap(body.plain, tuple(axes))(*leaves)
        return outputs, [0] * len(outputs)

    ad.primitive_jvps[primitive] = differentiate
    batching.primitive_batchers[primitive] = batch
    return primitive
