# SPDX-License-Identifier: Apache-2.0
"""The forms of convolutions that known-forms takes."""

from __future__ import annotations

import numpy as np
import pytest

import hloenv
from hloenv.jax.auto import forms_of
from hloenv.policies import get_policy
from support.convolutions import JAX_FORMS, jax_form, one_convolution
from support.forms import form_of

# The form of each convolution that JAX makes; None keeps XLA's.
EXPECTED = {
    "depthwise": "taps",
    "depthwise input": "taps",
    "depthwise kernel": "outputs",
    "strided depthwise": "taps",
    "strided depthwise input": "taps",
    "strided depthwise kernel": "outputs",
    "grouped": "patches",
    "grouped input": "patches",
    "grouped kernel": "outputs",
    "transposed": None,
    "transposed input": None,
    "transposed kernel": "outputs",
    "patches": None,
    "patches input": None,
    "patches kernel": None,
    "1x1": None,
    "strided 1x1": None,
    "strided 1x1 input": "blocks",
    "strided 1x1 kernel": "blocks",
    "strided input": None,
    "small image": "patches",
}


@pytest.mark.parametrize("name", JAX_FORMS)
def test_forms_of_what_jax_makes(name):
    assert form_of(jax_form(name)) == EXPECTED[name]


@pytest.mark.parametrize(
    ("shapes", "attributes", "expected"),
    [
        (  # an ordinary layer, and its gradients
            ("1,28,28,128", "3,3,128,128", "1,28,28,128"),
            "window={size=3x3 pad=1_1x1_1}, dim_labels=b01f_01io->b01f",
            None,
        ),
        (
            ("1,28,28,128", "3,3,128,128", "1,28,28,128"),
            "window={size=3x3 pad=1_1x1_1}, dim_labels=b01f_01oi->b01f",
            None,
        ),
        (
            ("1,28,28,128", "1,28,28,128", "3,3,128,128"),
            "window={size=28x28 pad=1_1x1_1}, dim_labels=f01b_i01o->01bf",
            None,
        ),
        (  # the last layers
            ("1,7,7,512", "3,3,512,512", "1,7,7,512"),
            "window={size=3x3 pad=1_1x1_1}, dim_labels=b01f_01oi->b01f",
            "taps",
        ),
        (
            ("1,7,7,512", "1,7,7,512", "3,3,512,512"),
            "window={size=7x7 pad=1_1x1_1}, dim_labels=f01b_i01o->01bf",
            "patches",
        ),
        (  # a narrow gradient with respect to a kernel
            ("512,2,2,16", "2,2,16,512", "512,3,3,512"),
            "window={size=2x2 pad=1_1x1_1}, dim_labels=b01f_01io->b01f",
            "patches",
        ),
        (  # the first layer of a network, as narrow
            ("128,32,32,3", "3,3,3,64", "128,32,32,64"),
            "window={size=3x3 pad=1_1x1_1}, dim_labels=b01f_01io->b01f",
            None,
        ),
        (  # filters of one channel, of colours, and to as many features as oneDNN takes
            ("4,64,64,1", "5,5,1,1", "4,64,64,1"),
            "window={size=5x5 pad=2_2x2_2}, dim_labels=b01f_01io->b01f",
            "taps_apart",
        ),
        (
            ("4,64,64,3", "5,5,3,1", "4,64,64,1"),
            "window={size=5x5 pad=2_2x2_2}, dim_labels=b01f_01io->b01f",
            "terms",
        ),
        (
            ("4,64,64,3", "5,5,3,8", "4,64,64,8"),
            "window={size=5x5 pad=2_2x2_2}, dim_labels=b01f_01io->b01f",
            None,
        ),
        (  # wide windows, of one channel, colours and some features
            ("4,64,64,1", "15,15,1,1", "4,64,64,1"),
            "window={size=15x15 pad=7_7x7_7}, dim_labels=b01f_01io->b01f",
            "bands",
        ),
        (
            ("4,64,64,3", "9,9,3,3", "4,64,64,3"),
            "window={size=9x9 pad=4_4x4_4}, dim_labels=b01f_01io->b01f",
            "bands",
        ),
        (
            ("1,64,64,8", "7,7,8,8", "1,64,64,8"),
            "window={size=7x7 pad=3_3x3_3}, dim_labels=b01f_01io->b01f",
            None,
        ),
        (
            ("1,64,64,8", "13,13,8,8", "1,64,64,8"),
            "window={size=13x13 pad=6_6x6_6}, dim_labels=b01f_01io->b01f",
            "bands",
        ),
        (
            ("1,64,64,16", "3,3,3,16", "1,64,64,3"),
            "window={size=3x3 pad=1_1x1_1 rhs_reversal=1x1}, "
            "dim_labels=b01f_01oi->b01f",
            "bands",
        ),
        (  # of the same, gradients with respect to kernels, of one image and of many
            ("1,64,64,8", "1,64,64,8", "3,3,8,8"),
            "window={size=64x64 pad=1_1x1_1}, dim_labels=f01b_i01o->01bf",
            "bands",
        ),
        (
            ("16,64,64,8", "16,64,64,8", "3,3,8,8"),
            "window={size=64x64 pad=1_1x1_1}, dim_labels=f01b_i01o->01bf",
            None,
        ),
        (  # without padding
            ("1,64,64,8", "1,62,62,8", "3,3,8,8"),
            "window={size=62x62}, dim_labels=f01b_i01o->01bf",
            None,
        ),
        (  # long filters of signals, of few channels and of many apart, and gradients
            ("1,2000,1", "300,1,1", "1,2000,1"),
            "window={size=300 pad=150_149}, dim_labels=b0f_0io->b0f",
            "toeplitz",
        ),
        (
            ("1,2000,4", "300,4,2", "1,2000,2"),
            "window={size=300 pad=150_149}, dim_labels=b0f_0io->b0f",
            "toeplitz",
        ),
        (
            ("1,2000,16", "300,16,16", "1,2000,16"),
            "window={size=300 pad=150_149}, dim_labels=b0f_0io->b0f",
            None,
        ),
        (
            ("1,2000,8", "125,1,8", "1,2000,8"),
            "window={size=125 pad=62_62}, dim_labels=b0f_0io->b0f, "
            "feature_group_count=8",
            "toeplitz",
        ),
        (
            ("1,2000,8", "101,1,8", "1,2000,8"),
            "window={size=101 pad=50_50}, dim_labels=b0f_0io->b0f, "
            "feature_group_count=8",
            "taps",
        ),
        (  # the gradient of one with strides
            ("1,2000,8", "1,1000,8", "33,1,8"),
            "window={size=1000 pad=16_15 rhs_dilate=2}, dim_labels=f0b_i0o->0bf, "
            "batch_group_count=8",
            "rows",
        ),
        (  # short signals of several channels
            ("1,600,4", "65,4,4", "1,600,4"),
            "window={size=65 pad=32_32}, dim_labels=b0f_0io->b0f",
            None,
        ),
        (
            ("1,2000,1", "33,1,1", "1,2000,1"),
            "window={size=33 pad=16_16}, dim_labels=b0f_0io->b0f",
            "taps_apart",
        ),
        (
            ("1,2000,1", "1,2000,1", "33,1,1"),
            "window={size=2000 pad=16_16}, dim_labels=f0b_i0o->0bf",
            "toeplitz",
        ),
        (
            ("1,2000,8", "1,2000,8", "33,1,8"),
            "window={size=2000 pad=16_16}, dim_labels=f0b_i0o->0bf, "
            "batch_group_count=8",
            "toeplitz",
        ),
        (  # with wide strides
            ("1,16000,1", "257,1,1", "1,1000,1"),
            "window={size=257 stride=16 pad=128_120}, dim_labels=b0f_0io->b0f",
            None,
        ),
        (  # wide depthwise windows, and the gradient
            ("1,56,56,16", "15,15,1,16", "1,56,56,16"),
            "window={size=15x15 pad=7_7x7_7}, dim_labels=b01f_01io->b01f, "
            "feature_group_count=16",
            "bands",
        ),
        (
            ("1,56,56,16", "1,56,56,16", "15,15,1,16"),
            "window={size=56x56 pad=7_7x7_7}, dim_labels=f01b_i01o->01bf, "
            "batch_group_count=16",
            "bands",
        ),
        (
            ("1,8,8,1", "5,5,1,1", "1,8,8,1"),
            "window={size=5x5 pad=2_2x2_2}, dim_labels=b01f_01io->b01f",
            None,
        ),
        (
            ("1,1,4096", "1,1,101", "1,1,4096"),
            "window={size=101 pad=50_50 rhs_reversal=1}, dim_labels=bf0_oi0->bf0",
            "taps_apart",
        ),
        (  # of three dimensions
            ("2,16,16,16,16", "3,3,3,16,2", "2,16,16,16,2"),
            "window={size=3x3x3 pad=1_1x1_1x1_1}, dim_labels=b012f_012io->b012f",
            "taps",
        ),
        (
            ("2,16,16,16,16", "2,16,16,16,16", "3,3,3,16,16"),
            "window={size=16x16x16 pad=1_1x1_1x1_1}, dim_labels=f012b_i012o->012bf",
            "patches",
        ),
        (
            ("2,24,24,24,8", "2,24,24,24,8", "3,3,3,8,8"),
            "window={size=24x24x24 pad=1_1x1_1x1_1}, dim_labels=f012b_i012o->012bf",
            "outputs",
        ),
        (
            ("8,16,16,16,16", "8,16,16,16,16", "3,3,3,16,16"),
            "window={size=16x16x16 pad=1_1x1_1x1_1}, dim_labels=f012b_i012o->012bf",
            None,
        ),
        (
            ("1,32,32,32,8", "3,3,3,8,16", "1,32,32,32,16"),
            "window={size=3x3x3 pad=1_1x1_1x1_1}, dim_labels=b012f_012io->b012f",
            "terms",
        ),
        (
            ("1,16,16,16,16", "3,3,3,16,16", "1,16,16,16,16"),
            "window={size=3x3x3 pad=1_1x1_1x1_1}, dim_labels=b012f_012oi->b012f",
            "patches",
        ),
        (
            ("1,32,32,32,16", "3,3,3,16,16", "1,32,32,32,16"),
            "window={size=3x3x3 pad=1_1x1_1x1_1}, dim_labels=b012f_012io->b012f",
            "taps",
        ),
        (  # one element of the window, of groups
            ("4,28,28,32", "1,1,8,32", "4,28,28,32"),
            "window={size=1x1}, dim_labels=b01f_01io->b01f, feature_group_count=4",
            "blocks",
        ),
        (
            ("16,14,14,116", "1,1,58,116", "16,14,14,116"),
            "window={size=1x1}, dim_labels=b01f_01io->b01f, feature_group_count=2",
            None,
        ),
        (
            ("2,16,16,16,16", "2,16,16,16,1", "3,3,3,16,1"),
            "window={size=16x16x16 pad=1_1x1_1x1_1}, dim_labels=f012b_i012o->012bf",
            "patches",
        ),
        (
            ("2,16,16,16,8", "2,16,16,16,8", "3,3,3,8,8"),
            "window={size=16x16x16 pad=1_1x1_1x1_1}, dim_labels=f012b_i012o->012bf",
            "patches",
        ),
        (  # a patch embedding's gradient
            ("1,14,14,384", "16,16,3,384", "1,224,224,3"),
            "window={size=16x16 pad=15_15x15_15 lhs_dilate=16x16}, "
            "dim_labels=b01f_01oi->b01f",
            "blocks",
        ),
        (  # one position
            ("8,7,7,512", "7,7,512,512", "8,1,1,512"),
            "window={size=7x7}, dim_labels=b01f_01io->b01f",
            "blocks",
        ),
        (
            ("1,1,1,64", "3,3,64,64", "1,1,1,64"),
            "window={size=3x3 pad=1_1x1_1}, dim_labels=b01f_01io->b01f",
            "taps",
        ),
        (  # wide groups
            ("1,28,28,128", "3,3,32,128", "1,28,28,128"),
            "window={size=3x3 pad=1_1x1_1}, dim_labels=b01f_01io->b01f, "
            "feature_group_count=4",
            "patches",
        ),
        (
            ("4,28,28,256", "3,3,8,256", "4,28,28,256"),
            "window={size=3x3 pad=1_1x1_1}, dim_labels=b01f_01io->b01f, "
            "feature_group_count=32",
            "taps",
        ),
        (
            ("1,8,8,32", "3,3,8,32", "1,8,8,32"),
            "window={size=3x3 pad=1_1x1_1}, dim_labels=b01f_01io->b01f, "
            "feature_group_count=4",
            None,
        ),
        (  # gradients of depthwise layers with respect to the kernel
            ("4,24,24,144", "4,24,24,144", "3,3,1,144"),
            "window={size=24x24 pad=1_1x1_1}, dim_labels=f01b_i01o->01bf, "
            "batch_group_count=144",
            "rows",
        ),
        (
            ("4,14,14,384", "4,14,14,384", "7,7,1,384"),
            "window={size=14x14 pad=3_3x3_3}, dim_labels=f01b_i01o->01bf, "
            "batch_group_count=384",
            "rows",
        ),
        (
            ("4,12,12,192", "4,12,12,192", "3,3,1,192"),
            "window={size=12x12 pad=1_1x1_1}, dim_labels=f01b_i01o->01bf, "
            "batch_group_count=192",
            "outputs",
        ),
        (  # too little for a loop
            ("2,24,24,2", "2,24,24,2", "3,3,1,2"),
            "window={size=24x24 pad=1_1x1_1}, dim_labels=f01b_i01o->01bf, "
            "batch_group_count=2",
            "outputs",
        ),
        (  # no spatial dimensions
            ("4,2", "2,4", "1,4"),
            "dim_labels=bf_io->bf, batch_group_count=4",
            "blocks",
        ),
        (  # of a transposed layer with few outputs, and with many
            ("16,32,32,64", "16,64,64,3", "4,4,64,3"),
            "window={size=64x64 pad=2_2x2_2 lhs_dilate=2x2}, "
            "dim_labels=f01b_i01o->01bf",
            "phases",
        ),
        (
            ("16,16,16,128", "16,32,32,64", "4,4,128,64"),
            "window={size=32x32 pad=2_2x2_2 lhs_dilate=2x2}, "
            "dim_labels=f01b_i01o->01bf",
            "outputs",
        ),
        (
            ("1,14,14,128", "3,3,128,32", "1,28,28,128"),
            "window={size=3x3 pad=1_2x1_2 lhs_dilate=2x2}, "
            "dim_labels=b01f_01oi->b01f, feature_group_count=4",
            "phases",
        ),
        (  # a few dilated pixels, whose place XLA would swap with the kernel's
            ("2,2,2,512", "3,3,256,512", "2,4,4,256"),
            "window={size=3x3 pad=1_2x1_2 lhs_dilate=2x2}, dim_labels=b01f_01oi->b01f",
            "taps",
        ),
        (
            ("64,2,2,512", "3,3,256,512", "64,4,4,256"),
            "window={size=3x3 pad=1_2x1_2 lhs_dilate=2x2}, dim_labels=b01f_01oi->b01f",
            "phases",
        ),
        (
            ("8,28,28,128", "3,3,64,128", "8,56,56,64"),
            "window={size=3x3 pad=1_2x1_2 lhs_dilate=2x2}, dim_labels=b01f_01oi->b01f",
            None,
        ),
        (  # other sample rates, of one channel
            ("4,600,1", "48,1,1", "4,899,1"),
            "window={size=48 stride=2 pad=24_23 lhs_dilate=3}, dim_labels=b0f_0io->b0f",
            "taps_apart",
        ),
        (  # by a longer filter, and of several channels
            ("1,600,1", "400,1,1", "1,749,1"),
            "window={size=400 stride=4 pad=200_199 lhs_dilate=5}, "
            "dim_labels=b0f_0io->b0f",
            "phases",
        ),
        (
            ("4,600,1", "48,1,2", "4,899,2"),
            "window={size=48 stride=2 pad=24_23 lhs_dilate=3}, dim_labels=b0f_0io->b0f",
            None,
        ),
        (  # images twice as large, and too few results
            ("2,32,32,1", "4,4,1,1", "2,64,64,1"),
            "window={size=4x4 pad=2_2x2_2 lhs_dilate=2x2}, dim_labels=b01f_01io->b01f",
            "taps_apart",
        ),
        (
            ("1,60,1", "5,1,1", "1,120,1"),
            "window={size=5 pad=2_3 lhs_dilate=2}, dim_labels=b0f_0io->b0f",
            None,
        ),
        (  # volumes
            ("2,4,8,8,16", "3,3,3,8,16", "2,8,16,16,8"),
            "window={size=3x3x3 pad=1_2x1_2x1_2 lhs_dilate=2x2x2}, "
            "dim_labels=b012f_012oi->b012f",
            "phases",
        ),
        (
            ("2,8,8,8,16", "2,2,2,8,16", "2,16,16,16,8"),
            "window={size=2x2x2 pad=1_1x1_1x1_1 lhs_dilate=2x2x2}, "
            "dim_labels=b012f_012oi->b012f",
            "blocks",
        ),
        (
            ("1,8,8,8,16", "3,3,3,1,16", "1,16,16,16,1"),
            "window={size=3x3x3 pad=1_2x1_2x1_2 lhs_dilate=2x2x2}, "
            "dim_labels=b012f_012oi->b012f",
            "taps",
        ),
        (  # gradients with respect to the kernel of each of eight images
            ("8,28,28,1", "1,14,14,128", "5,5,1,128"),
            "window={size=14x14 pad=1_2x1_2 rhs_dilate=2x2}, dim_labels=f01b_i01o->01bf, "
            "feature_group_count=8",
            "patches",
        ),
        (
            ("8,14,14,16", "1,7,7,256", "3,3,16,256"),
            "window={size=7x7 pad=0_1x0_1 rhs_dilate=2x2}, dim_labels=f01b_i01o->01bf, "
            "feature_group_count=8",
            "outputs",
        ),
        (
            ("8,14,14,16", "1,14,14,128", "3,3,16,128"),
            "window={size=14x14 pad=1_1x1_1}, dim_labels=f01b_i01o->01bf, "
            "feature_group_count=8",
            "bands",
        ),
        (
            ("8,14,14,16", "1,7,7,128", "3,3,16,128"),
            "window={size=7x7 pad=0_1x0_1 rhs_dilate=2x2}, dim_labels=f01b_i01o->01bf, "
            "feature_group_count=8",
            None,
        ),
        (
            ("8,28,28,3", "1,28,28,128", "3,3,3,128"),
            "window={size=28x28 pad=1_1x1_1}, dim_labels=f01b_i01o->01bf, "
            "feature_group_count=8",
            None,
        ),
        (
            ("8,14,14,16", "1,14,14,128", "1,1,16,128"),
            "window={size=14x14}, dim_labels=f01b_i01o->01bf, feature_group_count=8",
            "blocks",
        ),
    ],
)
def test_forms_by_size(shapes, attributes, expected):
    assert form_of(one_convolution(*shapes, attributes)) == expected


