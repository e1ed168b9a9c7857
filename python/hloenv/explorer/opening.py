# SPDX-License-Identifier: Apache-2.0
"""A trace as what a session has done: each decision can be looked at and undone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from .._typing import Int64Array
from ..errors import HloEnvError
from ..hlo.module import HloModule
from ..hlo.pipeline import finish
from ..rewrite.alternatives import Alternatives, as_decisions
from ..rewrite.env import (
    HloEnv,
    begin_replay,
    check_end,
    pipelines_of,
    repeat_step,
)
from ..rewrite.env import State as EnvState
from ..rewrite.trace import Step, Trace
from .code import plain_name
from .schema import PointInfo


@dataclass(frozen=True)
class Moment:
    """A decision point with its decisions: what `undo` returns to."""

    state: EnvState
    point: PointInfo
    alternatives: Alternatives
    decisions: Int64Array


@dataclass(frozen=True)
class Opened:
    """A replayed trace.

    Attributes:
        env: at its end, or in front of its last decisions.
        start: the state before everything that can be undone.
        earlier: the decision points before the last one, with their decisions.
        last: the last one, if the trace ends with it and the page can show it.
    """

    env: HloEnv
    start: EnvState
    earlier: list[Moment]
    last: Moment | None


def open_trace(trace: Trace, module: HloModule) -> Opened:
    """Replays a trace; its last decisions are not applied yet.

    Points at the end where everything is left to XLA are left out, if the program is
    the same without them.

    Raises:
        TraceError: as `hloenv.replay`.
    """
    env = begin_replay(trace, module)
    start = env.snapshot()
    moments: list[Moment] = []
    for step in trace.steps:
        moment = _moment_at(env, step)
        if moment is not None:
            env.apply_alternatives(step.decisions, moment.alternatives, partial=True)
            moments.append(moment)
            continue
        repeat_step(env, step)
        if step.kind != "run-until":
            start = env.snapshot()
            moments.clear()
    check_end(trace, env.module)
    if not moments or trace.steps[-1].kind != "decide":
        return Opened(env, start, moments, None)
    moments = _without_idle_end(moments, env.module)
    env.restore(moments[-1].state)
    return Opened(env, start, moments[:-1], moments[-1])


def _without_idle_end(moments: list[Moment], end: HloModule) -> list[Moment]:
    """The points up to the last where something is decided, if that is the program.

    XLA's own decisions, made explicitly, are no longer XLA's: a rejected rewrite is one
    that its later passes may not make, but decisions may.

    Args:
        moments: of the trace, at least one.
        end: the module at its end.
    """
    number = len(moments)
    while number > 1 and (moments[number - 1].decisions < 0).all():
        number -= 1
    if number == len(moments):
        return moments
    last = moments[number - 1]
    effective = np.where(
        last.decisions < 0, last.alternatives.xla_decisions(), last.decisions
    )
    try:
        without = finish(last.alternatives.apply(effective, partial=True))
        is_same = without.fingerprint() == finish(end).fingerprint()
    except HloEnvError:
        is_same = False
    return moments[:number] if is_same else moments


def point_here(env: HloEnv, passes: Sequence[str]) -> PointInfo:
    """The position of an environment, as a decision point."""
    position = env.module.position
    return {
        "until": "" if position is None else position.path,
        "occurrence": 1 if position is None else position.occurrence,
        "passes": list(passes),
    }


def _moment_at(env: HloEnv, step: Step) -> Moment | None:
    """The decision point of a step; None if the page cannot show its decisions.

    Its passes may have options, and what it leaves undecided may be another thing than
    "left to XLA".
    """
    names = [plain_name(each.to_json()) for each in pipelines_of(step)]
    passes = [each for each in names if each is not None]
    if step.kind != "decide" or not passes or len(passes) < len(names):
        return None
    alternatives = env.get_alternatives(*passes)
    decisions = as_decisions(step.decisions)
    is_same = [each.to_json() for each in alternatives._pipelines] == list(step.passes)
    if not is_same or len(decisions) != len(alternatives):
        return None
    xla = alternatives.xla_decisions()
    if ((decisions < 0) & (xla >= 0)).any():
        return None
    shown = np.where(decisions == xla, -1, decisions)
    return Moment(env.snapshot(), point_here(env, passes), alternatives, shown)
