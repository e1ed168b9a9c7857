# SPDX-License-Identifier: Apache-2.0
"""What observations and rewards see of an environment."""

from __future__ import annotations

from typing import Any

from ..errors import ArgumentError, ForkError, HloEnvError
from ..hlo.module import HloModule, ModuleCost
from ..hlo.pass_text import spelled
from ..hlo.passes import Pass, Pipeline
from .pass_memo import Node, PassMemo, Runner


class EpisodeOverError(HloEnvError, RuntimeError):
    """`step` was called before `reset`, or after the episode had ended."""


class Episode:
    """The module of an episode, and how it got there.

    Attributes:
        passes: the first actions. The next one, "stop", ends the episode; where
            `has_undo`, one more takes the step before it back.
        has_undo: whether there is this action.
        max_steps: actions after which the episode is truncated.
        memo: the results of passes; forks share it.
        start: the node that the episode started from.
        node: the node now.
        previous: the node before the last step.
        nodes: the start's, and those after each action.
        actions: numbers of the actions so far.
        is_over: whether the episode has ended.
        error: why it ended, if a pass failed.
        extra_info: what rewards add to the `info` of a step.
        measured: log of the speed-up over the start at the last measurement.
        measured_node: the node of this measurement; at first the start's.
    """

    passes: tuple[Pass | Pipeline, ...]
    has_undo: bool
    max_steps: int
    memo: PassMemo
    start: Node
    node: Node
    previous: Node
    nodes: list[Node]
    actions: list[Any]
    is_over: bool
    error: str
    extra_info: dict[str, Any]
    measured: float
    measured_node: Node

    @property
    def num_actions(self) -> int:
        """Number of actions."""
        return len(self.passes) + 1 + self.has_undo

    @property
    def module(self) -> HloModule:
        """The module now.

        Raises:
            EpisodeOverError: before the first `reset`.
        """
        self.check_begun()
        return self.module_of(self.node)

    def module_of(self, node: Node) -> HloModule:
        """The module of a node."""
        return self.memo.module(node, self.runner())

    def cost_of(self, node: Node) -> ModuleCost:
        """XLA's cost analysis of a node's module."""
        return self.memo.cost(node, self.runner())

    def following(self, number: int, node: Node | None = None) -> Node:
        """The node after a pass on `node`, by default the node now.

        `node` itself, if the pass fails or changes nothing.

        Raises:
            ForkError: XLA cannot run in this process.
        """
        node = node or self.node
        try:
            return self.memo.run(node, number, self.runner())
        except ForkError:
            raise
        except HloEnvError:
            return node

    def runner(self) -> Runner:
        """What runs passes: in this process, or in a child process."""
        raise NotImplementedError

    def check_begun(self) -> Any:
        """Raises EpisodeOverError before the first `reset`."""
        raise NotImplementedError

    def action_name(self, action: Any) -> str:
        """Name of an action."""
        if action < len(self.passes):
            return spelled(self.passes[action])
        return "stop" if action == len(self.passes) else "undo"

    def action_of(self, name: str) -> Any:
        """The action of a name.

        Raises:
            ArgumentError: no action has it.
        """
        names = [self.action_name(each) for each in range(self.num_actions)]
        if name not in names:
            raise ArgumentError(
                f"there is no action {name!r}; this environment has {', '.join(names)}"
            )
        return names.index(name)

    @property
    def action_names(self) -> list[str]:
        """Names of the actions so far."""
        return [self.action_name(each) for each in self.actions]
