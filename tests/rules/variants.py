# SPDX-License-Identifier: Apache-2.0
"""The cases of the rules with other types and shapes.

A rule need not apply to them, and some are not valid HLO. Where it applies, it must give
equal values.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from hloenv import HloModule
from hloenv.errors import InvalidModuleError, ParseError
from rules.cases import CASES, module_of

_LINE = re.compile(
    r"(?P<root>ROOT )?(?P<name>\w+) = (?P<shape>\([^)]*\)|\w+\[[\d,]*\]) "
    r"(?P<opcode>[\w\-]+)\((?P<operands>[^)]*)\)(?P<rest>.*)"
)
_PRODUCTS = ("dot", "convolution")


def variants(name: str, kind: str) -> list[HloModule]:
    """The valid modules of a kind: "c64", "products in f32" or "trailing"."""
    made = []
    for text in dict.fromkeys(_KINDS[kind](CASES[name][0])):
        try:
            made.append(HloModule.from_text(module_of(text)))
        except (InvalidModuleError, ParseError):
            continue
    return made


def _complex(text: str) -> Iterator[str]:
    if "maximum" not in text:  # complex numbers have no order
        yield text.replace("f32", "c64")


def _products_in_f32(text: str) -> Iterator[str]:
    """What products read is bf16; they and what reads them is f32."""
    lines = [line.groupdict() for line in map(_LINE.match, _lines(text)) if line]
    narrow: set[str] = set()
    for line in reversed(lines):
        if line["opcode"] in _PRODUCTS or line["name"] in narrow:
            narrow |= set(re.findall(r"[a-z]\w*", line["operands"]))
    if narrow:
        for line in lines:
            if line["name"] in narrow:
                line["shape"] = line["shape"].replace("f32", "bf16")
        yield "\n".join(map(_text, lines))


def _trailing(text: str) -> Iterator[str]:
    """One more dimension of some matrices: one parameter, or all values."""
    lines = [line.groupdict() for line in map(_LINE.match, _lines(text)) if line]
    parameters = [i for i, line in enumerate(lines) if line["opcode"] == "parameter"]
    for chosen in [{i} for i in parameters] + [set(range(len(lines)))]:
        made = []
        for i, line in enumerate(lines):
            now = dict(line)
            is_matrix = line["shape"].count(",") > 0
            if i in chosen and is_matrix:
                now["shape"] = line["shape"].replace("]", ",2]")
            # XLA infers the other shapes.
            if line["opcode"] not in ("parameter", "broadcast"):
                now["shape"] = ""
            if line["opcode"] == "transpose" and len(chosen) > 1:
                rank = line["rest"].count(",")
                now["rest"] = line["rest"].replace("}", f",{rank}}}")
            made.append(_text(now))
        yield "\n".join(made)


_KINDS = {
    "c64": _complex,
    "products in f32": _products_in_f32,
    "trailing": _trailing,
}


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines()]


def _text(line: dict[str, str]) -> str:
    head = f"{line['root'] or ''}{line['name']} = {line['shape']}"
    return f"{head} {line['opcode']}({line['operands']}){line['rest']}"
