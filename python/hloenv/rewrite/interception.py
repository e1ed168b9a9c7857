# SPDX-License-Identifier: Apache-2.0
"""XLA's own compiler, paused in front of each of its passes.

    with hloenv.intercept(module, target="cpu") as pipeline:
        for stage in pipeline:
            alternatives = stage.get_alternatives()
            stage.apply_alternatives(policy(alternatives))
    optimized = pipeline.module

Every pass of the production pipeline, in its real place, as the compiler itself made
it: passes that no catalog holds, too, and those of XLA's GPU compiler without a GPU.
"""

from __future__ import annotations

import os
import warnings
import weakref
from collections.abc import Iterator
from types import TracebackType
from typing import TYPE_CHECKING

from .._native import core
from ..errors import HloEnvError, InterceptError, PositionError, PositionWarning
from ..hlo.module import HloModule, as_module
from ..hlo.passes import as_pipeline, to_core
from ..hlo.pipeline import needed_passes
from .alternatives import Alternatives, Decisions, as_decisions

if TYPE_CHECKING:
    from ..hlo.passes import Pass, Pipeline


def gpu_targets() -> tuple[str, ...]:
    """The GPU models that `intercept` knows by name, sorted."""
    return tuple(core.gpu_target_names())


def intercept(
    module: HloModule | str | os.PathLike[str], *, target: str = "cpu"
) -> Interception:
    """Starts XLA's compiler on a module, paused in front of its first pass.

    Args:
        module: as JAX lowers it; left as it is.
        target: "cpu", a GPU model ("h100", "a100", ...; `gpu_targets()` has all), or
            the text of a GpuTargetConfigProto. GPUs need the XLA of `hloenv[cuda]`
            and no GPU.

    Returns:
        The pipeline: iterate over its stages, and close it, or use it in a `with`.

    Raises:
        TargetError: there is no such target, or this XLA cannot compile for it.
    """
    return Interception(as_module(module), target)


