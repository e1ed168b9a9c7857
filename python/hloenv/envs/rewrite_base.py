# SPDX-License-Identifier: Apache-2.0
"""What the environments of rewrites share: decision points, captures, rounds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .._typing import BoolArray, Int64Array
from ..dataset.benchmarks import SCHEME, Benchmark
from ..errors import ArgumentError
from ..hlo.module import HloModule, identity
from ..hlo.passes import run_passes
from ..rewrite.game import DecisionPoint, Prefix
from ..rewrite.trace import Trace
from ..search.spaces import get_space
from .base import CompilerEnv
from .candidates import Candidates, CandidateTable
from .game_memo import GameMemo, Play
from .pass_memo import Node, Runner

# Of the environments of rewrites and substitutions.
DEFAULT_BENCHMARK = f"{SCHEME}dataset/train?max_instructions=600"


class RewriteBase(CompilerEnv):
    """What both environments share.

    Attributes:
        stops: the decision points.
        max_rows: rows of the observation "candidates".
        games: captures and decided modules; forks share them.
    """

    def __init__(
        self,
        space: str | Sequence[DecisionPoint],
        *,
        benchmark: str | HloModule,
        observation: str,
        reward: str,
        max_steps: int | None,
        max_rows: int,
        render_mode: str | None,
    ) -> None:
        """Checks the arguments; `reset` reads the first module."""
        stops = get_space(space).stops if isinstance(space, str) else tuple(space)
        if not stops:
            raise ArgumentError(
                f"the space {space!r} has no decision points that can be visited one "
                "after the other; use another space, or give DecisionPoints"
            )
        self.stops = stops
        self.max_rows = max_rows
        self.games = GameMemo(stops)
        self._prefix: Prefix = ()
        self._decisions: Int64Array = np.zeros(0, np.int64)
        # Of the alternatives of this round.
        self._is_decided: BoolArray = np.zeros(0, np.bool_)
        super().__init__(
            (),
            benchmark=benchmark,
            observation=observation,
            reward=reward,
            max_steps=len(stops) if max_steps is None else max_steps,
            isolate=False,
            dry_run=False,
            has_undo=False,
            render_mode=render_mode,
        )

    # --- for observations and agents

    @property
    def play(self) -> Play:
        """The game of the module of the episode.

        Raises:
            EpisodeOverError: before the first `reset`.
        """
        self.check_begun()
        return self._play

    @property
    def round(self) -> int:
        """Decision points that are behind; all of them, at the end."""
        return len(self._prefix)

    @property
    def is_complete(self) -> bool:
        """Whether all decision points are behind."""
        return self.round == len(self.stops)

    @property
    def decisions(self) -> Int64Array:
        """[A] decisions at this decision point so far; XLA's own at first."""
        return self._decisions

    def table(self) -> CandidateTable:
        """The alternatives of this decision point.

        Raises:
            ArgumentError: all decision points are behind.
        """
        return self.play.table(self._prefix)

    def candidates(self) -> Candidates | None:
        """The rows of this decision point; None at the end, or where a pass failed."""
        if self.is_complete or self.error:
            return None
        return self._rows()

    @property
    def prefix(self) -> Prefix:
        """The decisions at all points so far, those of this round included."""
        if self.is_complete or self.error:
            return self._prefix
        return (*self._prefix, self._decisions)

    @property
    def trace(self) -> Trace:
        """The episode as a trace that can be saved and replayed anywhere."""
        game = self.play.game
        return game.episode(game.complete(self.prefix)).trace

    # --- parts of CompilerEnv

    def runner(self) -> Runner:
        """Captures run in this process."""
        return run_passes

    def commandline(self) -> str:
        """There is none: decisions are in `trace`.

        Raises:
            ArgumentError: always.
        """
        raise ArgumentError(
            "decisions cannot be given on a command line; save the trace of the "
            "episode, env.trace.save(TRACE), for `hloenv apply TRACE`"
        )

    def fork(self) -> RewriteBase:
        """Another environment in the same state, which shares the captures."""
        twin = super().fork()
        assert isinstance(twin, RewriteBase)
        twin._is_decided = self._is_decided.copy()
        return twin

    def _fresh(self) -> RewriteBase:
        twin = super()._fresh()
        assert isinstance(twin, RewriteBase)
        twin.games = GameMemo(self.stops)
        return twin

    def _start(self, benchmark: Benchmark) -> Node:
        self._play = self.games.play(benchmark.load())
        self._prefix = ()
        self._arrive()
        return self._play.start

    def _arrive(self) -> None:
        """Goes on to a decision point that has alternatives, or behind the last."""
        self._decisions = np.zeros(0, np.int64)  # also where a pass fails here
        while not self.is_complete:
            table = self._play.table(self._prefix)
            self._decisions = table.default
            self._is_decided = np.zeros(len(table.default), np.bool_)
            if len(table.default):
                return
            self._prefix = (*self._prefix, table.default)
            self._decisions = np.zeros(0, np.int64)

    def _end_round(self) -> None:
        self._prefix = (*self._prefix, self._decisions)
        self._arrive()

    def _mark(self) -> Any:
        return super()._mark(), self._prefix, self._decisions, self._is_decided.copy()

    def _return_to(self, mark: Any) -> None:
        own, self._prefix, self._decisions, self._is_decided = mark
        super()._return_to(own)

    def _take(self, decisions: Int64Array) -> None:
        """Changes the module, if these decisions change it."""
        if not np.array_equal(decisions, self._decisions):
            self.node = self._play.node(self._prefix, decisions)
            self._decisions = decisions

    def _is_stop(self, action: Any) -> bool:  # noqa: ARG002
        return self.is_complete

    def _rows(self) -> Candidates:
        return self.table().rows(self._decisions)

    def _replay(self, start: HloModule) -> tuple[HloModule, str]:
        return self._replay_steps(start)

    def _fingerprint(self, module: HloModule) -> str:
        return identity(module)

    def _info(self, *, changed: bool) -> dict[str, Any]:
        info = super()._info(changed=changed)
        count = 0 if self.error else len(self._decisions)
        return info | {"round": self.round, "alternatives": count}

    def __getstate__(self) -> dict[str, Any]:
        state = super().__getstate__()
        return {k: v for k, v in state.items() if k not in ("games", "_play")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.games = GameMemo(state["stops"])
        super().__setstate__(state)
