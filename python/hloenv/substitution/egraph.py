# SPDX-License-Identifier: Apache-2.0
"""The entry computation of a module as an e-graph of egglog, and back."""

from __future__ import annotations

import contextlib
import itertools
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from .._optional import needed_by
from ..cost.roofline import Rates
from ..errors import ArgumentError, ArgumentTypeError, HloEnvError
from ..hlo.module import HloModule
from ..hlo.text import logical_lines, outside_strings, without_metadata
from ..rules.subject import Subject, Value
from .saturation_rules import RULES
from .terms import (
    DECLARATIONS,
    Node,
    Shape,
    quoted,
    seconds_of,
    shape_of,
    shape_text,
    term_of,
)

_OPERATORS = frozenset(
    ("Opaque", "Unary", "Binary", "Dot", "Conv", "Concat", "Transpose", "Broadcast")
)
_ROOT = re.compile(r"  ROOT %([\w.\-]+) = ")
_LAYOUT = re.compile(r"\]\{[\d,]*\}")


class EgraphError(HloEnvError, RuntimeError):
    """An e-graph is not what the module says."""


class Entry:
    """The entry of a module: its instructions and its text."""

    def __init__(self, module: HloModule) -> None:
        if not isinstance(module, HloModule):
            raise ArgumentTypeError(
                f"saturation starts from an HloModule, got {type(module).__name__}; "
                "read one with hloenv.HloModule.from_file or from_text"
            )
        text = without_metadata(module.to_text())
        if module.position is not None or "control-predecessors=" in text:
            raise ArgumentError(
                f"the module {module.name!r} has a position in XLA's pipeline or "
                "control dependencies; saturate it as JAX lowers it"
            )
        self._new = _unused_prefix(text)
        lines = logical_lines(text)
        start = next(i for i, each in enumerate(lines) if each.startswith("ENTRY "))
        self._before = "\n".join([*lines[:start], ""])
        self._header = lines[start]
        values = Subject(module).values
        name = values[-1].computation
        self.values = [each for each in values if each.computation == name]
        roots = filter(None, map(_ROOT.match, lines[start:]))
        root = next(roots, None)
        if root is None:
            raise ArgumentError(f"the module {module.name!r} has no root")
        self.root = next(each for each in self.values if each.name == root[1])
        self.by_number = {str(each.number): each for each in self.values}

    def roots(self) -> list[Value]:
        """The root, and what nothing reads, such as effects and parameters."""
        return [
            self.root,
            *(each for each in self.values if not each.users and each is not self.root),
        ]

    def module_of(self, nodes: Mapping[str, Node], read: EgraphReading) -> HloModule:
        """The module with the chosen nodes."""
        roots = read.roots
        lines: list[str] = []
        names: dict[str, str] = {}
        stack = list(reversed(roots))
        while stack:
            top = stack[-1]
            if top in names:
                stack.pop()
                continue
            children = _operands(top, nodes)
            pending = [each for each in children if each not in names]
            if pending:
                stack += reversed(pending)
                continue
            stack.pop()
            names[top], line = self._line(
                nodes[top],
                [names[each] for each in children],
                len(names),
                read.originals.get(top, ""),
            )
            is_root = top == roots[0]
            lines.append(f"  {'ROOT ' if is_root else ''}%{names[top]} = {line}")
        body = "\n".join([self._header, *lines, "}", ""])
        parsed = HloModule.from_text(self._before + body).to_text()
        # XLA infers column-major layouts for transposes.
        return HloModule.from_text(
            "\n".join(
                outside_strings(_LAYOUT, "]", line)
                if f"%{self._new}" in line.partition(" = ")[0]
                else line
                for line in logical_lines(parsed)
            )
        )

    def _line(
        self, node: Node, operands: list[str], number: int, shape: str
    ) -> tuple[str, str]:
        """Name and text of a node; its shape, where not "", is that of an original."""
        inside = ", ".join(f"%{each}" for each in operands)
        if node.op == "Opaque":
            value = self.by_number[node.texts[0]]
            tail = f", {value.attribute_text}" if value.attribute_text else ""
            text = f"{value.shape} {value.opcode}({inside or value.literal}){tail}"
            return value.name, text
        texts = node.texts
        if node.op in ("Unary", "Binary"):
            text = f"{texts[0]}({inside})"
        elif node.op == "Dot":
            rest = f", {texts[2]}" if texts[2] else ""
            text = (
                f"dot({inside}), lhs_contracting_dims={texts[0]}, "
                f"rhs_contracting_dims={texts[1]}{rest}"
            )
        elif node.op == "Conv":
            text = f"convolution({inside}), {texts[0]}"
        elif node.op == "Broadcast":
            shape = texts[1]
            text = f"broadcast({inside}), dimensions={texts[0]}"
        else:
            opcode = {"Concat": "concatenate", "Transpose": "transpose"}[node.op]
            text = f"{opcode}({inside}), dimensions={texts[0]}"
        return f"{self._new}{number}", f"{shape} {text}".lstrip()


