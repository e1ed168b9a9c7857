# SPDX-License-Identifier: Apache-2.0
"""Edits of HLO text, by lines, that make a module smaller.

Edits ignore the semantics of instructions: XLA's parser and verifier determine which of
the smaller texts are valid.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from ..hlo.text import COMMENT, NAME, OPCODE, logical_lines

_METADATA = re.compile(
    r", (?:metadata|origin|frontend_attributes|sharding|backend_config)="
    r'\{(?:[^{}"]|"(?:[^"\\]|\\.)*"|\{[^{}]*\})*\}'
)
_LAYOUT = re.compile(r",? *entry_computation_layout=\{.*?\)->.*?\}(?=,|$)")


@dataclass(frozen=True)
class _Line:
    """One instruction."""

    name: str
    shape: str
    opcode: str
    rest: str  # from the opcode on

    @property
    def refs(self) -> tuple[str, ...]:
        """Names of operands and called computations."""
        return tuple(NAME.findall(self.rest))

    @property
    def operands(self) -> tuple[str, ...]:
        inside = self.rest[len(self.opcode) + 1 :].partition(")")[0]
        return tuple(NAME.findall(inside))


@dataclass
class _Body:
    """One computation."""

    name: str
    lines: dict[str, _Line] = field(default_factory=dict)
    root: str = ""


@dataclass
class _Sketch:
    header: str
    bodies: dict[str, _Body]
    entry: str


def _read(text: str) -> _Sketch:
    lines = logical_lines(text)
    sketch = _Sketch(lines[0], {}, "")
    body: _Body | None = None
    for line in lines[1:]:
        if body is not None and line.startswith("  "):
            left, _, right = line.partition(" = ")
            right = COMMENT.sub("", right)
            opcode = OPCODE.search(" " + right)
            if opcode is None:
                continue
            name = left.rpartition("%")[2]
            shape = right[: opcode.start() - 1] if opcode.start() else ""
            rest = right[opcode.start() :]
            body.lines[name] = _Line(name, shape.strip(), opcode[1], rest)
            if left.lstrip().startswith("ROOT "):
                body.root = name
        elif line.endswith("{") and (found := NAME.search(line)):
            body = _Body(found[1])
            sketch.bodies[body.name] = body
            if line.startswith("ENTRY"):
                sketch.entry = body.name
    return sketch


def _write(sketch: _Sketch) -> str:
    parts = [sketch.header]
    for body in sketch.bodies.values():
        parts.append("ENTRY " * (body.name == sketch.entry) + f"%{body.name} {{")
        for line in body.lines.values():
            root = "ROOT " * (line.name == body.root)
            parts.append(f"  {root}%{line.name} = {line.shape} {line.rest}")
        parts.append("}\n")
    return "\n".join(parts) + "\n"


def _ends(sketch: _Sketch) -> dict[str, set[str]]:
    """Unused instructions by computation, except roots and parameters."""
    return {
        name: {line.name for line in body.lines.values() if line.opcode != "parameter"}
        - {ref for line in body.lines.values() for ref in line.refs}
        - {body.root}
        for name, body in sketch.bodies.items()
    }


def _cleaned(sketch: _Sketch, kept: dict[str, set[str]]) -> _Sketch:
    """Removes unused instructions, except `kept`, which may have side effects.

    Renumbers entry parameters from 0.
    """
    live: set[str] = set()
    pending = [sketch.entry]
    while pending:
        name = pending.pop()
        if name in live or name not in sketch.bodies:
            continue
        live.add(name)
        body = sketch.bodies[name]
        needed: set[str] = set()
        todo = [body.root, *kept.get(name, ())]
        if name != sketch.entry:
            lines = body.lines.values()
            todo += [line.name for line in lines if line.opcode == "parameter"]
        while todo:
            each = todo.pop()
            if each not in needed and each in body.lines:
                needed.add(each)
                todo += body.lines[each].refs
        body.lines = {key: line for key, line in body.lines.items() if key in needed}
        pending += [ref for line in body.lines.values() for ref in line.refs]
    sketch.bodies = {n: body for n, body in sketch.bodies.items() if n in live}
    entry = sketch.bodies[sketch.entry]
    number = 0
    for key, line in entry.lines.items():
        if line.opcode == "parameter":
            rest = re.sub(r"parameter\(\d+\)", f"parameter({number})", line.rest)
            entry.lines[key] = replace(line, rest=rest)
            number += 1
    return sketch


@dataclass(frozen=True)
class Edit:
    """One edit that makes a module smaller.

    Attributes:
        kind: "drop" for unused instructions, or a key of `_EDITORS`.
        body: name of the computation.
        names: the instructions to edit.
        other: the instruction that replaces them.
    """

    kind: str
    body: str = ""
    names: tuple[str, ...] = ()
    other: str = ""


def edits(text: str) -> list[Edit]:
    """Returns possible edits, the largest first; some results are not valid modules."""
    sketch = _read(text)
    entry = sketch.bodies.get(sketch.entry)
    if entry is None:
        return []
    found = [Edit("bare_header"), Edit("no_metadata")]
    for name, ends in _ends(sketch).items():
        if ends:
            found.append(Edit("drop", name, tuple(sorted(ends))))
    found += [Edit("root", entry.name, (name,)) for name in _other_roots(entry)]
    root = entry.lines[entry.root]
    if root.opcode == "tuple" and len(root.operands) > 1:
        found += [Edit("outputs", entry.name, keep) for keep in _kept(root.operands)]
    for name, body in reversed(sketch.bodies.items()):
        found += _edits_of(body, is_entry=name == sketch.entry)
    return found


def apply(text: str, edit: Edit) -> str | None:
    """Returns the smaller text; None if the edit does not apply or shrink it."""
    sketch = _read(text)
    if edit.kind != "no_metadata":
        sketch.header = _LAYOUT.sub("", sketch.header)
    body = sketch.bodies.get(edit.body)
    if edit.body and (
        body is None
        or not body.lines.keys() >= {*edit.names, *[edit.other] * bool(edit.other)}
    ):
        return None
    kept = _ends(sketch)
    if edit.kind == "drop":
        kept[edit.body] -= set(edit.names)
    elif not _EDITORS[edit.kind](sketch, edit):
        return None
    result = _write(_cleaned(sketch, kept))
    return result if len(result) < len(text) else None


def _edits_of(body: _Body, *, is_entry: bool) -> Iterator[Edit]:
    lines = [line for line in body.lines.values() if line.opcode != "parameter"]
    if is_entry and len(lines) > 8:
        for parts in (2, 4, 8):
            size = -(-len(lines) // parts)
            for start in range(0, len(lines), size):
                names = tuple(line.name for line in lines[start : start + size])
                yield Edit("parameters", body.name, names)
    for line in reversed(lines):
        if line.name != body.root:
            yield Edit("drop", body.name, (line.name,))
        if is_entry and line.name != body.root:
            yield Edit("parameters", body.name, (line.name,))
        for operand in dict.fromkeys(line.operands):
            if operand in body.lines and body.lines[operand].shape == line.shape:
                yield Edit("operand", body.name, (line.name,), operand)
        if line.opcode not in ("constant", "broadcast"):
            yield Edit("constant", body.name, (line.name,))


def _other_roots(entry: _Body) -> list[str]:
    """Possible roots, by the number of instructions that they depend on."""
    needs: dict[str, set[str]] = {}
    for key, line in entry.lines.items():
        needs[key] = {key}.union(*(needs.get(ref, set()) for ref in line.refs))
    names = [
        key
        for key, line in entry.lines.items()
        if line.opcode not in ("parameter", "constant") and key != entry.root
    ]
    names.sort(key=lambda key: len(needs[key]))
    # Starts with a few of different sizes.
    sparse = names[:: max(1, len(names) // 8)]
    return list(dict.fromkeys([*sparse, *names]))


def _kept(operands: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    half = len(operands) // 2
    yield operands[:half]
    yield operands[half:]
    if len(operands) > 2:
        for position in range(len(operands)):
            yield operands[:position] + operands[position + 1 :]


def _bare_header(sketch: _Sketch, _: Edit) -> bool:
    sketch.header = sketch.header.partition(",")[0]
    return True


def _no_metadata(sketch: _Sketch, _: Edit) -> bool:
    for body in sketch.bodies.values():
        for key, line in body.lines.items():
            body.lines[key] = replace(line, rest=_METADATA.sub("", line.rest))
    return True


def _root(sketch: _Sketch, edit: Edit) -> bool:
    sketch.bodies[edit.body].root = edit.names[0]
    return True


def _outputs(sketch: _Sketch, edit: Edit) -> bool:
    body = sketch.bodies[edit.body]
    root = body.lines[body.root]
    if root.opcode != "tuple":
        return False
    shapes = ", ".join(body.lines[name].shape for name in edit.names)
    names = ", ".join(f"%{name}" for name in edit.names)
    body.lines[root.name] = replace(root, shape=f"({shapes})", rest=f"tuple({names})")
    return True


def _parameters(sketch: _Sketch, edit: Edit) -> bool:
    body = sketch.bodies[edit.body]
    for name in edit.names:
        if name != body.root:
            line = body.lines[name]
            # `_cleaned` renumbers the remaining ones.
            body.lines[name] = replace(line, opcode="parameter", rest="parameter(0)")
    return True


def _operand(sketch: _Sketch, edit: Edit) -> bool:
    """Replaces all uses of an instruction by one of its operands."""
    body = sketch.bodies[edit.body]
    (old,) = edit.names
    pattern = re.compile(rf"%{re.escape(old)}(?![\w.\-])")
    for key, line in body.lines.items():
        body.lines[key] = replace(line, rest=pattern.sub(f"%{edit.other}", line.rest))
    if body.root == old:
        body.root = edit.other
    del body.lines[old]
    return True


def _constant(sketch: _Sketch, edit: Edit) -> bool:
    """Replaces an array constant by a broadcast of one, or false."""
    body = sketch.bodies[edit.body]
    (name,) = edit.names
    line = body.lines[name]
    array = re.match(r"(\w+)\[([\d,]*)\]", line.shape)
    if array is None:
        return False
    text = "constant(false)" if array[1] == "pred" else "constant(1)"
    if not array[2]:
        body.lines[name] = replace(line, opcode="constant", rest=text)
        return True
    lines: dict[str, _Line] = {}
    for key, each in body.lines.items():
        if key == name:
            scalar = f"{name}.one"
            lines[scalar] = _Line(scalar, f"{array[1]}[]", "constant", text)
            rest = f"broadcast(%{scalar}), dimensions={{}}"
            each = replace(line, opcode="broadcast", rest=rest)
        lines[key] = each
    body.lines = lines
    return True


_EDITORS: dict[str, Callable[[_Sketch, Edit], bool]] = {
    "bare_header": _bare_header,
    "no_metadata": _no_metadata,
    "root": _root,
    "outputs": _outputs,
    "parameters": _parameters,
    "operand": _operand,
    "constant": _constant,
}
