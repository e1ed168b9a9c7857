# SPDX-License-Identifier: Apache-2.0
"""The differences between two modules, by computation."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

from .._registry import load_attribute
from .matching import Pair, match_modules
from .module import HloModule, as_module
from .source import Source
from .text import Computation, Instruction, parse_text, split_parts

Kind = Literal["added", "removed", "changed"]


@dataclass(frozen=True)
class InstructionChange:
    """One instruction that differs between the modules.

    Attributes:
        kind: "added" (only in the second module), "removed" or "changed".
        before: its name in the first module, "" if added.
        after: its name in the second module, "" if removed.
        opcode: XLA's name of the operation; the second module's if it changed.
        shape: HLO text of the output's shape, likewise.
        details: the differences of a changed instruction, one phrase each.
        source: where it comes from, "jit(step)/add train.py:7"; "" if unknown.
    """

    kind: Kind
    before: str
    after: str
    opcode: str
    shape: str
    details: tuple[str, ...] = ()
    source: str = ""


@dataclass(frozen=True)
class ComputationDiff:
    """A computation that differs between the modules.

    Attributes:
        before: its name in the first module, "" if the second added it.
        after: its name in the second module, "" if it was removed.
        num_before: instructions in the first module.
        num_after: instructions in the second module.
        changes: removed and changed instructions in the first module's order, then
            added ones in the second's; all instructions of an added or removed
            computation.
    """

    before: str
    after: str
    num_before: int
    num_after: int
    changes: tuple[InstructionChange, ...]


@dataclass(frozen=True)
class ModuleDiff:
    """The result of `diff_modules`.

    Attributes:
        is_same: both have one fingerprint: the same live graph, whatever the names.
        header: differing parts of the modules' first lines (entry layouts, aliasing,
            ...), as (before, after).
        computations: those that differ, callers before callees.
        num_same: number of instructions in both.
        modules: that were compared.
    """

    is_same: bool
    header: tuple[tuple[str, str], ...]
    computations: tuple[ComputationDiff, ...]
    num_same: int
    modules: tuple[HloModule, HloModule] = field(repr=False, compare=False)

    def _repr_html_(self) -> str:
        html: str = load_attribute("hloenv.explorer.notebook:diff_html")(self)
        return html

    def to_json(self) -> dict[str, Any]:
        """JSON-able: all but the modules."""
        return {
            "is_same": self.is_same,
            "header": self.header,
            "computations": [asdict(each) for each in self.computations],
            "num_same": self.num_same,
        }

    def count(self, kind: Kind) -> int:
        """Instructions of one kind, over all computations."""
        return sum(
            change.kind == kind
            for computation in self.computations
            for change in computation.changes
        )


def diff_modules(
    before: HloModule | str | os.PathLike[str],
    after: HloModule | str | os.PathLike[str],
) -> ModuleDiff:
    """Compares two modules; dead instructions and computations count too.

    Args:
        before: a module, HLO text, or a path.
        after: likewise.

    Raises:
        ParseError: one of them is not a module.
    """
    first, second = as_module(before), as_module(after)
    old, new = parse_text(first.to_text()), parse_text(second.to_text())
    pairs = match_modules(old, new)
    paired_after = {pair.after.name for pair in pairs}
    paired = {pair.before.name: pair for pair in pairs}
    partner = {name: pair.after.name for name, pair in paired.items()}
    computations = [_compare(pair, partner) for pair in pairs]
    computations += [
        _only("removed", computation)
        for computation in reversed(old.computations.values())
        if computation.name not in paired
    ]
    computations += [
        _only("added", computation)
        for computation in reversed(new.computations.values())
        if computation.name not in paired_after
    ]
    num_changed = sum(
        change.kind != "added"
        for computation in computations
        for change in computation.changes
    )
    sources = first.sources(), second.sources()
    return ModuleDiff(
        is_same=first.fingerprint() == second.fingerprint(),
        header=_header_changes(old.header, new.header),
        computations=tuple(
            _with_sources(each, *sources) for each in computations if each.changes
        ),
        num_same=sum(len(each) for each in old.computations.values()) - num_changed,
        modules=(first, second),
    )


def _with_sources(
    computation: ComputationDiff,
    before: Mapping[str, Source],
    after: Mapping[str, Source],
) -> ComputationDiff:
    changes = tuple(
        replace(change, source=str(source))
        if (source := after.get(change.after) or before.get(change.before))
        else change
        for change in computation.changes
    )
    return replace(computation, changes=changes)


def _header_changes(
    before: Sequence[str], after: Sequence[str]
) -> tuple[tuple[str, str], ...]:
    old = dict.fromkeys(part.partition("=")[0] for part in (*before, *after))
    first = {part.partition("=")[0]: part for part in before}
    second = {part.partition("=")[0]: part for part in after}
    pairs = ((first.get(key, ""), second.get(key, "")) for key in old)
    return tuple(pair for pair in pairs if pair[0] != pair[1])


def _compare(pair: Pair, partner: Mapping[str, str]) -> ComputationDiff:
    """The differences of two computations.

    Args:
        pair: the computations.
        partner: for each computation of the first module its partner's name.
    """
    before, after = pair.before.instructions, pair.after.instructions
    changes = []
    for old, mate in zip(before, pair.to_new, strict=True):
        if mate < 0:
            changes.append(_alone("removed", old))
        elif details := _details(pair, old, after[mate], partner):
            changes.append(_changed(old, after[mate], *details))
    if pair.before.root >= 0 and pair.to_new[pair.before.root] != pair.after.root:
        old, new = before[pair.before.root], after[pair.after.root]
        changes.append(_changed(old, new, f"root {old.name} -> {new.name}"))
    changes += [
        _alone("added", new)
        for new, mate in zip(after, pair.to_old, strict=True)
        if mate < 0
    ]
    names = pair.before.name, pair.after.name
    return ComputationDiff(*names, len(before), len(after), tuple(changes))


def _details(
    pair: Pair, old: Instruction, new: Instruction, partner: Mapping[str, str]
) -> list[str]:
    """The differences of two matched instructions, one phrase each."""
    if old.value == new.value:
        return []
    details = []
    if old.shape != new.shape:
        details.append(f"shape {old.shape} -> {new.shape}")
    if old.attributes != new.attributes:
        details += _attribute_changes(old.attributes, new.attributes)
    if len(old.operands) != len(new.operands):
        details.append(f"{len(old.operands)} operands -> {len(new.operands)}")
    for position, (i, j) in enumerate(zip(old.operands, new.operands, strict=False)):
        first, second = pair.before.instructions[i], pair.after.instructions[j]
        if pair.to_new[i] != j and first.value != second.value:
            details.append(f"operand {position}: {first.name} -> {second.name}")
    if [pair.to_new[i] for i in old.controls] != new.controls:
        details.append("control predecessors")
    partners = [partner.get(name, "") for name in old.callees]
    if partners != new.callees and any(partners):
        details.append(f"calls {', '.join(old.callees)} -> {', '.join(new.callees)}")
    return details


def _attribute_changes(before: str, after: str) -> list[str]:
    """Describes each differing attribute: "dimensions={0} -> dimensions={1}"."""
    return [
        f"{old or 'nothing'} -> {new or 'nothing'}"
        for old, new in _header_changes(
            split_parts(before or ","), split_parts(after or ",")
        )
    ]


def _changed(old: Instruction, new: Instruction, *details: str) -> InstructionChange:
    names = old.name, new.name
    return InstructionChange("changed", *names, new.opcode, new.shape, details)


def _alone(
    kind: Literal["added", "removed"], instruction: Instruction
) -> InstructionChange:
    names = _names(kind, instruction.name)
    return InstructionChange(kind, *names, instruction.opcode, instruction.shape)


def _only(
    kind: Literal["added", "removed"], computation: Computation
) -> ComputationDiff:
    size = len(computation)
    return ComputationDiff(
        *_names(kind, computation.name),
        *((0, size) if kind == "added" else (size, 0)),
        tuple(_alone(kind, each) for each in computation.instructions),
    )


def _names(kind: Literal["added", "removed"], name: str) -> tuple[str, str]:
    """The names before and after."""
    return ("", name) if kind == "added" else (name, "")
