# SPDX-License-Identifier: Apache-2.0
"""Finds the places of a module that a pattern matches.

Instructions are indexed by opcode, and a match follows operands from a root, so that
the time is linear in the instructions of that opcode. Further roots are looked up among
the users of values that are bound already, of which at most MAX_PARTNERS are tried.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from .pattern import COMMUTATIVE, Line, Pattern, RuleError, is_type
from .subject import Subject, Value

MAX_PARTNERS = 16
# Their type may differ from that of their operands (preferred_element_type).
_PRODUCTS = frozenset({"convolution", "dot"})


@dataclass(frozen=True)
class Match:
    """One place where a pattern matches.

    Attributes:
        values: the instructions of the module, by their names in the pattern.
        texts: bound types, dimensions and attributes, by placeholder without "$".
    """

    values: Mapping[str, Value]
    texts: Mapping[str, str]

    def __getitem__(self, name: str) -> Value:
        return self.values[name]

    def ints(self, name: str) -> tuple[int, ...]:
        """The numbers in a bound attribute or dimension: "{1,0}" gives (1, 0)."""
        text = self.texts[name].strip("{}")
        return tuple(int(each) for each in text.split(",") if each)


def anchors(pattern: Pattern, subject: Subject) -> list[Value]:
    """The instructions at which the first root may match."""
    lists = [
        subject.by_opcode.get(opcode, ())
        for opcode in pattern.opcodes_of(pattern.roots[0])
    ]
    return sorted((each for found in lists for each in found), key=lambda v: v.number)


def matches_at(pattern: Pattern, anchor: Value) -> Iterator[Match]:
    """All matches with `anchor` as the first root."""
    start = _Bound({}, {})
    for bound in _roots(pattern, list(pattern.roots), anchor, start):
        yield Match(bound.values, bound.texts)


@dataclass(frozen=True)
class _Bound:
    values: dict[str, Value]
    texts: dict[str, str]


def _roots(
    pattern: Pattern, roots: list[str], anchor: Value, bound: _Bound
) -> Iterator[_Bound]:
    for found in _unify(pattern, [(roots[0], anchor)], bound):
        if len(roots) == 1:
            yield found
            continue
        taken = {found.values[root] for root in pattern.roots if root in found.values}
        for partner in _partners(pattern, roots[1], found):
            if partner not in taken:
                yield from _roots(pattern, roots[1:], partner, found)


def _partners(pattern: Pattern, root: str, bound: _Bound) -> list[Value]:
    """Instructions that may be `root`, found from a bound value below it."""
    path = path_to_bound(pattern, root, set(bound.values))
    level = [bound.values[path[0]]]
    for name in path[1:]:
        opcodes = pattern.opcodes_of(name)
        users = (user for each in level for user in each.users)
        level = list(dict.fromkeys(user for user in users if user.opcode in opcodes))
    anchor = bound.values[pattern.roots[0]]
    level = [each for each in level if each.computation == anchor.computation]
    # The nearest in the order of the module first.
    level.sort(key=lambda each: (abs(each.index - anchor.index), each.index))
    return level[:MAX_PARTNERS]


def path_to_bound(pattern: Pattern, root: str, bound: set[str]) -> list[str]:
    """Names from a bound value up to `root`.

    Raises:
        RuleError: the root shares no value with the roots before it.
    """
    paths = [[root]]
    while paths:
        path = paths.pop(0)
        if path[0] in bound:
            return path
        paths += [[each, *path] for each in pattern.lines[path[0]].operands]
    raise RuleError(
        f"the root {root!r} of a pattern shares no value with the roots before it, so "
        "that it could be anywhere in a module"
    )


def _unify(
    pattern: Pattern, pairs: list[tuple[str, Value]], bound: _Bound
) -> Iterator[_Bound]:
    """All ways to bind the names to the values and what is below them."""
    if not pairs:
        yield bound
        return
    (name, value), *others = pairs
    if name in bound.values:
        if bound.values[name] is value:
            yield from _unify(pattern, others, bound)
        return
    line = pattern.lines[name]
    if not line.is_argument and value.opcode not in pattern.opcodes_of(name):
        return
    texts = _bind(line, value, bound.texts)
    if texts is None:
        return
    now = _Bound({**bound.values, name: value}, texts)
    if line.is_argument:
        yield from _unify(pattern, others, now)
        return
    operands = list(zip(line.operands, value.operands, strict=True))
    yield from _unify(pattern, operands + others, now)
    if value.opcode in COMMUTATIVE and value.operands[0] is not value.operands[1]:
        swapped = list(zip(line.operands, reversed(value.operands), strict=True))
        yield from _unify(pattern, swapped + others, now)


def _bind(line: Line, value: Value, texts: dict[str, str]) -> dict[str, str] | None:
    """The placeholders after a line is bound to a value; None if it does not match."""
    if not line.is_argument and len(line.operands) != len(value.operands):
        return None
    # A rule reads arrays only.
    if not value.is_plain:
        return None
    # XLA infers the types in `after` from those of the operands.
    is_untyped_product = (
        not line.is_argument and not line.dtype and value.opcode in _PRODUCTS
    )
    if is_untyped_product and any(o.dtype != value.dtype for o in value.operands):
        return None
    pairs: list[tuple[str, str]] = []
    if line.opcode.startswith("$"):
        pairs.append((line.opcode[1:], value.opcode))
    if line.dtype:
        pairs.append(("" if is_type(line.dtype) else line.dtype, value.dtype))
        if is_type(line.dtype) and line.dtype != value.dtype:
            return None
    if line.dims is not None:
        if len(line.dims) != len(value.dims):
            return None
        for want, got in zip(line.dims, value.dims, strict=True):
            if want.isdecimal() and int(want) != got:
                return None
            pairs.append(("" if want.isdecimal() else want, str(got)))
    if not line.is_argument:
        found = _attribute_pairs(line, value)
        if found is None:
            return None
        pairs += found
    result = dict(texts)
    for placeholder, text in pairs:
        if placeholder and result.setdefault(placeholder, text) != text:
            return None
    return result


def _attribute_pairs(line: Line, value: Value) -> list[tuple[str, str]] | None:
    """(placeholder, text) of the attributes; None if they do not match."""
    pairs: list[tuple[str, str]] = []
    if line.opcode == "constant":
        if line.literal.startswith("$"):
            pairs.append((line.literal[1:], value.literal))
        elif not _is_literal(line.literal, value.literal):
            return None
    wanted = line.attributes or {}
    for key, text in wanted.items():
        got = value.attributes.get(key)
        if got is None:
            return None
        if text.startswith("$"):
            pairs.append((text[1:], got))
        elif text != got:
            return None
    rest = {key: text for key, text in value.attributes.items() if key not in wanted}
    if line.rest:
        joined = ", ".join(f"{key}={text}" for key, text in rest.items())
        pairs.append((line.rest, joined))
    elif rest:
        return None
    return pairs


def _is_literal(want: str, got: str) -> bool:
    if want == got:
        return True
    try:
        if not any(each.lstrip().startswith("-0") for each in (want, got)):
            return int(want) == int(got)
    except ValueError:
        pass
    try:
        one, other = float(want), float(got)
    except ValueError:
        return False
    # Zeros have signs: 1 / -0 is another infinity.
    return one == other and math.copysign(1, one) == math.copysign(1, other)
