# SPDX-License-Identifier: Apache-2.0
"""The policy gpu-forms: what it takes, and what it leaves to XLA."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest

import hloenv
from hloenv.policies import get_policy

pytestmark = pytest.mark.jax


def spec(*shape: int) -> Any:
    return jax.ShapeDtypeStruct(shape, "float32")


def convolution(stride: int, groups: int = 1) -> Callable[..., Any]:
    def run(x: Any, kernel: Any) -> Any:
        return jax.lax.conv_general_dilated(
            x,
            kernel,
            (stride, stride),
            "VALID",
            dimension_numbers=("NHWC", "HWIO", "NHWC"),
            feature_group_count=groups,
        )

    return run


def pooling(size: int) -> Callable[..., Any]:
    def run(x: Any) -> Any:
        window = (1, size, size, 1)
        return jax.lax.reduce_window(
            x, -jnp.inf, jax.lax.max, window, (1, 2, 2, 1), "SAME"
        ).sum()

    return jax.grad(run)


def recurrence(depth: int) -> Callable[..., Any]:
    def step(h: Any, _: None) -> Any:
        for _ in range(depth):
            h = jnp.tanh(h * 1.5 + 0.5)
        return h, None

    return lambda h: jax.lax.scan(step, h, None, length=100)[0]


IMAGES, PATCHES = spec(8, 64, 64, 3), spec(16, 16, 3, 32)
TAKEN = {
    "top 8": (lambda x: jax.lax.top_k(x, 8), [spec(16, 4096)], "sort-forms/argmaxes"),
    "pooling": (pooling(3), [spec(4, 32, 32, 8)], "reduce-forms/select"),
    "patches": (convolution(16), [IMAGES, PATCHES], "convolution-forms/blocks"),
    "image of patches": (
        jax.grad(lambda *xs: (convolution(16)(*xs) ** 2).sum()),
        [IMAGES, PATCHES],
        "convolution-forms/blocks",
    ),
    "resize": (
        lambda x: jax.image.resize(x, (8, 128, 128, 4), "bilinear"),
        [spec(8, 64, 64, 4)],
        "dot-forms/sparse",
    ),
    "short loop": (recurrence(4), [spec(64, 64)], "loop-forms/unrolled"),
}
LEFT = {
    "top 9": (lambda x: jax.lax.top_k(x, 9), [spec(16, 4096)], "argmaxes"),
    "short rows": (lambda x: jax.lax.top_k(x, 2), [spec(64, 63)], "argmaxes"),
    "large state": (recurrence(4), [spec(1025, 1024)], "unrolled"),
    "grouped patches": (
        convolution(4, groups=8),
        [spec(2, 32, 32, 8), spec(4, 4, 1, 8)],
        "blocks",
    ),
    "small resize": (
        lambda x: jax.image.resize(x, (1, 32, 32, 1), "bilinear"),
        [spec(1, 16, 16, 1)],
        "sparse",
    ),
    "long loop": (recurrence(40), [spec(64, 64)], "unrolled"),
    "1x1 convolution": (
        convolution(1),
        [spec(8, 14, 14, 64), spec(1, 1, 64, 32)],
        "blocks",
    ),
    "all of the image": (
        convolution(1),
        [spec(8, 7, 7, 16), spec(7, 7, 16, 32)],
        "blocks",
    ),
    "large pooling": (pooling(4), [spec(4, 32, 32, 8)], "select"),
    "depthwise convolution": (
        convolution(1, groups=32),
        [spec(4, 28, 28, 32), spec(3, 3, 1, 32)],
        "taps",
    ),
    "tiny products": (
        lambda x, y: jnp.einsum("nij,njk->nik", x, y),
        [spec(1000, 4, 4), spec(1000, 4, 4)],
        "unrolled",
    ),
}


@pytest.mark.parametrize("name", TAKEN)
def test_forms_that_pay_on_a_gpu_are_taken(name: str):
    fn, arguments, rule = TAKEN[name]
    made = hloenv.jax.export(fn, *arguments, platform="cuda")
    assert set(made.decided.accepted) == {rule}


@pytest.mark.parametrize("name", LEFT)
def test_other_forms_are_left_to_xla(name: str):
    fn, arguments, rule = LEFT[name]
    module = hloenv.HloModule.from_jax(fn, *arguments, platform="cuda")
    module = hloenv.run_passes(module, "call-inliner").module
    offered: set[str] = set()
    for each in hloenv.policies.gpu_forms.GPU_PASSES:
        alternatives = hloenv.HloEnv(module).get_alternatives(each)
        offered |= {c.rule for one in alternatives for c in one.choices}
        assert (get_policy("gpu-forms")(alternatives) == -1).all()
    assert rule in offered
