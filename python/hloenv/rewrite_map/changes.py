# SPDX-License-Identifier: Apache-2.0
"""What a choice of an alternative replaces, and by what."""

from __future__ import annotations

from dataclasses import dataclass

from .._typing import Float64Array
from ..cost.roofline import node_seconds
from ..hlo.text import parse_text
from ..rewrite.alternatives import Alternatives
from .classes import shape_class
from .operations import Operation, operation_of, rule_of

# Operations of a replacement that are described.
_MAX_AFTER = 8


@dataclass(frozen=True)
class Change:
    """An operation, and what replaces it.

    Attributes:
        before: the operation that is replaced; the first of several.
        after: the operations that are added, operands first; the last 8, without
            constants.
        num_after: number of operations that are added.
        value: opcode of what replaces the original.
        weight_s: time of the operations before and after by a roofline; loops count
            once.
    """

    before: Operation
    after: tuple[Operation, ...]
    num_after: int
    value: str
    weight_s: float

    @property
    def rule(self) -> str:
        """What becomes what, without shapes."""
        return rule_of(self.before, self.after, self.value)

    @property
    def shape_class(self) -> str:
        """Class of the original by type and size."""
        return shape_class(self.before)

    @property
    def after_text(self) -> str:
        """The operations that are added."""
        if not self.after:
            return f"an existing {self.value}"
        more = self.num_after - len(self.after)
        texts = [str(each) for each in self.after]
        return "; ".join([*texts, f"and {more} more"] if more else texts)


class Changes:
    """Describes the choices of alternatives."""

    def __init__(self, alternatives: Alternatives) -> None:
        """Reads the alternative graph."""
        self._alternatives = alternatives
        text = parse_text(alternatives.module.to_text())
        self._computations = text.computations
        self._places = {
            each.name: (each, computation)
            for computation in text.computations.values()
            for each in computation.instructions
        }
        graph = alternatives.graph
        seconds: Float64Array = node_seconds(graph)
        self._seconds = dict(zip(graph.node_names, seconds.tolist(), strict=True))

    def of(self, index: int, choice: int) -> Change:
        """What choice `choice` of alternative `index` does; it is not the original."""
        alternative = self._alternatives[index]
        chosen = alternative.choices[choice]
        added = [self._operation(name) for name in chosen.instructions[-_MAX_AFTER:]]
        names = (alternative.original, *chosen.instructions)
        return Change(
            before=self._operation(alternative.original),
            after=tuple(each for each in added if each.opcode != "constant"),
            num_after=len(chosen.instructions),
            value=chosen.opcode,
            weight_s=sum(self._seconds.get(name, 0.0) for name in names),
        )

    def _operation(self, name: str) -> Operation:
        instruction, computation = self._places[name]
        return operation_of(instruction, computation, self._computations)
