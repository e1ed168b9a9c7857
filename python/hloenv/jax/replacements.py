# SPDX-License-Identifier: Apache-2.0
"""Replacements of jaxlib's modules by decided ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .._native import core
from ..errors import HloEnvError
from ..hlo.module import HloModule, read_trusted
from ..runtime.jaxlib.hook import module_name, to_jaxlib, without_persistent_cache
from ..runtime.jaxlib.options import Options, compile_lowered, keep_compiled
from ..runtime.jaxlib.package import require_jax
from .decide import Decided
from .dispatch import dispatcher

# Takes jaxlib's module in front of its scheduler; the result replaces it. Raises an
# HloEnvError to leave it.
Replace = Callable[[HloModule], Decided]


class NotReplacedError(HloEnvError):
    """A module of jaxlib's stays as it is."""


class _CompilationAbortedError(Exception):
    """Raised to jaxlib, which then stops compiling: the result would not be used."""


@dataclass
class Replaced:
    """Result of the compilation of a decided module.

    Attributes:
        replace: makes the decided module.
        decided: what was decided; None before.
        fingerprint: of jaxlib's module; None before.
        proto: the decided module for jaxlib; None before, or if an equal module of
            jaxlib's is replaced already.
        refused: why it was not replaced; empty if it was.
        is_known: whether an equal module was rejected before.
        is_left: whether there was nothing to replace.
    """

    replace: Replace
    decided: Decided | None = None
    fingerprint: str | None = None
    proto: bytes | None = None
    refused: str = ""
    is_known: bool = False
    is_left: bool = False


class Replacements:
    """The decided modules of one function, by jaxlib's module before scheduling.

    Attributes:
        count: number of replacements of jaxlib's modules.
    """

    count: int

    def __init__(self) -> None:
        self.count = 0
        # Those that `compile` compiles, by the name of jaxlib's module: other threads
        # compile other signatures of the function at the same time.
        self._pending: dict[str, Replaced] = {}
        # By fingerprint; None leaves jaxlib's own module.
        self._modules: dict[str, bytes | None] = {}

    def compile(
        self, replace: Replace, lowered: Any, options: Options | None = None
    ) -> Replaced:
        """Compiles a decided module into jax's caches, or returns the reason why not.

        Other compilations of an equal module of jaxlib's are left until `use`.

        Args:
            replace: makes the decided module of jaxlib's.
            lowered: a `jax.stages.Lowered` of a function whose name the dispatcher
                knows, and which nothing else compiles meanwhile.
            options: of jaxlib's compiler.

        Raises:
            JaxRuntimeError: jaxlib cannot compile the function in any case.
        """
        jax = require_jax("hloenv.jit")
        attributes = lowered.compiler_ir("stablehlo").operation.attributes
        name = attributes["sym_name"].value
        self._pending[name] = replaced = Replaced(replace)
        try:
            with dispatcher.compiling(), without_persistent_cache():
                compiled = compile_lowered(lowered, options)
            if options:
                keep_compiled(lowered, compiled)
        except jax.errors.JaxRuntimeError as error:
            if replaced.refused:
                return replaced
            if replaced.fingerprint is None:
                raise
            self.leave(replaced)
            replaced.refused = f"jaxlib rejects the decided module: {error}"
            return replaced
        finally:
            del self._pending[name]
        if replaced.fingerprint is None:
            replaced.refused = "jaxlib did not call the replacement hook"
        return replaced

    def use(self, replaced: Replaced) -> None:
        """Replaces equal modules of jaxlib's from now on."""
        if replaced.fingerprint is not None and replaced.proto is not None:
            self._modules[replaced.fingerprint] = replaced.proto
            dispatcher.update()

    def leave(self, replaced: Replaced) -> None:
        """Uses jaxlib's own module from now on."""
        if replaced.fingerprint is not None:
            self._modules[replaced.fingerprint] = None
            dispatcher.update()

    def clear(self) -> None:
        """Removes all modules."""
        self._modules.clear()
        dispatcher.update()

    @property
    def has_modules(self) -> bool:
        """Whether a module of jaxlib's is replaced."""
        return any(each is not None for each in list(self._modules.values()))

    def replacement(self, proto: bytes) -> bytes | None:
        """The replacement of a module that jaxlib is about to schedule, or None.

        A module that stays as it is ends the compilation of `compile`.
        """
        pending = self._pending.get(module_name(proto) or "")
        try:
            theirs = HloModule._wrap(core.readable_here(read_trusted(proto)._core))
            fingerprint = core.without_shardings(theirs._core).fingerprint()
            if pending is None:
                found = self._modules.get(fingerprint)
            else:
                found = self._decide(pending, theirs, fingerprint)
        except HloEnvError as error:
            if pending is None:
                return None
            pending.refused = str(error)
            pending.is_left = isinstance(error, NotReplacedError)
            raise _CompilationAbortedError(pending.refused) from error
        if found is not None:
            self.count += 1
        return found

    def _decide(self, pending: Replaced, theirs: HloModule, fingerprint: str) -> bytes:
        pending.fingerprint = fingerprint
        if fingerprint not in self._modules:
            pending.decided = pending.replace(theirs)
            pending.proto = to_jaxlib(pending.decided.result)
            return pending.proto
        known = self._modules[fingerprint]
        if known is None:
            pending.is_known = True
            raise NotReplacedError("the decisions for an equal module are not used")
        return known
