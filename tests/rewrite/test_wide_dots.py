# SPDX-License-Identifier: Apache-2.0
"""dot-forms/wide: products of bf16 with sums of f32, for which jaxlib has a library."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hloenv
from hloenv.jax import auto, jit
from hloenv.runtime.jaxlib.stablehlo import program_of
from support.captures import capture, decisions_for_rule, rules
from support.forms import form_of

pytestmark = [pytest.mark.bf16_products, pytest.mark.jax]

# Of einsum, and the sizes of the letters.
SHAPES = {
    "a matrix product": ("ij,jk->ik", (96, 64), (64, 160)),
    "of a transposed matrix": ("ij,kj->ik", (96, 64), (160, 64)),
    "gradient of weights": ("ji,jk->ik", (64, 96), (64, 160)),
    "of batches in another order": ("abji,bajk->baik", (2, 3, 64, 96), (3, 2, 64, 160)),
    "gradient of weights, of batch and time": ("bji,bjk->ik", (4, 32, 96), (4, 32, 80)),
    "of batches": ("bij,bjk->bik", (3, 96, 64), (3, 64, 160)),
    "of batches, read across": ("bji,bjk->bik", (3, 64, 96), (3, 64, 160)),
    "scores of attention": ("bthd,bshd->bhts", (2, 96, 3, 64), (2, 160, 3, 64)),
    "sums of attention": ("bhts,bshd->bthd", (2, 3, 96, 128), (2, 128, 3, 64)),
    "of two free dimensions": ("abj,jk->abk", (6, 16, 64), (64, 160)),
    "of two free dimensions, read across": ("jab,jk->abk", (64, 6, 16), (64, 160)),
    "of both, read across": ("ji,kj->ik", (64, 96), (160, 64)),
    "of one row of blocks": ("jui,juk->uik", (64, 1, 96), (64, 1, 160)),
}


CROSSED = [
    "gradient of weights",
    "of batches, read across",
    "of batches in another order",
    "of both, read across",
]


def product(name: str, kind: str = "bfloat16"):
    equation, *_ = SHAPES[name]

    def fn(x, y):
        found = jnp.einsum(equation, x, y, preferred_element_type="float32")
        return found if kind == "float32" else jnp.einsum(equation, x, y)

    return fn


def operands(name: str, draw) -> tuple[jax.Array, ...]:
    return tuple(jnp.asarray(draw(shape), jnp.bfloat16) for shape in SHAPES[name][1:])


def taken(name: str, kind: str = "bfloat16") -> int:
    module = hloenv.HloModule.from_jax(product(name, kind), *operands(name, np.ones))
    decided = auto.forms_of(module)
    return 0 if decided is None else decided.accepted["dot-forms/wide"]


@pytest.mark.compile
@pytest.mark.parametrize("name", SHAPES)
def test_sums_are_those_of_f32_and_rounded(name):
    rng = np.random.default_rng(0)
    fn = product(name)
    assert taken(name)
    decided = jit(fn, budget=0, remember=False)
    # Sums of small integers are exact.
    arrays = operands(name, lambda shape: rng.integers(-2, 3, shape))
    jax.block_until_ready(decided(*arrays))
    np.testing.assert_array_equal(decided(*arrays), jax.jit(fn)(*arrays))
    # Others are rounded once.
    arrays = operands(name, lambda shape: rng.normal(size=shape))
    wide = [np.asarray(each, np.float64) for each in arrays]
    exact = np.einsum(SHAPES[name][0], *wide)
    found = np.asarray(decided(*arrays), np.float64)
    np.testing.assert_allclose(found, exact, rtol=2**-8, atol=1e-4)


@pytest.mark.compile
@pytest.mark.parametrize("engine", ["wheel", "jaxlib"])
@pytest.mark.parametrize("kind", ["bfloat16", "float32"])
@pytest.mark.parametrize("is_transposed", [False, True])
@pytest.mark.parametrize("name", ["a matrix product", *CROSSED])
def test_what_xla_makes_of_it_has_code(name, is_transposed, kind, engine):
    """Transpositions that XLA moved into the product left one that nothing runs."""

    def fn(x, y):
        found = product(name)(x, y).astype(kind)
        return jnp.moveaxis(found, -1, -2) if is_transposed else found

    rng = np.random.default_rng(3)
    arrays = operands(name, lambda shape: rng.integers(-2, 3, shape))
    alternatives = hloenv.HloEnv(
        hloenv.HloModule.from_jax(fn, *arrays)
    ).get_alternatives("dot-forms")
    decided = alternatives.apply(decisions_for_rule(alternatives, "wide"))
    assert "f32" in decided.to_text()
    (found,) = hloenv.compile(decided, engine=engine, isolate=False)(*arrays)
    wanted = np.asarray(jax.jit(fn)(*arrays), np.float32)
    np.testing.assert_array_equal(np.asarray(found, np.float32), wanted)


@pytest.mark.compile
@pytest.mark.parametrize("name", SHAPES)
def test_the_library_multiplies_bf16(name):
    decided = auto.forms_of(
        hloenv.HloModule.from_jax(product(name), *operands(name, np.ones))
    )
    assert decided is not None
    program = program_of(decided.applied)
    lowered = jax.jit(lambda *x: program(*x)).lower(*operands(name, np.ones))
    text = lowered.compile().as_text()
    (fused,) = (line for line in text.splitlines() if " dot(" in line)
    first = fused.split(" dot(")[1].split(",")[0]
    types = [line for line in text.splitlines() if f"{first} = " in line]
    assert any(" = bf16[" in line for line in types)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("gradient of weights", 1),  # which jaxlib would convert
        ("of batches, read across", 1),
        ("a matrix product", 0),
        ("gradient of weights, of batch and time", 0),
    ],
)
def test_results_of_f32_where_jaxlib_would_convert_the_operands(name, expected):
    def fn(x, y):
        return jnp.einsum(SHAPES[name][0], x, y, preferred_element_type="float32")

    module = hloenv.HloModule.from_jax(fn, *operands(name, np.ones))
    decided = auto.forms_of(module)
    accepted = {} if decided is None else decided.accepted
    assert accepted.get("dot-forms/wide", 0) == expected


DOT = """HloModule m
ENTRY e {{
  x = {kind}[{rows},{terms}] parameter(0)
  y = {kind}[{terms},{columns}] parameter(1)
  ROOT d = {result}[{rows},{columns}] dot(x, y), lhs_contracting_dims={{1}},
    rhs_contracting_dims={{0}}{others}
}}
"""


def dot(kind="bf16", *, rows=128, columns=128, terms=128, result=None, others=""):
    return DOT.format(
        **{"kind": kind, "rows": rows, "columns": columns, "terms": terms},
        **{"result": result or kind, "others": others},
    )


@pytest.mark.parametrize(
    "text",
    [
        dot("f16"),
        dot("f32"),
        dot(result="f32"),
        dot("bf16", others=", algorithm=dot_bf16_bf16_f32"),
        dot(rows=1),
        dot(columns=1),
        dot(terms=1),
        dot(rows=97)
        .replace("bf16[97,128] p", "bf16[128,97] p")
        .replace(
            "lhs_contracting_dims={1}", "lhs_contracting_dims={0}"
        ),  # a prime number of rows, read across
        dot(terms=0),
        dot(rows=0),
    ],
)
def test_others_are_not_offered(text):
    assert "wide" not in rules(capture(text, "dot-forms"))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (dot(), "wide"),
        (dot(rows=2, columns=1024, terms=1024), "wide"),
        (dot(rows=64, columns=64, terms=64), None),
        (dot(rows=512, columns=512, terms=8), None),
    ],
)
def test_what_known_forms_takes(text, expected):
    assert form_of(text, "dot-forms") == expected


def test_numbers_that_are_not_finite():
    text = dot(rows=16, columns=16, terms=64)
    alternatives = capture(text, "dot-forms")
    decided = alternatives.apply(decisions_for_rule(alternatives, "wide"))
    executable = hloenv.compile(decided, engine="jaxlib", isolate=False)
    plain = hloenv.compile(
        hloenv.HloModule.from_text(text), engine="jaxlib", isolate=False
    )
    rng = np.random.default_rng(1)
    x = rng.integers(-3, 4, (16, 64)).astype(jnp.bfloat16)
    y = rng.integers(-3, 4, (64, 16)).astype(jnp.bfloat16)
    x[0, 0], x[1, 3], y[2, 2], y[5, 7], x[4, 5] = np.inf, np.nan, -np.inf, 3e38, 3e38
    (found,), (wanted,) = executable(x, y), plain(x, y)
    np.testing.assert_array_equal(
        np.asarray(found, np.float32), np.asarray(wanted, np.float32)
    )


@pytest.mark.compile
@pytest.mark.parametrize("name", ["a matrix product", "gradient of weights"])
def test_what_is_converted_is_not_rounded(name):
    """XLA leaves that out, and so do we: logits of f32 keep their digits."""

    def fn(x, y):
        return product(name)(x, y).astype(jnp.float32)

    rng = np.random.default_rng(2)
    arrays = operands(name, lambda shape: rng.normal(size=shape))
    decided = jit(fn, budget=0, remember=False)
    jax.block_until_ready(decided(*arrays))
    assert "dot-forms/wide" in decided.explain()
    np.testing.assert_allclose(
        decided(*arrays), jax.jit(fn)(*arrays), rtol=1e-4, atol=1e-4
    )


def test_a_product_that_is_read_twice_is_rounded():
    def fn(x, y):
        z = x @ y
        return z, z.astype(jnp.float32)

    arrays = [jnp.ones((128, 128), jnp.bfloat16)] * 2
    decided = auto.forms_of(hloenv.HloModule.from_jax(fn, *arrays))
    assert decided is not None
    assert decided.accepted == {"dot-forms/wide": 1}
    assert decided.applied.opcode_counts()["dot"] == 1


@pytest.mark.parametrize(
    ("kinds", "equation", "shapes"),
    [
        (("bf16", "f32"), "bti,btj->ij", [(8, 128, 256)] * 2),
        (("f16", "f32"), "bti,btj->ij", [(8, 128, 256)] * 2),
        (("bf16", "bf16"), "ht,thd->hd", [(8, 512), (512, 8, 64)]),
    ],
)
def test_forms_of_f32_are_not_taken_for_narrow_floats(kinds, equation, shapes):
    """`flat` and `batch_loop` made these up to four times as slow."""
    names = {"bf16": jnp.bfloat16, "f16": jnp.float16, "f32": jnp.float32}

    def fn(x, y):
        return jnp.einsum(equation, x, y, preferred_element_type=names[kinds[1]])

    arrays = [jnp.ones(shape, names[kinds[0]]) for shape in shapes]
    decided = auto.forms_of(hloenv.HloModule.from_jax(fn, *arrays))
    accepted = {} if decided is None else decided.accepted
    assert not {"dot-forms/flat", "dot-forms/batch_loop"} & accepted.keys()
