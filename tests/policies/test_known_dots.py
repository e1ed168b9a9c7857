# SPDX-License-Identifier: Apache-2.0
"""The policy known-forms: which form each dot gets."""

from __future__ import annotations

import pytest

import hloenv
from hloenv.policies import get_policy
from support.forms import form_of


@pytest.mark.parametrize(
    ("kind", "left", "right", "expected"),
    [
        ("f32", "128,512", "128,10", "second_first"),  # gradients with respect to
        ("f32", "256,512", "256,512", "first_transposed"),  # the weights of layers
        ("f32", "128,10", "128,512", None),
        ("f32", "1000,1000", "1000,1000", None),  # no power of two
        ("f64", "1000,1000", "1000,1000", "first_transposed"),
        ("f64", "128,512", "128,10", "first_transposed"),
        ("f32", "4,512", "4,512", None),  # sums of four terms become loops
        ("f32", "32,32", "32,32", None),
        ("f16", "384,1024", "384,10", "second_first"),
    ],
)
def test_products_across_the_rows_of_the_first(kind, left, right, expected):
    rows, columns = (sizes.split(",")[1] for sizes in (left, right))
    text = f"""HloModule crossed

ENTRY main {{
  x = {kind}[{left}] parameter(0)
  y = {kind}[{right}] parameter(1)
  ROOT d = {kind}[{rows},{columns}] dot(x, y),
    lhs_contracting_dims={{0}}, rhs_contracting_dims={{0}}
}}
"""
    assert form_of(text, "dot-forms") == expected
    # The same, multiplied the other way round and transposed, as JAX has gradients.
    reversed_text = f"""HloModule crossed

ENTRY main {{
  x = {kind}[{left}] parameter(0)
  y = {kind}[{right}] parameter(1)
  d = {kind}[{columns},{rows}] dot(y, x),
    lhs_contracting_dims={{0}}, rhs_contracting_dims={{0}}
  ROOT t = {kind}[{rows},{columns}]{{0,1}} transpose(d), dimensions={{1,0}}
}}
"""
    assert form_of(reversed_text, "dot-forms") == expected


@pytest.mark.bf16_products
@pytest.mark.parametrize("is_transposed", [False, True])
def test_products_of_bf16_across_the_rows_of_the_first(is_transposed):
    """By the library, five times as fast; with the second first, 3.5 times."""
    operands, result = ("x, y", "1024,10") if not is_transposed else ("y, x", "10,1024")
    text = f"""HloModule crossed

ENTRY main {{
  x = bf16[384,1024] parameter(0)
  y = bf16[384,10] parameter(1)
  d = bf16[{result}] dot({operands}),
    lhs_contracting_dims={{0}}, rhs_contracting_dims={{0}}
  ROOT r = bf16[1024,10] {"transpose(d), dimensions={1,0}" if is_transposed else "negate(d)"}
}}
"""
    env = hloenv.HloEnv(hloenv.HloModule.from_text(text))
    alternatives = env.get_alternatives("dot-forms")
    decisions = get_policy("known-forms")(alternatives)
    taken = {
        each.choices[decision].rule
        for each, decision in zip(alternatives, decisions, strict=True)
        if decision > 0
    }
    assert taken == {"wide"}


@pytest.mark.parametrize(
    ("rows", "terms", "columns", "expected"),
    [
        (1000, 3, 3, "unrolled"),
        (1000, 3, 32, "unrolled"),
        (1000, 3, 64, None),
        (1000, 2, 8, "unrolled"),
        (1000, 2, 16, None),
        (1000, 8, 8, "unrolled"),
        (1000, 8, 1, None),
        (100, 3, 3, None),
    ],
)
def test_many_rows_of_few_numbers(rows, terms, columns, expected):
    text = f"""HloModule points

ENTRY main {{
  x = f32[{rows},{terms}] parameter(0)
  y = f32[{terms},{columns}] parameter(1)
  ROOT d = f32[{rows},{columns}] dot(x, y),
    lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
}}
"""
    assert form_of(text, "dot-forms") == expected
    # In a loop there are no vectors of it.
    read = text.replace("ROOT d", "d").replace(
        "dims={0}\n",
        f"dims={{0}}\n  n = f32[{rows},{columns}] tanh(d)\n"
        f"  o = f32[{rows},1] slice(d), slice={{[0:{rows}], [0:1]}}\n"
        f"  ROOT r = f32[{rows},{columns + 1}] concatenate(n, o), dimensions={{1}}\n",
    )
    apart = None if expected is None else "unrolled_apart"
    assert form_of(read, "dot-forms") == apart


