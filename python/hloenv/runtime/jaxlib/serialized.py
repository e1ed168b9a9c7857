# SPDX-License-Identifier: Apache-2.0
"""Executables of jaxlib as bytes, which another process loads in place of compiling."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

_lock = threading.RLock()


def serialize(compiled: Any) -> bytes | None:
    """The executable of a `jax.stages.Compiled`; None if this version of jax cannot."""
    try:
        executable = compiled._executable.xla_executable
        if hasattr(executable, "serialize"):
            return bytes(executable.serialize())
        return bytes(executable.client.serialize_executable(executable))
    except Exception:  # it has no public interface
        return None


@contextlib.contextmanager
def loading(data: bytes) -> Iterator[None]:
    """Compilations of this thread in the block load an executable instead.

    What cannot be loaded, as by another version of jaxlib, is compiled.

    Args:
        data: of `serialize`, for the same module, options and machine.
    """
    try:
        from jax._src import compiler

        original: Any = compiler.backend_compile_and_load
    except (ImportError, AttributeError):  # another version of jax
        yield
        return
    here = threading.get_ident()

    def load(*args: Any, **kwargs: Any) -> Any:
        if threading.get_ident() == here:
            with contextlib.suppress(Exception):
                backend, _, devices, options = args[:4]
                return backend.deserialize_executable(data, devices, options)
        return original(*args, **kwargs)

    with _lock:
        compiler.backend_compile_and_load = load
        try:
            yield
        finally:
            compiler.backend_compile_and_load = original
