# SPDX-License-Identifier: Apache-2.0
"""Loops over rows, for gradients of depthwise convolutions with respect to kernels."""

from __future__ import annotations

import random

import pytest

import hloenv
from support.captures import capture, rules
from support.convolutions import one_convolution

NAME = "convolution-forms"
_FORMS = "f01b_i01o->01bf", "b01f_01io->b01f", "01fb_01io->f01b", "bf01_oi01->bf01"


def gradient(
    rng: random.Random,
    types: str = "f32",
    *,
    width: int | None = None,
    extra: str = "",
    features: int | None = None,
    rank: int = 2,
) -> str:
    """HLO text of the gradient of a random depthwise convolution."""
    images, groups = rng.randint(1, 3), features or rng.choice([2, 3, 5])
    row = width or rng.choice([4, 5, 8, 11, 12, 33, 40])
    sizes = (*(rng.randint(3, 8) for _ in range(rank - 1)), row)
    form = rng.choice(_FORMS).replace("01", "012"[:rank])
    left, right, result = form.replace("->", "_").split("_")
    dims, given, outputs = [], [], []
    for size in sizes:
        taps, stride = rng.randint(1, min(4, size)), rng.choice([1, 1, 2])
        dilation, low = rng.choice([1, 1, 2, 3]), rng.randint(-1, 2)
        high = rng.randint(-1, 2)
        reach = (size - 1) * dilation + 1 + (taps - 1) * stride
        image = max(reach - low - high, 1)
        high += reach - low - high - image
        dims.append((size, stride, low, high, dilation))
        given.append(image)
        outputs.append(taps)
    # The batch counts as features of the gradient, whose groups are those of its batch.
    left_sizes = {"b": groups, "f": images, **dict(zip("012", given, strict=False))}
    right_sizes = {"o": groups, "i": images, **dict(zip("012", sizes, strict=False))}
    result_sizes = {"b": 1, "f": groups, **dict(zip("012", outputs, strict=False))}
    size, stride, low_high, dilation = (
        "x".join(each)
        for each in zip(
            *((str(n), str(s), f"{low}_{high}", str(d)) for n, s, low, high, d in dims),
            strict=True,
        )
    )
    window = f"window={{size={size} stride={stride} pad={low_high} "
    return one_convolution(
        ",".join(str(left_sizes[label]) for label in left),
        ",".join(str(right_sizes[label]) for label in right),
        ",".join(str(result_sizes[label]) for label in result),
        f"{window}rhs_dilate={dilation}{extra}}}, dim_labels={form}, "
        f"batch_group_count={groups}",
        types,
    )


@pytest.mark.parametrize(
    ("types", "tolerance"), [("f32", 1e-12), ("f64", 1e-12), ("s32", 0), ("c64", 1e-5)]
)
@pytest.mark.parametrize(
    ("rank", "seed"),
    [(1, s) for s in range(6)] + [(2, s) for s in range(12)] + [(3, 0)],
)
def test_gradients_of_random_depthwise_convolutions(rank, seed, types, tolerance):
    text = gradient(random.Random(seed), types, rank=rank)
    alternatives = capture(text, NAME)
    assert "rows" in rules(alternatives)
    for record in hloenv.verify_alternatives(alternatives, float64=types == "f32"):
        assert record.relative <= tolerance, (record, text)


@pytest.mark.compile
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_the_compiled_loop_has_the_values_of_the_convolution(rank, seed):
    text = gradient(random.Random(seed), features=40, rank=rank)
    module = hloenv.HloModule.from_text(text)
    alternatives = hloenv.HloEnv(module).get_alternatives(NAME)
    rule = rules(alternatives).index("rows")
    found = alternatives.apply([rule + 1])
    assert " while(" in found.to_text()
    inputs = hloenv.random_inputs(module)
    expected = hloenv.compile(module)(*inputs)
    hloenv.compare_outputs(
        expected, hloenv.compile(found, isolate=False)(*inputs)
    ).check()


@pytest.mark.parametrize(
    "text",
    [
        gradient(random.Random(0), width=37),  # no part of a row is small enough
        gradient(random.Random(0), width=148),  # its parts of 4 are too small
        gradient(random.Random(0), width=3),
        gradient(random.Random(0), "bf16"),  # the sums are wider
        gradient(random.Random(0), extra=" rhs_reversal=1x1"),
        one_convolution(  # dense
            *("2,8,8,3", "2,8,8,5", "3,3,3,5"),
            "window={size=8x8 pad=1_1x1_1}, dim_labels=f01b_i01o->01bf",
        ),
        one_convolution(  # two outputs of each group
            *("2,8,8,4", "2,8,8,8", "3,3,1,8"),
            "window={size=8x8 pad=1_1x1_1}, dim_labels=f01b_i01o->01bf, "
            "batch_group_count=4",
        ),
    ],
)
def test_other_convolutions_have_no_such_loop(text):
    assert "rows" not in rules(capture(text, NAME))
