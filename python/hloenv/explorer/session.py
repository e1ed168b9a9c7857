# SPDX-License-Identifier: Apache-2.0
"""One module, the decisions on it, and what the page shows of them.

A session has an environment, a decision point with its alternatives, and a decision
for each of them, at first undecided. Every action is one entry of a log that another
process can repeat, and one step of `undo`. XLA runs in the process of the session.
"""

from __future__ import annotations

import copy
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .._typing import Int64Array
from .._version import __version__
from ..cost.roofline import estimate_seconds
from ..errors import ArgumentError, PositionError
from ..graph.hlo_graph import HloGraph
from ..hlo.module import HloModule
from ..hlo.passes import is_candidate, list_passes
from ..policies import get_policy, list_policies
from ..rewrite.alternatives import Alternatives, as_decisions
from ..rewrite.env import HloEnv, replay
from ..rewrite.env import State as EnvState
from ..rewrite.trace import Trace
from .alternative_data import alternative_detail, alternative_rows
from .code import pass_name, python_of
from .graph_data import graph_data, module_info, node_detail
from .schema import (
    Action,
    AlternativeDetail,
    AlternativeRow,
    GraphData,
    ModuleInfo,
    NodeDetail,
    PointInfo,
    State,
    StepInfo,
    Totals,
)

PRESETS = (
    (
        "simplify",
        "algebraic simplification before XLA's passes",
        "",
        ("algsimp", "cse"),
    ),
    (
        "forms",
        "other forms of convolutions, small dots and reductions",
        "",
        ("convolution-forms", "dot-forms", "reduce-forms"),
    ),
    (
        "all simplifications",
        "also those that XLA's authors left off",
        "simplification",
        ("general-simplify",),
    ),
    ("dots", "library call or loops for each dot", "fusion", ("dot-lowering",)),
    (
        "fusion",
        "XLA's fusions and every other legal one",
        "fusion",
        ("fusion", "general-fusion"),
    ),
    ("thunks", "sequential or concurrent thunks", "copy-insertion", ("thunk-order",)),
)
_MAX_UNDO = 200


@dataclass(frozen=True)
class _Moment:
    """What `undo` returns to."""

    state: EnvState
    point: PointInfo
    alternatives: Alternatives
    decisions: Int64Array


