# SPDX-License-Identifier: Apache-2.0
"""What observations and rewards see of an environment."""

from __future__ import annotations

from typing import Any

from ..hlo.module import HloModule
from ..hlo.passes import Pass, Pipeline
from .pass_memo import Node, PassMemo


class Episode:
    """The module of an episode, and how it got there.

    Attributes:
        passes: the actions but for the last one, which ends the episode.
        max_steps: actions after which the episode is truncated.
        memo: the results of passes; forks share it.
        start: the node that the episode started from.
        node: the node now.
        previous: the node before the last step.
        actions: numbers of the actions so far.
        is_over: whether the episode has ended.
        error: why it ended, if a pass failed.
        extra_info: what rewards add to the `info` of a step.
    """

    passes: tuple[Pass | Pipeline, ...]
    max_steps: int
    memo: PassMemo
    start: Node
    node: Node
    previous: Node
    actions: list[int]
    is_over: bool
    error: str
    extra_info: dict[str, Any]

    @property
    def num_actions(self) -> int:
        """Number of actions, the one that ends the episode included."""
        return len(self.passes) + 1

    @property
    def module(self) -> HloModule:
        """The module now."""
        return self.memo.module(self.node)

    def action_name(self, action: int) -> str:
        """Name of an action."""
        return self.passes[action].name if action < len(self.passes) else "stop"

    @property
    def action_names(self) -> list[str]:
        """Names of the actions so far."""
        return [self.action_name(each) for each in self.actions]
