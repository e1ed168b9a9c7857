# SPDX-License-Identifier: Apache-2.0
"""Which operations jaxlib's compiler gives to YNNPACK, its library of kernels.

jaxlib 0.10 gives it all reductions of thousands of float32, each together with the
operations around it, and most convolutions. The library takes some 5 to 20 ns for each
row of an array, and is slow where rows are short, and where slices of more than 64 KiB
are added to each other, such as images; it is slow at some convolutions, and at some
that a reduction has taken along. One compiler option leaves all reductions, or all
convolutions, of a module to XLA's own code. The times are of one core of a server's CPU
(docs/results/library.md).
"""

from __future__ import annotations

import contextlib
import functools
import math
import os
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from .._typing import Int64Array
from ..errors import HloEnvError, InvalidModuleError
from ..graph.hlo_graph import HloGraph, dtypes, opcodes
from ..policies.readers import reducer_of, sources_of
from ..runtime.jaxlib.options import (
    OptionValue,
    can_keep_compiled,
    compile_lowered,
)
from ..runtime.jaxlib.package import require_jax

if TYPE_CHECKING:
    from ..hlo.module import HloModule

OPTION = "xla_cpu_experimental_ynn_fusion_type"
_PREFIX = "LIBRARY_FUSION_TYPE_"
_DOTS = f"{_PREFIX}INDIVIDUAL_DOT"
# Of the operations that may be left out.
_TYPES = {
    "reductions": f"{_PREFIX}REDUCE",
    "convolutions": f"{_PREFIX}INDIVIDUAL_CONVOLUTION",
}
_FUSION = "__ynn_fusion"

_ATTRIBUTES = (
    *("feature_group_count", "batch_group_count"),
    *("kernel_input_feature", "output_feature"),
)
_SIZES, _STRIDES, _DIMENSIONS = (
    tuple(f"{name}_{d}" for d in range(8))
    for name in ("sizes", "strides", "dimensions")
)
# Elements from which a reduction is given to the library.
_MIN_REDUCED = 4096
# Nanoseconds of the library for each row, and of XLA's code for each element of it, and
# where other dimensions are reduced together with the last ones.
_ROW_NS, _ELEMENT_NS, _APART_NS = 10.0, 0.5, 1.2
# Columns from which the library is faster; where the rows of a matrix are added, unless
# XLA's vectors make a function of them; and where slices are added.
_LONG_ROW, _LONG_COLUMNS, _LONG_ADDED_ROW = 20, 9, 16
_FUNCTIONS = frozenset(
    (
        *("cosine", "exponential", "exponential-minus-one", "log", "log-plus-one"),
        *("logistic", "power", "sine", "tanh"),
    )
)
# Where rows of several dimensions are added and arrays are repeated (differences of
# points): nanoseconds of the library for each row, further ones where a number for each
# row and one for each column are, and of XLA's code for each element.
_ADDED_ROW_NS, _CROSSED_ROW_NS, _COLUMN_NS = 4.3, 8.7, 0.9
# Of the largest or smallest numbers of rows: nanoseconds of the library for each row,
# and of XLA's code for each element; columns from which the library is faster, and by
# how many nanoseconds for each element.
_EXTREME_ROW_NS, _EXTREME_NS = 3.0, 0.35
_LONG_EXTREMES, _SLOWER_EXTREMES_NS = 9, 0.4
# Nanoseconds by which XLA's code is slower for each element of a long row, or of an
# array of which whole rows are added.
_SLOWER_NS, _SLOWER_ROWS_NS = 0.3, 3.0
# Elements of a slice above which the library is slower than XLA's code, and by how many
# nanoseconds for each element: of an array in memory, and of one that it computes.
_WIDE_SLICE, _SLICE_NS, _COMPUTED_SLICE_NS = 1 << 14, 0.12, 2.0
# Iterations of a loop whose number is not known.
_UNKNOWN_TRIPS = 16
# Operations in a nanosecond of XLA's convolutions. With the share of its time by which
# the library's differs: of depthwise convolutions, of grouped ones, of those of few
# features.
_FLOPS = 30.0
_DEPTHWISE, _GROUPED, _FEW = (0.3, -0.5), (5.0, 0.0), (15.0, -0.4)
_FEW_FEATURES = 4
# The same of few positions and images, up to a limit; and of more, by the features of
# the input where windows are of several elements, and where they are of one.
_GAINS = (16, 3.0), (64, 0.3)
_OF_FEATURES = (64, -0.08), (255, 0.0), (math.inf, 0.08)
_OF_SINGLE = 0.08
# Share of the time of convolutions that reductions cost which take them along.
_TAKEN_ALONG = 0.15
# Bytes in a nanosecond, of all other operations.
_BYTES = 10.0
# Without work of their own.
_NO_WORK = frozenset(
    (
        *("bitcast", "broadcast", "call", "conditional", "constant", "fusion"),
        *("get-tuple-element", "iota", "parameter", "reshape", "tuple", "while"),
    )
)
# Share of the estimated time that must be gained.
_MIN_GAIN = 0.1


