# SPDX-License-Identifier: Apache-2.0
"""Modules of one convolution: those that JAX makes, and random ones."""

from __future__ import annotations

import random
from dataclasses import dataclass

# Name: shapes of input, kernel and output, and attributes, as JAX lowers convolutions
# and their gradients with respect to the input and to the kernel, in NHWC and HWIO.
_FORWARD = "dim_labels=b01f_01io->b01f"
_INPUT = "dim_labels=b01f_01oi->b01f"
_KERNEL = "dim_labels=f01b_i01o->01bf"
JAX_FORMS = {
    "depthwise": (
        *("2,6,6,3", "3,3,1,3", "2,6,6,3"),
        "window={size=3x3 pad=1_1x1_1}, " + _FORWARD + ", feature_group_count=3",
    ),
    "depthwise input": (
        *("2,6,6,3", "3,3,3,1", "2,6,6,3"),
        "window={size=3x3 pad=1_1x1_1}, " + _INPUT + ", feature_group_count=3",
    ),
    "depthwise kernel": (
        *("2,6,6,3", "2,6,6,3", "3,3,1,3"),
        "window={size=6x6 pad=1_1x1_1}, " + _KERNEL + ", batch_group_count=3",
    ),
    "strided depthwise": (
        *("2,6,6,3", "3,3,1,3", "2,3,3,3"),
        "window={size=3x3 stride=2x2 pad=0_1x0_1}, "
        + (_FORWARD + ", feature_group_count=3"),
    ),
    "strided depthwise input": (
        *("2,3,3,3", "3,3,3,1", "2,6,6,3"),
        "window={size=3x3 pad=2_1x2_1 lhs_dilate=2x2}, "
        + (_INPUT + ", feature_group_count=3"),
    ),
    "strided depthwise kernel": (
        *("2,6,6,3", "2,3,3,3", "3,3,1,3"),
        "window={size=3x3 pad=0_1x0_1 rhs_dilate=2x2}, "
        + (_KERNEL + ", batch_group_count=3"),
    ),
    "grouped": (
        *("2,6,6,4", "3,3,2,6", "2,6,6,6"),
        "window={size=3x3 pad=1_1x1_1}, " + _FORWARD + ", feature_group_count=2",
    ),
    "grouped input": (
        *("2,6,6,6", "3,3,4,3", "2,6,6,4"),
        "window={size=3x3 pad=1_1x1_1}, " + _INPUT + ", feature_group_count=2",
    ),
    "grouped kernel": (
        *("2,6,6,4", "2,6,6,6", "3,3,2,6"),
        "window={size=6x6 pad=1_1x1_1}, " + _KERNEL + ", batch_group_count=2",
    ),
    "transposed": (
        *("2,4,4,3", "4,4,3,2", "2,8,8,2"),
        "window={size=4x4 pad=2_2x2_2 lhs_dilate=2x2}, " + _FORWARD,
    ),
    "transposed input": (
        *("2,8,8,2", "4,4,3,2", "2,4,4,3"),
        "window={size=4x4 stride=2x2 pad=1_1x1_1}, " + _INPUT,
    ),
    "transposed kernel": (
        *("2,4,4,3", "2,8,8,2", "4,4,3,2"),
        "window={size=8x8 pad=2_2x2_2 lhs_dilate=2x2}, " + _KERNEL,
    ),
    "patches": (
        *("2,8,8,3", "4,4,3,5", "2,2,2,5"),
        "window={size=4x4 stride=4x4}, " + _FORWARD,
    ),
    "patches input": (
        *("2,2,2,5", "4,4,3,5", "2,8,8,3"),
        "window={size=4x4 pad=3_3x3_3 lhs_dilate=4x4}, " + _INPUT,
    ),
    "patches kernel": (
        *("2,8,8,3", "2,2,2,5", "4,4,3,5"),
        "window={size=2x2 rhs_dilate=4x4}, " + _KERNEL,
    ),
    "1x1": ("2,6,6,3", "1,1,3,5", "2,6,6,5", "window={size=1x1}, " + _FORWARD),
    "strided 1x1": (
        *("2,6,6,3", "1,1,3,5", "2,3,3,5"),
        "window={size=1x1 stride=2x2}, " + _FORWARD,
    ),
    "strided 1x1 input": (
        *("2,3,3,5", "1,1,3,5", "2,6,6,3"),
        "window={size=1x1 pad=0_1x0_1 lhs_dilate=2x2}, " + _INPUT,
    ),
    "strided 1x1 kernel": (
        *("2,6,6,3", "2,3,3,5", "1,1,3,5"),
        "window={size=3x3 pad=0_-1x0_-1 rhs_dilate=2x2}, " + _KERNEL,
    ),
    "strided input": (
        *("2,3,3,5", "3,3,3,5", "2,6,6,3"),
        "window={size=3x3 pad=2_1x2_1 lhs_dilate=2x2}, " + _INPUT,
    ),
    "small image": (
        *("2,2,2,3", "3,3,3,5", "2,2,2,5"),
        "window={size=3x3 pad=1_1x1_1}, " + _FORWARD,
    ),
}


