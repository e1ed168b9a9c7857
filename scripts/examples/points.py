#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Pairs of points, and functions of many numbers, slow on a CPU under jax.jit.

Distances in three dimensions are sums over a last dimension of three, for which XLA or
its library run a loop for each pair; reciprocal square roots, logarithms of one more,
powers and cube roots take one to thirteen nanoseconds for each number; products of
converted bytes are products of 32 bits. The rules were set on single operations like
these; the programs were written afterwards, to see what they are worth in a whole.
`PROGRAMS` maps a name to a kind and a function that makes the program and arguments.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from programs import Program, compare, normal


def differences(points: Any, others: Any) -> Any:
    """[N, M, D] of each pair."""
    return points[:, None] - others[None]


def gravity() -> Program:
    """Two steps of 1,000 bodies by the gradient of their energy."""

    def energy(places: Any) -> Any:
        squares = (differences(places, places) ** 2).sum(-1)
        return -0.5 * (1 / jnp.sqrt(squares + 0.01)).sum()

    def run(places: Any, speeds: Any) -> Any:
        for _ in range(2):
            speeds = speeds - 1e-5 * jax.grad(energy)(places)
            places = places + 0.01 * speeds
        return places, speeds

    return run, (normal(1000, 3), normal(1000, 3, seed=1))


def molecules() -> Program:
    """Lennard-Jones forces between 800 atoms in a periodic box."""

    def energy(places: Any) -> Any:
        apart = differences(places, places)
        apart = apart - 10 * jnp.round(apart / 10)
        squares = (apart**2).sum(-1) + 100 * jnp.eye(len(places))
        sixth = (1 / (squares + 0.5)) ** 3
        return jnp.where(squares < 9, 4 * (sixth**2 - sixth), 0.0).sum()

    return jax.grad(energy), (10 * jax.nn.sigmoid(normal(800, 3)),)


def chamfer() -> Program:
    """The gradient of the distance between two clouds of points."""

    def distance(points: Any, others: Any) -> Any:
        squares = (differences(points, others) ** 2).sum(-1)
        return squares.min(0).mean() + squares.min(1).mean()

    return jax.value_and_grad(distance), (normal(1200, 3), normal(1000, 3, seed=1))


def nearest() -> Program:
    """The nearest of 1,000 colours of a palette for each of 4,096 pixels."""

    def run(pixels: Any, palette: Any) -> Any:
        squares = (differences(pixels, palette) ** 2).sum(-1)
        return palette[squares.argmin(-1)], squares.min(-1)

    return run, (normal(4096, 3), normal(1000, 3, seed=1))


def embedding() -> Program:
    """The gradient of t-SNE for 1,000 points in the plane."""

    def divergence(places: Any, shares: Any) -> Any:
        near = 1 / (1 + (differences(places, places) ** 2).sum(-1))
        near = near * (1 - jnp.eye(len(places)))
        return -(shares * jnp.log(near / near.sum() + 1e-9)).sum()

    return jax.grad(divergence), (normal(1000, 2), jax.nn.softmax(normal(1000, 1000)))


def transport() -> Program:
    """Ten rounds of Sinkhorn's iteration between two clouds of points."""

    def run(points: Any, others: Any) -> Any:
        costs = 4 * (differences(points, others) ** 2).sum(-1)

        def step(_: Any, duals: Any) -> Any:
            _, other = duals
            one = -jax.nn.logsumexp(other[None] - costs, axis=1)
            return one, -jax.nn.logsumexp(one[:, None] - costs, axis=0)

        start = jnp.zeros(len(points)), jnp.zeros(len(others))
        return jax.lax.fori_loop(0, 10, step, start)

    return run, (normal(600, 2), normal(500, 2, seed=1))


