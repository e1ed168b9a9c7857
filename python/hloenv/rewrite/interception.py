# SPDX-License-Identifier: Apache-2.0
"""XLA's own compiler, paused before each of its passes.

    with hloenv.intercept(module, target="cpu") as pipeline:
        for stage in pipeline:
            alternatives = stage.get_alternatives()
            stage.apply_alternatives(policy(alternatives))
    optimized = pipeline.module

Every pass of the production pipeline, at its position in the pipeline, as the compiler
constructed it: also passes that `list_passes` lacks, and those of XLA's GPU compiler,
without a GPU.
"""

from __future__ import annotations

import os
import warnings
import weakref
from collections.abc import Iterator
from types import TracebackType
from typing import TYPE_CHECKING

from .._native import core
from .._typing import Int64Array
from ..errors import (
    HloEnvError,
    InterceptError,
    PositionError,
    PositionWarning,
    StaleAlternativesError,
)
from ..hlo.module import HloModule, as_module
from ..hlo.passes import as_pipeline, to_core
from ..hlo.pipeline import is_needed
from ..hlo.position import PipelinePosition
from .alternatives import Alternatives, Decisions, as_decisions
from .given_graph import GivenGraph
from .placement import at_place

if TYPE_CHECKING:
    from ..hlo.passes import Pass, Pipeline


# Without rewrites of these, later passes of XLA's GPU compiler end the process:
# "Check failed: ReductionIsRaceFree", "sorted_dims_to_reduce.size() <= 2".
_NEEDED_ON_GPUS = frozenset({"reduction-dimension-grouper", "tree-reduction-rewriter"})


def gpu_targets() -> tuple[str, ...]:
    """Names of the GPU models that `intercept` supports, sorted."""
    return tuple(core.gpu_target_names())


def intercept(
    module: HloModule | str | os.PathLike[str], *, target: str = "cpu"
) -> Interception:
    """Starts XLA's compiler on a module, paused before its first pass.

    Args:
        module: as JAX lowers it; not modified.
        target: "cpu", a GPU model ("h100", "a100", ...; `gpu_targets()` has all), or
            the text of a GpuTargetConfigProto. GPUs need the XLA of `hloenv[cuda]`
            and no GPU.

    Returns:
        The pipeline: iterate over its stages, and close it, or use it in a `with`.

    Raises:
        TargetError: the target does not exist, or this XLA cannot compile for it.
    """
    return Interception(as_module(module), target)


