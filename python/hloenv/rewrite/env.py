# SPDX-License-Identifier: Apache-2.0
"""The environment: one module, rewritten by decisions."""

from __future__ import annotations

import os
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .._native import core
from ..errors import (
    ArgumentTypeError,
    DecisionError,
    PositionWarning,
    StaleAlternativesError,
    TraceError,
)
from ..hlo.decided import changed_since, with_run
from ..hlo.module import HloModule, as_module
from ..hlo.passes import (
    Pass,
    Pipeline,
    as_pipeline,
    is_candidate,
    is_plain,
    pass_names,
    to_core,
)
from ..hlo.pipeline import run_until
from .alternatives import Alternatives, Decisions, as_decisions, capture
from .placement import at_place, warn_if_elsewhere
from .trace import ModuleId, Step, Trace

if TYPE_CHECKING:
    from ..graph.hlo_graph import HloGraph


@dataclass(frozen=True, eq=False, slots=True)
class _History:
    """Linked list of the steps to a state, the last step first."""

    step: Step
    before: _History | None


class State:
    """A point of an episode. Cheap: it shares the module with the environment.

    It holds its module, the first module of the episode and the steps between them. It
    pickles as the first module and the steps, which are replayed on first access of
    `module`: XLA's passes depend on an order that no other form of the module keeps.
    """

    def __init__(
        self,
        start: HloModule,
        module: HloModule | None,
        history: _History | None = None,
        *,
        fingerprint: str = "",
    ) -> None:
        """Made by `HloEnv.snapshot`.

        Args:
            start: of the episode.
            module: at this point; None to replay the steps, checked by `fingerprint`.
            history: the steps between them.
            fingerprint: of the module that the steps lead to.
        """
        self._start = start
        self._module = module
        self._history = history
        self._fingerprint = fingerprint

    @property
    def module(self) -> HloModule:
        """The module at this point.

        Raises:
            TraceError: the state was unpickled, and its steps give another module
                in this process.
        """
        if self._module is None:
            self._module = _lead(self._start, self._steps(), self._fingerprint)
        return self._module

    def _after(self, module: HloModule, step: Step) -> State:
        return State(self._start, module, _History(step, self._history))

    def _steps(self) -> tuple[Step, ...]:
        steps: list[Step] = []
        history = self._history
        while history is not None:
            steps.append(history.step)
            history = history.before
        return tuple(reversed(steps))

    def __copy__(self) -> State:
        return self  # nothing about a state changes

    def __deepcopy__(self, _: dict[int, Any]) -> State:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        fingerprint = self._fingerprint or self.module.fingerprint()
        return _unpickle_state, (self._start, self._steps(), fingerprint)


def _unpickle_state(
    start: HloModule, steps: tuple[Step, ...], fingerprint: str
) -> State:
    history = None
    for step in steps:
        history = _History(step, history)
    module = None if steps else start
    return State(start, module, history, fingerprint=fingerprint)


def _lead(start: HloModule, steps: tuple[Step, ...], fingerprint: str) -> HloModule:
    """Replays the steps; the result must have this fingerprint."""
    env = HloEnv(start)
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", PositionWarning
        )  # raised when the steps were made
        for step in steps:
            repeat_step(env, step)
    if env.fingerprint() != fingerprint:
        raise TraceError(
            f"the steps of a pickled state give a module with fingerprint "
            f"{env.fingerprint()}, expected {fingerprint}; unpickle with the same "
            "version of hloenv and of XLA (this is TensorFlow "
            f"{core.tensorflow_version})"
        )
    return env.module


