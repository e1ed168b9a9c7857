# SPDX-License-Identifier: Apache-2.0
"""The result of a capture: alternatives and their choices."""

from __future__ import annotations

import hashlib
import operator
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from .._native import core, is_text
from .._registry import load_attribute
from ..errors import (
    ArgumentTypeError,
    DecisionError,
    InterceptError,
    StaleAlternativesError,
    UnknownPassError,
)
from ..hlo.decided import (
    Entries,
    changed_since,
    identities_of,
    was_run,
    with_decisions,
    with_run,
)
from ..hlo.module import HloModule, as_module
from ..hlo.passes import Pipeline, is_candidate, is_plain, pass_names, to_core
from ..hlo.renamed import current_name
from ..hlo.source import Source
from .cost_delta import CostDelta

if TYPE_CHECKING:
    from ..graph.hlo_graph import HloGraph
    from ..hlo.position import PipelinePosition
    from .given_graph import GivenGraph

Decisions = Sequence[int] | npt.NDArray[Any]


@dataclass(frozen=True)
class Use:
    """An operand position that reads a value.

    Attributes:
        user: name of the instruction that reads it, "" for the computation's root.
        operand: index of the operand, from 0.
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
        opcode: opcode of the value that replaces the original.
        instructions: names, in the alternative graph, of the instructions that the
            choice adds.
        makes_dead: names of originals that are dead if this choice alone is taken.
        rule: the rule of a candidate pass that proposes it; "" if none.
        duplicates_compared: whether it computes a value a second time that the module
            compares with itself; see `Alternatives.duplicates_compared`.
    """

    passes: tuple[str, ...]
    opcode: str
    instructions: tuple[str, ...]
    makes_dead: tuple[str, ...]
    rule: str = ""
    duplicates_compared: bool = False


class Alternative:
    """One decision of an `Alternatives`; made on demand.

    Attributes:
        index: its position, and that of its decision.
    """

    __slots__ = ("_capture", "index")

    def __init__(self, capture: core.Capture | GivenGraph, index: int) -> None:
        self._capture = capture
        self.index = index

    @property
    def kind(self) -> str:
        """What the alternative replaces.

        "instruction": one value; "sites": several values together; "pass": the
        whole module, which makes the other decisions irrelevant.
        """
        return self._capture.kind(self.index)

    @property
    def original(self) -> str:
        """Name of the original instruction (of the first site)."""
        return self.sites[0].original

    @property
    def sites(self) -> tuple[Site, ...]:
        """The values that it may replace."""
        return tuple(
            Site(computation, original, tuple(Use(*use) for use in uses))
            for computation, original, uses in self._capture.sites(self.index)
        )

    @property
    def num_choices(self) -> int:
        """Number of choices, including the original."""
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


# XLA's own pipelines that start with a pass.
_PIPELINES_FROM = {
    "algsimp": (
        "post_scatter_expansion_simplification",
        "simplification",
        "simplification after layout assignment",
    )
}