class LiveStage:
    """A pass that XLA's compiler is about to run.

    Attributes:
        name: XLA's name of the pass.
        path: its name behind those of the pipelines around it, joined by "/".
        index: how many stages the caller saw before it; those that `run_until` ran
            do not count.
        occurrence: which run of this name it is, from 1.
        path_occurrence: which run of this path it is, from 1.
        changed: what the pass said when it ran (or whether anything was accepted);
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

    @property
    def is_open(self) -> bool:
        """Whether the compiler still waits in front of this pass."""
        return self._pipeline._stage is self

    @property
    def module(self) -> HloModule:
        """The module as the pass will see it.

        Raises:
            InterceptError: the compiler has gone on, and nobody had looked.
        """
        if self._module is None:
            self._check_open("its module was not asked for while it waited")
            self._module = HloModule._wrap(self._pipeline._core.module())
        return self._module

    def get_alternatives(self, *others: str | Pass | Pipeline) -> Alternatives:
        """What this very pass would do. Changes nothing.

        Args:
            others: passes of hloenv's to capture along with it; competing rewrites
                become choices of one alternative. The stage's pass goes by its own
                name.

        Raises:
            InterceptError: the compiler has gone on.
            PassError: the pass fails on this module, or the module is scheduled and
                there are `others`.
        """
        self._check_open("there is nothing to capture any more")
        specs = [to_core(as_pipeline(each)) for each in others]
        return Alternatives(self._pipeline._core.capture(specs), owner=self)

    def apply_alternatives(
        self, decisions: Decisions, alternatives: Alternatives | None = None
    ) -> bool:
        """Takes decisions of the caller's in the place of the pass.

        Decisions that are just what the pass would do let it run.

        Args:
            decisions: [A] integers; 0 keeps the original.
            alternatives: of this stage's latest capture, which is the default.

        Returns:
            Whether anything changed, which is what the compiler is told.

        Raises:
            DecisionError: wrong length, type or range; or a whole pass is accepted
                that is not the stage's own.
            InterceptError: the compiler has gone on.
            StaleAlternativesError: they are of another capture.
        """
        self._check_open("nothing can be decided any more")
        array = as_decisions(decisions)
        if not isinstance(alternatives, Alternatives | None):
            raise TypeError(
                "alternatives are what get_alternatives() returned, not "
                f"{type(alternatives).__name__}"
            )
        capture = None if alternatives is None else alternatives._capture
        try:
            self._pipeline._core.apply(capture, array.tolist())
        except HloEnvError:
            if not self._pipeline._core.is_paused():
                self._pipeline._stage = None  # the module was lost half-way
            raise
        return self._answered()

    def run(self) -> bool:
        """Lets the pass run; returns whether it says that it changed something.

        Raises:
            InterceptError: the compiler has gone on.
            CompileError: the pass failed, which ends the compile.
        """
        self._check_open("it cannot run again")
        self._pipeline._core.run()
        return self._answered()

    def skip(self) -> None:
        """Leaves the pass out; the compiler is told that nothing changed.

        What comes later may rely on it: XLA may fail, and in rare cases never end,
        without a pass that `needed_passes()` lists; a PositionWarning says so.

        Raises:
            InterceptError: the compiler has gone on.
        """
        self._check_open("it cannot be skipped any more")
        if self.name in {each.name for each in needed_passes()}:
            warnings.warn(
                f"XLA cannot do without {self.name!r}, and may fail or never end",
                PositionWarning,
                stacklevel=2,
            )
        self._pipeline._core.skip()
        self._answered()

    def _answered(self) -> bool:
        self._pipeline._advance()
        self.changed = self._pipeline._core.last_changed()
        return self.changed

    def _check_open(self, consequence: str) -> None:
        if not self.is_open:
            raise InterceptError(
                f"the compiler has gone on from stage {self.index} ({self.path}); "
                f"{consequence}"
            )

    def __repr__(self) -> str:
        state = "waiting" if self.is_open else f"changed={self.changed}"
        return f"<stage {self.index}: {self.path} ({self.occurrence}), {state}>"


class Interception:
    """A compile that waits for answers; see `intercept`.

    Iterating gives the stages in order. A stage that the loop leaves unanswered runs.
    """

    def __init__(self, module: HloModule, target: str) -> None:
        """Starts the compile; use `intercept`."""
        self.target = target
        self._core = core.Interception(module._core, target)
        self._module: HloModule | None = None
        self._num_stages = 0
        self._is_waiting = False
        self._stage: LiveStage | None = None
        # Also at exit: a thread must not outlive what it works with.
        self._finalizer = weakref.finalize(self, self._core.close)
        try:
            self._advance()
        except BaseException:
            self.close()
            raise

    @property
    def stage(self) -> LiveStage | None:
        """The stage that waits; None when the pipeline has ended."""
        self._catch_up()
        return self._stage

    @property
    def module(self) -> HloModule:
        """The optimized module, ready for the target's backend.

        Raises:
            InterceptError: the pipeline has not ended, or was closed.
            CompileError: a pass failed.
        """
        if self._module is None:
            self._module = HloModule._wrap(self._core.result())
        return self._module

    def run_until(self, where: str, *, occurrence: int = 1) -> LiveStage:
        """Runs the waiting pass and all others natively up to a stage.

        Args:
            where: name or end of the path of a pass, or of a pipeline, which stands
                for its first pass.
            occurrence: which arrival there, counted from here, from 1.

        Raises:
            PositionError: the pipeline ended without coming by.
        """
        if not where.strip("/") or occurrence < 1:
            raise PositionError(
                "run_until takes the name or path of a pass and an occurrence from 1, "
                f"not {where!r} and {occurrence}"
            )
        self._catch_up()
        if self._stage is None:
            raise InterceptError("XLA's pipeline has ended; there is nothing to run")
        self._core.run_until(where, occurrence)
        self._advance()
        if self._stage is None:
            raise PositionError(
                f"XLA's pipeline for target {self.target!r} ended without coming by "
                f"{where!r} {'again' if occurrence == 1 else f'{occurrence} times'}"
            )
        return self._stage

    def finish(self) -> HloModule:
        """Runs all that is left natively; returns the optimized module.

        Raises:
            CompileError: a pass failed.
        """
        self._catch_up()
        if self._stage is not None:
            self._core.finish()
            self._advance()
        return self.module

    def close(self) -> None:
        """Ends the compile in front of its next pass, if it has not ended."""
        self._stage = None
        self._is_waiting = False
        self._finalizer()

    def _advance(self) -> None:
        """Waits for the next stage."""
        self._stage = None
        self._is_waiting = True
        self._catch_up()

    def _catch_up(self) -> None:
        """Waits, unless that has been done; Ctrl-C may have ended an earlier wait."""
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