@dataclass(frozen=True)
class Estimate:
    """Estimated times of a module, in nanoseconds on one core.

    Attributes:
        total: of the module.
        reductions: gained by XLA's own code for reductions, or lost if negative.
        convolutions: gained by XLA's own code for convolutions.
        taken_along: lost where reductions take convolutions along, if they are left to
            the library.
    """

    total: float
    reductions: float
    convolutions: float
    taken_along: float

    def left_out(self) -> frozenset[str]:
        """What is best left out: of "reductions" and "convolutions"."""
        gains = {
            frozenset[str](): 0.0,
            frozenset({"reductions"}): self.reductions + self.taken_along,
            frozenset({"convolutions"}): self.convolutions,
            frozenset(_TYPES): self.reductions + self.convolutions + self.taken_along,
        }
        best = max(gains, key=lambda each: gains[each])
        return best if gains[best] >= _MIN_GAIN * self.total else frozenset()


def estimate(module: HloModule) -> Estimate:
    """Estimates a module as jax lowers it."""
    graph = HloGraph.from_module(module)
    runs = _runs(graph)
    flops = np.maximum(graph.flops, 0.0) * runs
    times = np.maximum(flops / _FLOPS, graph.output_bytes * runs / _BYTES)
    total = float(times[_is_work(graph)].sum())
    dimensions = graph.attribute_block(_DIMENSIONS, absent=-1)
    reductions = sum(
        float(runs[node]) * _reduction(graph, node, dimensions)
        for node in _nodes(graph, "reduce")
    )
    gained = taken_along = 0.0
    block = graph.attribute_block(_ATTRIBUTES)
    for node in _nodes(graph, "convolution"):
        if int(graph.rank[node]) > graph.dims.shape[1]:
            continue  # of more dimensions than the graph has
        attributes = dict(zip(_ATTRIBUTES, block[node].tolist(), strict=True))
        speed, share = _convolution(graph, node, attributes)
        time = float(flops[node]) / speed
        total += time - float(flops[node]) / _FLOPS
        gained += share * time
        taken_along += _TAKEN_ALONG * time if share > 0 else 0.0
    sums = *_nodes(graph, "reduce"), *_pools(graph)
    if not any(_is_given(graph, node) for node in sums):
        taken_along = 0.0
    return Estimate(total, reductions, gained, taken_along)


def _runs(graph: HloGraph) -> np.ndarray[Any, np.dtype[np.float64]]:
    """[N] how often each node runs in a run of the module."""
    of_computation = graph.computation_is_entry.astype(np.float64)
    trips = graph.trip_count[graph.call_nodes].astype(np.float64)
    is_loop = graph.opcode[graph.call_nodes] == opcodes().index("while")
    trips = np.where(is_loop, np.where(trips >= 0, trips, _UNKNOWN_TRIPS), 1.0)
    # Called computations are in front of those that call them, and nodes ascend.
    for k in range(len(trips) - 1, -1, -1):
        caller = graph.computation[graph.call_nodes[k]]
        of_computation[graph.call_computations[k]] += of_computation[caller] * trips[k]
    return of_computation[graph.computation]


def options_for(module: HloModule) -> dict[str, OptionValue]:
    """Options of jaxlib's compiler for a module as jax lowers it; empty for none.

    Also for a module that XLA's cost analysis does not take.

    Args:
        module: with its decisions.
    """
    try:
        left_out = estimate(module).left_out()
    except InvalidModuleError:
        return {}
    return without(left_out) if left_out else {}


