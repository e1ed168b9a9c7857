# SPDX-License-Identifier: Apache-2.0
"""reduce-forms/dimensions: windows that overlap, one dimension after the other."""

from __future__ import annotations

import random

import numpy as np
import pytest

import hloenv
from hloenv.policies import get_policy
from support.reductions import WINDOW

NAME = "reduce-forms"
NEUTRAL = {
    ("f32", "maximum"): "-inf",
    ("f64", "minimum"): "inf",
    ("bf16", "maximum"): "-inf",
    ("f32", "add"): "0",
    ("f16", "add"): "0",
    ("f32", "multiply"): "1",
    ("c64", "add"): "(0, 0)",
    ("s32", "add"): "0",
    ("u32", "xor"): "0",
    ("pred", "or"): "false",
    ("u8", "maximum"): "0",
    ("s8", "minimum"): "127",
    ("u16", "minimum"): "65535",
    ("s16", "maximum"): "-32768",
}
TOLERANCE = {"f32": 1e-5, "c64": 1e-5, "f16": 4e-3}


def pooling(kind: str, operation: str, sizes: str, window: str, start: str) -> str:
    """A module whose only reduction is over windows; XLA infers the result."""
    result = _result(sizes, window)
    return WINDOW.format(
        kind=kind,
        operation=operation,
        start=start,
        sizes=sizes,
        results=result,
        window=window,
    )


