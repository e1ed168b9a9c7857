# SPDX-License-Identifier: Apache-2.0
"""The decided versions of a function, used or not."""

from __future__ import annotations

from dataclasses import replace

from .decide import Decided
from .explain import signature_text
from .stages import Stages


class Considered(list[Decided]):
    """The last decided versions of a function, in order."""

    def leave(self, decided: Decided, reason: str) -> None:
        """Appends a version that is not used."""
        self.append(replace(decided, is_used=False, reason=reason))

    def sign(self, begin: int, stages: Stages) -> None:
        """Notes the types of the arguments in the versions from `begin` on."""
        types = signature_text(stages.traced.jaxpr.in_avals)
        self[begin:] = [
            replace(each, signature=types).without_large_modules()
            for each in self[begin:]
        ]

    def leave_alone(self, stages: Stages, reason: str) -> None:
        """Appends that a signature stays plain, of which no version was made."""
        self.leave(Decided.nothing(), reason)
        self.sign(-1, stages)
