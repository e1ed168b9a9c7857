# SPDX-License-Identifier: Apache-2.0
"""dot-forms: dots whose first operand is read across its rows."""

from __future__ import annotations

import random

import pytest

import hloenv
from support.captures import capture, check_compiled, rules
from support.dots import dot_attributes, shape_text

NAME = "dot-forms"
CROSSED = {"swapped", "second_first", "first_transposed", "as_stored"}


def swapped_text(left: str, right: str, kind: str) -> str:
    """A product with batch dimension b and summed dimension k."""
    sizes = dict(zip("bkmno", (3, 8, 5, 7, 2), strict=True))
    free = [each for each in left + right if each not in "bk"]

    def shape(labels: object) -> str:
        return f"{kind}[{','.join(str(sizes[each]) for each in labels)}]"

    def at(name: str, labels: str, label: str) -> str:
        return f"{name}={{{labels.index(label)}}}"

    batch = ""
    if "b" in left:
        batch = (
            f"{at('lhs_batch_dims', left, 'b')}, {at('rhs_batch_dims', right, 'b')},"
        )
        free = ["b", *free]
    return f"""HloModule swapped

ENTRY main {{
  x = {shape(left)} parameter(0)
  y = {shape(right)} parameter(1)
  ROOT d = {shape(free)} dot(x, y), {batch}
    {at("lhs_contracting_dims", left, "k")}, {at("rhs_contracting_dims", right, "k")}
}}
"""


@pytest.mark.parametrize("kind", ["f32", "bf16", "s32"])
@pytest.mark.parametrize(
    ("left", "right", "is_offered"),
    [
        ("bkm", "bnk", True),
        ("kbm", "nbk", True),
        ("km", "nk", True),
        ("bmk", "bnk", False),
        ("bkm", "bkn", False),
        ("bmk", "bkn", False),
    ],
)
def test_swapped_operands(left, right, kind, is_offered):
    alternatives = capture(swapped_text(left, right, kind), NAME)
    assert ("swapped" in rules(alternatives)) == is_offered
    for record in hloenv.verify_alternatives(alternatives, float64=kind == "f32"):
        assert record.relative <= (2e-2 if kind == "bf16" else 1e-12)


@pytest.mark.jax
def test_operands_that_jax_has_crossed():
    """The values of attention, with the heads behind the positions."""
    import jax.numpy as jnp
    import numpy as np

    def mix(p, v):
        return jnp.einsum("bhqk,bkhd->bqhd", p, v)

    arrays = np.zeros((2, 4, 32, 32), np.float32), np.zeros((2, 32, 4, 8), np.float32)
    env = hloenv.HloEnv(hloenv.HloModule.from_jax(mix, *arrays))
    assert "swapped" in rules(env.get_alternatives(NAME))


@pytest.mark.compile
def test_swapped_operands_compile():
    check_compiled(swapped_text("kbm", "nbk", "f32"), NAME)


def crossed_rules(text: str) -> set[str]:
    return CROSSED & set(rules(capture(text, NAME)))


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [
        ("bkm", "bkn", {"second_first", "first_transposed"}),
        ("bkm", "bnk", {"swapped", "first_transposed"}),
        ("km", "kn", {"second_first", "first_transposed"}),
        ("kbm", "kbn", {"second_first", "first_transposed"}),
        ("kmb", "kbn", set()),  # the batch is contiguous
        ("mko", "kn", set()),  # XLA transposes that itself
        ("mk", "kn", set()),
        ("km", "k", {"swapped"}),  # a vector
        ("k", "kn", set()),
    ],
)
def test_which_forms_are_offered(left, right, expected):
    assert crossed_rules(swapped_text(left, right, "f32")) == expected


def transposed_text(rng: random.Random, kind: str, *, moves_no_bytes: bool) -> str:
    """The transposition of a dot with any order of dimensions."""
    sizes = {label: rng.randint(2, 4) for label in "abklmnpq"}
    batch = "".join(rng.sample("ab", rng.randint(0, 2)))
    summed = "".join(rng.sample("kl", rng.randint(1, 2)))
    free = rng.choice(("m", "mn")), rng.choice(("p", "pq"))
    left, right = (
        "".join(rng.sample(labels, len(labels)))
        for labels in (batch + summed + free[0], batch + summed + free[1])
    )
    result = (
        batch
        + "".join(label for label in left if label in free[0])
        + "".join(label for label in right if label in free[1])
    )
    order = rng.sample(range(len(result)), len(result))
    target = "".join(result[d] for d in order)

    layout = ""
    if moves_no_bytes:  # the dimension of the dot that is last, is contiguous
        minor = (target.index(label) for label in reversed(result))
        layout = f"{{{','.join(str(d) for d in minor)}}}"
    attributes = dot_attributes(left, right, batch, summed)
    return f"""HloModule transposed_dot

ENTRY main {{
  x = {shape_text(kind, left, sizes)} parameter(0)
  y = {shape_text(kind, right, sizes)} parameter(1)
  d = {shape_text(kind, result, sizes)} dot(x, y), {attributes}
  ROOT t = {shape_text(kind, target, sizes)}{layout} transpose(d),
    dimensions={{{",".join(map(str, order))}}}
}}
"""