SHAPE = "f32[2,64,64,8]"
_SORT = f"{SHAPE} sort({{}}), dimensions={{{{3}}}}, to_apply=less"


@pytest.mark.parametrize(
    ("readers", "expected"),
    [
        (f"ROOT r = {SHAPE} negate(b)", "taps"),
        # One kernel, which computes the sum once.
        (
            f"s = {SHAPE} logistic(b)\n  ROOT r = {SHAPE} multiply(b, s)",
            "taps",
        ),
        (
            f"s = {_SORT.format('b')}\n  n = {SHAPE} negate(b)\n"
            f"  ROOT r = {SHAPE} add(s, n)",
            "taps_apart",
        ),
        (  # beyond what is not fused, nothing counts
            f"s = {_SORT.format('b')}\n  n = {SHAPE} negate(s)\n"
            f"  t = {_SORT.format('s')}\n  ROOT r = {SHAPE} add(t, n)",
            "taps",
        ),
    ],
)
def test_sums_in_several_kernels_are_computed_apart(readers, expected):
    text = f"""HloModule m

less {{
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = pred[] compare(a, b), direction=LT
}}

ENTRY main {{
  x = {SHAPE} parameter(0)
  k = f32[3,3,1,8] parameter(1)
  c = {SHAPE} convolution(x, k), window={{size=3x3 pad=1_1x1_1}},
    dim_labels=b01f_01io->b01f, feature_group_count=8
  b = {SHAPE} add(c, x)
  {readers}
}}
"""
    assert form_of(text) == expected


