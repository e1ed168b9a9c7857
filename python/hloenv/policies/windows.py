# SPDX-License-Identifier: Apache-2.0
"""Which forms of reductions over windows are faster on XLA's CPU backend.

Measured as those of `KnownForms`. XLA has fast code for windows of few elements, and
for those along one dimension; and makes a loop over each of the others.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ..graph.hlo_graph import dtypes, opcodes
from .dot_sizes import operands_of
from .readers import reducer_of

if TYPE_CHECKING:
    from ..graph.hlo_graph import HloGraph

_DIMENSIONS = range(6)
_DILATIONS = tuple(f"base_dilations_{d}" for d in _DIMENSIONS)
WINDOW_ATTRIBUTES = (
    *(f"sizes_{d}" for d in _DIMENSIONS),
    *(f"strides_{d}" for d in _DIMENSIONS),
    *_DILATIONS,
)
# Windows from which another form was faster; elements of each up to which that was a
# chain of operations, and below which XLA's code was faster for windows next to each
# other; up to which it was where each reads one number; and rows of windows from which
# on another form was faster along them.
_MANY_WINDOWS, _SMALL, _FEW, _SEVERAL_ROWS = 1000, 9, 4, 4
# Elements of a dimension, and of the array, from which cumulative sums were faster in a
# loop; and bytes of one element of each row up to which a loop over all rows was faster
# than one for each group of rows.
_LONG_SCAN, _SCANNED, _KERNEL_BYTES = 20, 100, 128
_NARROW = ("f16", "bf16")


def window_forms(
    graph: HloGraph, node: int, attributes: dict[str, int]
) -> tuple[str, ...]:
    """For a reduction over windows, or the gradient of one to the largest element.

    Args:
        graph: of the alternatives.
        node: a reduce-window or a select-and-scatter.
        attributes: of the node, by name, `WINDOW_ATTRIBUTES` among them.

    Returns:
        Names of rules, the best first.
    """
    operands = operands_of(graph, node)
    if scan := _scan_forms(graph, node, attributes):
        return scan
    sizes = [max(attributes[f"sizes_{d}"], 1) for d in _DIMENSIONS]
    steps = [max(attributes[f"strides_{d}"], 1) for d in _DIMENSIONS]
    taps = math.prod(sizes)
    is_gradient = len(operands) == 3  # select-and-scatter
    result = int(operands[1]) if is_gradient else node
    windows = int(graph.element_count[result])
    along = [d for d in _DIMENSIONS if sizes[d] > 1]
    if windows < _MANY_WINDOWS or not along:
        return ()
    counts = graph.dims[result].tolist()
    is_innermost = max(counts[along[-1] + 1 :], default=1) <= 1
    has_few_rows = windows < _SEVERAL_ROWS * counts[along[-1]]
    if is_gradient:
        step = steps[along[-1]]
        if not is_innermost or step == 1:  # else with zeros between, along vectors
            return ("select",)
        is_slow = len(along) == 1 and (taps >= _SMALL or step > 2 or has_few_rows)
        return () if is_slow or taps > _SMALL else ("select",)
    # The gradient of a sum has what is between its windows in a padding, mostly.
    dilations = [attributes[name] for name in _DILATIONS]
    read = int(operands[0])
    if opcodes()[graph.opcode[read]] == "pad":
        inside = graph.attribute_block(_DILATIONS)[read].tolist()
        dilations = [max(pair) for pair in zip(dilations, inside, strict=True)]
        read = int(operands_of(graph, read)[0])
    elements = graph.dims[read].tolist()
    is_short = taps <= _FEW or all(elements[d] == 1 for d in along)
    if is_short and all(sizes[d] <= dilations[d] or elements[d] == 1 for d in along):
        return ()  # each reads one number at most
    forms = ("window",) if taps <= _SMALL else ("dimensions",)
    is_fast = taps < _SMALL and max(steps) == 1 and max(dilations) <= 1
    if len(along) > 1:
        return () if is_fast else forms
    (d,) = along
    if steps[d] == 1 and taps > _SMALL:
        return forms
    others = max(steps[:d] + steps[d + 1 :])
    if not is_innermost or is_fast or has_few_rows or others > 1:
        return ()
    if max(dilations) > 1:
        return forms
    is_extreme = reducer_of(graph, node) in ("maximum", "minimum")
    is_apart = taps <= steps[d] and (taps <= _FEW or not is_extreme)
    return forms if is_apart or (is_extreme and steps[d] == 2) else ()


def _scan_forms(
    graph: HloGraph, node: int, attributes: dict[str, int]
) -> tuple[str, ...]:
    """For a reduction over windows, if it may be a cumulative one."""
    dims = graph.dims[node].tolist()
    windows = [d for d in _DIMENSIONS if attributes[f"sizes_{d}"] > 1]
    if len(windows) != 1 or attributes[f"sizes_{windows[0]}"] != dims[windows[0]]:
        return ()
    length = dims[windows[0]]
    elements = int(graph.element_count[node])
    if length < _LONG_SCAN or elements < _SCANNED:
        return ()
    # Floats of 16 bits are scanned as those of 32.
    is_narrow = dtypes()[graph.dtype[node]] in _NARROW
    size = 4 * elements if is_narrow else int(graph.output_bytes[node])
    if size < 4 * elements:
        return ()  # truth values, of which the backend made no kernel
    is_innermost = all(size <= 1 for size in dims[windows[0] + 1 :])
    row_bytes = size // length
    is_large = is_innermost and row_bytes > _KERNEL_BYTES
    # Others, which are no cumulative ones, have neither.
    scans = ("scan_groups", "scan") if is_large else ("scan",)
    return (*scans, "dimensions")
