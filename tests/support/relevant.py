# SPDX-License-Identifier: Apache-2.0
"""`Alternatives.relevant` against brute force."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator, Sequence

from hloenv.errors import PassError
from hloenv.fuzz.invariants import Report, parse
from hloenv.fuzz.matrix import load
from hloenv.rewrite.alternatives import Alternatives, capture

_MAX_COMBINATIONS = 600


def check(source: str, passes: Sequence[str]) -> Iterator[Report]:
    """Compares `relevant` with brute force over all decision vectors of small captures.

    A decision is relevant, given some of the other decisions, if it changes the module
    in some completion.
    """
    module = load(source)
    for each in passes:
        try:
            alternatives = capture(module, parse(each))
        except PassError as error:
            yield Report(each, 0, skipped=(str(error),))
            continue
        num_choices = [int(n) for n in alternatives.num_choices]
        if not num_choices or math.prod(num_choices) > _MAX_COMBINATIONS:
            yield Report(
                each, len(num_choices), skipped=("too few or too many alternatives",)
            )
            continue
        yield Report(
            each,
            len(num_choices),
            tuple(_relevant_by_force(alternatives, num_choices)),
            num_checks=1,
        )


def _relevant_by_force(
    alternatives: Alternatives, num_choices: list[int]
) -> Iterator[str]:
    prints = {
        decisions: alternatives.apply(decisions).fingerprint()
        for decisions in itertools.product(*map(range, num_choices))
    }
    matters = {
        decisions: [
            any(
                prints[(*decisions[:i], other, *decisions[i + 1 :])] != fingerprint
                for other in range(count)
            )
            for i, count in enumerate(num_choices)
        ]
        for decisions, fingerprint in prints.items()
    }
    for decisions, needed in matters.items():
        said = alternatives.relevant(decisions).tolist()
        for i, (need, say) in enumerate(zip(needed, said, strict=True)):
            if need and not say:
                yield f"relevant: {i} matters at {list(decisions)}"
    rng = random.Random(0)
    for _ in range(50):
        partial = [rng.choice([-1, rng.randrange(n)]) for n in num_choices]
        said = alternatives.relevant(partial).tolist()
        for decisions, needed in matters.items():
            if any(p not in (-1, d) for p, d in zip(partial, decisions, strict=True)):
                continue
            for i, (need, say) in enumerate(zip(needed, said, strict=True)):
                if need and not say:
                    yield f"relevant: {i} matters at {partial}"
