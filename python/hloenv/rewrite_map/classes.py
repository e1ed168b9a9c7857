# SPDX-License-Identifier: Apache-2.0
"""Classes of operations by type and size, for which rewrites can be compared."""

from __future__ import annotations

import math
import re

from .operations import Operation, array_type

# Upper limits of the size classes.
_SIZES = ((2**8, "to 256"), (2**12, "to 4 k"), (2**16, "to 64 k"), (2**20, "to 1 M"))
_FEW_ROWS = 4
# Elements of a dimension of a window from which it is not of a layer.
_LARGE = 7


def shape_class(operation: Operation) -> str:
    """The class of an operation: what it is, its type, and its size.

    The size is the number of products of a dot or convolution, and the number of
    elements of the larger of result and first operand of all others.
    """
    if operation.opcode == "convolution":
        kind, size = _convolution(operation)
    elif operation.opcode == "dot":
        kind, size = _dot(operation)
    else:
        kind = _reduction(operation) if operation.opcode == "reduce" else ""
        shapes = (operation.shape, *operation.operands[:1])
        size = max(array_type(each).num_elements for each in shapes)
    name = f"{operation.opcode} {kind}".rstrip()
    return f"{name}, {operation.type.dtype}, {size_class(size)}"


def size_class(size: int) -> str:
    """A range of sizes: "to 4 k" is above 256 and at most 4,096."""
    for limit, text in _SIZES:
        if size <= limit:
            return text
    return "above 1 M"


def _convolution(operation: Operation) -> tuple[str, int]:
    window = operation.window
    labels = re.split(r"_|->", operation.attribute("dim_labels"))
    left, right = (array_type(each).dims for each in operation.operands[:2])
    taps = window["size"]
    result = operation.type
    groups = int(operation.attribute("feature_group_count") or 1)
    batch_groups = int(operation.attribute("batch_group_count") or 1)
    features = right[labels[1].index("i")]
    size = result.num_elements * features * math.prod(taps)
    image = [left[labels[0].index(str(d))] for d in range(len(taps))]
    kind = "x".join(map(str, taps)) if taps else "without window"
    if groups > 1 and features == 1:
        kind = f"depthwise {kind}"
    elif groups > 1 or batch_groups > 1:
        kind = f"grouped {kind}"
    elif any(each > 1 for each in window["lhs_dilate"]):
        kind = f"transposed {kind if max(taps) <= _LARGE else 'with a large window'}"
    elif taps and all(n < k for n, k in zip(image, taps, strict=True)):
        kind = "with a kernel larger than the image"
    elif taps and min(taps) > _FEW_ROWS:
        kind = "with a large window"
    if any(window["rhs_reversal"]):
        kind += ", reversed"
    return kind, size


def _dot(operation: Operation) -> tuple[str, int]:
    left = array_type(operation.operands[0]).dims
    contracted = operation.numbers("lhs_contracting_dims")
    batch = math.prod(left[d] for d in operation.numbers("lhs_batch_dims"))
    terms = math.prod(left[d] for d in contracted)
    rows = math.prod(left) // max(batch * terms, 1)
    result = operation.type.num_elements
    columns = result // max(batch * rows, 1)
    fewest = min(rows, columns)
    kind = "batched" if batch > 1 else ""
    if fewest == 1:
        kind += " matrix-vector"
    elif fewest <= _FEW_ROWS:
        kind += f" with {_FEW_ROWS} rows or columns at most"
    elif terms == 1:
        kind += " outer product"
    return kind.strip(), result * terms


def _reduction(operation: Operation) -> str:
    rank = len(array_type(operation.operands[0]).dims)
    dims = operation.numbers("dimensions")
    if len(dims) == rank:
        return "to a scalar"
    return "of rows" if rank - 1 in dims else "of columns"
