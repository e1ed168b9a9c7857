# SPDX-License-Identifier: Apache-2.0
"""The substitutions of a module: every rule at every place, one at a time."""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from ..errors import ArgumentError, ArgumentTypeError, HloEnvError
from ..hlo.module import HloModule
from ..hlo.passes import Pass, Pipeline, as_pipeline
from ..rewrite.alternatives import Alternatives
from ..rewrite.env import HloEnv
from ..search.spaces import TASO_PASSES

DEFAULT_PASSES = TASO_PASSES
# Instructions of the candidates that are kept, about 1 KB each.
_MAX_INSTRUCTIONS = 200_000


def _digest(module: HloModule) -> bytes:
    """Of a module and the order of its instructions."""
    try:
        # The fingerprint has the elements of large constants.
        data = module.fingerprint() + module.to_text(all_constants=False)
        return hashlib.blake2b(data.encode()).digest()
    except HloEnvError:  # not every attribute is text; protos differ by counters
        return hashlib.blake2b(module.to_proto()).digest()


@dataclass(frozen=True)
class Candidate:
    """A module that one substitution makes.

    Attributes:
        module: after the substitution.
        fingerprint: of this module.
        rule: the rule, or the pass where that has no rules.
        original: name of the (first) instruction that is replaced.
        alternative: number of the decision in `Expansion.alternatives`.
        choice: number of its choice.
    """

    module: HloModule
    fingerprint: str
    rule: str
    original: str
    alternative: int
    choice: int

    @property
    def name(self) -> str:
        """Rule and place, as in "merge-dot-sum@add.7"."""
        return f"{self.rule}@{self.original}"


@dataclass(frozen=True)
class Expansion:
    """All substitutions of one module.

    Attributes:
        module: which is substituted.
        alternatives: the same choices as one alternative graph.
        candidates: by alternative and choice, without duplicates.
        num_failed: choices that cannot be applied.
        num_left_out: choices beyond the limits of size and number.
    """

    module: HloModule
    alternatives: Alternatives
    candidates: tuple[Candidate, ...]
    num_failed: int
    num_left_out: int
    # What others have made of it, by name.
    made: dict[str, Any] = field(default_factory=dict, compare=False, repr=False)

    @cached_property
    def num_instructions(self) -> int:
        """Of the module and all candidates."""
        modules = [self.module, *(each.module for each in self.candidates)]
        return sum(each.instruction_count for each in modules)


class Expander:
    """Finds the substitutions of modules, and keeps the latest.

    Attributes:
        passes: the candidate passes whose choices are substitutions.
        max_candidates: of one module; further ones are left out.
        max_growth: candidates with more than so many times the instructions of the
            start are left out, which ends rules that go on forever.
        room: instructions that a candidate may add to a small module in any case: a
            form of one operation may have dozens.
    """

    def __init__(
        self,
        passes: Sequence[str | Pass | Pipeline] = DEFAULT_PASSES,
        *,
        max_candidates: int = 500,
        max_growth: float = 2.0,
        room: int = 0,
    ) -> None:
        """Makes an expander.

        Raises:
            ArgumentError: no passes, or a limit that is too small.
            ArgumentTypeError: passes that are no sequence of passes.
            UnknownPassError: no such pass.
        """
        if isinstance(passes, str) or not isinstance(passes, Iterable):
            raise ArgumentTypeError(
                "passes must be a sequence of candidate passes, as ('substitutions',), "
                f"got {passes!r}"
            )
        if max_candidates < 1 or not max_growth >= 1:
            raise ArgumentError(
                "max_candidates and max_growth must be >= 1, got "
                f"{max_candidates} and {max_growth}"
            )
        self.passes = tuple(as_pipeline(each) for each in passes)
        if not self.passes:
            raise ArgumentError("substitutions need at least one candidate pass")
        self.max_candidates = max_candidates
        self.max_growth = max_growth
        self.room = room
        self._forget()

    def _forget(self) -> None:
        self._kept: OrderedDict[tuple[bytes, int], Expansion] = OrderedDict()
        self._num_kept = 0
        self._lock = threading.Lock()

    def __getstate__(self) -> dict[str, Any]:
        names = ("passes", "max_candidates", "max_growth", "room")
        return {name: getattr(self, name) for name in names}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._forget()

    def limit(self, start: HloModule) -> int:
        """The largest number of instructions of a candidate."""
        count = start.instruction_count
        return max(int(self.max_growth * count), count + self.room)

    def expand(self, module: HloModule, *, max_instructions: int) -> Expansion:
        """The substitutions of a module.

        Args:
            module: any module, before layout assignment.
            max_instructions: of a candidate; see `limit`.

        Raises:
            PassError: a pass fails on the module.
        """
        # Not the fingerprint: candidates are numbered in the order of the instructions.
        key = _digest(module), max_instructions
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
                return self._kept[key]
        made = self._expand(module, max_instructions)
        with self._lock:
            if key in self._kept:  # another thread was as fast
                return self._kept[key]
            self._kept[key] = made
            self._num_kept += made.num_instructions
            while self._num_kept > _MAX_INSTRUCTIONS and len(self._kept) > 1:
                self._num_kept -= self._kept.popitem(last=False)[1].num_instructions
        return made

    def _expand(self, module: HloModule, max_instructions: int) -> Expansion:
        alternatives = HloEnv(module).get_alternatives(*self.passes)
        seen = {module.fingerprint()}
        found: list[Candidate] = []
        num_failed = num_left_out = 0
        for each in alternatives:
            choices = each.choices
            for choice in range(1, len(choices)):
                if len(found) >= self.max_candidates:
                    num_left_out += 1
                    continue
                decisions = alternatives.reject_all()
                decisions[each.index] = choice
                try:
                    made = alternatives.apply(decisions)
                    fingerprint = made.fingerprint()
                except HloEnvError:
                    num_failed += 1
                    continue
                if fingerprint in seen:
                    continue
                seen.add(fingerprint)
                if made.instruction_count > max_instructions:
                    num_left_out += 1
                    continue
                rule = choices[choice].rule or choices[choice].passes[0]
                found.append(
                    Candidate(
                        made, fingerprint, rule, each.original, each.index, choice
                    )
                )
        return Expansion(module, alternatives, tuple(found), num_failed, num_left_out)
