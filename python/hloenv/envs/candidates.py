# SPDX-License-Identifier: Apache-2.0
"""What can be decided at one decision point, as rows of features.

Each alternative has one row for "as XLA decides" and one for each of its choices, the
original included. Y rows in all: those of alternative a are first[a] to
first[a] + num_choices[a].
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from .._typing import BoolArray, Int64Array
from ..cost.roofline import node_seconds
from ..graph.hlo_graph import opcodes
from ..rewrite.alternatives import Alternatives
from ..rewrite.choice_deltas import (
    ChoiceDeltas,
    byte_weights,
    count_weights,
    flop_weights,
    transcendental_weights,
)

# Passes whose choices are marked; those of others are all alike.
PASSES = (
    *("algsimp", "cse", "convolution-canonicalization", "general-simplify"),
    *("convolution-forms", "dot-forms", "reduce-forms", "reassociate", "merge-dots"),
    *("general-layout", "fusion", "general-fusion", "dot-lowering", "thunk-order"),
    *("cpu-parallel-task-assigner", "sort-forms", "single-kernel", "substitutions"),
)
# Those that are marked as another one of the same kind, as networks that have been
# trained know nothing of them.
ALIKE = {
    "fusion-cuts": "fusion",
    "loop-forms": "thunk-order",
    "math-forms": "sort-forms",
    "onednn-calls": "dot-lowering",
}
_KINDS = ("instruction", "sites", "pass")
_CHANGES = {
    "instructions": (count_weights, 1.0),
    "flops": (flop_weights, 1.0),
    "transcendentals": (transcendental_weights, 1.0),
    "bytes": (byte_weights, 1.0),
    # In nanoseconds.
    "roofline_ns": (node_seconds, 1e9),
}
# Rules are words; their hashes index an embedding of this size.
NUM_RULES = 512


@cache
def candidate_features() -> tuple[str, ...]:
    """Names of the columns of `Candidates.x`.

    `log_change_` is the change of a static cost if this choice alone is taken, as
    sign(n) * log(1 + |n|); `log_` is log(1 + n).
    """
    return (
        *("is_as_xla", "is_original", "is_xlas", "is_decided", "is_relevant"),
        "duplicates_compared",
        *("log_num_choices", "log_num_sites", "log_num_added", "log_num_dead"),
        *(f"kind_{name}" for name in _KINDS),
        *(f"log_change_{name}" for name in _CHANGES),
        *(f"by_{name}" for name in PASSES),
    )


@dataclass(frozen=True)
class Candidates:
    """The rows of one decision point.

    Attributes:
        x: [Y, features] float32, named by `candidate_features()`.
        alternative: [Y] the alternative of each row.
        choice: [Y] the choice of each row, -1 for "as XLA decides".
        row: [Y] the number of this choice among the choices of all alternatives, X as
            in `CostDelta`; for "as XLA decides", of XLA's choice, and of the original
            where it is left to XLA's later passes.
        opcode: [Y] of the value that the row gives, index into `opcodes()`.
        rule: [Y] hash of the rule that proposes the choice, below `NUM_RULES`.
        allowed: [Y] whether the row may be taken; one that is the same as "as XLA
            decides" may not.
        first: [A] first row of each alternative.
        default: [A] XLA's decisions, -1 where they are left to XLA's later passes.
    """

    x: npt.NDArray[np.float32]
    alternative: Int64Array
    choice: Int64Array
    row: Int64Array
    opcode: Int64Array
    rule: Int64Array
    allowed: BoolArray
    first: Int64Array
    default: Int64Array

    def __len__(self) -> int:
        return len(self.choice)

    def originals(self) -> Int64Array:
        """[Y] the number of the original of each row's alternative, as in `row`."""
        return self.row[self.first[self.alternative] + 1]

    def decisions(self, positions: Int64Array) -> Int64Array:
        """[A] decisions by the position of one row of each alternative."""
        chosen = self.choice[self.first + positions]
        return np.where(chosen < 0, self.default, chosen)

    def positions(self, decisions: Int64Array) -> Int64Array:
        """[A] the position of the row of each decision; 0 for XLA's own."""
        return np.where(decisions == self.default, 0, decisions + 1)


