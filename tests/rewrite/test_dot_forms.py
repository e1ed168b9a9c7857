# SPDX-License-Identifier: Apache-2.0
"""dot-forms: dots of tiny matrices as multiplications and additions."""

from __future__ import annotations

import random

import numpy as np
import pytest

import hloenv
from support.captures import capture, check_compiled, rules
from support.dots import dot_attributes, shape_text

NAME = "dot-forms"

BATCHED = """HloModule batched

ENTRY main {
  x = f32[100,4,3]{2,1,0} parameter(0)
  y = f32[100,3,5]{2,1,0} parameter(1)
  ROOT d = f32[100,4,5]{2,1,0} dot(x, y), lhs_batch_dims={0}, rhs_batch_dims={0},
    lhs_contracting_dims={2}, rhs_contracting_dims={1}
}
"""


def captured(text: str) -> hloenv.Alternatives:
    return capture(text, NAME)


def random_dot(rng: random.Random, types: str) -> str:
    """A dot with any order of batch (a, b), summed (k, l) and free dimensions."""
    sizes = {label: rng.randint(1, 3) for label in "abklmnpq"}
    batch = "".join(rng.sample("ab", rng.randint(0, 2)))
    summed = "".join(rng.sample("kl", rng.randint(0, 2)))
    free = [rng.choice(("", "m", "mn")), rng.choice(("", "p", "pq"))]
    left, right = (
        "".join(rng.sample(labels, len(labels)))
        for labels in (batch + summed + free[0], batch + summed + free[1])
    )
    result = (
        batch
        + "".join(label for label in left if label in free[0])
        + "".join(label for label in right if label in free[1])
    )

    source, _, target = types.partition("->")
    attributes = dot_attributes(left, right, batch, summed)
    return f"""HloModule random_dot

ENTRY main {{
  x = {shape_text(source, left, sizes)} parameter(0)
  y = {shape_text(source, right, sizes)} parameter(1)
  ROOT d = {shape_text(target or source, result, sizes)} dot(x, y), {attributes}
}}
"""


@pytest.mark.parametrize(
    ("types", "tolerance"),
    [
        ("f32", 1e-12),
        ("f64", 1e-12),
        ("c64", 1e-12),
        ("c128", 1e-12),
        ("s32", 0.0),
        ("bf16->f32", 1e-5),
        ("bf16", 2e-2),
        ("f16", 3e-3),
    ],
)
def test_random_dots(types, tolerance):
    rng = random.Random(0)
    for seed in range(30):
        text = random_dot(rng, types)
        alternatives = captured(text)
        assert "multiply_reduce" in rules(alternatives)
        for record in hloenv.verify_alternatives(
            alternatives, seed=seed, float64=types in ("f32", "c64")
        ):
            assert record.relative <= tolerance, (record, text)


@pytest.mark.compile
def test_forms_compile_and_compute_the_same():
    check_compiled(BATCHED, NAME)


@pytest.mark.parametrize(("kind", "expected"), [("f64", 0), ("c64", 1), ("c128", 1)])
def test_small_complex_products_in_a_kernel_of_their_own(kind, expected):
    alternatives = captured(BATCHED.replace("f32", kind))
    names = rules(alternatives)
    assert names.count("unrolled_apart") == expected
    if expected:
        decided = alternatives.apply([names.index("unrolled_apart") + 1])
        counts = decided.opcode_counts()
        assert (counts["call"], counts["multiply"]) == (1, 3)
        assert "dot" not in counts


def test_each_form():
    alternatives = captured(BATCHED)
    assert rules(alternatives) == ["multiply_reduce", "unrolled"]
    reduced, unrolled = (alternatives.apply([n]).opcode_counts() for n in (1, 2))
    assert reduced["multiply"] == reduced["reduce"] == 1
    assert unrolled["multiply"] == 3
    assert "dot" not in reduced
    assert "dot" not in unrolled


@pytest.mark.compile
@pytest.mark.parametrize("columns", ["r = f32[40,64]", "r = f32[2,20,64]"])
def test_many_rows_of_few_numbers(columns):
    """Such as points, of which more than one dimension may be rows."""
    rows = columns.partition("[")[2].removesuffix(",64]")
    text = f"""HloModule points
ENTRY main {{
  p = f32[{rows},3] parameter(0)
  q = f32[64,3] parameter(1)
  t = f32[3,64]{{0,1}} transpose(q), dimensions={{1,0}}
  ROOT {columns} dot(p, t), lhs_contracting_dims={{{rows.count(",") + 1}}},
    rhs_contracting_dims={{0}}
}}
"""
    assert "unrolled" in rules(captured(text))
    check_compiled(text, NAME)
    assert "unrolled" not in rules(captured(text.replace("64", "65")))


