# SPDX-License-Identifier: Apache-2.0
"""What single choices change, as arrays."""

from __future__ import annotations

from dataclasses import dataclass

from .._typing import Float64Array, Int64Array


@dataclass(frozen=True)
class CostDelta:
    """What each choice changes if it alone is taken: added minus made dead.

    X counts the choices of all alternatives, one alternative after the other, the
    originals (0, which change nothing) included.

    Attributes:
        first: [A] int64, the position of each alternative's choice 0 in the others.
        instructions: [X] float64; a computation counts by its share of callers.
        flops: [X] float64.
        transcendentals: [X] float64.
        bytes_accessed: [X] float64, bytes read and written.
    """

    first: Int64Array
    instructions: Float64Array
    flops: Float64Array
    transcendentals: Float64Array
    bytes_accessed: Float64Array
