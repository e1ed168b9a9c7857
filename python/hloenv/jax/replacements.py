# SPDX-License-Identifier: Apache-2.0
"""What runs in the place of which of jaxlib's modules."""

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
    """What became of a module whose compilation was asked for.

    Attributes:
        entry_layout: of the decided module.
        proto: the decided module.
        fingerprint: of the module that it replaced, once it has.
        refused: why it was not used; empty when it was.
        is_known: refused because an equal module was before.
    """

    entry_layout: str
    proto: bytes
    fingerprint: str | None = None
    refused: str = ""
    is_known: bool = False


class Replacements:
    """The decided modules of one function, by what jaxlib has before scheduling.

    Attributes:
        count: how often one ran in the place of jaxlib's.
    """

    count: int

    def __init__(self) -> None:
        self.count = 0
        self._pending: Replaced | None = None
        # By fingerprint; None leaves jaxlib's own module.
        self._modules: dict[str, bytes | None] = {}

    def compile(self, module: HloModule, lowered: Any) -> Replaced:
        """Leaves `module` compiled in jax's caches, or says why not.

        The callers take turns.

        Args:
            module: what shall run.
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
            replaced.refused = f"jaxlib refuses the decided module: {error}"
            return replaced
        finally:
            self._pending = None
        if replaced.fingerprint is None:
            replaced.refused = replaced.refused or "jaxlib compiled it without asking"
        elif self._modules[replaced.fingerprint] is None:
            replaced.refused = "what was decided for an equal module is not used"
            replaced.is_known = True
        return replaced

    def leave(self, replaced: Replaced) -> None:
        """From now on jaxlib's own module runs."""
        if replaced.fingerprint is not None:
            self._modules[replaced.fingerprint] = None

    def clear(self) -> None:
        """Forgets all modules."""
        self._modules.clear()

    def replacement(self, proto: bytes) -> bytes | None:
        """What runs in the place of a module that jaxlib is about to schedule."""
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
                    f"jaxlib compiles {theirs.entry_layout}, but the decided module "
                    f"is {pending.entry_layout}"
                )
                return None
            self._modules[fingerprint] = pending.proto
        if pending is not None:
            pending.fingerprint = fingerprint
        found = self._modules.get(fingerprint)
        if found is not None:
            self.count += 1
        return found