def test_forms_that_are_not_chosen_do_not_count_as_readers():
    """A gradient of a 1x1 convolution with its own forms reads the sum once."""
    text = f"""HloModule m

ENTRY main {{
  x = {SHAPE} parameter(0)
  k = f32[3,3,1,8] parameter(1)
  w = f32[1,1,8,8] parameter(2)
  c = {SHAPE} convolution(x, k), window={{size=3x3 pad=1_1x1_1}},
    dim_labels=b01f_01io->b01f, feature_group_count=8
  b = {SHAPE} add(c, x)
  ROOT r = {SHAPE} convolution(b, w), window={{size=1x1}}, dim_labels=b01f_01oi->b01f
}}
"""
    env = hloenv.HloEnv(hloenv.HloModule.from_text(text))
    alternatives = env.get_alternatives("convolution-forms")
    decisions = get_policy("known-forms")(alternatives)
    chosen = [
        each.choices[decision].rule
        for each, decision in zip(alternatives, decisions, strict=True)
    ]
    assert sorted(chosen) == ["blocks", "taps"]


@pytest.mark.parametrize(
    ("kind", "shapes", "window", "expected"),
    [
        ("f64", ("16,512,64", "3,64,64", "16,512,64"), "3", "patches"),
        ("f32", ("16,512,64", "3,64,64", "16,512,64"), "3", None),
        ("f64", ("4,56,56,16", "3,3,16,16", "4,56,56,16"), "3x3", "taps"),
        ("f64", ("4,56,56,64", "3,3,64,64", "4,56,56,64"), "3x3", None),
        ("f64", ("4,56,56,3", "3,3,3,16", "4,56,56,16"), "3x3", "terms"),
        ("f64", ("4,28,28,64", "1,1,64,64", "4,28,28,64"), "1x1", "blocks"),
        (
            "f64",
            ("2,16,16,16,16", "3,3,3,16,16", "2,16,16,16,16"),
            "3x3x3",
            "taps",
        ),
    ],
)
def test_convolutions_of_64_bit_floats(kind, shapes, window, expected):
    sizes = window.split("x")
    spatial = "012"[: len(sizes)]
    pad = "x".join(f"{int(n) // 2}_{int(n) // 2}" for n in sizes)
    text = one_convolution(
        *shapes,
        f"window={{size={window} pad={pad}}}, "
        f"dim_labels=b{spatial}f_{spatial}io->b{spatial}f",
    ).replace("f32", kind)
    assert form_of(text) == expected


