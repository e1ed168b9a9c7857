# SPDX-License-Identifier: Apache-2.0
"""Rules that cost, by `scripts/reports/run_rewrite_map.py --known`; do not edit.

Pass, rule, shape class, worth, number of programs.
"""

from __future__ import annotations

RULES: tuple[tuple[str, str, str, float, int], ...] = (
    (
        "convolution-canonicalization",
        "convolution -> 3 transpose, convolution",
        "convolution depthwise 5x5, f32, above 1 M",
        0.0612,
        2,
    ),
    (
        "algsimp",
        "convolution -> reverse, convolution",
        "convolution with a kernel larger than the image, f32, above 1 M",
        0.0819,
        1,
    ),
)
