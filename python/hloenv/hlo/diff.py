# SPDX-License-Identifier: Apache-2.0
"""The differences between two modules, by computation.

Instructions are matched by value number, then by name where names agree, then by
operand position relative to matched neighbours. Time and memory are linear in the
modules' text.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from .module import HloModule, as_module
from .source import Source
from .text import Computation, Instruction, ModuleText, parse_text, split_parts

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
    """

    is_same: bool
    header: tuple[tuple[str, str], ...]
    computations: tuple[ComputationDiff, ...]
    num_same: int

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
    values: dict[object, int] = {}
    _number_values(old, values)
    _number_values(new, values)
    pairs = _pair_computations(old, new)
    paired_after = {pair.after.name for pair in pairs}
    paired = {pair.before.name: pair for pair in pairs}
    partner = {name: pair.after.name for name, pair in paired.items()}
    computations = [pair.compare(partner) for pair in pairs]
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


def _number_values(text: ModuleText, values: dict[object, int]) -> None:
    """Assigns value numbers; equal values of both modules get equal numbers."""

    def number(key: object) -> int:
        return values.setdefault(key, len(values))

    for computation in text.computations.values():
        is_read = bytearray(len(computation))
        for each in computation.instructions:
            callees = [
                text.computations[name].value
                for name in each.callees
                if name in text.computations
            ]
            operands = [computation.instructions[i].value for i in each.operands]
            controls = [computation.instructions[i].value for i in each.controls]
            each.value = number(
                (
                    *(each.opcode, each.shape, each.attributes),
                    *(tuple(callees), tuple(operands), tuple(controls)),
                )
            )
            for operand in each.operands:
                is_read[operand] = 1
        unread = sorted(
            each.value
            for each, read in zip(computation.instructions, is_read, strict=True)
            if not read
        )
        root = computation.instructions[computation.root].value
        computation.value = number((root, *unread))


def _pair_computations(before: ModuleText, after: ModuleText) -> list[_Pair]:
    """Pairs entries, callees of matched instructions, then equal values and names."""
    used_before: set[str] = set()
    used_after: set[str] = set()
    pairs: list[_Pair] = []

    def pair(first: str, second: str) -> None:
        if first in used_before or second in used_after:
            return
        if first not in before.computations or second not in after.computations:
            return
        used_before.add(first)
        used_after.add(second)
        pairs.append(_Pair(before.computations[first], after.computations[second]))

    def follow(done: int) -> None:
        while done < len(pairs):
            for first, second in pairs[done].callees():
                pair(first, second)
            done += 1

    pair(before.entry, after.entry)
    follow(0)
    free = defaultdict(list)
    for name, computation in after.computations.items():
        if name not in used_after:
            free[computation.value].append(name)
    for name, computation in before.computations.items():
        if name not in used_before and free[computation.value]:
            pair(name, free[computation.value].pop(0))
    for name in before.computations:
        done = len(pairs)
        pair(name, name)
        follow(done)
    return pairs


