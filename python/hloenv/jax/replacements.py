# SPDX-License-Identifier: Apache-2.0
"""Replacements of jaxlib's modules by decided ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .._native import core
from ..errors import HloEnvError
from ..hlo.module import HloModule, read_trusted
from .injection import to_jaxlib, without_persistent_cache
from .lowering import require_jax


@dataclass
class Replaced:
    """Result of the compilation of a decided module.

    Attributes:
        entry_layout: of the decided module.
        proto: the decided module.
        fingerprint: of the module that it replaced; None before.
        refused: why it was not used; empty if it was.
        is_known: whether an equal module was rejected before.
    """

    entry_layout: str
    proto: bytes
    fingerprint: str | None = None
    refused: str = ""
    is_known: bool = False


class Replacements:
    """The decided modules of one function, by jaxlib's module before scheduling.

    Attributes:
        count: number of replacements of jaxlib's modules.
    """

    count: int

    def __init__(self) -> None:
        self.count = 0
        self._pending: Replaced | None = None
        # By fingerprint; None leaves jaxlib's own module.
        self._modules: dict[str, bytes | None] = {}

    def compile(self, module: HloModule, lowered: Any) -> Replaced:
        """Compiles `module` into jax's caches, or returns the reason why not.

        Callers must not run concurrently.

        Args:
            module: the decided module.
            lowered: a `jax.stages.Lowered` of a function whose name the dispatcher
                knows.

        Raises:
            JaxRuntimeError: jaxlib cannot compile the function in any case.
        """
        jax = require_jax("hloenv.jit")
        replaced = Replaced(module.entry_layout, to_jaxlib(module))
        self._pending = replaced
        try:
            with without_persistent_cache():
                lowered.compile()
        except jax.errors.JaxRuntimeError as error:
            if replaced.fingerprint is None:
                raise
            self.leave(replaced)
            replaced.refused = f"jaxlib rejects the decided module: {error}"
            return replaced
        finally:
            self._pending = None
        if replaced.fingerprint is None:
            replaced.refused = (
                replaced.refused or "jaxlib did not call the replacement hook"
            )
        elif self._modules[replaced.fingerprint] is None:
            replaced.refused = "the decisions for an equal module are not used"
            replaced.is_known = True
        return replaced

    def leave(self, replaced: Replaced) -> None:
        """Uses jaxlib's own module from now on."""
        if replaced.fingerprint is not None:
            self._modules[replaced.fingerprint] = None

    def clear(self) -> None:
        """Removes all modules."""
        self._modules.clear()

    def replacement(self, proto: bytes) -> bytes | None:
        """The replacement of a module that jaxlib is about to schedule, or None."""
        pending = self._pending
        try:
            theirs = read_trusted(proto)
        except HloEnvError as error:
            if pending is not None:
                pending.refused = f"jaxlib's module cannot be read: {error}"
            return None
        fingerprint = core.without_shardings(theirs._core).fingerprint()
        if pending is not None and fingerprint not in self._modules:
            if theirs.entry_layout != pending.entry_layout:
                pending.refused = (
                    f"jaxlib's module has entry layout {theirs.entry_layout}, but the "
                    f"decided module has {pending.entry_layout}"
                )
                return None
            self._modules[fingerprint] = pending.proto
        if pending is not None:
            pending.fingerprint = fingerprint
        found = self._modules.get(fingerprint)
        if found is not None:
            self.count += 1
        return found
