# SPDX-License-Identifier: Apache-2.0
"""Convolutions that pick elements of their windows, as slices and transpositions."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

import hloenv
from support.captures import capture_jax, check_decided, rules

pytestmark = pytest.mark.jax

LAST = ("NHWC", "HWIO", "NHWC")
CHANNELS_LAST: dict[str, Any] = {"dimension_numbers": LAST}
SIGNALS_LAST: dict[str, Any] = {"dimension_numbers": ("NWC", "WIO", "NWC")}
VOLUMES_LAST: dict[str, Any] = {"dimension_numbers": ("NDHWC", "DHWIO", "NDHWC")}
STRETCHED: dict[str, Any] = {"rhs_dilation": (2, 1), "lhs_dilation": (1, 2)}
# Shapes, arguments and options: patches next to each other, and one each way.
PATCHES: list[Any] = [
    ((2, 3, 12, 8), ((4, 4), (4, 4), "VALID"), {}),
    ((2, 3, 13, 9), ((4, 2), (4, 2), "VALID"), {}),
    ((2, 12, 8, 3), ((4, 4), (4, 4), "VALID"), {"dimension_numbers": LAST}),
    ((1, 8, 8, 1), ((2, 2), (2, 2), "VALID"), {"dimension_numbers": LAST}),
    ((2, 2, 4, 6, 4), ((2, 3, 2), (2, 3, 2), "VALID"), {}),
    ((2, 1, 9, 9), ((3, 3), (1, 1), "SAME"), {}),
]


def captured(
    shape: tuple[int, ...], *args: Any, **options: Any
) -> tuple[hloenv.HloModule, hloenv.Alternatives, Any]:
    def fn(x: Any) -> Any:
        return jax.lax.conv_general_dilated_patches(x, *args, **options)

    x = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    module, alternatives = capture_jax(fn, x, name="convolution-forms", rule="copies")
    return module, alternatives, x


@pytest.mark.compile
@pytest.mark.parametrize(
    ("shape", "args", "options"),
    [
        *PATCHES,
        ((2, 3, 9, 10), ((3, 2), (2, 1), ((1, 0), (0, 2))), {}),
        ((2, 3, 9, 9), ((3, 3), (1, 1), "SAME"), {"rhs_dilation": (2, 1)}),
        ((2, 3, 9, 9), ((3, 3), (1, 1), ((1, 1), (1, 1))), {"lhs_dilation": (1, 2)}),
        ((3, 2, 40), ((5,), (3,), "VALID"), {}),
        # The features last: of one channel, strides, dilations and no elements between.
        ((2, 9, 10, 3), ((3, 2), (1, 1), ((1, 0), (0, 2))), CHANNELS_LAST),
        ((2, 9, 9, 1), ((3, 3), (1, 1), "SAME"), CHANNELS_LAST),
        ((1, 13, 11, 2), ((5, 3), (2, 3), "SAME"), CHANNELS_LAST),
        ((2, 9, 9, 3), ((3, 3), (1, 1), ((1, 2), (0, 1))), CHANNELS_LAST | STRETCHED),
        ((2, 9, 9, 3), ((3, 1), (1, 1), "VALID"), CHANNELS_LAST),
        ((2, 9, 9, 3), ((2, 3), (4, 4), "VALID"), CHANNELS_LAST),
        ((2, 5, 6, 7, 2), ((2, 3, 2), (1, 1, 2), "SAME"), VOLUMES_LAST),
        # Long windows, in parts of four, the last of which is as long, and is not.
        ((2, 40, 2), ((16,), (1,), "SAME"), SIGNALS_LAST),
        ((3, 40, 2), ((11,), (3,), "VALID"), SIGNALS_LAST),
        ((1, 60, 2), ((10,), (2,), "SAME"), SIGNALS_LAST | {"rhs_dilation": (3,)}),
    ],
)
def test_results_are_equal_bit_for_bit(shape, args, options):
    module, alternatives, x = captured(shape, *args, **options)
    assert rules(alternatives) == ["copies"]
    decided = alternatives.apply([1])
    assert "convolution" not in decided.opcode_counts()
    check_decided(module, decided, x)


@pytest.mark.compile
@pytest.mark.parametrize(
    ("shape", "args", "options"),
    [
        *PATCHES,
        ((2, 4, 9, 10), ((3, 2), (1, 1), ((1, 0), (0, 2))), {}),
        ((2, 9, 9, 3), ((3, 3), (1, 1), "SAME"), {"dimension_numbers": LAST}),
        ((2, 3, 9, 9), ((3, 3), (1, 1), "SAME"), {"rhs_dilation": (2, 1)}),
        ((3, 2, 40), ((5,), (1,), "VALID"), {}),
        # Windows that overlap, in parts; some parts are cut off, or smaller.
        ((2, 3, 13, 11), ((5, 3), (2, 2), "SAME"), {}),
        ((2, 13, 11, 3), ((5, 5), (2, 3), "VALID"), {"dimension_numbers": LAST}),
        ((1, 2, 20, 20), ((8, 6), (4, 2), ((3, 9), (0, 1))), {}),
        ((2, 3, 9, 10), ((3, 3), (1, 2), ((1, 1), (2, 2))), {}),
        ((3, 2, 40), ((9,), (4,), "SAME"), {}),
        ((2, 1, 7, 7, 7), ((3, 2, 3), (2, 2, 1), "SAME"), {}),
        # And windows apart from each other.
        ((2, 3, 14, 12), ((2, 1), (4, 3), "VALID"), {}),
        ((2, 3, 14, 12), ((2, 3), (4, 2), "SAME"), {}),
    ],
)
def test_gradients_are_equal_bit_for_bit(shape, args, options):
    def patches(x):
        return jax.lax.conv_general_dilated_patches(x, *args, **options)

    rng = np.random.default_rng(0)
    x = rng.integers(-9, 9, shape).astype(np.float32)
    weights = rng.integers(-9, 9, jax.eval_shape(patches, x).shape).astype(np.float32)

    def gradient(x, weights):
        return x + jax.vjp(patches, x)[1](weights)[0]

    module, alternatives = capture_jax(
        gradient, x, weights, name="convolution-forms", rule="copies"
    )
    assert rules(alternatives)[-1] == "copies"
    decided = alternatives.apply([1] * len(alternatives))
    assert "convolution" not in decided.opcode_counts()
    check_decided(module, decided, x, weights)


@pytest.mark.parametrize(
    ("number", "expected"), [(0, ["copies"]), (1, []), (2, []), (np.nan, [])]
)
def test_other_kernels_are_left(number, expected):
    kernel = np.zeros((1, 4, 3, 3), np.float32)
    kernel[0, :, 1, 1] = 1
    kernel[0, 2, 0, 0] = number

    def fn(x):
        return jax.lax.conv(x, kernel, (1, 1), "SAME")

    x = np.ones((2, 4, 9, 9), np.float32)
    _, alternatives = capture_jax(fn, x, name="convolution-forms", rule="copies")
    assert rules(alternatives) == expected


@pytest.mark.parametrize(("swapped", "expected"), [(False, ["copies"]), (True, [])])
def test_features_that_are_last_are_the_window_in_its_order(swapped, expected):
    kernel = np.eye(9, dtype=np.float32)
    if swapped:
        kernel[[3, 5]] = kernel[[5, 3]]
    kernel = np.tile(kernel.reshape(3, 3, 1, 9), (1, 1, 1, 4))

    def fn(x):
        return jax.lax.conv_general_dilated(
            *(x, kernel, (1, 1), "SAME"), dimension_numbers=LAST, feature_group_count=4
        )

    x = np.ones((2, 9, 9, 4), np.float32)
    _, alternatives = capture_jax(fn, x, name="convolution-forms", rule="copies")
    assert rules(alternatives) == expected


@pytest.mark.parametrize(("stride", "expected"), [(64, ["copies"]), (512, [])])
def test_windows_far_apart_need_no_parts_between(stride, expected):
    _, alternatives, _ = captured(
        (1, 8192, 1), (256,), (stride,), "VALID", **SIGNALS_LAST
    )
    assert rules(alternatives) == expected


def test_windows_side_by_side_need_few_slices():
    _, alternatives, _ = captured(
        (1, 40, 40, 4), (16, 16), (1, 1), **CHANNELS_LAST, padding="SAME"
    )
    assert alternatives.apply([1]).opcode_counts()["slice"] < 30


def test_taps_far_apart_need_no_list_of_what_is_between():
    """Of so many elements, it would not fit into memory."""
    far = 20_000
    text = f"""HloModule m
ENTRY e {{
  x = f32[1,2,2,2,2] parameter(0)
  k = f32[1,2,2,2,2] constant({{ {{
    {{ {{ {{1,0}}, {{0,0}} }}, {{ {{0,0}}, {{0,0}} }} }},
    {{ {{ {{0,0}}, {{0,0}} }}, {{ {{0,0}}, {{0,1}} }} }} }} }})
  ROOT c = f32[1,1,3,3,3] convolution(x, k), dim_labels=bf012_oi012->bf012,
    window={{size=2x2x2 pad={far}_0x{far}_0x{far}_0 lhs_dilate=2x2x2
    rhs_dilate={far}x{far}x{far} rhs_reversal=1x1x1}}
}}"""
    module = hloenv.HloModule.from_text(text)
    found = hloenv.HloEnv(module).get_alternatives("convolution-forms")
    assert "copies" not in rules(found)
