# SPDX-License-Identifier: Apache-2.0
"""Single-decision ablation of a module, and its time by kind of kernel.

Each decision that differs from XLA's own is estimated alone with the kernel cache; the
ones that reduce the time are then combined greedily. The result is not an upper bound:
decisions that are slower alone may be faster together.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from .._typing import Int64Array
from ..cost.kernel_cache import KernelCache
from ..errors import HloEnvError
from ..hlo.module import HloModule
from ..rewrite.game import Game
from ..search.spaces import Space
from .joint import make_variants

# Kinds of kernels that call a library, by opcode; decisions do not change their code.
_LIBRARIES = {
    "dot": "dot",
    "convolution": "convolution",
    "custom-call": "library call",
    "fft": "library call",
    "sort": "sort",
    "topk": "sort",
}
_GENERATED = "generated code"


@dataclass
class Ablation:
    """Estimated times of single decisions on one module, in seconds.

    Attributes:
        default_s: with XLA's own decisions.
        shares: share of the time by kind of kernel; the sum is 1.
        num_singles: distinct modules that differ from XLA's by one decision.
        num_better: number of these that are faster.
        single_s: the fastest of them.
        together_s: the faster decisions combined, in order, each kept if it helps.
        variant_s: the fastest other pre-fusion variant, with XLA's own decisions.
        decided: the modules of `single_s`, `together_s` and `variant_s`, to measure.
    """

    default_s: float
    shares: dict[str, float] = field(default_factory=dict)
    num_singles: int = 0
    num_better: int = 0
    single_s: float = math.inf
    together_s: float = math.inf
    variant_s: float = math.inf
    decided: list[HloModule] = field(default_factory=list)


def ablate(module: HloModule, space: Space, cache: KernelCache) -> Ablation:
    """Estimates every single decision of a space with one decision point.

    Raises:
        HloEnvError: the module itself cannot be decided or timed.
    """
    own, *others = make_variants(module, space)
    game = own.game
    default = game.default()
    default_s = _seconds(game, default, cache)
    if math.isinf(default_s):
        raise HloEnvError("XLA's own decisions cannot be estimated")
    ablation = Ablation(default_s, _shares(game.play((default,)), cache))
    gains: list[tuple[float, int, int]] = []
    seen = {game.fingerprint((default,))}
    for index, choice, decisions in _singles(game, default):
        try:
            fingerprint = game.fingerprint((decisions,))
        except HloEnvError:
            continue
        if fingerprint in seen:
            continue
        seen.add(fingerprint)
        ablation.num_singles += 1
        seconds = _seconds(game, decisions, cache)
        ablation.single_s = min(ablation.single_s, seconds)
        if seconds < default_s:
            gains.append((seconds, index, choice))
    ablation.num_better = len(gains)
    gains.sort()
    best, ablation.together_s = default.copy(), default_s
    for _, index, choice in gains:
        candidate = best.copy()
        candidate[index] = choice
        seconds = _seconds(game, candidate, cache)
        if seconds < ablation.together_s:
            best, ablation.together_s = candidate, seconds
    if gains:
        _, index, choice = gains[0]
        single = default.copy()
        single[index] = choice
        ablation.decided += [game.play((single,)), game.play((best,))]
    games = [each.game for each in others]
    times = [_seconds(each, each.default(), cache) for each in games]
    ablation.variant_s = min(times, default=math.inf)
    if math.isfinite(ablation.variant_s):
        variant = games[times.index(ablation.variant_s)]
        ablation.decided.append(variant.play(variant.complete()))
    return ablation


def _singles(game: Game, default: Int64Array) -> Iterator[tuple[int, int, Int64Array]]:
    alternatives = game.alternatives()
    for index, count in enumerate(alternatives.num_choices.tolist()):
        for choice in range(count):
            if choice != default[index]:
                decisions = default.copy()
                decisions[index] = choice
                yield index, choice, decisions


def _seconds(game: Game, decisions: Int64Array, cache: KernelCache) -> float:
    """The estimate; infinite if there is none."""
    try:
        estimate = cache.estimate(game.play((decisions,)))
    except HloEnvError:
        return math.inf
    return estimate.seconds if estimate.is_ok else math.inf


def _shares(module: HloModule, cache: KernelCache) -> dict[str, float]:
    times: Counter[str] = Counter()
    for row in cache.kernels(module):
        kind = _LIBRARIES.get(row["opcode"], _GENERATED)
        times[kind] += row["runs"] * row["seconds"]
    total = times.total() or 1.0
    return {kind: seconds / total for kind, seconds in times.most_common()}
