# SPDX-License-Identifier: Apache-2.0
"""Small modules of one operation of a module and, if needed, some of its operands."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from ..errors import HloEnvError
from ..hlo.module import HloModule
from ..hlo.pipeline import run_until
from ..hlo.text import Computation, Instruction, ModuleText, attribute_text, parse_text
from .accepted import AcceptedRewrite, find_rewrites
from .operations import array_type, without_layout

_MAX_DEPTH = 6
_MAX_INSTRUCTIONS = 60
# Constants up to this size are part of the module rather than parameters.
_MAX_CONSTANT = 64
# The number of a parameter, "" for others, and attributes of one without operands.
_WITHOUT_OPERANDS = re.compile(r"(\d*)(.*)", re.DOTALL)


def small_modules(module: HloModule, rewrite: AcceptedRewrite) -> Iterator[HloModule]:
    """Small modules on which XLA makes the same rewrite, the smallest first.

    Their parameters are the operands of the original, or operands of these up to some
    depth.

    Args:
        module: at the start of XLA's pipeline.
        rewrite: one that XLA makes on it.

    Raises:
        HloEnvError: the module cannot be compiled up to the rewrite.
    """
    there = run_until(module, rewrite.path, occurrence=rewrite.path_occurrence)
    text = parse_text(there.to_text())
    tried = ""
    for depth in range(_MAX_DEPTH + 1):
        hlo = extract(text, rewrite.computation, rewrite.original, depth)
        if hlo in ("", tried):
            return
        tried = hlo
        try:
            small = HloModule.from_text(hlo)
            made = {each.identity for each in find_rewrites(small)}
        except HloEnvError:
            continue
        if rewrite.identity in made:
            yield small


def extract(text: ModuleText, where: str, name: str, depth: int) -> str:
    """HLO text of a module that computes one instruction.

    Args:
        text: the whole module.
        where: name of the computation.
        name: of the instruction.
        depth: 0 for the instruction alone; n for its operands up to the n-th level.

    Returns:
        "" if the module would be too large, or a parameter is no array.
    """
    computation = text.computations[where]
    names = [each.name for each in computation.instructions]
    root = names.index(name)
    kept = _operands_up_to(computation, root, depth)
    inputs = sorted(
        {
            operand
            for index in kept
            for operand in computation.instructions[index].operands
            if operand not in kept
        }
    )
    shapes = [without_layout(computation.instructions[i].shape) for i in inputs]
    if len(kept) > _MAX_INSTRUCTIONS or any(each.startswith("(") for each in shapes):
        return ""
    lines = [
        f"  {names[i]} = {shape} parameter({number})"
        for number, (i, shape) in enumerate(zip(inputs, shapes, strict=True))
    ]
    called: dict[str, None] = {}
    for index in sorted(kept):
        each = computation.instructions[index]
        is_root = "ROOT " if index == root else ""
        lines.append(f"  {is_root}{render(each, names)}")
        _add_called(text, each, called)
    blocks = [_block(text.computations[each]) for each in called]
    blocks.append("ENTRY main {\n" + "\n".join(lines) + "\n}\n")
    return "HloModule reproducer\n\n" + "\n".join(blocks)


def _operands_up_to(computation: Computation, root: int, depth: int) -> set[int]:
    kept = {root}
    level = [root]
    for _ in range(depth):
        level = [
            operand
            for index in level
            for operand in computation.instructions[index].operands
            if operand not in kept and _can_be_inside(computation.instructions[operand])
        ]
        kept.update(level)
    # What costs nothing and decides which rewrites apply.
    level = list(kept)
    while level:
        level = [
            operand
            for index in level
            for operand in computation.instructions[index].operands
            if operand not in kept and _is_known(computation, operand)
        ]
        kept.update(level)
    return kept


def _can_be_inside(instruction: Instruction) -> bool:
    if instruction.opcode == "constant":
        return array_type(instruction.shape).num_elements <= _MAX_CONSTANT
    return instruction.opcode not in ("parameter", "get-tuple-element", "while")


def _is_known(computation: Computation, index: int) -> bool:
    """Whether it is a small constant, an iota, or a broadcast of one."""
    each = computation.instructions[index]
    if each.opcode == "broadcast":
        return _is_known(computation, each.operands[0])
    return each.opcode == "iota" or (each.opcode == "constant" and _can_be_inside(each))


def _add_called(
    text: ModuleText, instruction: Instruction, called: dict[str, None]
) -> None:
    """Adds the computations that it calls, callees first."""
    for name in instruction.callees:
        if name in text.computations and name not in called:
            for each in text.computations[name].instructions:
                _add_called(text, each, called)
            called[name] = None


def _block(computation: Computation) -> str:
    names = [each.name for each in computation.instructions]
    lines = []
    for index, each in enumerate(computation.instructions):
        is_root = "ROOT " if index == computation.root else ""
        lines.append(f"  {is_root}{render(each, names)}")
    return f"{computation.name} {{\n" + "\n".join(lines) + "\n}\n"


def render(instruction: Instruction, names: Sequence[str]) -> str:
    """A line of HLO text, without layout; `names` are those of the computation."""
    attributes = attribute_text(instruction, sigil="")
    if instruction.operands:
        inside = ", ".join(names[operand] for operand in instruction.operands)
    elif instruction.opcode == "constant":
        inside, attributes = attributes, ""
    else:
        found = _WITHOUT_OPERANDS.match(attributes)
        assert found is not None
        inside, attributes = found[1], found[2]
    shape = without_layout(instruction.shape)
    return f"{instruction.name} = {shape} {instruction.opcode}({inside}){attributes}"
