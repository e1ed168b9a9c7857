# SPDX-License-Identifier: Apache-2.0
"""What proposes the next configuration to measure: one arm for each way to look.

An arm has `ask`, which proposes a change of the best configuration so far, and `tell`,
which gets the result of any measured configuration.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from .._optional import needed_by
from ..cost.base import estimate_of
from ..errors import ArgumentTypeError, HloEnvError
from ..rewrite.game import Game
from ..search import get_search
from .build import graph_of, graph_points
from .space import Configuration, Space

if TYPE_CHECKING:
    from ..cost.base import Estimator
    from ..hlo.module import HloModule

# Proposals in a row that are known already, after which an arm ends.
_MAX_REPEATS = 200
# Of these, how many the sampler makes; a converged one repeats itself.
_MAX_SAMPLED = 20
_JOINT_SAMPLER_STARTUP = 8


# In the order in which they have gained most (docs/leaderboard/jit.md).
_RULES = (
    {"forms": "known"},
    {"calls": "onednn", "forms": "known"},
    {"loops": "single-kernel"},
    {"engine": "wheel", "forms": "known", "small-dots": "smallest"}
    | {"small-kernels": "low-overhead", "thunks": "sequential"},
    {"forms": "known", "loops": "single-kernel"},
    {"forms": "known", "vectors": "512"},
    {"calls": "onednn", "forms": "known", "vectors": "512"},
)


class Arm(Protocol):
    """A source of proposals.

    Attributes:
        name: of the arm: that of a stage, or "joint", "graph", "near".
    """

    name: str

    def ask(
        self, best: Configuration, is_known: Callable[[Configuration], bool]
    ) -> Configuration | None:
        """A configuration that is not known; None if the arm has no more.

        Args:
            best: the fastest so far.
            is_known: whether a configuration has been measured or proposed.
        """

    def tell(self, configuration: Configuration, log_speedup: float) -> None:
        """Takes the result of a configuration; -inf if it failed."""


class StageArm:
    """Changes the decisions of one stage: first one at a time, then two."""

    def __init__(self, space: Space, stage: str, *, is_joint: bool = False) -> None:
        """Proposes nothing yet.

        Args:
            space: of the decisions.
            stage: whose decisions to change.
            is_joint: whether a choice that makes decisions of other stages possible,
                such as an engine, is also tried with each of their choices: alone it
                may lose what it gains with one of them.
        """
        self.name = stage
        self._space = space
        self._is_joint = is_joint

    def ask(
        self, best: Configuration, is_known: Callable[[Configuration], bool]
    ) -> Configuration | None:
        """As in `Arm`."""
        for proposal in self._around(best):
            canonical = self._space.canonical(proposal)
            if not is_known(canonical):
                return canonical
        return None

    def _around(self, best: Configuration) -> Iterator[Configuration]:
        decisions = [
            each for each in self._space.active(best) if each.stage == self.name
        ]
        single = [
            (decision.name, choice.name)
            for decision in decisions
            for choice in decision.choices
            if choice.name != (best.of(decision.name) or decision.choices[0].name)
        ]
        for name, choice in single:
            yield best.with_choice(name, choice)
        if self._is_joint:
            for name, choice in single:
                yield from self._opened(best, best.with_choice(name, choice))
        for (one, first), (two, second) in itertools.combinations(single, 2):
            if one != two:
                yield best.with_choice(one, first).with_choice(two, second)

    def _opened(
        self, before: Configuration, changed: Configuration
    ) -> Iterator[Configuration]:
        """The changed one with each choice of decisions that only it has."""
        possible = {each.name for each in self._space.active(before)}
        for decision in self._space.active(changed):
            if decision.name not in possible:
                for choice in decision.choices[1:]:
                    yield changed.with_choice(decision.name, choice.name)

    def tell(self, configuration: Configuration, log_speedup: float) -> None:
        """Nothing: what is measured is known to the driver."""


class NearArm:
    """Configurations that were best for other modules, the nearest first.

    After each comes the part of it that is decided for single kernels: the rest was
    chosen for a whole module, and may be wrong for another.
    """

    name = "near"

    def __init__(self, space: Space, found: Iterable[Configuration]) -> None:
        self._waiting = [
            each
            for one in map(space.without_other_rules, found)
            if not one.graph and space.has(one)
            for each in (space.canonical(one), space.in_any_module(one))
        ]

    def ask(
        self, best: Configuration, is_known: Callable[[Configuration], bool]
    ) -> Configuration | None:
        """As in `Arm`."""
        del best  # they are complete
        while self._waiting:
            found = self._waiting.pop(0)
            if not is_known(found):
                return found
        return None

    def tell(self, configuration: Configuration, log_speedup: float) -> None:
        """Nothing: these are from elsewhere."""


class RulesArm(NearArm):
    """What the fixed rules of `hloenv.jit` compare, as far as the space has it."""

    name = "rules"

    def __init__(self, space: Space, *, library: str = "") -> None:
        """Proposes nothing yet.

        Args:
            space: of the decisions.
            library: the choice of the decision "library" that is estimated to be
                faster; "" for XLA's own.
        """
        first = [{"forms": "known", "library": library}] if library else []
        found = (
            Configuration(tuple(sorted(each.items()))) for each in (*first, *_RULES)
        )
        self._waiting = [space.canonical(each) for each in found if space.has(each)]
        # What `hloenv.jit` would take.
        self.first = self._waiting[0] if self._waiting else None


class JointArm:
    """Optuna's tree-structured Parzen estimator over all decisions at once."""

    name = "joint"

    def __init__(self, space: Space, *, seed: int) -> None:
        """Starts a study.

        Raises:
            ImportError: Optuna is not installed.
        """
        with needed_by("tuning jointly", "Optuna", "tune"):
            import optuna
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self._optuna: Any = optuna
        self._space = space
        self._rng = np.random.default_rng(seed)
        sampler = optuna.samplers.TPESampler(
            seed=seed, n_startup_trials=_JOINT_SAMPLER_STARTUP
        )
        self._study = optuna.create_study(sampler=sampler, direction="maximize")
        self._distributions: dict[str, Any] = {
            each.name: optuna.distributions.CategoricalDistribution(
                [choice.name for choice in each.choices]
            )
            for each in space.decisions
        }

    def ask(
        self, best: Configuration, is_known: Callable[[Configuration], bool]
    ) -> Configuration | None:
        """As in `Arm`."""
        del best  # the study has all results
        if not self._distributions:
            return None
        for attempt in range(_MAX_REPEATS):
            sample = self._sampled if attempt < _MAX_SAMPLED else self._drawn
            found = self._space.canonical(
                Configuration(tuple(sorted(sample().items())))
            )
            if not is_known(found):
                return found
        return None

    def _sampled(self) -> dict[str, str]:
        trial = self._study.ask(self._distributions)
        # A trial without a result would bias the sampler.
        self._study.tell(trial, state=self._optuna.trial.TrialState.FAIL)
        return dict(trial.params)

    def _drawn(self) -> dict[str, str]:
        return {
            each.name: str(self._rng.choice([one.name for one in each.choices]))
            for each in self._space.decisions
        }

    def tell(self, configuration: Configuration, log_speedup: float) -> None:
        """Adds the result to the study."""
        if configuration.graph or not self._space.has(configuration):
            return
        names = {each.name: each.choices[0].name for each in self._space.decisions}
        names |= dict(configuration.choices)
        self._study.add_trial(
            self._optuna.trial.create_trial(
                params=names,
                distributions=self._distributions,
                value=log_speedup if math.isfinite(log_speedup) else -3.0,
            )
        )


