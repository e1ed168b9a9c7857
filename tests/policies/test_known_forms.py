# SPDX-License-Identifier: Apache-2.0
"""The policy known-forms: which form each convolution and dot gets."""

from __future__ import annotations

import pytest

import hloenv
from hloenv.policies import get_policy
from support.arg_reduce import arg_text
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


def products(batch: int, terms: int) -> str:
    """Products of 4 x terms and terms x 4 matrices."""
    return f"""HloModule dots

ENTRY main {{
  x = f32[{batch},4,{terms}] parameter(0)
  y = f32[{batch},{terms},4] parameter(1)
  ROOT d = f32[{batch},4,4] dot(x, y), lhs_batch_dims={{0}}, rhs_batch_dims={{0}},
    lhs_contracting_dims={{2}}, rhs_contracting_dims={{1}}
}}
"""


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
            "outputs",
        ),
        (
            ("2,16,16,16,16", "2,16,16,16,1", "3,3,3,16,1"),
            "window={size=16x16x16 pad=1_1x1_1x1_1}, dim_labels=f012b_i012o->012bf",
            "patches",
        ),
        (
            ("2,16,16,16,8", "2,16,16,16,8", "3,3,3,8,8"),
            "window={size=16x16x16 pad=1_1x1_1x1_1}, dim_labels=f012b_i012o->012bf",
            None,
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
    ("batch", "terms", "expected"),
    [(1000, 4, "unrolled"), (1000, 8, "unrolled"), (1000, 40, None), (10, 4, None)],
)
def test_dots(batch, terms, expected):
    assert form_of(products(batch, terms), "dot-forms") == expected


@pytest.mark.parametrize(
    ("reader", "expected"),
    [
        ("o = f32[15,4096] broadcast(n), dimensions={1}", "chain"),
        ("o = f32[16,4096] broadcast(n), dimensions={1}", None),
        ("o = f32[4096] sine(n)", "chain"),
        (
            "o = f32[100000] gather(n, i), offset_dims={}, collapsed_slice_dims={0}, "
            "start_index_map={0}, index_vector_dim=1, slice_sizes={1}",
            None,
        ),
    ],
)
def test_sums_that_are_read_many_times(reader, expected):
    """XLA would compute them each time."""
    text = f"""HloModule read

add {{
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}}

ENTRY main {{
  x = f32[4096,8] parameter(0)
  i = s32[100000] parameter(1)
  z = f32[] constant(0)
  r = f32[4096] reduce(x, z), dimensions={{1}}, to_apply=add
  n = f32[4096] negate(r)
  ROOT {reader}
}}
"""
    assert form_of(text, "reduce-forms") == expected


@pytest.mark.parametrize(("count", "expected"), [(64, "sparse"), (63, None)])
def test_a_product_with_a_matrix_mostly_of_zeros(count, expected):
    text = f"""HloModule sparse

ENTRY main {{
  x = f32[{count},64] parameter(0)
  i = s32[64,64] iota(), iota_dimension=0
  j = s32[64,64] iota(), iota_dimension=1
  is_one = pred[64,64] compare(i, j), direction=EQ
  w = f32[64,64] convert(is_one)
  ROOT d = f32[{count},64] dot(x, w), lhs_contracting_dims={{1}},
    rhs_contracting_dims={{0}}
}}
"""
    assert form_of(text, "dot-forms") == expected


@pytest.mark.parametrize(
    ("rows", "columns", "terms", "expected"),
    [
        (1, 3072, 768, "matrix_first"),
        (8, 64, 4096, "matrix_first"),
        (1, 50257, 768, "separate"),  # logits
        (8, 50257, 768, None),
        (32, 3072, 768, None),
        (1, 64, 64, None),
    ],
)
def test_few_rows(rows, columns, terms, expected):
    text = f"""HloModule rows

ENTRY main {{
  x = f32[{rows},{terms}] parameter(0)
  w = f32[{columns},{terms}] parameter(1)
  ROOT d = f32[{rows},{columns}] dot(x, w), lhs_contracting_dims={{1}},
    rhs_contracting_dims={{1}}
}}
"""
    env = hloenv.HloEnv(hloenv.HloModule.from_text(text))
    alternatives = env.get_alternatives("dot-forms")
    taken = [
        each.choices[decision].rule
        for each, decision in zip(
            alternatives, get_policy("known-forms")(alternatives).tolist(), strict=True
        )
        if decision > 0
    ]
    assert taken == ([expected] if expected else [])


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


