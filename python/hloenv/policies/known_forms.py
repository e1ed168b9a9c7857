# SPDX-License-Identifier: Apache-2.0
"""Takes the forms of operations that are faster on XLA's CPU backend.

The conditions come from measurements of each form beside XLA's own, on one core of a
server's CPU, in float32, with jaxlib 0.10: most forms that are taken were at least 1.3
times as fast as XLA's on the shapes that a condition covers (those for 1x1 convolutions
at least 1.09 times), and none was measurably slower there but a function of nothing but
a sort of some 70 numbers, which jax then runs in another thread.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from .._typing import Int64Array
from ..graph.hlo_graph import dtypes, opcodes
from ..rewrite.choice_deltas import is_original
from .base import register_policy
from .convolution_sizes import ABSENT, CONVOLUTION_ATTRIBUTES, convolution_at
from .dot_sizes import (
    DOT_ATTRIBUTES,
    OF_FEW_ROWS,
    OF_TRANSPOSED,
    dot_forms,
    is_read_across,
    is_small_row,
    is_wide_dot,
    operands_of,
    read_dot,
    transposed_dot_forms,
)
from .readers import Readers, sources_of
from .rolls import has_fast_halo, is_fast_roll
from .windows import WINDOW_ATTRIBUTES, window_forms

if TYPE_CHECKING:
    from ..graph.hlo_graph import HloGraph
    from ..rewrite.alternatives import Alternatives

FORM_PASSES = (
    *("convolution-forms", "dot-forms", "reduce-forms", "sort-forms"),
    *("math-forms", "fusion-cuts"),
)

_ATTRIBUTES = tuple(
    dict.fromkeys(  # each once
        (
            *CONVOLUTION_ATTRIBUTES,
            *WINDOW_ATTRIBUTES,
            *DOT_ATTRIBUTES,
        )
    )
)
_DOT_COLUMNS = [_ATTRIBUTES.index(name) for name in DOT_ATTRIBUTES]

# Elements from which reductions without a last dimension of size 1 were faster.
_SQUEEZED = 2**14
# Columns up to which several rows side by side were faster, by type; elements from
# which they were, and bytes of their sums up to which.
_FEW_COLUMNS, _MANY_SIDE_BY_SIDE = {"f32": 10, "f64": 6}, 30_000
_MAX_SIDE_BY_SIDE = 2**21
# Elements of each reduction up to which, and reductions from which, a chain was faster.
_FEW_ELEMENTS, _MANY_REDUCTIONS = 8, 1000
# Of a reduction around dimensions that are kept: elements of the last one up to which,
# and of those before them and of the operand from which, two were faster; and columns
# from which on they were not in the cache.
_SHORT_ROWS, _LONG_COLUMNS, _MANY_SUMMED, _MAX_COLUMNS = 16, 64, 20_000, 8192
# Elements of a reduction from which the index of an extreme one was faster packed: LLVM
# unrolls XLA's loop over fewer. And elements of the array from which, by rows, nothing
# is gained: jaxlib writes the packed numbers, to memory that is new in each run.
_LONG_REDUCTION, _MAX_PACKED = 32, 2**22
# Elements from which the largest of integers were faster by parts of their rows.
_FOLDED = 4096
# Of arrays, and of rows, from which sums of integers were; rows may be shorter where
# narrower numbers or truth values are converted, which LLVM does slowly in a sum.
_SUMMED, _SUMMED_ROW, _CONVERTED_ROW = 20_000, 256, 64
# Elements from which sums that several kernels would contain are kept out of them.
_LARGE_SUMS = 2**15
# Rules whose results XLA fuses into what reads them, and so computes again each time.
_FUSED_RULES = frozenset(
    (
        *("chain", "unrolled", "window", "dimensions", "periodic", "angle", "power"),
        *("erf", "cube_root", "log_plus_one", "over_root"),
    )
)
# Rules for functions that jaxlib's library has, and computes in a reduction.
_OF_LIBRARY = frozenset(("log_plus_one", "over_root"))
# Rules whose forms write 8 bytes for each element that they read. XLA runs the steps of
# a computation one after the other where no value has more than 512 bytes, and starts
# threads where one has, which takes longer than such a computation.
_WIDE_RULES, _WIDE, _SMALL_BYTES = frozenset(("packed", "packed_index")), 8, 512
# Rules for the index of an extreme element.
_OF_INDICES = frozenset(("packed_index", "keyed_index"))
# Rules for sorts.
_OF_SORTS = frozenset(("network", "packed"))
# The rule for binary searches, and from how many numbers that are looked for on.
_SEARCH, _SEARCHED = "search", 256
# Rules for the largest or smallest numbers of rows.
_OF_EXTREMES = frozenset(("wider", "maxima", "argmaxes"))
# Operations of which XLA writes every result to memory.
_WRITTEN = frozenset(
    (
        *("call", "convolution", "cholesky", "constant", "custom-call", "dot", "fft"),
        *("get-tuple-element", "parameter", "scatter", "sort", "triangular-solve"),
    )
)
_CONVERT, _INDEX, _TRANSPOSE = (
    opcodes().index(name) for name in ("convert", "get-tuple-element", "transpose")
)
# Elements of all sorts together from which sorts of integers were faster, and from
# which networks were, of those short sorts that have one.
_SORTED, _IN_NETWORKS = 32, 8192
# Elements from which arithmetic was faster than calls of the C library, by rule: XLA
# runs more of it in another thread, which takes 9 us. And operations above which none
# is written so: each becomes some 80, and the module compiles longer.
_CALLED = {
    "periodic": 8000,
    "angle": 2000,
    "remainder": 2000,
    "power": 8000,
    "erf": 2000,
    "cube_root": 2000,
    "log_plus_one": 8000,
    "over_root": 8000,
    "quotient": 2000,
}
_MAX_CALLED = 64
# Rules for calls of LAPACK; and matrices from which arithmetic was faster. Of five rows
# and more it gains too little for fewer than 2,000, as LLVM takes seconds for it.
_OF_MATRICES = frozenset(("triangular", "cholesky", "lu"))
_MANY_MATRICES, _MANY_LARGER, _LARGER = 500, 2000, 5
# Those and networks of sorts together, above which none is written so: each becomes
# some 100 to 1,000 operations.
_MAX_WRITTEN = 32
# Elements from which functions of float16 were faster in float32.
_WIDENED = 4096
# Rules for arrays that fusion would compute several times, or without vectors, the best
# first; and elements from which they were faster in memory.
_CUTS, _CUT = ("halo", "repeated", "bounded", "summed", "spread", "recomputed"), 2048
# Rules whose conditions the rule itself has. Two are cuts, too.
_AS_OFFERED = (
    "blocked",
    "copies",
    "iterations",
    "prefix_gradients",
    "prefixes",
    "recomputed",
    "rounds",
    "scatter_into",
    "scatter_rows",
    "spread",
)
_OF_CUTS = frozenset(_CUTS)
# Rules that are chosen by what they make.
_BY_FORM = "columns", "side_by_side", "joined", "halo", "unrolled"
# Bytes of them together above which none is in memory: there may be no place for them.
_MAX_CUT_BYTES = 2**30


class KnownForms:
    """Takes known faster forms of convolutions, dots, reductions, sorts and functions.

    Convolutions of few channels and depthwise ones become multiplications and
    additions, and the latter's gradients with respect to the kernel loops over rows of
    these; grouped convolutions become
    dots, as do gradients of grouped and of transposed convolutions with respect to
    their kernels, those of 1x1 convolutions, and convolutions with kernels larger than
    their input; products of many tiny matrices, and many reductions of few elements
    each, become elementwise operations, and large windows that overlap some for each
    dimension; products of few rows, or of a vector, and a transposed matrix read the
    matrix as it is, and of few rows and matrices across each other one at a time; those
    whose first operand is read across its rows are swapped, or that operand is
    transposed first; those that sum over several dimensions sum over one; large ones of
    complex numbers become four;
    products with a constant matrix that is mostly zero, as of resizes, become gathers,
    as do those with one-hot rows, or sums by index; products of many rows of few
    numbers, such as points, are written out, and convolutions that pick elements of
    their window become slices;
    reductions of groups of few columns become two, first over the rows, as do those of
    few columns, first of several rows side by side; computed arrays of one column are
    reduced without that dimension; the index of the largest element
    becomes one reduction of integers, and the largest integers, and sums of integers,
    are found by parts of their rows; cumulative sums become loops, as do long
    reductions of functions of arrays that are broadcast to each other; sums of a table
    and of rows that are scattered into zeros become scatters into the table;
    sorts become sorts of integers, and short ones minima and maxima; the largest
    numbers of rows of other types than float32 are found without a sort; binary
    searches are one kernel; sine, cosine,
    tangent, atan2, remainders, some powers and erf of float64 become arithmetic, of
    which LLVM makes vectors, and so do triangular systems and factors of many tiny
    matrices; elementwise arrays that are read at several places are written to memory,
    as are functions of few numbers that are broadcast to many, results of steps that
    later ones would compute again and again, and rolled arrays with their ends on both
    sides; gradients of rolls become rolls; loops over large arrays
    do four iterations at a time, scatters into columns eight rows; short loops over
    integers, as jax draws random numbers by, are one kernel.
    Other alternatives stay undecided, so that XLA's form is kept.

    The conditions look at each operation, whether what reads it reads each element many
    times, and for sums over the elements of a window whether several kernels would
    contain them: XLA's fusion copies them into each of these.

    Run it on the module as JAX lowers it:

        @hloenv.jit(policy="known-forms", passes="convolution-forms", until=None)
        def step(params, batch): ...
    """

    def __call__(self, alternatives: Alternatives, /) -> Int64Array:
        """[A] the choice of a faster form, -1 (undecided) for others."""
        decisions = alternatives.leave_to_xla()
        choices = {
            each.index: {
                choice.rule: index
                for index, choice in enumerate(each.choices)
                if not set(FORM_PASSES).isdisjoint(choice.passes)
            }
            for each in alternatives
        }
        choices = {index: rules for index, rules in choices.items() if rules}
        if not choices:
            return decisions
        graph = alternatives.graph
        block = graph.attribute_block(_ATTRIBUTES, absent=ABSENT)
        firsts = graph.site_choice_offsets  # the original of each site comes first
        is_index = graph.opcode[graph.site_choice_nodes[firsts[:-1]]] == _INDEX
        readers, large_values = Readers(alternatives), _LargeValues(alternatives)
        # Dots that may be written out: each reads another one for each of its terms,
        # of which LLVM finds what is the same, but in a transposition.
        short_dots = {
            int(graph.site_choice_nodes[firsts[graph.site_offsets[index]]])
            for index, rules in choices.items()
            if "unrolled_apart" in rules
        }
        called, written, networks, cuts, joined, rolled = [], [], set(), [], [], {}
        for index, rules in choices.items():
            site = int(graph.site_offsets[index])
            if not _OF_INDICES.isdisjoint(rules):  # they may take reductions along
                end = graph.site_offsets[index + 1]
                site += int(np.argmax(is_index[site:end]))
            node = int(graph.site_choice_nodes[firsts[site]])
            if graph.opcode[node] == _TRANSPOSE:
                dot = read_dot(graph, node)
                sizes = block[dot, _DOT_COLUMNS].tolist()
                forms = transposed_dot_forms(graph, dot, sizes, rules)
            elif graph.opcode[node] == _CONVERT and "wide" in rules:
                sizes = block[read_dot(graph, node), _DOT_COLUMNS].tolist()
                forms = ("wide",) if is_wide_dot(sizes) else ()
            else:
                attributes = dict(zip(_ATTRIBUTES, block[node].tolist(), strict=True))
                forms = _forms(graph, node, attributes, rules)
            built = {
                rule: int(graph.site_choice_nodes[firsts[site] + rules[rule]])
                for rule in _BY_FORM
                if rule in rules
            }
            if "columns" in built:
                is_fast = _has_columns(graph, node, built["columns"])
                forms = ("columns",) if is_fast else forms
            if "side_by_side" in built:
                is_fast = _has_few_columns(graph, node, built["side_by_side"])
                forms = ("side_by_side",) if is_fast else forms
            if "joined" in built:
                is_fast = is_fast_roll(graph, built["joined"])
                forms = ("joined",) if is_fast else forms
            # The original of another rule of that name, for loops, has no terms.
            if "unrolled" in built and block[node, _DOT_COLUMNS[-1]] == 1:
                is_slow = is_read_across(graph, node, built["unrolled"])
                forms = () if is_slow else forms
            if "halo" in built and not has_fast_halo(graph, node, built["halo"]):
                forms = tuple(rule for rule in forms if rule != "halo")
            for rule in forms:
                if rule in rules:
                    place = int(graph.site_nodes[site])
                    is_slower = (
                        (rule in _FUSED_RULES and readers.repeat(place))
                        or (rule in _WIDE_RULES and large_values.starts_with(node))
                        or (rule in _OF_LIBRARY and readers.reduce(place))
                        or (
                            rule in OF_FEW_ROWS
                            and is_small_row(block[node, _DOT_COLUMNS].tolist())
                            and not readers.add(place)
                        )
                    )
                    if not is_slower:
                        apart = f"{rule}_apart"
                        is_large = int(graph.element_count[place]) >= _LARGE_SUMS
                        is_read_apart = apart in rules and (
                            (is_large and readers.branch(place))
                            or (rule == "unrolled" and readers.loop(place))
                            or (
                                rule == "unrolled"
                                and readers.transpose(place, short_dots)
                            )
                        )
                        rule = apart if is_read_apart else rule
                        decisions[index] = rules[rule]
                        called += [index] if rule in _CALLED else []
                        cuts += [(index, node)] if rule in _OF_CUTS else []
                        joined += [index] if rule == "joined" else []
                        if rule == "halo":
                            rolled[index] = _rolled_array(graph, built[rule])
                        if rule == "network":
                            networks.add(place)
                        if rule == "network" or rule in _OF_MATRICES:
                            written.append(index)
                    break
        later = _left_for_later(alternatives, decisions, cuts, joined, rolled)
        decisions[later] = -1
        cuts = [each for each in cuts if each[0] not in later]
        if sum(int(graph.output_bytes[node]) for _, node in cuts) > _MAX_CUT_BYTES:
            decisions[[index for index, _ in cuts]] = -1
        if len(called) > _MAX_CALLED:
            decisions[called] = -1
        if len(written) > _MAX_WRITTEN:
            for index in written:
                decisions[index] = choices[index].get("packed", -1)
            networks.clear()
        # Forms of several results are alternatives of their own: one chooses between
        # another's result and its own form.
        below = {operand for site in networks for operand in operands_of(graph, site)}
        for index, rules in choices.items():
            site = int(graph.site_nodes[graph.site_offsets[index]])
            if "packed" in rules and "network" not in rules and site in below:
                decisions[index] = -1
        for index in np.flatnonzero(decisions > 0).tolist():
            if not OF_TRANSPOSED.isdisjoint(choices[index]):
                place = int(graph.site_nodes[graph.site_offsets[index]])
                decided = _decided_dot(graph, place, decisions)
                if decided is None:
                    continue
                # One of the two: the transposition's, where it is as fast.
                is_flat = decisions[decided] == choices[decided].get("flat")
                decisions[decided if is_flat else index] = -1
        return decisions


def _decided_dot(graph: HloGraph, site: int, decisions: Int64Array) -> int | None:
    """The alternative of the dot that a site transposes, if it gets another form."""
    first = graph.site_choice_offsets[np.flatnonzero(graph.site_nodes == site)[0]]
    original = int(graph.site_choice_nodes[first])
    (sites,) = np.nonzero(graph.site_nodes == operands_of(graph, original)[0])
    if not len(sites) or graph.opcode[original] != _TRANSPOSE:
        return None
    found = np.searchsorted(graph.site_offsets, sites[0], side="right") - 1
    return int(found) if decisions[found] > 0 else None


class _LargeValues:
    """Which computations of the module have values from which on XLA starts threads."""

    def __init__(self, alternatives: Alternatives) -> None:
        self._alternatives = alternatives

    @functools.cached_property
    def _computations(self) -> frozenset[int]:
        """Those with such a value, whatever is chosen."""
        graph = self._alternatives.graph
        # Others may be in fusions, and not in memory. A tuple has its elements' size.
        is_written = np.array([name in _WRITTEN for name in opcodes()])[graph.opcode]
        is_tuple = (graph.rank == 0) & (graph.element_count > 1)
        is_large = is_written & (graph.output_bytes > _SMALL_BYTES) & ~is_tuple
        found = graph.computation[is_large & is_original(self._alternatives)]
        return frozenset(found.tolist())

    def starts_with(self, node: int) -> bool:
        """Whether the wide form of a node is its computation's first large value."""
        graph = self._alternatives.graph
        # The index of a reduction takes it from there.
        above = operands_of(graph, node).tolist()
        above += [each for one in above for each in operands_of(graph, one).tolist()]
        arrays = np.array([n for n in (node, *above) if graph.rank[n] > 0], np.int64)
        size = int(graph.element_count[arrays].max(initial=0))
        is_large = size * _WIDE > _SMALL_BYTES
        return is_large and int(graph.computation[node]) not in self._computations


