# SPDX-License-Identifier: Apache-2.0
"""HLO text as lines that can be left out, for reducing a module.

Nothing here knows what an instruction means: XLA's parser and verifier say which of the
smaller texts are modules.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

_OPCODE = re.compile(r" ([a-z][a-z0-9-]*)\(")
_NAME = re.compile(r"%([\w.\-]+)")
_METADATA = re.compile(
    r", (?:metadata|origin|frontend_attributes|sharding|backend_config)="
    r'\{(?:[^{}"]|"(?:[^"\\]|\\.)*"|\{[^{}]*\})*\}'
)
_LAYOUT = re.compile(r",? *entry_computation_layout=\{.*?\)->.*?\}(?=,|$)")
_COMMENT = re.compile(r"/\*.*?\*/")


@dataclass(frozen=True)
class _Line:
    """One instruction."""

    name: str
    shape: str
    opcode: str
    rest: str  # from the opcode on

    @property
    def refs(self) -> tuple[str, ...]:
        """Operands and computations, by name."""
        return tuple(_NAME.findall(self.rest))

    @property
    def operands(self) -> tuple[str, ...]:
        inside = self.rest[len(self.opcode) + 1 :].partition(")")[0]
        return tuple(_NAME.findall(inside))


@dataclass
class _Body:
    """One computation."""

    name: str
    lines: dict[str, _Line] = field(default_factory=dict)
    root: str = ""

    def copy(self) -> _Body:
        return _Body(self.name, dict(self.lines), self.root)


@dataclass
class _Sketch:
    header: str
    bodies: dict[str, _Body]
    entry: str

    def copy(self) -> _Sketch:
        bodies = {name: body.copy() for name, body in self.bodies.items()}
        return _Sketch(self.header, bodies, self.entry)


def _read(text: str) -> _Sketch:
    lines = text.splitlines()
    sketch = _Sketch(lines[0], {}, "")
    body: _Body | None = None
    for line in lines[1:]:
        if body is not None and line.startswith("  "):
            left, _, right = line.partition(" = ")
            right = _COMMENT.sub("", right)
            opcode = _OPCODE.search(" " + right)
            if opcode is None:
                continue
            name = left.rpartition("%")[2]
            shape = right[: opcode.start() - 1] if opcode.start() else ""
            rest = right[opcode.start() :]
            body.lines[name] = _Line(name, shape.strip(), opcode[1], rest)
            if left.lstrip().startswith("ROOT "):
                body.root = name
        elif line.endswith("{") and (found := _NAME.search(line)):
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


def _cleaned(sketch: _Sketch) -> _Sketch:
    """Without what nothing reads; entry parameters numbered from 0."""
    live: set[str] = set()
    pending = [sketch.entry]
    while pending:
        name = pending.pop()
        if name in live or name not in sketch.bodies:
            continue
        live.add(name)
        body = sketch.bodies[name]
        needed: set[str] = set()
        todo = [body.root]
        todo += [
            line.name
            for line in body.lines.values()
            if line.opcode == "parameter" and name != sketch.entry
        ]
        while todo:
            each = todo.pop()
            if each in needed or each not in body.lines:
                continue
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


def smaller_texts(text: str) -> Iterator[str]:
    """Texts of smaller modules, the boldest cuts first; not all of them are valid."""
    sketch = _read(text)
    if not sketch.entry or sketch.entry not in sketch.bodies:
        return
    seen = {text}
    for candidate in _smaller(sketch):
        if (result := _write(_cleaned(candidate))) not in seen:
            seen.add(result)
            # Never larger: or reducing would not end.
            if len(result) < len(text):
                yield result


def _smaller(sketch: _Sketch) -> Iterator[_Sketch]:
    yield from _plainer(sketch)
    entry = sketch.bodies[sketch.entry]
    base = sketch.copy()
    base.header = _LAYOUT.sub("", sketch.header)
    for root in _other_roots(entry):
        candidate = base.copy()
        candidate.bodies[sketch.entry].root = root
        yield candidate
    yield from _fewer_outputs(base)
    yield from _without(base)


def _plainer(sketch: _Sketch) -> Iterator[_Sketch]:
    """Without metadata, and with an empty header."""
    candidate = sketch.copy()
    candidate.header = _LAYOUT.sub("", sketch.header).partition(",")[0]
    yield candidate
    candidate = sketch.copy()
    for body in candidate.bodies.values():
        for key, line in body.lines.items():
            body.lines[key] = replace(line, rest=_METADATA.sub("", line.rest))
    yield candidate


def _other_roots(entry: _Body) -> list[str]:
    """Instructions that could be the root, in order of how much they need."""
    size: dict[str, set[str]] = {}
    for key, line in entry.lines.items():
        size[key] = {key}.union(*(size.get(ref, set()) for ref in line.refs))
    names = [
        key
        for key, line in entry.lines.items()
        if line.opcode not in ("parameter", "constant") and key != entry.root
    ]
    names.sort(key=lambda key: len(size[key]))
    # A bisection's steps first, then all.
    sparse = names[:: max(1, len(names) // 8)]
    return sparse + names


def _fewer_outputs(sketch: _Sketch) -> Iterator[_Sketch]:
    """A root tuple with some of its operands."""
    root = sketch.bodies[sketch.entry].lines[sketch.bodies[sketch.entry].root]
    if root.opcode != "tuple" or len(root.operands) < 2:
        return
    operands = root.operands
    half = len(operands) // 2
    keeps = [operands[:half], operands[half:]]
    if len(operands) > 2:
        keeps += [operands[:i] + operands[i + 1 :] for i in range(len(operands))]
    for keep in keeps:
        candidate = sketch.copy()
        body = candidate.bodies[sketch.entry]
        shapes = ", ".join(body.lines[name].shape for name in keep)
        names = ", ".join(f"%{name}" for name in keep)
        body.lines[root.name] = replace(
            root, shape=f"({shapes})", rest=f"tuple({names})"
        )
        yield candidate


def _without(sketch: _Sketch) -> Iterator[_Sketch]:
    """With instructions replaced by parameters, operands or constants."""
    for name, body in sketch.bodies.items():
        lines = [line for line in body.lines.values() if line.opcode != "parameter"]
        chunks = [lines[: len(lines) // 2], lines[len(lines) // 2 :]]
        if name == sketch.entry:
            for chunk in chunks if len(lines) > 8 else []:
                candidate = sketch.copy()
                for line in chunk:
                    if line.name != body.root:
                        _to_parameter(candidate.bodies[name], line)
                yield candidate
        for line in reversed(lines):
            for operand in dict.fromkeys(line.operands):
                if operand in body.lines and body.lines[operand].shape == line.shape:
                    candidate = sketch.copy()
                    _rename(candidate.bodies[name], line.name, operand)
                    yield candidate
            if name == sketch.entry and line.name != body.root:
                candidate = sketch.copy()
                _to_parameter(candidate.bodies[name], line)
                yield candidate
            elif line.opcode != "constant" and re.fullmatch(r"\w+\[\]", line.shape):
                candidate = sketch.copy()
                value = "false" if line.shape.startswith("pred") else "1"
                candidate.bodies[name].lines[line.name] = _Line(
                    line.name, line.shape, "constant", f"constant({value})"
                )
                yield candidate


def _to_parameter(body: _Body, line: _Line) -> None:
    body.lines[line.name] = _Line(
        line.name, line.shape, "parameter", "parameter(999999)"
    )


def _rename(body: _Body, old: str, new: str) -> None:
    """Everything that reads `old` reads `new`."""
    pattern = re.compile(rf"%{re.escape(old)}(?![\w.\-])")
    for key, line in body.lines.items():
        body.lines[key] = replace(line, rest=pattern.sub(f"%{new}", line.rest))
    if body.root == old:
        body.root = new
    body.lines.pop(old, None)
