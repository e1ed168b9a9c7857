# SPDX-License-Identifier: Apache-2.0
"""Rules: what a pattern matches is replaced by other HLO text."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from ..errors import PassError
from ..hlo.numerics import Numerics
from ..runtime.upcast import ALTERNATIVE
from .matcher import Match, anchors, matches_at, path_to_bound
from .opcodes import check_opcode
from .pattern import MAX_LINES, Pattern, RuleError, is_type, parse_pattern
from .subject import Subject

# What `where` returns: whether the rule applies, or texts of further placeholders.
Condition = Callable[[Match], "bool | Mapping[str, Any]"]

_PLACEHOLDER = re.compile(r"\$([A-Za-z_][\w.]*)")
_SHAPE = re.compile(r"\b([A-Za-z]\w*)\[([^\]]*)\]")
_RULE_NAME = re.compile(r"^[a-z0-9]+(-[a-z0-9]+)*$")
_NUMERICS = ("exact", "rounding", "unsafe")
# One rule proposes at most this many replacements in a module.
MAX_MATCHES = 10_000


def is_rule_name(name: object) -> bool:
    """Whether these are lower case words joined by "-"."""
    return isinstance(name, str) and _RULE_NAME.fullmatch(name) is not None


@dataclass(frozen=True)
class Replacement:
    """What a rule proposes at one place.

    Attributes:
        rule: its name.
        originals: names of the instructions that are replaced together.
        reads: names of the instructions that the replacement reads.
        body: HLO text of a computation, from its first brace.
        called: text of the computations of the module that the body calls.
        match: the place.
        needs_moderate: as in `GivenProposal`.
    """

    rule: str
    originals: tuple[str, ...]
    reads: tuple[str, ...]
    body: str
    called: str
    match: Match = field(compare=False, repr=False)
    needs_moderate: bool = False


@dataclass(frozen=True)
class Rule:
    """A rewrite rule in HLO text.

    Attributes:
        name: lower case, words joined by "-".
        before: the pattern; `rules.pattern` describes its language.
        after: the replacement in the same language, or one name of `before`, alone or
            as "ROOT r = a". Names of `before` that it does not define are read; shapes
            may be left out where XLA infers them. `$NAME.shape` and `$NAME.dtype` are
            those of a value of `before`.
        where: gets each `Match`; false where the rule does not apply, or a dict with
            the texts of further placeholders of `after`.
        numerics: its guarantee for floats, as for passes.
        doc: what it does, in one sentence.
        opcodes: the opcodes that each placeholder for an opcode stands for.
        ordered: whether several roots must stand in the order of the module, so that a
            rule that treats them equally does not match twice.

    Raises:
        RuleError: one of them is not what it must be.
    """

    name: str
    before: str
    after: str
    where: Condition | None = None
    numerics: Numerics = "rounding"
    doc: str = ""
    opcodes: Mapping[str, Sequence[str]] | None = None
    ordered: bool = False

    def __post_init__(self) -> None:
        if not is_rule_name(self.name):
            raise RuleError(
                f"the name of a rule must be lower case words joined by '-', got "
                f"{self.name!r}"
            )
        if self.numerics not in _NUMERICS:
            raise RuleError(
                f"numerics of rule {self.name!r} must be one of "
                f"{', '.join(_NUMERICS)}, got {self.numerics!r}"
            )
        if self.where is not None and not callable(self.where):
            raise RuleError(f"`where` of rule {self.name!r} must be a function")
        for name in ("before", "after", "doc"):
            if not isinstance(text := getattr(self, name), str):
                raise RuleError(
                    f"`{name}` of rule {self.name!r} must be a str, got "
                    f"{type(text).__name__}"
                )
        if self.opcodes is not None and not _are_opcodes(self.opcodes):
            raise RuleError(
                f"`opcodes` of rule {self.name!r} must give each placeholder a "
                "sequence of opcodes, as {'f': ('abs', 'negate')}, got "
                f"{self.opcodes!r}"
            )
        try:
            self._check()
        except RuleError as error:
            raise RuleError(f"rule {self.name!r}: {error}") from None

    def _check(self) -> None:
        before, after = self.pattern, self._after_names
        for line in before.lines.values():
            if not line.is_argument:
                for opcode in before.opcodes_of(line.name):
                    check_opcode("before", line.name, opcode, len(line.operands))
        for name, opcode, num_operands in after.instructions:
            given = before.opcodes.get(opcode[1:], ())
            for each in given if opcode.startswith("$") else (opcode,):
                check_opcode("after", name, each, num_operands)
        for position in range(1, len(before.roots)):
            bound: set[str] = set()
            for root in before.roots[:position]:
                bound |= before.below(root)
            path_to_bound(before, before.roots[position], bound)
        if unknown := after.reads - set(before.lines):
            raise RuleError(f"`after` reads {sorted(unknown)}, which `before` lacks")
        if own := after.reads & set(before.roots):
            raise RuleError(f"`after` reads {sorted(own)}, which it replaces")
        if after.num_roots != len(before.roots):
            raise RuleError(
                f"`before` has {len(before.roots)} roots and `after` "
                f"{after.num_roots}; give both as many"
            )
        if ALTERNATIVE in self.after:
            raise RuleError(
                f"`after` has the custom call {ALTERNATIVE!r}, which stands for a "
                "decision; write a rule for each choice"
            )
        free = set(_PLACEHOLDER.findall(self.after)) - self._placeholders
        if free and self.where is None:
            raise RuleError(
                f"`after` has placeholders {sorted(free)} that `before` does not bind; "
                "bind them, or return them from `where`"
            )

    @cached_property
    def pattern(self) -> Pattern:
        """The parsed `before`."""
        return parse_pattern(self.before, self.opcodes)

    @cached_property
    def _after_names(self) -> _After:
        return _After.parse(self.after)

    @cached_property
    def _placeholders(self) -> set[str]:
        found = set(_PLACEHOLDER.findall(self.before))
        for name in self.pattern.lines:
            found |= {f"{name}.shape", f"{name}.dtype"}
        for line in self.pattern.lines.values():
            found |= {each for each in (line.dims or ()) if not each.isdecimal()}
            if line.dtype and not is_type(line.dtype):
                found.add(line.dtype)
        return found

    @cached_property
    def _free(self) -> set[str]:
        """The placeholders of `after`, those that `before` binds among them."""
        shapes = [parts["shape"] or "" for parts in self._after_names.parts]
        found = set(_PLACEHOLDER.findall(self.after))
        for dtype, dims in _SHAPE.findall(" ".join(shapes)):
            found |= {dtype, *(each.strip() for each in dims.split(","))}
        return found

    def replacements(self, subject: Subject) -> Iterator[Replacement]:
        """What the rule proposes, in the order of the module, at most MAX_MATCHES.

        Of matches that bind the same instructions in different orders, as sums allow,
        the first for which `where` holds counts.

        Raises:
            PassError: `where` failed, did not give a placeholder of `after`, or
                returned something else than a bool or texts of placeholders.
        """
        seen: set[tuple[object, ...]] = set()
        for anchor in anchors(self.pattern, subject):
            for match in matches_at(self.pattern, anchor):
                made = self._replacement(match, subject)
                if made is None:
                    continue
                names = (each.name for each in match.values.values())
                key = (made.originals, frozenset(names))
                if key in seen:
                    continue
                if len(seen) == MAX_MATCHES:
                    return
                seen.add(key)
                yield made

    def _replacement(self, match: Match, subject: Subject) -> Replacement | None:
        originals = tuple(match[root] for root in self.pattern.roots)
        if self.ordered and list(originals) != sorted(originals, key=lambda v: v.index):
            return None
        texts = self._texts(match)
        if texts is None:
            return None
        after = self._after_names
        reads = [name for name in self.pattern.lines if name in after.reads]
        names = [_safe(name) for name in reads]
        if not reads:
            # Something must be read, which then tells where the replacement belongs.
            reads, names = [self.pattern.roots[0]], [after.unused_name]
        lines = [
            f"  {name} = {_shape(match[read])} parameter({number})"
            for number, (name, read) in enumerate(zip(names, reads, strict=True))
        ]
        if not after.lines:  # a value that is there already
            lines[0] = lines[0].replace("  %", "  ROOT %", 1)
        lines += after.fill(texts, f"rule {self.name!r} at {originals[0].name!r}")
        body = "{\n" + "\n".join(lines) + "\n}\n"
        called = "".join(
            subject.computation_text(each)
            for each in dict.fromkeys(subject.called_in(body))
        )
        return Replacement(
            self.name,
            tuple(each.name for each in originals),
            tuple(match[name].name for name in reads),
            body,
            called,
            match,
            needs_moderate=self.numerics == "rounding",
        )

    def _texts(self, match: Match) -> Mapping[str, str] | None:
        if self.where is None:
            return _texts_of(match)
        place = f"at {match[self.pattern.roots[0]].name!r}"
        try:
            found = self.where(match)
        except Exception as error:
            raise PassError(
                f"`where` of rule {self.name!r} fails {place}: "
                f"{type(error).__name__}: {error}"
            ) from error
        if isinstance(found, Mapping):
            if unknown := [each for each in found if each not in self._free]:
                raise PassError(
                    f"`where` of rule {self.name!r} returns {unknown} {place}, which "
                    "are no placeholders of `after`; it has "
                    f"{sorted(self._free) or 'none'}"
                )
            return _texts_of(match) | {k: _as_text(v) for k, v in found.items()}
        if not isinstance(found, bool | np.bool_):
            raise PassError(
                f"`where` of rule {self.name!r} returns {type(found).__name__} "
                f"{place}; it must return a bool, or a dict with the texts of "
                "placeholders of `after`"
            )
        return _texts_of(match) if found else None


@dataclass(frozen=True)
class _After:
    """`after`, of which names and placeholders are known.

    Attributes:
        lines: each `NAME = [SHAPE] OPCODE(OPERANDS)[, ATTRIBUTES]`.
        reads: names that it does not define.
        num_roots: 1, or the elements of a tuple.
        defined: names that it defines.
        instructions: name, opcode and number of operands of each line.
    """

    lines: tuple[str, ...]
    reads: frozenset[str]
    num_roots: int
    defined: frozenset[str] = frozenset()
    instructions: tuple[tuple[str, str, int], ...] = ()

    @property
    def parts(self) -> list[re.Match[str]]:
        """The lines, which `parse` has checked."""
        found = map(_AFTER_LINE.match, self.lines)
        return [each for each in found if each is not None]

    @property
    def unused_name(self) -> str:
        """The name of a parameter that no line reads."""
        name = "unread"
        while name in self.defined:
            name += "_"
        return _safe(name)

    @classmethod
    def parse(cls, text: str) -> _After:
        lines = [each.strip() for each in text.strip().splitlines()]
        lines = [each for each in lines if each and not each.startswith("//")]
        if len(lines) == 1 and (value := _VALUE.fullmatch(lines[0])):
            return cls((), frozenset({value[1]}), 1)
        if len(lines) > MAX_LINES:
            raise RuleError(f"`after` has {len(lines)} lines; at most {MAX_LINES} fit")
        defined: set[str] = set()
        reads: set[str] = set()
        num_roots = 0
        instructions = []
        for line in lines:
            found = _AFTER_LINE.match(line)
            if found is None:
                raise RuleError(
                    f"`after` line {line!r} is not 'NAME = [TYPE[DIMS]] "
                    "OPCODE(OPERANDS)[, ATTRIBUTES]'"
                )
            operands = []
            if found["opcode"] == "parameter":
                raise RuleError(
                    "`after` has a parameter; it reads the names of `before`"
                )
            if found["opcode"] == "constant" and not found["shape"]:
                raise RuleError(
                    f"`after` line {line!r} has no type, which XLA cannot infer of a "
                    f"constant; write {found['name']} = f32[] constant(...), or "
                    "$NAME.dtype[] for the type of a value of `before`"
                )
            if found["opcode"] != "constant":
                operands = re.findall(r"[A-Za-z_][\w.\-]*", found["operands"])
            reads |= set(operands) - defined
            if found["name"] in defined or found["name"] in reads:
                raise RuleError(
                    f"`after` line {line!r} defines {found['name']!r} a second time or "
                    "after its use"
                )
            defined.add(found["name"])
            instructions.append((found["name"], found["opcode"], len(operands)))
            if found["root"]:
                is_tuple = found["opcode"] == "tuple"
                num_roots = len(operands) if is_tuple else 1
        if sum(line.startswith("ROOT") for line in lines) != 1:
            raise RuleError("`after` needs one line with ROOT")
        names = frozenset(reads), num_roots, frozenset(defined)
        return cls(tuple(lines), *names, tuple(instructions))

    def fill(self, texts: Mapping[str, str], where: str) -> list[str]:
        """The lines with the texts of the placeholders."""

        def text_of(name: str) -> str:
            if name not in texts:
                raise PassError(
                    f"{where} has no text for the placeholder {name!r}; bind it in "
                    "`before`, or return it from `where`"
                )
            return texts[name]

        def shape_of(found: re.Match[str]) -> str:
            dtype = found[1] if is_type(found[1]) else text_of(found[1])
            dims = [each.strip() for each in found[2].split(",") if each.strip()]
            sizes = [each if each.isdecimal() else text_of(each) for each in dims]
            return f"{dtype}[{','.join(sizes)}]"

        result = []
        for parts in self.parts:
            shape = _PLACEHOLDER.sub(lambda f: text_of(f[1]), parts["shape"] or "")
            shape = _SHAPE.sub(shape_of, shape)
            opcode = _PLACEHOLDER.sub(lambda f: text_of(f[1]), parts["opcode"])
            rest = _PLACEHOLDER.sub(lambda f: text_of(f[1]), parts["rest"])
            rest = re.sub(r"^[\s,]+|[\s,]+$", "", re.sub(r",(\s*,)+", ",", rest))
            inside = parts["operands"]
            if parts["opcode"] == "constant":
                inside = _PLACEHOLDER.sub(lambda f: text_of(f[1]), inside)
            else:
                inside = re.sub(r"[A-Za-z_][\w.\-]*", lambda f: _safe(f[0]), inside)
            result.append(
                f"  {'ROOT ' if parts['root'] else ''}{_safe(parts['name'])} = {shape}"
                f"{opcode}({inside}){', ' + rest if rest else ''}"
            )
        return result


_AFTER_LINE = re.compile(
    r"^(?P<root>ROOT\s+)?%?(?P<name>[A-Za-z_][\w.\-]*)\s*=\s*"
    r"(?P<shape>(?:\$[\w.]+(?:\[[^\]]*\])?|[A-Za-z]\w*\[[^\]]*\](?:\{[\d,]*\})?)\s+)?"
    r"(?P<opcode>\$?[a-z][a-z0-9\-]*)\((?P<operands>[^()]*)\)(?P<rest>.*)$"
)


# A value of `before`.
_VALUE = re.compile(r"(?:ROOT\s+%?[A-Za-z_][\w.\-]*\s*=\s*)?%?([A-Za-z_][\w.\-]*)")


def _are_opcodes(given: object) -> bool:
    return isinstance(given, Mapping) and all(
        isinstance(key, str)
        and isinstance(opcodes, Sequence)
        and not isinstance(opcodes, str)
        and len(opcodes) > 0
        and all(isinstance(each, str) for each in opcodes)
        for key, opcodes in given.items()
    )


def _safe(name: str) -> str:
    # HLO has words that are no names: opcodes without "%", and types.
    return f"%{name}.value" if is_type(name) else f"%{name}"


def _shape(value: Any) -> str:
    return f"{value.dtype}[{','.join(map(str, value.dims))}]"


def _texts_of(match: Match) -> dict[str, str]:
    texts = dict(match.texts)
    for name, value in match.values.items():
        texts[f"{name}.shape"] = _shape(value)
        texts[f"{name}.dtype"] = value.dtype
    return texts


def _as_text(value: object) -> str:
    """Text of a placeholder: tuples of integers become "{1,0}"."""
    if isinstance(value, tuple | list):
        return "{" + ",".join(map(str, value)) + "}"
    return str(value)