@pytest.mark.parametrize(
    ("kind", "count", "expected"),
    [
        ("f32", 8, None),  # for which XLA has partial sorts
        ("bf16", 8, "wider"),
        ("u8", 50, "wider"),
        ("f64", 8, "maxima"),
        ("s32", 16, "maxima"),
    ],
)
def test_largest_numbers_of_rows(kind, count, expected):
    text = f"""HloModule largest

ENTRY main {{
  x = {kind}[16,1000] parameter(0)
  t = ({kind}[16,{count}], s32[16,{count}]) topk(x), k={count}, largest=true
  v = {kind}[16,{count}] get-tuple-element(t), index=0
  i = s32[16,{count}] get-tuple-element(t), index=1
  ROOT r = ({kind}[16,{count}], s32[16,{count}]) tuple(v, i)
}}
"""
    env = hloenv.HloEnv(hloenv.HloModule.from_text(text))
    alternatives = env.get_alternatives("sort-forms")
    decisions = get_policy("known-forms")(alternatives)
    chosen = [
        each.choices[decisions[each.index]].rule
        for each in alternatives
        if decisions[each.index] > 0
    ]
    assert chosen == ([] if expected is None else [expected])


@pytest.mark.parametrize(
    ("shape", "dimension", "expected"),
    [
        ("400,400,3", 2, "chain"),
        ("8,5000", 0, "chain"),
        ("5000,9", 1, None),  # too many elements
        ("100,3", 1, None),  # too few reductions
    ],
)
def test_reductions(shape, dimension, expected):
    sizes = shape.split(",")
    result = ",".join(sizes[:dimension] + sizes[dimension + 1 :])
    text = f"""HloModule reduction

add {{
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT s = f32[] add(a, b)
}}

ENTRY e {{
  x = f32[{shape}] parameter(0)
  zero = f32[] constant(0)
  ROOT r = f32[{result}] reduce(x, zero), dimensions={{{dimension}}}, to_apply=add
}}
"""
    assert form_of(text, "reduce-forms") == expected


@pytest.mark.parametrize(
    ("sizes", "results", "window", "expected"),
    [
        ("8,28,28,32", "8,14,14,32", "size=1x2x2x1 stride=1x2x2x1", "window"),
        ("8,28,28,32", "8,7,7,32", "size=1x4x4x1 stride=1x4x4x1", None),
        ("1,8,8,4", "1,4,4,4", "size=1x2x2x1 stride=1x2x2x1", None),
        # The gradients of average pooling, with and without overlap.
        (
            "8,14,14,32",
            "8,29,29,32",
            "size=1x3x3x1 pad=0_0x2_2x2_2x0_0 lhs_dilate=1x2x2x1",
            "window",
        ),
        (
            "8,14,14,32",
            "8,28,28,32",
            "size=1x2x2x1 pad=0_0x1_1x1_1x0_0 lhs_dilate=1x2x2x1",
            None,
        ),
    ],
)
def test_pooling(sizes, results, window, expected):
    text = f"""HloModule pooling

add {{
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT s = f32[] add(a, b)
}}

ENTRY e {{
  x = f32[{sizes}] parameter(0)
  zero = f32[] constant(0)
  ROOT r = f32[{results}] reduce-window(x, zero), window={{{window}}}, to_apply=add
}}
"""
    assert form_of(text, "reduce-forms") == expected


def test_truth_values_are_left_alone():
    text = """HloModule truth

both {
  a = pred[] parameter(0)
  b = pred[] parameter(1)
  ROOT s = pred[] and(a, b)
}

ENTRY e {
  x = pred[5000,3] parameter(0)
  yes = pred[] constant(true)
  ROOT r = pred[5000] reduce(x, yes), dimensions={1}, to_apply=both
}
"""
    assert form_of(text, "reduce-forms") is None