def without(left_out: Set[str]) -> dict[str, OptionValue]:
    """Options that leave operations to XLA's own code; empty where they all are.

    Args:
        left_out: of "reductions" and "convolutions".
    """
    given = given_to_library()
    if not left_out & given:
        return {}
    kept = [_TYPES[each] for each in sorted(given - left_out)]
    return {OPTION: ",".join((_DOTS, *kept))}


def left_out_of(options: Mapping[str, OptionValue]) -> str:
    """What options of `options_for` leave to XLA's own code, in words."""
    if not options:
        return ""
    kept = str(options.get(OPTION, "")).split(",")
    return " and ".join(each for each in _TYPES if _TYPES[each] not in kept)


@functools.cache
def given_to_library() -> frozenset[str]:
    """Which operations this jaxlib gives to the library, and would not if told so.

    None where the user has set the option for the process, or jax has no place for
    executables that were compiled with options.
    """
    if OPTION in os.environ.get("XLA_FLAGS", ""):
        return frozenset()
    jax = require_jax("hloenv.jit")
    found = set()
    for name, function, shapes in _probes(jax):
        arguments = [jax.ShapeDtypeStruct(each, np.float32) for each in shapes]
        with contextlib.suppress(HloEnvError, jax.errors.JaxRuntimeError):
            lowered = jax.jit(function).trace(*arguments).lower()
            if not can_keep_compiled(lowered):
                break
            without = compile_lowered(lowered, {OPTION: _DOTS})
            is_given = _FUSION in lowered.compile().as_text()
            if is_given and _FUSION not in without.as_text():
                found.add(name)
    return frozenset(found)


def _probes(jax: Any) -> Iterator[tuple[str, Any, list[tuple[int, ...]]]]:
    def convolve(image: Any, kernel: Any) -> Any:
        dimensions = ("NHWC", "HWIO", "NHWC")
        return jax.lax.conv_general_dilated(
            image, kernel, (1, 1), "SAME", dimension_numbers=dimensions
        )

    yield "reductions", lambda x: x.sum(-1), [(1024, 64)]
    yield "convolutions", convolve, [(1, 16, 16, 32), (3, 3, 32, 32)]


def _is_work(graph: HloGraph) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """[N] whether a node is computed, and not for others to read, or their sum."""
    return np.array([name not in _NO_WORK for name in opcodes()])[graph.opcode]


def _nodes(graph: HloGraph, opcode: str) -> list[int]:
    found = np.flatnonzero(graph.opcode == opcodes().index(opcode))
    return [int(each) for each in found]


def _pools(graph: HloGraph) -> list[int]:
    """Reductions over windows that do not overlap."""
    sizes = graph.attribute_block(_SIZES, absent=1)
    is_pool = (sizes == graph.attribute_block(_STRIDES, absent=1)).all(1)
    return [node for node in _nodes(graph, "reduce-window") if is_pool[node]]


def _is_given(graph: HloGraph, node: int) -> bool:
    """Whether the library may get a reduction."""
    is_float = int(graph.dtype[node]) == dtypes().index("f32")
    is_single = int(graph.operand_count[node]) == 2
    rank = int(graph.edge_rank[graph.in_offsets[node]])
    is_large = math.prod(_input_dims(graph, node)) >= _MIN_REDUCED
    # The graph has no more than 8 dimensions of an array.
    return is_float and is_single and is_large and rank <= graph.edge_dims.shape[1]


def _input_dims(graph: HloGraph, node: int) -> list[int]:
    edge = int(graph.in_offsets[node])
    return [int(each) for each in graph.edge_dims[edge, : int(graph.edge_rank[edge])]]


def _is_of_pairs(
    graph: HloGraph, node: int, dimensions: Int64Array, kept: Set[int]
) -> bool:
    """Whether a reduction reads elements of an array for several of those of `kept`."""
    reduced = set(dimensions[node].tolist()) - {-1}
    broadcasts = _broadcasts(graph, node, dimensions)
    return any(each & reduced and not each >= kept for each in broadcasts)


