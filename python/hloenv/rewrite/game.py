# SPDX-License-Identifier: Apache-2.0
"""Several decisions in a row on one module: what searches and benchmarks play.

A game stops at places of XLA's pipeline, in order; at each, some passes' rewrites are
alternatives. What is decided at one stop changes what there is to decide at the next.
"""

from __future__ import annotations

import os
from collections import Counter, OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from .._typing import Int64Array
from ..errors import ArgumentError
from ..hlo.module import HloModule, as_module, identity
from ..hlo.passes import Pass, Pipeline
from .alternatives import Alternative, Alternatives, Site, as_decisions
from .env import HloEnv
from .policy import Policy, xla_pass

# Passes whose alternatives are each about a computation, with two choices.
_OF_COMPUTATIONS = {"thunk-order"}
# Captures of the latest prefixes that are kept; each holds its module and shadows.
_KEPT = 64

Prefix = tuple[Int64Array, ...]


@dataclass(frozen=True)
class DecisionPoint:
    """Where to decide, and what.

    Attributes:
        passes: whose rewrites are the alternatives.
        where: as `HloEnv.run_until` takes it; "" to decide where the module stands.
        occurrence: which arrival there.
        default: the one of `passes` that XLA itself would run here, whose own decisions
            then give XLA's default; "" where XLA runs none of them.
        first: passes that run on arrival, before anything is decided.
    """

    passes: tuple[str | Pass | Pipeline, ...]
    where: str = ""
    occurrence: int = 1
    default: str = ""
    first: tuple[str | Pass | Pipeline, ...] = ()


