# SPDX-License-Identifier: Apache-2.0
"""One module, the decisions on it, and what the page shows of them.

A session has an environment, a decision point with its alternatives, and a decision
for each of them, at first undecided. Every action is one entry of a log that another
process can repeat, and one step of `undo`. XLA runs in the process of the session.
"""

from __future__ import annotations

import contextlib
import copy
import hashlib
import pickle
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from .._native import core
from .._typing import Int64Array
from .._version import __version__
from ..cost.roofline import estimate_seconds
from ..errors import ArgumentError, PositionError
from ..graph.hlo_graph import HloGraph
from ..hlo.module import HloModule
from ..hlo.passes import list_passes
from ..policies import get_policy, list_policies
from ..rewrite.alternatives import Alternatives, as_decisions
from ..rewrite.env import HloEnv
from ..rewrite.trace import Trace
from .alternative_data import (
    alternative_detail,
    alternative_rows,
    decision_differences,
)
from .code import load_expression, opened_expression, pass_name, python_of
from .graph_data import graph_data, module_info, node_detail
from .opening import Moment, open_trace, point_here
from .presets import PRESETS
from .schema import (
    Action,
    AlternativeDetail,
    AlternativeRow,
    DecisionDifference,
    GraphData,
    ModuleInfo,
    NodeDetail,
    PointInfo,
    State,
    StepInfo,
    Totals,
)

_MAX_UNDO = 200


