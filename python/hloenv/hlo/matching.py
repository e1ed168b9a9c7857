# SPDX-License-Identifier: Apache-2.0
"""Matches the instructions of two modules.

By value number, then by name where names agree, then by operand position relative to
matched neighbours. Time and memory are linear in the modules' text.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from .text import Computation, ModuleText


def match_modules(before: ModuleText, after: ModuleText) -> list[Pair]:
    """Numbers the values of both modules, and pairs and matches their computations."""
    values: dict[object, int] = {}
    _number_values(before, values)
    _number_values(after, values)
    return _pair_computations(before, after)


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


def _pair_computations(before: ModuleText, after: ModuleText) -> list[Pair]:
    """Pairs entries, callees of matched instructions, then equal values and names."""
    used_before: set[str] = set()
    used_after: set[str] = set()
    pairs: list[Pair] = []

    def pair(first: str, second: str) -> None:
        if first in used_before or second in used_after:
            return
        if first not in before.computations or second not in after.computations:
            return
        used_before.add(first)
        used_after.add(second)
        pairs.append(Pair(before.computations[first], after.computations[second]))

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


class Pair:
    """Two computations and the matching of their instructions.

    Attributes:
        before: a computation of the first module.
        after: its partner of the second module.
        to_new: for each instruction of `before` the index of its match, or -1.
        to_old: likewise for those of `after`.
    """

    def __init__(self, before: Computation, after: Computation) -> None:
        self.before = before
        self.after = after
        self._old = before.instructions
        self._new = after.instructions
        self.to_new = [-1] * len(self._old)
        self.to_old = [-1] * len(self._new)
        self._match_values()
        if self._names_agree():
            self._match_names()
        self._match_roots()
        self._match_operands(need_shape=True)
        self._match_users()
        self._match_operands(need_shape=False)

    def callees(self) -> Iterator[tuple[str, str]]:
        """Yields pairs of computations that matched instructions call."""
        for old, new in zip(self._old, self.to_new, strict=True):
            if new >= 0 and old.callees:
                yield from zip(old.callees, self._new[new].callees, strict=False)

    def _link(self, old: int, new: int) -> None:
        self.to_new[old] = new
        self.to_old[new] = old

    def _may_link(self, old: int, new: int, *, need_shape: bool) -> bool:
        first, second = self._old[old], self._new[new]
        return (
            self.to_new[old] < 0
            and self.to_old[new] < 0
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
            if self.to_old[j] < 0:
                free[self._new[j].value].append(j)
        for i, old in enumerate(self._old):
            if self.to_new[i] < 0 and free.get(old.value):
                self._link(i, free[old.value].pop())

    def _names_agree(self) -> bool:
        """Whether most equal values have equal names."""
        matched = [(i, j) for i, j in enumerate(self.to_new) if j >= 0]
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
            j = self.to_new[i]
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
            if self.to_old[j] < 0:
                for position, operand in enumerate(self._new[j].operands):
                    free[position, operand].append(j)
        for i, old in enumerate(self._old):
            for position, operand in enumerate(old.operands):
                if self.to_new[i] >= 0:
                    break
                candidates = free.get((position, self.to_new[operand]), [])
                while candidates and self.to_old[candidates[-1]] >= 0:
                    candidates.pop()
                if candidates and self._may_link(i, candidates[-1], need_shape=True):
                    self._link(i, candidates.pop())
