# SPDX-License-Identifier: Apache-2.0
"""A sequence of decision points on one module, for searches and benchmarks.

A game has decision points at positions in XLA's pipeline, in order; at each, the
rewrites of some passes are alternatives. The decisions at one point change the
alternatives at the next.
"""

from __future__ import annotations

import os
import warnings
from collections import Counter, OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from .._typing import Int64Array
from ..errors import ArgumentError, DecisionError, LeftOutWarning, PassError
from ..hlo.module import HloModule, as_module, identity
from ..hlo.passes import Pass, Pipeline
from .alternatives import Alternative, Alternatives, Site, as_decisions
from .env import HloEnv
from .policy import Policy, xla_pass

# Passes whose alternatives each concern one computation, with two choices.
_OF_COMPUTATIONS = {"thunk-order"}
# Number of cached captures, by prefix; each holds its module and shadows.
_KEPT = 64
# Number of cached results of `play`.
_KEPT_MODULES = 16

Prefix = tuple[Int64Array, ...]


@dataclass(frozen=True)
class DecisionPoint:
    """A position in XLA's pipeline, and the passes to decide there.

    Attributes:
        passes: the passes whose rewrites are the alternatives.
        where: position, as for `HloEnv.run_until`; "" for the module's own position.
        occurrence: how often the pipeline reaches the position, from 1.
        default: the one of `passes` that XLA itself runs here, whose decisions then
            give XLA's default; "" if XLA runs none of them.
        first: passes that run at the position before the capture.

    A pass that fails on the module is left out of the alternatives, with a
    `LeftOutWarning`, unless XLA itself runs it here, or every pass fails.
    """

    passes: tuple[str | Pass | Pipeline, ...]
    where: str = ""
    occurrence: int = 1
    default: str = ""
    first: tuple[str | Pass | Pipeline, ...] = ()


