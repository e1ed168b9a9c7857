# SPDX-License-Identifier: Apache-2.0
"""The protocol of policies, and XLA's own pass among the captured ones."""

from __future__ import annotations

from typing import Protocol

from ..errors import UnknownPassError
from ..hlo.passes import describe_pass
from .alternatives import Alternatives, Decisions


def xla_pass(alternatives: Alternatives) -> str:
    """The first captured pass of XLA that is not a candidate pass; "" for none."""
    for name in alternatives.pass_names:
        try:
            is_candidate = describe_pass(name).candidate
        except UnknownPassError:
            # A pipeline, a compiler-owned pass, or another program's name for itself.
            is_candidate = alternatives._given is not None
        if not is_candidate:
            return name
    return ""


class Policy(Protocol):
    """Maps the alternatives of a capture to decisions.

    A policy may keep state between calls (a random generator, a budget) but must not
    change the alternatives. A random policy takes its seed at construction, so that
    the same seed gives the same decisions.
    """

    def __call__(self, alternatives: Alternatives, /) -> Decisions:
        """[A] integers, the choice at each alternative; 0 is the original."""
        ...
