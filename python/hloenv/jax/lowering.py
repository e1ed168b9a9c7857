# SPDX-License-Identifier: Apache-2.0
"""From JAX functions to modules."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Any

from .._native import core
from ..module import HloModule


def require_jax(user: str) -> ModuleType:
    """The package jax.

    Args:
        user: what needs it, for the message.

    Raises:
        ImportError: jax is not installed.
    """
    try:
        import jax
    except ImportError as error:
        raise ImportError(f"{user} needs jax: pip install 'hloenv[jax]'") from error
    return jax


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
        What jax hands to XLA, before any optimization. Parameters and outputs are the
        leaves of the arguments and of the result; jax drops unused parameters.

    Raises:
        ImportError: jax is not installed.
        TypeError: static arguments were named for a function that is jitted already.
    """
    jax = require_jax("from_jax")
    if isinstance(fn, jax.stages.Lowered):
        if args or kwargs:
            raise TypeError("a Lowered has its arguments already; from_jax(lowered)")
        return from_lowered(fn, donations=donations)
    if not hasattr(fn, "trace"):
        fn = jax.jit(fn, static_argnums=static_argnums, static_argnames=static_argnames)
    elif static_argnums is not None or static_argnames is not None:
        raise TypeError(
            "the function is jitted already, so its static arguments are fixed; name "
            "them where it is jitted, or give from_jax the plain function"
        )
    traced = fn.trace(*args, **kwargs)  # type: ignore[attr-defined]
    lowered = traced.lower(lowering_platforms=(platform,))
    return from_lowered(lowered, donations=donations)


def from_lowered(lowered: Any, *, donations: bool = True) -> HloModule:
    """The module of a `jax.stages.Lowered`; see `from_jax`.

    jaxlib has an XLA of its own in the process, so a serialized proto is what crosses.
    """
    computation = lowered.compiler_ir("hlo")
    module = core.Module.from_proto(computation.as_serialized_hlo_module_proto())
    module = core.with_default_entry_layout(module)
    if not donations and core.has_donations(module):
        module = core.without_donations(module)
    return HloModule._wrap(module)
