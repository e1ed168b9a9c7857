# SPDX-License-Identifier: Apache-2.0
"""dot-forms/narrow, shifted and truth: products of bytes and truth values."""

from __future__ import annotations

import numpy as np
import pytest

import hloenv
from hloenv.policies import get_policy
from support.captures import capture, decisions_for_rule, rules

TEXT = """
HloModule narrow

ENTRY main {{
  x = {left}[5,70] parameter(0)
  y = {right}[70,6] parameter(1)
  wide = {type}[5,70] convert(x)
  other = {type}[70,6] convert(y)
  ROOT product = {type}[5,6] dot(wide, other),
    lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
}}
"""
TYPES = {"s8": np.int8, "pred": np.bool_, "u8": np.uint8, "s16": np.int16}


@pytest.mark.compile
@pytest.mark.parametrize("engine", ["wheel", "jaxlib"])
@pytest.mark.parametrize("right", ["s8", "pred"])
@pytest.mark.parametrize("left", ["s8", "pred"])
def test_sums_are_exact(left, right, engine):
    alternatives = capture(TEXT.format(left=left, right=right, type="s32"), "dot-forms")
    assert "narrow" in rules(alternatives)
    decided = alternatives.apply(decisions_for_rule(alternatives, "narrow"))
    assert decided.opcode_counts()["dot"] == 1
    executable = hloenv.compile(decided, engine=engine, isolate=False)
    rng = np.random.default_rng(0)
    for low, high in ((-128, 128), (-128, -127), (127, 128)):
        x = rng.integers(low, high, (5, 70)).astype(TYPES[left])
        y = rng.integers(low, high, (70, 6)).astype(TYPES[right])
        (found,) = executable(x, y)
        wanted = x.astype(np.int32) @ y.astype(np.int32)
        np.testing.assert_array_equal(np.asarray(found), wanted)


@pytest.mark.parametrize(
    ("left", "right", "kind"),
    [
        ("s8", "u8", "s32"),
        ("s16", "s8", "s32"),
        ("s8", "s8", "s16"),
        ("s8", "s8", "f32"),
    ],
)
def test_other_types_stay(left, right, kind):
    alternatives = capture(TEXT.format(left=left, right=right, type=kind), "dot-forms")
    assert "narrow" not in rules(alternatives)


def truth_text(left: str, right: str, result: str, numbers: str) -> str:
    return f"""
HloModule truth

ENTRY main {{
  x = pred[{left}] parameter(0)
  y = pred[{right}] parameter(1)
  ROOT product = pred[{result}] dot(x, y), {numbers}
}}
"""


@pytest.mark.compile
@pytest.mark.parametrize("engine", ["wheel", "jaxlib"])
@pytest.mark.parametrize("share", [0.0, 0.02, 0.5, 1.0])
def test_products_of_truth_values_are_exact(share, engine):
    """In another order of dimensions, and of matrices one after the other."""
    rng = np.random.default_rng(0)
    for shapes, numbers, subscripts in (
        (
            ("70,65", "70,80", "65,80"),
            "lhs_contracting_dims={0}, rhs_contracting_dims={0}",
            "ka,kb->ab",
        ),
        (
            ("3,9,70", "3,70,8", "3,9,8"),
            "lhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_batch_dims={0}, "
            "rhs_contracting_dims={1}",
            "zak,zkb->zab",
        ),
        (("70", "70", ""), "lhs_contracting_dims={0}, rhs_contracting_dims={0}", "k,k"),
    ):
        alternatives = capture(truth_text(*shapes, numbers), "dot-forms")
        decided = alternatives.apply(decisions_for_rule(alternatives, "truth"))
        x, y = (
            rng.random([int(each) for each in shape.split(",")]) < share
            for shape in shapes[:2]
        )
        (found,) = hloenv.compile(decided, engine=engine, isolate=False)(x, y)
        wanted = np.einsum(subscripts, x.astype(int), y.astype(int)) > 0
        np.testing.assert_array_equal(np.asarray(found), wanted)


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [((64, 64, 64), True), ((64, 63, 64), False), ((1000, 1000, 1), False)],
)
def test_truth_values_by_size(sizes, expected):
    rows, terms, columns = sizes
    text = truth_text(
        *(f"{rows},{terms}", f"{terms},{columns}", f"{rows},{columns}"),
        "lhs_contracting_dims={1}, rhs_contracting_dims={0}",
    )
    alternatives = capture(text, "dot-forms")
    decisions = get_policy("known-forms")(alternatives)
    assert bool((decisions > 0).any()) == expected


