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

# Signatures without options whose executables stay in use; the latest.
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
        # Compiled by plain jax.jit, and by another function without options.
        self._plain_types: dict[Any, Types] = {}
        self._types: dict[Any, Types] = {}
        self._with_options: dict[Any, tuple[Types, Any]] = {}

    def __len__(self) -> int:
        """Number of signatures that are compiled with options."""
        return len(self._with_options)

    def clear(self) -> None:
        """Forgets all signatures."""
        self._plain_types.clear()
        self._types.clear()
        self._with_options.clear()

    def forget(self, signature: Any) -> None:
        """Forgets a signature that is compiled with options."""
        self._with_options.pop(signature, None)

    def note_plain(self, signature: Any, arguments: Types) -> None:
        """Notes that plain jax.jit has compiled a signature."""
        self._note(self._plain_types, signature, arguments)

    def note(self, signature: Any, arguments: Types) -> None:
        """Notes that another function has compiled a signature, without options."""
        self._note(self._types, signature, arguments)

    def _note(self, kept: dict[Any, Types], signature: Any, arguments: Types) -> None:
        with contextlib.suppress(Exception):  # of a pytree that checks its leaves
            kept[signature] = types_of(self._jax, arguments)
        while len(kept) > _MAX_SHARED:
            del kept[next(iter(kept))]

    def keep(self, signature: Any, types: Types, compiled: Any) -> None:
        """Keeps what was compiled with options."""
        self._with_options[signature] = types, compiled
        self.num_with_options += 1

    def share_plain(self, function: Any) -> None:
        """Makes a function of jax.jit run what plain jax.jit has compiled."""
        self._share(self._plain_types, self._plain, function)
        self._types |= self._plain_types
        self._plain_types.clear()

    def share_all(self, before: Any, function: Any) -> None:
        """Makes a function of jax.jit run what was compiled for the one before.

        With options of the compiler, or without.
        """
        self._share(self._types | self._plain_types, before, function)
        for (args, kwargs), compiled in self._with_options.values():
            with contextlib.suppress(Exception):
                keep_compiled(function.lower(*args, **kwargs), compiled)

    def _share(self, types: dict[Any, Types], before: Any, function: Any) -> None:
        for args, kwargs in types.values():
            # jax compiles it again otherwise.
            with contextlib.suppress(Exception):
                known = before.lower(*args, **kwargs)
                if known._lowering._executable is not None:
                    keep_compiled(function.lower(*args, **kwargs), known.compile())
