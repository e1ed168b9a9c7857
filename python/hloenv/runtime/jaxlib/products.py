# SPDX-License-Identifier: Apache-2.0
"""Finds products that jaxlib compiles and then cannot run.

A dot of bf16 with sums of f32 is for a library. XLA decides early that the library will
take it, and may change it afterwards; what is left has no code, and raises an error in
each call: "Unsupported element type for DotThunk::Execute".
"""

from __future__ import annotations

import re

_LIBRARY = re.compile(r"calls=%?([\w.\-]+).*__ynn_fusion")
_COMPUTATION = re.compile(r"^(?:ENTRY )?%?([\w.\-]+) .*\{$")
_DOT = re.compile(r"= f32\[[^=]* dot\(%?([\w.\-]+), %?([\w.\-]+)\)")
_NARROW = re.compile(r"^\s*(?:ROOT )?%?([\w.\-]+) = bf16\[")


def has_product_without_code(text: str) -> bool:
    """Whether a compiled module has a dot of bf16 with sums of f32 by itself.

    Args:
        text: of the module, as `jax.stages.Compiled.as_text`.
    """
    fused = set(_LIBRARY.findall(text))
    narrow: set[str] = set()
    is_fused = False
    for line in text.splitlines():
        if start := _COMPUTATION.match(line):
            is_fused = start[1] in fused
            narrow.clear()
        elif found := _NARROW.match(line):
            narrow.add(found[1])
        elif not is_fused and (dot := _DOT.search(line)) and narrow & {*dot.groups()}:
            return True
    return False
