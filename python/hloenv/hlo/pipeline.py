# SPDX-License-Identifier: Apache-2.0
"""XLA's own CPU pipeline: what it runs, and how to stop in it and go on.

XLA rewrites a module in a fixed order, and some rewrites are only possible at their
place: fusion, for one, after layout assignment. `run_until` runs XLA's pipeline up
to such a place, and `finish` goes on from there.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .._native import core, is_text
from ..errors import PositionError
from .decided import moved_on
from .module import decided_of
from .position import PipelinePosition, as_tuple

if TYPE_CHECKING:
    from .module import HloModule


@dataclass(frozen=True)
class Stage:
    """One run of one pass by XLA's pipeline.

    Attributes:
        name: XLA's name of the pass.
        path: its name behind those of the pipelines around it, joined by "/".
        occurrence: which run of this name it is, from 1.
        path_occurrence: which run of this path it is, from 1.
        changed: whether the pass reported a change.
        skipped: whether it did not run, because it had been decided.
        duration_ns: how long it ran, in nanoseconds.
    """

    name: str
    path: str
    occurrence: int
    path_occurrence: int
    changed: bool
    skipped: bool
    duration_ns: int


@dataclass(frozen=True)
class SkipRule:
    """A pass of XLA's pipeline that would redo what was rejected of another one.

    Attributes:
        decided: the pass of which a rewrite was rejected; a candidate pass, whatever
            was decided.
        skipped: the pass that would redo it.
        reason: why.
        makes_the_same: it runs, but for the rewrites that were rejected; otherwise it
            does not run.
    """

    decided: str
    skipped: str
    reason: str
    makes_the_same: bool


def skip_rules() -> tuple[SkipRule, ...]:
    """What rejections mean for other passes of XLA's pipeline."""
    return tuple(SkipRule(*rule) for rule in core.skip_rules())


@dataclass(frozen=True)
class NeededPass:
    """A pass of XLA's pipeline that always runs, also when it has been decided.

    Attributes:
        name: of the pass; a final "*" stands for any ending.
        reason: what the backend cannot do without it.
    """

    name: str
    reason: str


def needed_passes() -> tuple[NeededPass, ...]:
    """The passes that the rest of XLA's pipeline never leaves out."""
    return tuple(NeededPass(*each) for each in core.needed_passes())


def list_stages(module: HloModule) -> tuple[Stage, ...]:
    """What XLA's pipeline runs on `module`, in order, from the module's place on.

    Raises:
        CompileError: a pass fails on the module.
    """
    stages = core.list_stages(
        module._core, as_tuple(module.position), decided_of(module)
    )
    return tuple(Stage(*stage) for stage in stages)


def run_until(module: HloModule, where: str, *, occurrence: int = 1) -> HloModule:
    """Runs XLA's pipeline on `module` up to just before a pass or pipeline.

    On the way, XLA's passes do not make what was rejected.

    Args:
        module: at XLA's start, or at an earlier place.
        where: name ("fusion"), or the end of a path ("simplification/algsimp"), of a
            pass or of a pipeline.
        occurrence: which arrival there, counted from XLA's start, from 1.

    Returns:
        The module at that point, with its `place`.

    Raises:
        PositionError: the pipeline never arrives there, or is past it.
        CompileError: a pass fails on the module.
    """
    is_number = isinstance(occurrence, int) and not isinstance(occurrence, bool)
    if not is_text(where) or not is_number or not 1 <= occurrence < 2**31:
        raise PositionError(
            "run_until takes the name or path of a pass and an occurrence from 1, not "
            f"{where!r} and {occurrence!r}"
        )
    stopped, place = core.run_until(
        module._core, where, occurrence, as_tuple(module.position), decided_of(module)
    )
    return type(module)._wrap(
        stopped, position=PipelinePosition(*place), decided=moved_on(module._decided)
    )


def finish(module: HloModule, *, decided: Collection[str] = ()) -> HloModule:
    """Runs the rest of XLA's pipeline, without what was decided against.

    A pass whose rewrites were decided still runs, but for the rewrites that were
    rejected. So XLA's own decisions, and no decisions, give what XLA gives.

    Args:
        module: at XLA's start, or at a place.
        decided: passes to leave out; see `skip_rules` for what goes with them.

    Returns:
        A module that is ready for XLA's backend (`compile` with `finish="none"`).

    Raises:
        PositionError: XLA does not come by the module's place again.
        CompileError: a pass fails on the module.
    """
    entries = sorted({*module._decided, *decided})
    finished = core.finish(module._core, as_tuple(module.position), entries)
    return type(module)._wrap(finished, decided=moved_on(module._decided))
