# SPDX-License-Identifier: Apache-2.0
"""Calls a module inside jax.jit, in the place of the function it was lowered from.

The module goes back as StableHLO, so jaxlib compiles it with its whole pipeline, and
jax's dispatch, donations and persistent cache work as for any function. The call has no
derivative and no batched form: it is for functions that are called with values.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..._native import core
from ...errors import CompileError
from ...hlo.module import HloModule
from .package import NOT_IN_JAX, require_jax

if TYPE_CHECKING:
    from ...hlo.array_spec import ArraySpec

# Attributes that the conversion keeps. jax's own modules have no layouts, and jaxlib's
# runtime crashes on some modules that do.
_LAYOUTS = ("result_layout", "xla_shape")


class _Plain:
    """A jaxpr as a function of some of its arguments, on which alone it depends."""

    def __init__(self, closed: Any, kept: Sequence[int]) -> None:
        self._closed = closed
        self._kept = kept

    def __call__(self, *values: Any) -> Any:
        from jax.extend.core import jaxpr_as_fun

        jax = require_jax("hloenv.jit")
        given = dict(zip(self._kept, values, strict=True))
        # Equations that nothing depends on may read the others.
        full = [
            given[number] if number in given else _any_value(jax, aval)
            for number, aval in enumerate(self._closed.in_avals)
        ]
        return jaxpr_as_fun(self._closed)(*full)


def _any_value(jax: Any, aval: Any) -> Any:
    """An array of a type, of whatever value."""
    if jax.dtypes.issubdtype(aval.dtype, jax.dtypes.prng_key):
        keys = jax.random.split(jax.random.key(0, impl=aval.dtype._impl.name), 1)
        return jax.numpy.broadcast_to(keys[0], aval.shape)
    if aval.dtype == jax.dtypes.float0:
        return np.zeros(aval.shape, aval.dtype)
    return jax.numpy.zeros(aval.shape, aval.dtype)


class _Body:
    """What one call runs.

    Attributes:
        code: for one device: StableHLO bytecode, or a function of jax's.
        plain: the function for other devices; None if there is none.
        platform: jax's name of the devices that `code` is for.
    """

    def __init__(
        self, code: bytes | Callable[..., Any], plain: Any = None, platform: str = "cpu"
    ) -> None:
        self.code = code
        self.plain = plain
        self.platform = platform


class _Handle:
    """Stands for a body in jax's caches, which live longer than functions do.

    Attributes:
        out_avals: types of the results.
        body: a weak reference.
    """

    def __init__(self, out_avals: Sequence[Any], body: _Body) -> None:
        self.out_avals = out_avals
        self.body = weakref.ref(body)


def call_module(module: HloModule, traced: Any, lowered: Any) -> Callable[..., Any]:
    """The function of `traced`, as a call of `module` where it runs on one CPU device.

    jax uses one trace for all devices. On others, and on several, it is `traced`.

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
    return call_function(stablehlo_of(module), module, traced, lowered)


def call_function(
    code: bytes | Callable[..., Any], module: HloModule, traced: Any, lowered: Any
) -> Callable[..., Any]:
    """As `call_module`, with code that computes the module.

    Args:
        code: StableHLO bytecode, or a function of jax's, of those flat arguments of
            `traced` that `lowered` has.
        module: that it computes.
        traced: a `jax.stages.Traced`.
        lowered: the `jax.stages.Lowered` of `traced`.
    """
    jax = require_jax("hloenv.jit")
    kept = sorted(lowered._lowering.compile_args["kept_var_idx"])
    # As jax leaves out arguments that no result depends on.
    plain = _Plain(traced.jaxpr, kept)
    call = _call(code, module, traced.jaxpr.out_avals, plain=plain)
    # `out_info` would make the user's pytrees of other objects than arrays.
    tree = traced.out_tree
    num_leaves = len(traced.jaxpr.in_avals)

    def function(*args: Any, **kwargs: Any) -> Any:
        leaves = [
            leaf
            for leaf in jax.tree.leaves((args, kwargs))
            if isinstance(leaf, jax.core.Tracer)
        ]
        assert len(leaves) == num_leaves, (len(leaves), num_leaves)
        return jax.tree.unflatten(tree, call(*(leaves[i] for i in kept)))

    return function


def function_of(
    module: HloModule,
    out_avals: Sequence[Any],
    *,
    platform: str = "cpu",
) -> Callable[..., list[Any]]:
    """A module as a function of flat arrays, to be called while jax.jit traces it.

    Args:
        module: before XLA's passes.
        out_avals: jax's types of its results.
        platform: that the module was lowered for, in jax's words.

    Raises:
        CompileError: jaxlib cannot read the module.
    """
    code = stablehlo_of(module)
    return _call(code, module, out_avals, platform=platform)


def _call(
    code: bytes | Callable[..., Any],
    module: HloModule,
    out_avals: Sequence[Any],
    *,
    plain: Callable[..., Any] | None = None,
    platform: str = "cpu",
) -> Callable[..., list[Any]]:
    if platform == "cpu" and "custom-call" in module.opcode_counts():
        _initialize_lapack()
    body = _Body(code, plain, platform)
    handle = _Handle(out_avals, body)

    def call(*leaves: Any) -> list[Any]:
        assert body is not None  # lives as long as the function
        return _primitive().bind(*leaves, handle=handle)  # type: ignore[no-any-return]

    return call


