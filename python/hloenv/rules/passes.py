# SPDX-License-Identifier: Apache-2.0
"""Candidate passes that consist of rules."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from ..errors import HloEnvError, PassError
from ..hlo.module import HloModule
from ..hlo.numerics import Numerics
from ..hlo.pass_info import OptionValue, PassInfo, PassOption
from ..hlo.python_passes import GivenProposal, Proposals
from ..hlo.text import computation_blocks, logical_lines, outside_strings
from ..runtime.upcast import ALTERNATIVE
from .pattern import RuleError
from .rule import Replacement, Rule
from .subject import Subject

# The computations of a library belong to no module.
_BODY = re.compile(r"%rule\.\d+ ")
_LAYOUT = re.compile(r"\]\{[\d,]*\}")
_ENTRY = "ENTRY %unused {\n  ROOT %nothing = s32[] constant(0)\n}\n"


class RulePass:
    """A candidate pass of rules; each rule is an option, with "_" for "-".

    Attributes:
        rules: in the order of their proposals.
    """

    def __init__(self, name: str, rules: Iterable[Rule], *, summary: str = "") -> None:
        """Makes a pass.

        Args:
            name: of the pass.
            rules: at least one, with different names.
            summary: one sentence; that of a single rule by default.

        Raises:
            RuleError: no rules, or two with one name.
        """
        self.rules = tuple(rules)
        names = [rule.name for rule in self.rules]
        if not names or len(set(names)) < len(names):
            raise RuleError(
                f"pass {name!r} needs rules with different names, got {names}"
            )
        self._summary = summary or self.rules[0].doc or f"The rule {names[0]}."
        self._name = name

    @property
    def info(self) -> PassInfo:
        """Its description; an option for each rule where there are several."""
        options = [
            PassOption(
                _option(each), "bool", True, each.doc or f"The rule {each.name}."
            )
            for each in self.rules
        ]
        return PassInfo(
            name=self._name,
            summary=self._summary,
            options=tuple(sorted(options, key=lambda option: option.name)),
            candidate=True,
            class_name="hloenv.rules.RulePass",
            numerics=_weakest(rule.numerics for rule in self.rules),
        )

    def propose(
        self, module: HloModule, options: Mapping[str, OptionValue]
    ) -> Proposals:
        """What the rules that are on propose."""
        subject = Subject(module)
        found: list[Replacement] = []
        for rule in self.rules:
            if options.get(_option(rule), True):
                found += rule.replacements(subject)
        return to_proposals(found)


def to_proposals(
    found: Sequence[Replacement], *, has_layouts: bool = False
) -> Proposals:
    """Replacements with their computations in one library.

    Args:
        found: what rules propose.
        has_layouts: whether the bodies say the layouts of all arrays; else these are
            row-major, also where XLA infers other ones from the operands.

    Raises:
        PassError: XLA rejects the text of a replacement; the message names the rule.
    """
    called: dict[str, None] = {}
    names: dict[tuple[str, str], str] = {}
    proposals = []
    found = _with_own_names(found)
    for each in found:
        called.setdefault(each.called)
        name = names.setdefault((each.called, each.body), f"rule.{len(names)}")
        proposals.append(
            GivenProposal(
                each.rule, each.originals, each.reads, name, each.needs_moderate
            )
        )
    library = _library(found, called, names)
    if not has_layouts and found:
        library = HloModule.from_text(_without_layouts(library.to_text()))
    return Proposals(library, tuple(proposals))


def _without_layouts(text: str) -> str:
    """Text of a library whose bodies have no layouts."""
    lines = []
    is_inside = False
    for line in logical_lines(text):
        is_inside = line != "}" and (is_inside or _BODY.match(line) is not None)
        lines.append(outside_strings(_LAYOUT, "]", line) if is_inside else line)
    return "\n".join(lines)


def _with_own_names(found: Sequence[Replacement]) -> list[Replacement]:
    """The replacements, in which different computations have different names."""
    taken: dict[str, str] = {}
    texts = dict.fromkeys(each.called for each in found)
    renames = {called: _renames(called, taken) for called in texts}
    renamed = []
    for each in found:
        called, body = each.called, each.body
        for pattern, own in renames[each.called]:
            called, body = (pattern.sub(own, text) for text in (called, body))
        renamed.append(replace(each, called=called, body=body))
    return renamed


def _renames(called: str, taken: dict[str, str]) -> list[tuple[re.Pattern[str], str]]:
    """New names of computations whose names others have.

    Args:
        called: text of the computations; those that others call are first.
        taken: text of each computation by name; the others of `called` are added.
    """
    found = []
    blocks = _blocks(called)
    for i in range(len(blocks)):
        name = blocks[i].split(maxsplit=1)[0].removeprefix("%")
        if taken.setdefault(name, blocks[i]) == blocks[i]:
            continue
        digest = hashlib.sha256(blocks[i].encode()).hexdigest()[:8]
        pattern, own = re.compile(rf"%{re.escape(name)}(?![\w.-])"), f"%{name}.{digest}"
        found.append((pattern, own))
        # A new name makes another text of what calls it.
        blocks = [pattern.sub(own, each) for each in blocks]
    return found


def _library(
    found: Sequence[Replacement],
    called: Iterable[str],
    names: Mapping[tuple[str, str], str],
) -> HloModule:
    # A computation that several bodies call is in the text once.
    blocks = dict.fromkeys(block for text in called for block in _blocks(text))
    bodies = [f"%{name} {body}" for (_, body), name in names.items()]
    text = "\n".join(["HloModule rules\n", *blocks, *bodies, _ENTRY])
    wrong = {each.rule: None for each in found if f'"{ALTERNATIVE}"' in each.body}
    if wrong:
        raise PassError(
            f"the replacements of {', '.join(map(repr, wrong))} have the custom call "
            f"{ALTERNATIVE!r}, which stands for a decision; give one of its choices"
        )
    try:
        return HloModule.from_text(text)
    except HloEnvError as error:
        for each in found:
            _check_alone(each)
        raise PassError(f"the replacements of rules are invalid: {error}") from error


def _check_alone(replacement: Replacement) -> None:
    """Raises an error that names the rule if its text is invalid."""
    text = f"HloModule rule\n{replacement.called}\n%rule {replacement.body}\n{_ENTRY}"
    try:
        HloModule.from_text(text)
    except HloEnvError as error:
        raise PassError(
            f"the replacement of {', '.join(replacement.originals)} by rule "
            f"{replacement.rule!r} is invalid: {error}\n{replacement.body}"
        ) from error


def _blocks(text: str) -> list[str]:
    return [f"{each}\n\n" for _, each in computation_blocks(text)]


def _option(rule: Rule) -> str:
    return rule.name.replace("-", "_")


def _weakest(classes: Iterable[Numerics]) -> Numerics:
    order: tuple[Numerics, ...] = ("exact", "rounding", "unsafe")
    return max(classes, key=order.index)