def _rolled_array(graph: HloGraph, roll: int) -> int:
    """What a slice of an array with a halo is a roll of."""
    (halo,) = operands_of(graph, roll).tolist()
    return int(operands_of(graph, halo)[0])


def _left_for_later(
    alternatives: Alternatives,
    decisions: Int64Array,
    cuts: Sequence[tuple[int, int]],
    joined: Sequence[int],
    rolled: Mapping[int, int],
) -> list[int]:
    """Indices of forms of rolls, and of arrays in memory, that do not go together.

    What they read is what the module has, not what takes the place of that. An array
    that is computed of rolls is kept when these have their form; any other before its
    own rolls get one.

    Args:
        alternatives: the alternatives.
        decisions: [A] the choices.
        cuts: index and original of each array in memory that is accepted.
        joined: indices of gradients that become rolls.
        rolled: the array of each index that is a halo.
    """
    graph = alternatives.graph
    dead = {
        index: set(alternatives[index].choices[decisions[index]].makes_dead)
        for index in (*joined, *(index for index, _ in cuts))
    }
    arrays = {
        index: {node, int(graph.site_nodes[graph.site_offsets[index]])}
        for index, node in cuts
        if index not in rolled
    }
    later: set[int] = set()
    while True:
        kept = set().union(*(arrays[each] for each in arrays.keys() - later))
        rolls = [each for each, array in rolled.items() if array in kept]
        taken = (*joined, *(rolled.keys() - set(rolls)))
        gone = set().union(*(dead[each] for each in taken))
        others = {each for each in arrays if not gone.isdisjoint(dead[each])}
        if others <= later:
            return [*later, *rolls]
        later |= others