def _result(sizes: str, window: str) -> str:
    parts = dict(part.split("=") for part in window.split())
    dims = [int(each) for each in sizes.split(",")]
    spans = [int(each) for each in parts["size"].split("x")]
    ones = "x".join(["1"] * len(dims))
    steps = [int(each) for each in parts.get("stride", ones).split("x")]
    apart = [int(each) for each in parts.get("rhs_dilate", ones).split("x")]
    pads = parts.get("pad", "x".join(["0_0"] * len(dims))).split("x")
    found = []
    for n, k, step, gap, pad in zip(dims, spans, steps, apart, pads, strict=True):
        n += sum(map(int, pad.split("_")))
        found.append(str((n - (k - 1) * gap - 1) // step + 1))
    return ",".join(found)


def captured(text: str) -> hloenv.Alternatives:
    return hloenv.HloEnv(hloenv.HloModule.from_text(text)).get_alternatives(NAME)


def rules(text: str) -> list[str]:
    return [choice.rule for each in captured(text) for choice in each.choices[1:]]


def random_window(rng: random.Random) -> tuple[str, str]:
    rank = rng.randint(1, 3)
    parts = []
    for _ in range(rank):
        k = rng.choice([1, 2, 3, 4, 5, 6, 7])
        gap = rng.choice([1, 1, 2]) if k > 1 else 1
        step = rng.randint(1, max(1, k - 1))
        low, high = rng.randint(0, k - 1), rng.randint(0, k - 1)
        parts.append((rng.randint((k - 1) * gap + 1, 16), k, step, low, high, gap))
    if all(part[1] == 1 for part in parts):
        parts[0] = (9, 4, 1, 0, 0, 1)
    sizes, spans, steps, lows, highs, gaps = zip(*parts, strict=True)
    pads = "x".join(f"{low}_{high}" for low, high in zip(lows, highs, strict=True))

    def joined(values: tuple[int, ...]) -> str:
        return "x".join(map(str, values))

    return ",".join(map(str, sizes)), (
        f"size={joined(spans)} stride={joined(steps)} pad={pads} "
        f"rhs_dilate={joined(gaps)}"
    )


@pytest.mark.parametrize(("kind", "operation"), NEUTRAL)
def test_random_windows(kind, operation):
    rng = random.Random(7)
    num_offered = 0
    for seed in range(25):
        sizes, window = random_window(rng)
        text = pooling(kind, operation, sizes, window, NEUTRAL[kind, operation])
        alternatives = captured(text)
        offered = [choice.rule for each in alternatives for choice in each.choices]
        num_offered += "dimensions" in offered
        for record in hloenv.verify_alternatives(alternatives, seed=seed):
            assert record.relative <= TOLERANCE.get(kind, 0.0), (record, text)
    assert num_offered >= 15


def test_few_operations_for_each_dimension():
    text = pooling("f32", "maximum", "64,64", "size=15x7", "-inf")
    alternatives = captured(text)
    assert rules(text) == ["dimensions"]
    decided = alternatives.apply([1])
    # 2, 4, 8 and 15 rows; 2, 4 and 7 columns; and the initial value. XLA prints
    # the reducer no more.
    assert decided.opcode_counts()["maximum"] == 4 + 3 + 1
    sums = captured(pooling("f32", "add", "64,64", "size=1x7", "0")).apply([2])
    # 2 and 4 elements, and of these 4 + 2 + 1.
    assert sums.opcode_counts()["add"] == 2 + 2 + 1


def test_nan_and_infinities_are_kept():
    text = pooling("f32", "maximum", "40,40", "size=5x5 pad=2_2x2_2", "-inf")
    x = np.random.default_rng(0).normal(size=(40, 40)).astype(np.float32)
    x[7, 9], x[20, 3], x[31, 31] = np.nan, np.inf, -np.inf
    alternatives = captured(text)
    (wanted,) = hloenv.interpret(alternatives.apply([0]), x)
    index = [choice.rule for choice in alternatives[0].choices].index("dimensions")
    (output,) = hloenv.interpret(alternatives.apply([index]), x)
    assert np.isnan(wanted).sum() == 25
    np.testing.assert_array_equal(output, wanted)


@pytest.mark.parametrize(
    ("kind", "operation", "start"),
    [
        ("f32", "maximum", "0"),
        ("f32", "maximum", "nan"),
        ("s32", "maximum", "0"),
        ("s32", "minimum", "3"),
        ("u8", "maximum", "7"),
        ("u8", "minimum", "255"),
        ("s32", "and", "5"),
        ("pred", "or", "true"),
        ("pred", "or", "false"),
    ],
)
@pytest.mark.parametrize("window", ["size=3x3 pad=1_1x1_1", "size=3x2 pad=0_3x2_0"])
def test_an_extreme_may_be_in_the_padding_too(kind, operation, start, window):
    module = hloenv.HloModule.from_text(pooling(kind, operation, "12,9", window, start))
    alternatives = captured(pooling(kind, operation, "12,9", window, start))
    rules_of = [choice.rule for choice in alternatives[0].choices]
    assert {"window", "dimensions"} < set(rules_of)
    rng = np.random.default_rng(0)
    x = rng.integers(-9, 9, (12, 9)) % (2 if kind == "pred" else 256)
    (dtype,) = (each.dtype for each in hloenv.random_inputs(module))
    x = x.astype(dtype)
    (wanted,) = hloenv.interpret(module, x)
    for index in range(1, len(rules_of)):
        (output,) = hloenv.interpret(alternatives.apply([index]), x)
        np.testing.assert_array_equal(output, wanted)


@pytest.mark.parametrize(
    ("kind", "operation", "sizes", "window", "start"),
    [
        ("f32", "maximum", "16", "size=2", "-inf"),  # as few operations already
        ("f32", "maximum", "16,16", "size=4x4 stride=4x4", "-inf"),  # no overlap
        ("f32", "multiply", "16", "size=5 pad=2_2", "2"),  # padding counts
        ("s8", "add", "16", "size=5", "0"),
        ("f32", "add", "16", "size=16 pad=15_0", "0"),  # cumulative
        ("f32", "subtract", "16", "size=5", "0"),
    ],
)
def test_other_windows_stay(kind, operation, sizes, window, start):
    assert "dimensions" not in rules(pooling(kind, operation, sizes, window, start))


@pytest.mark.parametrize(
    ("sizes", "window", "expected"),
    [
        ("8,20,20,256", "size=1x5x5x1 pad=0_0x2_2x2_2x0_0", "dimensions"),
        ("8,56,56,64", "size=1x3x3x1 pad=0_0x1_1x1_1x0_0", "window"),
        ("100000", "size=64", "dimensions"),
        ("20,20", "size=5x5", None),
    ],
)
def test_the_policy_takes_large_windows(sizes, window, expected):
    alternatives = captured(pooling("f32", "maximum", sizes, window, "-inf"))
    (decision,) = get_policy("known-forms")(alternatives)
    choices = alternatives[0].choices
    assert (choices[decision].rule if decision > 0 else None) == expected


@pytest.mark.compile
@pytest.mark.parametrize(("kind", "operation"), [("u8", "maximum"), ("f32", "add")])
def test_it_compiles_and_computes_the_same(kind, operation):
    text = pooling(kind, operation, "30,40", "size=7x5 stride=2x1 pad=3_3x2_2", "0")
    alternatives = captured(text)
    inputs = hloenv.random_inputs(alternatives.module)
    wanted = hloenv.interpret(alternatives.apply([0]), *inputs)
    index = [choice.rule for choice in alternatives[0].choices].index("dimensions")
    outputs = hloenv.compile(alternatives.apply([index]), isolate=False)(*inputs)
    hloenv.compare_outputs(wanted, outputs, rtol=1e-5).check()


@pytest.mark.parametrize(
    ("kind", "operation", "size", "is_offered"),
    [
        ("f32", "add", "3", False),
        ("f32", "add", "5", True),
        ("s32", "add", "3", True),
        ("f32", "maximum", "3", True),
        ("f32", "add", "11", True),
        ("f32", "add", "9", False),
    ],
)
def test_windows_of_the_same_elements_have_the_same_sums(
    kind, operation, size, is_offered
):
    """Of three columns, several windows of five have all; an argmax sees ties.

    Of nine, windows with gaps have all of the even ones.
    """
    window = "size=1x5 pad=0_0x2_2"
    if int(size) > 5:
        window = "size=1x5 pad=0_0x2_5 rhs_dilate=1x2"
    text = pooling(kind, operation, f"40,{size}", window, NEUTRAL[kind, operation])
    assert ("dimensions" in rules(text)) == is_offered
