# SPDX-License-Identifier: Apache-2.0
"""Decision points that the page offers by name."""

from __future__ import annotations

from .schema import Preset

PRESETS: tuple[Preset, ...] = (
    {
        "name": "simplify",
        "summary": "algebraic simplification before XLA's passes",
        "until": "",
        "passes": ["algsimp", "cse"],
    },
    {
        "name": "forms",
        "summary": "other forms of convolutions, small dots, reductions, sorts, sines",
        "until": "",
        "passes": [
            *("convolution-forms", "dot-forms", "reduce-forms", "sort-forms"),
            *("math-forms", "fusion-cuts"),
        ],
    },
    {
        "name": "library calls",
        "summary": "oneDNN for each convolution and matrix product",
        "until": "",
        "passes": ["onednn-calls"],
    },
    {
        "name": "all simplifications",
        "summary": "also those that XLA's authors left off",
        "until": "simplification",
        "passes": ["general-simplify"],
    },
    {
        "name": "dots",
        "summary": "library call or loops for each dot",
        "until": "fusion",
        "passes": ["dot-lowering"],
    },
    {
        "name": "fusion",
        "summary": "XLA's fusions and every other legal one",
        "until": "fusion",
        "passes": ["fusion", "general-fusion"],
    },
    {
        "name": "thunks",
        "summary": "sequential or concurrent thunks",
        "until": "copy-insertion",
        "passes": ["thunk-order"],
    },
)