def _forms(
    graph: HloGraph, node: int, attributes: dict[str, int], offered: Collection[str]
) -> tuple[str, ...]:
    if as_offered := tuple(rule for rule in _AS_OFFERED if rule in offered):
        return as_offered
    if not _OF_CUTS.isdisjoint(offered):
        # Of a function, too, which then has one reader, and gets its form next.
        cuts = sorted(_OF_CUTS.intersection(offered), key=_CUTS.index)
        if int(graph.element_count[node]) >= _CUT:
            return tuple(cuts)
        if len(cuts) == len(offered):
            return ()
    if "widened" in offered:
        # Also on processors without arithmetic of float16, of which LLVM then makes
        # that of float32: the calls are the same, as with xla_cpu_max_isa=AVX2.
        is_large = int(graph.element_count[node]) >= _WIDENED
        return ("widened",) if is_large else ()
    for rule, elements in _CALLED.items():
        if rule in offered:
            is_large = int(graph.element_count[node]) >= elements
            return (rule,) if is_large else ()
    if _SEARCH in offered:
        is_large = int(graph.element_count[node]) >= _SEARCHED
        return (_SEARCH,) if is_large else ()
    if not _OF_MATRICES.isdisjoint(offered):
        return tuple(offered) if _has_many_matrices(graph, node) else ()
    if not _OF_SORTS.isdisjoint(offered):
        elements = int(graph.element_count[node])
        forms = ("network",) if elements >= _IN_NETWORKS else ()
        return (*forms, "packed") if elements >= _SORTED else ()
    if attributes["dot_batch_size"] != ABSENT:
        sizes = [attributes[name] for name in DOT_ATTRIBUTES]
        return dot_forms(graph, node, sizes, offered)
    if not _OF_EXTREMES.isdisjoint(offered):
        return _extreme_forms(graph, node)
    if "folded" in offered:
        elements = int(graph.element_count[operands_of(graph, node)[0]])
        return ("folded",) if elements >= _FOLDED else ()
    if "squeezed" in offered:
        values = int(operands_of(graph, node)[0])
        is_given = dtypes()[graph.dtype[values]] == "f32"  # to the library
        is_large = int(graph.element_count[values]) >= _SQUEEZED
        return ("squeezed",) if is_given and is_large else ()
    if "folded_sum" in offered:
        return ("folded_sum",) if _is_long_sum(graph, node) else ()
    if attributes["output_batch"] == ABSENT:
        return _reduce_forms(graph, node, attributes)
    found = convolution_at(graph, node, attributes)
    return found.forms_in_loops() if "channels_last" in offered else found.forms()