def test_decided_modules_compute_the_same():
    for name, form in EXPECTED.items():
        module = hloenv.HloModule.from_text(jax_form(name))
        env = hloenv.HloEnv(module)
        alternatives = env.get_alternatives("convolution-forms")
        decisions = get_policy("known-forms")(alternatives)
        decided = alternatives.apply(decisions, partial=True)
        inputs = hloenv.random_inputs(module)
        wanted = hloenv.interpret(module, *inputs)
        outputs = hloenv.interpret(decided, *inputs)
        hloenv.compare_outputs(wanted, outputs, rtol=1e-5).check()
        assert ("convolution" in decided.opcode_counts()) == (form is None)


@pytest.mark.jax
def test_gradients_behind_a_cross_entropy_with_labels_have_their_form() -> None:
    # As optax writes it: the number of the label is taken twice, the second time from a
    # known place, so that the gradient scatters constants.
    import jax
    import jax.numpy as jnp

    def loss(kernel, images, labels):
        made = jax.lax.conv_general_dilated(
            images,
            kernel,
            (1, 1),
            "SAME",
            dimension_numbers=("NHWC", "HWIO", "NHWC"),
            feature_group_count=16,
        )
        logits = made.mean((1, 2))
        label = jnp.take_along_axis(logits, labels[:, None], -1).take(0, axis=-1)
        return (jax.nn.logsumexp(logits, -1) - label).mean()

    kernel, images = np.ones((3, 3, 1, 16), "f"), np.ones((4, 28, 28, 16), "f")
    labels = np.zeros(4, np.int32)
    module = hloenv.HloModule.from_jax(jax.grad(loss), kernel, images, labels)
    decided = forms_of(module)
    assert decided is not None
    assert decided.accepted["convolution-forms/rows"] == 1
