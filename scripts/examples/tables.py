#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Look-ups in tables, loops of few operations, columns, and losses of parts of arrays.

All are slow on a CPU under jax.jit. The rules (`sort-forms/search`,
`fusion-cuts/iterations` and `summed`, `reduce-forms/scatter_rows`) were set on single
operations: `jnp.searchsorted`, Lorenz's equations, gradients of `x[:, i]`, mean squares
of columns. These programs were written afterwards.
`PROGRAMS` maps a name to a kind and a function that makes the program and arguments.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from programs import Program, compare, normal


def uniform(*shape: int, seed: int = 0) -> Any:
    """Numbers from 0 to 1."""
    return jax.random.uniform(jax.random.key(seed), shape, jnp.float32)


def equalized() -> Program:
    """An image of 1024x1024 whose grey values become equally frequent."""

    def equalize(image: Any) -> Any:
        counts, edges = jnp.histogram(image, bins=64, range=(0.0, 1.0))
        share = jnp.cumsum(counts) / image.size
        return jnp.interp(image, edges[1:], share.astype(jnp.float32))

    return equalize, (uniform(1024, 1024) ** 2,)


def tones() -> Program:
    """The curves of three channels, by 17 points each, on a photo of 640x480."""

    def develop(image: Any, curves: Any) -> Any:
        points = jnp.linspace(0.0, 1.0, 17, dtype=jnp.float32)
        channels = [jnp.interp(image[c], points, curves[c]) for c in range(3)]
        return jnp.stack(channels)

    curves = jnp.sort(uniform(3, 17, seed=1), axis=1)
    return develop, (uniform(3, 480, 640), curves)


def spline() -> Program:
    """A cubic spline of 60 knots at half a million points."""

    def value(knots: Any, coefficients: Any, x: Any) -> Any:
        part = jnp.clip(jnp.searchsorted(knots, x) - 1, 0, len(knots) - 2)
        t = x - knots[part]
        a, b, c, d = (coefficients[:, part][k] for k in range(4))
        return a + t * (b + t * (c + t * d))

    knots = jnp.sort(uniform(60, seed=1))
    return value, (knots, normal(4, 59), uniform(500_000))


def samples() -> Program:
    """400,000 samples of a distribution over 200 values, by its inverse."""

    def sample(logits: Any, u: Any) -> Any:
        return jnp.searchsorted(jnp.cumsum(jax.nn.softmax(logits)), u)

    return sample, (normal(200), uniform(400_000))


def calibration() -> Program:
    """The expected error of the confidences of 300,000 predictions, in 15 bins."""

    def error(confidence: Any, is_right: Any) -> Any:
        edges = jnp.linspace(0.0, 1.0, 16, dtype=jnp.float32)
        bins = jnp.digitize(confidence, edges[1:-1])
        sums = jnp.zeros((15, 2), jnp.float32)
        sums = sums.at[bins].add(jnp.stack([confidence, is_right], axis=1))
        return jnp.abs(sums[:, 0] - sums[:, 1]).sum() / len(confidence)

    right = (uniform(300_000, seed=1) < 0.7).astype(jnp.float32)
    return error, (uniform(300_000), right)


def bonds() -> Program:
    """The value of 200,000 payments by a yield curve of 12 points, and its gradient."""

    def value(rates: Any, times: Any, payments: Any) -> Any:
        tenors = jnp.linspace(0.25, 30.0, 12, dtype=jnp.float32)
        return (payments * jnp.exp(-jnp.interp(times, tenors, rates) * times)).sum()

    arguments = (0.05 * uniform(12), 30 * uniform(200_000, seed=1), uniform(200_000))
    return jax.value_and_grad(value), arguments


def mandelbrot() -> Program:
    """The Mandelbrot set on 800x1000 points, 60 iterations."""

    def count(x: Any, y: Any) -> Any:
        def step(_: Any, state: Any) -> Any:
            u, v, steps = state
            u, v = u * u - v * v + x, 2 * u * v + y
            return u, v, steps + (u * u + v * v < 4)

        zero = jnp.zeros_like(x)
        steps = jnp.zeros(x.shape, jnp.int32)
        return jax.lax.fori_loop(0, 60, step, (zero, zero, steps))[2]

    axes = (
        jnp.linspace(low, 1.2, n, dtype=jnp.float32)
        for low, n in ((-2, 1000), (-1.2, 800))
    )
    return count, tuple(jnp.meshgrid(*axes))


def predators() -> Program:
    """Lotka and Volterra's equations for 400,000 pairs of species, 200 steps."""

    def run(prey: Any, predators: Any, rate: Any) -> Any:
        def step(state: Any, _: Any) -> Any:
            x, y = state
            met = x * y
            return (x + 0.01 * (rate * x - met), y + 0.01 * (met - y)), None

        return jax.lax.scan(step, (prey, predators), None, length=200)[0]

    return run, tuple(1 + uniform(400_000, seed=k) for k in range(3))