class LiveStage:
    """A pass that XLA's compiler is about to run.

    Attributes:
        name: XLA's name of the pass.
        path: its name after those of the enclosing pipelines, joined by "/".
        index: number of stages that the caller saw before it, without those that
            `run_until` ran.
        occurrence: number of the run of this name, from 1.
        path_occurrence: number of the run of this path, from 1.
        changed: whether the pass reported a change (or a decision was accepted);
            None until then.
    """

    def __init__(
        self,
        pipeline: Interception,
        index: int,
        arrival: tuple[str, str, int, int],
    ) -> None:
        self._pipeline = pipeline
        self._module: HloModule | None = None
        self.index = index
        self.name, self.path, self.occurrence, self.path_occurrence = arrival
        self.changed: bool | None = None
        # The pass's own decisions in the latest capture, where it must not reject any.
        self._wanted: Int64Array | None = None

    @property
    def is_open(self) -> bool:
        """Whether the compiler is still paused before this pass."""
        return self._pipeline._stage is self

    @property
    def module(self) -> HloModule:
        """The input of the pass.

        Raises:
            InterceptError: the compiler has continued, and `module` was not read
                before.
        """
        if self._module is None:
            self._check_open("read `module` while the stage is open")
            self._module = HloModule._wrap(self._pipeline._core.module())
        return self._module

    def get_alternatives(self, *others: str | Pass | Pipeline) -> Alternatives:
        """The rewrites of this pass. Leaves the module unchanged.

        Args:
            others: passes to capture jointly with it; competing rewrites become
                choices of one alternative. The stage's pass has its own name.

        Raises:
            InterceptError: the compiler has continued.
            PassError: the pass fails on this module, or the module is scheduled and
                there are `others`.
            PositionError: one of `others` gives wrong results at this stage.
        """
        self._check_open("capture while the stage is open")
        place = None
        if self._pipeline.target == "cpu":
            place = PipelinePosition(self.path, self.path_occurrence, "")
        specs = [
            to_core(at_place(as_pipeline(each), self.module, place), self.module)
            for each in others
        ]
        alternatives = Alternatives(self._pipeline._core.capture(specs), owner=self)
        if self._is_needed_on_gpus():
            self._wanted = alternatives.decisions_for(self.name)
        return alternatives

    def apply_alternatives(
        self, decisions: Decisions, alternatives: Alternatives | None = None
    ) -> bool:
        """Applies decisions instead of the pass.

        If the decisions equal those of the pass, the pass runs. XLA's GPU compiler may
        end the process without a rewrite of "reduction-dimension-grouper" or
        "tree-reduction-rewriter"; a PositionWarning says so.

        Args:
            decisions: [A] integers; 0 keeps the original.
            alternatives: of this stage's latest capture, which is the default.

        Returns:
            Whether the module changed, as reported to the compiler.

        Raises:
            DecisionError: wrong length, type or range; or an indivisible pass other
                than the stage's own is accepted.
            InterceptError: the compiler has continued.
            StaleAlternativesError: they belong to another capture.
        """
        self._check_open("decide while the stage is open")
        array = as_decisions(decisions)
        if not isinstance(alternatives, Alternatives | None):
            raise TypeError(
                "alternatives must be the result of get_alternatives(), got "
                f"{type(alternatives).__name__}"
            )
        capture = None if alternatives is None else alternatives._capture
        if isinstance(capture, GivenGraph):
            raise StaleAlternativesError(
                f"{alternatives!r} are not of this stage; call get_alternatives()"
            )
        wanted = self._wanted
        if (
            self._is_needed_on_gpus()
            and wanted is not None
            and wanted.shape == array.shape
            and ((wanted != 0) & (array != wanted)).any()
        ):
            self._warn(f"rewrites of {self.name!r} are rejected")
        try:
            self._pipeline._core.apply(capture, array.tolist())
        except HloEnvError:
            if not self._pipeline._core.is_paused():
                self._pipeline._stage = None  # the module is in an undefined state
            raise
        return self._answered()

    def run(self) -> bool:
        """Runs the pass; returns whether it reports a change.

        Raises:
            InterceptError: the compiler has continued.
            CompileError: the pass failed, which ends the compile.
        """
        self._check_open("run the pass while the stage is open")
        self._pipeline._core.run()
        return self._answered()

    def skip(self) -> None:
        """Skips the pass and reports no change to the compiler.

        Later passes may depend on it: without a pass that `needed_passes()` lists, XLA
        may fail, compute other values or, in rare cases, not terminate, and its GPU
        compiler may end the process; a PositionWarning says so.

        Raises:
            InterceptError: the compiler has continued.
        """
        self._check_open("skip the pass while the stage is open")
        if self._is_needed_on_gpus():
            self._warn(f"the pass {self.name!r} is skipped")
        elif is_needed(self.name):
            warnings.warn(
                f"XLA requires the skipped pass {self.name!r}: it may fail, compute "
                "other values or not terminate; run the pass instead",
                PositionWarning,
                stacklevel=2,
            )
        self._pipeline._core.skip()
        self._answered()

    def _is_needed_on_gpus(self) -> bool:
        return self._pipeline.target != "cpu" and self.name in _NEEDED_ON_GPUS

    def _warn(self, what: str) -> None:
        warnings.warn(
            f"{what}: XLA's GPU compiler may end the process without them; run the "
            "pass, or decide in a child process",
            PositionWarning,
            stacklevel=3,
        )

    def _answered(self) -> bool:
        self._pipeline._advance()
        self.changed = self._pipeline._core.last_changed()
        return self.changed

    def _check_open(self, consequence: str) -> None:
        if not self.is_open:
            raise InterceptError(
                f"the compiler is past stage {self.index} ({self.path}); {consequence}"
            )

    def __repr__(self) -> str:
        state = "paused" if self.is_open else f"changed={self.changed}"
        return f"<stage {self.index}: {self.path} ({self.occurrence}), {state}>"


