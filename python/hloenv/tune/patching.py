# SPDX-License-Identifier: Apache-2.0
"""Takes the place of `jax.jit`, and of `hloenv.jit`, for programs that call them."""

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


def identity_of(fn: Callable[..., Any], options: dict[str, Any]) -> Any:
    """What all `jax.jit(fn, **options)` have in common; None if that has no hash.

    As for jax, whose cache a function of `jax.jit(fn)` in a loop finds.
    """
    key = fn, tuple(sorted((name, repr(each)) for name, each in options.items()))
    try:
        hash(key)
    except TypeError:
        return None
    return key


class _Undecided:
    """A function of jax.jit that has what those of `hloenv.jit` have besides."""

    def __init__(
        self, own: Callable[..., Any], fn: Callable[..., Any], **options: Any
    ) -> None:
        package: Any = require_jax("hloenv tune")
        self._jitted = package.jit(fn, **options)  # the caller is of hloenv
        self._make = functools.partial(own, fn, policy="tuned", **options)

    @functools.cached_property
    def _own(self) -> Any:
        return self._make()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._jitted(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name in ("_jitted", "_make"):
            raise AttributeError(name)
        own = self._jitted if hasattr(self._jitted, name) else self._own
        return getattr(own, name)


@contextlib.contextmanager
def own_jit_replaced(
    make: Callable[[Callable[..., Any], dict[str, Any], Any], Any],
) -> Iterator[None]:
    """Inside, `hloenv.jit(fn, ...)` is `make(fn, options, plain)`, options of jax.jit.

    `plain` gives functions of jax's own jit: a program is recorded without the time
    that decisions take.
    """
    import hloenv

    own = hloenv.jit

    @functools.wraps(own)
    def jit(
        fn: Any = None,
        *,
        policy: Any = None,
        passes: Any = None,
        until: Any = None,
        budget: Any = None,
        remember: Any = None,
        tuned: Any = None,
        outputs: Any = "jax",
        **options: Any,
    ) -> Any:
        del policy, passes, until, budget, remember, tuned
        if fn is None:
            return functools.partial(jit, outputs=outputs, **options)
        if not callable(fn) or outputs != "jax":
            return own(fn, outputs=outputs, **options)
        return make(fn, options, functools.partial(_Undecided, own))

    homes: list[Any] = [hloenv, sys.modules["hloenv.jax"]]
    for home in homes:
        home.jit = jit
    try:
        yield
    finally:
        for home in homes:
            home.jit = own
