# SPDX-License-Identifier: Apache-2.0
"""XLA's own decisions, random shares of them, and mixtures of policies by pass."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from .._typing import BoolArray, Int64Array
from ..hlo.passes import describe_pass, excluded_passes, list_passes
from ..rewrite.alternatives import as_decisions
from ..rewrite.policy import Policy, xla_pass
from .base import PolicySpecError, get_policy, register_policy
from .greedy import Greedy, choices_that

if TYPE_CHECKING:
    from ..rewrite.alternatives import Alternatives


class XlaDefault:
    """Decides exactly as XLA's own pass, also if candidate passes were captured.

    If several passes of XLA were captured, the first counts. Keeps every original if
    only candidate passes were captured.
    """

    def __call__(self, alternatives: Alternatives, /) -> Int64Array:
        """[A] choices."""
        name = xla_pass(alternatives)
        return alternatives.decisions_for(name) if name else alternatives.reject_all()


class Share:
    """Takes each rewrite of XLA's own pass with a given probability.

    Args:
        probability: from 0 (keeps every original) to 1 (`XlaDefault`).
        seed: determines the decisions of all calls, in order.
    """

    def __init__(self, probability: float, seed: int = 0) -> None:
        self._probability = probability
        self._rng = np.random.default_rng(seed)

    def __call__(self, alternatives: Alternatives, /) -> Int64Array:
        """[A] choices."""
        decisions = XlaDefault()(alternatives)
        is_left = self._rng.random(len(decisions)) >= self._probability
        decisions[is_left] = 0
        return decisions


class Mixture:
    """Applies a separate policy to the choices of each pass.

    An alternative takes the choice of the first pass in `by_pass` whose policy accepts
    a choice that the pass proposes, and keeps its original otherwise. Greedy policies
    see only the choices of their pass.

    Args:
        by_pass: from the name of a pass to the policy for its choices. Passes that were
            not captured are ignored.
    """

    def __init__(self, by_pass: Mapping[str, Policy]) -> None:
        self._by_pass = dict(by_pass)

    def __call__(self, alternatives: Alternatives, /) -> Int64Array:
        """[A] choices.

        Raises:
            UnknownPassError: a name is neither a known nor a captured pass.
        """
        decisions = alternatives.reject_all()
        first = np.cumsum(alternatives.num_choices) - alternatives.num_choices
        for name, policy in self._by_pass.items():
            if name not in alternatives.pass_names:
                _check_pass(name)
                continue
            allowed = _choices_of(alternatives, name)
            if isinstance(policy, Greedy):
                wanted = policy.decide(alternatives, allowed)
            else:
                wanted = as_decisions(policy(alternatives))
            if len(decisions):
                # -1 leaves an alternative to XLA, and 0 to the other passes.
                is_taken = (decisions == 0) & (wanted > 0)
                is_taken &= allowed[first + np.maximum(wanted, 0)]
                decisions[is_taken] = wanted[is_taken]
        return decisions


def _choices_of(alternatives: Alternatives, name: str) -> BoolArray:
    return choices_that(alternatives, lambda choice: name in choice.passes)


def _check_pass(name: str) -> None:
    if name not in excluded_passes() and name not in list_passes():
        describe_pass(name)  # raises, with a suggestion


def _make_share(spec: str, seed: int) -> Share:
    try:
        probability = float(spec)
    except ValueError:
        probability = -1.0
    if not 0 <= probability <= 1:
        raise PolicySpecError(
            f"share:{spec} must be share:PROBABILITY, from 0 to 1, such as share:0.5"
        )
    return Share(probability, seed)


def _make_mixture(spec: str, seed: int) -> Mixture:
    by_pass: dict[str, Policy] = {}
    for part in spec.split(","):
        name, equals, policy = (each.strip() for each in part.partition("="))
        if not (name and equals and policy):
            raise PolicySpecError(
                f"{part!r} in mix:{spec} must be PASS=POLICY, such as "
                "mix:fusion=fewest-ops,general-fusion=fuse-by-bytes"
            )
        if name in by_pass:
            raise PolicySpecError(
                f"mix:{spec} has two policies for pass {name!r}; give one"
            )
        by_pass[name] = get_policy(policy, seed=seed)
    return Mixture(by_pass)


register_policy(
    "xla",
    "the decisions of XLA's own pass, if candidate passes are captured with it",
    lambda _: XlaDefault(),
)


register_policy(
    "share:PROBABILITY",
    "accept each rewrite of XLA's own pass with this probability",
    _make_share,
    is_random=True,
)


register_policy(
    "mix:PASS=POLICY,...",
    "one policy for the choices of each pass; the first named has priority",
    _make_mixture,
    is_random=True,
)