def test_other_passes_stay_undecided():
    text = jax_form("strided depthwise input").replace(
        "ROOT c =", "c ="
    ).rstrip().removesuffix("}") + (
        "  zero = f32[] constant(0)\n"
        "  zeros = f32[2,6,6,3] broadcast(zero), dimensions={}\n"
        "  ROOT sum = f32[2,6,6,3] add(c, zeros)\n}\n"
    )
    env = hloenv.HloEnv(hloenv.HloModule.from_text(text))
    alternatives = env.get_alternatives("algsimp", "convolution-forms")
    decisions = get_policy("known-forms")(alternatives)
    assert len(decisions) == 2
    assert sorted(decisions > 0) == [False, True]
    assert decisions.min() == -1


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


@pytest.mark.parametrize(
    ("shape", "dimension", "expected"),
    [
        ((20, 100), 1, "packed_index"),
        ((20, 18), 1, None),
        ((1024, 1000), 1, "packed_index"),
        ((256, 16384), 1, None),
        ((16384, 256), 0, "packed_index"),
        # XLA starts threads where a value has more than 512 bytes.
        ((1, 64), 1, "packed_index"),
        ((1, 65), 1, None),
        ((1, 128), 1, None),
        ((1, 129), 1, "packed_index"),
    ],
)
def test_the_index_of_an_extreme_element(shape, dimension, expected):
    text = arg_text(shape=shape, dimension=dimension)
    assert form_of(text, "reduce-forms") == expected


@pytest.mark.parametrize(
    ("operation", "rule", "least"),
    [
        ("sine(x)", "periodic", 8000),
        ("cosine(x)", "periodic", 8000),
        ("tan(x)", "periodic", 8000),
        ("rsqrt(x)", "over_root", 8000),
        ("log-plus-one(x)", "log_plus_one", 8000),
        ("cbrt(x)", "cube_root", 2000),
        ("atan2(x, x)", "angle", 2000),
        ("remainder(x, x)", "remainder", 2000),
        ("power(x, b)", "power", 8000),
    ],
)
def test_functions_of_many_numbers(operation, rule, least):
    for count, expected in ((least, rule), (least - 1, None)):
        text = f"""HloModule m
            ENTRY main {{
              x = f32[{count}] parameter(0)
              e = f32[] constant(1.5)
              b = f32[{count}] broadcast(e), dimensions={{}}
              ROOT y = f32[{count}] {operation}
            }}"""
        assert form_of(text, "math-forms") == expected


def test_small_functions_that_are_read_across_stay():
    text = """HloModule m
        add { a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = f32[] add(a, b) }
        ENTRY main {
          x = f32[16,16] parameter(0)
          s = f32[16,16] tanh(x)
          t = f32[16,16] transpose(s), dimensions={1,0}
          y = f32[16,16] add(s, t)
          zero = f32[] constant(0)
          ROOT z = f32[16] reduce(y, zero), dimensions={1}, to_apply=add
        }"""
    alternatives = hloenv.HloEnv(text).get_alternatives("fusion-cuts")
    assert len(alternatives) == 1
    assert (get_policy("known-forms")(alternatives) <= 0).all()


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_remainders_of_narrow_floats_stay(dtype):
    text = f"""HloModule m
        ENTRY main {{
          x = {dtype}[9000] parameter(0)
          ROOT y = {dtype}[9000] remainder(x, x)
        }}"""
    assert form_of(text, "math-forms") is None


def test_a_sine_that_is_read_many_times_stays_one_operation():
    """Its form would be computed for each element of the product."""
    text = """HloModule m
        ENTRY main {
          x = f32[9000] parameter(0)
          s = f32[9000] sine(x)
          b = f32[9000,50] broadcast(s), dimensions={0}
          y = f32[9000,50] parameter(1)
          ROOT z = f32[9000,50] multiply(b, y)
        }"""
    assert form_of(text, "math-forms") is None


@pytest.mark.parametrize(("count", "taken"), [(64, 64), (65, 0)])
def test_a_module_of_many_functions_stays(count, taken):
    lines = [f"x{i} = f32[8000] sine(x{i - 1})" for i in range(1, count + 1)]
    text = "\n".join(
        [
            "HloModule m\nENTRY main {\nx0 = f32[8000] parameter(0)",
            *lines,
            f"ROOT r = f32[8000] negate(x{count})\n}}",
        ]
    )
    alternatives = hloenv.HloEnv(hloenv.HloModule.from_text(text)).get_alternatives(
        "math-forms"
    )
    decisions = get_policy("known-forms")(alternatives)
    assert (decisions > 0).sum() == taken
