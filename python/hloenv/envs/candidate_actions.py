# SPDX-License-Identifier: Apache-2.0
"""Actions of environments in which an action takes one of a state's candidates."""

from __future__ import annotations

from typing import Any, ClassVar

from ..errors import ArgumentError


class CandidateActions:
    """Action 0, which takes no candidate, and 1 + c, which takes candidate c.

    Attributes:
        NO_CANDIDATE: name of action 0.
        max_candidates: candidates of the declared action space.
    """

    NO_CANDIDATE: ClassVar[str]
    max_candidates: int

    @property
    def num_actions(self) -> int:
        """Number of actions."""
        return self.max_candidates + 1

    def action_name(self, action: Any) -> str:
        """Name of an action."""
        return f"candidate-{action - 1}" if action else self.NO_CANDIDATE

    def action_of(self, name: str) -> int:
        """The action of a name.

        Raises:
            ArgumentError: no action has it.
        """
        head, _, number = name.partition("-")
        if name == self.NO_CANDIDATE:
            return 0
        if head == "candidate" and number.isascii() and number.isdecimal():
            return int(number) + 1
        raise ArgumentError(
            f"the state has the action {name!r}; actions here are {self.NO_CANDIDATE} "
            "and candidate-N"
        )