@dataclass
class Session:
    """An explored module; see the module's docstring.

    Args:
        module: at the start.
        target: what the user opened, for the title and the Python code.
        trace: an episode on `module` to start from.
    """

    module: HloModule
    target: str
    trace: Trace | None = None
    session: str = field(default_factory=lambda: secrets.token_hex(8))

    def __post_init__(self) -> None:
        """Captures the first preset's alternatives."""
        self._env = HloEnv(self.module)
        if self.trace is not None:
            self._env = replay(self.trace, self.module)
        self._start = self._env.snapshot()
        self._log: list[Action] = []
        self._undo: list[_Moment] = []
        self._before_s: float | None = None
        self._decisions: Int64Array
        self._xla: Int64Array
        self._info: tuple[HloModule, ModuleInfo] | None = None
        self._capture({"until": "", "occurrence": 1, "passes": ["algsimp", "cse"]})

    # Reading.

    def state(self) -> State:
        """The module, the trace and the decisions."""
        return {
            "session": self.session,
            "version": __version__,
            "target": self.target,
            "is_read_only": False,
            "is_safe_to_restore": not self._log,
            "module": self._module_info(),
            "point": self._point,
            "steps": self.steps(),
            "totals": self._totals(),
            "decisions": self._decisions.tolist(),
            "xla": self._xla.tolist(),
            "relevant": self._alternatives.relevant(self._effective()).tolist(),
            "presets": [
                {"name": name, "summary": text, "until": until, "passes": list(passes)}
                for name, text, until, passes in PRESETS
            ],
            "passes": list(list_passes()),
            "policies": list(list_policies()),
            "log": list(self._log),
            "message": "",
        }

    def graph(self, which: str = "current") -> GraphData:
        """The module at the decision point, or with the decisions.

        Raises:
            ArgumentError: `which` is neither "current" nor "decided".
        """
        if which == "current":
            module = self._env.module
        elif which == "decided":
            module = self.decided()
        else:
            raise ArgumentError(f"graph must be 'current' or 'decided', got {which!r}")
        marked = {
            site.original: alternative.index
            for alternative in self._alternatives
            for site in alternative.sites
        }
        return graph_data(module, alternatives=marked)

    def node(self, name: str) -> NodeDetail:
        """An instruction of the module at the decision point.

        Raises:
            ArgumentError: there is none of this name.
        """
        found = node_detail(self._env.module, name)
        if found is None:
            raise ArgumentError(f"the module has no instruction {name[:80]!r}")
        return found

    def alternatives(self) -> list[AlternativeRow]:
        """All alternatives of the decision point."""
        return alternative_rows(self._alternatives)

    def alternative(self, index: int, choice: int) -> AlternativeDetail:
        """Before and after one choice.

        Raises:
            ArgumentError: there is no such alternative or choice.
        """
        self._check(index, choice, least=1)
        return alternative_detail(self._alternatives, self._env.module, index, choice)

    def steps(self) -> list[StepInfo]:
        """The steps of the trace, without the decisions that are not applied yet."""
        steps: list[StepInfo] = []
        for step in self._env.snapshot()._steps():
            names = ", ".join(pass_name(each) for each in step.passes)
            label = names if step.place is None else f"{step.place[0]} #{step.place[1]}"
            steps.append(
                {
                    "kind": step.kind,
                    "label": label,
                    "accepted": sum(each > 0 for each in step.decisions),
                    "rejected": sum(each == 0 for each in step.decisions),
                }
            )
        return steps

    def decided(self) -> HloModule:
        """The module with the decisions."""
        return self._alternatives.apply(self._effective(), partial=True)

    def default(self) -> HloModule:
        """The module at the decision point, with everything left to XLA."""
        return self._alternatives.apply(self._xla, partial=True)

    def xla(self) -> Int64Array:
        """[A] what "left to XLA" means.

        The decisions of the pass that XLA runs next, if it was captured: XLA does not
        run it again on a module with decisions of its. Otherwise -1: later passes of
        XLA rewrite as by default.
        """
        return self._xla

    def _effective(self) -> Int64Array:
        """[A] the decisions, and XLA's where there are none."""
        return np.where(self._decisions < 0, self._xla, self._decisions)

    def by_policy(self, name: str) -> HloModule:
        """The module with a policy's decisions at the decision point."""
        decisions = as_decisions(get_policy(name)(self._alternatives))
        return self._alternatives.apply(decisions, partial=True)

    def captured(self) -> Alternatives:
        """The alternatives themselves, for work in another process."""
        return self._alternatives

    def finished_trace(self) -> str:
        """The trace with the decisions as its last step, as JSON."""
        return self._finished().trace.to_json()

    def python(self) -> str:
        """The program that repeats the trace with the decisions."""
        return python_of(self._finished().trace, *load_expression(self.target))

    def text(self) -> str:
        """HLO text of the decided module."""
        return self.decided().to_text()

    # Actions: each returns the new state.

    def point(self, until: str, occurrence: int, passes: Sequence[str]) -> State:
        """Moves the stop to a position in XLA's pipeline, and captures passes there.

        Decisions that are not applied are dropped. An earlier position is reached
        from the start, unless decisions were applied on the way.

        Raises:
            ArgumentError: there are no passes.
            PositionError: the pipeline does not reach the position.
            PassError, UnknownPassError: as `HloEnv.get_alternatives`.
        """
        if not passes:
            raise ArgumentError("a decision point needs at least one pass, got none")
        moment = self._moment()
        wanted: PointInfo = {
            "until": until,
            "occurrence": occurrence,
            "passes": list(passes),
        }
        try:
            self._move(until, occurrence)
            self._capture(wanted)
        except BaseException:
            self._return_to(moment)
            raise
        self._did(
            moment, do="point", until=until, occurrence=occurrence, passes=list(passes)
        )
        return self.state()

    def decide(self, changes: Sequence[Sequence[int]]) -> State:
        """Changes decisions.

        Args:
            changes: [alternative, choice] pairs; choice -1 leaves it to XLA.

        Raises:
            ArgumentError: there is no such alternative or choice.
        """
        for change in changes:
            if len(change) != 2:
                raise ArgumentError(
                    f"a decision is [alternative, choice], got {list(change)!r}"
                )
            self._check(*change, least=-1)
        moment = self._moment()
        self._decisions = self._decisions.copy()
        for index, choice in changes:
            self._decisions[index] = choice
        self._did(moment, do="decide", changes=[list(each) for each in changes])
        return self.state()

    def apply(self) -> State:
        """Applies the decisions, and captures the same passes again.

        Raises:
            ArgumentError: everything is undecided.
        """
        if (self._decisions < 0).all():
            raise ArgumentError("nothing is decided; accept or reject something first")
        moment = self._moment()
        try:
            self._env.apply_alternatives(
                self._effective(), self._alternatives, partial=True
            )
            self._capture(self._point)
        except BaseException:
            self._return_to(moment)
            raise
        self._did(moment, do="apply")
        return self.state()

    def undo(self) -> State:
        """Takes the latest action back.

        Raises:
            ArgumentError: there is none.
        """
        if not self._undo:
            raise ArgumentError("there is nothing to undo")
        self._return_to(self._undo.pop())
        self._log.pop()
        return self.state()

    def repeat(self, log: Sequence[Action]) -> State:
        """Repeats the actions of a log.

        Raises:
            HloEnvError: as the action that fails; those before it are repeated.
        """
        for action in log:
            match action["do"]:
                case "point":
                    self.point(action["until"], action["occurrence"], action["passes"])
                case "decide":
                    self.decide(action["changes"])
                case "apply":
                    self.apply()
                case other:
                    raise ArgumentError(f"unknown action {other[:40]!r}")
        return self.state()

    def _check(self, index: int, choice: int, *, least: int) -> None:
        if not 0 <= index < len(self._alternatives):
            raise ArgumentError(
                f"there is no alternative {index}; there are {len(self._alternatives)}"
            )
        most = int(self._alternatives.num_choices[index]) - 1
        if not least <= choice <= most:
            raise ArgumentError(
                f"alternative {index} has choices {least} to {most}, got {choice}"
            )

    def _moment(self) -> _Moment:
        return _Moment(
            self._env.snapshot(), self._point, self._alternatives, self._decisions
        )

    def _return_to(self, moment: _Moment) -> None:
        self._env.restore(moment.state)
        self._point = moment.point
        self._alternatives = moment.alternatives
        self._decisions = moment.decisions
        self._xla = _xla_decisions(moment.alternatives)
        self._before_s = None

    def _did(
        self,
        moment: _Moment,
        *,
        do: str,
        until: str = "",
        occurrence: int = 1,
        passes: Sequence[str] = (),
        changes: Sequence[list[int]] = (),
    ) -> None:
        self._undo = [*self._undo[1 - _MAX_UNDO :], moment]
        self._log.append(
            {
                "do": do,
                "until": until,
                "occurrence": occurrence,
                "passes": list(passes),
                "changes": list(changes),
            }
        )

    def _move(self, until: str, occurrence: int) -> None:
        if not until:
            if self._env.module.position is not None and not self._has_decided():
                self._env.restore(self._start)
            return
        position = self._env.module.position
        if (
            position is not None
            and position.name == until.rsplit("/", 1)[-1]
            and occurrence == self._point["occurrence"]
        ):
            return
        before = self._env.snapshot()
        try:
            self._env.run_until(until, occurrence=occurrence)
        except PositionError:
            if self._has_decided():
                raise
            self._env.restore(self._start)
            try:
                self._env.run_until(until, occurrence=occurrence)
            except BaseException:
                self._env.restore(before)
                raise

    def _module_info(self) -> ModuleInfo:
        module = self._env.module
        if self._info is None or self._info[0] is not module:
            self._info = (module, module_info(module))
        return self._info[1]

    def _has_decided(self) -> bool:
        """Whether decisions were applied since the start."""
        steps = self._env.snapshot()._steps()
        return any(step.kind == "decide" for step in steps)

    def _capture(self, point: PointInfo) -> None:
        self._alternatives = self._env.get_alternatives(*point["passes"])
        self._point = point
        self._decisions = self._alternatives.leave_to_xla()
        self._xla = _xla_decisions(self._alternatives)
        self._before_s = None

    def _totals(self) -> Totals:
        decisions = self._decisions
        if self._before_s is None:
            self._before_s = estimate_seconds(HloGraph.from_module(self.default()))
        after = self._before_s
        if (decisions >= 0).any():
            after = estimate_seconds(HloGraph.from_module(self.decided()))
        relevant = self._alternatives.relevant(self._effective())
        return {
            "alternatives": len(decisions),
            "accepted": int((decisions > 0).sum()),
            "rejected": int((decisions == 0).sum()),
            "undecided": int((decisions < 0).sum()),
            "irrelevant": int(np.count_nonzero(~relevant)),
            "static_before_s": self._before_s,
            "static_after_s": after,
            "can_undo": bool(self._undo),
        }

    def _finished(self) -> HloEnv:
        """The environment with the decisions applied; the session's is unchanged."""
        env = copy.copy(self._env)
        if (self._decisions >= 0).any():
            env.apply_alternatives(self._effective(), self._alternatives, partial=True)
        return env