@pytest.mark.parametrize(
    ("shape", "batch", "expected"),
    [("2000,50,2", "0,1", "unrolled"), ("50,2,2000", "2,0", None)],
)
def test_products_of_single_elements_are_written_out_in_order(shape, batch, expected):
    text = f"""HloModule outer

ENTRY main {{
  x = f32[2000,50] parameter(0)
  y = f32[{shape}] parameter(1)
  ROOT d = f32[2000,50,2] dot(x, y), lhs_batch_dims={{0,1}}, rhs_batch_dims={{{batch}}},
    lhs_contracting_dims={{}}, rhs_contracting_dims={{}}
}}
"""
    assert form_of(text, "dot-forms") == expected


@pytest.mark.parametrize(
    ("batch", "image", "rows", "expected"),
    [(1, 28, 3, "flat"), (16, 28, 16, "flat"), (16, 28, 3, None), (16, 7, 16, None)],
)
def test_sums_over_several_dimensions(batch, image, rows, expected):
    text = f"""HloModule sums

ENTRY main {{
  x = f32[{batch},{image},{image},{rows}] parameter(0)
  y = f32[{batch},{image},{image},32] parameter(1)
  ROOT d = f32[{batch},{rows},32] dot(x, y), lhs_batch_dims={{0}}, rhs_batch_dims={{0}},
    lhs_contracting_dims={{1,2}}, rhs_contracting_dims={{1,2}}
}}
"""
    assert form_of(text, "dot-forms") == expected


@pytest.mark.parametrize(
    ("sizes", "expected"), [("96,64", "as_stored"), ("32,32", None)]
)
def test_a_vector_and_a_transposed_matrix(sizes, expected):
    terms, rows = sizes.split(",")
    text = f"""HloModule vector

ENTRY main {{
  k = f32[{sizes}] parameter(0)
  u = f32[{terms}] parameter(1)
  t = f32[{rows},{terms}]{{0,1}} transpose(k), dimensions={{1,0}}
  ROOT d = f32[{rows}] dot(t, u), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
}}
"""
    assert form_of(text, "dot-forms") == expected


@pytest.mark.parametrize(
    ("kind", "size", "expected"),
    [
        ("c64", 64, "parts"),
        ("c128", 128, "parts"),
        ("c64", 32, None),
        ("f32", 64, None),
    ],
)
def test_products_of_complex_numbers(kind, size, expected):
    text = f"""HloModule complex_product

ENTRY main {{
  x = {kind}[{size},{size}] parameter(0)
  y = {kind}[{size},{size}] parameter(1)
  ROOT d = {kind}[{size},{size}] dot(x, y),
    lhs_contracting_dims={{0}}, rhs_contracting_dims={{0}}
}}
"""
    assert form_of(text, "dot-forms") == expected


@pytest.mark.parametrize("kind", ["c64", "c128"])
@pytest.mark.parametrize(
    ("batch", "rows", "terms", "columns", "expected"),
    [
        (4096, 3, 3, 3, "unrolled_apart"),
        (4096, 2, 2, 2, "unrolled_apart"),  # of real numbers, not with two terms
        (4096, 8, 8, 8, "unrolled_apart"),
        (4096, 2, 8, 1, "unrolled_apart"),  # of real numbers, not with many terms
        (32, 3, 3, 1, "unrolled_apart"),
        (31, 3, 3, 1, None),
        (4096, 4, 9, 4, None),  # the rule takes eight terms
        (4096, 3, 1, 3, None),  # without a sum
        (4096, 1, 3, 1, None),  # nothing but a sum
        (1, 500, 2, 16, "unrolled_apart"),
        (1, 499, 2, 16, None),
        (8, 100, 3, 3, "unrolled_apart"),
        (4096, 16, 16, 16, "parts"),
    ],
)
def test_many_products_of_few_complex_numbers(
    kind, batch, rows, terms, columns, expected
):
    text = f"""HloModule links

ENTRY main {{
  x = {kind}[{batch},{rows},{terms}] parameter(0)
  y = {kind}[{batch},{terms},{columns}] parameter(1)
  ROOT d = {kind}[{batch},{rows},{columns}] dot(x, y), lhs_batch_dims={{0}},
    rhs_batch_dims={{0}}, lhs_contracting_dims={{2}}, rhs_contracting_dims={{1}}
}}
"""
    if batch == 1:
        text = f"""HloModule gates

ENTRY main {{
  x = {kind}[{rows},{terms}] parameter(0)
  y = {kind}[{terms},{columns}] parameter(1)
  ROOT d = {kind}[{rows},{columns}] dot(x, y),
    lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
}}
"""
    assert form_of(text, "dot-forms") == expected