class Game:
    """A module and its decision points.

    A *prefix* is a tuple of decisions, one [A] vector for each of the first decision
    points; a complete prefix has one for each.

    Attributes:
        module: at the start; not modified.
        stops: the decision points, in the order of XLA's pipeline.
        duplicate_compared: whether policies and searches may take choices that
            `Alternatives.duplicates_compared` marks and XLA does not take.
    """

    def __init__(
        self,
        module: HloModule | str | os.PathLike[str],
        stops: Sequence[DecisionPoint],
        *,
        duplicate_compared: bool = False,
    ) -> None:
        """Makes a game without decisions.

        Raises:
            ArgumentError: there are no decision points.
        """
        self.module = as_module(module)
        self.stops = tuple(stops)
        self.duplicate_compared = duplicate_compared
        if not self.stops:
            raise ArgumentError("a game needs at least one DecisionPoint, got none")
        self._is_given = False
        self._positions: OrderedDict[tuple[bytes, ...], _Position] = OrderedDict()
        self._fingerprints: dict[tuple[bytes, ...], str] = {}
        self._played: OrderedDict[tuple[bytes, ...], HloModule] = OrderedDict()

    @classmethod
    def of(cls, alternatives: Alternatives) -> Game:
        """A game of one decision point, whose alternatives are captured already.

        XLA's own decisions are those of the first captured pass that is not a candidate
        pass; without one, they keep every original.
        """
        game = cls(
            HloModule._wrap(
                alternatives._capture.module(), position=alternatives._place
            ),
            [DecisionPoint(alternatives.pass_names, default=xla_pass(alternatives))],
        )
        game._positions[()] = _Position(alternatives)
        game._is_given = True
        return game

    def alternatives(self, prefix: Prefix = ()) -> Alternatives:
        """The alternatives at the decision point after `prefix`.

        Raises:
            ArgumentError: `prefix` is complete.
            PositionError: XLA's pipeline does not reach the decision point.
            PassError, CompileError: a pass fails on the module.
        """
        if len(prefix) >= len(self.stops):
            raise ArgumentError(
                f"the prefix has decisions for {len(prefix)} decision points; to ask "
                f"for alternatives it must have fewer than all {len(self.stops)}"
            )
        return self._position(prefix).alternatives

    def default(self, prefix: Prefix = ()) -> Int64Array:
        """[A] decisions for XLA's own result at the decision point after `prefix`.

        What the prefix rejects stays rejected. If XLA runs none of the passes there,
        all are undecided (-1).
        """
        alternatives = self.alternatives(prefix)
        name = self.stops[len(prefix)].default
        if not name:
            if self._is_given:
                return alternatives.reject_all()
            return alternatives.leave_to_xla()
        return alternatives.unrejected_decisions_for(name)

    def admissible(self, prefix: Prefix, decisions: Int64Array) -> Int64Array:
        """[A] the admissible decisions at the decision point after `prefix`.

        The original replaces each choice that XLA does not take and that
        `Alternatives.duplicates_compared` marks, unless `duplicate_compared` allows it.
        """
        alternatives = self.alternatives(prefix)
        if self.duplicate_compared or not alternatives.duplicates_compared.any():
            return decisions
        counts = alternatives.num_choices
        if decisions.shape != counts.shape or bool((decisions >= counts).any()):
            raise DecisionError(
                f"decisions must be {len(counts)} integers, each below its number of "
                f"choices, got {decisions.tolist()[:20]}"
            )
        first = np.cumsum(counts) - counts
        is_marked = alternatives.duplicates_compared[first + np.maximum(decisions, 0)]
        return np.where(is_marked & (decisions != self.default(prefix)), 0, decisions)

    def complete(self, prefix: Prefix = ()) -> Prefix:
        """`prefix`, and XLA's own decisions at all decision points after it."""
        while len(prefix) < len(self.stops):
            prefix = (*prefix, self.default(prefix))
        return prefix

    def ask_policy(self, policy: Policy, prefix: Prefix = ()) -> Int64Array:
        """[A] a policy's `admissible` decisions at the decision point after `prefix`.

        Raises:
            HloEnvError: as `alternatives`, or the policy fails.
        """
        return self.admissible(prefix, as_decisions(policy(self.alternatives(prefix))))

    def follow_policy(self, policy: Policy) -> Prefix:
        """A complete prefix: a policy's decisions at all decision points, in order.

        Raises:
            HloEnvError: as `alternatives`, or the policy fails.
        """
        prefix: Prefix = ()
        while len(prefix) < len(self.stops):
            prefix = (*prefix, self.ask_policy(policy, prefix))
        return prefix

    def carry(self, decided: Prefix, prefix: Prefix) -> Prefix:
        """A complete prefix that starts with `prefix` and continues as `decided`."""
        while len(prefix) < len(self.stops):
            prefix = (*prefix, self.follow(decided, prefix))
        return prefix

    def follow(self, decided: Prefix, prefix: Prefix) -> Int64Array:
        """[A] the decisions of `decided` at the decision point after `prefix`.

        If the alternatives differ, each one with the same site takes the choice with
        the same description as before; the rest take XLA's own. Decisions about a
        whole computation are kept, whichever instruction represents it.

        Args:
            decided: a longer prefix than `prefix`.
            prefix: decisions that replace the first ones of `decided`.
        """
        stop = len(prefix)
        return self.translate(decided[:stop], decided[stop], prefix)

    def translate(
        self, before: Prefix, decisions: Int64Array, prefix: Prefix
    ) -> Int64Array:
        """[A] decisions after `before`, translated to the point after `prefix`."""
        if _key(before) == _key(prefix):
            return decisions.copy()
        then = self._position(before)
        now = self._position(prefix)
        translated = self.default(prefix)
        for where, choice in then.choices(decisions).items():
            index = now.index.get(where)
            if index is not None and choice in now.names[index]:
                translated[index] = now.names[index].index(choice)
        for computation, index in then.of_computation.items():
            if (place := now.of_computation.get(computation)) is not None:
                translated[place] = decisions[index]
        return translated

    def canonical(self, decided: Prefix) -> Prefix:
        """`decided`, without irrelevant decisions.

        Those become 0 (the original) or, if the default is undecided, -1.
        """
        return tuple(
            np.where(
                self.alternatives(decided[:stop]).relevant(each),
                each,
                np.minimum(self.default(decided[:stop]), 0),
            )
            for stop, each in enumerate(decided)
        )

    def play(self, decided: Prefix) -> HloModule:
        """The module with all decisions applied, at its position in XLA's pipeline.

        The latest modules are cached.

        Args:
            decided: a complete prefix.
        """
        if len(decided) != len(self.stops):
            raise ArgumentError(
                f"the prefix has decisions for {len(decided)} decision points; to be "
                f"played it must have them for all {len(self.stops)}"
            )
        key = _key(decided)
        module = self._played.get(key)
        if module is None:
            alternatives = self.alternatives(decided[:-1])
            module = alternatives.apply(decided[-1], partial=True)
            self._played[key] = module
            if len(self._played) > _KEPT_MODULES:
                self._played.popitem(last=False)
        self._played.move_to_end(key)
        return module

    def fingerprint(self, decided: Prefix) -> str:
        """Identity of the result of `play`; cached.

        Its fingerprint, and a hash of the rewrites that XLA must not make later.
        """
        key = _key(decided)
        if key not in self._fingerprints:
            self._fingerprints[key] = identity(self.play(decided))
        return self._fingerprints[key]

    def episode(self, decided: Prefix, *, after: HloEnv | None = None) -> HloEnv:
        """The episode as an environment, whose trace can be saved and replayed.

        Args:
            decided: a complete prefix.
            after: an episode that has led to the module of the game, and is continued;
                None for a new one.

        Raises:
            ArgumentError: the game was made from alternatives, not from a module.
        """
        if self._is_given:
            raise ArgumentError(
                "this game was made by Game.of(alternatives), which does not record "
                "how its module was made; apply the decisions in the environment of "
                "the alternatives"
            )
        env = HloEnv(self.module) if after is None else after
        for stop, decisions in zip(self.stops, decided, strict=True):
            _arrive(env, stop)
            env.apply_alternatives(decisions, partial=True)
        return env

    def _position(self, prefix: Prefix) -> _Position:
        key = _key(prefix)
        position = self._positions.get(key)
        if position is None:
            module = self.module
            if prefix:
                module = self.alternatives(prefix[:-1]).apply(prefix[-1], partial=True)
            position = _Position(_arrive(HloEnv(module), self.stops[len(prefix)]))
            self._positions[key] = position
            if len(self._positions) > _KEPT:
                self._positions.popitem(last=False)
        self._positions.move_to_end(key)
        return position


