# SPDX-License-Identifier: Apache-2.0
"""A function for one signature, as jax has it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from ..hlo.module import HloModule
from ..runtime.jaxlib.package import require_jax
from .decide import has_equation
from .facts import Facts, key_of_lowered, recall_facts, remember_facts
from .lowering import from_lowered, lower_traced


class Stages:
    """A function for one signature, as jax has it.

    Attributes:
        traced: a `jax.stages.Traced`.
        lowered: the `jax.stages.Lowered` of that.
        wanted: name of the attempt that another process found best, without settings;
            empty if unknown.
        settings: of that attempt.
        is_later: whether a function of jax.jit for decided signatures is in use, which
            takes no options of the compiler.
        gained: what the attempts that have been tried are worth, by name, as of a
            `Trial`.
        unchanged: names of those that take as long as plain jax.jit.
        compares: whether what is tried is compared with plain jax.jit.
        plain_ns: what a call of the plain function takes, in nanoseconds; 0 if nothing
            is compared.
    """

    def __init__(
        self, traced: Any, *, remember: bool = False, compares: bool = True
    ) -> None:
        """Lowers it.

        Args:
            traced: a `jax.stages.Traced`.
            remember: whether `facts` are kept for other processes.
            compares: whether what is tried is compared with plain jax.jit.
        """
        self.traced = traced
        self.compares = compares
        self._remember = remember
        self.lowered = lower_traced(traced)
        self.wanted = ""
        self.settings: tuple[str, ...] = ()
        self.is_later = False
        self.gained: dict[str, float] = {}
        self.unchanged: set[str] = set()
        self.plain_ns: Callable[[], float] = float

    @property
    def is_safe(self) -> bool:
        """Whether the result has been compiled before, in another process."""
        return bool(self.wanted)

    @property
    def donates(self) -> bool:
        """Whether the function donates arguments."""
        leaves = require_jax("hloenv.jit").tree.leaves(self.lowered.args_info)
        return any(each.donated for each in leaves)

    @property
    def has_while(self) -> bool:
        """Whether there are loops whose number of iterations depends on values."""
        # Loops of other numbers of iterations are "scan" in jax.
        return self._has("while") or self._hidden[0]

    @property
    def has_cond(self) -> bool:
        """Whether there are branches, of which values choose one."""
        return self._has("cond") or self._hidden[1]

    @functools.cached_property
    def _hidden(self) -> tuple[bool, bool]:
        """Loops and branches of functions that are one operation of the trace."""
        if not any(map(self._has, _OPAQUE)):
            return False, False
        counts = self.module.opcode_counts()
        has_while = "while" in counts and not _have_known_trip_counts(self.module)
        return has_while, "conditional" in counts

    @property
    def has_scan(self) -> bool:
        """Whether there are loops of a known number of iterations, jax's own aside.

        Random numbers are drawn in one.
        """
        is_hidden = any(map(self._has, _OPAQUE)) and has_loops(self.module)
        return self._has("scan") or is_hidden

    def _has(self, name: str) -> bool:
        return has_equation(self.traced.jaxpr, lambda each: each.primitive.name == name)

    @functools.cached_property
    def module(self) -> HloModule:
        """As jax lowers it, without donations."""
        return from_lowered(self.lowered, donations=False)

    @functools.cached_property
    def facts(self) -> Facts:
        """Of `module`; without it, if another process has kept them."""
        key = key_of_lowered(self.lowered) if self._remember else None
        found = None if key is None else recall_facts(key)
        if found is None:
            found = Facts.of(self.module)
            if key is not None:
                remember_facts(key, found)
        return found


# Operations of a trace that are whole functions: of jax.export, and of hloenv.load.
_OPAQUE = ("call_exported", "hloenv_call")


def _have_known_trip_counts(module: HloModule) -> bool:
    """Whether the number of iterations of each loop is in the module."""
    from ..graph.hlo_graph import HloGraph, opcodes

    graph = HloGraph.from_module(module)
    is_while = graph.opcode == opcodes().index("while")
    return bool((graph.trip_count[is_while] >= 0).all())


def has_loops(module: HloModule) -> bool:
    """Whether a module has loops."""
    return module.opcode_counts().get("while", 0) > 0
