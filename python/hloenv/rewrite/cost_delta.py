# SPDX-License-Identifier: Apache-2.0
"""Static cost differences of single choices, as arrays."""

from __future__ import annotations

from dataclasses import dataclass

from .._typing import Float64Array, Int64Array


@dataclass(frozen=True)
class CostDelta:
    """Cost change of each choice if it alone is taken: added minus made dead.

    X counts the choices of all alternatives, one alternative after the other,
    including the originals (0, which change nothing).

    Attributes:
        first: [A] int64, the index of each alternative's choice 0 in the [X] arrays.
        instructions: [X] float64; callers share the count of a computation.
        flops: [X] float64.
        transcendentals: [X] float64.
        bytes_accessed: [X] float64, bytes read and written.
    """

    first: Int64Array
    instructions: Float64Array
    flops: Float64Array
    transcendentals: Float64Array
    bytes_accessed: Float64Array