@pytest.mark.parametrize("kind", ["f32", "f64"])
@pytest.mark.parametrize(
    ("terms", "order", "first"),
    [
        (4, "2,0,1", "unrolled_apart"),
        (4, "0,1,2", "unrolled"),
        (16, "2,0,1", "unrolled"),  # the other one stays a call
    ],
)
def test_products_that_another_one_reads_are_not_computed_again(
    kind, terms, order, first
):
    """As gates on a state: each would compute all before it for each of its terms."""
    sizes = ",".join(("2048", "2", "2")[int(d)] for d in order.split(","))
    text = f"""HloModule gates

ENTRY main {{
  s = {kind}[2,2048,2] parameter(0)
  g = {kind}[2,2] parameter(1)
  h = {kind}[{terms},2] parameter(2)
  d = {kind}[2048,2,2] dot(s, g), lhs_contracting_dims={{0}}, rhs_contracting_dims={{1}}
  t = {kind}[{sizes}] transpose(d), dimensions={{{order}}}
  r = {kind}[{8192 // terms},{terms}] reshape(t)
  n = {kind}[{8192 // terms},{terms}] negate(r)
  ROOT e = {kind}[{8192 // terms},2] dot(n, h),
    lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
}}
"""
    if order == "0,1,2":
        text = text.replace("transpose(d), dimensions={0,1,2}", "copy(d)")
    env = hloenv.HloEnv(hloenv.HloModule.from_text(text))
    alternatives = env.get_alternatives("dot-forms")
    decisions = get_policy("known-forms")(alternatives).tolist()
    assert alternatives[0].choices[decisions[0]].rule == first


def test_a_dot_has_one_form_as_it_is_and_transposed():
    """Also where its operand has a form, too, which says nothing about it."""
    text = """HloModule chained

sum {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}

ENTRY main {
  x = f32[256,512,4] parameter(0)
  y = f32[256,512] parameter(1)
  c = c64[512,512] parameter(2)
  zero = f32[] constant(0)
  s = f32[256,512] reduce(x, zero), dimensions={2}, to_apply=sum
  d = f32[512,512] dot(s, y), lhs_contracting_dims={0}, rhs_contracting_dims={0}
  e = c64[512,512] dot(c, c), lhs_contracting_dims={0}, rhs_contracting_dims={0}
  t = c64[512,512]{0,1} transpose(e), dimensions={1,0}
  ROOT r = (f32[512,512], c64[512,512]) tuple(d, t)
}
"""
    env = hloenv.HloEnv(hloenv.HloModule.from_text(text))
    alternatives = env.get_alternatives("reduce-forms", "dot-forms")
    decisions = get_policy("known-forms")(alternatives)
    chosen = [
        each.choices[decisions[each.index]].rule
        for each in alternatives
        if decisions[each.index] > 0
    ]
    assert sorted(chosen) == ["chain", "first_transposed", "parts"]


@pytest.mark.parametrize(
    ("positions", "features", "expected"),
    [(256, 64, "swapped"), (16, 64, None), (256, 16, "swapped")],
)
def test_values_of_attention(positions, features, expected):
    text = f"""HloModule values

ENTRY main {{
  v = f32[2,{positions},4,{features}] parameter(0)
  p = f32[2,4,{positions},{positions}] parameter(1)
  ROOT d = f32[2,4,{features},{positions}] dot(v, p), lhs_batch_dims={{0,2}},
    rhs_batch_dims={{0,1}}, lhs_contracting_dims={{1}}, rhs_contracting_dims={{3}}
}}
"""
    assert form_of(text, "dot-forms") == expected


@pytest.mark.parametrize(
    ("batch", "rows", "columns", "expected"),
    [
        (10_000, 4, 4, "unrolled"),
        (10_000, 2, 8, None),
        (128, 64, 4, None),
        (1, 5000, 8, None),
    ],
)
def test_products_of_columns_and_rows(batch, rows, columns, expected):
    """XLA multiplies those without a sum itself."""
    text = f"""HloModule outer

ENTRY main {{
  x = f32[{batch},{rows},1] parameter(0)
  y = f32[{batch},1,{columns}] parameter(1)
  ROOT d = f32[{batch},{rows},{columns}] dot(x, y), lhs_batch_dims={{0}},
    rhs_batch_dims={{0}}, lhs_contracting_dims={{2}}, rhs_contracting_dims={{1}}
}}
"""
    assert form_of(text, "dot-forms") == expected
