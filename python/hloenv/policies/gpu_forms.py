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
from ..graph.hlo_graph import opcodes
from .base import register_policy
from .convolution_sizes import ABSENT, CONVOLUTION_ATTRIBUTES, convolution_at
from .dot_sizes import operands_of

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
# Numbers of each row up to which reductions were faster than XLA's sort.
_FEW_LARGEST = 8
# Instructions of a loop's body up to which eight steps at a time were faster: one of 43
# gained, one of 90 and one of 98 lost.
_SMALL_LOOP = 64
# Elements of the window up to which the gradient of max pooling was faster by compares.
_SMALL_WINDOW = 9
_WINDOW = tuple(f"sizes_{d}" for d in range(6))
_ATTRIBUTES = (*CONVOLUTION_ATTRIBUTES, *sorted({*_WINDOW} - {*CONVOLUTION_ATTRIBUTES}))


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
        return _SPARSE
    if _LOOP in rules:
        return _LOOP if _num_instructions(graph, node) <= _SMALL_LOOP else ""
    if _LARGEST in rules:
        return _LARGEST if _num_largest(graph, node) <= _FEW_LARGEST else ""
    if _POOLING in rules:
        sizes = [attributes[name] for name in _WINDOW]
        taps = math.prod(size for size in sizes if size != ABSENT)
        return _POOLING if taps <= _SMALL_WINDOW else ""
    if _PATCHES in rules:
        convolution = convolution_at(graph, node, attributes)
        is_patch = convolution.taps > 1 and convolution.positions > 1
        return _PATCHES if is_patch else ""
    return ""


def _num_instructions(graph: HloGraph, node: int) -> int:
    """The instructions of a loop's body, or of its condition if these are more.

    Args:
        graph: of the module.
        node: the loop, or an element of its result.
    """
    while opcodes()[graph.opcode[node]] != "while":
        node = int(operands_of(graph, node)[0])
    parts = graph.call_computations[graph.call_nodes == node]
    return int(graph.computation_num_instructions[parts].max(initial=0))


def _num_largest(graph: HloGraph, node: int) -> int:
    """How many numbers of each row are found: by a slice, or an element, of a sort."""
    while node in graph.site_nodes:  # of another rule's alternative
        node = int(operands_of(graph, node)[0])
    found = int(operands_of(graph, node)[0])
    values = int(operands_of(graph, found)[0])
    rank = int(graph.rank[node])
    own, every = (graph.dims[each, :rank] for each in (node, values))
    return int(own[np.flatnonzero(own != every)].max(initial=1))


register_policy(
    "gpu-forms",
    "take the forms of top-k, pooling, patches, resizes and loops that are known to be "
    "faster on a GPU",
    lambda _: GpuForms(),
)
