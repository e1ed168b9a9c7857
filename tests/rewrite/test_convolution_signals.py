# SPDX-License-Identifier: Apache-2.0
"""The rule toeplitz of convolution-forms: one dot for long filters of signals."""

from __future__ import annotations

import random

import numpy as np
import pytest

import hloenv
from support.captures import TOLERANCES, capture, capture_rule, check_rule, rules
from support.convolutions import one_convolution

NAME = "convolution-forms"
FILTER = one_convolution(
    *("1,300,1", "40,1,1", "1,300,1"),
    "window={size=40 pad=20_19}, dim_labels=b0f_0io->b0f",
)
GRADIENT = one_convolution(
    *("1,300,1", "1,261,1", "40,1,1"),
    "window={size=261}, dim_labels=f0b_i0o->0bf",
)


def random_module(rng: random.Random, *, is_gradient: bool) -> str:
    """A convolution of signals, whose window may be reversed."""
    size = rng.randint(100, 200)
    low, high = rng.randint(-3, 30), rng.randint(-3, 30)
    stride = 1 if is_gradient else rng.choice([1, 1, 2, 3])
    short = rng.randint(8, size // 4)
    taps = size + low + high - short + 1 if is_gradient else short
    result = (size + low + high - taps) // stride + 1
    signals, features, outputs = (rng.randint(1, 3) for _ in range(3))
    groups = rng.choice([1, 1, 2])
    batch_groups = groups > 1 and rng.random() < 0.5
    left = signals * (groups if batch_groups else 1)
    into = features * (1 if batch_groups else groups)
    kind = "batch_group_count" if batch_groups else "feature_group_count"
    return one_convolution(
        f"{left},{size},{into}",
        f"{taps},{features},{outputs * groups}",
        f"{signals},{result},{outputs * groups}",
        f"window={{size={taps} stride={stride} pad={low}_{high} "
        f"rhs_reversal={rng.randint(0, 1)}}}, dim_labels=b0f_0io->b0f, "
        f"{kind}={groups}",
    )


@pytest.mark.parametrize("is_gradient", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_random_convolutions(seed, is_gradient):
    rng = random.Random(100 * seed + is_gradient)
    texts = [random_module(rng, is_gradient=is_gradient) for _ in range(15)]
    assert (
        sum(check_rule(text, NAME, "toeplitz", seed=n) for n, text in enumerate(texts))
        >= 10
    )


@pytest.mark.parametrize("types", sorted(TOLERANCES.keys() - {"s32"}))
def test_types(types):
    forward = one_convolution(
        *("2,90,1", "9,1,2", "2,82,2"),
        "window={size=9}, dim_labels=b0f_0io->b0f",
        types,
    )
    gradient = one_convolution(
        *("2,90,3", "2,82,2", "9,3,2"),
        "window={size=82}, dim_labels=f0b_i0o->0bf",
        types,
    )
    assert (
        check_rule(forward, NAME, "toeplitz", types)
        == check_rule(gradient, NAME, "toeplitz", types)
        == 1
    )


@pytest.mark.compile
@pytest.mark.parametrize(
    "engine", ["wheel", pytest.param("jaxlib", marks=pytest.mark.jax)]
)
@pytest.mark.parametrize("text", [FILTER, GRADIENT], ids=["filter", "gradient"])
def test_it_computes_the_same_also_where_not_all_is_finite(text, engine):
    module = hloenv.HloModule.from_text(text)
    decided = capture_rule(text, NAME, "toeplitz").apply([1])
    assert decided.opcode_counts()["dot"] == 1
    plain, fast = (
        hloenv.compile(each, isolate=False, engine=engine) for each in (module, decided)
    )
    rng = np.random.default_rng(0)
    given = [
        rng.standard_normal(each.shape, dtype=np.float32)
        for each in module.input_specs()
    ]
    wanted = plain(*given)[0]
    np.testing.assert_allclose(fast(*given)[0], wanted, rtol=1e-4, atol=1e-4)
    for place, value in ((0, np.nan), (0, np.inf), (1, -np.inf)):
        changed = [np.array(each) for each in given]
        changed[place].flat[7] = value
        wanted = plain(*changed)[0]
        assert not np.isfinite(wanted).all()
        np.testing.assert_allclose(fast(*changed)[0], wanted, rtol=1e-4, atol=1e-4)
        if text is FILTER and place == 0:
            assert np.isfinite(wanted).any()


def test_the_branch_for_what_is_not_finite_is_not_rewritten_again():
    decided = capture_rule(FILTER, NAME, "toeplitz").apply([1])
    assert decided.opcode_counts()["convolution"] == 1
    assert len(capture_rule(decided.to_text(), NAME, "toeplitz")) == 0


@pytest.mark.parametrize(
    ("shapes", "window", "types"),
    [
        (("1,300,1", "40,1,1", "1,599,1"), "size=40 pad=20_19 lhs_dilate=2", "f32"),
        (("1,300,1", "40,1,1", "1,222,1"), "size=40 rhs_dilate=2", "f32"),
        (("1,300,1", "7,1,1", "1,294,1"), "size=7", "f32"),
        (("1,70,1", "40,1,1", "1,31,1"), "size=40", "f32"),
        (("1,300,1", "40,1,1", "1,261,1"), "size=40", "s32"),
        (("1,5999,64", "2000,64,64", "1,4000,64"), "size=2000", "f32"),
    ],
    ids=[
        *("base dilation", "window dilation", "short filter", "short signal"),
        *("integers", "too large"),
    ],
)
def test_not_offered(shapes, window, types):
    text = one_convolution(
        *shapes, f"window={{{window}}}, dim_labels=b0f_0io->b0f", types
    )
    assert "toeplitz" not in rules(capture(text, NAME))
