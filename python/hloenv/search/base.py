# SPDX-License-Identifier: Apache-2.0
"""The base class of searches, and the registry of searches."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Generator
from itertools import accumulate
from typing import Any

import numpy as np

from .._plugins import attribute_of_file, check_call, check_entry, split_file
from .._registry import Info, Registry
from ..errors import ArgumentError, HloEnvError
from ..rewrite.game import Game, Prefix

# A search yields a prefix and receives its seconds.
Proposals = Generator[Prefix, float, None]


class UnknownSearchError(HloEnvError, LookupError):
    """No search has this name."""


class Search:
    """Searches for the decisions of a game with the shortest run time.

        search = get_search("evolve", game, seed=0)
        while (prefix := search.ask()) is not None and is_time_left():
            search.tell(prefix, seconds_of(game.play(prefix)))
        prefix, seconds = search.best

    A subclass has `_proposals`, which yields complete prefixes and receives the seconds
    of each. Prefixes that differ only in irrelevant decisions are one proposal, which
    is evaluated once.

    Attributes:
        name: as in `list_searches`, with its specification.
        game: the game to decide.
        seed: of the random draws.
        history: every proposal with its seconds, in order; infinite if it failed.
        best: the first of the fastest proposals; None if all failed.
    """

    name = ""
    # Consecutive known proposals after which the search ends.
    max_repeats = 1000

    def __init__(self, game: Game, *, seed: int = 0) -> None:
        """Makes no proposal before the first `ask`."""
        self.game = game
        self.seed = seed
        self._restart()

    def _restart(self) -> None:
        self.history: list[tuple[Prefix, float]] = []
        self.best: tuple[Prefix, float] | None = None
        self._rng = np.random.default_rng(self.seed)
        self._known: dict[tuple[bytes, ...], float] = {}
        self._running = self._proposals()
        self._asked: Prefix | None = None
        self._is_over = False

    def _proposals(self) -> Proposals:
        """Yields complete prefixes; each yield gives the seconds of its prefix."""
        raise NotImplementedError

    def ask(self) -> Prefix | None:
        """The next proposal, the same until `tell`; None at the end of the search."""
        if self._asked is None and not self._is_over:
            self._asked = self._advance(None)
        return self._asked

    def tell(self, prefix: Prefix, seconds: float) -> None:
        """Reports the run time of a proposal.

        Args:
            prefix: the result of `ask`.
            seconds: NaN or infinite if it failed.

        Raises:
            ArgumentError: `prefix` is not the pending result of `ask`.
        """
        if self._asked is None or _digest(prefix) != _digest(self._asked):
            raise ArgumentError(
                "tell needs the result of ask(), once: "
                + (
                    "no proposal is pending; call ask() first"
                    if self._asked is None
                    else "this prefix is another one"
                )
            )
        asked = self._asked
        seconds = math.inf if math.isnan(seconds) else float(seconds)
        self.history.append((asked, seconds))
        if math.isfinite(seconds) and (self.best is None or seconds < self.best[1]):
            self.best = (asked, seconds)
        self._known[self._key(asked)] = seconds
        self._asked = None
        self._asked = self._advance(seconds)

    def _advance(self, seconds: float | None) -> Prefix | None:
        """The next proposal without a known time."""
        for _ in range(self.max_repeats):
            try:
                if seconds is None:
                    prefix = next(self._running)
                else:
                    prefix = self._running.send(seconds)
            except StopIteration:
                break
            known = self._known.get(self._key(prefix))
            if known is None:
                return prefix
            seconds = known
        self._is_over = True
        return None

    def _key(self, prefix: Prefix) -> tuple[bytes, ...]:
        return tuple(each.tobytes() for each in self.game.canonical(prefix))

    @property
    def curve(self) -> list[float]:
        """The minimum seconds after each `tell`; infinite while all have failed."""
        return list(accumulate((seconds for _, seconds in self.history), min))

    def state_dict(self) -> dict[str, Any]:
        """The state for `load_state_dict`: plain data, for JSON."""
        return {
            "search": self.name,
            "seed": self.seed,
            "told": [
                [_digest(prefix), seconds if math.isfinite(seconds) else None]
                for prefix, seconds in self.history
            ],
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restores the state of `state_dict`.

        The seed and the reported times determine a search, so its proposals are
        replayed with the recorded times.

        Raises:
            ArgumentError: the state belongs to another search or game.
        """
        if (state["search"], state["seed"]) != (self.name, self.seed):
            raise ArgumentError(
                f"the state belongs to search {state['search']!r} with seed "
                f"{state['seed']}, but this is {self.name!r} with seed {self.seed}; "
                "load it into the same search"
            )
        self._restart()
        for digest, seconds in state["told"]:
            prefix = self.ask()
            if prefix is None or _digest(prefix) != digest:
                raise ArgumentError(
                    f"after {len(self.history)} proposals the state differs from the "
                    "search: it belongs to another game or another version"
                )
            self.tell(prefix, math.inf if seconds is None else seconds)


def _digest(prefix: Prefix) -> str:
    state = hashlib.sha256()
    for each in prefix:
        state.update(len(each).to_bytes(8, "little"))
        state.update(np.ascontiguousarray(each, np.int64).tobytes())
    return state.hexdigest()[:16]


_REGISTRY: Registry[Callable[..., Search]] = Registry(
    "search",
    "searches",
    UnknownSearchError,
    group="hloenv.search",
    is_random=True,
)


def register_search(name: str, summary: str, make: Callable[..., Search]) -> None:
    """Registers a search under a name, also for the command line.

    Args:
        name: lower case, words joined by "-"; of a family with a specification, then
            ":" and the specification: "optuna:SAMPLER".
        summary: one sentence.
        make: from a game and `seed=` to the search; of a family also `spec=`.

    Raises:
        ArgumentTypeError: the summary is no text, as where it and `make` are swapped.
        ValueError: the name is taken.
    """
    check_entry(name, summary, make)
    _REGISTRY.add(name, summary, make, is_random=True)


def list_searches(*, families: bool = False) -> tuple[str, ...]:
    """Names of all searches, sorted; or of the families that take a specification."""
    return _REGISTRY.names(families=families)


def describe_search(name: str) -> Info:
    """Describes a search.

    Raises:
        UnknownSearchError: no search has this name.
    """
    return _REGISTRY.describe(name)


def get_search(name: str, game: Game, *, seed: int = 0) -> Search:
    """Makes the search of this name.

    Args:
        name: one of `list_searches()`, or a member of a family: "optuna:tpe"; or
            "my.py:Name", a class of that file that takes a game and `seed=`.
        game: the game to decide.
        seed: of the random draws.

    Raises:
        UnknownSearchError: no search has this name.
        ArgumentError: the specification after the colon is not valid.
        ImportError: it needs a package that is not installed.
    """
    if own := split_file(name):
        make = attribute_of_file(*own)
        check_call(make, f"{name}(game, *, seed)", game, seed=seed)
        search = make(game, seed=seed)
        if not isinstance(search, Search):
            raise ArgumentError(
                f"{name} makes a {type(search).__name__}; it must make an "
                "hloenv.search.Search"
            )
        search.name = name
        return search
    make, spec = _REGISTRY.find(name)
    search = make(game, seed=seed) if spec is None else make(game, seed=seed, spec=spec)
    search.name = name
    return search
