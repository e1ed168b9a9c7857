# SPDX-License-Identifier: Apache-2.0
"""Rules that are passes of their own."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence

from ..hlo.module import HloModule
from ..hlo.numerics import Numerics
from ..hlo.python_passes import add_pass, check_same_kind
from .check import check_rule
from .passes import RulePass
from .pattern import RuleError
from .rule import Condition, Rule

Example = HloModule | str | os.PathLike[str]


def rule(
    name: str,
    *,
    before: str,
    after: str,
    where: Condition | None = None,
    numerics: Numerics = "rounding",
    doc: str = "",
    opcodes: Mapping[str, Sequence[str]] | None = None,
    ordered: bool = False,
    examples: Iterable[Example] | Example = (),
) -> Rule:
    """Makes a rule, and registers it as a candidate pass of its name.

    Args:
        name: of rule and pass: lower case, words joined by "-".
        before: HLO text with placeholders; `hloenv.rules.pattern` has the language.
        after: what replaces it.
        where: gets each `Match`; returns whether the rule applies there, or a dict with
            the texts of further placeholders of `after`.
        numerics: "exact", "rounding" or "unsafe", as `describe_pass` shows it.
        doc: what it does, in one sentence.
        opcodes: the opcodes that each placeholder for an opcode stands for.
        ordered: whether several roots must stand in the order of the module.
        examples: modules, HLO text or paths, or a single one, in which the rule
            applies. It is checked on them at once, with small integers, random
            fractions and numbers over the ranges of their types, and refused where it
            computes something else.

    Raises:
        RuleError: the rule is not well-formed, does not apply to an example, or
            computes something else there; the message has the counterexample.
        PassOptionError: there is a pass of this name that is not a rule.
    """
    made = Rule(name, before, after, where, numerics, doc, opcodes, ordered)
    if isinstance(examples, (HloModule, str, os.PathLike)):
        examples = (examples,)
    if not isinstance(examples, Iterable):
        raise RuleError(
            f"`examples` of rule {name!r} must be modules, HLO text or paths, got "
            f"{type(examples).__name__}"
        )
    new = RulePass(name, [made], summary=doc)
    check_same_kind(new)
    for example in examples:
        check_rule(made, example)
    add_pass(new)
    return made
