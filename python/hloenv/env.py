# SPDX-License-Identifier: Apache-2.0
"""The environment: one module, rewritten step by step by decisions."""

from __future__ import annotations

import dataclasses
import os
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ._native import core
from .errors import (
    DecisionError,
    PlaceError,
    PlaceWarning,
    StaleAlternativesError,
    TraceError,
)
from .module import HloModule, as_module
from .passes import Pass, Pipeline, as_pipeline, describe_pass, pass_names, to_core
from .place import run_until
from .rewrite import Alternatives, Decisions, as_decisions, capture
from .trace import ModuleId, Step, Trace

if TYPE_CHECKING:
    from .graph import HloGraph

# Passes whose rewrites XLA's backend can use only once layouts are assigned.
_AFTER_LAYOUT_ASSIGNMENT = frozenset(
    {
        "cpu_multi_output_fusion",
        "dot-strategy",
        "execution-strategy",
        "fusion",
        "fusion-wrapper",
        "general-fusion",
        "general-layout",
    }
)


# Pipelines of XLA's that do not look at layouts, and change them.
_BEFORE_LAYOUT_ASSIGNMENT = frozenset(
    {"post_scatter_expansion_simplification", "simplification"}
)
# What XLA's fusion would then fuse again, wrongly.
_AFTER_FUSION = frozenset({"fusion-wrapper"})


@dataclass(frozen=True, eq=False)
class State:
    """A point of an episode. Cheap: it shares the module with the environment."""

    module: HloModule
    _parent: State | None
    _step: Step | None


class HloEnv:
    """A module and the decisions that made it.

    The loop of a heuristic, a search or a learned policy:

        env = hloenv.HloEnv(module)
        alternatives = env.get_alternatives("algsimp", "cse")
        env.apply_alternatives(policy(alternatives))
        executable = hloenv.compile(env.module)

    Modules are immutable, so a snapshot costs nothing and `env.module` may be kept.
    An environment has no lock: one thread at a time.

    Args:
        module: an HloModule, HLO text, or a path to text or proto.
    """

    def __init__(self, module: HloModule | str | os.PathLike[str]) -> None:
        self._state = State(as_module(module), None, None)
        self._latest: Alternatives | None = None

    @property
    def module(self) -> HloModule:
        """The module as it stands."""
        return self._state.module

    def fingerprint(self) -> str:
        """Fingerprint of the module as it stands."""
        return self.module.fingerprint()

    def graph(self) -> HloGraph:
        """The module as arrays."""
        from .graph import HloGraph

        return HloGraph.from_module(self.module)

    def run(self, *passes: str | Pass | Pipeline) -> bool:
        """Runs passes on the module as XLA would, one after the other.

        Returns:
            Whether any of them changed the module.

        Raises:
            UnknownPassError, PassOptionError: no such pass or option.
            PassError: a pass failed; the environment is as it was.
            PlaceError: a pass gives wrong results at the module's place.
        """
        module = self.module
        pipelines: list[Pipeline] = []
        changed = False
        for each in passes:
            pipeline = at_place(as_pipeline(each), module)
            pipelines.append(pipeline)
            result, step_changed = _run(module._core, pipeline)
            module = HloModule._wrap(result, place=module.place, decided=module.decided)
            changed = changed or step_changed
        self._advance(module, Step("run", tuple(each.to_json() for each in pipelines)))
        return changed

    def run_until(self, where: str, *, occurrence: int = 1) -> HloModule:
        """Runs XLA's own CPU pipeline up to just before a pass.

        From here on the module has a place in that pipeline: decisions made now are
        made where XLA makes them, and `compile` goes on from there.

        Args:
            where: a pass or pipeline of XLA's, by name ("fusion") or by the end of
                its path ("simplification/algsimp"); `hloenv.list_stages` lists them.
            occurrence: which arrival there, counted from XLA's start, from 1.

        Returns:
            The module at that point, which is also `self.module`.

        Raises:
            PlaceError: the pipeline has no such place, or the module is past it.
        """
        module = run_until(self.module, where, occurrence=occurrence)
        self._advance(module, Step("run-until", place=(where, occurrence)))
        return module

    def get_alternatives(self, *passes: str | Pass | Pipeline) -> Alternatives:
        """Every rewrite that the passes would make now. Changes nothing.

        Once layouts are assigned, or bitcasts in the module depend on them, passes that
        have a choice respect them (`is_layout_sensitive`), as XLA's own then do.

        Several passes are merged: what they would make of one value becomes
        competing choices of one alternative.

        Args:
            passes: names, `Pass`es or `Pipeline`s, at least one.

        Raises:
            UnknownPassError, PassOptionError: no such pass or option.
            PassError: a pass failed on this module.
            PlaceError: a pass gives wrong results at the module's place.
        """
        pipelines = [at_place(as_pipeline(each), self.module) for each in passes]
        self._check_place(pipelines)
        state = self._state
        alternatives = capture(state.module, pipelines, owner=state)
        self._latest = alternatives
        return alternatives

    def apply_alternatives(
        self, decisions: Decisions, alternatives: Alternatives | None = None
    ) -> HloModule:
        """Takes one choice at each alternative.

        Args:
            decisions: [A] integers; 0 keeps the original.
            alternatives: what the decisions are about; the latest capture by default.

        Returns:
            The new module, which is also `self.module`.

        Raises:
            DecisionError: wrong length, type or range; nothing is changed.
            StaleAlternativesError: the environment has moved on since the capture.
        """
        if alternatives is None:
            alternatives = self._latest
        if alternatives is None:
            raise DecisionError(
                "there is nothing to decide: call get_alternatives(...) first"
            )
        if alternatives._owner is not self._state:
            raise StaleAlternativesError(
                f"{alternatives!r} were found on a module that this environment has "
                "left; call get_alternatives again, or restore the state in which "
                "they were found"
            )
        array = as_decisions(decisions)
        module = alternatives.apply(array)
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
        """The present state, for `restore`. Costs nothing and stays valid."""
        return self._state

    def restore(self, state: State) -> None:
        """Goes back to a state; the trace is cut back to it.

        Alternatives that were found in that state are valid again.
        """
        if not isinstance(state, State):
            raise TypeError(
                f"restore takes what snapshot() returned, not {type(state).__name__}"
            )
        self._state = state

    @property
    def trace(self) -> Trace:
        """The episode so far, replayable."""
        steps: list[Step] = []
        state = self._state
        while state._parent is not None and state._step is not None:
            steps.append(state._step)
            state = state._parent
        return Trace(
            start=ModuleId.of(state.module),
            end=ModuleId.of(self.module),
            steps=tuple(reversed(steps)),
        )

    def _advance(self, module: HloModule, step: Step) -> None:
        self._state = State(module, self._state, step)

    def _check_place(self, pipelines: list[Pipeline]) -> None:
        place = self.module.place
        early = pass_names(pipelines) & _AFTER_LAYOUT_ASSIGNMENT
        if early and (place is None or not place.has_layouts):
            name = min(early)
            warnings.warn(
                f"{name!r} belongs after layout assignment: what is fused before it "
                "does not compile, and what is decided for the backend is undone; call "
                "env.run_until('fusion') first",
                PlaceWarning,
                stacklevel=3,
            )

    def __repr__(self) -> str:
        return f"<HloEnv on {self.module!r}>"