class _Pair:
    """Two computations and the matching of their instructions."""

    def __init__(self, before: Computation, after: Computation) -> None:
        self.before = before
        self.after = after
        self._old = before.instructions
        self._new = after.instructions
        # For each instruction the index of its match in the other computation, or -1.
        self._to_new = [-1] * len(self._old)
        self._to_old = [-1] * len(self._new)
        self._match_values()
        if self._names_agree():
            self._match_names()
        self._match_roots()
        self._match_operands(need_shape=True)
        self._match_users()
        self._match_operands(need_shape=False)

    def callees(self) -> Iterator[tuple[str, str]]:
        """Yields pairs of computations that matched instructions call."""
        for old, new in zip(self._old, self._to_new, strict=True):
            if new >= 0 and old.callees:
                yield from zip(old.callees, self._new[new].callees, strict=False)

    def compare(self, partner: dict[str, str]) -> ComputationDiff:
        """Returns the differences, given the pairs of computations."""
        changes = []
        for i, old in enumerate(self._old):
            if self._to_new[i] < 0:
                changes.append(_alone("removed", old))
                continue
            new = self._new[self._to_new[i]]
            if details := self._details(old, new, partner):
                changes.append(
                    InstructionChange(
                        *("changed", old.name, new.name, new.opcode, new.shape),
                        details,
                    )
                )
        if self.before.root >= 0 and self._to_new[self.before.root] != self.after.root:
            changes.append(self._root_change())
        changes += [
            _alone("added", new)
            for new, mate in zip(self._new, self._to_old, strict=True)
            if mate < 0
        ]
        return ComputationDiff(
            self.before.name,
            self.after.name,
            len(self._old),
            len(self._new),
            tuple(changes),
        )

    def _link(self, old: int, new: int) -> None:
        self._to_new[old] = new
        self._to_old[new] = old

    def _may_link(self, old: int, new: int, *, need_shape: bool) -> bool:
        first, second = self._old[old], self._new[new]
        return (
            self._to_new[old] < 0
            and self._to_old[new] < 0
            and first.opcode == second.opcode
            and (first.shape == second.shape or not need_shape)
            # Different parameters or constants are never one changed instruction.
            and (bool(first.operands) or first.attributes == second.attributes)
        )

    def _match_values(self) -> None:
        by_name = {each.name: i for i, each in enumerate(self._new)}
        for i, old in enumerate(self._old):
            namesake = by_name.get(old.name, -1)
            if namesake >= 0 and self._new[namesake].value == old.value:
                self._link(i, namesake)
        free: defaultdict[int, list[int]] = defaultdict(list)
        for j in range(len(self._new) - 1, -1, -1):
            if self._to_old[j] < 0:
                free[self._new[j].value].append(j)
        for i, old in enumerate(self._old):
            if self._to_new[i] < 0 and free.get(old.value):
                self._link(i, free[old.value].pop())

    def _names_agree(self) -> bool:
        """Whether most equal values have equal names."""
        matched = [(i, j) for i, j in enumerate(self._to_new) if j >= 0]
        equal = sum(self._old[i].name == self._new[j].name for i, j in matched)
        return 2 * equal >= len(matched)

    def _match_names(self) -> None:
        by_name = {each.name: j for j, each in enumerate(self._new)}
        for i, old in enumerate(self._old):
            namesake = by_name.get(old.name, -1)
            if namesake >= 0 and self._may_link(i, namesake, need_shape=False):
                self._link(i, namesake)

    def _match_roots(self) -> None:
        if self._may_link(self.before.root, self.after.root, need_shape=False):
            self._link(self.before.root, self.after.root)

    def _match_operands(self, *, need_shape: bool) -> None:
        """Matches operands of matched users at the same position."""
        for i in range(len(self._old) - 1, -1, -1):
            j = self._to_new[i]
            if j < 0:
                continue
            for old, new in zip(
                self._old[i].operands, self._new[j].operands, strict=False
            ):
                if self._may_link(old, new, need_shape=need_shape):
                    self._link(old, new)

    def _match_users(self) -> None:
        """Matches users of matched operands at the same position."""
        free: defaultdict[tuple[int, int], list[int]] = defaultdict(list)
        for j in range(len(self._new) - 1, -1, -1):
            if self._to_old[j] < 0:
                for position, operand in enumerate(self._new[j].operands):
                    free[position, operand].append(j)
        for i, old in enumerate(self._old):
            for position, operand in enumerate(old.operands):
                if self._to_new[i] >= 0:
                    break
                candidates = free.get((position, self._to_new[operand]), [])
                while candidates and self._to_old[candidates[-1]] >= 0:
                    candidates.pop()
                if candidates and self._may_link(i, candidates[-1], need_shape=True):
                    self._link(i, candidates.pop())

    def _details(
        self, old: Instruction, new: Instruction, partner: dict[str, str]
    ) -> tuple[str, ...]:
        if old.value == new.value:
            return ()
        details = []
        if old.shape != new.shape:
            details.append(f"shape {old.shape} -> {new.shape}")
        if old.attributes != new.attributes:
            details += _attribute_changes(old.attributes, new.attributes)
        if len(old.operands) != len(new.operands):
            details.append(f"{len(old.operands)} operands -> {len(new.operands)}")
        for position, (first, second) in enumerate(
            zip(old.operands, new.operands, strict=False)
        ):
            if self._is_same_operand(first, second):
                continue
            details.append(
                f"operand {position}: {self._old[first].name} -> "
                f"{self._new[second].name}"
            )
        if [self._to_new[i] for i in old.controls] != new.controls:
            details.append("control predecessors")
        if [partner.get(name, "") for name in old.callees] != new.callees and any(
            partner.get(name) for name in old.callees
        ):
            details.append(
                f"calls {', '.join(old.callees)} -> {', '.join(new.callees)}"
            )
        return tuple(details)

    def _is_same_operand(self, old: int, new: int) -> bool:
        return self._to_new[old] == new or self._old[old].value == self._new[new].value

    def _root_change(self) -> InstructionChange:
        old, new = self._old[self.before.root], self._new[self.after.root]
        return InstructionChange(
            *("changed", old.name, new.name, new.opcode, new.shape),
            (f"root {old.name} -> {new.name}",),
        )


def _attribute_changes(before: str, after: str) -> list[str]:
    """Describes each differing attribute: "dimensions={0} -> dimensions={1}"."""
    return [
        f"{old or 'nothing'} -> {new or 'nothing'}"
        for old, new in _header_changes(
            split_parts(before or ","), split_parts(after or ",")
        )
    ]


def _alone(
    kind: Literal["added", "removed"], instruction: Instruction
) -> InstructionChange:
    is_new = kind == "added"
    return InstructionChange(
        kind,
        "" if is_new else instruction.name,
        instruction.name if is_new else "",
        instruction.opcode,
        instruction.shape,
    )


def _only(
    kind: Literal["added", "removed"], computation: Computation
) -> ComputationDiff:
    is_new = kind == "added"
    size = len(computation)
    return ComputationDiff(
        "" if is_new else computation.name,
        computation.name if is_new else "",
        0 if is_new else size,
        size if is_new else 0,
        tuple(_alone(kind, each) for each in computation.instructions),
    )