class CandidateTable:
    """Makes the rows of one capture; what does not depend on decisions is made once."""

    def __init__(
        self, alternatives: Alternatives, default: Int64Array | None = None
    ) -> None:
        """Takes a capture; [A] XLA's own decisions, by default `xla_decisions()`."""
        self.alternatives = alternatives
        self.default = alternatives.xla_decisions() if default is None else default
        counts = alternatives.num_choices
        self._first = np.cumsum(counts + 1) - (counts + 1)
        self._alternative = np.repeat(np.arange(len(alternatives)), counts + 1)
        self._choice = np.arange(len(self._alternative)) - 1
        self._choice -= self._first[self._alternative]
        taken = np.where(
            self._choice < 0,
            np.maximum(self.default, 0)[self._alternative],
            self._choice,
        )
        starts = np.cumsum(counts) - counts
        self._row = starts[self._alternative] + taken

    @cached_property
    def data(self) -> Any:
        """The alternative graph as `hloenv.graph.pyg.HloData`."""
        from ..graph.pyg import to_data

        return to_data(self.alternatives.graph, ())

    def rows(
        self, decisions: Int64Array | None = None, *, any_marked: bool = False
    ) -> Candidates:
        """The rows, where some decisions have been taken.

        Args:
            decisions: [A] so far; by default XLA's own.
            any_marked: whether choices that `Alternatives.duplicates_compared` marks
                may be taken, although XLA does not take them.
        """
        now = self.default if decisions is None else decisions
        default = self.default[self._alternative]
        is_xlas = (self._choice == default) & (self._choice >= 0)
        allowed = ~is_xlas
        if not any_marked:
            marked = self.alternatives.duplicates_compared[self._row]
            allowed &= ~marked | (self._choice < 0)
        chosen = np.where(self._choice < 0, default, self._choice)
        relevant = self.alternatives.relevant(now)
        x = self._fixed.copy()
        columns = {name: i for i, name in enumerate(candidate_features())}
        x[:, columns["is_xlas"]] = is_xlas
        x[:, columns["is_decided"]] = chosen == now[self._alternative]
        x[:, columns["is_relevant"]] = relevant[self._alternative]
        return Candidates(
            x,
            self._alternative,
            self._choice,
            self._row,
            self._looks[0][self._row],
            self._looks[1][self._row],
            allowed,
            self._first,
            self.default,
        )

    def open_rows(self, decisions: Int64Array, is_decided: BoolArray) -> Candidates:
        """The rows, of which those are allowed that decide one more alternative.

        Args:
            decisions: [A] so far.
            is_decided: [A] alternatives that are not to be decided again.
        """
        rows = self.rows(decisions)
        is_relevant = rows.x[:, candidate_features().index("is_relevant")] > 0
        is_open = is_relevant & ~is_decided[rows.alternative]
        rows.allowed[:] &= is_open & (rows.choice >= 0)
        return rows

    @cached_property
    def _looks(self) -> tuple[Int64Array, Int64Array, Int64Array, Int64Array]:
        """[X] opcode, rule, and how many instructions are added and made dead."""
        numbers = {name: number for number, name in enumerate(opcodes())}
        rows = [
            (
                numbers.get(choice.opcode, 0),
                zlib.crc32(choice.rule.encode()) % NUM_RULES,
                len(choice.instructions),
                len(choice.makes_dead),
            )
            for each in self.alternatives
            for choice in each.choices
        ]
        table = np.array(rows, np.int64).reshape(-1, 4)
        return table[:, 0], table[:, 1], table[:, 2], table[:, 3]

    @cached_property
    def _fixed(self) -> npt.NDArray[np.float32]:
        alternatives, alternative = self.alternatives, self._alternative
        graph = alternatives.graph
        x = np.zeros((len(alternative), len(candidate_features())), np.float32)
        columns = {name: i for i, name in enumerate(candidate_features())}
        if not len(x):
            return x
        _, _, added, dead = self._looks
        kinds = np.array([_KINDS.index(each.kind) for each in alternatives])
        x[:, columns["is_as_xla"]] = self._choice < 0
        x[:, columns["is_original"]] = self._choice == 0
        marked = alternatives.duplicates_compared[self._row]
        x[:, columns["duplicates_compared"]] = marked
        sizes = {
            "log_num_choices": alternatives.num_choices[alternative],
            "log_num_sites": np.diff(graph.site_offsets)[alternative],
            "log_num_added": added[self._row],
            "log_num_dead": dead[self._row],
        }
        for name, values in sizes.items():
            x[:, columns[name]] = np.log1p(values)
        for number, name in enumerate(_KINDS):
            x[:, columns[f"kind_{name}"]] = kinds[alternative] == number
        deltas = ChoiceDeltas(alternatives, count_weights)
        for name, (weights, scale) in _CHANGES.items():
            change = deltas.change_of(weights)[self._row] * scale
            logs = np.sign(change) * np.log1p(np.abs(change))
            x[:, columns[f"log_change_{name}"]] = np.nan_to_num(logs)
        proposed = self._proposed()
        for number, name in enumerate(PASSES):
            x[:, columns[f"by_{name}"]] = proposed[self._row, number]
        return x

    def _proposed(self) -> BoolArray:
        """[X, passes] whether each pass proposes each choice."""
        graph = self.alternatives.graph
        offsets = graph.choice_pass_offsets
        result = np.zeros((len(offsets) - 1, len(PASSES)), np.bool_)
        known = {name: number for number, name in enumerate(PASSES)}
        names = [ALIKE.get(name, name) for name in graph.pass_names]
        numbers = [known.get(name, -1) for name in names]
        number = np.array(numbers, np.int64)[graph.choice_passes]
        choice = np.repeat(np.arange(len(result)), np.diff(offsets))
        result[choice[number >= 0], number[number >= 0]] = True
        return result
