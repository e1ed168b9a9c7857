# SPDX-License-Identifier: Apache-2.0
"""Python functions from module to module as candidate passes.

What the function changes becomes alternatives. Instructions of both modules are matched
(`hlo.matching`); where a matched instruction reads another value than before, the
original of that value is replaced by the new instructions below the new one, down to
matched ones. By default all that changes in one computation is one alternative, which
is right whenever the function is; what stands between two changes then belongs to them.
All replacements together must make the function's module. With `regions`, each part
that no other part reads is an alternative of its own, which must be right by itself;
`verify_alternatives` tells.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ..errors import HloEnvError, PassError, PassOptionError
from ..hlo.matching import Pair, match_modules
from ..hlo.module import HloModule, as_module
from ..hlo.numerics import Numerics
from ..hlo.pass_info import OptionValue, PassInfo, PassOption
from ..hlo.passes import run_passes
from ..hlo.python_passes import Proposals, add_pass
from ..hlo.text import parse_text, without_metadata
from .check import capture_proposals
from .matcher import Match
from .passes import to_proposals
from .rule import Replacement
from .subject import Subject, Value

Function = Callable[[HloModule], Any]


class FunctionPass:
    """A candidate pass that asks a Python function for another module.

    Attributes:
        function: gets a module; returns a module, HLO text or a path.
        info: the description of the pass.
    """

    def __init__(
        self,
        function: Function,
        *,
        name: str = "",
        regions: bool = False,
        numerics: Numerics = "rounding",
    ) -> None:
        """Makes a pass; `register_pass` also registers it.

        Raises:
            PassOptionError: it is not a function.
        """
        if not callable(function):
            raise PassOptionError(
                f"a pass must be a function from HloModule to HloModule, got "
                f"{type(function).__name__}"
            )
        self.function = function
        own = getattr(function, "__name__", "function")
        doc = (getattr(function, "__doc__", "") or "").strip().partition("\n")[0]
        self.info = PassInfo(
            name=name or own.strip("_").replace("_", "-"),
            summary=doc or f"The Python function {own}.",
            options=(
                PassOption(
                    "regions",
                    "bool",
                    regions,
                    "Makes an alternative of each part of the changes, in place of one "
                    "for each computation.",
                ),
            ),
            candidate=True,
            class_name=f"{getattr(function, '__module__', '')}.{own}",
            numerics=numerics,
        )

    def propose(
        self, module: HloModule, options: Mapping[str, OptionValue]
    ) -> Proposals:
        """The changes of the function.

        Raises:
            PassError: it fails, returns no module, or one with other inputs or outputs
                or with a change that no replacement of arrays gives.
        """
        changed = self._call(module)
        if changed.fingerprint() == module.fingerprint():
            return to_proposals(())
        # Replacements of dead code have no effect.
        live = [run_passes(each, "dce").module for each in (module, changed)]
        texts = [without_metadata(each.to_text()) for each in live]
        before, after = map(Subject, live)
        pairs = match_modules(*map(parse_text, texts))

        def proposals(*, split: bool) -> Proposals:
            found: list[Replacement] = []
            for pair in pairs:
                changes = _Changes(pair, before, after)
                found += changes.replacements(self.info.name, split=split)
            return to_proposals(found, has_layouts=True)

        together = proposals(split=False)
        if not _gives(together, module, changed):
            raise PassError(
                f"the function of pass {self.info.name!r} changes {module.name!r} in a "
                "way that no replacement of arrays gives; keep tuples and the "
                "instructions that make them, side effects, control dependencies, "
                "layouts and the attributes of the module"
            )
        return proposals(split=True) if options.get("regions", False) else together

    def _call(self, module: HloModule) -> HloModule:
        name = self.info.name
        returned: Any = None
        try:
            returned = self.function(module)
            changed = as_module(returned)
        except Exception as error:
            reason = f"fails on {module.name!r}: {type(error).__name__}: {error}"
            if isinstance(returned, str) and not isinstance(error, HloEnvError):
                reason = (
                    "returned text that is neither HLO nor a path for "
                    f"{module.name!r}: {error}"
                )
            raise PassError(f"the function of pass {name!r} {reason}") from error
        if changed.entry_layout != module.entry_layout:
            raise PassError(
                f"the function of pass {name!r} changes the module's inputs and "
                f"outputs from {module.entry_layout} to {changed.entry_layout}; it "
                "must keep them"
            )
        return changed


def _gives(proposals: Proposals, module: HloModule, changed: HloModule) -> bool:
    """Whether all replacements together make the changed module."""
    alternatives = capture_proposals(module, proposals)
    decisions = np.ones(len(alternatives), np.int64)
    made = alternatives.apply(decisions)
    return made.fingerprint() == changed.fingerprint()


class _Changes:
    """The changes in one computation, between matched instructions."""

    def __init__(self, pair: Pair, before: Subject, after: Subject) -> None:
        self._after = after
        self._old = _values_of(before, pair.before.name)
        self._new = _values_of(after, pair.after.name)
        self._mate: dict[Value, Value] = {}  # from new to old
        self._image: dict[Value, Value] = {}  # from old to new
        if len(self._old) == len(pair.to_new) and len(self._new) == len(pair.to_old):
            for i, j in enumerate(pair.to_new):
                if j >= 0 and _may_stay(self._old[i], self._new[j]):
                    self._image[self._old[i]] = self._new[j]
                    self._mate[self._new[j]] = self._old[i]
        self._roots = (pair.before.root, pair.after.root)

    def replacements(self, rule: str, *, split: bool) -> list[Replacement]:
        """The replacements; one if not `split`."""
        edges = self._rewired()
        while not split and (between := self._between(edges)):
            for each in between:
                self._forget(each)
            edges = self._rewired()
        if not edges:
            return []
        groups = _connected(edges, self._cone) if split else [sorted_pairs(edges)]
        return [self._replacement(rule, group) for group in groups]

    def _rewired(self) -> dict[Value, Value]:
        """Originals and what their users read instead.

        A value can be replaced if it is an array that the function has removed. An
        instruction that reads something else in the place of a tuple, or of a value
        that is still there, counts as changed itself.
        """
        if not self._old or not self._new:
            return {}
        root, new_root = self._old[self._roots[0]], self._new[self._roots[1]]
        if self._image.get(root, new_root) is not new_root:
            self._forget(root)
        while True:
            edges: dict[Value, Value] = {}
            wrong: list[Value] = []
            for old, new in self._image.items():
                for was, now in zip(old.operands, new.operands, strict=True):
                    if self._image.get(was) is not now and not (
                        was.is_plain
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
        is_expressible = all(each.is_plain for each in edges)
        return edges if is_expressible else {}

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

    def _forget(self, old: Value) -> None:
        """Counts a matched instruction as changed."""
        if old in self._image:
            del self._mate[self._image.pop(old)]

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
        called = "".join(
            self._after.computation_text(each)
            for each in dict.fromkeys(self._after.called_in(body))
        )
        return Replacement(
            rule,
            tuple(old.name for old in originals),
            tuple(old.name for old in reads),
            body,
            called,
            Match({}, {}),
        )


def _values_of(subject: Subject, computation: str) -> list[Value]:
    return [each for each in subject.values if each.computation == computation]


def _may_stay(old: Value, new: Value) -> bool:
    """Whether a matched instruction is the same operation on other operands."""
    return (
        old.opcode == new.opcode
        and old.shape == new.shape
        and old.literal == new.literal
        and len(old.operands) == len(new.operands)
        and (old.opcode in _CALLERS or old.attribute_text == new.attribute_text)
    )


# Their computations are matched, and rewritten, by themselves.
_CALLERS = frozenset({"call", "conditional", "while"})


def sorted_pairs(edges: Mapping[Value, Value]) -> list[tuple[Value, Value]]:
    """The replaced values in the order of the module."""
    return sorted(edges.items(), key=lambda pair: pair[0].index)


def _connected(
    edges: Mapping[Value, Value], cone: Callable[[Value], list[Value]]
) -> list[list[tuple[Value, Value]]]:
    """Groups of replaced values whose new instructions have one in common."""
    group_of: dict[Value, int] = {}
    groups: list[list[tuple[Value, Value]]] = []
    for old, new in sorted_pairs(edges):
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


def register_pass(
    function: Function | None = None,
    *,
    name: str = "",
    regions: bool = False,
    numerics: Numerics = "rounding",
) -> Any:
    """Registers a Python function from module to module as a candidate pass.

    Also a decorator, with or without arguments.

    Args:
        function: gets an `HloModule`; returns a module, HLO text or a path. It must
            keep the module's inputs and outputs.
        name: of the pass; by default the function's, with "-" for "_".
        regions: whether each part of the changes is an alternative, by default. Each
            part must then be right by itself.
        numerics: "exact", "rounding" or "unsafe", as `describe_pass` shows it.

    Returns:
        The function.

    Raises:
        PassOptionError: it is not a function, or hloenv has a pass of this name.
    """
    if function is None:
        return lambda given: register_pass(
            given, name=name, regions=regions, numerics=numerics
        )
    add_pass(FunctionPass(function, name=name, regions=regions, numerics=numerics))
    return function