class GraphArm:
    """One of hloenv's searches over single rewrites, by estimates, on the wheel's XLA.

    Kernels are timed once each, in whichever module they occur, so that most estimates
    cost nothing; each proposal is the best estimate that has not been measured.
    """

    name = "graph"

    def __init__(
        self,
        module: HloModule,
        estimator: Estimator,
        *,
        search: str,
        seed: int,
        seconds: float,
    ) -> None:
        """Makes no estimate before the first `ask`.

        Args:
            module: from before XLA's passes.
            estimator: estimates run times.
            search: as in `hloenv.search.get_search`.
            seed: of the search.
            seconds: of estimates before each proposal.
        """
        self._game = Game(module, graph_points())
        self._search = get_search(search, self._game, seed=seed)
        self._estimator = estimator
        self._seconds = seconds
        self._waiting: list[tuple[float, Configuration]] = []
        self._seen: set[str] = set()

    def ask(
        self, best: Configuration, is_known: Callable[[Configuration], bool]
    ) -> Configuration | None:
        """As in `Arm`."""
        del best  # the search has its own
        end = time.monotonic() + self._seconds
        try:
            while time.monotonic() < end and self._estimate_one():
                pass
        except HloEnvError:  # the wheel's XLA does not take the module
            pass
        self._waiting.sort(key=lambda each: each[0])
        while self._waiting:
            _, found = self._waiting.pop(0)
            if not is_known(found):
                return found
        return None

    def _estimate_one(self) -> bool:
        prefix = self._search.ask()
        if prefix is None:
            return False
        try:
            seconds = estimate_of(self._estimator, self._game.play(prefix)).seconds
        except ArgumentTypeError:  # of the estimator itself
            raise
        except HloEnvError:
            seconds = math.nan
        self._search.tell(prefix, seconds)
        if math.isnan(seconds):
            return True
        fingerprint = self._game.fingerprint(prefix)
        if fingerprint not in self._seen:
            self._seen.add(fingerprint)
            found = Configuration((("engine", "wheel"),), graph_of(prefix))
            self._waiting.append((seconds, found))
        return True

    def tell(self, configuration: Configuration, log_speedup: float) -> None:
        """Nothing: the search learns from the estimates."""