# Labels of two operands and of the result, and the sizes of the labels.
SHIFTED = {
    "matrices": ("ak,kb->ab", {"a": 5, "b": 6, "k": 70}),
    "transposed": ("ka,bk->ab", {"a": 5, "b": 6, "k": 70}),
    "several terms": ("kaj,jkb->ab", {"a": 5, "b": 6, "k": 9, "j": 7}),
    "batches": ("zkya,bykz->zyab", {"a": 5, "b": 6, "k": 33, "z": 2, "y": 3}),
    "free dimensions": ("azkc,dkzb->zacdb", dict.fromkeys("abcdz", 3) | {"k": 21}),
    "vectors": ("k,k->", {"k": 300}),
    "a vector": ("k,kzy->zy", {"k": 300, "z": 2, "y": 3}),
    "one term": ("ak,kb->ab", {"a": 4, "b": 3, "k": 1}),
}


def shifted_text(subscripts: str, sizes: dict[str, int], types: list[str]) -> str:
    inputs, result = subscripts.split("->")
    left, right = inputs.split(",")

    def shape(labels: str) -> str:
        return ",".join(str(sizes[each]) for each in labels)

    def places(labels: str, *, are_kept: bool) -> str:
        both = [each for each in result + left if each in left and each in right]
        kept = [each for each in dict.fromkeys(both) if (each in result) == are_kept]
        return ",".join(str(labels.index(each)) for each in kept)

    return f"""
HloModule shifted

ENTRY main {{
  x = {types[0]}[{shape(left)}] parameter(0)
  y = {types[1]}[{shape(right)}] parameter(1)
  wide = {types[2]}[{shape(left)}] convert(x)
  other = {types[2]}[{shape(right)}] convert(y)
  ROOT product = {types[2]}[{shape(result)}] dot(wide, other),
    lhs_batch_dims={{{places(left, are_kept=True)}}},
    rhs_batch_dims={{{places(right, are_kept=True)}}},
    lhs_contracting_dims={{{places(left, are_kept=False)}}},
    rhs_contracting_dims={{{places(right, are_kept=False)}}}
}}
"""


def extreme_bytes(rng, shape, kind: str, low: int, high: int):
    """Bytes of these bits."""
    bits = rng.integers(low, high, shape, dtype=np.uint8, endpoint=True)
    return bits.astype(np.bool_) if kind == "pred" else bits.view(TYPES[kind])


@pytest.mark.compile
@pytest.mark.parametrize(
    ("left", "right", "kind"),
    [
        ("u8", "s8", "s32"),
        ("s8", "u8", "s32"),
        ("u8", "u8", "s32"),
        ("u8", "u8", "u32"),
        ("u8", "s8", "u32"),
        ("pred", "u8", "s32"),
        ("u8", "pred", "u32"),
    ],
)
@pytest.mark.parametrize("name", SHIFTED)
def test_bytes_without_signs_are_exact(name, left, right, kind):
    subscripts, sizes = SHIFTED[name]
    text = shifted_text(subscripts, sizes, [left, right, kind])
    alternatives = capture(text, "dot-forms")
    assert "shifted" in rules(alternatives)
    assert "narrow" not in rules(alternatives)
    decided = alternatives.apply(decisions_for_rule(alternatives, "shifted"))
    assert decided.opcode_counts()["dot"] == 1
    runs = [
        hloenv.compile(decided, engine=engine, isolate=False)
        for engine in ("wheel", "jaxlib")
    ]
    rng = np.random.default_rng(0)
    shapes = [
        [sizes[label] for label in labels]
        for labels in subscripts.split("->")[0].split(",")
    ]
    everything, least, most = (0, 255), (127, 128), (255, 255)
    for of_left in (everything, (0, 0), least, most):
        for of_right in (everything, (0, 0), least, most):
            x = extreme_bytes(rng, shapes[0], left, *of_left)
            y = extreme_bytes(rng, shapes[1], right, *of_right)
            wide = (each.astype(np.int64) for each in (x, y))
            wanted = np.einsum(subscripts, *wide).astype(np.int32)
            for run in runs:
                (found,) = run(x, y)
                found = np.asarray(found).view(np.int32)
                np.testing.assert_array_equal(found, wanted)