@pytest.mark.parametrize(
    ("kind", "tolerance"),
    [("f32", 1e-12), ("f64", 1e-12), ("s32", 0.0), ("bf16", 2e-2)],
)
@pytest.mark.parametrize("moves_no_bytes", [False, True])
def test_transpositions_of_dots(kind, tolerance, moves_no_bytes):
    rng = random.Random(0)
    found: set[str] = set()
    for seed in range(40):
        text = transposed_text(rng, kind, moves_no_bytes=moves_no_bytes)
        alternatives = capture(text, NAME)
        found |= set(rules(alternatives))
        for record in hloenv.verify_alternatives(
            alternatives, seed=seed, float64=kind == "f32"
        ):
            assert record.relative <= tolerance, (record, text)
    assert found >= {"swapped", "second_first", "first_transposed"}


GRADIENT = """HloModule gradient

ENTRY main {
  g = f32[128,10]{1,0} parameter(0)
  x = f32[128,512]{1,0} parameter(1)
  d = f32[10,512]{1,0} dot(g, x), lhs_contracting_dims={0}, rhs_contracting_dims={0}
  ROOT t = f32[512,10]{0,1} transpose(d), dimensions={1,0}
}
"""


def test_the_gradient_of_a_layer_has_one_alternative():
    """XLA multiplies in the other order, so that the activations come first."""
    alternatives = capture(GRADIENT, NAME)
    assert rules(alternatives) == ["second_first", "first_transposed"]
    second_first, first_transposed = (alternatives.apply([n]).to_text() for n in (1, 2))
    assert "f32[10,512]{1,0} opt-barrier" in second_first
    assert "f32[512,128]{1,0} opt-barrier" in first_transposed


def test_a_dot_that_others_read_is_not_reversed():
    text = GRADIENT.replace("ROOT t", "t").replace(
        "dimensions={1,0}\n",
        "dimensions={1,0}\n  ROOT r = (f32[10,512], f32[512,10]) tuple(d, t)\n",
    )
    alternatives = capture(text, NAME)
    assert rules(alternatives) == ["second_first", "first_transposed"]
    assert "f32[512,10]{1,0} opt-barrier" in alternatives.apply([1]).to_text()
    assert "f32[10,128]{1,0} opt-barrier" in alternatives.apply([2]).to_text()


@pytest.mark.parametrize(
    "dead", ["", "  t = f32[512,10] transpose(d), dimensions={1,0}\n"]
)
def test_a_result_of_the_module_is_not_reversed(dead):
    text = GRADIENT.replace("d = f32[10,512]{1,0} dot", "ROOT d = f32[10,512] dot")
    start = text.index("  ROOT t")
    alternatives = capture(f"{text[:start]}{dead}}}\n", NAME)
    assert rules(alternatives) == ["second_first", "first_transposed"]


@pytest.mark.parametrize(
    ("left", "right"), [("4096,1", "4096,64"), ("1,512,1", "1,512,64")]
)
def test_a_single_column_is_not_read_across_its_rows(left, right):
    batch = "lhs_batch_dims={0}, rhs_batch_dims={0}, " if left.count(",") == 2 else ""
    at = left.count(",") - 1
    result = ("1," if batch else "") + "1,64"
    text = f"""HloModule column

ENTRY main {{
  x = f32[{left}] parameter(0)
  y = f32[{right}] parameter(1)
  ROOT d = f32[{result}] dot(x, y), {batch}
    lhs_contracting_dims={{{at}}}, rhs_contracting_dims={{{at}}}
}}
"""
    assert crossed_rules(text) == set()


def test_a_dot_with_two_readers_is_not_read_through():
    """Its transposition may be multiplied in another order."""
    text = GRADIENT.replace(
        "ROOT t = f32[512,10]{0,1} transpose(d), dimensions={1,0}",
        """t = f32[512,10]{0,1} transpose(d), dimensions={1,0}
  v = f32[10]{0} parameter(2)
  p = f32[512]{0} dot(t, v), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT r = (f32[512,10], f32[512]) tuple(t, p)""",
    )
    assert "as_stored" not in rules(capture(text, NAME))


@pytest.mark.compile
@pytest.mark.parametrize("layout", ["{0,1}", "{1,0}"])
def test_the_gradient_of_a_layer_compiles(layout):
    check_compiled(GRADIENT.replace("{0,1}", layout), NAME)


VECTOR = """HloModule vector

ENTRY main {
  k = f32[96,64]{1,0} parameter(0)
  u = f32[96]{0} parameter(1)
  t = f32[64,96]{0,1} transpose(k), dimensions={1,0}
  ROOT d = f32[64]{0} dot(t, u), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
"""


@pytest.mark.compile
def test_a_vector_and_a_transposed_matrix():
    alternatives = capture(VECTOR, NAME)
    assert "as_stored" in rules(alternatives)
    check_compiled(VECTOR, NAME)
    # Nothing is transposed there.
    chosen = alternatives.apply([rules(alternatives).index("as_stored") + 1])
    assert "transpose" not in chosen.opcode_counts()


def test_a_matrix_that_is_not_transposed():
    text = VECTOR.replace("{0,1} transpose(k), dimensions={1,0}", " reshape(k)")
    assert "as_stored" not in crossed_rules(text)


@pytest.mark.parametrize("sizes", [(0, 64), (96, 0), (0, 0), (1, 64), (96, 1), (1, 1)])
def test_empty_and_single_rows(sizes):
    terms, rows = sizes
    text = VECTOR.replace("96", str(terms)).replace("64", str(rows))
    alternatives = capture(text, NAME)
    for record in hloenv.verify_alternatives(alternatives):
        assert record.relative <= 1e-6
    if not terms * rows:
        assert rules(alternatives) == []
