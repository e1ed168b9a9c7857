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
        "hlo normalization",
        "reshape-decomposer",
        "single-kernel",
    }
)

# Passes whose rewrites XLA's later fusion would change.
_BEFORE_COPY_INSERTION = frozenset({"single-kernel", "thunk-order"})

# XLA's pipelines that ignore layouts.
_BEFORE_LAYOUT_ASSIGNMENT = frozenset(
    {"post_scatter_expansion_simplification", "simplification"}
)
# Passes whose rewrites use operations that XLA writes out before layout assignment.
_NEED_EXPANDERS = frozenset({"convolution-forms", "dot-forms"})

# Where XLA itself runs the layout-sensitive algsimp.
_ALGSIMP_WITH_LAYOUTS = frozenset({"algsimp", "simplification after layout assignment"})
# Elsewhere its bitcasts may stay in comparators, where XLA's backend has no code for
# those of floats.
_BITCASTS = "rewrite_no_op_bitcast_convert_to_bitcast"
_SENSITIVE = ("is_layout_sensitive", "layout_sensitive")
# Passes that replace what they can by bitcasts, and by copies to other layouts, also
# where layouts were not assigned. Of all passes, on 120 modules each.
_MAKE_BITCASTS = frozenset({"hlo normalization", "reshape-decomposer"})
# XLA's fusion would wrongly fuse its results again.
_AFTER_FUSION = frozenset({"fusion-wrapper"})


def at_place(
    pipeline: Pipeline, module: HloModule, place: PipelinePosition | None = None
) -> Pipeline:
    """The pipeline, with layout-sensitive passes where the module then has layouts.

    Args:
        pipeline: to be run.
        module: on which it runs.
        place: of the module; by default, its own.

    Raises:
        PositionError: a pass gives wrong results at the position of `module`, or after
            the passes before it.
    """
    place = place or module.position
    reason = ""
    if place is not None and place.has_layouts:
        reason = f"at this position ({place})"
    elif module._core.depends_on_layouts():
        reason = "here, where bitcasts depend on layouts"
    return _placed(pipeline, reason, place)[0]


def _placed(
    pipeline: Pipeline, reason: str, place: PipelinePosition | None
) -> tuple[Pipeline, str]:
    """The pipeline, and why what runs after it must respect layouts.

    Args:
        pipeline: to be run.
        reason: why it must respect layouts; "" if it need not.
        place: of the module.
    """
    first = reason
    passes: list[Pass | Pipeline] = []
    for each in pipeline.passes:
        if isinstance(each, Pipeline):
            inner, reason = _placed(each, reason, place)
            passes.append(inner)
            continue
        placed = _with_layouts(each, reason, place) if reason else each
        passes.append(placed)
        if _makes_bitcasts(placed):
            reason = reason or f"after {each.name!r}, whose bitcasts depend on layouts"
    if pipeline.fixed_point and reason != first:
        return _placed(pipeline, reason, place)
    return dataclasses.replace(pipeline, passes=tuple(passes)), reason


def _makes_bitcasts(item: Pass) -> bool:
    if item.name == "algsimp":
        return bool(dict(item.options).get("is_layout_sensitive"))
    return item.name in _MAKE_BITCASTS


def _with_layouts(item: Pass, reason: str, place: PipelinePosition | None) -> Pass:
    after_fusion = place is not None and place.name == "fusion"
    for known, when in (
        (_BEFORE_LAYOUT_ASSIGNMENT, "before layout assignment"),
        (_AFTER_FUSION if after_fusion else frozenset(), "after fusion"),
    ):
        if item.name in known:
            raise PositionError(
                f"pass {item.name!r} gives wrong results {reason}; use it only {when}, "
                "as XLA does"
            )
    given = dict(item.options)
    is_own = place is not None and place.name in _ALGSIMP_WITH_LAYOUTS
    if item.name == "algsimp" and not is_own:
        given.setdefault(_BITCASTS, False)
    for option in describe_pass(item.name).options:
        if option.name in _SENSITIVE and not given.setdefault(option.name, True):
            raise PositionError(
                f"pass {item.name!r} with {option.name}=False gives wrong results "
                f"{reason}: it would remove copies between layouts; leave the option "
                "out"
            )
    return Pass(item.name, **given)


def place_of(pipeline: Pipeline) -> str | None:
    """The position from which XLA can use the rewrites of `pipeline`; None for any."""
    names = pass_names([pipeline])
    if names & _BEFORE_COPY_INSERTION:
        return "copy-insertion"
    return "fusion" if names & _AFTER_LAYOUT_ASSIGNMENT else None


def warn_if_elsewhere(
    pipelines: Sequence[Pipeline], position: PipelinePosition | None
) -> None:
    """Warns the caller's caller about passes whose rewrites XLA cannot use here.

    Args:
        pipelines: to be captured.
        position: of the module; None at the start of XLA's pipeline.
    """
    early = pass_names(pipelines) & _AFTER_LAYOUT_ASSIGNMENT
    if early and (position is None or not position.has_layouts):
        warnings.warn(
            f"{min(early)!r} was captured before layout assignment, where fusions and "
            "bitcasts do not compile and decisions for the backend have no effect; "
            "call env.run_until('fusion') first",
            PositionWarning,
            stacklevel=3,
        )
    late = pass_names(pipelines) & _NEED_EXPANDERS
    if late and position is not None and position.has_layouts:
        warnings.warn(
            f"{min(late)!r} was captured after layout assignment, where some of its "
            "rewrites do not compile: XLA's passes that write out what they use have "
            "run; capture it earlier",
            PositionWarning,
            stacklevel=3,
        )