def program_of(module: HloModule) -> Callable[..., list[Any]]:
    """`function_of` with the results' types taken from the module.

    Raises:
        CompileError: jaxlib cannot read the module, or jax has no arrays of one of its
            types.
    """
    jax = require_jax("engine='jaxlib'")
    check_types(module)
    return function_of(module, avals_of(jax, module.output_specs()))


def check_types(module: HloModule) -> None:
    """Rejects a module with inputs or outputs that jax has no arrays for.

    Raises:
        CompileError: there is one.
    """
    for spec in (*module.input_specs(), *module.output_specs()):
        if spec.hlo_dtype in NOT_IN_JAX:
            raise CompileError(
                f"jax has no arrays of type {spec.hlo_dtype}, which module "
                f"{module.name!r} takes or returns; use engine='wheel'"
            )


def avals_of(jax: Any, specs: Sequence[ArraySpec]) -> list[Any]:
    """The types of these arrays in jax."""
    return [jax.core.ShapedArray(tuple(each.shape), each.dtype) for each in specs]


def stablehlo_of(module: HloModule) -> bytes:
    """The module as StableHLO bytecode.

    Raises:
        CompileError: jaxlib cannot convert it.
        ImportError: jax is missing or too old.
    """
    jax = require_jax("hloenv.jit")
    from jaxlib import xla_client

    xla: Any = xla_client
    readable = HloModule._wrap(core.readable_by_jaxlib(module._core))
    try:
        return bytes(xla._xla.mlir.hlo_to_stablehlo(readable.to_proto()))
    except Exception as error:  # jaxlib raises no specific class
        raise CompileError(
            f"jaxlib {jax.lib.__version__} cannot convert the module to StableHLO: "
            f"{error}"
        ) from None


@functools.cache
def _initialize_lapack() -> None:
    """Finds LAPACK's functions, which jax does where it lowers a call of one.

    It imports scipy.linalg, which takes longer than many a decision.
    """
    from jaxlib.cpu import _lapack

    _lapack.initialize()


@functools.cache
def _primitive() -> Any:
    """The primitive of these calls: multiple results, parameter `handle`."""
    from jax.extend.core import Primitive
    from jax.interpreters import mlir

    primitive: Any = Primitive("hloenv_call")
    primitive.multiple_results = True
    primitive.def_abstract_eval(lambda *_, handle: list(handle.out_avals))
    mlir.register_lowering(primitive, _lower)
    return primitive


def _lower(context: Any, *values: Any, handle: _Handle) -> Any:
    """Adds the body to the module that jax is lowering, and a call of it."""
    from jax.interpreters import mlir
    from jaxlib.mlir import ir
    from jaxlib.mlir.dialects import func

    body = handle.body()
    assert body is not None  # the function that was traced holds it
    target = context.module_context
    platforms = tuple(context.platforms or target.platforms)
    # Absent where the user's program partitions itself.
    num_devices = getattr(target.axis_context, "num_devices", None)
    own = (body.platform,)
    if body.plain is not None and (platforms, num_devices) != (own, 1):
        return mlir.lower_fun(body.plain, multiple_results=True)(context, *values)
    if platforms != own:
        raise NotImplementedError(
            f"this module of hloenv runs on the platform {body.platform}, not "
            f"{', '.join(platforms)}"
        )
    if callable(body.code):
        return mlir.lower_fun(body.code, multiple_results=True)(context, *values)
    with target.module.context:
        submodule = ir.Module.parse(body.code)
    submodule.operation.walk(_without_layouts)
    _generalize_dots(submodule)
    main: Any = ir.SymbolTable(submodule.operation)["main"]
    name = mlir.merge_mlir_modules(
        target.module, "hloenv_call", submodule, dst_symtab=target.symbol_table
    )
    call = func.CallOp(main.type.results, ir.FlatSymbolRefAttr.get(name), values)
    return call.results


def _without_layouts(operation: Any) -> Any:
    from jaxlib.mlir import ir

    for name in _LAYOUTS:
        if name in operation.attributes:
            del operation.attributes[name]
    return ir.WalkResult.ADVANCE


def _generalize_dots(module: Any) -> None:
    """Makes dots that say their algorithm general ones.

    The conversion from HLO puts it on `stablehlo.dot`, which jax cannot export then.
    """
    from jaxlib.mlir import ir
    from jaxlib.mlir.dialects import stablehlo

    found = []

    def collect(operation: Any) -> Any:
        if operation.name == "stablehlo.dot" and "algorithm" in operation.attributes:
            found.append(operation)
        return ir.WalkResult.ADVANCE

    module.operation.walk(collect)
    for dot in found:
        left, right = dot.operands
        numbers = stablehlo.DotDimensionNumbers.get(
            lhs_batching_dimensions=[],
            rhs_batching_dimensions=[],
            lhs_contracting_dimensions=[ir.RankedTensorType(left.type).rank - 1],
            rhs_contracting_dimensions=[0],
            context=module.context,
        )
        with dot.location, ir.InsertionPoint(dot):
            general = stablehlo.DotGeneralOp(
                dot.results[0].type,
                left,
                right,
                numbers,
                precision_config=dot.attributes.get("precision_config"),
                algorithm=dot.attributes["algorithm"],
            )
        dot.results[0].replace_all_uses_with(general.result)
        dot.erase()
