# SPDX-License-Identifier: Apache-2.0
"""Takes the place of `jax.jit` for the programs that call it."""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable, Iterator
from typing import Any

from ..runtime.jaxlib.package import require_jax

_OWN = "hloenv."
# Options of a function that runs on several devices, or on a given one.
_PLACING = ("in_shardings", "out_shardings", "device", "backend")


@contextlib.contextmanager
def jit_replaced(
    make: Callable[[Callable[..., Any], dict[str, Any], Any], Any],
) -> Iterator[None]:
    """Inside, `jax.jit(fn, **options)` is `make(fn, options, plain)`.

    `plain` is jax's own jit, which hloenv itself and functions that are placed on
    devices keep.

    Args:
        make: the function that takes the place of jax's.
    """
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
    try:
        yield
    finally:
        package.jit = plain
