# SPDX-License-Identifier: Apache-2.0
"""dot-forms: products of few rows and a matrix that is transposed."""

from __future__ import annotations

import random

import pytest

import hloenv
from support.captures import capture, check_compiled, rules

NAME = "dot-forms"

ROW = """HloModule row

ENTRY main {
  x = f32[1,256] parameter(0)
  w = f32[1024,256] parameter(1)
  b = f32[1,1024] parameter(2)
  t = f32[256,1024] transpose(w), dimensions={1,0}
  d = f32[1,1024] dot(x, t), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT y = f32[1,1024] add(d, b)
}
"""


def dot_text(left: str, right: str, kind: str, rng: random.Random) -> str:
    """A product of x and w, with labels as in einsum; k is summed over.

    The matrix w is transposed to a random order before the product.
    """
    sizes = {label: rng.randint(1, 2) for label in left}
    sizes |= {label: rng.randint(5, 9) for label in right}
    order = list(range(len(right)))
    rng.shuffle(order)
    moved = "".join(right[d] for d in order)
    free = [label for label in left + moved if label != "k"]

    def shape(labels: object) -> str:
        return f"{kind}[{','.join(str(sizes[each]) for each in labels)}]"

    return f"""HloModule few_rows

ENTRY main {{
  x = {shape(left)} parameter(0)
  w = {shape(right)} parameter(1)
  t = {shape(moved)} transpose(w), dimensions={{{",".join(map(str, order))}}}
  ROOT d = {shape(free)} dot(x, t), lhs_contracting_dims={{{left.index("k")}}},
    rhs_contracting_dims={{{moved.index("k")}}},
    operand_precision={{highest,default}}
}}
"""


def test_what_is_separate_stays_as_it_is():
    alternatives = capture(ROW, NAME)
    index = rules(alternatives).index("separate")
    decisions = alternatives.reject_all()
    decisions[0] = index + 1
    separate = alternatives.apply(decisions)
    assert "opt-barrier" in separate.to_text()
    assert "separate" not in rules(hloenv.HloEnv(separate).get_alternatives(NAME))


def few_row_rules(text: str) -> list[str]:
    named = ("matrix_first", "separate")
    return [rule for rule in rules(capture(text, NAME)) if rule in named]


@pytest.mark.parametrize("kind", ["f32", "f64", "bf16", "c64", "s32", "s8"])
def test_random_orders_of_dimensions(kind):
    rng = random.Random(kind)
    offered = 0
    for seed in range(25):
        left = "".join(rng.sample("abk", 3)) if seed % 3 else "k"
        right = rng.choice(("nk", "mnk", "nmk"))
        text = dot_text(left, right, kind, rng)
        alternatives = capture(text, NAME)
        offered += "matrix_first" in rules(alternatives)
        for record in hloenv.verify_alternatives(
            alternatives, seed=seed, float64=kind in ("f32", "c64")
        ):
            assert record.relative <= (2e-2 if kind == "bf16" else 1e-12), text
    assert offered >= 15


@pytest.mark.compile
def test_forms_compile_and_compute_the_same():
    check_compiled(ROW, NAME)


def test_the_matrix_is_not_transposed():
    alternatives = capture(ROW, NAME)
    decision = rules(alternatives).index("matrix_first") + 1
    counts = alternatives.apply([decision]).opcode_counts()
    assert counts["dot"] == counts["opt-barrier"] == 1
    assert "transpose" not in counts


def test_precisions_stay_with_their_operands():
    text = dot_text("ak", "nk", "f32", random.Random(1))
    alternatives = capture(text, NAME)
    decision = rules(alternatives).index("matrix_first") + 1
    assert "operand_precision={default,highest}" in (
        alternatives.apply([decision]).to_text()
    )


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("f32[1,", "f32[2,", ["matrix_first"]),  # only a row is fused with an addition
        ("f32[1,", "f32[16,", ["matrix_first"]),
        ("f32[1,", "f32[17,", []),
        ("1024", "1", []),  # the matrix is a row too
        # The summed dimension is not contiguous.
        ("f32[1024,256] parameter", "f32[256,1024] parameter", []),
        ("256", "0", []),
        ("lhs_contr", "algorithm=dot_bf16_bf16_f32, lhs_contr", []),
    ],
)
def test_offered(old, new, expected):
    text = ROW.replace(old, new)
    if "[256,1024] parameter" in text:
        text = text.replace("transpose(w), dimensions={1,0}", "copy(w)")
    assert few_row_rules(text) == expected


def test_a_matrix_that_a_contraction_reads_as_it_is():
    """As of jnp.einsum("bk,nk->bn", x, w)."""
    text = ROW.replace("dot(x, t)", "dot(x, w)").replace(
        "rhs_contracting_dims={0}", "rhs_contracting_dims={1}"
    )
    assert few_row_rules(text) == ["matrix_first", "separate"]


@pytest.mark.compile
def test_a_transposition_with_its_own_layout():
    """As JAX lowers x @ w.T."""
    text = ROW.replace("t = f32[256,1024] ", "t = f32[256,1024]{0,1} ")
    assert few_row_rules(text) == ["matrix_first", "separate"]
    check_compiled(text, NAME)


def test_batched_products_are_left_alone():
    text = """HloModule batched

ENTRY main {
  x = f32[3,1,64] parameter(0)
  w = f32[3,256,64] parameter(1)
  ROOT d = f32[3,1,256] dot(x, w), lhs_batch_dims={0}, rhs_batch_dims={0},
    lhs_contracting_dims={2}, rhs_contracting_dims={2}
}
"""
    assert few_row_rules(text) == []