class HloEnv:
    """A module and the decisions that made it.

    Use by a heuristic, a search or a learned policy:

        env = hloenv.HloEnv(module)
        alternatives = env.get_alternatives("algsimp", "cse")
        env.apply_alternatives(policy(alternatives))
        executable = hloenv.compile(env.module)

    Modules are immutable, so a snapshot costs nothing and `env.module` may be kept.
    An environment has no lock: one thread at a time.

    Environments, states and alternatives pickle as the proto of the episode's first
    module, the steps and the passes, which are replayed when they are needed.
    Alternatives in one pickle with their environment or state stay valid with it.

    Args:
        module: an HloModule, HLO text, or a path to text or proto.
    """

    def __init__(self, module: HloModule | str | os.PathLike[str]) -> None:
        start = as_module(module)
        self._state = State(start, start)
        # The latest capture; after unpickling, its pipelines until it is needed.
        self._latest: Alternatives | tuple[Pipeline, ...] | None = None

    @property
    def module(self) -> HloModule:
        """The current module."""
        return self._state.module

    def fingerprint(self) -> str:
        """Fingerprint of the current module."""
        return self.module.fingerprint()

    def graph(self) -> HloGraph:
        """The current module as arrays."""
        from ..graph.hlo_graph import HloGraph

        return HloGraph.from_module(self.module)

    def run(self, *passes: str | Pass | Pipeline) -> bool:
        """Runs passes on the module as XLA would, one after the other.

        Returns:
            Whether any of them changed the module.

        Raises:
            UnknownPassError, PassOptionError: no such pass or option.
            PassError: a pass failed; the environment is unchanged.
            PositionError: a pass gives wrong results at the module's position.
        """
        module = self.module
        pipelines: list[Pipeline] = []
        changed = False
        for each in passes:
            pipeline = at_place(as_pipeline(each), module)
            pipelines.append(pipeline)
            result, step_changed = _run(module._core, pipeline)
            decided = module._decided
            if step_changed:
                decided = changed_since(decided)
            if module.position is not None and not is_candidate(pipeline):
                for name in pass_names([pipeline]):
                    decided = with_run(
                        decided,
                        name,
                        changed=step_changed,
                        is_same=is_plain(pipeline) and name == module.position.name,
                    )
            module = HloModule._wrap(result, position=module.position, decided=decided)
            changed = changed or step_changed
        self._advance(module, Step("run", tuple(each.to_json() for each in pipelines)))
        return changed

    def run_until(self, where: str, *, occurrence: int = 1) -> HloModule:
        """Runs XLA's own CPU pipeline up to just before a pass.

        The module then has a position in that pipeline: decisions are made where XLA
        makes them, and `compile` continues from there.

        Args:
            where: a pass or pipeline of XLA's, by name ("fusion") or by the end of
                its path ("simplification/algsimp"); `hloenv.list_stages` lists them.
            occurrence: which time the pipeline reaches it, counted from 1 at its start.

        Returns:
            The module at that point, which is also `self.module`.

        Raises:
            PositionError: the pipeline has no such position, or the module is past it.
        """
        module = run_until(self.module, where, occurrence=occurrence)
        self._advance(module, Step("run-until", place=(where, occurrence)))
        return module

    def get_alternatives(self, *passes: str | Pass | Pipeline) -> Alternatives:
        """Every rewrite that the passes would make. Leaves the module unchanged.

        After layout assignment, or if bitcasts in the module depend on layouts, passes
        with an option `is_layout_sensitive` run with it, as in XLA's pipeline.

        The captures of several passes are merged: their rewrites of one value become
        competing choices of one alternative.

        Args:
            passes: names, `Pass`es or `Pipeline`s, at least one.

        Raises:
            UnknownPassError, PassOptionError: no such pass or option.
            PassError: a pass failed on this module.
            PositionError: a pass gives wrong results at the module's position.
        """
        pipelines = [at_place(as_pipeline(each), self.module) for each in passes]
        warn_if_elsewhere(pipelines, self.module.position)
        state = self._state
        alternatives = capture(state.module, pipelines, owner=state)
        self._latest = alternatives
        return alternatives

    def apply_alternatives(
        self,
        decisions: Decisions,
        alternatives: Alternatives | None = None,
        *,
        partial: bool = False,
    ) -> HloModule:
        """Applies one choice at each alternative.

        Args:
            decisions: [A] integers; 0 keeps the original.
            alternatives: the alternatives to decide; the latest capture by default.
            partial: allow -1, undecided: the original stays, and XLA's later passes may
                rewrite it.

        Returns:
            The new module, which is also `self.module`.

        Raises:
            ArgumentTypeError: `alternatives` has another type.
            DecisionError: wrong length, type or range; the module is unchanged.
            StaleAlternativesError: the module has changed since the capture.
        """
        if alternatives is None:
            alternatives = self._latest_capture()
        if not isinstance(alternatives, Alternatives):
            raise ArgumentTypeError(
                "alternatives must be the result of get_alternatives(...), got "
                f"{type(alternatives).__name__}"
            )
        if alternatives._owner is not self._state:
            raise StaleAlternativesError(
                f"{alternatives!r} belong to another state than the environment's; "
                "call get_alternatives again, or restore the state of their capture"
            )
        array = as_decisions(decisions)
        module = alternatives.apply(array, partial=partial)
        self._advance(
            module,
            Step(
                "decide",
                tuple(each.to_json() for each in alternatives._pipelines),
                tuple(array.tolist()),
            ),
        )
        return module

    def snapshot(self) -> State:
        """The current state, for `restore`. Costs nothing and stays valid."""
        return self._state

    def restore(self, state: State) -> None:
        """Returns to a state; the trace is truncated to it.

        Alternatives that were captured in that state are valid again.

        Raises:
            ArgumentTypeError: the argument is not a State.
        """
        if not isinstance(state, State):
            raise ArgumentTypeError(
                f"state must be a State from snapshot(), got {type(state).__name__}"
            )
        self._state = state

    @property
    def trace(self) -> Trace:
        """The episode so far, replayable."""
        return Trace(
            start=ModuleId.of(self._state._start),
            end=ModuleId.of(self.module),
            steps=self._state._steps(),
        )

    def _advance(self, module: HloModule, step: Step) -> None:
        self._state = self._state._after(module, step)

    def _latest_capture(self) -> Alternatives:
        if self._latest is None:
            raise DecisionError(
                "no alternatives were captured; call get_alternatives(...) first"
            )
        if not isinstance(self._latest, Alternatives):
            state = self._state
            self._latest = capture(state.module, self._latest, owner=state)
        return self._latest

    def __copy__(self) -> HloEnv:
        other = object.__new__(type(self))
        other.__dict__.update(self.__dict__)
        return other

    def __getstate__(self) -> dict[str, Any]:
        latest = self._latest
        if isinstance(latest, Alternatives):
            is_valid = latest._owner is self._state
            latest = latest._pipelines if is_valid else None
        return {**self.__dict__, "_latest": latest}

    def __repr__(self) -> str:
        return f"<HloEnv on {self.module!r}>"


