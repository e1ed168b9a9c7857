# SPDX-License-Identifier: Apache-2.0
"""The substitutions of a module: every rule at every place, one at a time."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import ArgumentError, HloEnvError
from ..hlo.module import HloModule
from ..hlo.passes import Pass, Pipeline, as_pipeline
from ..rewrite.alternatives import Alternatives
from ..rewrite.env import HloEnv

# TASO's families: those in Python, and those that were candidate passes before.
DEFAULT_PASSES = ("substitutions", "reassociate", "merge-dots")
# Modules whose candidates are kept.
_MAX_KEPT = 64


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


class Expander:
    """Finds the substitutions of modules, and keeps the latest.

    Attributes:
        passes: the candidate passes whose choices are substitutions.
        max_candidates: of one module; further ones are left out.
        max_growth: candidates with more than so many times the instructions of the
            start are left out, which ends rules that go on forever.
    """

    def __init__(
        self,
        passes: Sequence[str | Pass | Pipeline] = DEFAULT_PASSES,
        *,
        max_candidates: int = 500,
        max_growth: float = 2.0,
    ) -> None:
        """Makes an expander.

        Raises:
            ArgumentError: no passes, or a limit that is too small.
            UnknownPassError: no such pass.
        """
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
        self._kept: OrderedDict[tuple[str, int], Expansion] = OrderedDict()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_kept": OrderedDict()}

    def limit(self, start: HloModule) -> int:
        """The largest number of instructions of a candidate."""
        return int(self.max_growth * start.instruction_count)

    def expand(self, module: HloModule, *, max_instructions: int) -> Expansion:
        """The substitutions of a module.

        Args:
            module: any module, before layout assignment.
            max_instructions: of a candidate; see `limit`.

        Raises:
            PassError: a pass fails on the module.
        """
        key = module.fingerprint(), max_instructions
        if key in self._kept:
            self._kept.move_to_end(key)
            return self._kept[key]
        made = self._expand(module, max_instructions)
        self._kept[key] = made
        while len(self._kept) > _MAX_KEPT:
            self._kept.popitem(last=False)
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
