# SPDX-License-Identifier: Apache-2.0
"""Substitution: one rule at one place in each step, until the agent stops."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from ..dataset.benchmarks import Benchmark
from ..errors import ArgumentError
from ..hlo.module import HloModule
from ..hlo.passes import Pass, Pipeline, run_passes
from ..substitution.candidates import DEFAULT_PASSES, Candidate, Expander, Expansion
from .base import CompilerEnv
from .candidate_actions import CandidateActions
from .integers import check_limit
from .pass_memo import Node, Runner, without_dead_code
from .rewrite_base import DEFAULT_BENCHMARK

# Modules that episodes start from and that are kept.
_MAX_STARTS = 8


class SubstitutionEnv(CandidateActions, CompilerEnv):
    """Substitutes subgraphs, as X-RLflow does.

    ## Action space
    `Discrete(max_candidates + 1)`: 0 is No-Op, which ends the episode; 1 + c takes
    candidate c: a single application of one rule at one place. Candidates that give
    equal modules are one. Numbers without a candidate are masked, and change nothing.

    ## Observation space
    The one named by `observation`: "substitutions" is rows of features with a mask;
    "substitution_graph" one alternative graph with these rows, for graph networks;
    "candidate_graphs" the graphs of the module and of every candidate, as in the paper.

    ## Starting state
    A module of `benchmark`, drawn at random; `reset(options={"benchmark": uri})`
    chooses one.

    ## Rewards
    The one named by `reward`: `hloenv.envs.list_rewards()`. More is better.
    "saved:NAME" is the cost that the step saves by an estimator of `hloenv.cost`, in
    percent of the start's; "saved_measured:STEPS" the measured one, every so many steps
    and at the end, and 0.1 in between. Both are those of the paper.

    ## Episode end
    `terminated` after No-Op, when there is no candidate, or when a pass fails
    (`info["error"]`); `truncated` after `max_steps` actions.

    ## Information
    `benchmark` (URI), `op_count`, `changed`, `candidates` (their number), `failed`
    (choices that cannot be applied), `left_out` (choices beyond a limit), `rule` (of
    the step), `action_mask`, and `error` where a pass failed.

    ## Arguments
    See `__init__`.

    ## Version history
    v0: first version.
    """

    NO_CANDIDATE: ClassVar[str] = "no-op"

    def __init__(
        self,
        benchmark: str | HloModule = DEFAULT_BENCHMARK,
        *,
        observation: str = "substitutions",
        reward: str = "saved:operators",
        passes: Sequence[str | Pass | Pipeline] = DEFAULT_PASSES,
        max_steps: int = 50,
        max_candidates: int = 500,
        max_growth: float = 2.0,
        room: int = 0,
        render_mode: str | None = None,
    ) -> None:
        """Makes the environment.

        Args:
            benchmark: URI of the modules that episodes start from, or a module.
            observation: name of the observation.
            reward: name of the reward.
            passes: the candidate passes whose choices are the substitutions.
            max_steps: actions after which an episode is truncated.
            max_candidates: of one module; further ones are left out.
            max_growth: candidates with more than so many times the instructions of the
                start are left out.
            room: instructions that a candidate may add to a small module in any case.
            render_mode: None, "ansi" or "rgb_array".

        Raises:
            ArgumentError: no such benchmark, observation or reward; a limit that is too
                small.
            UnknownPassError: no such pass.
        """
        check_limit("max_candidates", max_candidates)
        self.expander = Expander(
            passes, max_candidates=max_candidates, max_growth=max_growth, room=room
        )
        self.max_candidates = max_candidates
        self.rule = ""
        # Of one node, so that an action means what was observed whatever others expand.
        self._expanded: tuple[Node, Expansion] | None = None
        # Reading a model takes as long as a step, and most agents start from few.
        self._starts: dict[str, Node] = {}
        super().__init__(
            (),
            benchmark=benchmark,
            observation=observation,
            reward=reward,
            max_steps=max_steps,
            isolate=False,
            dry_run=False,
            has_undo=False,
            render_mode=render_mode,
        )
        self.action_space = spaces.Discrete(max_candidates + 1)

    # --- for observations and agents

    def expansion(self) -> Expansion:
        """The substitutions of the module now.

        Raises:
            EpisodeOverError: before the first `reset`.
            PassError: a pass fails on the module.
        """
        self.check_begun()
        if self._expanded is None or self._expanded[0] is not self.node:
            limit = self.expander.limit(self.module_of(self.start))
            made = self.expander.expand(self.module, max_instructions=limit)
            self._expanded = self.node, made
        return self._expanded[1]

    def candidates(self) -> tuple[Candidate, ...]:
        """The candidates of the module now; none where a pass failed."""
        return () if self.error else self.expansion().candidates

    # --- parts of CompilerEnv

    def module_of(self, node: Node) -> HloModule:
        """The module of a node: that which was made, not an equal one of the memo's."""
        assert node.load is not None
        return node.load()

    def runner(self) -> Runner:
        """Captures run in this process."""
        return run_passes

    def action_masks(self) -> npt.NDArray[np.bool_]:
        """[max_candidates + 1] whether there is such a candidate; No-Op always is."""
        self.check_begun()
        masks = np.zeros(self.num_actions, np.bool_)
        masks[: 1 + len(self.candidates())] = True
        return masks

    def commandline(self) -> str:
        """There is none: substitutions have no names that a command line takes.

        Raises:
            ArgumentError: always.
        """
        raise ArgumentError(
            "substitutions cannot be given on a command line; save env.state, and "
            "repeat it with env.apply(state)"
        )

    def _start(self, benchmark: Benchmark) -> Node:
        node = self._starts.get(benchmark.uri)
        if node is None:
            node = _node(without_dead_code(benchmark.load()))
            if len(self._starts) == _MAX_STARTS:
                self._starts.pop(next(iter(self._starts)))
            self._starts[benchmark.uri] = node
        module = self.module_of(node)
        self.rule = ""
        # A pass that fails on the module fails here, not in the episode.
        self.expander.expand(module, max_instructions=self.expander.limit(module))
        return node

    def _return_to(self, mark: Any) -> None:
        super()._return_to(mark)
        self.rule = ""

    def _act(self, number: Any) -> None:
        self.rule = ""
        candidates = self.candidates()
        if 0 < number <= len(candidates):
            taken = candidates[number - 1]
            self.rule = taken.name
            self.node = _node(taken.module)

    def _is_stop(self, action: Any) -> bool:
        return bool(action == 0) or not self.candidates()

    def _fresh(self) -> SubstitutionEnv:
        twin = super()._fresh()
        assert isinstance(twin, SubstitutionEnv)
        own = self.expander
        twin.expander = Expander(
            own.passes,
            max_candidates=own.max_candidates,
            max_growth=own.max_growth,
            room=own.room,
        )
        twin._expanded = None
        twin._starts = {}
        return twin

    def __getstate__(self) -> dict[str, Any]:
        return super().__getstate__() | {"_expanded": None, "_starts": {}}

    def _replay(self, start: HloModule) -> tuple[HloModule, str]:
        return self._replay_steps(start)

    def _info(self, *, changed: bool) -> dict[str, Any]:
        info = super()._info(changed=changed)
        made = None if self.error else self.expansion()
        return info | {
            "candidates": len(made.candidates) if made else 0,
            "failed": made.num_failed if made else 0,
            "left_out": made.num_left_out if made else 0,
            "rule": self.rule,
        }


def _node(module: HloModule) -> Node:
    return Node(module, load=lambda: module)