def _of_ruleset(rule: str, number: int) -> str:
    """A rule in a ruleset of its own."""
    return f"(ruleset rule{number})\n{rule[:-1]} :ruleset rule{number})"


def _unused_prefix(text: str) -> str:
    """A prefix for the names of new instructions."""
    prefixes = (f"saturated{number or ''}." for number in itertools.count())
    return next(each for each in prefixes if f"%{each}" not in text)


def _operands(name: str, nodes: Mapping[str, Node]) -> list[str]:
    """Operands of a node; nested concatenations of one dimension are one."""
    node = nodes[name]
    if node.op != "Concat":
        return list(node.children)
    found: list[str] = []
    for child in node.children:
        inner = nodes[child]
        if inner.op == "Concat" and inner.texts == node.texts:
            found += _operands(child, nodes)
        else:
            found.append(child)
    return found


class Egraph:
    """The e-graph of an entry."""

    def __init__(self, entry: Entry) -> None:
        with needed_by("equality saturation", "egglog", "egraph"):
            from egglog import bindings
        self._entry = entry
        self._egraph = bindings.EGraph()
        # Without their end, egglog 13.2 has taken one name for another, $v24 for $v241,
        # in a module of 293 instructions.
        names = {each: f"$v{each.number}_" for each in entry.values}
        lines = [DECLARATIONS]
        for value, name in names.items():
            lines.append(f"(let {name} {term_of(value, names)})")
            lines.append(f"(set (place {value.number}) {name})")
            if value.is_plain:
                lines.append(f"(set (shape {name}) {quoted(shape_text(value))})")
                if value.rank == 2:
                    lines.append(f"(matrix {name})")
        lines += [_of_ruleset(rule, i) for i, rule in enumerate(RULES)]
        rulesets = " ".join(f"rule{i}" for i in range(len(RULES)))
        lines.append(f"(unstable-combined-ruleset all {rulesets})")
        self._program("\n".join(lines))
        self._check()

    def _check(self) -> None:
        """Checks that each value is made of the operands that the module has.

        Raises:
            EgraphError: egglog has mixed up values.
        """
        nodes = self._nodes()
        texts = _texts_of(nodes)
        place: dict[str, str] = {}
        found: dict[str, set[tuple[str, ...]]] = {}
        for key, each in nodes.items():
            if each["op"] == "place":
                number = texts[nodes[each["children"][0]]["eclass"]]
                place[number] = each["eclass"]
            elif each["op"] in _OPERATORS and not key.startswith("primitive-"):
                children = _node(nodes, texts, each).children
                found.setdefault(each["eclass"], set()).add(children)
        for value in self._entry.values:
            if value.opcode == "concatenate":  # several terms
                continue
            wanted = tuple(place[str(each.number)] for each in value.operands)
            if wanted not in found[place[str(value.number)]]:
                raise EgraphError(
                    f"egglog has taken another operand of {value.name} than the module "
                    "has: nothing can be saturated; report it with the module"
                )

    def _program(self, text: str) -> Any:
        return self._egraph.run_program(*self._egraph.parse_program(text))

    def run_all(self) -> bool:
        """Runs all rules once, at each place; returns whether that added anything."""
        (output,) = self._program("(run all 1)")
        return bool(output.report.updated)

    def run_rule(self, number: int) -> bool:
        """Runs one of RULES once, at each place; returns whether it added anything."""
        (output,) = self._program(f"(run rule{number} 1)")
        return bool(output.report.updated)

    @contextlib.contextmanager
    def undone(self) -> Iterator[None]:
        """What is added inside is gone afterwards."""
        self._program("(push 1)")
        try:
            yield
        finally:
            self._program("(pop 1)")

    def num_nodes(self) -> int:
        """Number of e-nodes of operators."""
        (sizes,) = self._program("(print-size)")
        return sum(size for name, size in sizes.sizes if name in _OPERATORS)

    def _nodes(self) -> dict[str, Any]:
        text = self._egraph.serialize(
            [],
            max_functions=None,
            max_calls_per_function=None,
            include_temporary_functions=False,
        ).to_json()
        nodes: dict[str, Any] = json.loads(text)["nodes"]
        return nodes

    def read(self) -> EgraphReading:
        """Nodes by class, with the shapes that are known, and the roots."""
        nodes = self._nodes()
        texts = _texts_of(nodes)
        classes: dict[str, list[Node]] = {}
        shapes: dict[str, Shape] = {}
        places: dict[str, str] = {}
        for key, each in nodes.items():
            if key.startswith("primitive-") or each["op"] in ("Nil", "Cons", "matrix"):
                continue
            if each["op"] == "shape":
                owner = nodes[each["children"][0]]["eclass"]
                shapes[owner] = Shape.parse(json.loads(texts[each["eclass"]]))
            elif each["op"] == "place":
                number = texts[nodes[each["children"][0]]["eclass"]]
                places[number] = each["eclass"]
            else:
                node = _node(nodes, texts, each)
                members = classes.setdefault(each["eclass"], [])
                if node not in members:
                    members.append(node)
        _infer(classes, shapes)
        known = {
            name: [n for n in members if _is_known(n, name, shapes)]
            for name, members in classes.items()
        }
        roots = [places[str(each.number)] for each in self._entry.roots()]
        originals = {
            places[str(each.number)]: shape_text(each)
            for each in self._entry.values
            if each.is_plain
        }
        return EgraphReading(known, shapes, originals, list(dict.fromkeys(roots)))