def neurons() -> Program:
    """Izhikevich's model of 300,000 neurons, 100 steps, with counts of their spikes."""

    def run(v: Any, u: Any, current: Any) -> Any:
        def step(_: Any, state: Any) -> Any:
            v, u, spikes = state
            is_spike = v > 30
            v, u = jnp.where(is_spike, -65.0, v), jnp.where(is_spike, u + 8, u)
            v = v + 0.5 * (0.04 * v * v + 5 * v + 140 - u + current)
            return v, u + 0.01 * (0.2 * v - u), spikes + is_spike

        spikes = jnp.zeros(v.shape, jnp.int32)
        return jax.lax.fori_loop(0, 100, step, (v, u, spikes))

    arguments = (normal(300_000) - 65, normal(300_000, seed=1) - 13)
    return run, (*arguments, 10 * uniform(300_000))


def features() -> Program:
    """The gradient of a loss of 300 of 512 features of 2048 rows."""

    def loss(x: Any, chosen: Any, weights: Any) -> Any:
        return (jnp.tanh(x[:, chosen]) @ weights).var()

    chosen = jax.random.permutation(jax.random.key(1), 512)[:300]
    return jax.grad(loss), (normal(2048, 512), chosen, normal(300))


def channels() -> Program:
    """The gradient through a permutation of the channels of 16 images 32x32x256."""

    def loss(x: Any, order: Any, scale: Any) -> Any:
        return (jnp.take(jax.nn.relu(x), order, axis=-1) * scale).std()

    order = jax.random.permutation(jax.random.key(1), 256)
    return jax.grad(loss), (normal(16, 32, 32, 256), order, normal(256))


def boxes() -> Program:
    """The mean generalized overlap of 150,000 pairs of boxes."""

    def loss(a: Any, b: Any) -> Any:
        def area(low: Any, high: Any) -> Any:
            sides = jnp.maximum(high - low, 0)
            return sides[:, 0] * sides[:, 1]

        shared = area(jnp.maximum(a[:, :2], b[:, :2]), jnp.minimum(a[:, 2:], b[:, 2:]))
        hull = area(jnp.minimum(a[:, :2], b[:, :2]), jnp.maximum(a[:, 2:], b[:, 2:]))
        both = area(a[:, :2], a[:, 2:]) + area(b[:, :2], b[:, 2:]) - shared
        return (1 - shared / both + (hull - both) / hull).mean()

    def box(seed: int) -> Any:
        low = uniform(150_000, 2, seed=seed)
        return jnp.concatenate([low, low + 0.1 + uniform(150_000, 2, seed=seed + 1)], 1)

    return loss, (box(0), box(2))


def smoothness() -> Program:
    """The smoothness of three flow fields of 512x512, weighted by an image's edges."""

    def loss(flow: Any, image: Any) -> Any:
        down, right = jnp.diff(flow, axis=1), jnp.diff(flow, axis=2)
        steep = (jnp.abs(jnp.diff(image, axis=each)) for each in (0, 1))
        by_down, by_right = (jnp.exp(-10 * each) for each in steep)
        return (by_down * jnp.abs(down)).mean() + (by_right * jnp.abs(right)).mean()

    return loss, (normal(3, 512, 512), uniform(512, 512))


def meshes() -> Program:
    """The mean cosine between the normals of 120,000 pairs of triangles."""

    def normals(triangles: Any) -> Any:
        a, b = (triangles[:, k] - triangles[:, 0] for k in (1, 2))
        return jnp.cross(a, b)

    def loss(first: Any, second: Any) -> Any:
        n, m = normals(first), normals(second)
        size = jnp.sqrt((n * n).sum(1) * (m * m).sum(1)) + 1e-9
        return (1 - (n * m).sum(1) / size).mean()

    return loss, (normal(120_000, 3, 3), normal(120_000, 3, 3, seed=1))


PROGRAMS: dict[str, tuple[str, Callable[[], Program]]] = {
    "equalized image": ("table", equalized),
    "tone curves": ("table", tones),
    "cubic spline": ("table", spline),
    "samples by the inverse": ("table", samples),
    "calibration error": ("table", calibration),
    "bonds and their gradient": ("table", bonds),
    "Mandelbrot set": ("loop", mandelbrot),
    "predators and prey": ("loop", predators),
    "spiking neurons": ("loop", neurons),
    "gradient of chosen features": ("columns", features),
    "gradient of permuted channels": ("columns", channels),
    "overlap of boxes": ("loss", boxes),
    "smoothness of a flow": ("loss", smoothness),
    "normals of meshes": ("loss", meshes),
}


if __name__ == "__main__":
    compare(PROGRAMS)
