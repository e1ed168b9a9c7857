# SPDX-License-Identifier: Apache-2.0
"""Executables that the functions of jax.jit of one function of hloenv.jit share.

Another decision may need another function of jax.jit, which would compile every
signature again.
"""

from __future__ import annotations

import contextlib
from typing import Any

from ..runtime.jaxlib.options import keep_compiled
from ..runtime.jaxlib.package import require_jax
from .wrapping import types_of

# Signatures whose executables of plain jax.jit stay in use; the latest.
_MAX_SHARED = 64

# Arguments and keyword arguments, with types in place of arrays.
Types = tuple[tuple[Any, ...], dict[str, Any]]


class SharedExecutables:
    """The types of arguments that something is compiled for, by signature.

    Attributes:
        num_with_options: how often a signature was compiled with options of the
            compiler.
    """

    def __init__(self, plain: Any) -> None:
        """Knows nothing yet; `plain` is the function of plain jax.jit."""
        self.num_with_options = 0
        self._jax = require_jax("hloenv.jit")
        self._plain = plain
        self._plain_types: dict[Any, Types] = {}
        self._with_options: dict[Any, tuple[Types, Any]] = {}

    def clear(self) -> None:
        """Forgets all signatures."""
        self._plain_types.clear()
        self._with_options.clear()

    def forget(self, signature: Any) -> None:
        """Forgets a signature that is compiled with options."""
        self._with_options.pop(signature, None)

    def note_plain(self, signature: Any, arguments: Types) -> None:
        """Notes that plain jax.jit has compiled a signature."""
        with contextlib.suppress(Exception):  # of a pytree that checks its leaves
            self._plain_types[signature] = types_of(self._jax, arguments)
        while len(self._plain_types) > _MAX_SHARED:
            del self._plain_types[next(iter(self._plain_types))]

    def keep(self, signature: Any, types: Types, compiled: Any) -> None:
        """Keeps what was compiled with options."""
        self._with_options[signature] = types, compiled
        self.num_with_options += 1

    def share_plain(self, function: Any) -> None:
        """Makes a function of jax.jit run what plain jax.jit has compiled."""
        for args, kwargs in self._plain_types.values():
            # jax compiles it again otherwise.
            with contextlib.suppress(Exception):
                plain = self._plain.lower(*args, **kwargs)
                if plain._lowering._executable is not None:
                    keep_compiled(function.lower(*args, **kwargs), plain.compile())
        self._plain_types.clear()

    def share_compiled(self, function: Any) -> None:
        """Makes a function of jax.jit run what was compiled with options."""
        for (args, kwargs), compiled in self._with_options.values():
            with contextlib.suppress(Exception):
                keep_compiled(function.lower(*args, **kwargs), compiled)
