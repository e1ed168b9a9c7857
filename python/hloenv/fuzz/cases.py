# SPDX-License-Identifier: Apache-2.0
"""Random cases: a module, passes with random options, and decisions."""

from __future__ import annotations

import functools
import random
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..hlo.pass_info import OptionValue, PassOption
from ..hlo.passes import (
    Pass,
    Pipeline,
    describe_pass,
    list_passes,
)
from ..rewrite.alternatives import Alternatives
from ..rewrite.trace import Step
from .invariants import random_decisions

# Options that change values or effects by design. The structural invariants still hold.
_UNSAFE = {
    "algsimp": {
        "enable_fast_math",
        "enable_floats_are_real",
        "minmax_propagate_nan",
    },
    "dce": {"remove_cross_partition_collective_ops"},
    "general-simplify": {"unsafe"},
}
# Half of the draws come from these passes, which change most modules.
_BUSY = (
    *("algsimp", "cse", "call-inliner", "flatten-call-graph", "constant_folding"),
    *("dce", "fusion", "general-fusion", "general-layout", "general-simplify"),
    *("reassociate", "reshape-mover", "simplify-while-loops", "slice-sinker"),
    *("dot_decomposer", "transpose-folding", "logistic-expander", "copy-insertion"),
    *("while-loop-invariant-code-motion", "while-loop-constant-sinking", "map-inline"),
    *("tuple-simplifier", "float-normalization-bf16", "simplify-fp-conversions"),
    *("change-op-data-type", "reduce-decomposer", "merge-dots", "simplify-conditional"),
    *("tree_reduction_rewriter", "conditional-to-select", "comparison-expander"),
    *("convolution-forms", "dot-forms", "dot-lowering", "reduce-forms", "sort-forms"),
    *("math-forms", "onednn-calls", "loop-forms", "fusion-cuts"),
    *("single-kernel", "thunk-order"),
)
MAX_STEPS = 4


@dataclass(frozen=True)
class Case:
    """Specification of one episode.

    Attributes:
        source: "seed:N:SIZE" or another kind of random module, a path, or HLO text; see
            `matrix.load`.
        variant: of `matrix.VARIANTS`, or a pass of XLA's pipeline to stop before.
        seed: seed of inputs and all random draws.
        steps: the steps to take; None draws them.
        names: the passes to draw from; empty for all.
    """

    source: str
    variant: str = "raw"
    seed: str = "0"
    steps: tuple[Step, ...] | None = None
    names: tuple[str, ...] = ()


# Share of cases on real modules, in a campaign that has any.
REAL_SHARE = 0.35
_REAL_VARIANTS = (
    *("raw", "raw", "raw", "inlined", "inlined", "flattened"),
    *("simplification", "fusion"),
)


def random_case(
    seed: int,
    number: int,
    sources: Sequence[str],
    names: Sequence[str] = (),
    *,
    real_share: float = REAL_SHARE,
) -> Case:
    """Returns case `number` of a campaign; deterministic.

    Args:
        seed: of the campaign.
        number: from 0.
        sources: real modules.
        names: passes to draw from; empty for all.
        real_share: share of the cases that use one of `sources`.
    """
    key = f"{seed}:{number}"
    rng = random.Random(f"hloenv case {key}")
    if sources and rng.random() < real_share:
        source = rng.choice(sources)
        variant = rng.choice(_REAL_VARIANTS)
    else:
        kind = rng.choice(["seed", "wide", "seed", "wide", "grid"])
        sizes = [3, 5, 8, 12] if kind == "grid" else [4, 8, 16, 16, 32, 48]
        size = rng.choice(sizes)
        source = f"{kind}:{rng.randrange(2**40)}:{size}"
        variant = rng.choice(["raw", "raw", "raw", "inlined", "flattened"])
    return Case(source, variant, key, names=tuple(names))


def random_step(rng: random.Random, names: Sequence[str]) -> list[Pipeline]:
    """Draws pipelines to capture jointly."""
    count = rng.choices([1, 2, 3, 4, 5], weights=[4, 4, 3, 2, 1])[0]
    return [_pipeline(rng, names, number) for number in range(count)]


def _pipeline(rng: random.Random, names: Sequence[str], number: int) -> Pipeline:
    names = names or list_passes()
    if rng.random() < 0.5:
        names = [name for name in _BUSY if name in names] or names
    kind = rng.random()
    runnable = [name for name in names if not describe_pass(name).candidate]
    if kind < 0.7 or not runnable:
        step = _pass(rng, rng.choice(names))
        return Pipeline(f"{step.name}#{number}", [step])
    steps = [_pass(rng, rng.choice(runnable)) for _ in range(rng.randint(2, 4))]
    name = "+".join(step.name for step in steps)
    return Pipeline(f"{name}#{number}", steps, fixed_point=kind > 0.9)


def _pass(rng: random.Random, name: str) -> Pass:
    options: dict[str, OptionValue] = {}
    if rng.random() < 0.5:
        for option in describe_pass(name).options:
            if rng.random() < 0.3:
                options[option.name] = _value(rng, option)
    return Pass(name, **options)


def _value(rng: random.Random, option: PassOption) -> OptionValue:
    default = option.default
    if option.type == "bool":
        return rng.random() < 0.5
    if option.type == "int":
        least = option.minimum or 0
        values = [least, least + 1, least + 2, int(default), 2 * int(default)]
        return max(least, rng.choice(values))
    if option.type == "float":
        return rng.choice([0.0, 0.5, 1.0, 2.0, 100.0])
    return rng.choice(option.allowed) if option.allowed else default


@functools.cache
def is_unsafe(pipeline: Pipeline) -> bool:
    """Whether an option allows other values or effects."""
    for each in pipeline.passes:
        if isinstance(each, Pipeline):
            if is_unsafe(each):
                return True
            continue
        defaults = {o.name: o.default for o in describe_pass(each.name).options}
        changed = {key for key, value in each.options if value != defaults[key]}
        if changed & _UNSAFE.get(each.name, set()):
            return True
    return False


def draw_decisions(
    alternatives: Alternatives, rng: random.Random
) -> list[npt.NDArray[np.int64]]:
    """Draws a few decision vectors of different kinds; the first is the episode's."""
    vectors = [random_decisions(alternatives, rng) for _ in range(2)]
    few = random_decisions(alternatives, rng)
    few[[rng.random() < 0.8 for _ in few]] = 0
    vectors.append(few)
    if len(alternatives):
        one = alternatives.reject_all()
        position = rng.randrange(len(one))
        one[position] = rng.randrange(1, int(alternatives.num_choices[position]))
        vectors.append(one)
    rng.shuffle(vectors)
    return vectors
