# SPDX-License-Identifier: Apache-2.0
"""Rejects the rewrites that cost in the map of the dataset's programs."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from .._typing import Int64Array
from ..rewrite_map.changes import Changes
from ..rewrite_map.known import known_rules
from .base import register_policy

if TYPE_CHECKING:
    from ..rewrite.alternatives import Alternatives


class AvoidCostly:
    """Rejects rewrites that are known to cost; leaves the rest undecided.

    A rewrite is known by its pass, its rule (what becomes what) and the class of the
    original by type and size, as in the table of `hloenv.rewrite_map.known`, which the
    map of XLA's rewrites on the dataset's programs gives. Run it on the module as JAX
    lowers it, because XLA makes some of them early:

        passes = ("algsimp", "convolution-canonicalization")

        @hloenv.jit(policy="avoid-costly", passes=passes, until=None)
        def step(params, batch): ...

    Args:
        rules: pass, rule and shape class of the rewrites to reject, instead of those of
            the table.
    """

    def __init__(self, rules: Collection[tuple[str, str, str]] | None = None) -> None:
        self._rules = frozenset(known_rules() if rules is None else rules)
        self._passes = {name for name, _, _ in self._rules}

    def __call__(self, alternatives: Alternatives, /) -> Int64Array:
        """[A] 0 where all choices are known to cost, -1 (undecided) elsewhere."""
        decisions = alternatives.leave_to_xla()
        if self._passes.isdisjoint(alternatives.pass_names):
            return decisions
        changes = Changes(alternatives)
        for each in alternatives:
            if each.kind != "pass" and all(
                self._costs(changes, each.index, choice, names.passes)
                for choice, names in enumerate(each.choices)
                if choice
            ):
                decisions[each.index] = 0
        return decisions

    def _costs(
        self, changes: Changes, index: int, choice: int, passes: Collection[str]
    ) -> bool:
        if self._passes.isdisjoint(passes):
            return False
        change = changes.of(index, choice)
        return any(
            (name, change.rule, change.shape_class) in self._rules for name in passes
        )


register_policy(
    "avoid-costly",
    "reject XLA's rewrites that are known to cost; leave the rest undecided",
    lambda _: AvoidCostly(),
)
