# SPDX-License-Identifier: Apache-2.0
"""Takes the place of `jax.jit` for the programs that call it."""

from __future__ import annotations

import contextlib
import functools
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

from ..runtime.jaxlib.package import require_jax

_OWN = "hloenv."
_kept = threading.local()
# Options of a function that runs on several devices, or on a given one.
_PLACING = ("in_shardings", "out_shardings", "device", "backend")


@contextlib.contextmanager
def jit_replaced(
    make: Callable[[Callable[..., Any], dict[str, Any], Any], Any],
    *,
    is_kept: bool = False,
) -> Iterator[None]:
    """Inside, `jax.jit(fn, **options)` is `make(fn, options, plain)`.

    `plain` is jax's own jit, which hloenv itself and functions that are placed on
    devices keep.

    Args:
        make: the function that takes the place of jax's.
        is_kept: whether replacements in the block have no effect, such as that of a
            script which uses what was tuned, while it is recorded to be tuned again.
    """
    if getattr(_kept, "is_kept", False):
        yield
        return
    package: Any = require_jax("hloenv tune")
    plain = package.jit

    @functools.wraps(plain)
    def jit(fun: Any = None, /, **options: Any) -> Any:
        if "fun" in options:  # which jax does not take by name
            return plain(**options)
        if fun is None:
            return functools.partial(jit, **options)
        caller = sys._getframe(1).f_globals.get("__name__", "")
        is_placed = any(options.get(name) is not None for name in _PLACING)
        if caller.startswith(_OWN) or is_placed or not callable(fun):
            return plain(fun, **options)
        return make(fun, options, plain)

    package.jit = jit
    _kept.is_kept = is_kept
    try:
        yield
    finally:
        _kept.is_kept = False
        package.jit = plain
