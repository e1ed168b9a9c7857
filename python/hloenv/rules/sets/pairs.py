# SPDX-License-Identifier: Apache-2.0
"""Pairs of rules that undo each other."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from ...hlo.numerics import Numerics
from ..rule import Condition, Rule


def both_ways(
    names: tuple[str, str],
    left: str,
    right: str,
    *,
    docs: tuple[str, str],
    where: tuple[Condition | None, Condition | None] = (None, None),
    opcodes: Mapping[str, Sequence[str]] | None = None,
    numerics: Numerics = "rounding",
    as_result: Callable[[str], str] = str,
) -> tuple[Rule, Rule]:
    """The rule from `left` to `right`, and that back.

    Args:
        names: of both.
        left: what the first replaces and the second gives.
        right: what the first gives and the second replaces.
        docs: of both.
        where: of both; each gives the placeholders that only its result has.
        opcodes: of both.
        numerics: of both.
        as_result: from the text of a pattern to that of a result.
    """
    first, second = (
        Rule(
            *(name, before, as_result(after)),
            where=each,
            numerics=numerics,
            doc=doc,
            opcodes=opcodes,
        )
        for name, (before, after), each, doc in zip(
            names, ((left, right), (right, left)), where, docs, strict=True
        )
    )
    return first, second
