# SPDX-License-Identifier: Apache-2.0
"""What changed between two modules, computation by computation.

Instructions are matched by what they compute, then, where names agree, by name, then
by the place at which matched neighbours read them or are read. Time and memory are
linear in the modules' text.
"""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

from .errors import ParseError
from .module import HloModule, as_module

# `opcode(`: shapes hold no lower-case word in front of a parenthesis.
_OPCODE = re.compile(r" ([a-z][a-z0-9-]*)\(")
_NAME = re.compile(r"%([\w.\-]+)")
_METADATA = re.compile(
    r', (?:metadata|origin)=\{(?:[^{}"]|"(?:[^"\\]|\\.)*"|\{[^{}]*\})*\}'
)
_COMMENT = re.compile(r"/\*.*?\*/")
_CONTROL = re.compile(r", control-predecessors=\{([^}]*)\}")


@dataclass(frozen=True)
class InstructionChange:
    """One instruction that is not the same in both modules.

    Attributes:
        kind: "added" (only in the second module), "removed" or "changed".
        before: its name in the first module, "" if added.
        after: its name in the second module, "" if removed.
        opcode: XLA's name of the operation; the second module's if it changed.
        shape: HLO text of the output's shape, likewise.
        details: of a change, what differs, one sentence part each.
    """

    kind: Literal["added", "removed", "changed"]
    before: str
    after: str
    opcode: str
    shape: str
    details: tuple[str, ...] = ()


@dataclass(frozen=True)
class ComputationDiff:
    """A computation that is not the same in both modules.

    Attributes:
        before: its name in the first module, "" if the second added it.
        after: its name in the second module, "" if it was removed.
        num_before: instructions in the first module.
        num_after: instructions in the second module.
        changes: removed and changed instructions in the first module's order, then
            added ones in the second's. Of computations that only one module has, all.
    """

    before: str
    after: str
    num_before: int
    num_after: int
    changes: tuple[InstructionChange, ...]


@dataclass(frozen=True)
class ModuleDiff:
    """What `diff_modules` found.

    Attributes:
        is_same: both have one fingerprint: the same live graph, whatever the names.
        header: what the modules' first lines (layouts of the entry, aliasing, ...)
            say differently, as (before, after).
        computations: those that differ, callers before what they call.
        num_same: instructions that both have.
    """

    is_same: bool
    header: tuple[tuple[str, str], ...]
    computations: tuple[ComputationDiff, ...]
    num_same: int

    def count(self, kind: Literal["added", "removed", "changed"]) -> int:
        """Instructions of one kind, over all computations."""
        return sum(
            change.kind == kind
            for computation in self.computations
            for change in computation.changes
        )


def diff_modules(
    before: HloModule | str | os.PathLike[str], after: HloModule | str | os.PathLike[str]
) -> ModuleDiff:
    """Compares two modules; dead instructions and computations count too.

    Args:
        before: a module, HLO text, or a path.
        after: likewise.

    Raises:
        ParseError: one of them is not a module.
    """
    first, second = as_module(before), as_module(after)
    old, new = _parse(first.to_text()), _parse(second.to_text())
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
    return ModuleDiff(
        is_same=first.fingerprint() == second.fingerprint(),
        header=_header_changes(old.header, new.header),
        computations=tuple(each for each in computations if each.changes),
        num_same=sum(len(each) for each in old.computations.values()) - num_changed,
    )


@dataclass(slots=True)
class _Instruction:
    """One line of HLO text. Operands are indices within the computation."""

    name: str
    opcode: str
    shape: str
    operands: list[int]
    controls: list[int]
    # Literals, parameter numbers and attributes, computations' names cut out.
    attributes: str
    callees: list[str]
    value: int = -1


@dataclass(slots=True)
class _Computation:
    name: str
    instructions: list[_Instruction] = field(default_factory=list)
    root: int = -1
    value: int = -1

    def __len__(self) -> int:
        return len(self.instructions)


@dataclass(slots=True)
class _Text:
    header: list[str]
    entry: str
    computations: dict[str, _Computation]  # in the text's order, callees first


def _parse(text: str) -> _Text:
    """Reads what XLA printed, with names after '%' and one instruction a line."""
    lines = text.splitlines()
    result = _Text(_split_header(lines[0]), "", {})
    computation: _Computation | None = None
    numbers: dict[str, int] = {}
    for line in lines[1:]:
        if computation is not None and line.startswith("  "):
            _parse_instruction(line, computation, numbers)
        elif line.endswith("{") and (name := _NAME.search(line)):
            computation, numbers = _Computation(name[1]), {}
            result.computations[computation.name] = computation
            if line.startswith("ENTRY"):
                result.entry = computation.name
    if not result.entry:
        raise ParseError("the module's text has no ENTRY computation")
    return result


