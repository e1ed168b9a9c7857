# SPDX-License-Identifier: Apache-2.0
"""XLA's own CPU pipeline: its stages, and how to run a part of it.

XLA rewrites a module in a fixed order, and some rewrites are only possible at their
position in the pipeline: fusion, for example, after layout assignment. `run_until` runs
XLA's pipeline up to such a position, and `finish` continues from there.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from .._native import core, is_text
from ..errors import PositionError
from .decided import has_rejections, moved_on, pass_names_of
from .module import as_module, decided_of
from .position import PipelinePosition, as_tuple

if TYPE_CHECKING:
    from .module import HloModule, ModuleLike


@dataclass(frozen=True)
class Stage:
    """One run of one pass by XLA's pipeline.

    Attributes:
        name: XLA's name of the pass.
        path: its name after those of the enclosing pipelines, joined by "/".
        occurrence: number of the run of this name, from 1.
        path_occurrence: number of the run of this path, from 1.
        changed: whether the pass reported a change.
        skipped: whether it did not run because it had been decided.
        duration_ns: its run time, in nanoseconds.
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
    """A pass of XLA's pipeline that would redo rejected rewrites of another pass.

    Attributes:
        decided: the pass of which a rewrite was rejected; for a candidate pass, any
            decision counts.
        skipped: the pass that would redo it.
        reason: why.
        makes_the_same: it runs without the rejected rewrites; otherwise it does not
            run.
    """

    decided: str
    skipped: str
    reason: str
    makes_the_same: bool


def skip_rules() -> tuple[SkipRule, ...]:
    """The effects of rejections on other passes of XLA's pipeline."""
    return tuple(SkipRule(*rule) for rule in core.skip_rules())


def restricts_pipeline(module: HloModule) -> bool:
    """Whether a module is from within XLA's pipeline, or its decisions affect the rest.

    Another XLA than the wheel's cannot run the rest of the pipeline on such a module.
    """
    if module.position is not None:
        return True
    ruled = {rule.decided for rule in skip_rules() if not rule.makes_the_same}
    return has_rejections(module._decided) or bool(
        pass_names_of(module._decided) & ruled
    )


@dataclass(frozen=True)
class NeededPass:
    """A pass of XLA's pipeline that always runs, also if it has been decided.

    Attributes:
        name: of the pass; a final "*" matches any ending.
        reason: why the backend needs it.
    """

    name: str
    reason: str


def needed_passes() -> tuple[NeededPass, ...]:
    """The passes that the rest of XLA's pipeline never skips."""
    return tuple(NeededPass(*each) for each in core.needed_passes())


def is_needed(name: str) -> bool:
    """Whether a pass is one of `needed_passes`, or of those that a pattern names."""
    return any(fnmatchcase(name, each.name) for each in needed_passes())


def list_stages(module: ModuleLike) -> tuple[Stage, ...]:
    """The passes that XLA's pipeline runs on `module`, from the module's position.

    Raises:
        CompileError: a pass fails on the module.
    """
    module = as_module(module)
    stages = core.list_stages(
        module._core, as_tuple(module.position), decided_of(module)
    )
    return tuple(Stage(*stage) for stage in stages)


def run_until(module: ModuleLike, where: str, *, occurrence: int = 1) -> HloModule:
    """Runs XLA's pipeline on `module` up to just before a pass or pipeline.

    XLA's passes do not make the rejected rewrites.

    Args:
        module: at the start of the pipeline, or at an earlier position.
        where: name ("fusion"), or the end of a path ("simplification/algsimp"), of a
            pass or of a pipeline.
        occurrence: how often the pipeline reaches it, counted from its start, from 1.

    Returns:
        The module at that point, with its `position`.

    Raises:
        PositionError: the pipeline does not reach the position, or is past it.
        CompileError: a pass fails on the module.
    """
    is_number = isinstance(occurrence, int) and not isinstance(occurrence, bool)
    if not is_text(where) or not is_number or not 1 <= occurrence < 2**31:
        raise PositionError(
            "run_until needs the name or path of a pass and an integer occurrence >= "
            f"1, got {where!r} and {occurrence!r}"
        )
    module = as_module(module)
    stopped, place = core.run_until(
        module._core, where, occurrence, as_tuple(module.position), decided_of(module)
    )
    return type(module)._wrap(
        stopped, position=PipelinePosition(*place), decided=moved_on(module._decided)
    )


def finish(module: ModuleLike, *, decided: Collection[str] = ()) -> HloModule:
    """Runs the rest of XLA's pipeline, without the rejected rewrites.

    A pass whose rewrites were decided still runs, without the rejected rewrites. So
    XLA's own decisions, and no decisions, give XLA's own result.

    Args:
        module: at the start of the pipeline, or at a position in it.
        decided: passes to skip, with those of their `skip_rules`.

    Returns:
        A module that is ready for XLA's backend (`compile` with `finish="none"`).

    Raises:
        PositionError: the pipeline does not reach the module's position again.
        CompileError: a pass fails on the module.
    """
    module = as_module(module)
    entries = sorted({*module._decided, *decided})
    finished = core.finish(module._core, as_tuple(module.position), entries)
    return type(module)._wrap(finished, decided=moved_on(module._decided))