class Game:
    """A module and the stops at which it is decided.

    A *prefix* is a tuple of decisions, one [A] vector for each of the first stops; a
    complete one has as many as there are stops.

    Attributes:
        module: at its start; left as it is.
        stops: in the order of XLA's pipeline.
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
        """Decides nothing yet.

        Raises:
            ArgumentError: there are no stops.
        """
        self.module = as_module(module)
        self.stops = tuple(stops)
        self.duplicate_compared = duplicate_compared
        if not self.stops:
            raise ArgumentError("a game needs at least one DecisionPoint to decide at")
        self._is_given = False
        self._positions: OrderedDict[tuple[bytes, ...], _Position] = OrderedDict()
        self._fingerprints: dict[tuple[bytes, ...], str] = {}

    @classmethod
    def of(cls, alternatives: Alternatives) -> Game:
        """A game of one stop, with what was captured there already.

        XLA's own decisions are those of the first captured pass that is no candidate
        pass; where there is none, XLA keeps every original.
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
        """What is to be decided at the stop after `prefix`.

        Raises:
            ArgumentError: nothing is left to decide.
            PositionError: XLA's pipeline does not come by the stop.
            PassError, CompileError: a pass fails on the module.
        """
        if len(prefix) >= len(self.stops):
            raise ArgumentError(
                f"the game has {len(self.stops)} stops, and {len(prefix)} are decided"
            )
        return self._position(prefix).alternatives

    def default(self, prefix: Prefix = ()) -> Int64Array:
        """[A] what leads to XLA's own result at the stop after `prefix`.

        Where XLA runs none of the stop's passes there, all is left to it (-1).
        """
        alternatives = self.alternatives(prefix)
        name = self.stops[len(prefix)].default
        if not name:
            if self._is_given:
                return alternatives.reject_all()
            return alternatives.leave_to_xla()
        return alternatives.decisions_for(name)

    def admissible(self, prefix: Prefix, decisions: Int64Array) -> Int64Array:
        """[A] the decisions at the stop after `prefix`, as far as they may be taken.

        The original is kept in place of a choice that XLA does not take and that
        `Alternatives.duplicates_compared` marks, unless `duplicate_compared` allows it.
        """
        alternatives = self.alternatives(prefix)
        if self.duplicate_compared or not alternatives.duplicates_compared.any():
            return decisions
        first = np.cumsum(alternatives.num_choices) - alternatives.num_choices
        is_marked = alternatives.duplicates_compared[first + np.maximum(decisions, 0)]
        return np.where(is_marked & (decisions != self.default(prefix)), 0, decisions)

    def complete(self, prefix: Prefix = ()) -> Prefix:
        """`prefix`, and XLA's own decisions at all stops after it."""
        while len(prefix) < len(self.stops):
            prefix = (*prefix, self.default(prefix))
        return prefix

    def ask_policy(self, policy: Policy, prefix: Prefix = ()) -> Int64Array:
        """[A] what a policy decides at the stop after `prefix`, where `admissible`.

        Raises:
            HloEnvError: as `alternatives`, or the policy fails.
        """
        return self.admissible(prefix, as_decisions(policy(self.alternatives(prefix))))

    def follow_policy(self, policy: Policy) -> Prefix:
        """A complete prefix: what a policy decides at one stop after the other.

        Raises:
            HloEnvError: as `alternatives`, or the policy fails.
        """
        prefix: Prefix = ()
        while len(prefix) < len(self.stops):
            prefix = (*prefix, self.ask_policy(policy, prefix))
        return prefix

    def carry(self, decided: Prefix, prefix: Prefix) -> Prefix:
        """A complete prefix that starts with `prefix` and goes on as `decided` does."""
        while len(prefix) < len(self.stops):
            prefix = (*prefix, self.follow(decided, prefix))
        return prefix

    def follow(self, decided: Prefix, prefix: Prefix) -> Int64Array:
        """[A] what `decided` decides at the stop after `prefix`.

        Where the alternatives are others now, each one with the same site takes the
        choice that is like the one before; the rest take XLA's own. What is decided of
        a whole computation stays, whichever instruction stands for it.

        Args:
            decided: a prefix with more stops than `prefix`.
            prefix: what is decided instead of the first of them.
        """
        stop = len(prefix)
        return self.translate(decided[:stop], decided[stop], prefix)

    def translate(
        self, before: Prefix, decisions: Int64Array, prefix: Prefix
    ) -> Int64Array:
        """[A] decisions at the stop after `before`, for the one after `prefix`."""
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
        """`decided`, without the decisions that make no difference.

        Those keep the original (0) or, where all is left to XLA, are left to it (-1).
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
        """The module with all stops decided, at its place in XLA's pipeline.

        Args:
            decided: a complete prefix.
        """
        if len(decided) != len(self.stops):
            raise ArgumentError(
                f"the game has {len(self.stops)} stops, and {len(decided)} are decided"
            )
        return self.alternatives(decided[:-1]).apply(decided[-1], partial=True)

    def fingerprint(self, decided: Prefix) -> str:
        """What tells the result of `play` from others; remembered.

        Its fingerprint, and what XLA must not do to it from then on.
        """
        key = _key(decided)
        if key not in self._fingerprints:
            self._fingerprints[key] = identity(self.play(decided))
        return self._fingerprints[key]

    def episode(self, decided: Prefix) -> HloEnv:
        """The same as an environment, whose trace can be saved and replayed.

        Raises:
            ArgumentError: the game was made of alternatives, not of a module.
        """
        if self._is_given:
            raise ArgumentError(
                "this game was made by Game.of(alternatives), so it does not know how "
                "its module was reached; decide in the environment of the alternatives"
            )
        env = HloEnv(self.module)
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
                module = self._position(prefix[:-1]).alternatives.apply(
                    prefix[-1], partial=True
                )
            position = _Position(_arrive(HloEnv(module), self.stops[len(prefix)]))
            self._positions[key] = position
            if len(self._positions) > _KEPT:
                self._positions.popitem(last=False)
        self._positions.move_to_end(key)
        return position


class _Position:
    """What is to be decided after a prefix, and how to find it again elsewhere."""

    def __init__(self, alternatives: Alternatives) -> None:
        self.alternatives = alternatives

    @cached_property
    def names(self) -> list[tuple[object, ...]]:
        """For each alternative, what its choices look like."""
        return [_names(alternative) for alternative in self.alternatives]

    @cached_property
    def sites(self) -> list[tuple[Site, ...]]:
        """For each alternative, where it stands."""
        return [each.sites for each in self.alternatives]

    @cached_property
    def of_computation(self) -> dict[str, int]:
        """The alternative about each computation as a whole."""
        if set(self.alternatives.pass_names) != _OF_COMPUTATIONS:
            return {}
        return {sites[0].computation: index for index, sites in enumerate(self.sites)}

    @cached_property
    def index(self) -> dict[object, int]:
        """The alternative at each place."""
        return {site: index for index, site in enumerate(self.sites)}

    def choices(self, decisions: Int64Array) -> dict[object, object]:
        """What is chosen at each place that is not left to XLA."""
        return {
            site: self.names[index][choice]
            for index, (site, choice) in enumerate(
                zip(self.sites, decisions.tolist(), strict=True)
            )
            if choice >= 0
        }


def _names(alternative: Alternative) -> tuple[object, ...]:
    """One name for each choice; of those that look the same, the first, the second."""
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
    return env.get_alternatives(*stop.passes)


def _key(prefix: Prefix) -> tuple[bytes, ...]:
    return tuple(np.ascontiguousarray(each, np.int64).tobytes() for each in prefix)