def _parse_instruction(
    line: str, computation: _Computation, numbers: dict[str, int]
) -> None:
    left, _, right = line.partition(" = ")
    opcode = _OPCODE.search(" " + right)
    if opcode is None:
        raise ParseError(f"this line of a module's text is no instruction: {line!r}")
    is_root = left.lstrip().startswith("ROOT ")
    name = left.rpartition("%")[2]
    start = opcode.end() - 1
    end = _closing(right, start) if opcode[1] == "constant" else right.index(")", start)
    attributes = _METADATA.sub("", right[end + 1 :])
    controls: list[int] = []
    if control := _CONTROL.search(attributes):
        controls = [numbers[each] for each in _NAME.findall(control[1])]
        attributes = attributes.replace(control[0], "")
    inside = right[start:end]
    operands = [numbers[each] for each in _NAME.findall(inside)]
    numbers[name] = len(computation)
    if is_root:
        computation.root = len(computation)
    computation.instructions.append(
        _Instruction(
            name=name,
            opcode=opcode[1],
            shape=_COMMENT.sub("", right[: opcode.start() - 1].strip() or right),
            operands=operands,
            controls=controls,
            attributes=("" if operands else inside) + _NAME.sub("%", attributes),
            callees=_NAME.findall(attributes),
        )
    )


def _closing(text: str, start: int) -> int:
    """Index just before the parenthesis that closes the one before `start`."""
    depth = 1
    for index in range(start, len(text)):
        if text[index] == "(":
            depth += 1
        elif text[index] == ")":
            depth -= 1
            if depth == 0:
                return index
    return len(text)


def _split_header(line: str) -> list[str]:
    """The header's parts but the name: "entry_computation_layout={...}", ..."""
    parts: list[str] = []
    depth = 0
    for piece in _COMMENT.sub("", line).split(", "):
        if depth == 0:
            parts.append(piece)
        else:
            parts[-1] += ", " + piece
        depth += sum(map(piece.count, "{([")) - sum(map(piece.count, "})]"))
    return parts[1:]


def _header_changes(
    before: Sequence[str], after: Sequence[str]
) -> tuple[tuple[str, str], ...]:
    old = dict.fromkeys(part.partition("=")[0] for part in (*before, *after))
    first = {part.partition("=")[0]: part for part in before}
    second = {part.partition("=")[0]: part for part in after}
    pairs = ((first.get(key, ""), second.get(key, "")) for key in old)
    return tuple(pair for pair in pairs if pair[0] != pair[1])


def _number_values(text: _Text, values: dict[object, int]) -> None:
    """Gives what computes the same value the same number, in both modules."""

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


def _pair_computations(before: _Text, after: _Text) -> list[_Pair]:
    """Pairs entries, then what matched instructions call, then equals and namesakes."""
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

    def __init__(self, before: _Computation, after: _Computation) -> None:
        self.before = before
        self.after = after
        self._old = before.instructions
        self._new = after.instructions
        # Of each instruction the index of its match on the other side, or -1.
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
        """Computations that matched instructions call at the same position."""
        for old, new in zip(self._old, self._to_new, strict=True):
            if new >= 0 and old.callees:
                yield from zip(old.callees, self._new[new].callees, strict=False)

    def compare(self, partner: dict[str, str]) -> ComputationDiff:
        """What differs, given which computations belong together."""
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
            # Another parameter or constant is another thing, not a changed one.
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
        """Whether one module came from the other, as far as equal values tell."""
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
        """From users to what they read at the same position."""
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
        """From what is read to what reads it at the same position."""
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
        self, old: _Instruction, new: _Instruction, partner: dict[str, str]
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
            details.append(f"calls {', '.join(old.callees)} -> {', '.join(new.callees)}")
        return tuple(details)

    def _is_same_operand(self, old: int, new: int) -> bool:
        return (
            self._to_new[old] == new or self._old[old].value == self._new[new].value
        )

    def _root_change(self) -> InstructionChange:
        old, new = self._old[self.before.root], self._new[self.after.root]
        return InstructionChange(
            *("changed", old.name, new.name, new.opcode, new.shape),
            (f"root {old.name} -> {new.name}",),
        )


def _attribute_changes(before: str, after: str) -> list[str]:
    """One part for each attribute that differs: "dimensions={0} -> dimensions={1}"."""
    return [
        f"{old or 'nothing'} -> {new or 'nothing'}"
        for old, new in _header_changes(
            _split_header(before or ","), _split_header(after or ",")
        )
    ]


def _alone(
    kind: Literal["added", "removed"], instruction: _Instruction
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
    kind: Literal["added", "removed"], computation: _Computation
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
