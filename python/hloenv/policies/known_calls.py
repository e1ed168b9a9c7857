# SPDX-License-Identifier: Apache-2.0
"""Takes the calls of a library that are faster than the CPU backends' own code."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from .._typing import Int64Array
from ..graph.hlo_graph import dtypes, opcodes
from .base import register_policy
from .convolution_sizes import ABSENT, CONVOLUTION_ATTRIBUTES, convolution_at
from .dot_sizes import DOT_ATTRIBUTES, operands_of

if TYPE_CHECKING:
    from ..graph.hlo_graph import HloGraph
    from ..rewrite.alternatives import Alternatives

CALL_PASSES = ("onednn-calls",)
# Multiplications from which products of bf16 were faster by oneDNN.
_SOME_PRODUCTS = 2**15
_BF16 = dtypes().index("bf16")
_TRANSPOSE = opcodes().index("transpose")


class KnownCalls:
    """Takes oneDNN for convolutions and products that are known to be faster by it.

    These are those with groups, in two or three dimensions; those of three dimensions;
    and others for which `KnownForms` has no form, of more than one input feature and
    not few output features, but for gradients with respect to the kernel; and products
    of bf16, but of one row and a matrix that is transposed. Decide it before
    `KnownForms`, which then sees calls in their place. Other alternatives stay
    undecided. oneDNN leaves out the products with padding: where the kernel has an
    infinite number or a NaN, XLA's own code gives NaN at the borders, too.
    """

    def __call__(self, alternatives: Alternatives, /) -> Int64Array:
        """[A] the choice of a call, -1 (undecided) for others."""
        decisions = alternatives.leave_to_xla()
        graph = alternatives.graph
        names = (*CONVOLUTION_ATTRIBUTES, *DOT_ATTRIBUTES)
        block = graph.attribute_block(names, absent=ABSENT)
        first_site = graph.site_choice_offsets[graph.site_offsets[:-1]]
        for each in alternatives:
            node = int(graph.site_choice_nodes[first_site[each.index]])
            attributes = dict(zip(names, block[node].tolist(), strict=True))
            if attributes["dot_batch_size"] != ABSENT:
                sizes = [attributes[name] for name in DOT_ATTRIBUTES]
                is_faster = _is_faster_product(graph, node, sizes)
            elif attributes["output_batch"] != ABSENT:
                convolution = convolution_at(graph, node, attributes)
                is_faster = convolution.is_faster_by_onednn()
            else:
                continue
            if not is_faster:
                continue
            for index, choice in enumerate(each.choices):
                if not set(CALL_PASSES).isdisjoint(choice.passes):
                    decisions[each.index] = index
        return decisions


def _is_faster_product(graph: HloGraph, dot: int, sizes: list[int]) -> bool:
    """For a product of sizes as in `DOT_ATTRIBUTES`."""
    matrix = int(operands_of(graph, dot)[1])
    is_by_rows = sizes[1] == 1 and graph.opcode[matrix] == _TRANSPOSE
    is_large = math.prod(sizes) >= _SOME_PRODUCTS
    return bool(graph.dtype[dot] == _BF16 and is_large and not is_by_rows)


register_policy(
    "known-calls",
    "take oneDNN for convolutions and products that are known to be faster by it",
    lambda _: KnownCalls(),
)