@dataclass
class Session:
    """An explored module; see the module's docstring.

    Args:
        module: at the start.
        target: what the user opened, for the title and the Python code.
        trace: an episode on `module` to start from.
        session: the key of the session.
        is_opened: whether `target` is only a title, of text that the page sent.
    """

    module: HloModule
    target: str
    trace: Trace | None = None
    session: str = field(default_factory=lambda: secrets.token_hex(8))
    is_opened: bool = False

    def __post_init__(self) -> None:
        """Captures the alternatives where the trace ends, by default the start."""
        self._env = HloEnv(self.module)
        self._start = self._env.snapshot()
        self._log: list[Action] = []
        self._undo: list[Moment] = []
        self._before_s: float | None = None
        self._decisions: Int64Array
        self._xla: Int64Array
        self._info: tuple[HloModule, ModuleInfo] | None = None
        self._base = _base_of(self.target, self.module, self.trace)
        last = None
        if self.trace is not None:
            opened = open_trace(self.trace, self.module)
            self._env, self._start = opened.env, opened.start
            self._undo, last = opened.earlier[-_MAX_UNDO:], opened.last
        if last is None:
            self._capture(point_here(self._env, PRESETS[0]["passes"]))
        else:
            self._return_to(last)

    # Reading.

    def state(self) -> State:
        """The module, the trace and the decisions."""
        relevant = self._alternatives.relevant(self._effective())
        return {
            "session": self.session,
            "revision": "",  # the backend's
            "version": __version__,
            "target": self.target,
            "is_safe_to_restore": not self._log,
            "base": self._base,
            "module": self._module_info(),
            "point": self._point,
            "steps": self.steps(),
            "totals": self._totals(int(np.count_nonzero(~relevant))),
            "decisions": self._decisions.tolist(),
            "xla": self._xla.tolist(),
            "relevant": relevant.tolist(),
            "presets": list(PRESETS),
            "passes": list(list_passes()),
            "policies": list(list_policies()),
            "log": list(self._log),
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

    def node(self, index: int) -> NodeDetail:
        """An instruction of the module at the decision point, as the graph counts.

        Raises:
            ArgumentError: there is no such instruction.
        """
        number = self._env.module.instruction_count
        if not 0 <= index < number:
            raise ArgumentError(f"there is no instruction {index}; there are {number}")
        return node_detail(self._env.module, index)

    def alternatives(self) -> list[AlternativeRow]:
        """All alternatives of the decision point."""
        return alternative_rows(self._alternatives)

    def alternative(self, index: int, choice: int) -> AlternativeDetail:
        """Before and after one choice.

        Raises:
            ArgumentError: there is no such alternative or choice.
        """
        self.check([[index, choice]], least=1)
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
        return self.by_method("decided")

    def default(self) -> HloModule:
        """The module at the decision point, with everything left to XLA."""
        return self.by_method("default")

    def xla(self) -> Int64Array:
        """[A] what "left to XLA" means.

        As `Alternatives.xla_decisions`: XLA does not run a pass again on a module with
        decisions of its.
        """
        return self._xla

    def _effective(self) -> Int64Array:
        """[A] the decisions, and XLA's where there are none."""
        return np.where(self._decisions < 0, self._xla, self._decisions)

    def by_method(self, method: str) -> HloModule:
        """The module with a method's decisions at the decision point.

        Args:
            method: "default", "decided", or "policy:NAME".
        """
        return self._alternatives.apply(self._decisions_by(method), partial=True)

    def differing(self, first: str, second: str) -> list[DecisionDifference]:
        """What two methods decide differently, as `by_method` names them."""
        return decision_differences(
            self._alternatives, self._decisions_by(first), self._decisions_by(second)
        )

    def _decisions_by(self, method: str) -> Int64Array:
        """[A] a method's decisions, and XLA's where it leaves them to XLA."""
        if method == "default":
            return self._xla
        if method == "decided":
            return self._effective()
        policy = get_policy(method.removeprefix("policy:"))
        decisions = as_decisions(policy(self._alternatives))
        return np.where(decisions < 0, self._xla, decisions)

    def captured(self) -> Alternatives:
        """The alternatives themselves, for work in another process."""
        return self._alternatives

    def finished_trace(self) -> str:
        """The trace with the decisions as its last step, as JSON."""
        return self._finished().trace.to_json()

    def python(self) -> str:
        """The program that repeats the trace with the decisions."""
        load = opened_expression if self.is_opened else load_expression
        return python_of(self._finished().trace, *load(self.target))

    def text(self) -> str:
        """HLO text of the decided module."""
        return self.decided().to_text()

    def check(self, pairs: Sequence[Sequence[int]], *, least: int) -> None:
        """Checks alternatives and their choices.

        Args:
            pairs: [alternative, choice] each.
            least: the smallest choice that is meant: 1, 0, or -1 for undecided.

        Raises:
            ArgumentError: there is no such alternative or choice.
        """
        for pair in pairs:
            if len(pair) != 2:
                raise ArgumentError(
                    f"a decision is [alternative, choice], got {list(pair)!r}"
                )
            index, choice = pair
            if not 0 <= index < len(self._alternatives):
                raise ArgumentError(
                    f"there is no alternative {index}; "
                    f"there are {len(self._alternatives)}"
                )
            most = int(self._alternatives.num_choices[index]) - 1
            if not least <= choice <= most:
                raise ArgumentError(
                    f"alternative {index} has choices {least} to {most}, got {choice}"
                )

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
        with self._action("point", until, occurrence, passes):
            self._move(until, occurrence)
            # The start may be a position in XLA's pipeline, of a trace or a file.
            wanted = point_here(self._env, passes)
            if until:
                wanted |= {"until": until, "occurrence": occurrence}
            self._capture(wanted)
        return self.state()

    def decide(self, changes: Sequence[Sequence[int]]) -> State:
        """Changes decisions.

        Args:
            changes: [alternative, choice] pairs; choice -1 leaves it to XLA.

        Raises:
            ArgumentError: there is no such alternative or choice.
        """
        self.check(changes, least=-1)
        with self._action("decide", changes=changes):
            self._decisions = self._decisions.copy()
            for index, choice in changes:
                self._decisions[index] = choice
        return self.state()

    def apply(self) -> State:
        """Applies the decisions, and captures the same passes again.

        Raises:
            ArgumentError: everything is undecided.
        """
        if (self._decisions < 0).all():
            raise ArgumentError("nothing is decided; accept or reject something first")
        with self._action("apply"):
            self._env.apply_alternatives(
                self._effective(), self._alternatives, partial=True
            )
            self._capture(self._point)
        return self.state()

    def undo(self) -> State:
        """Takes the latest action back, or returns to the trace's decisions before.

        Raises:
            ArgumentError: there is none.
        """
        if not self._undo:
            raise ArgumentError("there is nothing to undo")
        self._return_to(self._undo.pop())
        if self._log and self._log[-1]["do"] != "undo":
            self._log.pop()
        else:
            # Of the trace, whose steps are not in the log.
            self._log.append(_action("undo"))
        return self.state()

    def repeat(self, log: Sequence[Action]) -> State:
        """Repeats the actions of a log: all of them, or none where one fails.

        Raises:
            HloEnvError: as the action that fails.
        """
        first, undo, done = self._moment(), list(self._undo), list(self._log)
        try:
            for action in log:
                self._repeat(action)
        except BaseException:
            self._return_to(first)
            self._undo, self._log = undo, done
            raise
        return self.state()

    def _repeat(self, action: Action) -> None:
        match action["do"]:
            case "point":
                self.point(action["until"], action["occurrence"], action["passes"])
            case "decide":
                self.decide(action["changes"])
            case "apply":
                self.apply()
            case "undo":
                self.undo()
            case other:
                raise ArgumentError(f"unknown action {other[:40]!r}")

    def _moment(self) -> Moment:
        return Moment(
            self._env.snapshot(), self._point, self._alternatives, self._decisions
        )

    def _return_to(self, moment: Moment) -> None:
        self._env.restore(moment.state)
        self._point = moment.point
        self._alternatives = moment.alternatives
        self._decisions = moment.decisions
        self._xla = moment.alternatives.xla_decisions()
        self._before_s = None

    @contextlib.contextmanager
    def _action(
        self,
        do: str,
        until: str = "",
        occurrence: int = 1,
        passes: Sequence[str] = (),
        changes: Sequence[Sequence[int]] = (),
    ) -> Iterator[None]:
        """Logs what happens inside as one action; an error takes it back."""
        moment = self._moment()
        try:
            yield
        except BaseException:
            self._return_to(moment)
            raise
        self._undo = [*self._undo[1 - _MAX_UNDO :], moment]
        self._log.append(_action(do, until, occurrence, passes, changes))

    def _move(self, until: str, occurrence: int) -> None:
        if (until, occurrence) == (self._point["until"], self._point["occurrence"]):
            return
        if not until:
            self._to_start()
            return
        try:
            self._env.run_until(until, occurrence=occurrence)
        except PositionError:
            if self._has_decided():
                raise
            self._to_start()
            self._env.run_until(until, occurrence=occurrence)

    def _to_start(self) -> None:
        position = self._env.module.position
        if position == self._start.module.position:
            return
        if self._has_decided():
            raise PositionError(
                f"the module is {position}, and decisions were applied since the "
                "start: undo them to return there"
            )
        self._env.restore(self._start)

    def _module_info(self) -> ModuleInfo:
        module = self._env.module
        if self._info is None or self._info[0] is not module:
            self._info = (module, module_info(module))
        return self._info[1]

    def _has_decided(self) -> bool:
        """Whether decisions were applied since the start."""
        since = len(self._start._steps())
        steps = self._env.snapshot()._steps()[since:]
        return any(step.kind == "decide" for step in steps)

    def _capture(self, point: PointInfo) -> None:
        self._alternatives = self._env.get_alternatives(*point["passes"])
        self._point = point
        self._decisions = self._alternatives.leave_to_xla()
        self._xla = self._alternatives.xla_decisions()
        self._before_s = None

    def _totals(self, irrelevant: int) -> Totals:
        decisions = self._decisions
        if self._before_s is None:
            self._before_s = estimate_seconds(HloGraph.from_module(self.default()))
        after = self._before_s
        if (decisions >= 0).any():
            after = estimate_seconds(HloGraph.from_module(self.decided()))
        return {
            "alternatives": len(decisions),
            "accepted": int((decisions > 0).sum()),
            "rejected": int((decisions == 0).sum()),
            "undecided": int((decisions < 0).sum()),
            "irrelevant": irrelevant,
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


def _action(
    do: str,
    until: str = "",
    occurrence: int = 1,
    passes: Sequence[str] = (),
    changes: Sequence[Sequence[int]] = (),
) -> Action:
    return {
        "do": do,
        "until": until,
        "occurrence": occurrence,
        "passes": list(passes),
        "changes": [list(each) for each in changes],
    }


def _base_of(target: str, module: HloModule, trace: Trace | None) -> str:
    """What a log can be repeated on.

    Alternatives are numbered in an order of instructions that only pickles keep.
    """
    parts = (
        target.encode(errors="surrogatepass"),
        pickle.dumps(module),
        b"" if trace is None else trace.to_json().encode(),
        f"{__version__} {core.tensorflow_version}".encode(),
    )
    digest = hashlib.sha256()
    for part in parts:
        digest.update(hashlib.sha256(part).digest())
    return digest.hexdigest()[:16]
