# SPDX-License-Identifier: Apache-2.0
"""hloenv.jit against jax.jit, as ratios of medians of calls that take turns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from pytest_benchmark.fixture import BenchmarkFixture

import hloenv

from .ratio import Ratio, compare, geometric_mean, report

pytestmark = [pytest.mark.bench, pytest.mark.jax]


def _normal(*shape: int) -> jax.Array:
    rng = np.random.default_rng(sum(shape))
    return jnp.asarray(rng.standard_normal(shape, np.float32))


def _convolution(x: jax.Array, kernel: jax.Array) -> jax.Array:
    return jax.lax.conv_general_dilated(
        x, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )


def _attention(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
    return jax.nn.softmax(q @ k.T / 8) @ v


def _norm(x: jax.Array) -> jax.Array:
    centred = x - x.mean(-1, keepdims=True)
    return jax.nn.softmax(centred / jnp.sqrt((centred**2).mean(-1, keepdims=True)))


def _step(weights: list[jax.Array], x: jax.Array) -> list[jax.Array]:
    def loss(weights: list[jax.Array]) -> jax.Array:
        hidden = x
        for weight in weights:
            hidden = jnp.tanh(hidden @ weight)
        return (hidden**2).mean()

    grads = jax.grad(loss)(weights)
    return [w - 0.1 * g for w, g in zip(weights, grads, strict=True)]


def _scan(carry: jax.Array, xs: jax.Array) -> jax.Array:
    def body(carry: jax.Array, x: jax.Array) -> tuple[jax.Array, None]:
        return jnp.tanh(carry @ carry + x), None

    return jax.lax.scan(body, carry, xs)[0]


def _distances(points: jax.Array, centers: jax.Array) -> jax.Array:
    return ((points[:, None] - centers[None]) ** 2).sum(-1).argmin(-1)


def _depthwise(x: jax.Array, kernel: jax.Array) -> jax.Array:
    return jax.lax.conv_general_dilated(
        *(x, kernel, (1, 1), "SAME"),
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
        feature_group_count=x.shape[-1],
    )


_SWAPPED, _DEPTHWISE = "convolution that XLA swaps", "depthwise convolution"
# Functions from a microsecond to tens of milliseconds; how they are decided.
_FUNCTIONS: dict[str, tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]] = {
    "add": (lambda x, y: x + y, (_normal(8), _normal(8)), {}),
    "step of small leaves": (
        _step,
        ([_normal(8, 8) for _ in range(6)], _normal(4, 8)),
        {},
    ),
    "scan": (_scan, (_normal(8, 8), _normal(50, 8, 8)), {}),
    "attention": (_attention, (_normal(64, 64), _normal(64, 64), _normal(64, 64)), {}),
    "norm": (_norm, (_normal(128, 768),), {}),
    "distances": (_distances, (_normal(2000, 8), _normal(16, 8)), {}),
    "large step": (
        _step,
        ([_normal(512, 512) for _ in range(3)], _normal(128, 512)),
        {},
    ),
    "sort": (lambda x: jnp.sort(x, axis=0), (_normal(2000, 16),), {}),
    "convolution": (_convolution, (_normal(1, 56, 56, 64), _normal(3, 3, 64, 64)), {}),
    _DEPTHWISE: (_depthwise, (_normal(1, 56, 56, 64), _normal(3, 3, 1, 64)), {}),
    _SWAPPED: (
        _convolution,
        (_normal(2, 2, 2, 512), _normal(3, 3, 512, 512)),
        {"policy": "reject-all", "passes": "algsimp"},
    ),
}


def _measure(name: str) -> Ratio:
    fn, args, how = _FUNCTIONS[name]
    ours, plain = hloenv.jit(fn, **how), jax.jit(fn)
    for one, other in zip(
        jax.tree.leaves(ours(*args)), jax.tree.leaves(plain(*args)), strict=True
    ):
        np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-3)
    assert ours.decided or name not in (_SWAPPED, _DEPTHWISE)
    return compare(
        lambda: jax.block_until_ready(ours(*args)),
        lambda: jax.block_until_ready(plain(*args)),
        seconds=1,
        max_rounds=4000,
    )


def test_no_function_gets_slower(benchmark: BenchmarkFixture) -> None:
    """Ten functions with hloenv.jit's own decisions, 10 us to 10 ms: over jax.jit."""
    ratios = {name: _measure(name).ratio for name in _FUNCTIONS if name != _SWAPPED}
    decided = ratios.pop(_DEPTHWISE)
    worst = max(ratios, key=lambda name: ratios[name])
    report(
        benchmark,
        "hloenv.jit over jax.jit, ten functions by default: geometric mean without the "
        "depthwise convolution",
        "at most 1.03",
        f"{geometric_mean(list(ratios.values())):.2f} (worst {ratios[worst]:.2f}, "
        f"{worst}; the convolution {decided:.3f})",
    )
    benchmark(lambda: None)
    assert ratios[worst] < 1.15, ratios
    assert decided < 0.5


def test_a_decided_function_is_faster(benchmark: BenchmarkFixture) -> None:
    """A convolution whose operands XLA swaps: over jax.jit."""
    measured = _measure(_SWAPPED)
    report(
        benchmark,
        "hloenv.jit over jax.jit, a 3x3 convolution of 2x2x512 decided by reject-all",
        "at most 0.1",
        f"{measured.ratio:.3f}",
    )
    benchmark(lambda: None)
    assert measured.ratio < 0.5
