# SPDX-License-Identifier: Apache-2.0
"""Takes the forms of operations that are faster where XLA compiles for a GPU.

The conditions come from measurements of each form beside plain jax.jit on an H100
(docs/results/gpu.md).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from .._typing import Int64Array
from ..graph.hlo_graph import dtypes, opcodes
from .base import register_policy
from .convolution_sizes import ABSENT, CONVOLUTION_ATTRIBUTES, convolution_at
from .dot_sizes import DOT_ATTRIBUTES, dot_forms, operands_of

if TYPE_CHECKING:
    from ..graph.hlo_graph import HloGraph
    from ..rewrite.alternatives import Alternatives

GPU_PASSES = (
    *("sort-forms", "reduce-forms", "convolution-forms", "dot-forms"),
    "loop-forms",
)

_LARGEST, _POOLING = "sort-forms/argmaxes", "reduce-forms/select"
_PATCHES, _SPARSE = "convolution-forms/blocks", "dot-forms/sparse"
_LOOP = "loop-forms/unrolled"
# Numbers of each row up to which, and rows' lengths from which, reductions were faster
# than XLA's sort.
_FEW_LARGEST, _LONG_ROWS = 8, 64
# Instructions of a loop's body, and elements of its arrays, up to which eight steps at
# a time were faster: a loop of 43 instructions gained, two of some 90 lost together.
_SMALL_LOOP, _SMALL_STATE = 64, 2**20
# Elements of the window up to which the gradient of max pooling was faster by compares.
_SMALL_WINDOW = 9
_WINDOW = tuple(f"sizes_{d}" for d in range(6))
_ATTRIBUTES = tuple(
    dict.fromkeys((*CONVOLUTION_ATTRIBUTES, *_WINDOW, *DOT_ATTRIBUTES))  # each once
)
_PASSED_ON = [opcodes().index(x) for x in ("get-tuple-element", "parameter", "tuple")]
_FLOATS = frozenset(("f32", "bf16"))


class GpuForms:
    """Takes known faster forms for GPUs.

    The few largest numbers of rows become as many reductions; the gradient of max
    pooling compares and adds; convolutions of patches that do not overlap, and their
    gradients with respect to kernel and image, become matrix products; products with a
    constant matrix that is mostly zero, as of resizes, become gathers; short loops make
    eight steps in each of theirs. Other alternatives stay undecided, so that XLA's form
    is kept: depthwise and grouped convolutions, of which a CPU has faster forms, mostly
    lose by these on a GPU.
    """

    def __call__(self, alternatives: Alternatives, /) -> Int64Array:
        """[A] the choice of a faster form, -1 (undecided) for others."""
        decisions = alternatives.leave_to_xla()
        choices = {
            each.index: {
                f"{name}/{choice.rule}": index
                for index, choice in enumerate(each.choices)
                for name in choice.passes
                if name in GPU_PASSES
            }
            for each in alternatives
        }
        choices = {index: rules for index, rules in choices.items() if rules}
        if not choices:
            return decisions
        graph = alternatives.graph
        block = graph.attribute_block(_ATTRIBUTES, absent=ABSENT)
        for index, rules in choices.items():
            site = graph.site_offsets[index]
            node = int(graph.site_choice_nodes[graph.site_choice_offsets[site]])
            attributes = dict(zip(_ATTRIBUTES, block[node].tolist(), strict=True))
            rule = _form(graph, node, attributes, rules)
            if rule:
                decisions[index] = rules[rule]
        return decisions


def _form(
    graph: HloGraph, node: int, attributes: dict[str, int], rules: dict[str, int]
) -> str:
    """The faster rule; "" if XLA's form is as fast, or not known to be slower."""
    if _SPARSE in rules:
        sizes = [attributes[name] for name in DOT_ATTRIBUTES]
        return _SPARSE if "sparse" in dot_forms(graph, node, sizes, ("sparse",)) else ""
    if _LOOP in rules:
        return _LOOP if _is_small_loop(graph, node) else ""
    if _LARGEST in rules:
        found, length = _num_largest(graph, node)
        return _LARGEST if found <= _FEW_LARGEST and length >= _LONG_ROWS else ""
    if _POOLING in rules:
        sizes = [attributes[name] for name in _WINDOW]
        taps = math.prod(size for size in sizes if size != ABSENT)
        return _POOLING if taps <= _SMALL_WINDOW else ""
    if _PATCHES in rules:
        convolution = convolution_at(graph, node, attributes)
        is_patch = convolution.taps > 1 and convolution.positions > 1
        is_measured = convolution.groups == 1 and len(convolution.window) == 2
        is_float = dtypes()[graph.dtype[node]] in _FLOATS
        return _PATCHES if is_patch and is_measured and is_float else ""
    return ""


def _is_small_loop(graph: HloGraph, node: int) -> bool:
    """Whether a loop has few instructions, and computes no large arrays.

    Args:
        graph: of the module.
        node: the loop, or an element of its result.
    """
    while opcodes()[graph.opcode[node]] != "while":
        node = int(operands_of(graph, node)[0])
    for part in graph.call_computations[graph.call_nodes == node].tolist():
        nodes = slice(*graph.computation_offsets[part : part + 2])
        is_computed = ~np.isin(graph.opcode[nodes], _PASSED_ON)
        largest = graph.element_count[nodes][is_computed].max(initial=0)
        size = int(graph.computation_num_instructions[part])
        if size > _SMALL_LOOP or largest > _SMALL_STATE:
            return False
    return True


def _num_largest(graph: HloGraph, node: int) -> tuple[int, int]:
    """How many numbers of each row are found, and of how many.

    Args:
        graph: of the module.
        node: the slice, or element, of a sort or top-k.
    """
    while node in graph.site_nodes:  # of another rule's alternative
        node = int(operands_of(graph, node)[0])
    found = int(operands_of(graph, node)[0])
    values = int(operands_of(graph, found)[0])
    rank = int(graph.rank[node])
    own, every = (graph.dims[each, :rank] for each in (node, values))
    (rows,) = np.nonzero(own != every)
    return int(own[rows].max(initial=1)), int(every[rows].max(initial=0))


register_policy(
    "gpu-forms",
    "take the forms of top-k, pooling, patches, resizes and loops that are known to be "
    "faster on a GPU",
    lambda _: GpuForms(),
)
