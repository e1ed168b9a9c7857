# SPDX-License-Identifier: Apache-2.0
"""The forms of depthwise convolutions with several results for each input feature."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hloenv
from hloenv.jax.auto import forms_of
from support.convolutions import one_convolution
from support.forms import form_of


def multiplied(
    channels: int,
    outputs: int,
    window: tuple[int, int],
    *,
    kind: str = "f32",
    labels: str = "b01f_01io->b01f",
) -> str:
    """Of two images of 32x32, to `outputs` features for each channel."""
    features = channels * outputs
    image, result = f"2,32,32,{channels}", f"2,32,32,{features}"
    if labels.startswith("bf"):
        image, result = f"2,{channels},32,32", f"2,{features},32,32"
    height, width = window
    pads = [f"{(size - 1) // 2}_{size // 2}" for size in window]
    return one_convolution(
        *(image, f"{height},{width},1,{features}", result),
        f"window={{size={height}x{width} pad={pads[0]}x{pads[1]}}}, "
        f"dim_labels={labels}, feature_group_count={channels}",
    ).replace("f32", kind)


@pytest.mark.parametrize(
    ("channels", "outputs", "window", "expected"),
    [
        # Ordinary layers, of any size.
        (32, 1, (7, 7), "taps"),
        (512, 1, (7, 7), "taps"),
        (32, 4, (3, 3), "taps"),
        (32, 2, (7, 7), "taps"),
        (32, 8, (7, 7), "taps"),
        # Kernels beyond the first cache, but for small windows.
        (64, 4, (7, 7), "taps"),
        (128, 4, (7, 7), None),
        (64, 8, (7, 7), None),
        (32, 32, (5, 5), None),
        (64, 32, (3, 3), "taps"),
        (1024, 8, (3, 3), "taps"),
        # Numbers of features of which vectors are not made, or are in part.
        (16, 9, (3, 3), "taps"),
        (16, 9, (7, 7), None),
        (32, 25, (3, 3), None),
        (8, 49, (7, 7), None),
        (16, 10, (5, 5), "taps"),
        (16, 14, (5, 5), None),
        (16, 12, (7, 7), "taps"),
        (4, 28, (7, 7), None),
        (8, 16, (7, 7), "taps"),
        (8, 32, (7, 7), None),
    ],
)
def test_many_features_last_stay_a_convolution(channels, outputs, window, expected):
    assert form_of(multiplied(channels, outputs, window)) == expected


@pytest.mark.parametrize(("outputs", "window"), [(9, (7, 7)), (25, (3, 3))])
def test_many_features_in_front_become_sums(outputs, window):
    text = multiplied(8, outputs, window, labels="bf01_01io->bf01")
    assert form_of(text) == "taps"


@pytest.mark.parametrize(
    ("kind", "outputs", "window", "expected"),
    [
        ("bf16", 4, (3, 3), "taps"),
        ("bf16", 8, (3, 3), None),
        ("bf16", 16, (3, 5), None),
        ("bf16", 16, (4, 4), "taps"),
        ("bf16", 16, (7, 7), "taps"),
        ("f16", 8, (3, 3), "taps"),
        ("f64", 4, (7, 7), "taps"),
        ("f64", 16, (7, 7), None),
    ],
)
def test_types_of_many_features(kind, outputs, window, expected):
    assert form_of(multiplied(16, outputs, window, kind=kind)) == expected


@pytest.mark.jax
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
@pytest.mark.parametrize("size", [3, 7])
def test_patches_with_features_last_become_copies(dtype, size):
    def patches(x):
        return jax.lax.conv_general_dilated_patches(
            *(x, (size, size), (1, 1), "SAME"),
            dimension_numbers=("NHWC", "HWIO", "NHWC"),
        )

    x = jnp.asarray(np.ones((2, 32, 32, 16)), dtype)
    decided = forms_of(hloenv.HloModule.from_jax(patches, x))
    assert decided is not None
    assert dict(decided.accepted) == {"convolution-forms/copies": 1}