class Bandit:
    """Chooses the arm for the next measurement: upper confidence bounds.

    The reward of a measurement is the gain over the best so far, as the logarithm of a
    ratio, relative to the largest gain of one measurement. Old rewards count less, so
    that an arm that runs dry is left, and one that was left is tried again; an arm
    whose measurements take longer than the mean is worth less.
    """

    def __init__(
        self, names: Sequence[str], *, discount: float = 0.95, width: float = 0.7
    ) -> None:
        """All arms are untried.

        Args:
            names: of the arms, in the order in which they are tried first.
            discount: of a reward, for each later one of any arm.
            width: of the confidence bounds.
        """
        self._names = list(names)
        self._discount = discount
        self._width = width
        self._count = dict.fromkeys(names, 0.0)
        self._sum = dict.fromkeys(names, 0.0)
        self._seconds: dict[str, list[float]] = {name: [] for name in names}
        self._largest = 0.0
        # Asked for the first time, and not yet rewarded.
        self._waiting: set[str] = set()

    def choose(self, names: Sequence[str]) -> str:
        """The arm to ask, of those that may have proposals.

        Args:
            names: of these; at least one.
        """
        untried = [each for each in self._names if self._count[each] == 0]
        for name in untried:
            if name in names and name not in self._waiting:
                self._waiting.add(name)
                return name
        tried = [each for each in names if each not in untried]
        if not tried:
            return names[0]
        total = math.log(1 + sum(self._count.values()))

        def bound(name: str) -> float:
            count = self._count[name]
            mean = self._sum[name] / count / (self._largest or 1.0)
            return (mean + self._width * math.sqrt(total / count)) / self._cost(name)

        return max(tried, key=bound)

    def passed(self, name: str) -> None:
        """Notes that an arm had no proposal: it may have one later."""
        self._waiting.discard(name)

    def _cost(self, name: str) -> float:
        """Seconds of a measurement of the arm, over the mean of all; bounded."""
        every = [each for some in self._seconds.values() for each in some]
        own = self._seconds[name]
        if not own or not every or np.mean(every) <= 0:
            return 1.0
        return float(np.clip(np.mean(own) / np.mean(every), 0.5, 2.0))

    def reward(self, name: str, gain: float, seconds: float) -> None:
        """Takes the result of an arm's proposal.

        Args:
            name: of the arm.
            gain: log of the new best speed-up over the best before; 0 if none.
            seconds: that the measurement took.
        """
        gain = max(gain, 0.0)
        self._waiting.discard(name)
        self._largest = max(self._largest, gain)
        for each in self._names:
            self._count[each] *= self._discount
            self._sum[each] *= self._discount
        self._count[name] += 1.0
        self._sum[name] += gain
        self._seconds[name].append(seconds)
