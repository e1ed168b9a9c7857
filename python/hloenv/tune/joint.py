# SPDX-License-Identifier: Apache-2.0
"""What proposes configurations when all stages are tuned jointly, and bases of one."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ..cost.registry import open_estimator
from .arms import Arm, GraphArm, JointArm, NearArm, StageArm
from .options import TuneOptions
from .program import Program
from .space import Configuration, Space

if TYPE_CHECKING:
    from ..measurement.store import Store

# Of estimates before a proposal of the search over rewrites, as a share of the budget.
_GRAPH_SHARE = 0.04
# Where most is gained (docs/results/tune.md, settings.md); the wheel's compiler takes
# several times as long as jaxlib's.
_FIRST = "forms", "codegen", "fusion", "engine"


def bases(space: Space, stage: str) -> list[Configuration]:
    """Where a stage is tuned alone: with each engine that has decisions of it."""
    plain = Configuration()
    found = [plain]
    engines = space.of_stage("engine")
    if stage != "engine" and engines:
        for choice in engines[0].choices[1:]:
            base = plain.with_choice("engine", choice.name)
            if any(each.stage == stage for each in space.active(base)):
                found.append(base)
    return found


def _ordered(space: Space) -> list[str]:
    """The stages with decisions, those first that are worth most for their time."""
    used = [each for each in space.stages if space.of_stage(each)]
    first = [each for each in _FIRST if each in used]
    return first + [each for each in used if each not in first]


def joint_arms(
    program: Program,
    space: Space,
    options: TuneOptions,
    *,
    store: Store | None,
    near: Sequence[Configuration],
    stack: contextlib.ExitStack,
    say: Callable[[str], None],
) -> list[Arm]:
    """The arms of the bandit.

    Args:
        program: what is tuned.
        space: of its decisions.
        options: of the tuning.
        store: of the times of kernels; None for none.
        near: what was best for near modules.
        stack: closes what the arms open.
        say: takes messages.
    """
    arms: list[Arm] = [NearArm(space, near)] if near else []
    arms += [StageArm(space, each, is_joint=True) for each in _ordered(space)]
    try:
        arms.append(JointArm(space, seed=options.seed))
    except ImportError as error:
        say(f"{error}; the stages are tuned without it")
    has_wheel = any(
        choice.engines == ("wheel", "wheel")
        for each in space.of_stage("engine")
        for choice in each.choices
    )
    if options.search and has_wheel and len(space.stages) > 1:
        estimator = stack.enter_context(
            open_estimator(threads=options.cores, store=store)
        )
        arms.append(
            GraphArm(
                program.module,
                estimator,
                search=options.search,
                seed=options.seed,
                seconds=_GRAPH_SHARE * options.seconds,
            )
        )
    return arms