def one_convolution(
    left: str, right: str, result: str, attributes: str, types: str = "f32"
) -> str:
    """HLO text; `types` of operands and result, "bf16->f32", or one of both."""
    source, _, target = types.partition("->")
    return f"""HloModule convolution

ENTRY main {{
  x = {source}[{left}] parameter(0)
  k = {source}[{right}] parameter(1)
  ROOT c = {target or source}[{result}] convolution(x, k), {attributes}
}}
"""


def jax_form(name: str, types: str = "f32") -> str:
    """HLO text of one of `JAX_FORMS`."""
    return one_convolution(*JAX_FORMS[name], types=types)


@dataclass(frozen=True)
class _Window:
    """One spatial dimension."""

    size: int
    taps: int
    stride: int
    low: int
    high: int
    dilation: int
    base_dilation: int
    is_reversed: bool

    @property
    def output(self) -> int:
        padded = (self.size - 1) * self.base_dilation + 1 + self.low + self.high
        return (padded - (self.taps - 1) * self.dilation - 1) // self.stride + 1


def _random_window(rng: random.Random, largest: int) -> _Window:
    """One with 1 to 12 outputs; each special case of the rules is frequent."""
    while True:
        taps, more = rng.randint(1, largest // 2 + 1), rng.randint(0, 1)
        stride, dilation, base = (rng.choice((1, 1, 2, 3)) for _ in range(3))
        low, high = rng.randint(-2, 4), rng.randint(-2, 4)
        special = rng.randrange(5)
        if special == 0:  # blocks
            stride, dilation, base = taps + more, 1, 1
        elif special == 1:  # their gradient with respect to the kernel
            stride, dilation, base = 1, rng.randint(1, 4), 1
        elif special == 2:  # and to the input
            stride, dilation, base = 1, 1, taps + more
            low, high = taps - 1 + rng.choice((0, 0, 1, -1)), rng.randint(0, taps)
        elif special == 3:
            stride, base = 1, rng.choice((2, 3, 4))
        window = _Window(
            rng.randint(1, largest),
            *(taps, stride, low, high, dilation, base, rng.random() < 0.3),
        )
        if 1 <= window.output <= 12:
            return window


def _shuffled(rng: random.Random, labels: str) -> str:
    return "".join(rng.sample(labels, len(labels)))


def random_convolution(rng: random.Random, types: str = "f32") -> str:
    """HLO text with any order of dimensions, groups, windows and padding."""
    rank = rng.choice((1, 2, 2, 2, 3))
    windows = [_random_window(rng, 3 if rank == 3 else 8) for _ in range(rank)]
    batch, features, outputs = (rng.randint(1, n) for n in (3, 4, 4))
    feature_groups = batch_groups = 1
    kind = rng.randrange(4)
    if kind == 0:
        feature_groups, features = rng.randint(2, 4), 1
        outputs = rng.choice((1, 1, 2))
    elif kind == 1:
        feature_groups, features = rng.randint(2, 3), rng.randint(2, 3)
    elif kind == 2:
        batch_groups = rng.randint(2, 4)
        batch, outputs = rng.choice((1, 1, 2)), rng.choice((1, outputs))
    total = outputs * feature_groups * batch_groups
    digits = "012"[:rank]
    sizes = (
        {"b": batch * batch_groups, "f": features * feature_groups},
        {"i": features, "o": total},
        {"b": batch, "f": total},
    )
    for digit, window in zip(digits, windows, strict=True):
        of_arrays = (window.size, window.taps, window.output)
        for of_array, size in zip(sizes, of_arrays, strict=True):
            of_array[digit] = size
    labels = [_shuffled(rng, "".join(each)) for each in sizes]
    shapes = [
        ",".join(str(of_array[label]) for label in order)
        for order, of_array in zip(labels, sizes, strict=True)
    ]
    fields = (
        ("size", lambda w: w.taps),
        ("stride", lambda w: w.stride),
        ("pad", lambda w: f"{w.low}_{w.high}"),
        ("lhs_dilate", lambda w: w.base_dilation),
        ("rhs_dilate", lambda w: w.dilation),
        ("rhs_reversal", lambda w: int(w.is_reversed)),
    )
    window_text = " ".join(
        f"{name}=" + "x".join(str(of(window)) for window in windows)
        for name, of in fields
    )
    attributes = (
        f"window={{{window_text}}}, dim_labels={labels[0]}_{labels[1]}->{labels[2]}, "
        f"feature_group_count={feature_groups}, batch_group_count={batch_groups}"
    )
    return one_convolution(*shapes, attributes, types)
