# SPDX-License-Identifier: Apache-2.0
"""Optuna's samplers as searches."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .._optional import needed_by
from .._typing import Int64Array
from ..errors import ArgumentError
from ..rewrite.game import Game, Prefix
from .base import Proposals, Search, register_search
from .initial import starting_points
from .neighborhood import vary
from .scores import GainScore

# Short names.
_SAMPLERS = {
    "tpe": "TPESampler",
    "random": "RandomSampler",
    "cmaes": "CmaEsSampler",
    "gp": "GPSampler",
    "nsgaii": "NSGAIISampler",
    "nsgaiii": "NSGAIIISampler",
    "qmc": "QMCSampler",
}
# Samplers without categorical parameters.
_NUMERIC = frozenset({"CmaEsSampler", "QMCSampler"})


class OptunaSearch(Search):
    """Optuna's samplers on the alternatives with the highest gain scores.

    These alternatives of each decision point are the parameters of the study; the
    others keep the decisions of the fastest initial point.

    Args:
        game: the game to decide.
        seed: of the sampler.
        spec: the sampler: "tpe", "cmaes", "random", "gp", "qmc", "nsgaii", or the name
            of any class in `optuna.samplers`.
        size: number of parameters, at all decision points together.
    """

    # Samplers are slower than the other searches.
    max_repeats = 30

    def __init__(
        self, game: Game, *, seed: int = 0, spec: str = "tpe", size: int = 64
    ) -> None:
        self._size = size
        self._sampler_name = _SAMPLERS.get(spec, spec)
        optuna = _import_optuna()
        if not hasattr(optuna.samplers, self._sampler_name):
            raise ArgumentError(
                f"Optuna has no sampler {spec!r}; use one of {', '.join(_SAMPLERS)}, "
                "or the name of a class in optuna.samplers"
            )
        super().__init__(game, seed=seed)

    def _proposals(self) -> Proposals:
        optuna = _import_optuna()
        starts = starting_points(self.game)
        times = []
        for start in starts:
            times.append((yield start))
        best = starts[int(np.argmin(times))]
        # Where XLA is to decide, that is one more choice.
        self._has_undecided = [bool((each < 0).any()) for each in starts[0]]
        parameters = self._parameters(best)
        if not parameters:
            return
        study = optuna.create_study(sampler=self._sampler(optuna))
        for start, seconds in zip(starts, times, strict=True):
            if math.isfinite(seconds):
                study.add_trial(self._known_trial(optuna, parameters, start, seconds))
        while True:
            trial = study.ask(self._space(optuna, parameters))
            values = {key: int(trial.params[_name(key)]) for key in parameters}
            seconds = yield self._decided(best, values, parameters)
            if math.isfinite(seconds):
                study.tell(trial, seconds)
            else:
                study.tell(trial, state=optuna.trial.TrialState.FAIL)

    def _parameters(self, best: Prefix) -> dict[tuple[int, int], int]:
        """Number of choices by (decision point, alternative), with that of XLA."""
        gain_score = GainScore(self.game)
        per_point = max(1, self._size // len(self.game.stops))
        parameters = {}
        for stop in range(len(best)):
            alternatives = self.game.alternatives(best[:stop])
            weights = gain_score.weights(alternatives)
            for index in np.argsort(-weights, kind="stable")[:per_point].tolist():
                choices = int(alternatives.num_choices[index])
                parameters[stop, index] = choices + self._has_undecided[stop]
        return parameters

    def _sampler(self, optuna: Any) -> Any:
        import warnings

        kind = getattr(optuna.samplers, self._sampler_name)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            return kind(seed=self.seed)

    def _space(self, optuna: Any, parameters: dict[tuple[int, int], int]) -> Any:
        distributions = optuna.distributions
        if self._sampler_name in _NUMERIC:
            return {
                _name(key): distributions.IntDistribution(0, count - 1)
                for key, count in parameters.items()
            }
        return {
            _name(key): distributions.CategoricalDistribution(range(count))
            for key, count in parameters.items()
        }

    def _known_trial(
        self,
        optuna: Any,
        parameters: dict[tuple[int, int], int],
        start: Prefix,
        seconds: float,
    ) -> Any:
        """A trial for an initial point; unknown parameters get choice 0."""
        values = {}
        for (stop, index), count in parameters.items():
            choice = int(start[stop][index]) if index < len(start[stop]) else 0
            if choice < 0:
                choice = count - 1
            values[_name((stop, index))] = choice if choice < count else 0
        return optuna.trial.create_trial(
            params=values,
            distributions=self._space(optuna, parameters),
            value=seconds,
        )

    def _decided(
        self,
        best: Prefix,
        values: dict[tuple[int, int], int],
        parameters: dict[tuple[int, int], int],
    ) -> Prefix:
        wanted = [each.copy() for each in best]
        for (stop, index), choice in values.items():
            is_left = self._has_undecided[stop] and (
                choice == parameters[stop, index] - 1
            )
            wanted[stop][index] = -1 if is_left else choice

        def change(prefix: Prefix, _: Int64Array) -> Int64Array:
            stop = len(prefix)
            return self.game.translate(best[:stop], wanted[stop], prefix)

        return vary(self.game, best, change)


def _name(key: tuple[int, int]) -> str:
    return f"{key[0]}.{key[1]}"


def _import_optuna() -> Any:
    with needed_by("the search 'optuna:...'", "Optuna", "tune"):
        import optuna
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    return optuna


register_search(
    "optuna:SAMPLER",
    "Optuna's samplers (tpe, cmaes, ...) on the alternatives with the highest gain "
    "score",
    OptunaSearch,
)
