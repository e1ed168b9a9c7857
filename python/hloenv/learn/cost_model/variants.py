# SPDX-License-Identifier: Apache-2.0
"""Variants of a module: random decisions and rules at positions of XLA's pipeline."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ..._typing import Int64Array
from ...cost import KernelSplit
from ...errors import HloEnvError
from ...hlo.module import HloModule
from ...policies import get_policy
from ...rewrite.game import Game, Prefix
from ...search.spaces import get_space

DEFAULT = "xla-default"
# Together: forms, simplification, reassociation, lowering, layouts, fusion.
_SPACES = (
    *("forms-to-fusion", "early-and-fusion", "all", "more-fusion", "fusion"),
    *("simplify", "reorder", "layout", "dots"),
)
_RULES = ("accept-all", "fewest-ops", "least-bytes", "keep-original")
# Attempts per variant: many decisions give a module that is there already.
_ATTEMPTS = 3
# Of the attempts in a space that has a variant already, those near one.
_NEAR = 0.4
_MAX_CHANGED = 3


@dataclass(frozen=True)
class Variant:
    """One module of several that compute the same.

    Attributes:
        space: of the decisions that made it, as in `hloenv.search`; `DEFAULT` for
            none.
        module: before the rest of XLA's passes.
        split: its kernels.
    """

    space: str
    module: HloModule
    split: KernelSplit


def make_variants(
    module: HloModule, count: int, *, rng: np.random.Generator, threads: int = 1
) -> Iterator[Variant]:
    """Variants of `module` that differ in their kernels, that of XLA's default first.

    Spaces whose passes fail, or whose positions XLA's pipeline does not reach for this
    module, are left out.

    Args:
        module: before XLA's passes.
        count: variants at most; there are fewer where few decisions exist.
        rng: of the decisions.
        threads: cores that the variants will run on.

    Raises:
        CompileError: a pass of XLA's own pipeline fails on the module.
    """
    default = Variant(DEFAULT, module, KernelSplit(module, threads=threads))
    yield default
    seen = {_content(default.split)}
    drawn = {name: _Drawn(module, name) for name in _SPACES}
    for _ in range(_ATTEMPTS * (count - 1)):
        if len(seen) >= count or not drawn:
            return
        name = _SPACES[rng.integers(len(_SPACES))]
        if name not in drawn:
            continue
        try:
            found = drawn[name].draw(rng)
            split = KernelSplit(found, threads=threads)
        except HloEnvError:
            drawn.pop(name)
            continue
        content = _content(split)
        if content not in seen:
            seen.add(content)
            yield Variant(name, found, split)


def _content(split: KernelSplit) -> object:
    """What variants of equal time have in common."""
    runs = zip(split.fingerprints, split.num_runs.tolist(), strict=True)
    return tuple(sorted(runs)), split.overhead_s


class _Drawn:
    """The drawn variants of one module in one space."""

    def __init__(self, module: HloModule, space: str) -> None:
        self._game = Game(module, get_space(space).stops)
        self._prefixes: list[Prefix] = []

    def draw(self, rng: np.random.Generator) -> HloModule:
        """A new variant, near an earlier one or not."""
        if self._prefixes and rng.random() < _NEAR:
            prefix = self._near(self._prefixes[rng.integers(len(self._prefixes))], rng)
        else:
            prefix = ()
            while len(prefix) < len(self._game.stops):
                prefix = (*prefix, self._decisions(prefix, rng))
        self._prefixes.append(prefix)
        return self._game.play(prefix)

    def _near(self, decided: Prefix, rng: np.random.Generator) -> Prefix:
        """`decided` with a few decisions at one of its points drawn again."""
        stop = int(rng.integers(len(decided)))
        changed = decided[stop].copy()
        num_choices = self._game.alternatives(decided[:stop]).num_choices
        if len(changed):
            size = min(int(rng.integers(1, _MAX_CHANGED + 1)), len(changed))
            which = rng.choice(len(changed), size, replace=False)
            changed[which] = rng.integers(0, num_choices[which])
        start = decided[:stop]
        return self._game.carry(
            decided, (*start, self._game.admissible(start, changed))
        )

    def _decisions(self, prefix: Prefix, rng: np.random.Generator) -> Int64Array:
        """XLA's own decisions, those of a rule, or random ones of a random share."""
        game = self._game
        kind = rng.random()
        default = game.default(prefix)
        if kind < 0.3:
            return default
        if kind < 0.45:
            rule = get_policy(_RULES[rng.integers(len(_RULES))])
            return game.ask_policy(rule, prefix)
        num_choices = game.alternatives(prefix).num_choices
        drawn = rng.integers(0, num_choices) if len(num_choices) else default
        is_drawn = rng.random(len(default)) < rng.random()
        base = default if rng.random() < 0.5 else np.zeros_like(default)
        return game.admissible(prefix, np.where(is_drawn, drawn, base))
