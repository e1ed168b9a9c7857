# SPDX-License-Identifier: Apache-2.0
"""Keeps convolutions in the form for which XLA's CPU backend calls a library."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from .._typing import Int64Array
from ..hlo.text import logical_lines
from .base import register_policy

if TYPE_CHECKING:
    from ..rewrite.alternatives import Alternatives

# An instruction of HLO text with a reversed window without dilation.
_REVERSED = re.compile(
    r" *(?:ROOT )?%([\w.-]+) = "
    r"[^\n]*window=\{(?![^}\n]*rhs_dilate)[^}\n]*rhs_reversal=[^}\n]*1"
)


class KeepConvolutions:
    """Rejects rewrites that reverse a convolution's kernel; leaves the rest undecided.

    XLA's simplifier swaps the operands of a convolution whose kernel is larger than its
    input, as in the last layers of a ResNet on small images. The result
    has a reversed window, for which XLA's CPU backend emits scalar LLVM IR, 50 times
    slower than the library call of the original
    (`PotentiallyImplementedAsEigenConvolution` in
    xla/service/cpu/ir_emission_utils.cc). Where the input is dilated, as in gradients
    of transposed convolutions, the swap pays (9 times in a VQ-VAE's training step): the
    library would multiply the zeros between its elements.
    """

    def __call__(self, alternatives: Alternatives, /) -> Int64Array:
        """[A] 0 for alternatives with such a rewrite, -1 (undecided) for others."""
        decisions = alternatives.leave_to_xla()
        found = {
            each: {name for choice in each.choices[1:] for name in choice.instructions}
            for each in alternatives
            if any(choice.opcode == "convolution" for choice in each.choices[1:])
        }
        if found:
            lines = logical_lines(alternatives.module.to_text())
            matches = filter(None, map(_REVERSED.match, lines))
            reversed_names = {each[1] for each in matches}
            for each, added in found.items():
                if each.original not in reversed_names and added & reversed_names:
                    decisions[each.index] = 0
        return decisions


register_policy(
    "keep-convolutions",
    "reject rewrites that reverse a convolution's kernel; leave the rest undecided",
    lambda _: KeepConvolutions(),
)
