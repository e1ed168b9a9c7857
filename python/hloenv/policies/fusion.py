# SPDX-License-Identifier: Apache-2.0
"""Policies that fuse, and keep every original where nothing is fused."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from .._typing import Int64Array
from ..rewrite.choice_deltas import ChoiceDeltas, byte_weights
from .base import register_policy
from .greedy import Greedy, choices_that

if TYPE_CHECKING:
    from ..rewrite.alternatives import Alternatives, Choice

# Passes whose choices are fusions; a fusion of two results is read as a tuple's
# element, so the opcode does not tell.
_FUSING = frozenset({"fusion", "general-fusion", "cpu_multi_output_fusion"})


class FuseAllLegal:
    """Fuses whatever `general-fusion` says the backend can compile.

    Where several producers may go into one consumer, the one that saves the most memory
    traffic. Alternatives that `general-fusion` has no choice for keep their original.

    Args:
        duplicate_compared: also take choices that `Alternatives.duplicates_compared`
            marks.
    """

    def __init__(self, *, duplicate_compared: bool = False) -> None:
        self._duplicate_compared = duplicate_compared

    def __call__(self, alternatives: Alternatives, /) -> Int64Array:
        """[A] choices."""
        decisions = alternatives.reject_all()
        allowed = choices_that(
            alternatives, lambda choice: "general-fusion" in choice.passes
        )
        if not self._duplicate_compared:
            allowed &= ~alternatives.duplicates_compared
        if not allowed.any():
            return decisions
        effects = ChoiceDeltas(alternatives, byte_weights)
        change = np.where(allowed, effects.change, np.inf)
        for index, first in enumerate(effects.first.tolist()):
            of_choices = change[first : first + int(alternatives.num_choices[index])]
            best = int(np.argmin(of_choices))
            if np.isfinite(of_choices[best]):
                decisions[index] = best
        return decisions


class FuseByBytes(Greedy):
    """Fuses where it saves memory traffic, the largest savings first, no conflicts.

    The traffic is that of XLA's cost analysis, as for `LeastBytes`.
    """

    def __init__(self) -> None:
        super().__init__(byte_weights, _is_fusing)


def _is_fusing(choice: Choice) -> bool:
    return choice.opcode == "fusion" or not _FUSING.isdisjoint(choice.passes)


register_policy(
    "fuse-all-legal",
    "accept every fusion of general-fusion that can be compiled",
    lambda _: FuseAllLegal(),
)
register_policy(
    "fuse-by-bytes",
    "accept fusions that reduce memory traffic, the largest savings first",
    lambda _: FuseByBytes(),
)