def state_space() -> Program:
    """A selective state-space layer with its loss's gradient."""

    def loss(params: Any, x: Any) -> Any:
        into, rate, rows, columns, decay = params
        inner = jax.nn.silu(x @ into)
        step = jax.nn.softplus(inner @ rate)
        rates = jnp.exp(-step[..., None] * jax.nn.softplus(decay))
        pushed = (step * inner)[..., None] * (x @ rows)[:, None]

        def recur(state: Any, now: Any) -> Any:
            state = now[0] * state + now[1]
            return state, (state * now[2]).sum(-1)

        start = jnp.zeros(rates.shape[1:])
        _, y = jax.lax.scan(recur, start, (rates, pushed, x @ columns))
        return (y**2).mean()

    shapes = ((128, 256), (256, 256), (128, 16), (128, 16), (256, 16))
    params = [0.1 * normal(*shape, seed=i) for i, shape in enumerate(shapes)]
    return jax.grad(loss), (params, normal(256, 128))


def counts() -> Program:
    """A step of a negative binomial autoencoder of counts, as for cells."""

    def loss(params: Any, x: Any) -> Any:
        one, two, spread = params
        means = jax.nn.softplus(jax.nn.softplus(jnp.log1p(x) @ one) @ two)
        size = jax.nn.softplus(spread) + 0.1
        whole = jnp.log1p(means / size)
        return (x * (whole - jnp.log(means / size + 1e-6)) + size * whole).mean()

    def run(params: Any, x: Any) -> Any:
        gradients = jax.grad(loss)(params, x)
        return [p - 0.1 * g for p, g in zip(params, gradients, strict=True)]

    params = [0.05 * normal(2000, 64), 0.05 * normal(64, 2000, seed=1), normal(2000)]
    return run, (params, jnp.floor(normal(256, 2000, seed=2) ** 2))


def colours() -> Program:
    """An image from sRGB to CIELAB, with its chroma."""
    to_xyz = np.array(
        [
            [0.4124, 0.3576, 0.1805],
            [0.2126, 0.7152, 0.0722],
            [0.0193, 0.1192, 0.9505],
        ],
        np.float32,
    )

    def run(image: Any) -> Any:
        linear = jnp.where(
            image > 0.04045, ((image + 0.055) / 1.055) ** 2.4, image / 12.92
        )
        xyz = linear @ to_xyz.T
        x, y, z = jnp.moveaxis(jnp.cbrt(xyz), -1, 0)
        lab = jnp.stack([116 * y - 16, 500 * (x - y), 200 * (y - z)], -1)
        return lab, jnp.hypot(lab[..., 1], lab[..., 2])

    return run, (jax.nn.sigmoid(normal(512, 512, 3)),)


def quantized() -> Program:
    """Three layers of bytes, each with a scale."""

    def run(x: Any, layers: Any) -> Any:
        for weights, scale in layers:
            sums = x.astype(jnp.int32) @ weights.astype(jnp.int32)
            x = jnp.clip(jnp.round(sums * scale), 0, 127).astype(jnp.int8)
        return x

    rng = np.random.default_rng(0)
    layers = [
        (jnp.asarray(rng.integers(-127, 128, pair), jnp.int8), np.float32(2e-3))
        for pair in pairwise((512, 1024, 1024, 256))
    ]
    return run, (jnp.asarray(rng.integers(0, 128, (128, 512)), jnp.int8), layers)


PROGRAMS: dict[str, tuple[str, Callable[[], Program]]] = {
    "1,000 bodies, two steps": ("pairs", gravity),
    "Lennard-Jones forces": ("pairs", molecules),
    "distance of clouds, gradient": ("pairs", chamfer),
    "nearest colours": ("pairs", nearest),
    "t-SNE, gradient": ("pairs", embedding),
    "Sinkhorn, ten rounds": ("pairs", transport),
    "selective state space, gradient": ("functions", state_space),
    "counts of cells, step": ("functions", counts),
    "sRGB to CIELAB": ("functions", colours),
    "bytes, three layers": ("bytes", quantized),
}


if __name__ == "__main__":
    compare(PROGRAMS)
