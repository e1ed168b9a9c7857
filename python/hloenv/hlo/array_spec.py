# SPDX-License-Identifier: Apache-2.0
"""Shapes and element types of a module's inputs and outputs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import ArgumentTypeError

# numpy and ml_dtypes names of element types whose XLA name differs.
_DTYPE_NAMES = {
    "pred": "bool",
    "s8": "int8",
    "s16": "int16",
    "s32": "int32",
    "s64": "int64",
    "u8": "uint8",
    "u16": "uint16",
    "u32": "uint32",
    "u64": "uint64",
    "f16": "float16",
    "f32": "float32",
    "f64": "float64",
    "c64": "complex64",
    "c128": "complex128",
}
_ML_DTYPE_NAMES = {
    "bf16": "bfloat16",
    "f4e2m1fn": "float4_e2m1fn",
    "s2": "int2",
    "s4": "int4",
    "u2": "uint2",
    "u4": "uint4",
}


@dataclass(frozen=True)
class ArraySpec:
    """One flat leaf of a module's inputs or outputs.

    Attributes:
        shape: dimensions, major to minor.
        hlo_dtype: XLA's name of the element type ("f32", "pred", "token", ...).
    """

    shape: tuple[int, ...]
    hlo_dtype: str

    @property
    def dtype(self) -> np.dtype[Any]:
        """The numpy dtype; bfloat16 and the types of 2 to 8 bits need ml_dtypes.

        Raises:
            ArgumentTypeError: there is none (tokens, opaque values, types of one bit);
                a `TypeError`.
        """
        if self.hlo_dtype in _DTYPE_NAMES:
            return np.dtype(_DTYPE_NAMES[self.hlo_dtype])
        name = _ML_DTYPE_NAMES.get(self.hlo_dtype)
        if name is None and self.hlo_dtype.startswith("f8"):
            name = "float8_" + self.hlo_dtype[2:]
        import ml_dtypes

        found = getattr(ml_dtypes, name or "", None)
        if found is None:
            raise ArgumentTypeError(
                f"there is no dtype for HLO type {self.hlo_dtype!r}, with ml_dtypes "
                f"{ml_dtypes.__version__}; inputs and outputs must be arrays of "
                "another type, such as s8: convert them in the module"
            )
        dtype: np.dtype[Any] = np.dtype(found)
        return dtype

    @property
    def nbytes(self) -> int:
        """Size of the array in bytes, as numpy stores it."""
        return int(np.prod(self.shape, dtype=np.int64)) * self.dtype.itemsize
