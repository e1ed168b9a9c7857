# SPDX-License-Identifier: Apache-2.0
"""What changed from one module to another, as proposals.

All that is known of a change is that it keeps the module's results. So the whole of it
is one proposal: it replaces results, or values that follow from them, because only
operations stand between that give equal results for equal arguments alone. It reads
values that both modules compute alike.

In parts, instructions of both modules are matched (`hlo.matching`). Where a matched
instruction reads another value than before, the original of that value is replaced by
the new instructions below the new one, down to matched ones. Each part that no other
part reads is a proposal, which must be right by itself; `verify_alternatives` tells.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from ..errors import PassError
from ..hlo.matching import Pair, match_modules
from ..hlo.module import HloModule
from ..hlo.passes import run_passes
from ..hlo.python_passes import Proposals
from ..hlo.text import Instruction, ModuleText, parse_text, without_metadata
from .check import capture_proposals
from .matcher import Match
from .passes import to_proposals
from .rule import Replacement
from .subject import CONTROL_FLOW, Subject, Value

# Operations that give equal results for equal arguments alone, bit by bit. A sum is
# none: floats absorb small terms, and of predicates it is the disjunction.
_INJECTIVE = frozenset({"copy", "negate", "reshape", "reverse", "transpose", "tuple"})
# Nothing below these can have changed.
_LEAVES = ("constant", "parameter")
# Instructions that are not equal although they look so.
_STATEFUL = ("rng", "infeed", "outfeed", "send", "recv", "custom-call", "after-all")


def proposals_of(
    name: str, module: HloModule, changed: HloModule, *, split: bool
) -> Proposals:
    """What changed from one module to another, as proposals.

    Args:
        name: of the pass, and of the rule of every choice.
        module: before.
        changed: after, with the same inputs and outputs.
        split: whether each part of the changes is a proposal, in place of one.

    Raises:
        PassError: no replacement of arrays gives all of the changes.
    """
    return to_proposals(
        replacements_of(name, module, changed, split=split), has_layouts=True
    )


def replacements_of(
    name: str, module: HloModule, changed: HloModule, *, split: bool
) -> list[Replacement]:
    """The same as replacements, so that those of several changes can be joined.

    Raises:
        PassError: no replacement of arrays gives all of the changes.
    """
    if changed.fingerprint() == module.fingerprint():
        return []
    # Replacements of dead code have no effect.
    live = [run_passes(each, "dce").module for each in (module, changed)]
    texts = [parse_text(without_metadata(each.to_text())) for each in live]
    before, after = map(Subject, live)
    both = _Modules(before, after, *texts)
    attempts: list[Callable[[], list[Replacement]]] = [
        lambda: both.whole(name, is_deep=True),
        lambda: both.whole(name, is_deep=False),
    ]
    if split:
        attempts = [lambda: [x for each in both.changes() for x in each.parts(name)]]
    for attempt in attempts:
        found = attempt()
        if _gives(to_proposals(found, has_layouts=True), module, changed):
            return found
    raise PassError(
        f"the function of pass {name!r} changes {module.name!r} in a way that no "
        "replacement of arrays gives; keep tuples and the instructions that make them, "
        "side effects, control dependencies, layouts and the attributes of the module"
    )


def _gives(proposals: Proposals, module: HloModule, changed: HloModule) -> bool:
    """Whether all replacements together make the changed module.

    Equal values count as one: the function may have merged some that stay two here.
    """
    alternatives = capture_proposals(module, proposals)
    decisions = np.ones(len(alternatives), np.int64)
    made = alternatives.apply(decisions)
    return made.fingerprint() == changed.fingerprint() or (
        run_passes(made, "cse", "dce").module.fingerprint()
        == run_passes(changed, "cse", "dce").module.fingerprint()
    )


class _Modules:
    """Which computations are rewritten, and which are replaced with their callers.

    Args:
        before: the module, whose computations come after those that they call.
        after: likewise.
        old: the text of `before`.
        new: the text of `after`.
    """

    def __init__(
        self, before: Subject, after: Subject, old: ModuleText, new: ModuleText
    ) -> None:
        self._before, self._after = before, after
        self._old, self._new = old, new
        self._pairs = match_modules(old, new)  # the entries first

    def changes(self) -> list[_Changes]:
        """The changes of each computation that stays with its callers, entry first."""
        pairs = {each.before.name: each for each in self._pairs}
        found: dict[str, _Changes] = {}
        for name in self._old.computations:  # those that others call are first
            if name in pairs:
                each = _Changes(pairs[name], self, found)
                if each.is_expressible:
                    found[name] = each
        kept = [self._old.entry] if self._old.entry in found else []
        for name in kept:
            kept += [each for each in found[name].callees() if each not in kept]
        return [found[name] for name in kept]

    def whole(self, rule: str, *, is_deep: bool) -> list[Replacement]:
        """All changes as one replacement; empty if there is none that gives them.

        Args:
            rule: what proposes it.
            is_deep: whether values from which the results follow are replaced, where
                they are equal because the results are.
        """
        return _Whole(self._pairs[0], self, is_deep=is_deep).replacements(rule)

    def values(self, pair: Pair) -> tuple[list[Value], list[Value]]:
        """The values of two computations; empty for one that rules do not rewrite."""
        return (
            _values_of(self._before, pair.before.name),
            _values_of(self._after, pair.after.name),
        )

    def may_stay(
        self, old: Instruction, new: Instruction, found: Mapping[str, _Changes]
    ) -> bool:
        """Whether a matched instruction is the same operation on other operands."""
        is_same = (
            old.opcode == new.opcode
            and old.shape == new.shape
            and old.attributes == new.attributes
            and len(old.operands) == len(new.operands)
            and len(old.callees) == len(new.callees)
        )
        return is_same and all(
            self._is_equal(first, second)
            or (
                old.opcode in CONTROL_FLOW
                and first in found
                and found[first].after_name == second
            )
            for first, second in zip(old.callees, new.callees, strict=True)
        )

    def _is_equal(self, first: str, second: str) -> bool:
        return (
            self._old.computations[first].value == self._new.computations[second].value
        )

    def text_called(self, body: str) -> str:
        """The computations of `after` that a text calls."""
        names = dict.fromkeys(self._after.called_in(body))
        return "".join(map(self._after.computation_text, names))


class _Region:
    """New instructions in the place of old ones, in one computation."""

    def __init__(self, pair: Pair, modules: _Modules) -> None:
        self._modules = modules
        self._old, self._new = modules.values(pair)
        self._is_known = bool(self._old) and len(self._old) == len(pair.to_new)
        self._is_known &= bool(self._new) and len(self._new) == len(pair.to_old)
        self._mate: dict[Value, Value] = {}  # from new to old
        self._roots = (pair.before.root, pair.after.root)

    def _is_expressible(self, edges: Mapping[Value, Value]) -> bool:
        """Whether replacements of arrays can put new values in the place of old."""
        return all(
            was.is_array
            and was.shape == now.shape
            and all(each.opcode != "parameter" for each in self._cone(now))
            for was, now in edges.items()
        )

    def _between(self, edges: Mapping[Value, Value]) -> list[Value]:
        """Matched values that the replacement would read, and that depend on it.

        The values of one replacement are made at once. What stands between them
        becomes a part of it.
        """
        dependent: set[Value] = set()
        for each in self._old:
            if any(o in edges or o in dependent for o in each.operands):
                dependent.add(each)
        reads = [*edges.values()]
        for new in edges.values():
            reads += [below for each in self._cone(new) for below in each.operands]
        mates = dict.fromkeys(self._mate[each] for each in reads if each in self._mate)
        return [each for each in mates if each in dependent]

    def _cone(self, value: Value) -> list[Value]:
        """The new instructions below a value, operands first."""
        order: dict[Value, None] = {}
        stack = [value]
        while stack:
            top = stack[-1]
            pending = [
                each
                for each in top.operands
                if each not in order and each not in self._mate
            ]
            if top in self._mate or top in order:
                stack.pop()
            elif pending:
                stack += pending
            else:
                order[stack.pop()] = None
        return list(order)

    def _replacement(self, rule: str, group: list[tuple[Value, Value]]) -> Replacement:
        cone = dict.fromkeys(each for _, new in group for each in self._cone(new))
        below = [each for value in cone for each in value.operands]
        below += [new for _, new in group]
        read = dict.fromkeys(self._mate[each] for each in below if each in self._mate)
        originals = [old for old, _ in group]
        reads = list(read) or [originals[0]]
        number = {old: index for index, old in enumerate(reads)}
        lines = [
            f"  %read.{index} = {old.shape} parameter({index})"
            for old, index in number.items()
        ]

        def name_of(value: Value) -> str:
            mate = self._mate.get(value)
            return f"%{value.name}" if mate is None else f"%read.{number[mate]}"

        for value in cone:
            operands = ", ".join(map(name_of, value.operands)) or value.literal
            tail = f", {value.attribute_text}" if value.attribute_text else ""
            lines.append(
                f"  %{value.name} = {value.shape} {value.opcode}({operands}){tail}"
            )
        results = [name_of(new) for _, new in group]
        if len(results) == 1 and group[0][1] in cone:
            lines.append(lines.pop().replace("  %", "  ROOT %", 1))
        elif len(results) == 1:  # a value that is there already
            at = number[self._mate[group[0][1]]]
            lines[at] = lines[at].replace("  %", "  ROOT %", 1)
        else:
            shapes = ", ".join(new.shape for _, new in group)
            lines.append(f"  ROOT %result = ({shapes}) tuple({', '.join(results)})")
        body = "{\n" + "\n".join(lines) + "\n}\n"
        called = self._modules.text_called(body)
        return Replacement(
            rule,
            tuple(old.name for old in originals),
            tuple(old.name for old in reads),
            body,
            called,
            Match({}, {}),
        )


class _Changes(_Region):
    """The changes in one computation, between matched instructions.

    Attributes:
        is_expressible: whether replacements of arrays give them.
        after_name: the name of the computation that it becomes.
    """

    def __init__(
        self, pair: Pair, modules: _Modules, found: Mapping[str, _Changes]
    ) -> None:
        super().__init__(pair, modules)
        self._image: dict[Value, Value] = {}  # from old to new
        self._callees: dict[Value, list[str]] = {}
        self.after_name = pair.after.name
        for i, j in enumerate(pair.to_new if self._is_known else ()):
            old, new = pair.before.instructions[i], pair.after.instructions[j]
            if j >= 0 and modules.may_stay(old, new, found):
                self._image[self._old[i]] = self._new[j]
                self._mate[self._new[j]] = self._old[i]
                self._callees[self._old[i]] = [n for n in old.callees if n in found]
        self._edges = self._rewired() if self._is_known else {}
        self.is_expressible = self._is_known and self._is_expressible(self._edges)

    def callees(self) -> list[str]:
        """Computations that unchanged calls, loops and branches run."""
        return [name for old in self._image for name in self._callees[old]]

    def parts(self, rule: str) -> list[Replacement]:
        """A replacement for each part."""
        groups = _connected(self._edges, self._cone)
        return [self._replacement(rule, group) for group in groups]

    def _rewired(self) -> dict[Value, Value]:
        """Originals and what their users read instead.

        A value can be replaced if it is an array that the function has removed. An
        instruction that reads something else in the place of a tuple, or of a value
        that is still there, counts as changed itself.
        """
        root, new_root = self._old[self._roots[0]], self._new[self._roots[1]]
        if self._image.get(root, new_root) is not new_root:
            self._forget(root)
        while True:
            edges: dict[Value, Value] = {}
            wrong: list[Value] = []
            for old, new in self._image.items():
                for was, now in zip(old.operands, new.operands, strict=True):
                    if self._image.get(was) is not now and not (
                        was.is_array
                        and was.shape == now.shape
                        and was not in self._image
                        and edges.setdefault(was, now) is now
                    ):
                        wrong.append(old)
            if not wrong:
                break
            for each in wrong:
                self._forget(each)
        if root not in self._image:
            edges[root] = new_root
        return edges

    def _forget(self, old: Value) -> None:
        """Counts a matched instruction as changed."""
        if old in self._image:
            del self._mate[self._image.pop(old)]


class _Whole(_Region):
    """All changes of the entry, which replace results."""

    def __init__(self, pair: Pair, modules: _Modules, *, is_deep: bool) -> None:
        super().__init__(pair, modules)
        self._is_deep = is_deep
        by_value: dict[int, Value] = {}
        for i, line in enumerate(pair.before.instructions if self._is_known else ()):
            if not line.opcode.startswith(_STATEFUL):
                by_value.setdefault(line.value, self._old[i])
        for j, line in enumerate(pair.after.instructions if self._is_known else ()):
            i = pair.to_old[j]
            if i >= 0 and pair.before.instructions[i].value == line.value:
                self._mate[self._new[j]] = self._old[i]
            elif line.value in by_value:
                self._mate[self._new[j]] = by_value[line.value]

    def replacements(self, rule: str) -> list[Replacement]:
        """One, or none if there is nothing to replace or it cannot be expressed."""
        if not self._is_known:
            return []
        edges = self._replaced()
        while between := set(self._between(edges)):
            self._mate = {k: v for k, v in self._mate.items() if v not in between}
        if not edges or not self._is_expressible(edges):
            return []
        return [self._replacement(rule, _sorted_pairs(edges))]

    def _replaced(self) -> dict[Value, Value]:
        """Old values, and new ones that are equal to them because the results are."""
        edges: dict[Value, Value] = {}
        stack = [(self._old[self._roots[0]], self._new[self._roots[1]])]
        while stack:
            old, new = stack.pop()
            if self._mate.get(new) is old or edges.get(old) is new:
                continue
            inner = self._equal_operands(old, new)
            if inner:
                stack += inner
            else:
                edges.setdefault(old, new)
        return edges

    def _equal_operands(self, old: Value, new: Value) -> list[tuple[Value, Value]]:
        """Operands that are equal if these two values are; empty if unknown."""
        is_same = (
            old.opcode == new.opcode
            and old.opcode in _INJECTIVE
            and old.shape == new.shape
            and old.attribute_text == new.attribute_text
            and len(old.operands) == len(new.operands)
        )
        is_tuple = old.opcode == "tuple"
        if not is_same or not (self._is_deep or is_tuple):
            return []
        pairs = list(zip(old.operands, new.operands, strict=True))
        others = [(was, now) for was, now in pairs if self._mate.get(now) is not was]
        is_replaceable = all(
            was.shape == now.shape and (is_tuple or was.opcode not in _LEAVES)
            for was, now in others
        )
        return others if is_replaceable else []


def _values_of(subject: Subject, computation: str) -> list[Value]:
    return [each for each in subject.values if each.computation == computation]


def _sorted_pairs(edges: Mapping[Value, Value]) -> list[tuple[Value, Value]]:
    """The replaced values in the order of the module."""
    return sorted(edges.items(), key=lambda pair: pair[0].index)


def _connected(
    edges: Mapping[Value, Value], cone: Callable[[Value], list[Value]]
) -> list[list[tuple[Value, Value]]]:
    """Groups of replaced values whose new instructions have one in common."""
    group_of: dict[Value, int] = {}
    groups: list[list[tuple[Value, Value]]] = []
    for old, new in _sorted_pairs(edges):
        members = cone(new)
        shared = sorted({group_of[each] for each in members if each in group_of})
        target = shared[0] if shared else len(groups)
        if not shared:
            groups.append([])
        groups[target].append((old, new))
        for each in members:
            group_of[each] = target
        for other in shared[1:]:
            groups[target] += groups[other]
            groups[other] = []
            group_of = {k: target if g == other else g for k, g in group_of.items()}
    return [sorted(group, key=lambda pair: pair[0].index) for group in groups if group]
