# SPDX-License-Identifier: Apache-2.0
"""Maps compilations of jaxlib to functions of hloenv.jit by module name."""

from __future__ import annotations

import collections
import contextlib
import hashlib
import re
import secrets
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any, Protocol

from .._native import core
from ..runtime.jaxlib.hook import module_name, register


class Decider(Protocol):
    """Supplies replacements of jaxlib's modules."""

    @property
    def has_modules(self) -> bool:
        """Whether there are any."""

    def replacement(self, proto: bytes) -> bytes | None:
        """Returns the replacement of a serialized module; None keeps it."""


_names: collections.Counter[str] = collections.Counter()
_names_lock = threading.Lock()


def unique_name(fn: Callable[..., Any], *, plan: str | None) -> str:
    """Returns a name for `fn` that is unique in the process.

    jax's persistent cache depends on names too, so the name is the same in another
    process exactly if function, plan and version are the same.

    Args:
        fn: the user's function.
        plan: description of the decisions; None if there is none, as for a policy that
            is a function.
    """
    from .._version import __version__

    # jax names the module "jit_" plus this. XLA replaces any other byte.
    name = re.sub(r"[^a-zA-Z0-9_.-]", "_", getattr(fn, "__name__", type(fn).__name__))
    if plan is None:
        return f"{name}_hloenv_{secrets.token_hex(4)}"
    key = f"{core.tensorflow_version}\n{__version__}\n{plan}"
    stem = f"{name}_hloenv_{hashlib.sha256(key.encode()).hexdigest()[:8]}"
    with _names_lock:
        _names[stem] += 1
        number = _names[stem]
    return stem if number == 1 else f"{stem}_{number}"


class Dispatcher:
    """The single callback registered with jaxlib, for all functions.

    It is registered only while it may be needed: jaxlib serializes each module that the
    process compiles for it, and cannot compile one of over 2 GiB then.
    """

    def __init__(self) -> None:
        # Reentrant: a finalizer may run at any allocation.
        self._lock = threading.RLock()
        self._functions: weakref.WeakValueDictionary[str, Decider] = (
            weakref.WeakValueDictionary()
        )
        self._num_compiling = 0
        self._is_updating = False
        self._unregister: Callable[[], None] | None = None

    def add(self, name: str, function: Decider) -> None:
        """Uses `function` for jaxlib's modules of this name."""
        with self._lock:
            if self._functions.get(name) is function:
                return
            self._functions[name] = function
            weakref.finalize(function, self._remove, name)

    @contextlib.contextmanager
    def compiling(self) -> Iterator[None]:
        """Registers the callback during a compilation whose module may be replaced."""
        with self._lock:
            self._num_compiling += 1
            self.update()
        try:
            yield
        finally:
            with self._lock:
                self._num_compiling -= 1
                self.update()

    def update(self) -> None:
        """Registers the callback if a function has modules, and else removes it."""
        with self._lock:
            if self._is_updating:  # a finalizer, called from below
                return
            self._is_updating = True
            try:
                self._update()
            finally:
                self._is_updating = False

    def _update(self) -> None:
        is_needed = self._num_compiling > 0 or any(
            each.has_modules for each in list(self._functions.values())
        )
        if is_needed and self._unregister is None:
            self._unregister = register(self._transform)
        elif not is_needed and self._unregister is not None:
            self._unregister()
            self._unregister = None

    def _remove(self, name: str) -> None:
        with self._lock:
            self._functions.pop(name, None)
            self.update()

    def _transform(self, proto: bytes) -> bytes | None:
        function = self._functions.get(module_name(proto) or "")
        return None if function is None else function.replacement(proto)


dispatcher = Dispatcher()
