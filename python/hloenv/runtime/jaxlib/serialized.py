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


class Loading:
    """What has become of an executable.

    Attributes:
        is_tried: whether there was a compilation.
        is_loaded: whether it was loaded there.
    """

    is_tried = False
    is_loaded = False


@contextlib.contextmanager
def loading(data: bytes) -> Iterator[Loading]:
    """The first compilation of this thread in the block loads an executable instead.

    What cannot be loaded, as by another version of jaxlib, is compiled.

    Args:
        data: of `serialize`, for the same module, options and machine.
    """
    found = Loading()
    try:
        from jax._src import compiler
    except ImportError:  # another version of jax
        yield found
        return
    here = threading.get_ident()
    with _lock:  # another thread's function must not be taken for jax's
        original: Any = getattr(compiler, "backend_compile_and_load", None)
        if original is None:
            yield found
            return

        def load(*args: Any, **kwargs: Any) -> Any:
            if threading.get_ident() == here and not found.is_tried:
                found.is_tried = True
                # jaxlib's errors have no common root.
                with contextlib.suppress(Exception):
                    backend, _, devices, options = args[:4]
                    result = backend.deserialize_executable(data, devices, options)
                    found.is_loaded = True
                    return result
            return original(*args, **kwargs)

        compiler.backend_compile_and_load = load
        try:
            yield found
        finally:
            compiler.backend_compile_and_load = original
