# SPDX-License-Identifier: Apache-2.0
"""The laws on one module for many passes: what child processes run.

Arguments and results are plain values. Passes are given as names; several joined by
"," are captured jointly.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator, Sequence
from pathlib import Path

from .. import errors
from ..module import HloModule
from ..passes import list_passes, run_passes
from ..rewrite import Alternatives, capture
from .generate import random_module
from .laws import Report, StructureChecker, parse
from .values import Expected, check_capture, is_stateful

# How a module is prepared before its laws are checked. JAX hides most work in calls.
VARIANTS: dict[str, tuple[str, ...]] = {
    "raw": (),
    "inlined": ("call-inliner", "dce"),
    "flattened": ("flatten-call-graph",),
}


def all_passes() -> list[str]:
    """Names of every registered pass."""
    return list(list_passes())


def load(source: str, variant: str = "raw") -> HloModule:
    """A module from a path, from text, or from "seed:N", prepared as `variant`.

    "seed:N:SIZE" gives the generator another size, "wide:N:SIZE" rare opcodes too.
    """
    if source.startswith(("seed:", "wide:")):
        kind, *numbers = source.split(":")
        text = random_module(*map(int, numbers), is_wide=kind == "wide")
        module = HloModule.from_text(text)
    elif "\n" in source:
        module = HloModule.from_text(source)
    else:
        module = HloModule.from_text(Path(source).read_text())
    for name in VARIANTS[variant]:
        module = run_passes(module, name).module
    return module


def check_structure(
    source: str, variant: str, passes: Sequence[str], *, seed: int = 0
) -> Iterator[Report]:
    """Laws 1, 2, 3, 6 and 7, and the verifier's part of law 4, for each of `passes`.

    A pass that cannot run on this module is reported as skipped, with its error.
    """
    try:
        module = load(source, variant)
    except errors.PassError as error:
        for each in passes:
            yield Report(each, 0, (), skipped=str(error))
        return
    checker = StructureChecker(module, seed)
    for each in passes:
        yield checker.check(parse(each))


def check_values(
    source: str,
    variant: str,
    passes: Sequence[str],
    *,
    seed: int = 0,
    num_decisions: int = 3,
) -> Iterator[Report]:
    """Laws 4 and 5 for each of `passes`, in XLA's evaluator.

    Random decisions, and each pass's own, give the outputs of the original; every
    choice is as its original.
    """
    try:
        module = load(source, variant)
    except errors.PassError as error:
        yield Report("", 0, (), skipped=str(error))
        return
    if is_stateful(module):
        yield Report("", 0, (), skipped="stateful: compared by structure only")
        return
    try:
        expected = Expected(module, seed)
    except errors.ExecuteError as error:
        yield Report("", 0, (), skipped=str(error))
        return
    rng = random.Random(seed)
    for each in passes:
        yield check_capture(
            module,
            parse(each),
            expected,
            rng=rng,
            num_decisions=num_decisions,
            seed=seed,
        )


def check_relevant_exactly(
    source: str, passes: Sequence[str], *, max_combinations: int = 600
) -> Iterator[Report]:
    """`relevant` against brute force over every decision vector of small captures.

    A decision that changes the module, given the others, has to be relevant; given
    only some of the others, when it changes the module in some completion.
    """
    module = load(source)
    for each in passes:
        try:
            alternatives = capture(module, parse(each))
        except errors.PassError as error:
            yield Report(each, 0, (), skipped=str(error))
            continue
        num_choices = [int(n) for n in alternatives.num_choices]
        if not num_choices or math.prod(num_choices) > max_combinations:
            yield Report(each, len(num_choices), (), skipped="too few or too many")
            continue
        yield Report(
            each, len(num_choices), tuple(_relevant_by_force(alternatives, num_choices))
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