def _is_long_sum(graph: HloGraph, node: int) -> bool:
    """Whether a sum of integers is of many long rows, which LLVM reads as vectors."""
    values = int(operands_of(graph, node)[0])
    elements, results = graph.element_count[[values, node]].tolist()
    is_converted = graph.opcode[values] == _CONVERT and (
        graph.output_bytes[operands_of(graph, values)[0]] < graph.output_bytes[values]
    )
    least = _CONVERTED_ROW if is_converted else _SUMMED_ROW
    if elements < max(_SUMMED, least * results):
        return False
    names = {opcodes()[graph.opcode[each]] for each in sources_of(graph, node)}
    is_slow = "gather" in names or "pad" in names
    return not is_slow and (results == 1 or "dynamic-slice" not in names)


def _has_many_matrices(graph: HloGraph, node: int) -> bool:
    """Whether a call of LAPACK, or an element of its result, is of many matrices."""
    if graph.opcode[node] == _INDEX:
        node = int(operands_of(graph, node)[0])
    matrices = int(operands_of(graph, node)[0])
    *batch, rows, _ = graph.dims[matrices, : int(graph.rank[matrices])].tolist()
    least = _MANY_MATRICES if rows < _LARGER else _MANY_LARGER
    return bool(math.prod(batch) >= least)


