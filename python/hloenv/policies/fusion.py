# SPDX-License-Identifier: Apache-2.0
"""Policies that accept fusions and keep the original elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from .._typing import Int64Array
from ..rewrite.choice_deltas import ChoiceDeltas, byte_weights
from .base import register_policy
from .greedy import Greedy, choices_that

if TYPE_CHECKING:
    from ..rewrite.alternatives import Alternatives, Choice

# Passes whose choices are fusions. The root of a multi-output fusion's choice is a
# get-tuple-element, so the opcode is not sufficient.
_FUSION_PASSES = frozenset({"fusion", "general-fusion", "cpu_multi_output_fusion"})


class FuseAllLegal:
    """Accepts every fusion that `general-fusion` proposes.

    If several producers can be fused into one consumer, takes the one that saves the
    most memory traffic. Alternatives without a choice of `general-fusion` keep their
    original.

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
        deltas = ChoiceDeltas(alternatives, byte_weights)
        change = np.where(allowed, deltas.change, np.inf)
        for index, first in enumerate(deltas.first.tolist()):
            of_choices = change[first : first + int(alternatives.num_choices[index])]
            best = int(np.argmin(of_choices))
            if np.isfinite(of_choices[best]):
                decisions[index] = best
        return decisions


class FuseByBytes(Greedy):
    """Accepts fusions that save memory traffic, the largest savings first.

    The traffic is that of XLA's cost analysis, as for `LeastBytes`.
    """

    def __init__(self) -> None:
        super().__init__(byte_weights, _is_fusing)


def _is_fusing(choice: Choice) -> bool:
    return choice.opcode == "fusion" or not _FUSION_PASSES.isdisjoint(choice.passes)


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