def _xla_decisions(alternatives: Alternatives) -> Int64Array:
    for pipeline in alternatives._pipelines:
        if not is_candidate(pipeline) and alternatives._comes_next(pipeline):
            return alternatives.decisions_for(pipeline.name)
    return alternatives.leave_to_xla()


def load_expression(target: str) -> tuple[str, str]:
    """The import and the expression that load what the user opened, by its name."""
    if target.startswith("hloenv://"):
        return (
            "from hloenv.envs import find_benchmarks",
            f"find_benchmarks({target!r})[0].load()",
        )
    if ":" in target:
        return "from hloenv.cli.load import load_module", f"load_module({target!r})"
    return "", repr(target)


METHODS: frozenset[str] = frozenset(
    {
        "alternative",
        "alternatives",
        "apply",
        "decide",
        "finished_trace",
        "graph",
        "node",
        "point",
        "python",
        "repeat",
        "state",
        "text",
        "undo",
    }
)
ACTIONS: frozenset[str] = frozenset({"apply", "decide", "point", "repeat", "undo"})


def call(session: Session, method: str, arguments: dict[str, Any]) -> Any:
    """Calls a method of `METHODS`.

    Raises:
        ArgumentError: there is no such method.
        HloEnvError: as the method.
    """
    if method not in METHODS:
        raise ArgumentError(f"unknown method {method[:40]!r}")
    return getattr(session, method)(**arguments)
