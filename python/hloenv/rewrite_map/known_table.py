# SPDX-License-Identifier: Apache-2.0
"""Rules that cost, by `scripts/reports/run_rewrite_map.py --known`; do not edit.

Pass, rule, shape class, worth, number of programs.
"""

from __future__ import annotations

RULES: tuple[tuple[str, str, str, float, int], ...] = (
    (
        "algsimp",
        "convolution -> reverse, convolution",
        "convolution with a kernel larger than the image, f32, above 1 M",
        0.26,
        3,
    ),
    (
        "convolution-canonicalization",
        "convolution -> 3 transpose, convolution",
        "convolution depthwise 5x5, f32, above 1 M",
        0.358,
        4,
    ),
    (
        "algsimp",
        "get-tuple-element -> an existing and",
        "get-tuple-element, pred, to 1 M",
        0.729,
        6,
    ),
    (
        "call-inliner",
        "call -> 2 broadcast, 2 compare, and, add, select, tuple",
        "call, f32, to 1 M",
        0.773,
        6,
    ),
    (
        "tree_reduction_rewriter",
        "reduce -> reduce-window, reduce",
        "reduce to a scalar, f32, to 1 M",
        0.815,
        3,
    ),
    (
        "algsimp",
        "dot -> 2 reshape, dot",
        "dot matrix-vector, f32, to 1 M",
        0.884,
        7,
    ),
)
