# SPDX-License-Identifier: Apache-2.0
"""Replaces a module that jaxlib compiles.

jax lets a registered callback replace a module between XLA's passes and its scheduler.
The registration is process-wide and the callback runs on a thread of jaxlib, so a
module is identified by its name and entry layout. Other modules are not changed, and
the callback is unregistered after use.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, cast

from .._native import core
from ..errors import CompileError, HloEnvError, InvalidModuleError
from ..hlo.module import HloModule, read_trusted
from ..runtime.jaxlib.hook import (
    InjectionWarning,
    fresh_options,
    module_name,
    register,
    to_jaxlib,
    without_persistent_cache,
)
from ..runtime.jaxlib.package import require_jax
from .lowering import from_lowered


@dataclass
class Injection:
    """Record of an injected module.

    Attributes:
        module: the module that is injected.
        name: name of the module of jaxlib to replace.
        replaced: number of replaced modules.
        refused: reasons for which modules of this name were not replaced.
    """

    module: HloModule
    name: str
    replaced: int = 0
    refused: list[str] = field(default_factory=list)

    def _transform(self, proto: bytes) -> bytes | None:
        if module_name(proto) != self.name:
            return None
        try:
            theirs = read_trusted(proto)
        except HloEnvError as error:
            # An exception here would end the user's compilation.
            self.refused.append(f"jaxlib's module cannot be read: {error}")
            return None
        if theirs.entry_layout != self.module.entry_layout:
            self.refused.append(
                f"jaxlib's module has entry layout {theirs.entry_layout}, the injected "
                f"module has {self.module.entry_layout}; they must be equal"
            )
            return None
        self.replaced += 1
        return to_jaxlib(self.module)

    def _failure(self) -> str:
        reason = "; ".join(self.refused) or (
            f"jax compiled no module named {self.name!r}; if it was compiled before, "
            "use a new jax.jit or call its clear_cache()"
        )
        return f"the injected module did not run: {reason}"


@contextlib.contextmanager
def _open(injection: Injection) -> Iterator[None]:
    if core.has_donations(injection.module._core):
        raise InvalidModuleError(
            f"module {injection.name!r} aliases outputs with donated parameters, but "
            "jaxlib drops the donations of a replaced module, so the module would "
            "write to memory that it does not own; lower it without donations: "
            "from_jax(fn, *args, donations=False)"
        )
    unregister = register(injection._transform)
    try:
        with without_persistent_cache():
            yield
    finally:
        unregister()


@contextlib.contextmanager
def inject(module: HloModule, *, name: str | None = None) -> Iterator[Injection]:
    """Runs a module instead of the one that jax compiles.

    Inside the block, a module that jax compiles for the CPU, with this name and with
    the entry layout of `module`, is replaced by `module`:

        with hloenv.jax.inject(module):
            outputs = jax.jit(fn)(*args)

    Functions that jax has compiled before the block are not compiled again: use a new
    `jax.jit`, or call its `clear_cache()`. jax's persistent cache is disabled in the
    block.

    Args:
        module: a module after XLA's passes (`hloenv.finish`), lowered by jax without
            donations: `from_jax(fn, *args, donations=False)`. Equal outputs are not
            checked: hloenv's decisions preserve them.
        name: the name of the module to replace, when it is not the module's own;
            jax calls the module of a function `jit_` and its name.

    Yields:
        The `Injection`.

    Raises:
        ImportError: jax is missing or too old.
        InvalidModuleError: the module donates parameters.

    Warns:
        InjectionWarning: the block ended and nothing was replaced.
    """
    injection = Injection(module=module, name=name or module.name)
    with _open(injection):
        yield injection
    if injection.replaced == 0:
        warnings.warn(injection._failure(), InjectionWarning, stacklevel=3)


def compile_injected(
    module: HloModule, fn: Callable[..., Any], *args: Any, **kwargs: Any
) -> Any:
    """Compiles a function with `module` instead of its own module.

    Args:
        module: as for `inject`.
        fn: a plain or jitted function, or a `jax.stages.Lowered`.
        *args: arguments or `jax.ShapeDtypeStruct`s to compile for.
        **kwargs: the same by keyword.

    Returns:
        A `jax.stages.Compiled`: call it with arguments of these shapes. It takes and
        returns the pytrees of `fn`.

    Raises:
        CompileError: jaxlib's compiler rejects the module, or its entry layout differs
            from that of `fn`.
        ImportError: jax is missing or too old.
    """
    jax = require_jax("hloenv.jax.compile_injected")
    if not isinstance(fn, jax.stages.Lowered):
        jitted = fn if hasattr(fn, "lower") else jax.jit(fn)
        fn = jitted.lower(*args, **kwargs)
    lowered = cast("Any", fn)
    injection = Injection(module=module, name=from_lowered(lowered).name)
    try:
        with _open(injection):
            compiled = lowered.compile(compiler_options=fresh_options())
    except jax.errors.JaxRuntimeError as error:
        raise CompileError(f"jaxlib rejects the injected module: {error}") from error
    if injection.replaced == 0:
        raise CompileError(injection._failure())
    return compiled
