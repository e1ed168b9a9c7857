# SPDX-License-Identifier: Apache-2.0
"""What a policy is, and XLA's own pass among the captured ones."""

from __future__ import annotations

from typing import Protocol

from ..errors import UnknownPassError
from ..hlo.passes import describe_pass
from .alternatives import Alternatives, Decisions


def xla_pass(alternatives: Alternatives) -> str:
    """The first captured pass that is XLA's own and no candidate pass; "" for none."""
    for name in alternatives.pass_names:
        try:
            is_candidate = describe_pass(name).candidate
        except UnknownPassError:
            # A pipeline, or a pass that only XLA's own compiler has.
            is_candidate = False
        if not is_candidate:
            return name
    return ""


class Policy(Protocol):
    """Decides what a dry run found.

    A policy may keep state from call to call (a random generator, a budget) but not
    change the alternatives. One that draws random numbers takes its seed where it is
    made, so that the same seed gives the same decisions.
    """

    def __call__(self, alternatives: Alternatives, /) -> Decisions:
        """[A] integers, the choice taken at each alternative; 0 is the original."""
        ...
