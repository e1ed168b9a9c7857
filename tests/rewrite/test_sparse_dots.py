# SPDX-License-Identifier: Apache-2.0
"""dot-forms: products with a matrix that the module determines, mostly of zeros."""

from __future__ import annotations

import random

import numpy as np
import pytest

import hloenv
from support.captures import REDUCERS, capture, check_compiled, rules

NAME = "dot-forms"

# The weights of a bilinear resize: 1 - |place of the column - row|, as JAX has it.
WEIGHTS = """
  i = f32[{rows},{columns}] iota(), iota_dimension=0
  j = f32[{rows},{columns}] iota(), iota_dimension=1
  half = f32[] constant(0.5)
  halves = f32[{rows},{columns}] broadcast(half), dimensions={{}}
  scale = f32[] constant({scale})
  scales = f32[{rows},{columns}] broadcast(scale), dimensions={{}}
  middle = f32[{rows},{columns}] add(j, halves)
  scaled = f32[{rows},{columns}] multiply(middle, scales)
  place = f32[{rows},{columns}] subtract(scaled, halves)
  difference = f32[{rows},{columns}] subtract(place, i)
  distance = f32[{rows},{columns}] abs(difference)
  one = f32[] constant(1)
  ones = f32[{rows},{columns}] broadcast(one), dimensions={{}}
  rest = f32[{rows},{columns}] subtract(ones, distance)
  zero = f32[] constant(0)
  zeros = f32[{rows},{columns}] broadcast(zero), dimensions={{}}
  weights = f32[{rows},{columns}] maximum(rest, zeros)
  sums = f32[{columns}] reduce(weights, zero), dimensions={{0}}, to_apply=add
  totals = f32[{rows},{columns}] broadcast(sums), dimensions={{1}}
  w = f32[{rows},{columns}] divide(weights, totals)
"""


def resize(rows: int = 32, columns: int = 64, kind: str = "f32") -> str:
    """A resize of the middle dimension."""
    weights = WEIGHTS.format(rows=rows, columns=columns, scale=rows / columns)
    return f"""HloModule resize
{REDUCERS}
ENTRY main {{
  x = {kind}[3,{rows},5] parameter(0)
{weights}
  v = {kind}[{rows},{columns}] convert(w)
  ROOT d = {kind}[3,5,{columns}] dot(x, v), lhs_contracting_dims={{1}},
    rhs_contracting_dims={{0}}
}}
"""


def is_sparse(text: str) -> bool:
    return "sparse" in rules(capture(text, NAME))


def check(text: str, *, kind: str = "f32") -> None:
    """It applies, and all choices compute the same."""
    assert is_sparse(text)
    limit = {"f16": 2e-3, "bf16": 2e-2}.get(kind, 1e-6)
    alternatives = capture(text, NAME)
    for record in hloenv.verify_alternatives(alternatives, float64=kind == "f32"):
        assert record.relative <= limit, text


def constant(matrix: np.ndarray) -> str:
    rows = ", ".join(
        "{ " + ", ".join(str(float(each)) for each in row) + " }" for row in matrix
    )
    return f"constant({{ {rows} }})"


def product(matrix: np.ndarray, kind: str = "f32") -> str:
    """A product with a constant matrix."""
    rows, columns = matrix.shape
    return f"""HloModule product

ENTRY main {{
  x = {kind}[6,{rows}] parameter(0)
  w = {kind}[{rows},{columns}] {constant(matrix)}
  ROOT d = {kind}[6,{columns}] dot(x, w), lhs_contracting_dims={{1}},
    rhs_contracting_dims={{0}}
}}
"""


