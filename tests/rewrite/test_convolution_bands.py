# SPDX-License-Identifier: Apache-2.0
"""The rule bands of convolution-forms: one dot of the columns that windows read."""

from __future__ import annotations

import random

import numpy as np
import pytest

import hloenv
from support.captures import TOLERANCES, capture, capture_rule, check_rule, rules
from support.convolutions import one_convolution

NAME = "convolution-forms"


def sides(rng: random.Random, *, is_gradient: bool) -> tuple[int, int, int, str, int]:
    """Size, elements of the window, result, and the window of one dimension."""
    size = rng.randint(6, 14)
    taps = rng.randint(5, size) if is_gradient else rng.randint(2, 4)
    low, high = rng.randint(-1, 3), rng.randint(-1, 3)
    stride, dilation = rng.choice([1, 1, 2]), rng.choice([1, 1, 2])
    span = (taps - 1) * dilation + 1
    high += max(0, span + 2 * stride - (size + low + high))
    result = (size + low + high - span) // stride + 1
    return size, taps, result, f"{low}_{high}", stride * 10 + dilation


def random_module(rng: random.Random, *, is_gradient: bool) -> str:
    """A convolution of images without base dilation, whose window may be reversed."""
    first, second = (sides(rng, is_gradient=is_gradient) for _ in range(2))
    images, features, outputs = (rng.randint(1, 3) for _ in range(3))
    groups = rng.choice([1, 1, 2])
    reversal = f"{rng.randint(0, 1)}x{rng.randint(0, 1)}"
    window = (
        f"window={{size={first[1]}x{second[1]} stride={first[4] // 10}x"
        f"{second[4] // 10} pad={first[3]}x{second[3]} rhs_dilate={first[4] % 10}x"
        f"{second[4] % 10} rhs_reversal={reversal}}}"
    )
    batch_groups = groups > 1 and rng.random() < 0.5
    left = images * (groups if batch_groups else 1)
    into = features * (1 if batch_groups else groups)
    kind = "batch_group_count" if batch_groups else "feature_group_count"
    return one_convolution(
        f"{left},{first[0]},{second[0]},{into}",
        f"{first[1]},{second[1]},{features},{outputs * groups}",
        f"{images},{first[2]},{second[2]},{outputs * groups}",
        f"{window}, dim_labels=b01f_01io->b01f, {kind}={groups}",
    )


@pytest.mark.parametrize("is_gradient", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_random_convolutions(seed, is_gradient):
    rng = random.Random(100 * seed + is_gradient)
    texts = [random_module(rng, is_gradient=is_gradient) for _ in range(25)]
    assert (
        sum(check_rule(text, NAME, "bands", seed=n) for n, text in enumerate(texts))
        > 15
    )


@pytest.mark.parametrize("types", TOLERANCES)
def test_types(types):
    forward = one_convolution(
        *("2,9,9,3", "5,5,3,2", "2,9,9,2"),
        "window={size=5x5 pad=2_2x2_2}, dim_labels=b01f_01io->b01f",
        types,
    )
    gradient = one_convolution(
        *("2,9,9,3", "2,9,9,2", "5,5,3,2"),
        "window={size=9x9 pad=2_2x2_2}, dim_labels=f01b_i01o->01bf",
        types,
    )
    assert (
        check_rule(forward, NAME, "bands", types)
        == check_rule(gradient, NAME, "bands", types)
        == 1
    )


@pytest.mark.compile
@pytest.mark.parametrize(
    "engine", ["wheel", pytest.param("jaxlib", marks=pytest.mark.jax)]
)
def test_it_is_one_dot_and_computes_the_same(engine):
    for shapes, size in (
        (("1,20,20,1", "9,9,1,1", "1,20,20,1"), "9x9 pad=4_4x4_4"),
        (("1,20,20,3", "1,20,20,2", "9,9,3,2"), "20x20 pad=4_4x4_4"),
    ):
        is_gradient = shapes[2].startswith("9")
        labels = "f01b_i01o->01bf" if is_gradient else "b01f_01io->b01f"
        text = one_convolution(*shapes, f"window={{size={size}}}, dim_labels={labels}")
        alternatives = capture_rule(text, NAME, "bands")
        decided = alternatives.apply([1])
        counts = decided.opcode_counts()
        assert counts["dot"] == 1
        assert "convolution" not in counts
        rng = np.random.default_rng(0)
        given = [
            rng.standard_normal([int(n) for n in each.split(",")], dtype=np.float32)
            for each in shapes[:2]
        ]
        found, wanted = (
            hloenv.compile(each, isolate=False, engine=engine)(*given)[0]
            for each in (decided, hloenv.HloModule.from_text(text))
        )
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("shapes", "window"),
    [
        (("1,9,9,1", "1,5,1,1", "1,9,9,1"), "size=1x5 pad=0_0x2_2"),
        (("1,9,9,1", "3,3,1,1", "1,17,17,1"), "size=3x3 pad=1_1x1_1 lhs_dilate=2x2"),
        (("1,99,99,1", "70,70,1,1", "1,99,99,1"), "size=70x70 pad=35_34x35_34"),
        (("64,512,512,8", "8,8,8,8", "64,505,505,8"), "size=8x8"),
    ],
    ids=["one row", "base dilation", "too many slices", "too large"],
)
def test_not_offered(shapes, window):
    text = one_convolution(*shapes, f"window={{{window}}}, dim_labels=b01f_01io->b01f")
    assert "bands" not in rules(capture(text, NAME))


def test_a_gradient_of_what_may_be_infinite_is_left_alone():
    text = """HloModule masked

ENTRY main {
  g = f32[1,8,8,1] parameter(0)
  huge = f32[] constant(inf)
  x = f32[1,8,8,1] broadcast(huge), dimensions={}
  ROOT c = f32[3,3,1,1] convolution(x, g), window={size=8x8 pad=1_1x1_1},
    dim_labels=f01b_i01o->01bf
}
"""
    assert len(capture_rule(text, NAME, "bands")) == 0
    finite = text.replace("constant(inf)", "constant(2)")
    assert len(capture_rule(finite, NAME, "bands")) == 1
