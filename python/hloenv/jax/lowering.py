# SPDX-License-Identifier: Apache-2.0
"""From JAX functions to modules."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from .._native import core
from ..errors import ArgumentError
from ..hlo.module import HloModule
from ..hlo.reading import read_here
from ..runtime.jaxlib.package import require_jax


def from_jax(
    fn: Callable[..., Any],
    *args: Any,
    static_argnums: int | Iterable[int] | None = None,
    static_argnames: str | Iterable[str] | None = None,
    platform: str = "cpu",
    donations: bool = True,
    **kwargs: Any,
) -> HloModule:
    """Lowers a JAX function for these arguments.

    Args:
        fn: a plain function, a jitted one (its own static arguments and donations
            hold), or a `jax.stages.Lowered`, which takes no arguments.
        *args: what `fn` takes: arrays, `jax.ShapeDtypeStruct`s, numbers, pytrees of
            them, and values for static arguments.
        static_argnums: as for `jax.jit`; for a plain function only.
        static_argnames: as for `jax.jit`; for a plain function only.
        platform: lower for this platform, whatever the default device is. "tpu"
            avoids the custom calls that jax uses for linear algebra on CPUs.
        donations: whether outputs may reuse the memory of donated arguments; a module
            for `inject` may not.
        **kwargs: keyword arguments of `fn`.

    Returns:
        XLA's input, before any optimization. Parameters and outputs are the
        leaves of the arguments and of the result; jax drops unused parameters.

    Raises:
        ImportError: jax is not installed.
        TypeError: static arguments were named for a function that is jitted already.
    """
    jax = require_jax("from_jax")
    if isinstance(fn, jax.stages.Lowered):
        if args or kwargs:
            raise TypeError(
                "a Lowered already has its arguments; call from_jax(lowered) without "
                "them"
            )
        return from_lowered(fn, donations=donations)
    fn = jitted(fn, static_argnums, static_argnames)
    traced = fn.trace(*args, **kwargs)  # type: ignore[attr-defined]
    lowered = traced.lower(lowering_platforms=(platform,))
    return from_lowered(lowered, donations=donations)


def jitted(
    fn: Callable[..., Any],
    static_argnums: int | Iterable[int] | None,
    static_argnames: str | Iterable[str] | None,
) -> Any:
    """A function of jax.jit, with static arguments for a plain function.

    Raises:
        TypeError: static arguments were named for a function that is jitted already.
    """
    jax = require_jax("hloenv.jax")
    if not hasattr(fn, "trace"):
        return jax.jit(
            fn, static_argnums=static_argnums, static_argnames=static_argnames
        )
    if static_argnums is not None or static_argnames is not None:
        raise TypeError(
            "the function is already jitted, so its static arguments are fixed; pass "
            "them to jax.jit, or give the plain function"
        )
    return fn


def example_inputs(
    fn: Callable[..., Any],
    *args: Any,
    static_argnums: int | Iterable[int] | None = None,
    static_argnames: str | Iterable[str] | None = None,
    **kwargs: Any,
) -> list[Any]:
    """Returns the inputs of the module of `from_jax` for these arguments.

        module = hloenv.HloModule.from_jax(step, state, batch)
        inputs = hloenv.jax.example_inputs(step, state, batch)
        hloenv.measure(decided, baseline=module, inputs=inputs)

    Args:
        fn: as in `from_jax`; a plain function, or a jitted one without static
            arguments.
        *args: as in `from_jax`, with values: arrays, numbers, pytrees of them.
        static_argnums: as in `from_jax`.
        static_argnames: as in `from_jax`.
        **kwargs: as in `from_jax`.

    Returns:
        One numpy array for each flat leaf of the module's parameters.

    Raises:
        ImportError: jax is not installed.
        ArgumentError: jax makes arguments of the function's constants.
        TypeError: an argument has no values, as a `jax.ShapeDtypeStruct`, or the
            function was jitted with static arguments.
    """
    jax = require_jax("example_inputs")
    if not hasattr(fn, "trace"):
        fn = jax.jit(fn, static_argnums=static_argnums, static_argnames=static_argnames)
    lowered = fn.trace(*args, **kwargs).lower()  # type: ignore[attr-defined]
    numbers = {static_argnums} if isinstance(static_argnums, int) else static_argnums
    names = {static_argnames} if isinstance(static_argnames, str) else static_argnames
    count = len(args)
    static = {each % count for each in numbers or () if -count <= each < count}
    dynamic = tuple(each for i, each in enumerate(args) if i not in static)
    named = {name: each for name, each in kwargs.items() if name not in (names or ())}
    leaves, tree = jax.tree.flatten((dynamic, named))
    if tree != lowered.in_tree:
        raise TypeError(
            "the function was jitted with static arguments; give example_inputs the "
            "plain function, with static_argnums or static_argnames"
        )
    if any(isinstance(leaf, jax.ShapeDtypeStruct) for leaf in leaves):
        raise TypeError("a ShapeDtypeStruct has no values; give arrays")
    infos = jax.tree.leaves(lowered.args_info)
    kept = kept_arguments(lowered)
    return [np.asarray(leaves[i], dtype=infos[i].dtype) for i in kept]


def lower_traced(traced: Any) -> Any:
    """`traced.lower()` of a `jax.stages.Traced`, with flat arguments and results.

    jax makes pytrees of objects without values for `args_info`; a user's pytree node
    may fail on these.
    """
    if getattr(traced.jaxpr, "is_high", False):  # lowered with its pytrees
        return traced.lower()
    jax = require_jax("hloenv.jit")
    flat = copy.copy(traced)
    try:
        num_arguments = traced._in_tree.num_leaves
        flat._in_tree = jax.tree.structure(((0,) * num_arguments, {}))
        flat.out_tree = jax.tree.structure((0,) * len(traced.jaxpr.out_avals))
        flat._lojax = None
    except AttributeError:  # another version of jax
        return traced.lower()
    return flat.lower()


HOISTED = (
    "its module takes constants as arguments, which jax does with "
    "jax_use_simplified_jaxpr_constants; switch that off"
)


def has_hoisted_constants(lowered: Any) -> bool:
    """Whether the first parameters of the module are constants of the function."""
    return len(getattr(lowered._lowering, "const_args", ())) > 0


def kept_arguments(lowered: Any) -> list[int]:
    """Which flat arguments the module takes, as jax drops those that are not used.

    Args:
        lowered: a `jax.stages.Lowered`.

    Raises:
        ArgumentError: the module has other parameters too.
    """
    if has_hoisted_constants(lowered):
        raise ArgumentError(f"this function cannot be used: {HOISTED}")
    return sorted(lowered._lowering.compile_args["kept_var_idx"])


def from_lowered(lowered: Any, *, donations: bool = True) -> HloModule:
    """The module of a `jax.stages.Lowered`; see `from_jax`.

    jaxlib contains another copy of XLA, so the module is passed as a serialized proto.
    """
    computation = lowered.compiler_ir("hlo")
    module = read_here(computation.as_serialized_hlo_module_proto())
    module = core.with_default_entry_layout(module)
    if not donations and core.has_donations(module):
        module = core.without_donations(module)
    return HloModule._wrap(module)