def _extreme_forms(graph: HloGraph, node: int) -> tuple[str, ...]:
    """For the largest or smallest numbers of rows."""
    found = int(operands_of(graph, node)[0])
    values = int(operands_of(graph, found)[0])
    # XLA sorts the rows of other types than float32.
    is_sorted = dtypes()[graph.dtype[values]] != "f32"
    is_large = int(graph.element_count[values]) >= _SORTED
    return ("wider", "maxima") if is_sorted and is_large else ()


def _reduce_forms(
    graph: HloGraph, node: int, attributes: dict[str, int]
) -> tuple[str, ...]:
    """For a reduction, its index, one over windows, or the gradient of max pooling."""
    operands = operands_of(graph, node)
    results = int(graph.element_count[node])
    if len(operands) == 1:  # the index of an extreme element
        values = int(operands_of(graph, int(operands[0]))[0])
        return _index_forms(graph, node, values)
    if attributes["sizes_0"] == ABSENT:
        if int(graph.output_bytes[node]) <= results:
            return ()  # numbers of 8 bits, and truth values
        # XLA drops reductions of one element each.
        elements = int(graph.element_count[operands[0]])
        few = results < elements <= _FEW_ELEMENTS * results
        return ("chain",) if few and results >= _MANY_REDUCTIONS else ()
    return window_forms(graph, node, attributes)


