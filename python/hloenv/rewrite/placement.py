# SPDX-License-Identifier: Apache-2.0
"""At which positions of XLA's pipeline a pass may be decided."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Sequence

from ..errors import PositionError, PositionWarning
from ..hlo.module import HloModule
from ..hlo.passes import Pass, Pipeline, describe_pass, pass_names
from ..hlo.position import PipelinePosition

# Passes whose rewrites XLA's backend can use only after layout assignment.
_AFTER_LAYOUT_ASSIGNMENT = frozenset(
    {
        "cpu_multi_output_fusion",
        "dot-lowering",
        "thunk-order",
        "fusion",
        "fusion-wrapper",
        "general-fusion",
        "general-layout",
        "single-kernel",
    }
)

# Passes whose rewrites XLA's later fusion would change.
_BEFORE_COPY_INSERTION = frozenset({"single-kernel", "thunk-order"})

# XLA's pipelines that ignore layouts.
_BEFORE_LAYOUT_ASSIGNMENT = frozenset(
    {"post_scatter_expansion_simplification", "simplification"}
)
# XLA's fusion would wrongly fuse its results again.
_AFTER_FUSION = frozenset({"fusion-wrapper"})


def at_place(pipeline: Pipeline, module: HloModule) -> Pipeline:
    """The pipeline, with layout-sensitive passes if `module` has layouts.

    Raises:
        PositionError: a pass gives wrong results at the position of `module`.
    """
    place = module.position
    if place is not None and place.has_layouts:
        reason = str(place)
    elif module._core.depends_on_layouts():
        reason = "where bitcasts depend on layouts"
    else:
        return pipeline
    names = pass_names([pipeline])
    after_fusion = place is not None and place.name == "fusion"
    for known, when in (
        (_BEFORE_LAYOUT_ASSIGNMENT, "before layout assignment"),
        (_AFTER_FUSION if after_fusion else frozenset(), "after fusion"),
    ):
        if wrong := names & known:
            raise PositionError(
                f"pass {min(wrong)!r} gives wrong results at this position ({reason}); "
                f"use it only {when}, as XLA does"
            )
    return _with_layouts(pipeline, reason)


def _with_layouts(pipeline: Pipeline, reason: str) -> Pipeline:
    passes: list[Pass | Pipeline] = []
    for each in pipeline.passes:
        if isinstance(each, Pipeline):
            passes.append(_with_layouts(each, reason))
            continue
        given = dict(each.options)
        for option in describe_pass(each.name).options:
            if option.name not in ("is_layout_sensitive", "layout_sensitive"):
                continue
            if not given.setdefault(option.name, True):
                raise PositionError(
                    f"pass {each.name!r} with {option.name}=False gives wrong results "
                    f"at this position ({reason}): it would remove copies between "
                    "layouts; leave the option out"
                )
        passes.append(Pass(each.name, **given))
    return dataclasses.replace(pipeline, passes=tuple(passes))


def place_of(pipeline: Pipeline) -> str | None:
    """The position from which XLA can use the rewrites of `pipeline`; None for any."""
    names = pass_names([pipeline])
    if names & _BEFORE_COPY_INSERTION:
        return "copy-insertion"
    return "fusion" if names & _AFTER_LAYOUT_ASSIGNMENT else None


def warn_if_early(
    pipelines: Sequence[Pipeline], position: PipelinePosition | None
) -> None:
    """Warns the caller's caller about passes whose rewrites XLA cannot use yet.

    Args:
        pipelines: to be captured.
        position: of the module; None at the start of XLA's pipeline.
    """
    early = pass_names(pipelines) & _AFTER_LAYOUT_ASSIGNMENT
    if early and (position is None or not position.has_layouts):
        warnings.warn(
            f"{min(early)!r} was captured before layout assignment, where fusions do "
            "not compile and decisions for the backend have no effect; call "
            "env.run_until('fusion') first",
            PositionWarning,
            stacklevel=3,
        )