class Interception:
    """A compile that pauses before each pass; see `intercept`.

    Iterating gives the stages in order. A stage without a decision runs natively.
    """

    def __init__(self, module: HloModule, target: str) -> None:
        """Starts the compile; use `intercept`."""
        self.target = target
        self._core = core.Interception(module._core, target)
        self._module: HloModule | None = None
        self._num_stages = 0
        self._is_waiting = False
        self._stage: LiveStage | None = None
        # Also at exit: the compile's thread must not outlive its data.
        self._finalizer = weakref.finalize(self, self._core.close)
        try:
            self._advance()
        except BaseException:
            self.close()
            raise

    @property
    def stage(self) -> LiveStage | None:
        """The paused stage; None after the end of the pipeline."""
        self._catch_up()
        return self._stage

    @property
    def module(self) -> HloModule:
        """The optimized module, ready for the target's backend.

        A CPU's is final: `compile` and `measure` take it with `finish="none"`.

        Raises:
            InterceptError: the pipeline has not ended, or was closed.
            CompileError: a pass failed.
        """
        if self._module is None:
            self._module = HloModule._wrap(self._core.result())
        return self._module

    def run_until(self, where: str, *, occurrence: int = 1) -> LiveStage:
        """Runs the paused pass and all later ones natively up to a stage.

        Args:
            where: name or end of the path of a pass, or of a pipeline, which means
                its first pass.
            occurrence: how often the pipeline reaches it from here, from 1.

        Raises:
            PositionError: the pipeline does not reach the stage.
        """
        if not where.strip("/") or occurrence < 1:
            raise PositionError(
                "run_until needs the name or path of a pass and an occurrence >= 1, "
                f"got {where!r} and {occurrence}"
            )
        self._catch_up()
        if self._stage is None:
            raise InterceptError("XLA's pipeline has ended; call intercept again")
        self._core.run_until(where, occurrence)
        self._advance()
        if self._stage is None:
            raise PositionError(
                f"XLA's pipeline for target {self.target!r} did not reach {where!r} "
                f"{'again' if occurrence == 1 else f'{occurrence} more times'}; "
                "iterate over the stages to see their paths"
            )
        return self._stage

    def finish(self) -> HloModule:
        """Runs all remaining passes natively; returns the optimized module.

        Raises:
            CompileError: a pass failed.
        """
        self._catch_up()
        if self._stage is not None:
            self._core.finish()
            self._advance()
        return self.module

    def close(self) -> None:
        """Ends the compile before its next pass, if it has not ended."""
        self._stage = None
        self._is_waiting = False
        self._finalizer()

    def _advance(self) -> None:
        """Waits for the next stage."""
        self._stage = None
        self._is_waiting = True
        self._catch_up()

    def _catch_up(self) -> None:
        """Waits for the next stage, also after Ctrl-C has interrupted a wait."""
        if not self._is_waiting:
            return
        arrival = self._core.wait()
        self._is_waiting = False
        if arrival is not None:
            self._stage = LiveStage(self, self._num_stages, arrival)
            self._num_stages += 1

    def __iter__(self) -> Iterator[LiveStage]:
        while (stage := self.stage) is not None:
            yield stage
            if stage.is_open:
                stage.run()

    def __enter__(self) -> Interception:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        where = "at its end" if self._stage is None else f"before {self._stage.path}"
        return f"<XLA's pipeline for {self.target}, {where}>"