def sparse_matrix(rows: int, columns: int, taps: int, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    matrix = np.zeros((rows, columns))
    for column in range(columns):
        some = rng.choice(rows, rng.integers(0, taps + 1), replace=False)
        matrix[some, column] = rng.integers(1, 9, len(some)) / 4
    return matrix


@pytest.mark.parametrize("kind", ["f32", "f64", "f16", "bf16"])
@pytest.mark.parametrize("sizes", [(32, 64), (64, 16), (40, 41)])
def test_resizes_of_all_types(kind, sizes):
    check(resize(*sizes, kind), kind=kind)


@pytest.mark.compile
def test_it_compiles():
    check_compiled(resize(), NAME)


def test_the_matrix_is_gone():
    alternatives = capture(resize(), NAME)
    decisions = alternatives.reject_all()
    decisions[0] = rules(alternatives).index("sparse") + 1
    counts = alternatives.apply(decisions).opcode_counts()
    assert counts["gather"] == 2
    assert "dot" not in counts
    assert "iota" not in counts


@pytest.mark.parametrize("taps", [2, 3, 8, 9])
def test_single_elements_take_longer_than_rows(taps):
    matrix = np.zeros((32, 8))
    matrix[:taps] = 1
    text = product(matrix)
    assert is_sparse(text) == (taps <= 2)
    rows = text.replace("x = f32[6,32]", "x = f32[32,6]").replace(
        "lhs_contracting_dims={1}", "lhs_contracting_dims={0}"
    )
    assert is_sparse(rows) == (taps <= 8)


@pytest.mark.parametrize("seed", range(12))
def test_matrices_and_orders_of_dimensions(seed):
    """The matrix left or right, transposed or not; the array of any order."""
    rng = random.Random(seed)
    rows, columns, taps = rng.randint(24, 60), rng.randint(1, 40), rng.randint(1, 2)
    matrix = sparse_matrix(rows, columns, taps, seed)
    matrix[0, 0] = 0.5
    sizes = {"k": rows, "m": columns, "a": 3, "b": 2}
    array = "".join(rng.sample("abk", 3))
    stored = "".join(rng.sample(array, 3))
    turned = rng.random() < 0.5
    labels = "mk" if turned else "km"
    first, second = (labels, array) if rng.random() < 0.5 else (array, labels)
    names = ("w", "x") if first == labels else ("x", "w")
    result = [each for each in first + second if each != "k"]

    def shape(of: object) -> str:
        return f"f32[{','.join(str(sizes[each]) for each in of)}]"

    order = ",".join(str(stored.index(each)) for each in array)
    text = f"""HloModule product

ENTRY main {{
  p = {shape(stored)} parameter(0)
  x = {shape(array)} transpose(p), dimensions={{{order}}}
  w = {shape(labels)} {constant(matrix.T if turned else matrix)}
  ROOT d = {shape(result)} dot({", ".join(names)}),
    lhs_contracting_dims={{{first.index("k")}}},
    rhs_contracting_dims={{{second.index("k")}}}
}}
"""
    check(text)


def test_a_matrix_that_a_call_computes():
    weights = WEIGHTS.format(rows=32, columns=64, scale=0.5)
    text = f"""HloModule called
{REDUCERS}
scaled {{
  s = f32[] parameter(0)
{weights}
  factors = f32[32,64] broadcast(s), dimensions={{}}
  ROOT r = f32[32,64] multiply(w, factors)
}}

ENTRY main {{
  x = f32[4,32] parameter(0)
  two = f32[] constant(2)
  m = f32[32,64] call(two), to_apply=scaled
  ROOT d = f32[4,64] dot(x, m), lhs_contracting_dims={{1}},
    rhs_contracting_dims={{0}}
}}
"""
    check(text)
    unknown = text.replace(
        "x = f32[4,32] parameter(0)",
        "x = f32[4,32] parameter(0)\n  two = f32[] parameter(1)",
    ).replace("  two = f32[] constant(2)\n", "")
    assert not is_sparse(unknown)


def test_a_zero_column_gives_zeros():
    matrix = sparse_matrix(24, 8, 1)
    matrix[:, 3] = 0
    matrix[1, 0] = 1
    check(product(matrix))


def test_what_it_does_not_apply_to():
    sparse = sparse_matrix(40, 8, 2)
    sparse[:, 0] = 0
    sparse[:2, 0] = 1
    assert is_sparse(product(sparse))
    full = np.ones((40, 8))
    assert not is_sparse(product(full))
    one_full = sparse.copy()
    one_full[:, 7] = 1
    assert not is_sparse(product(one_full))
    assert not is_sparse(product(np.zeros((40, 8))))
    ones = product((sparse > 0).astype(float))
    assert is_sparse(ones)
    assert not is_sparse(ones.replace("f32", "s32").replace(".0", ""))
    for hostile in ("inf", "nan"):
        text = product(sparse).replace("1.0", hostile, 1)
        assert hostile in text
        assert not is_sparse(text)
    text = product(sparse)
    given = text.replace(constant(sparse), "parameter(1)")
    assert not is_sparse(given)
    random_matrix = resize().replace(
        "w = f32[32,64] divide(weights, totals)",
        "w = f32[32,64] rng(zero, one), distribution=rng_uniform",
    )
    assert not is_sparse(random_matrix)


def test_large_matrices_are_not_evaluated():
    assert is_sparse(resize(512, 512))
    assert not is_sparse(resize(512, 513))


def test_values_that_are_compared_with_one_of_them_stay():
    text = (
        product(sparse_matrix(32, 8, 1))
        .replace("ROOT d", "d")
        .replace(
            "rhs_contracting_dims={0}\n}",
            """rhs_contracting_dims={0}
  least = f32[] constant(-inf)
  m = f32[6] reduce(d, least), dimensions={1}, to_apply=max
  b = f32[6,8] broadcast(m), dimensions={0}
  ROOT c = pred[6,8] compare(d, b), direction=EQ
}""",
        )
        .replace("ENTRY", REDUCERS + "\nENTRY")
    )
    assert not is_sparse(text)


def test_an_array_with_its_own_layout():
    """As in gradients, of a transposition that moves no bytes."""
    text = resize().replace(
        "x = f32[3,32,5] parameter(0)",
        "p = f32[3,32,5]{2,1,0} parameter(0)\n  x = f32[3,32,5]{1,2,0} sine(p)",
    )
    check(text)
    check_compiled(text, NAME)


def test_a_matrix_of_an_empty_array():
    text = """HloModule empty

f {
  a = f32[] parameter(0)
  ROOT s = f32[] sine(a)
}

ENTRY main {
  x = f32[6,32] parameter(0)
  e = f32[0,8] constant({})
  m = f32[0,8] map(e), dimensions={0,1}, to_apply=f
  one = f32[] constant(1)
  rows = f32[1,8] broadcast(one), dimensions={}
  some = f32[1,8] concatenate(m, rows), dimensions={0}
  zero = f32[] constant(0)
  w = f32[32,8] pad(some, zero), padding=3_28x0_0
  ROOT d = f32[6,8] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
"""
    check(text)
