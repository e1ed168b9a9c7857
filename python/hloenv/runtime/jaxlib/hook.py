# SPDX-License-Identifier: Apache-2.0
"""jaxlib's hook between XLA's passes and its scheduler, where a module can be replaced.

A registration is process-wide and its callback runs on a thread of jaxlib, so a module
is identified by its name.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
import warnings
from collections.abc import Callable, Iterator
from typing import Any

from ..._native import core
from ...hlo.module import HloModule
from .package import require_injection, require_jax

# Takes and returns a serialized module; None keeps it.
Transform = Callable[[bytes], bytes | None]

_registrations = itertools.count()
# All that were ever registered: a compilation in another thread may hold the last
# reference to one that was unregistered, and drops it without the GIL.
_callbacks: list[Transform] = []
_fresh = itertools.count(1)
_cache_lock = threading.Lock()
_cache_users = 0
_cache_was_on = True


class InjectionWarning(UserWarning):
    """An injected module did not run."""


def register(transform: Transform) -> Callable[[], None]:
    """Registers a callback for modules that jaxlib compiles for the CPU.

    Returns:
        The function that unregisters it.

    Raises:
        ImportError: jax is missing or too old.
    """
    xla = require_injection("replacing jaxlib's modules")
    stage = xla.PipelineStage.PRE_SCHEDULER
    name = f"hloenv-{next(_registrations)}"
    current: list[Transform] = [transform]

    def call(proto: bytes) -> bytes | None:
        found = current[:1]  # another thread may unregister meanwhile
        return found[0](proto) if found else None

    _callbacks.append(call)
    xla.register_hlo_module_transformation(
        call, name=name, stage=stage, platforms="cpu"
    )

    def unregister() -> None:
        xla.clear_hlo_module_transformation(name, stage, "cpu")
        current.clear()

    return unregister


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


def with_module_name(proto: bytes, name: str) -> bytes:
    """Returns a serialized HloModuleProto that a reader reads with another name.

    It appends a field 1: readers of protobuf take the last one.
    """
    encoded = name.encode()
    size, length = len(encoded), bytearray()
    while size >= 0x80:
        length.append(size & 0x7F | 0x80)
        size >>= 7
    return proto + b"\x0a" + bytes([*length, size]) + encoded


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


def fresh_options() -> dict[str, int]:
    """Returns new compiler options without effect, to bypass jax's in-memory cache.

    jax caches executables of a lowered function by options. All negative numbers mean
    no limit.
    """
    return {"xla_dump_max_hlo_modules": -1 - next(_fresh)}