@dataclass(frozen=True)
class EgraphReading:
    """An e-graph.

    Attributes:
        classes: the nodes of each class.
        shapes: of the classes where it is known.
        originals: text of the shapes of the classes of the entry's arrays.
        roots: the classes that are needed.
    """

    classes: dict[str, list[Node]]
    shapes: dict[str, Shape]
    originals: dict[str, str]
    roots: list[str]

    def costs(self, rates: Rates) -> dict[Node, float]:
        """Seconds of each node; opaque instructions cost nothing, as they all stay."""
        return {
            node: seconds_of(
                node,
                self.shapes[name],
                [self.shapes[child] for child in node.children],
                rates,
            )
            if node.op != "Opaque"
            else 0.0
            for name, nodes in self.classes.items()
            for node in nodes
        }


def _texts_of(nodes: Mapping[str, Any]) -> dict[str, str]:
    """Texts and numbers of a serialized e-graph, by class."""
    return {
        each["eclass"]: each["op"]
        for key, each in nodes.items()
        if key.startswith("primitive-")
    }


def _node(
    nodes: Mapping[str, Any], texts: Mapping[str, str], each: Mapping[str, Any]
) -> Node:
    """A node of the serialized e-graph, with the classes of its operands."""
    children: list[str] = []
    arguments: list[str] = []
    stack = list(reversed(each["children"]))
    while stack:
        child = nodes[stack.pop()]
        if child["op"] == "Cons":
            stack += reversed(child["children"])
        elif child["eclass"] in texts:
            text = texts[child["eclass"]]
            arguments.append(json.loads(text) if text.startswith('"') else text)
        elif child["op"] != "Nil":
            children.append(child["eclass"])
    return Node(each["op"], tuple(children), tuple(arguments))


def _infer(classes: Mapping[str, list[Node]], shapes: dict[str, Shape]) -> None:
    """Adds the shapes that follow from those of the operands."""
    open_ = [name for name in classes if name not in shapes]
    while open_:
        left = []
        for name in open_:
            for node in classes[name]:
                if node.op == "Opaque" or not all(c in shapes for c in node.children):
                    continue
                found = shape_of(node, [shapes[child] for child in node.children])
                if found is not None:
                    shapes[name] = found
                    break
            else:
                left.append(name)
        if len(left) == len(open_):
            return
        open_ = left


def _is_known(node: Node, name: str, shapes: Mapping[str, Shape]) -> bool:
    """Whether a node can be extracted: opaque, or with known shapes that fit."""
    if node.op == "Opaque":
        return True
    if name not in shapes or not all(child in shapes for child in node.children):
        return False
    if node.op == "Conv" or (node.op == "Dot" and node.texts[2]):
        return True  # `shape_of` does not know these
    return shape_of(node, [shapes[each] for each in node.children]) == shapes[name]
