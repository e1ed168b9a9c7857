# SPDX-License-Identifier: Apache-2.0
"""A trace as what a session has done: each decision can be looked at and undone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from .._typing import Int64Array
from ..hlo.module import HloModule
from ..hlo.passes import is_candidate
from ..rewrite.alternatives import Alternatives, as_decisions
from ..rewrite.env import HloEnv, begin_replay, check_end, repeat_step
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

    Points at the end where everything is left to XLA are left out.

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
    while len(moments) > 1 and (moments[-1].decisions < 0).all():
        moments.pop()
    env.restore(moments[-1].state)
    return Opened(env, start, moments[:-1], moments[-1])


def point_here(env: HloEnv, passes: Sequence[str]) -> PointInfo:
    """The position of an environment, as a decision point."""
    position = env.module.position
    return {
        "until": "" if position is None else position.path,
        "occurrence": 1 if position is None else position.occurrence,
        "passes": list(passes),
    }


def xla_decisions(alternatives: Alternatives) -> Int64Array:
    """[A] what "left to XLA" means; see `Session.xla`."""
    for pipeline in alternatives._pipelines:
        if not is_candidate(pipeline) and alternatives._comes_next(pipeline):
            return alternatives.decisions_for(pipeline.name)
    return alternatives.leave_to_xla()


def _moment_at(env: HloEnv, step: Step) -> Moment | None:
    """The decision point of a step; None if the page cannot show its decisions.

    Its passes may have options, and what it leaves undecided may be another thing than
    "left to XLA".
    """
    names = [plain_name(each) for each in step.passes]
    passes = [each for each in names if each is not None]
    if step.kind != "decide" or not passes or len(passes) < len(names):
        return None
    alternatives = env.get_alternatives(*passes)
    decisions = as_decisions(step.decisions)
    is_same = [each.to_json() for each in alternatives._pipelines] == list(step.passes)
    if not is_same or len(decisions) != len(alternatives):
        return None
    xla = xla_decisions(alternatives)
    if ((decisions < 0) & (xla >= 0)).any():
        return None
    shown = np.where(decisions == xla, -1, decisions)
    return Moment(env.snapshot(), point_here(env, passes), alternatives, shown)
