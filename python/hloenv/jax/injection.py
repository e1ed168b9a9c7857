# SPDX-License-Identifier: Apache-2.0
"""Replaces a module that jaxlib compiles.

jax lets a registered callback replace a module between XLA's passes and its scheduler.
The registration is process-wide and the callback runs on a thread of jaxlib, so a
module is identified by its name and entry layout. Other modules are not changed, and
the callback is unregistered after use.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any, cast

from .._native import core
from ..errors import CompileError, HloEnvError, InvalidModuleError
from ..hlo.module import HloModule, read_trusted
from .lowering import from_lowered, require_jax

# Takes and returns a serialized module; None keeps it.
Transform = Callable[[bytes], bytes | None]

_registrations = itertools.count()
_fresh = itertools.count(1)
_cache_lock = threading.Lock()
_cache_users = 0
_cache_was_on = True


class InjectionWarning(UserWarning):
    """An injected module did not run."""


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


def to_jaxlib(module: HloModule) -> bytes:
    """Serializes a module for jaxlib's XLA.

    Warns:
        InjectionWarning: jaxlib ignores some decisions.
    """
    for is_marked, what in (
        (core.has_marked_dots, "dot-lowering (it calls a library for each dot)"),
        (
            core.has_sequential_computations,
            "thunk-order (it starts thunks as soon as their operands are ready)",
        ),
    ):
        if is_marked(module._core):
            warnings.warn(
                f"jaxlib's backend ignores the decisions of {what}; use hloenv.compile",
                InjectionWarning,
                stacklevel=2,
            )
    return core.readable_by_jaxlib(module._core).to_proto()


def module_name(proto: bytes) -> str | None:
    """Returns the name in a serialized HloModuleProto without parsing the rest.

    The name is field 1, which serializers write first; None if it is missing.
    """
    if proto[:1] != b"\x0a":
        return None
    size = shift = 0
    for position in range(1, min(len(proto), 6)):
        size |= (proto[position] & 0x7F) << shift
        shift += 7
        if proto[position] < 0x80:
            name = proto[position + 1 : position + 1 + size]
            return name.decode("utf-8", errors="replace")
    return None


def fresh_options() -> dict[str, int]:
    """Returns new compiler options without effect, to bypass jax's in-memory cache.

    jax caches executables of a lowered function by options. All negative numbers mean
    no limit.
    """
    return {"xla_dump_max_hlo_modules": -1 - next(_fresh)}


def require_injection(user: str) -> ModuleType:
    """Returns the module jax.extend.xla, which can replace modules.

    Args:
        user: what needs it, for the message.

    Raises:
        ImportError: jax is missing or too old.
    """
    jax = require_jax(user)
    try:
        from jax.extend import xla
    except ImportError:
        xla = None  # type: ignore[assignment]
    if not hasattr(xla, "PipelineStage"):
        raise ImportError(
            f"{user} needs jax >= 0.10.2 to replace modules, got jax "
            f"{jax.__version__}: pip install -U 'hloenv[jax]'"
        )
    return xla


def register(transform: Transform) -> Callable[[], None]:
    """Registers a callback for modules that jaxlib compiles for the CPU.

    Returns:
        The function that unregisters it.

    Raises:
        ImportError: jax is missing or too old.
    """
    xla = require_injection("hloenv.jax.inject")
    stage = xla.PipelineStage.PRE_SCHEDULER
    name = f"hloenv-{next(_registrations)}"
    xla.register_hlo_module_transformation(
        transform, name=name, stage=stage, platforms="cpu"
    )
    return lambda: _unregister(xla, name, stage)


def _unregister(xla: Any, name: str, stage: Any) -> None:
    xla.clear_hlo_module_transformation(name, stage, "cpu")


@contextlib.contextmanager
def without_persistent_cache() -> Iterator[None]:
    """Disables jax's persistent cache during compilations.

    A cached executable would run instead of the injected module, and the injected
    module's executable would be stored as the plain function's.
    """
    global _cache_users, _cache_was_on
    jax = require_jax("hloenv.jax.inject")
    with _cache_lock:
        if _cache_users == 0:
            _cache_was_on = bool(jax.config.jax_enable_compilation_cache)
            _enable_persistent_cache(jax, False)
        _cache_users += 1
    try:
        yield
    finally:
        with _cache_lock:
            _cache_users -= 1
            if _cache_users == 0:
                _enable_persistent_cache(jax, _cache_was_on)


def _enable_persistent_cache(jax: Any, enable: bool) -> None:
    if jax.config.jax_enable_compilation_cache == enable:
        return
    from jax.experimental.compilation_cache import compilation_cache

    jax.config.update("jax_enable_compilation_cache", enable)
    # jax reads the setting only once until the cache is reset.
    compilation_cache.reset_cache()


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