def _run(module: core.Module, pipeline: Pipeline) -> tuple[core.Module, bool]:
    spec = to_core(pipeline)
    first = pipeline.passes[0]
    if (
        len(pipeline.passes) == 1
        and isinstance(first, Pass)
        and describe_pass(first.name).candidate
    ):
        # A candidate pass has no run of its own: all that it proposes is taken.
        found = core.capture(module, [spec])
        return found.apply(found.decisions_for(pipeline.name)), len(found) > 0
    changed_module, changed, _ = core.run_passes(module, spec)
    return changed_module, changed


def at_place(pipeline: Pipeline, module: HloModule) -> Pipeline:
    """The pipeline with passes that respect layouts, where `module` has them.

    Raises:
        PlaceError: a pass gives wrong results on `module`, where it stands.
    """
    place = module.place
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
            raise PlaceError(
                f"{min(wrong)!r} gives wrong results here, {reason}: XLA runs it "
                f"{when} only"
            )
    return _with_layouts(pipeline)


def _with_layouts(pipeline: Pipeline) -> Pipeline:
    passes: list[Pass | Pipeline] = []
    for each in pipeline.passes:
        if isinstance(each, Pipeline):
            passes.append(_with_layouts(each))
            continue
        given = dict(each.options)
        for option in describe_pass(each.name).options:
            if option.name in ("is_layout_sensitive", "layout_sensitive"):
                given.setdefault(option.name, True)
        passes.append(Pass(each.name, **given))
    return dataclasses.replace(pipeline, passes=tuple(passes))


def needs_layouts(pipeline: Pipeline) -> bool:
    """Whether XLA can use what `pipeline` makes only after layout assignment."""
    return bool(pass_names([pipeline]) & _AFTER_LAYOUT_ASSIGNMENT)


def replay(
    trace: Trace | str | os.PathLike[str],
    module: HloModule | str | os.PathLike[str],
) -> HloEnv:
    """Repeats an episode.

    Args:
        trace: a Trace, or a path to a saved one.
        module: the module that the episode started with.

    Returns:
        The environment at the end of the episode.

    Raises:
        TraceError: `module` is another one, or the steps lead elsewhere than they
            did, as with another version of XLA.
    """
    if not isinstance(trace, Trace):
        trace = Trace.load(trace)
    env = HloEnv(module)
    if ModuleId.of(env.module) != trace.start:
        raise TraceError(
            f"the trace starts from the module with fingerprint "
            f"{trace.start.fingerprint} and text hash {trace.start.text_sha256[:12]}, "
            f"but this one has {env.module.fingerprint()} and "
            f"{ModuleId.of(env.module).text_sha256[:12]}"
        )
    for step in trace.steps:
        pipelines = [Pipeline.from_json(each) for each in step.passes]
        if step.kind == "run":
            env.run(*pipelines)
        elif step.kind == "run-until" and step.place is not None:
            where, occurrence = step.place
            env.run_until(where, occurrence=occurrence)
        elif step.kind == "decide":
            env.get_alternatives(*pipelines)
            env.apply_alternatives(step.decisions)
        else:
            raise TraceError(
                f"unknown step {step.kind!r}; this version knows run, run-until and "
                "decide"
            )
    if ModuleId.of(env.module) != trace.end:
        raise TraceError(
            f"the steps lead to a module with fingerprint {env.fingerprint()}, but the "
            f"trace ended at {trace.end.fingerprint}; it was made with the XLA of "
            f"TensorFlow {trace.tensorflow}, this is {core.tensorflow_version}"
        )
    return env