@pytest.mark.compile
@pytest.mark.parametrize("kind", ["s32", "u32"])
def test_bytes_that_xla_converts(kind):
    """As jax writes products of arrays of one type with `preferred_element_type`."""
    sizes = {"a": 5, "b": 6, "k": 70}
    text = shifted_text("ak,kb->ab", sizes, ["u8", "u8", kind])
    text = text.replace("dot(wide, other)", "dot(x, y)")
    alternatives = capture(text, "dot-forms")
    decided = alternatives.apply(decisions_for_rule(alternatives, "shifted"))
    assert "s8[5,70]" in decided.to_text()
    rng = np.random.default_rng(0)
    for low in (0, 127, 255):
        x, y = (extreme_bytes(rng, each, "u8", low, 255) for each in ((5, 70), (70, 6)))
        wanted = x.astype(np.int32) @ y.astype(np.int32)
        module = hloenv.HloModule.from_text(text)
        for each in (module, decided):
            for engine in ("wheel", "jaxlib"):
                (found,) = hloenv.compile(each, engine=engine, isolate=False)(x, y)
                np.testing.assert_array_equal(np.asarray(found).view(np.int32), wanted)


@pytest.mark.compile
@pytest.mark.parametrize("kind", ["s32", "u32"])
def test_sums_that_are_carried_out_of_32_bits(kind):
    terms = 70_000
    text = shifted_text("ak,kb->ab", {"a": 2, "b": 3, "k": terms}, ["u8", "u8", kind])
    alternatives = capture(text, "dot-forms")
    decided = alternatives.apply(decisions_for_rule(alternatives, "shifted"))
    x, y = np.full((2, terms), 255, np.uint8), np.full((terms, 3), 255, np.uint8)
    x[1] -= (np.arange(terms) % 256).astype(np.uint8)
    wanted = (x.astype(np.int64) @ y.astype(np.int64)).astype(np.int32)
    for engine in ("wheel", "jaxlib"):
        (found,) = hloenv.compile(decided, engine=engine, isolate=False)(x, y)
        np.testing.assert_array_equal(np.asarray(found).view(np.int32), wanted)


@pytest.mark.parametrize("types", [["u8", "s16", "s32"], ["u8", "s8", "f32"]])
def test_what_is_not_shifted(types):
    text = shifted_text("ak,kb->ab", {"a": 2, "b": 3, "k": 9}, types)
    assert "shifted" not in rules(capture(text, "dot-forms"))


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ((256, 512, 512), True),
        ((4, 512, 512), True),
        ((64, 64, 16), False),
        ((1, 2048, 2048), False),
        ((2048, 2048, 2), False),
        ((4096, 16, 16), False),
    ],
)
def test_bytes_without_signs_by_size(sizes, expected):
    text = shifted_text(
        "ak,kb->ab", dict(zip("akb", sizes, strict=True)), ["u8", "s8", "s32"]
    )
    alternatives = capture(text, "dot-forms")
    decisions = get_policy("known-forms")(alternatives).tolist()
    wanted = decisions_for_rule(alternatives, "shifted")
    assert (decisions == wanted) == expected
