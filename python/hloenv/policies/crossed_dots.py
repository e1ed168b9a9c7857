# SPDX-License-Identifier: Apache-2.0
"""Forms of dots whose first operand is read across its rows.

jaxlib's library transposes such an operand in each run, an element at a time, which
takes longest where rows are a power of two apart; of 64-bit floats the product itself
takes twice as long. XLA's own transposition is several times as fast. The estimates
were fitted to 600 products of random sizes on one core
(`scripts/reports/run_forms.py` draws others).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

# The choices, by name of their rule, in the order in which they are compared.
SWAPPED, SECOND_FIRST, FIRST_TRANSPOSED = "swapped", "second_first", "first_transposed"
# Of a vector and a transposed matrix.
AS_STORED = "as_stored"

# Nanoseconds of an element that the library transposes, by what divides the bytes of a
# row, and for others or few rows.
_STRIDED = (4096, 1.25), (2048, 0.8), (1024, 0.6), (512, 0.45), (256, 0.4)
_OTHER, _FEW_ROWS = 0.2, 64
# Nanoseconds of a byte that XLA transposes, and where the array is large, so that its
# memory is new in each run; and of a further kernel.
_MOVED, _MOVED_LARGE, _LARGE, _KERNEL = 0.06, 0.16, 2**22, 1000.0
# Nanoseconds of a multiplication, and more for 64-bit floats.
_MULTIPLIED, _MULTIPLIED_WIDE = 0.01, 0.02
# What a form must save: a share of the product's time, and nanoseconds.
_MIN_SHARE, _MIN_GAIN_NS = 0.05, 500.0
# Terms below which XLA makes a loop of a product, in which nothing is transposed.
_FEW_TERMS = 8


@dataclass(frozen=True)
class CrossedDot:
    """Sizes of a dot whose first operand is read across its rows.

    Attributes:
        batch: products of matrices.
        rows: of the result.
        terms: of each sum.
        columns: of the result.
        itemsize: bytes of a number.
        is_right_crossed: whether the second operand is, too.
    """

    batch: int
    rows: int
    terms: int
    columns: int
    itemsize: int
    is_right_crossed: bool

    def form(self) -> str | None:
        """The rule of the form that is clearly faster; None if none is."""
        if self.terms < _FEW_TERMS:
            return None
        wide = self._multiplied(_MULTIPLIED_WIDE) if self.itemsize == 8 else 0.0
        usual = self._library(self.rows, self.terms) + wide
        swapped = _KERNEL + self._moved(self.rows * self.columns)
        if self.is_right_crossed:
            usual += self._library(self.terms, self.columns)
        elif self.itemsize == 8:  # the product takes as long as before
            swapped = math.inf
        else:
            swapped += self._library(self.columns, self.terms)
        transposed = _KERNEL + self._moved(self.rows * self.terms)
        product = usual + self._multiplied(_MULTIPLIED)
        if usual - min(swapped, transposed) < _MIN_SHARE * product + _MIN_GAIN_NS:
            return None
        if transposed < swapped:
            return FIRST_TRANSPOSED
        return SWAPPED if self.is_right_crossed else SECOND_FIRST

    def _multiplied(self, each: float) -> float:
        return each * self.batch * self.rows * self.terms * self.columns

    def _library(self, length: int, rows: int) -> float:
        """What the library takes to transpose rows of this length."""
        size = length * self.itemsize
        each = _OTHER
        if length >= _FEW_ROWS:
            each = next((ns for by, ns in _STRIDED if size % by == 0), _OTHER)
        return each * self.batch * length * rows

    def _moved(self, elements: int) -> float:
        """What XLA takes to transpose so many elements of each product."""
        # It computes with 16-bit floats as 32-bit ones, and converts them.
        size = self.batch * elements * max(self.itemsize, 4)
        each = _MOVED if size < _LARGE else _MOVED_LARGE
        return each * size * (2 if self.itemsize < 4 else 1)
