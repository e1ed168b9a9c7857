# SPDX-License-Identifier: Apache-2.0
"""Pass ordering: which pass next, until the agent stops."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from gymnasium import spaces

from ..errors import ArgumentError
from ..hlo.module import HloModule
from ..hlo.pass_text import parse_pass
from ..hlo.passes import Pass, Pipeline
from .base import CompilerEnv

DEFAULT_BENCHMARK = "hloenv://dataset/train?max_instructions=1000"


@cache
def target_independent_passes() -> dict[str, str]:
    """XLA's target-independent passes, sorted; each with why it is one."""
    path = Path(__file__).with_name("pass_order.json")
    rows = json.loads(path.read_text(encoding="utf-8"))
    return {row["pass"]: row["why"] for row in rows}


class PassOrderEnv(CompilerEnv):
    """Orders XLA's target-independent passes on one module.

    ## Action space
    `Discrete(number of passes + 1)`: the pass to run next; the last action ends the
    episode. By default the passes are those of `target_independent_passes()`. With
    `has_undo`, one more action takes the step before it back.

    ## Observation space
    The one named by `observation`: `hloenv.envs.list_observations()`.

    ## Starting state
    A module of `benchmark`, drawn at random, before any pass;
    `reset(options={"benchmark": uri})` chooses one.

    ## Rewards
    The one named by `reward`: `hloenv.envs.list_rewards()`. More is better.

    ## Episode end
    `terminated` after the action "stop", or when a pass fails (`info["error"]`);
    `truncated` after `max_steps` actions (`terminated`, where the reward is paid at
    the end only).

    ## Information
    `benchmark` (URI), `op_count` (instructions of the module), `changed` (whether the
    step changed it), `action_mask` (0 for passes known to change nothing here), and
    `error` where a pass failed. The reward "runtime" adds `runtime`.

    ## Arguments
    See `__init__`.

    ## Version history
    v0: first version.
    """

    def __init__(
        self,
        benchmark: str | HloModule = DEFAULT_BENCHMARK,
        *,
        observation: str = "op_counts_normalized",
        reward: str = "op_count_delta",
        passes: Sequence[str | Pass | Pipeline] | None = None,
        max_steps: int = 45,
        isolate: bool | None = None,
        dry_run: bool = False,
        has_undo: bool = False,
        render_mode: str | None = None,
    ) -> None:
        """Makes the environment.

        Args:
            benchmark: URI of the modules that episodes start from, or a module.
            observation: name of the observation.
            reward: name of the reward.
            passes: the actions: passes, pipelines, or their texts as of --pass, such
                as "algsimp:is_layout_sensitive=true".
            max_steps: actions after which an episode is truncated.
            isolate: whether passes run in a child process, so that a pass that crashes
                XLA ends the episode and not this process; by default, for modules that
                are not of the dataset. Estimates of cost run in this process.
            dry_run: whether every pass is tried on every module, for exact action
                masks; without it, a pass is masked once it has changed nothing in
                the episode.
            has_undo: whether a last action takes the step before it back.
            render_mode: None, "ansi" or "rgb_array".

        Raises:
            ArgumentError: no such benchmark, observation or reward; no passes.
            UnknownPassError, PassOptionError: no such pass or option.
        """
        given = target_independent_passes() if passes is None else passes
        actions = [
            parse_pass(each) if isinstance(each, str) else each for each in given
        ]
        if not actions:
            raise ArgumentError("passes must name at least one pass, got none")
        self.action_space = spaces.Discrete(len(actions) + 1 + has_undo)
        super().__init__(
            actions,
            benchmark=benchmark,
            observation=observation,
            reward=reward,
            max_steps=max_steps,
            isolate=isolate,
            dry_run=dry_run,
            has_undo=has_undo,
            render_mode=render_mode,
        )
