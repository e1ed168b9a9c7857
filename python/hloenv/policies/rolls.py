# SPDX-License-Identifier: Apache-2.0
"""Which forms of rolls, as of `jnp.roll`, are faster on XLA's CPU backend.

Measured as those of `KnownForms`: along narrow rows XLA's own code, which asks for each
element which part it is in, was up to twice as fast as an array with a halo.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..graph.hlo_graph import opcodes
from .dot_sizes import operands_of

if TYPE_CHECKING:
    from ..graph.hlo_graph import HloGraph

# Elements of a rolled array; and columns where it is rolled along these, alone and
# along other dimensions, too.
_MANY_ELEMENTS, _MANY_COLUMNS, _SOME_COLUMNS = 3000, 128, 16
_SLICE = opcodes().index("slice")


def has_fast_halo(graph: HloGraph, node: int, form: int) -> bool:
    """Whether rolls are faster as slices of one array with its ends on both sides.

    Args:
        graph: of the alternatives.
        node: one of the rolls.
        form: what takes its place.
    """
    halo = int(operands_of(graph, form)[0])
    rank = int(graph.rank[node])
    sizes = graph.dims[node, :rank]
    has_ends = graph.dims[halo, :rank] > sizes
    if int(graph.element_count[node]) < _MANY_ELEMENTS:
        return False
    least = _MANY_COLUMNS if int(has_ends.sum()) == 1 else _SOME_COLUMNS
    return bool(not has_ends[-1] or int(sizes[-1]) >= least)


def is_fast_roll(graph: HloGraph, form: int) -> bool:
    """Whether a sum of two padded arrays is faster as their concatenation.

    Args:
        graph: of the alternatives.
        form: the concatenation.
    """
    parts = operands_of(graph, form).tolist()
    if any(int(graph.opcode[part]) != _SLICE for part in parts):
        return False
    one, other = (int(operands_of(graph, part)[0]) for part in parts)
    last = int(graph.rank[form]) - 1
    columns = int(graph.dims[form, last])
    is_along_rows = int(graph.dims[parts[0], last]) < columns
    is_large = int(graph.element_count[form]) >= _MANY_ELEMENTS
    is_roll = one == other
    return is_roll and is_large and (columns >= _MANY_COLUMNS or not is_along_rows)
