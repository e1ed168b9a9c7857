# SPDX-License-Identifier: Apache-2.0
"""The numerical guarantees of each pass for floats.

"exact": the same operations on the same values. The backend may still contract them, or
order the terms of a sum, differently: XLA specifies neither, within one fusion and
across fusions. If a program compares a value with one selected from it
(`x == max(x)`), this matters only if the value is computed twice, which
`Alternatives.duplicates_compared` marks.

"rounding": other operations with the same mathematical value. Results differ by
rounding, relative to the largest intermediate value. For hloenv's own passes this is
the only difference if the products and sums of any two values that the rewritten
operations read are in the range of their type (for dots: summed over the contracted
dimension): finite values stay finite, and no value underflows to 0. Outside that range,
results may overflow or underflow in one order and not in the other. Infinities and huge
masks that the module holds as constants or computes from small ones, as log(0), and
values computed from them, are outside it, so rewrites that would read them are not
proposed (of convolutions: in their kernels; XLA specifies no order for the sums of a
convolution). `convolution-forms`, and the rules of `substitutions` that enlarge kernels
or merge groups, multiply by zeros, which gives NaN where an argument of the module has
an infinity or NaN there, or a constant kernel a NaN; the rule "sparse" of `dot-forms`
leaves out multiplications by zeros, so that an infinity or NaN does not reach all sums
that it has no weight in. XLA's passes of this class give the guarantees of XLA's
authors.

"unsafe": results may differ for NaN, infinities and zeros of either sign. No pass of
XLA's or hloenv's is in this class with its default options; `general-simplify` is with
`unsafe`, and `enzyme`, whose rewrites are another program's.

Integers and predicates are exact in all three.
"""

from __future__ import annotations

from typing import Literal

Numerics = Literal["exact", "rounding", "unsafe"]

# All other passes are exact.
ROUNDING = frozenset(
    {
        "algsimp",
        "all-reduce-promotion",
        "batch-dot-simplification",
        "batchnorm_expander",
        "bf16-mixed-precision-removal",
        "change-op-data-type",
        "cholesky_expander",
        "constant_folding",
        "convolution-forms",
        "convolution-canonicalization",
        "convolution-group-converter",
        "cpu-parallel-task-assigner",
        "dot-forms",
        "dot-library-passes",
        "dot-library-rewriter",
        "dot-lowering",
        "dot_decomposer",
        "eigh_expander",
        "float-normalization-bf16",
        "float-normalization-f4e2m1fn",
        "float-normalization-f8e3m4",
        "float-normalization-f8e4m3",
        "float-normalization-f8e4m3b11fnuz",
        "float-normalization-f8e4m3fn",
        "float-normalization-f8e4m3fnuz",
        "float-normalization-f8e5m2",
        "float-normalization-f8e5m2fnuz",
        "float-normalization-f8e8m0fnu",
        "fusion-cuts",
        "general-layout",
        "general-simplify",
        "logistic-expander",
        "loop-forms",
        "math-forms",
        "merge-dots",
        "onednn-calls",
        "operand_upcaster",
        "post_scatter_expansion_simplification",
        "qr_expander",
        "reassociate",
        "reduce-decomposer",
        "reduce-forms",
        "reduce-window-rewriter",
        "result_caster",
        "rng-expander",
        "scatter_expander",
        "select_and_scatter_expander",
        "simplification",
        "simplify-fp-conversions",
        "single-kernel",
        "transpose-folding",
        "tree_reduction_rewriter",
        "triangular_solve_expander",
    }
)


def numerics_of(name: str) -> Numerics:
    """The class of a pass of `list_passes()`, with its default options."""
    return "rounding" if name in ROUNDING else "exact"