@pytest.mark.compile
def test_parts_of_complex_numbers():
    text = BATCHED.replace("f32", "c64")
    alternatives = captured(text)
    choice = rules(alternatives).index("parts") + 1
    counts = alternatives.apply([choice]).opcode_counts()
    assert (counts["dot"], counts["real"], counts["imag"], counts["complex"]) == (
        *(4, 4, 4),
        1,
    )
    check_compiled(text, NAME)


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("100", "10000000", []),  # more than 2^24 elements
        ("3", "9", ["multiply_reduce"]),  # too many terms
        ("5", "80", ["multiply_reduce"]),  # too many columns
        ("f32", "s8", []),
        ("f32", "f8e5m2", []),
        ("100", "0", []),
        ("lhs_batch", "algorithm=dot_bf16_bf16_f32, lhs_batch", []),
    ],
)
def test_not_offered(old, new, expected):
    head, _, body = BATCHED.partition("ENTRY")
    numbers = body.replace("{2,1,0}", "")
    if old.isdigit():
        numbers = numbers.replace(f"[{old},", f"[{new},").replace(f",{old}", f",{new}")
    else:
        numbers = numbers.replace(old, new)
    assert rules(captured(f"{head}ENTRY{numbers}")) == expected


@pytest.mark.parametrize("kind", ["f32", "c64", "c128"])
def test_infinite_operands_are_left_alone(kind):
    text = BATCHED.replace(
        "y = f32[100,3,5]{2,1,0} parameter(1)",
        "huge = f32[] constant(inf)\n"
        "  y = f32[100,3,5]{2,1,0} broadcast(huge), dimensions={}",
    ).replace("f32", kind)
    if kind.startswith("c"):
        text = text.replace("constant(inf)", "constant((0, inf))")
    assert len(captured(text)) == 0


@pytest.mark.compile
@pytest.mark.parametrize("extreme", [np.inf, -np.inf, np.nan, 1e30, 1e-40, -0.0])
@pytest.mark.parametrize("shape", [(100, 4, 5), (1, 70, 2)])
def test_extreme_complex_arguments(shape, extreme):
    """The same results are finite, and these are the same."""
    batch, rows, columns = shape
    text = BATCHED.replace("f32", "c64").replace("{2,1,0}", "")
    text = text.replace("[100,4,", f"[{batch},{rows},").replace("100", f"{batch}")
    text = text.replace(",5]", f",{columns}]")
    alternatives = captured(text)
    names = rules(alternatives)
    rng = np.random.default_rng(0)
    arrays = []
    for sizes in ((batch, rows, 3), (batch, 3, columns)):
        parts = rng.normal(size=(*sizes, 2)).astype(np.float32)
        parts[rng.random(parts.shape) < 0.05] = extreme
        arrays.append(parts.view(np.complex64)[..., 0])
    original = alternatives.apply([0])
    (wanted,) = hloenv.compile(original, engine="jaxlib", isolate=False)(*arrays)
    is_finite = np.isfinite(wanted)
    assert is_finite.any()
    assert is_finite.all() == (abs(extreme) < 1)
    for name in ("unrolled", "unrolled_apart"):
        decided = alternatives.apply([names.index(name) + 1])
        (found,) = hloenv.compile(decided, engine="jaxlib", isolate=False)(*arrays)
        np.testing.assert_array_equal(np.isfinite(found), is_finite)
        error = np.abs(found[is_finite] - wanted[is_finite]).max()
        assert error <= 1e-6 * np.abs(wanted[is_finite]).max()


@pytest.mark.parametrize("seed", range(10))
def test_chains_of_complex_products(seed):
    """Whatever is chosen for each, where one reads the other."""
    rng = random.Random(seed)
    rows, middle, columns = (rng.choice((1, 2, 3, 8)) for _ in range(3))
    batch = rng.choice((1, 3, 40))
    text = f"""HloModule chain

ENTRY main {{
  x = c128[{batch},{rows},3] parameter(0)
  y = c128[{batch},3,{middle}] parameter(1)
  z = c128[{middle},{columns}] parameter(2)
  d = c128[{batch},{rows},{middle}] dot(x, y), lhs_batch_dims={{0}},
    rhs_batch_dims={{0}}, lhs_contracting_dims={{2}}, rhs_contracting_dims={{1}}
  t = c128[{middle},{batch},{rows}] transpose(d), dimensions={{2,0,1}}
  m = c128[{middle},{batch},{rows}] multiply(t, t)
  ROOT e = c128[{batch},{rows},{columns}] dot(m, z),
    lhs_contracting_dims={{0}}, rhs_contracting_dims={{0}}
}}
"""
    module = hloenv.HloModule.from_text(text)
    alternatives = captured(text)
    assert rules(alternatives).count("unrolled") >= 2
    arrays = hloenv.random_inputs(module, seed=seed)
    (wanted,) = hloenv.interpret(module, *arrays)
    scale = np.abs(wanted).max()
    assert scale > 0
    for decisions in np.ndindex(*alternatives.num_choices):
        decided = alternatives.apply(list(decisions))
        (found,) = hloenv.interpret(decided, *arrays)
        assert np.abs(found - wanted).max() <= 1e-13 * scale, decisions
