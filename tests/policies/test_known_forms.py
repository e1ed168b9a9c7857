# SPDX-License-Identifier: Apache-2.0
"""The policy known-forms: which forms dots, reductions and functions get."""

from __future__ import annotations

import numpy as np
import pytest

import hloenv
from hloenv.policies import get_policy
from support.arg_reduce import arg_text
from support.convolutions import jax_form
from support.forms import form_of


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
    ("rows", "columns", "terms", "read_by", "expected"),
    [
        (1, 64, 64, "add(d, b)", "matrix_first"),  # as in the cell of a network
        (1, 16, 48, "add(d, b)", "matrix_first"),
        (1, 512, 16, "add(d, b)", "separate"),
        (1, 8, 8, "add(d, b)", None),
        (2, 64, 64, "add(d, b)", None),
        (1, 64, 64, "multiply(d, b)", None),
    ],
)
def test_of_one_row_to_which_something_is_added(
    rows, columns, terms, read_by, expected
):
    text = f"""HloModule dot
ENTRY main {{
  x = f32[{rows},{terms}] parameter(0)
  w = f32[{columns},{terms}] parameter(1)
  b = f32[{rows},{columns}] parameter(2)
  d = f32[{rows},{columns}] dot(x, w), lhs_contracting_dims={{1}},
    rhs_contracting_dims={{1}}
  ROOT r = f32[{rows},{columns}] {read_by}
}}
"""
    assert form_of(text, "dot-forms") == expected


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
        ("5000,1", 1, None),  # which XLA drops
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
        # Few elements, and windows of one dimension, have fast code.
        ("8,29,29,32", "8,28,28,32", "size=1x2x2x1", None),
        ("8,58,58,32", "8,28,28,32", "size=1x4x4x1 stride=1x2x2x1", "dimensions"),
        ("8,32,29,29", "8,32,28,28", "size=1x1x2x2", None),
        ("8,32,30,30", "8,32,28,28", "size=1x1x3x3", "window"),
        ("8,514,32", "8,512,32", "size=1x3x1", None),
        ("8,523,32", "8,512,32", "size=1x12x1", "dimensions"),
        ("8,32,514", "8,32,512", "size=1x1x3", None),
        ("8,32,1024", "8,32,512", "size=1x1x2 stride=1x1x2", "window"),
        ("8,32,1538", "8,32,512", "size=1x1x5 stride=1x1x3", None),
        ("8,32,1025", "8,32,512", "size=1x1x3 stride=1x1x2", None),
        ("8,65,1025", "8,32,512", "size=1x2x2 stride=1x2x2", "window"),
        ("8,63,1024", "8,32,512", "size=1x1x2 stride=1x2x2", None),
        ("16384", "8192", "size=2 stride=2", None),
        ("64,256,1", "64,128,1", "size=1x2x1 stride=1x2x1", "window"),
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


@pytest.mark.jax
@pytest.mark.parametrize(
    ("shape", "size", "step", "expected"),
    [
        ((8, 28, 28, 32), (1, 2, 2, 1), (1, 2, 2, 1), None),  # one number in each
        ((8, 28, 28, 32), (1, 4, 4, 1), (1, 4, 4, 1), "dimensions"),
        ((8, 27, 27, 32), (1, 3, 3, 1), (1, 2, 2, 1), "window"),
        ((64, 7, 7, 32), (1, 7, 7, 1), (1, 7, 7, 1), None),
        ((8, 513, 32), (1, 3, 1), (1, 2, 1), None),
        ((8, 1024, 32), (1, 64, 1), (1, 64, 1), "dimensions"),
        ((8, 32, 513), (1, 1, 3), (1, 1, 2), "window"),
    ],
)
def test_gradients_of_average_pooling(shape, size, step, expected):
    import jax

    def pooled(x):
        return jax.lax.reduce_window(x, 0.0, jax.lax.add, size, step, "VALID")

    x = np.ones(shape, np.float32)

    def gradient(weights):
        return jax.linear_transpose(pooled, x)(weights)[0]

    weights = jax.eval_shape(pooled, x)
    module = hloenv.HloModule.from_jax(gradient, weights)
    assert form_of(module.to_text(), "reduce-forms") == expected


@pytest.mark.jax
@pytest.mark.parametrize(
    ("shape", "size", "step", "expected"),
    [
        ((8, 28, 28, 32), (1, 5, 5, 1), (1, 1, 1, 1), "select"),
        ((8, 32, 28, 28), (1, 1, 5, 5), (1, 1, 1, 1), "select"),
        ((8, 32, 28, 28), (1, 1, 4, 4), (1, 1, 4, 4), None),  # apart along vectors
        ((8, 32, 2048), (1, 1, 2), (1, 1, 2), "select"),
        ((8, 32, 2049), (1, 1, 5), (1, 1, 3), None),
        ((8, 2049, 32), (1, 9, 1), (1, 3, 1), "select"),
    ],
)
def test_gradients_of_max_pooling(shape, size, step, expected):
    import jax

    def pooled(x):
        return jax.lax.reduce_window(x, -np.inf, jax.lax.max, size, step, "VALID")

    x = np.ones(shape, np.float32)
    weights = jax.eval_shape(pooled, x)
    module = hloenv.HloModule.from_jax(
        lambda x, weights: jax.vjp(pooled, x)[1](weights)[0], x, weights
    )
    assert form_of(module.to_text(), "reduce-forms") == expected


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


@pytest.mark.parametrize(
    ("after", "expected"),
    [
        ("", None),
        ("m = f32[100,100] multiply(y, x)", None),
        ("m = f32[100,100] tanh(y)", "log_plus_one"),
    ],
)
def test_what_the_library_reduces_stays(after, expected):
    """It has the functions, and computes them in the reduction."""
    text = f"""HloModule m
        add {{ a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = f32[] add(a, b) }}
        ENTRY main {{
          x = f32[100,100] parameter(0)
          y = f32[100,100] log-plus-one(x)
          {after}
          zero = f32[] constant(0)
          ROOT z = f32[100] reduce({"m" if after else "y"}, zero), dimensions={{1}},
            to_apply=add
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


@pytest.mark.parametrize(("elements", "taken"), [(9000, "remainder"), (1000, None)])
@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_remainders_of_narrow_floats(dtype, elements, taken):
    text = f"""HloModule m
        ENTRY main {{
          x = {dtype}[{elements}] parameter(0)
          ROOT y = {dtype}[{elements}] remainder(x, x)
        }}"""
    assert form_of(text, "math-forms") == taken


@pytest.mark.parametrize(("elements", "taken"), [(9000, "widened"), (1000, None)])
@pytest.mark.parametrize("opcode", ["exponential", "exponential-minus-one", "log"])
def test_functions_of_half_floats(opcode, elements, taken):
    text = f"""HloModule m
        ENTRY main {{
          x = f16[{elements}] parameter(0)
          ROOT y = f16[{elements}] {opcode}(x)
        }}"""
    assert form_of(text, "math-forms") == taken


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
