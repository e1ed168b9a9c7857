# SPDX-License-Identifier: Apache-2.0
"""What a dry run found: alternatives and their choices."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ._native import core
from .effects import ChoiceCosts
from .errors import DecisionError
from .module import HloModule
from .passes import Pipeline, pass_names, to_core

if TYPE_CHECKING:
    from .graph import HloGraph
    from .place import Place

Decisions = Sequence[int] | npt.NDArray[Any]


@dataclass(frozen=True)
class Use:
    """A place that reads a value.

    Attributes:
        user: name of the instruction that reads it, "" for the computation's root.
        operand: which operand of the user it is, from 0.
    """

    user: str
    operand: int


@dataclass(frozen=True)
class Site:
    """One value that an alternative may replace, at some or all of its uses."""

    computation: str
    original: str
    uses: tuple[Use, ...]


@dataclass(frozen=True)
class Choice:
    """One way to decide an alternative.

    Attributes:
        passes: the passes that propose it; empty for choice 0, the original.
        opcode: opcode of the value that the users then read.
        instructions: names, in the alternative graph, of the instructions that the
            choice adds.
        makes_dead: names of originals that nothing reads any more if this choice
            alone is taken.
        rule: which rule of a candidate pass proposes it; "" where it has none.
    """

    passes: tuple[str, ...]
    opcode: str
    instructions: tuple[str, ...]
    makes_dead: tuple[str, ...]
    rule: str = ""


class Alternative:
    """One decision of an `Alternatives`; made on demand.

    Attributes:
        index: its position, and that of its decision.
    """

    __slots__ = ("_capture", "index")

    def __init__(self, capture: core.Capture, index: int) -> None:
        self._capture = capture
        self.index = index

    @property
    def kind(self) -> str:
        """Says what is replaced.

        "instruction": one value; "sites": several values together; "pass": the
        whole module, and the other decisions then do not matter.
        """
        return self._capture.kind(self.index)

    @property
    def original(self) -> str:
        """Name of the original instruction (of the first site)."""
        return self.sites[0].original

    @property
    def sites(self) -> tuple[Site, ...]:
        """Where it stands."""
        return tuple(
            Site(computation, original, tuple(Use(*use) for use in uses))
            for computation, original, uses in self._capture.sites(self.index)
        )

    @property
    def num_choices(self) -> int:
        """Choices, the original included."""
        return int(self._capture.num_choices()[self.index])

    @property
    def choices(self) -> tuple[Choice, ...]:
        """Choice 0 is the original."""
        return tuple(
            Choice(*self._capture.describe(self.index, choice))
            for choice in range(self.num_choices)
        )

    def __repr__(self) -> str:
        options = ", ".join(
            f"{choice.opcode} by {'+'.join(choice.passes)}"
            for choice in self.choices[1:]
        )
        return f"<Alternative {self.index} ({self.kind}) of {self.original}: {options}>"


class Alternatives(Sequence[Alternative]):
    """Every rewrite that some passes would make on one module.

    Made by `HloEnv.get_alternatives`. Arrays are in the order of the alternatives,
    which is the same every time for the same module and passes.

    Attributes:
        num_choices: [A] int64, read-only. Choices of each alternative, the original
            (choice 0) included; at least 2.
        pass_names: the passes that were captured.
    """

    def __init__(self, capture: core.Capture, *, owner: object = None) -> None:
        self._capture = capture
        # The state of the environment that these belong to.
        self._owner = owner
        self._pipelines: tuple[Pipeline, ...] = ()
        # Of the modules that decisions give.
        self._place: Place | None = None
        self._decided: frozenset[str] = frozenset()
        self.num_choices: npt.NDArray[np.int64] = capture.num_choices()
        self.num_choices.setflags(write=False)
        self.pass_names: tuple[str, ...] = capture.pass_names

    def __len__(self) -> int:
        return len(self.num_choices)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        position = int(index)
        if position < 0:
            position += len(self)
        if not 0 <= position < len(self):
            raise IndexError(f"alternative {index} of {len(self)}")
        return Alternative(self._capture, position)

    def __iter__(self) -> Iterator[Alternative]:
        return (Alternative(self._capture, i) for i in range(len(self)))

    @property
    def whole(self) -> dict[str, str]:
        """Passes that can only be taken or left as a whole, with the reason."""
        return {
            name: reason
            for name, reason in zip(
                self.pass_names, self._capture.whole_reasons, strict=True
            )
            if reason
        }

    def decisions_for(self, name: str) -> npt.NDArray[np.int64]:
        """[A] decisions that give exactly what pass `name` gives when it runs.

        Raises:
            UnknownPassError: it is not one of `pass_names`.
        """
        return self._capture.decisions_for(name)

    def reject_all(self) -> npt.NDArray[np.int64]:
        """[A] zeros: keep every original."""
        return np.zeros(len(self), np.int64)

    def relevant(self, decisions: Decisions) -> npt.NDArray[np.bool_]:
        """[A] whether each decision still makes a difference, given the others.

        An alternative stops mattering when nothing live can reach it any more.

        Args:
            decisions: [A] integers; -1 is undecided and may go any way.

        Raises:
            DecisionError: wrong length, type or range.
        """
        return self._capture.relevant(as_decisions(decisions))

    def apply(self, decisions: Decisions) -> HloModule:
        """The module with these decisions; what they were found on stays as it is.

        Args:
            decisions: [A] integers, the choice taken at each alternative.

        Raises:
            DecisionError: wrong length, type or range.
        """
        return HloModule._wrap(
            self._capture.apply(as_decisions(decisions)),
            place=self._place,
            decided=self._decided,
        )

    @cached_property
    def module(self) -> HloModule:
        """The alternative graph: each site is a custom call of its choices."""
        return HloModule._wrap(self._capture.graph())

    @cached_property
    def graph(self) -> HloGraph:
        """The alternative graph as arrays."""
        from .graph import HloGraph

        return HloGraph.from_module(self.module)

    @cached_property
    def costs(self) -> ChoiceCosts:
        """Static cost differences of all choices, as arrays."""
        return ChoiceCosts.of(self)

    def __repr__(self) -> str:
        return f"<{len(self)} alternatives of {', '.join(self.pass_names)}>"


def capture(
    module: HloModule, pipelines: Sequence[Pipeline], *, owner: object = None
) -> Alternatives:
    """A dry run of pipelines on a module.

    Args:
        module: stays as it is.
        pipelines: at least one.
        owner: the state of an environment that the result belongs to.

    Raises:
        PassError: a pass failed on this module.
    """
    alternatives = Alternatives(
        core.capture(module._core, [to_core(each) for each in pipelines]), owner=owner
    )
    alternatives._pipelines = tuple(pipelines)
    alternatives._place = module.place
    alternatives._decided = module.decided | pass_names(pipelines)
    return alternatives


def as_decisions(decisions: Decisions) -> npt.NDArray[np.int64]:
    """[A] int64, contiguous.

    Raises:
        DecisionError: not a one-dimensional array of integers.
    """
    try:
        array = np.asarray(decisions)
    except ValueError as error:
        raise DecisionError(
            f"decisions have to be a flat list of integers: {error}"
        ) from None
    if array.ndim != 1:
        raise DecisionError(
            f"decisions have to be one-dimensional, one integer per alternative, not "
            f"of shape {array.shape}"
        )
    if array.size == 0:
        return np.zeros(0, np.int64)
    if array.dtype.kind not in "iub":
        raise DecisionError(
            f"decisions have to be integers (0 keeps the original), not {array.dtype}"
        )
    if array.dtype.kind == "u" and array.max() > np.iinfo(np.int64).max:
        raise DecisionError(f"decision {array.max()} is out of range")
    return np.ascontiguousarray(array, np.int64)
