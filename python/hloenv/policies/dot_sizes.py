# SPDX-License-Identifier: Apache-2.0
"""Sizes of dots, and what is known to be faster for which.

The conditions come from measurements, as those of `known_forms`.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import TYPE_CHECKING

import numpy as np

from .._typing import Int64Array
from ..graph.hlo_graph import dtypes, opcodes
from .crossed_dots import AS_STORED, FIRST_TRANSPOSED, SWAPPED, CrossedDot

if TYPE_CHECKING:
    from ..graph.hlo_graph import HloGraph

DOT_ATTRIBUTES = (
    *("dot_batch_size", "dot_lhs_size", "dot_rhs_size"),
    "dot_contracting_size",
)
_TRANSPOSE = opcodes().index("transpose")
# Rules of which one at least is offered for the transposition of a dot.
OF_TRANSPOSED = frozenset((SWAPPED, FIRST_TRANSPOSED))
# For products of few rows with a transposed matrix.
OF_FEW_ROWS = frozenset(("matrix_first", "separate"))

# Products of matrices, from which multiplications were faster; and rows of products
# with a matrix of few rows, by the columns of that, where not all were faster.
_MANY_DOTS = 100
_MANY_ROWS = 500
_COLUMNS_OF = {2: range(9), 8: range(2, 17)}
# Elements of a column, and of a row, up to which their product was faster written out.
_SMALL_OUTER = 4
# Rows of a product with a transposed matrix; elements of the matrix from which another
# form was faster; and columns for each term, up to which that was the matrix first. Of
# one row, to whose product something is added, from fewer elements.
_FEW_DOT_ROWS, _LARGE_MATRIX, _MANY_COLUMNS = 16, 2**14, 4
_ADDED_MATRIX = 2**8
# Elements of the matrices of batched products of one row, from which swapped operands
# or a loop over a batch dimension were faster.
_LARGE_MATRICES = 2**16
# Multiplications from which a dot with a matrix that is mostly zero was faster as
# gathers, or a scatter.
_MANY_PRODUCTS = 2**18
# Multiplications of converted bytes from which a product of bytes was faster.
_NARROW_PRODUCTS = 2**16
# Terms, and multiplications of one product of matrices, from which products of bf16
# were faster with sums of f32, which are rounded.
_WIDE_TERMS, _WIDE_PRODUCTS = 32, 2**19
# The same where some have no sign, whose sums it has beside it: with fewer rows,
# columns or terms, these took as long.
_SHIFTED_PRODUCTS, _SHIFTED_ROWS, _SHIFTED_TERMS = 2**17, 4, 32
# Rows, columns and terms from which products of floats were faster for truth values.
_TRUTH_SIZE = 64
# Rows, columns and terms from which a dot of complex numbers with as many was faster as
# four dots of real ones. And products of complex matrices, or rows of them, from which
# multiplications were faster, of as few terms as the rule takes.
_SOME_ROWS = 16
_SOME_COMPLEX, _MANY_COMPLEX_ROWS = 32, 500
_FLOAT_BYTES = {"f64": 8, "f32": 4, "f16": 2, "bf16": 2}
# Elements of a transposed matrix from which a vector was multiplied faster with the
# matrix as it is stored.
_STORED_MATRIX = 2**12
# Elements of an operand that XLA transposes, from which one summed dimension was
# faster than several; and terms and rows of several products, of which it was slower
# with fewer.
_FLAT_ELEMENTS, _FLAT_TERMS, _FLAT_ROWS = 2**12, 128, 8


def operands_of(graph: HloGraph, node: int) -> Int64Array:
    """The nodes of the operands of a node, in order."""
    begin, end = graph.in_offsets[node : node + 2].tolist()
    return graph.edge_sources[begin:end]


def is_read_across(graph: HloGraph, dot: int, product: int) -> bool:
    """Whether a dot without a sum, as multiplications, transposes an operand there.

    LLVM then reads it a number at a time, a row of the operand apart.

    Args:
        graph: of the alternatives.
        dot: its node.
        product: the node of the multiplication.
    """
    left = [product]
    given = set(operands_of(graph, dot).tolist())
    while left:
        node = left.pop()
        if graph.opcode[node] == _TRANSPOSE:
            return True
        left += [
            each for each in operands_of(graph, node).tolist() if each not in given
        ]
    return False


def is_small_row(sizes: list[int]) -> bool:
    """Whether a product of few rows has another form only where something is added.

    Args:
        sizes: `DOT_ATTRIBUTES` of the dot.
    """
    batch, rows, columns, terms = sizes
    return batch == rows == 1 and terms * columns < _LARGE_MATRIX


def dot_forms(
    graph: HloGraph, node: int, sizes: list[int], offered: Collection[str]
) -> tuple[str, ...]:
    """The faster rules for a dot, the best first.

    Args:
        graph: of the alternatives.
        node: of the dot.
        sizes: its `DOT_ATTRIBUTES`.
        offered: the rules to choose from.
    """
    for rule in ("sparse", "one_hot"):
        if rule in offered and math.prod(sizes) >= _MANY_PRODUCTS:
            return (rule,)
    if "narrow" in offered and math.prod(sizes) >= _NARROW_PRODUCTS:
        return ("narrow",)
    if "shifted" in offered:
        _, *others, terms = sizes
        is_large = math.prod(sizes) >= _SHIFTED_PRODUCTS
        is_wide = min(others) >= _SHIFTED_ROWS and terms >= _SHIFTED_TERMS
        return ("shifted",) if is_large and is_wide else ()
    if "truth" in offered:
        batch, *others = sizes
        return ("truth",) if batch == 1 and min(others) >= _TRUTH_SIZE else ()
    if "wide" in offered and is_wide_dot(sizes):
        return ("wide",)
    of_sizes = _complex_forms(sizes) if "parts" in offered else _real_forms(sizes)
    if "bf16" in _kinds(graph, node):  # which the backend's own loop reads as fast
        of_sizes = tuple(each for each in of_sizes if each != "batch_loop")
    return (
        *_vector_forms(sizes, offered),
        *of_sizes,
        *_crossed_forms(graph, node, sizes, offered),
        *_flat_forms(graph, node, sizes),
    )


def _flat_forms(graph: HloGraph, node: int, sizes: list[int]) -> tuple[str, ...]:
    """For a dot that sums over several dimensions, such as batch and time."""
    batch, rows, columns, terms = sizes
    is_large = batch * terms * max(rows, columns) >= _FLAT_ELEMENTS
    is_narrow = 1 < min(rows, columns) < _FLAT_ROWS
    if batch > 1 and (is_narrow or terms < _FLAT_TERMS):
        return ()
    # Of bf16 and f16, jaxlib has code that does not need it.
    is_f32 = _kinds(graph, node) == {"f32"}
    return ("flat",) if is_large and is_f32 else ()


def is_wide_dot(sizes: list[int]) -> bool:
    """Whether a product of bf16 was faster with sums of f32.

    Args:
        sizes: `DOT_ATTRIBUTES` of the dot.
    """
    _, rows, columns, terms = sizes
    return terms >= _WIDE_TERMS and rows * columns * terms >= _WIDE_PRODUCTS


def _kinds(graph: HloGraph, dot: int) -> set[str]:
    """The types of a dot and its operands."""
    nodes = (dot, *operands_of(graph, dot).tolist())
    return {dtypes()[graph.dtype[each]] for each in nodes}


def _real_forms(sizes: list[int]) -> tuple[str, ...]:
    batch, rows, columns, terms = sizes
    if batch == 1 and rows <= _FEW_DOT_ROWS:
        if terms * columns < (_ADDED_MATRIX if rows == 1 else _LARGE_MATRIX):
            return ()
        is_wide = columns > _MANY_COLUMNS * terms
        return ("separate",) if is_wide else ("matrix_first",)
    smaller = min(rows, columns)
    elements = batch * terms * max(rows, columns)
    tiny = _tiny_forms(batch, terms, smaller) or _tall_forms(*sizes)
    if batch > 1 and smaller == 1 and elements >= _LARGE_MATRICES:
        return (*tiny, "swapped", "batch_loop")
    return tiny


def _complex_forms(sizes: list[int]) -> tuple[str, ...]:
    """For a dot of complex numbers, of sizes as in `DOT_ATTRIBUTES`."""
    batch, rows, columns, terms = sizes
    if math.prod(sizes) >= _MANY_PRODUCTS and min(sizes[1:]) >= _SOME_ROWS:
        return ("parts",)
    are_many = batch >= _SOME_COMPLEX or batch * rows >= _MANY_COMPLEX_ROWS
    # XLA multiplies and adds up without a call where there is nothing to sum over, or
    # nothing else.
    is_call = terms > 1 and max(rows, columns) > 1
    # Each multiplication is six operations, too many to be repeated in what reads it.
    return ("unrolled_apart",) if are_many and is_call else ()


def _vector_forms(sizes: list[int], offered: Collection[str]) -> tuple[str, ...]:
    """For a dot of a vector and a matrix that is transposed."""
    _, rows, columns, terms = sizes
    is_large = terms * max(rows, columns) >= _STORED_MATRIX
    return (AS_STORED,) if AS_STORED in offered and is_large else ()


def _crossed_forms(
    graph: HloGraph,
    node: int,
    sizes: list[int],
    offered: Collection[str],
    *,
    is_reversed: bool = False,
) -> tuple[str, ...]:
    """For a dot whose first operand, or second if reversed, is read across rows."""
    kinds = _kinds(graph, node)
    if FIRST_TRANSPOSED not in offered or len(kinds) > 1:
        return ()
    itemsize = _FLOAT_BYTES.get(kinds.pop())
    if itemsize is None:
        return ()  # not measured
    batch, rows, columns, terms = sizes
    if is_reversed:
        rows, columns = columns, rows
    dot = CrossedDot(batch, rows, terms, columns, itemsize, SWAPPED in offered)
    form = dot.form()
    return () if form is None else (form,)


def read_dot(graph: HloGraph, node: int) -> int:
    """The dot that a node transposes or converts, as the module has it."""
    dot = int(operands_of(graph, node)[0])
    (sites,) = np.nonzero(graph.site_nodes == dot)
    if len(sites):  # the dot has forms of its own
        dot = int(graph.site_choice_nodes[graph.site_choice_offsets[sites[0]]])
    return dot


def transposed_dot_forms(
    graph: HloGraph, dot: int, sizes: list[int], offered: Collection[str]
) -> tuple[str, ...]:
    """As `dot_forms`, for the transposition of a dot."""
    is_reversed = int(graph.rank[dot]) == 2
    crossed = _crossed_forms(graph, dot, sizes, offered, is_reversed=is_reversed)
    return (*_real_forms(sizes), *crossed)


def _tall_forms(batch: int, rows: int, columns: int, terms: int) -> tuple[str, ...]:
    """For products of many rows of few numbers, such as points, and a small matrix."""
    is_slow = columns not in _COLUMNS_OF.get(terms, range(33))
    # XLA multiplies them itself; only small ones get another form when written out.
    is_slow |= terms == 1 and max(rows, columns) > _SMALL_OUTER
    return () if batch * rows < _MANY_ROWS or is_slow else ("unrolled",)


def _tiny_forms(batch: int, terms: int, smaller: int) -> tuple[str, ...]:
    """For products of small matrices."""
    if batch < _MANY_DOTS or terms < 3:
        return ()
    return ("unrolled",) if smaller >= 3 or terms <= 4 else ()