class Alternatives(Sequence[Alternative]):
    """Every rewrite that some passes would make on one module.

    Made by `HloEnv.get_alternatives`. Arrays are in the order of the alternatives,
    which is the same every time for the same module and passes.

    Attributes:
        num_choices: [A] int64, read-only. Choices of each alternative, the original
            (choice 0) included; at least 2.
        pass_names: the passes that were captured.
    """

    def __init__(
        self, capture: core.Capture | GivenGraph, *, owner: object = None
    ) -> None:
        self._capture = capture
        # The environment state of the capture.
        self._owner = owner
        self._pipelines: tuple[Pipeline, ...] = ()
        # The captured module; None if the capture cannot be repeated.
        self._module: HloModule | None = None
        # Position of the decided modules.
        self._place: PipelinePosition | None = None
        self._decided: Entries = frozenset()  # before these decisions
        self._given: HloModule | None = None  # as from_module got it
        self.num_choices: npt.NDArray[np.int64] = capture.num_choices()
        self.num_choices.setflags(write=False)
        self.pass_names: tuple[str, ...] = capture.pass_names

    @classmethod
    def from_module(cls, graph: HloModule | str | os.PathLike[str]) -> Alternatives:
        """Alternatives that someone else wrote, such as an e-graph.

        Args:
            graph: HLO text, a path or a module in which each alternative is a custom
                call "hloenv.alternative" of its choices, the original first, as in
                `module` of a capture; `rewrite.given_graph` describes it. Choices may
                read other alternatives.

        Returns:
            The alternatives; `apply` with zeros gives the module of the originals.

        Raises:
            ParseError: it is not a module.
            InvalidModuleError: the alternatives are inconsistent: numbers that do not
                count from 0, fewer than two choices, or choices of several shapes.
        """
        from .given_graph import GivenGraph

        module = as_module(graph)
        alternatives = cls(GivenGraph(module))
        alternatives._place = module.position
        alternatives._decided = module._decided
        alternatives._given = module
        return alternatives

    def __len__(self) -> int:
        return len(self.num_choices)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        try:
            position = operator.index(index)
        except TypeError:
            raise ArgumentTypeError(
                f"an alternative is chosen by its number (there are {len(self)}) or a "
                f"slice, not by {index!r}"
            ) from None
        if position < 0:
            position += len(self)
        if not 0 <= position < len(self):
            raise IndexError(
                f"alternative {index} is out of range; there are {len(self)}"
            )
        return Alternative(self._capture, position)

    def __iter__(self) -> Iterator[Alternative]:
        return (Alternative(self._capture, i) for i in range(len(self)))

    @property
    def indivisible(self) -> dict[str, str]:
        """Passes that are one indivisible alternative, with the reason."""
        return {
            name: reason
            for name, reason in zip(
                self.pass_names, self._capture.indivisible_reasons, strict=True
            )
            if reason
        }

    def decisions_for(self, name: str) -> npt.NDArray[np.int64]:
        """[A] decisions that give exactly the result of running pass `name`.

        Raises:
            UnknownPassError: it is not one of `pass_names`.
        """
        if not is_text(name):
            raise UnknownPassError(
                f"pass {name!r} was not captured; use one of "
                f"{', '.join(self.pass_names)}"
            )
        return self._capture.decisions_for(current_name(name))

    def xla_decisions(self) -> npt.NDArray[np.int64]:
        """[A] what XLA does here, given the decisions so far.

        The decisions of the captured pass that it runs next, but for rewrites that were
        rejected before; -1, left to its later passes, where it runs none of them next
        or decisions have replaced that run already. What it does in a pipeline of
        several passes may still differ, if a rejected rewrite is an intermediate one.
        """
        for pipeline in self._pipelines:
            if is_candidate(pipeline) or not self._comes_next(pipeline):
                continue
            if any(was_run(self._decided, name) for name in pass_names([pipeline])):
                continue
            return self.unrejected_decisions_for(pipeline.name)
        return self.leave_to_xla()

    def unrejected_decisions_for(self, name: str) -> npt.NDArray[np.int64]:
        """[A] `decisions_for`, without the rewrites that were rejected before.

        XLA does not make those either, as long as nothing is decided here.

        Raises:
            UnknownPassError: as `decisions_for`.
        """
        decisions = self.decisions_for(name)
        before = identities_of(self._decided)
        # A vector names the choices that it does not take.
        every = np.where(decisions > 0, 0, -1)
        if not before or before.isdisjoint(
            identities_of(self._capture.rejected(every))
        ):
            return decisions
        asked = self.leave_to_xla()
        for index in np.flatnonzero(decisions > 0):
            asked[index] = 0
            named = set(self._capture.rejected(asked))
            asked[index] = decisions[index]
            chosen = named.difference(self._capture.rejected(asked))
            asked[index] = -1
            if not before.isdisjoint(identities_of(chosen)):
                decisions[index] = 0
        return decisions

    @cached_property
    def sources(self) -> tuple[Source | None, ...]:
        """[A] where the original of each alternative comes from; None if unknown."""
        found = HloModule._wrap(self._capture.module()).sources()
        return tuple(found.get(each.original) for each in self)

    def reject_all(self) -> npt.NDArray[np.int64]:
        """[A] zeros: keep every original."""
        return np.zeros(len(self), np.int64)

    def leave_to_xla(self) -> npt.NDArray[np.int64]:
        """[A] -1: undecided; XLA's later passes rewrite as by default."""
        return np.full(len(self), -1, np.int64)

    def relevant(self, decisions: Decisions) -> npt.NDArray[np.bool_]:
        """[A] whether each decision affects the module, given the others.

        An alternative is irrelevant if no live instruction reaches it.

        Args:
            decisions: [A] integers; -1 is undecided: any choice is possible.

        Raises:
            DecisionError: wrong length, type or range.
        """
        return self._capture.relevant(as_decisions(decisions))

    def apply(self, decisions: Decisions, *, partial: bool = False) -> HloModule:
        """Returns the module with these decisions; the captured module is not modified.

        In `compile` and `run_until`, XLA's later passes do not make the rewrites that
        are rejected here. The decisions of the pass that XLA would run next
        (`decisions_for`) replace that run, so that they give XLA's own result.

        Args:
            decisions: [A] integers, the choice taken at each alternative.
            partial: allow -1, undecided: the original stays, and XLA's later passes may
                rewrite it.

        Raises:
            DecisionError: wrong length, type or range.
        """
        array = as_decisions(decisions)
        return HloModule._wrap(
            self._capture.apply(np.where(array == -1, 0, array) if partial else array),
            position=self._place,
            decided=self._after(array),
        )

    def _after(self, decisions: npt.NDArray[np.int64]) -> Entries:
        """The constraints on XLA's later passes after these decisions."""
        if not len(decisions) or (decisions == -1).all():
            return self._decided
        xla = [each for each in self._pipelines if not is_candidate(each)]
        own = next(filter(self._comes_next, xla), None)
        names = pass_names(self._pipelines)
        is_own = own is not None and np.array_equal(
            decisions, self.decisions_for(own.name)
        )
        if is_own:
            rejected: list[str] = []
        else:
            rejected = self._capture.rejected(decisions)
            candidates = pass_names(set(self._pipelines) - set(xla))
            if decisions.any() or not was_run(self._decided, "fusion"):
                names -= candidates
                rejected += candidates
        changed = bool(decisions.any())
        before = changed_since(self._decided) if changed else self._decided
        entries = with_decisions(before, names, rejected)
        if (decisions >= 0).all():
            same = own.name if own is not None and is_own and is_plain(own) else None
            for name in pass_names(xla):
                entries = with_run(entries, name, changed=changed, is_same=name == same)
        return entries

    def _comes_next(self, pipeline: Pipeline) -> bool:
        """Whether this pass or pipeline comes next in XLA's pipeline."""
        if self._place is None or len(pipeline.passes) != 1:
            return False
        return self._place.name in (
            pipeline.name,
            *_PIPELINES_FROM.get(pipeline.name, ()),
        )

    @cached_property
    def duplicates_compared(self) -> npt.NDArray[np.bool_]:
        """[X] the choices that may make equal values compare unequal, read-only.

        Such a choice fuses a copy of a float value that stays, or may stay, for other
        users, while the module compares this value with one selected from it, as in
        `x == max(x)`, which gradients of maximum contain. The copies may round
        differently. The mark does not depend on other decisions. `general-fusion`
        proposes none unless its option `duplicate_compared` is on; XLA's own fusion
        does, and policies and searches take those only as part of XLA's own decisions.

        X counts the choices of all alternatives, one alternative after the other, the
        originals included, as in `costs`.
        """
        flags = self._capture.duplicates_compared()
        flags.setflags(write=False)
        return flags

    @cached_property
    def module(self) -> HloModule:
        """The alternative graph: each site is a custom call of its choices."""
        return HloModule._wrap(self._capture.graph())

    @cached_property
    def graph(self) -> HloGraph:
        """The alternative graph as arrays."""
        from ..graph.hlo_graph import HloGraph

        return HloGraph.from_module(self.module)

    @cached_property
    def costs(self) -> CostDelta:
        """Static cost differences of all choices, as arrays."""
        costs: CostDelta = load_attribute("hloenv.rewrite.choice_deltas:choice_costs")(
            self
        )
        return costs

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickles the module and passes; unpickling captures again."""
        if self._given is not None:
            return Alternatives.from_module, (self._given,)
        if self._module is None:
            raise InterceptError(
                f"{self!r} cannot be pickled: they belong to an intercepted compile in "
                "this process; pickle alternatives of an HloEnv instead"
            )
        owner = self._owner
        # The environment's state keeps the module's instruction order.
        module = (
            None if getattr(owner, "module", None) is self._module else self._module
        )
        return _unpickle, (module, self._pipelines, owner, self._digest())

    def _digest(self) -> str:
        """Hash of everything that decisions depend on."""
        digest = hashlib.blake2b(core.tensorflow_version.encode(), digest_size=16)
        digest.update(self.num_choices.tobytes())
        for name in self.pass_names:
            digest.update(self._capture.decisions_for(name).tobytes())
        for index in range(len(self)):
            digest.update(repr(self._capture.sites(index)).encode())
        return digest.hexdigest()

    def _repr_html_(self) -> str:
        html: str = load_attribute("hloenv.explorer.notebook:alternatives_html")(self)
        return html

    def __repr__(self) -> str:
        return f"<{len(self)} alternatives of {', '.join(self.pass_names)}>"


def capture(
    module: HloModule, pipelines: Sequence[Pipeline], *, owner: object = None
) -> Alternatives:
    """Captures the rewrites that pipelines would make on a module.

    Args:
        module: not modified.
        pipelines: at least one.
        owner: the state of an environment that the result belongs to.

    Raises:
        PassError: a pass failed on this module.
    """
    alternatives = Alternatives(
        core.capture(module._core, [to_core(each, module) for each in pipelines]),
        owner=owner,
    )
    alternatives._pipelines = tuple(pipelines)
    alternatives._module = module
    alternatives._place = module.position
    alternatives._decided = module._decided
    return alternatives


def _unpickle(
    module: HloModule | None, pipelines: tuple[Pipeline, ...], owner: Any, digest: str
) -> Alternatives:
    source = owner.module if module is None else module
    alternatives = capture(source, pipelines, owner=owner)
    if alternatives._digest() != digest:
        raise StaleAlternativesError(
            f"{alternatives!r} differ from the pickled ones or have another order: "
            "this is another version of hloenv or of XLA, or their module does not "
            "keep its order when pickled (pickle alternatives with their HloEnv); "
            "capture them again"
        )
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
            f"decisions must be a flat list of integers: {error}"
        ) from None
    if array.ndim != 1:
        raise DecisionError(
            f"decisions must be one-dimensional, one integer per alternative, got "
            f"shape {array.shape}"
        )
    if array.size == 0:
        return np.zeros(0, np.int64)
    if array.dtype.kind not in "iub":
        raise DecisionError(
            f"decisions must be integers (0 keeps the original), got {array.dtype}"
        )
    if array.dtype.kind == "u" and array.max() > np.iinfo(np.int64).max:
        raise DecisionError(
            f"decision {array.max()} is out of range: it must fit int64"
        )
    return np.ascontiguousarray(array, np.int64)