class _Position:
    """The alternatives after a prefix, with keys to match them to other captures."""

    def __init__(self, alternatives: Alternatives) -> None:
        self.alternatives = alternatives

    @cached_property
    def names(self) -> list[tuple[object, ...]]:
        """For each alternative, descriptions of its choices."""
        return [_names(alternative) for alternative in self.alternatives]

    @cached_property
    def sites(self) -> list[tuple[Site, ...]]:
        """For each alternative, its sites."""
        return [each.sites for each in self.alternatives]

    @cached_property
    def of_computation(self) -> dict[str, int]:
        """The alternative for each whole computation."""
        if set(self.alternatives.pass_names) != _OF_COMPUTATIONS:
            return {}
        return {sites[0].computation: index for index, sites in enumerate(self.sites)}

    @cached_property
    def index(self) -> dict[object, int]:
        """The alternative at each site."""
        return {site: index for index, site in enumerate(self.sites)}

    def choices(self, decisions: Int64Array) -> dict[object, object]:
        """The choice at each decided site."""
        return {
            site: self.names[index][choice]
            for index, (site, choice) in enumerate(
                zip(self.sites, decisions.tolist(), strict=True)
            )
            if choice >= 0
        }


def _names(alternative: Alternative) -> tuple[object, ...]:
    """Returns one name per choice; choices with equal descriptions are numbered."""
    seen: Counter[object] = Counter()
    names = []
    for each in alternative.choices:
        looks = (each.passes, each.rule, each.opcode, each.makes_dead)
        names.append((looks, seen[looks]))
        seen[looks] += 1
    return tuple(names)


def _arrive(env: HloEnv, stop: DecisionPoint) -> Alternatives:
    if stop.where:
        env.run_until(stop.where, occurrence=stop.occurrence)
    if stop.first:
        env.run(*stop.first)
    try:
        return env.get_alternatives(*stop.passes)
    except PassError as error:
        working = [each for each in stop.passes if _is_capturable(env, each)]
        names = {each if isinstance(each, str) else each.name for each in working}
        if not working or (stop.default and stop.default not in names):
            raise
        warnings.warn(
            f"only {', '.join(sorted(names))} of the passes are decided: {error}",
            LeftOutWarning,
            stacklevel=2,
        )
        return env.get_alternatives(*working)


def _is_capturable(env: HloEnv, each: str | Pass | Pipeline) -> bool:
    try:
        env.get_alternatives(each)
    except PassError:
        return False
    return True


def _key(prefix: Prefix) -> tuple[bytes, ...]:
    return tuple(np.ascontiguousarray(each, np.int64).tobytes() for each in prefix)
