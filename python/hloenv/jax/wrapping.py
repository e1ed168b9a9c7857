# SPDX-License-Identifier: Apache-2.0
"""Functions that look like the user's own, and what identifies their calls."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .lowering import require_jax


@dataclass(frozen=True)
class Options:
    """Options of jax.jit.

    Attributes:
        given: all of them.
    """

    given: Mapping[str, Any]

    @property
    def static(self) -> dict[str, Any]:
        """Those that name static arguments."""
        return {
            name: value
            for name, value in self.given.items()
            if name.startswith("static")
        }

    @functools.cached_property
    def donates(self) -> bool:
        """Whether they donate arguments."""
        return any(
            value is not None and value != ()
            for name, value in self.given.items()
            if name.startswith("donate")
        )


def name_of(fn: Callable[..., Any]) -> str:
    """The name of a function, or of the type of another callable."""
    return getattr(fn, "__name__", type(fn).__name__)


def calls(fn: Callable[..., Any]) -> Callable[..., Any]:
    """A new function that calls `fn`: jax shares caches between uses of one."""
    return lambda *args, **kwargs: fn(*args, **kwargs)


def named(
    fn: Callable[..., Any], function: Callable[..., Any], name: str
) -> Callable[..., Any]:
    """Gives `function` a name, and the signature and metadata of `fn`."""
    functools.update_wrapper(function, fn)
    function.__name__ = function.__qualname__ = name
    return function


def signature_of(jax: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Identifies the arguments of a trace: types, and values of static ones."""
    leaves, tree = jax.tree.flatten((args, kwargs))
    types = [
        jax.typeof(leaf) if isinstance(leaf, jax.core.Tracer) else leaf
        for leaf in leaves
    ]
    signature = tree, tuple(types)
    try:
        hash(signature)
    except TypeError:
        return None  # a static argument with indistinguishable parts
    return signature


def level_of_user() -> int:
    """Returns the stack level of the user's code for a warning by the caller."""
    jax = require_jax("hloenv.jit")
    folders = (Path(each).parent for each in (__file__, jax.__file__ or ""))
    ours = tuple(f"{folder}{os.sep}" for folder in folders)
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and frame.f_code.co_filename.startswith(ours):
        frame, level = frame.f_back, level + 1
    return level