def _broadcasts(graph: HloGraph, node: int, dimensions: Int64Array) -> list[set[int]]:
    """The dimensions of arrays, not of numbers, that it reads as broadcasts."""
    found = [
        set(dimensions[each].tolist()) - {-1}
        for each in sources_of(graph, node)
        if opcodes()[graph.opcode[each]] == "broadcast"
    ]
    return [each for each in found if each]


def _of_added_rows(
    broadcasts: list[set[int]], reduced: Set[int], kept: Set[int]
) -> float:
    """Nanoseconds of the library for each row where several dimensions are added."""
    if not broadcasts:
        return 0.0
    is_crossed = any(not each & kept for each in broadcasts) and any(
        not each & reduced for each in broadcasts
    )
    return _ADDED_ROW_NS + (_CROSSED_ROW_NS if is_crossed else 0.0)


def _reduction(graph: HloGraph, node: int, dimensions: Int64Array) -> float:
    """Nanoseconds that XLA's own code for a reduction gains.

    Args:
        graph: of the module.
        node: of the reduction.
        dimensions: [N, D] `_DIMENSIONS` of each node; -1 where it has fewer.
    """
    if not _is_given(graph, node):
        return 0.0
    reduced = set(dimensions[node].tolist()) - {-1}
    dims = _input_dims(graph, node)
    elements, last = math.prod(dims), len(dims) - 1
    # The last dimensions that are reduced are one, or those that are kept, unless what
    # is added is of pairs.
    merged = {d for d in range(last + 1) if reduced >= set(range(d, last + 1))}
    columns = math.prod(dims[d] for d in merged) if merged else dims[-1]
    kept = set(range(max(reduced, default=-1) + 1, last + 1))
    if not merged and not _is_of_pairs(graph, node, dimensions, kept):
        columns = math.prod(dims[d] for d in kept)
    results = int(graph.element_count[node])
    source = opcodes()[graph.opcode[int(graph.edge_sources[graph.in_offsets[node]])]]
    if reduced == {0} and last > 0 and results > _WIDE_SLICE:
        is_given = source in _NO_WORK
        return elements * (_SLICE_NS if is_given else _COMPUTED_SLICE_NS)
    if reducer_of(graph, node) in ("maximum", "minimum") and reduced == merged:
        if columns >= _LONG_EXTREMES:
            return -_SLOWER_EXTREMES_NS * elements
        return elements // columns * (_EXTREME_ROW_NS - _EXTREME_NS * columns)
    adds_rows = last > 1 and last not in reduced
    if adds_rows and len(reduced) > 1:
        gain_ns = _of_added_rows(_broadcasts(graph, node, dimensions), reduced, kept)
        gain_ns -= _COLUMN_NS * columns
        return max(elements // columns * gain_ns, -_SLOWER_NS * elements)
    long = _LONG_ADDED_ROW if adds_rows else _LONG_ROW
    if last == 1 and reduced == {0} and source not in _FUNCTIONS:
        long = _LONG_COLUMNS
    if columns < long:
        each = _APART_NS if merged and reduced != merged else _ELEMENT_NS
        return elements // columns * (_ROW_NS - each * columns)
    return -(_SLOWER_ROWS_NS if adds_rows else _SLOWER_NS) * elements


def _convolution(
    graph: HloGraph, node: int, attributes: Mapping[str, int]
) -> tuple[float, float]:
    """Operations in a nanosecond, and the share of its time that is gained."""
    edge = int(graph.in_offsets[node])
    kernel = graph.edge_dims[edge + 1].tolist()
    features = kernel[attributes["kernel_input_feature"]]
    if attributes["feature_group_count"] * attributes["batch_group_count"] > 1:
        return _DEPTHWISE if features == 1 else _GROUPED
    if features <= _FEW_FEATURES:
        return _FEW
    result = graph.dims[node, : int(graph.rank[node])].tolist()
    outputs = result[attributes["output_feature"]]
    rows = math.prod(result) // max(1, outputs)
    for limit, gain in _GAINS:
        if rows <= limit:
            return _FLOPS, gain
    if math.prod(kernel) == features * outputs:
        return _FLOPS, _OF_SINGLE
    return _FLOPS, next(gain for limit, gain in _OF_FEATURES if features <= limit)