def _has_columns(graph: HloGraph, node: int, call: int) -> bool:
    """Whether a reduction has long columns of short rows, which `call` reduces last."""
    values, columns = (int(operands_of(graph, each)[0]) for each in (node, call))
    elements, sums, results = graph.element_count[[values, columns, node]].tolist()
    width = int(graph.dims[columns, int(graph.rank[columns]) - 1])
    return bool(
        width <= _MAX_COLUMNS
        and sums <= _SHORT_ROWS * results
        and elements >= _LONG_COLUMNS * sums
        and elements >= _MANY_SUMMED
    )


def _has_few_columns(graph: HloGraph, node: int, call: int) -> bool:
    """Whether a reduction has long rows of few floats, some side by side in `call`."""
    first = int(operands_of(graph, call)[0])
    merged = int(operands_of(graph, first)[0])
    elements, results = graph.element_count[[merged, node]].tolist()
    columns = results // int(graph.dims[merged, 0])
    most = _FEW_COLUMNS.get(dtypes()[graph.dtype[merged]], 0)
    return bool(
        columns <= most
        and elements >= _MANY_SIDE_BY_SIDE
        and graph.output_bytes[first] <= _MAX_SIDE_BY_SIDE
    )


def _index_forms(graph: HloGraph, node: int, values: int) -> tuple[str, ...]:
    """For the index of an extreme element of each row or column of `values`."""
    elements, results = graph.element_count[[values, node]].tolist()
    if elements < _LONG_REDUCTION * results:
        return ()
    rank = int(graph.rank[values])
    # A square array counts as by rows.
    is_by_row = bool(
        (graph.dims[values, : rank - 1] == graph.dims[node, : rank - 1]).all()
    )
    is_large = is_by_row and elements >= _MAX_PACKED
    return () if is_large else ("packed_index", "keyed_index")


register_policy(
    "known-forms",
    "take the forms of convolutions, dots, reductions, sorts and functions that are "
    "known to be faster",
    lambda _: KnownForms(),
)
