# SPDX-License-Identifier: Apache-2.0
"""The methods of a benchmark: policies and searches in a space, and baselines."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from .._plugins import digest_of
from ..errors import ArgumentError
from ..policies import describe_policy, get_policy
from ..search.spaces import Space, get_space
from .baselines import BASELINES, get_baseline

_SEARCH = "search:"
BEST_RULE = "best-rule"


@dataclass(frozen=True)
class Method:
    """A policy or a search in a space, or a baseline without decisions.

    Attributes:
        space: the decision points.
        algorithm: name of a policy, "search:" and the name of a search, the name of a
            baseline, or "best-rule": the fixed rule and variant with the lowest
            estimate.
    """

    space: Space
    algorithm: str

    @property
    def name(self) -> str:
        """As on the command line: "SPACE/POLICY" or "SPACE/search:NAME"."""
        return f"{self.space.name}/{self.algorithm}"

    @property
    def is_search(self) -> bool:
        """Whether it is a search."""
        return self.algorithm.startswith(_SEARCH)

    @property
    def search(self) -> str:
        """The search's name."""
        return self.algorithm.removeprefix(_SEARCH)

    @property
    def is_random(self) -> bool:
        """Whether it depends on the seed."""
        if self.picks_rule or self.is_baseline:
            return False
        return self.is_search or describe_policy(self.algorithm).is_random

    @property
    def picks_rule(self) -> bool:
        """Whether it selects a fixed rule by estimate."""
        return self.algorithm == BEST_RULE

    @property
    def is_baseline(self) -> bool:
        """Whether it is another compiler or other flags, without decisions."""
        return self.space is NO_DECISIONS

    @property
    def definition(self) -> str:
        """What its rows depend on in addition to the code and the settings."""
        if self.is_baseline:
            return get_baseline(self.algorithm).definition
        own = digest_of(self._origin) or _digest_of_file(self.algorithm)
        return f"{self.algorithm}{own and f' ({own})'} in {self.space.definition}"

    @property
    def _origin(self) -> str:
        if self.picks_rule:
            return ""
        if self.is_search:
            from ..search import describe_search

            return describe_search(self.search).origin
        return describe_policy(self.algorithm).origin


def _digest_of_file(algorithm: str) -> str:
    """A hash of the file that a name ends with, such as "gnn:CHECKPOINT"; else ""."""
    _, colon, rest = algorithm.partition(":")
    if not colon:
        return ""
    if not Path(rest).is_file():
        return _digest_of_file(rest)
    return hashlib.sha256(Path(rest).read_bytes()).hexdigest()[:12]


# The space of a baseline, which has no decisions.
NO_DECISIONS = Space("baseline", "no decisions: other compilers, and other XLA flags")

# Part of every leaderboard.
BASELINE_METHODS = tuple(f"{NO_DECISIONS.name}/{name}" for name in BASELINES)

# The fixed heuristics of the leaderboard, XLA's own included.
HEURISTICS = (
    "algsimp/keep-original",
    "algsimp/accept-all",
    "algsimp/fewest-ops",
    "algsimp/keep-convolutions",
    "live-algsimp/keep-original",
    "live-algsimp/fewest-ops",
    "live-algsimp/random",
    "simplify/accept-all",
    "simplify/fewest-ops",
    "simplify/least-bytes",
    "reorder/fewest-ops",
    "reorder/least-bytes",
    "dots/accept-all",
    "small-dots/accept-all",
    "thunk-order/accept-all",
    "runtime/accept-all",
    "layout/greedy-roofline",
    "live-fusion/keep-original",
    "live-fusion/least-bytes",
    "live-fusion/random",
    "fusion/xla",
    "fusion/first",
    "fusion/random",
    "fusion/fewest-ops",
    "fusion/fuse-all-legal",
    "fusion/fuse-by-bytes",
    "fusion/greedy-kernels",
    "more-fusion/fewest-ops",
    "more-fusion/fuse-by-bytes",
    "more-fusion/greedy-roofline",
    "more-fusion/greedy-kernels",
    "careful/best-rule",
)
SEARCHES = (
    "fusion/search:hill-climb",
    "all/search:hill-climb",
    "early-and-fusion/search:hill-climb",
    "joint/search:hill-climb",
)

# In addition, for modules that run on several threads.
THREADED_HEURISTICS = ("split/keep-original",)
THREADED_SEARCHES = ("joint-split/search:hill-climb",)


def as_method(name: str) -> Method:
    """Reads "SPACE/POLICY", "SPACE/search:NAME" or "baseline/NAME".

    Raises:
        ArgumentError: it has another form.
        UnknownSpaceError, UnknownPolicyError, UnknownSearchError: unknown name.
    """
    space, slash, algorithm = name.partition("/")
    if not slash or not algorithm:
        raise ArgumentError(
            "a method must be SPACE/POLICY, SPACE/search:NAME or baseline/NAME, such "
            f"as {HEURISTICS[0]!r} or {SEARCHES[0]!r}, got {name!r}"
        )
    if space == NO_DECISIONS.name:
        get_baseline(algorithm)
        return Method(NO_DECISIONS, algorithm)
    method = Method(get_space(space), algorithm)
    needs_points = method.is_search or method.picks_rule
    if needs_points and not method.space.stops:
        raise ArgumentError(
            f"space {space!r} intercepts XLA's pipeline, where a search cannot "
            "restart; search in a space with decision points, such as 'fusion' or 'all'"
        )
    if method.is_search:
        from ..search import describe_search

        describe_search(method.search)
    elif not method.picks_rule:
        get_policy(algorithm)
    return method


def as_methods(names: Sequence[str]) -> tuple[Method, ...]:
    """The methods of these names, each once."""
    return tuple(as_method(name) for name in dict.fromkeys(names))
