# SPDX-License-Identifier: Apache-2.0
"""Takes the calls of a library that are faster than the CPU backends' own code."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._typing import Int64Array
from .base import register_policy
from .convolution_sizes import ABSENT, CONVOLUTION_ATTRIBUTES, convolution_at

if TYPE_CHECKING:
    from ..rewrite.alternatives import Alternatives

CALL_PASSES = ("onednn-calls",)


class KnownCalls:
    """Takes oneDNN for convolutions that are known to be faster by it.

    These are those with groups, in two or three dimensions; those of three dimensions;
    and others for which `KnownForms` has no form, of more than one input feature and
    not few output features, but for gradients with respect to the kernel. Decide it
    before `KnownForms`, which then sees calls in their place. Other alternatives stay
    undecided. oneDNN leaves out the products with padding: where the kernel has an
    infinite number or a NaN, XLA's own code gives NaN at the borders, too.
    """

    def __call__(self, alternatives: Alternatives, /) -> Int64Array:
        """[A] the choice of a call, -1 (undecided) for others."""
        decisions = alternatives.leave_to_xla()
        graph = alternatives.graph
        block = graph.attribute_block(CONVOLUTION_ATTRIBUTES, absent=ABSENT)
        first_site = graph.site_choice_offsets[graph.site_offsets[:-1]]
        for each in alternatives:
            node = int(graph.site_choice_nodes[first_site[each.index]])
            attributes = dict(
                zip(CONVOLUTION_ATTRIBUTES, block[node].tolist(), strict=True)
            )
            if attributes["output_batch"] == ABSENT:
                continue
            if not convolution_at(graph, node, attributes).is_faster_by_onednn():
                continue
            for index, choice in enumerate(each.choices):
                if not set(CALL_PASSES).isdisjoint(choice.passes):
                    decisions[each.index] = index
        return decisions


register_policy(
    "known-calls",
    "take oneDNN for the convolutions that are known to be faster by it",
    lambda _: KnownCalls(),
)