def _run(module: core.Module, pipeline: Pipeline) -> tuple[core.Module, bool]:
    if is_candidate(pipeline):
        # A candidate pass cannot run: all its proposals are applied instead.
        found = core.capture(module, [to_core(pipeline, HloModule._wrap(module))])
        decisions = found.decisions_for(pipeline.name)
        return found.apply(decisions), len(found) > 0
    changed_module, changed, _ = core.run_passes(module, to_core(pipeline))
    return changed_module, changed


def replay(
    trace: Trace | str | os.PathLike[str],
    module: HloModule | str | os.PathLike[str],
) -> HloEnv:
    """Replays an episode.

    Args:
        trace: a Trace, or a path to a saved one.
        module: the module that the episode started with.

    Returns:
        The environment at the end of the episode.

    Raises:
        TraceError: the file is not a trace, `module` is not the recorded one, or the
            steps give another module, as with another version of XLA.
        HloEnvError: a step fails, as its call does.
    """
    if not isinstance(trace, Trace):
        if not isinstance(trace, (str, os.PathLike)):
            raise ArgumentTypeError(
                f"trace must be a Trace or a path to one, got {type(trace).__name__}"
            )
        trace = Trace.load(trace)
    env = begin_replay(trace, module)
    for step in trace.steps:
        repeat_step(env, step)
    check_end(trace, env.module)
    return env


def begin_replay(trace: Trace, module: HloModule | str | os.PathLike[str]) -> HloEnv:
    """The environment at the start of a trace.

    Raises:
        TraceError: `module` is not the recorded one.
    """
    env = HloEnv(module)
    start = ModuleId.of(env.module, format_=trace.format)
    if start != trace.start:
        raise TraceError(
            f"the module has fingerprint {start.fingerprint} and text hash "
            f"{start.text_sha256[:12]}, but the trace was recorded on one with "
            f"{trace.start.fingerprint} and {trace.start.text_sha256[:12]}; replay it "
            "on that module"
        )
    return env


def check_end(trace: Trace, module: HloModule) -> None:
    """Checks that the steps of a trace have led to the recorded module.

    Raises:
        TraceError: they have not.
    """
    if ModuleId.of(module, format_=trace.format) != trace.end:
        raise TraceError(
            f"the steps give a module with fingerprint {module.fingerprint()}, but the "
            f"trace recorded {trace.end.fingerprint}, with the XLA of TensorFlow "
            f"{trace.tensorflow} (this is {core.tensorflow_version}); replay it with "
            "that version, on the file that it was recorded on: passes depend on an "
            "order of instructions that printed text does not keep"
        )


def pipelines_of(step: Step) -> list[Pipeline]:
    """The pipelines that a step ran or captured.

    Raises:
        TraceError, PassOptionError: they are no pipelines.
    """
    try:
        return [Pipeline.from_json(each) for each in step.passes]
    except RecursionError:
        raise TraceError("a step's passes are nested too deeply") from None


def repeat_step(env: HloEnv, step: Step) -> None:
    """Does one step of a trace.

    Raises:
        TraceError: it is of no known kind.
        HloEnvError: as the call that the step records.
    """
    pipelines = pipelines_of(step)
    if step.kind == "run":
        env.run(*pipelines)
    elif step.kind == "run-until" and step.place is not None:
        where, occurrence = step.place
        env.run_until(where, occurrence=occurrence)
    elif step.kind == "decide":
        env.get_alternatives(*pipelines)
        env.apply_alternatives(step.decisions, partial=True)
    else:
        raise TraceError(
            f"unknown step {step.kind[:40]!r}; this version supports run, run-until "
            "with a position, and decide"
        )
