#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Solvers, filters and layers of few rows or channels, slow on a CPU under jax.jit.

What they have in common: products with a transposed matrix, convolutions of few
channels, complex products, the largest of 16-bit numbers, sines, powers and remainders
of float64. The rules for these were set on the operations alone; the programs were
written to see what they are worth in a whole. `PROGRAMS` maps a name to a kind and a
function that makes the program and its arguments.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.lax import conv_general_dilated
from programs import Program, compare, normal


def transport() -> Program:
    """Sinkhorn's iterations between 512 and 512 points."""

    def run(kernel: Any, left: Any, right: Any) -> Any:
        def step(scales: Any, _: Any) -> Any:
            _, v = scales
            u = left / (kernel @ v)
            return (u, right / (kernel.T @ u)), None

        return jax.lax.scan(step, (left, right), None, length=50)[0]

    ones = jnp.ones(512, jnp.float32) / 512
    return run, (jnp.exp(-(normal(512, 512) ** 2)), ones, ones)


def least_squares() -> Program:
    """Conjugate gradients of the normal equations, 20 iterations."""

    def run(a: Any, b: Any) -> Any:
        def normal_equations(x: Any) -> Any:
            return a.T @ (a @ x) + x

        return jax.scipy.sparse.linalg.cg(normal_equations, a.T @ b, maxiter=20)[0]

    return run, (normal(2048, 512) / 40, normal(2048, seed=1))


def ridge() -> Program:
    """The coefficients of 64 features, from 5,000 examples."""

    def run(x: Any, y: Any) -> Any:
        gram = x.T @ x + 1e-3 * jnp.eye(x.shape[1], dtype=x.dtype)
        return jax.scipy.linalg.solve(gram, x.T @ y, assume_a="pos")

    return run, (normal(5000, 64), normal(5000, seed=1))


def regression() -> Program:
    """The gradient of a classifier of ten classes, 512 features."""

    def loss(weights: Any, x: Any, labels: Any) -> Any:
        return -(jax.nn.log_softmax(x @ weights) * labels).sum(1).mean()

    labels = jax.nn.one_hot(jnp.arange(4096) % 10, 10, dtype=jnp.float32)
    return jax.grad(loss), (normal(512, 10) / 20, normal(4096, 512, seed=1), labels)


def gaussian_process() -> Program:
    """The mean and the variance at 256 points, from 512."""

    def covariance(x: Any, z: Any) -> Any:
        return jnp.exp(-((x[:, None] - z[None]) ** 2).sum(-1))

    def run(x: Any, y: Any, z: Any) -> Any:
        factor = jnp.linalg.cholesky(
            covariance(x, x) + 0.1 * jnp.eye(len(x), dtype=x.dtype)
        )
        between = covariance(x, z)
        mean = between.T @ jax.scipy.linalg.cho_solve((factor, True), y)
        half = jax.scipy.linalg.solve_triangular(factor, between, lower=True)
        return mean, 1 - (half**2).sum(0)

    return run, (normal(512, 4), normal(512, seed=1), normal(256, 4, seed=2))


def attention() -> Program:
    """A block of a transformer, 4 sequences of 256, 8 heads of 32."""

    def run(weights: Any, x: Any) -> Any:
        query, key, value = ((x @ w).reshape(4, 256, 8, 32) for w in weights[:3])
        scores = jnp.einsum("bqhd,bkhd->bhqk", query, key) / 6
        mixed = jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores), value)
        x = x + mixed.reshape(x.shape) @ weights[3]
        return x + jax.nn.gelu(x @ weights[4]) @ weights[5]

    sizes = [(256, 256)] * 4 + [(256, 1024), (1024, 256)]
    weights = [normal(*each, seed=seed) / 16 for seed, each in enumerate(sizes)]
    return run, (weights, normal(4, 256, 256, seed=9))


def low_rank() -> Program:
    """Gradients of layers of rank 8 beside a layer that is kept."""

    def loss(a: Any, b: Any, weights: Any, x: Any) -> Any:
        return ((x @ weights + x @ a @ b) ** 2).mean()

    return jax.grad(loss, (0, 1)), (
        normal(768, 8) / 28,
        normal(8, 768, seed=1) / 3,
        normal(768, 768, seed=2) / 28,
        normal(256, 768, seed=3),
    )


def convolved(x: Any, kernel: Any) -> Any:
    """Of images or volumes [n, c, ...], of the same size."""
    return conv_general_dilated(x, kernel, (1,) * (x.ndim - 2), "SAME")


def similarity() -> Program:
    """Structural similarity of 4 grey images, by Gaussian windows of 11x11."""

    def run(x: Any, y: Any) -> Any:
        at = jnp.arange(-5.0, 6.0, dtype=x.dtype)
        line = jnp.exp(-(at**2) / 4.5)
        window = jnp.outer(line, line)[None, None] / line.sum() ** 2
        means = convolved(x, window), convolved(y, window)
        squares = convolved(x * x, window), convolved(y * y, window)
        both = convolved(x * y, window) - means[0] * means[1]
        spread = squares[0] - means[0] ** 2 + squares[1] - means[1] ** 2
        level = means[0] ** 2 + means[1] ** 2 + 1e-4
        shared = (2 * means[0] * means[1] + 1e-4) * (2 * both + 9e-4)
        return (shared / (level * (spread + 9e-4))).mean()

    return run, (normal(4, 1, 256, 256), normal(4, 1, 256, 256, seed=1))


def edges() -> Program:
    """Sobel's edges of 8 colour images."""

    def run(x: Any) -> Any:
        sobel = jnp.array([[1.0, 0, -1], [2, 0, -2], [1, 0, -1]], x.dtype)
        kernel = jnp.stack([sobel, sobel.T])[:, None].repeat(3, 1)
        return jnp.sqrt((convolved(x, kernel) ** 2).sum(1) + 1e-6)

    return run, (normal(8, 3, 128, 128),)


def band_pass() -> Program:
    """A signal of 65,536 by a filter of 101 coefficients, and its envelope."""

    def run(x: Any, kernel: Any) -> Any:
        passed = jnp.convolve(x, kernel, mode="same")
        return jnp.convolve(abs(passed), jnp.ones(31, x.dtype) / 31, mode="same")

    return run, (normal(65_536), normal(101, seed=1) / 10)


def diffusion() -> Program:
    """Ten steps of diffusion in a volume of 32x32x32, by a stencil of 3x3x3."""

    def run(x: Any, kernel: Any) -> Any:
        def step(x: Any, _: Any) -> Any:
            return convolved(x, kernel), None

        return jax.lax.scan(step, x, None, length=10)[0]

    kernel = abs(normal(1, 1, 3, 3, 3, seed=1))
    return run, (normal(1, 1, 32, 32, 32), kernel / kernel.sum())


def sampling() -> Program:
    """A token out of the 40 likeliest of 32,000, in bfloat16, for 8 sequences."""

    def run(logits: Any, noise: Any) -> Any:
        values, tokens = jax.lax.top_k(logits, 40)
        picked = (values.astype(jnp.float32) + noise).argmax(1)
        return jnp.take_along_axis(tokens, picked[:, None], 1)

    return run, (normal(8, 32_000).astype(jnp.bfloat16), normal(8, 40, seed=1))


def evolution() -> Program:
    """A quantum system of 256 states, eight steps of its unitary."""

    def run(unitary: Any, density: Any) -> Any:
        def step(density: Any, _: Any) -> Any:
            return unitary @ density @ unitary.conj().T, None

        return jax.lax.scan(step, density, None, length=8)[0]

    both = normal(256, 256) + 1j * normal(256, 256, seed=1)
    unitary = jnp.linalg.qr(both)[0]
    state = jnp.zeros((256, 256), unitary.dtype).at[0, 0].set(1)
    return run, (unitary, state)


def oscillators() -> Program:
    """1,000 coupled oscillators, ten steps of Heun's method in float64."""

    def velocity(angle: Any, own: Any) -> Any:
        return own + jnp.sin(angle[None] - angle[:, None]).mean(1)

    def run(angle: Any, own: Any) -> Any:
        def step(angle: Any, _: Any) -> Any:
            first = velocity(angle, own)
            second = velocity(angle + 0.1 * first, own)
            return angle + 0.05 * (first + second), None

        return jax.lax.scan(step, angle, None, length=10)[0]

    doubles = {"dtype": jnp.float64}
    return run, (normal(1000, **doubles), normal(1000, seed=1, **doubles))


def orbits() -> Program:
    """1,000 bodies that attract each other, ten steps in float64."""

    def run(places: Any, speeds: Any) -> Any:
        def step(state: Any, _: Any) -> Any:
            places, speeds = state
            apart = places[None] - places[:, None]
            pull = ((apart**2).sum(-1) + 1e-2) ** -1.5
            speeds = speeds + 1e-5 * jnp.einsum("ij,ijk->ik", pull, apart)
            return (places + 1e-2 * speeds, speeds), None

        return jax.lax.scan(step, (places, speeds), None, length=10)[0]

    doubles = {"dtype": jnp.float64}
    return run, (normal(1000, 3, **doubles), normal(1000, 3, seed=1, **doubles))


def periodic_box() -> Program:
    """Forces between 800 particles in a periodic box, float64."""

    def energy(places: Any) -> Any:
        apart = places[None] - places[:, None]
        apart = (apart + 5.0) % 10.0 - 5.0  # the nearest copy
        square = (apart**2).sum(-1) + jnp.eye(len(places)) * 1e3 + 0.5
        return (square**-6 - square**-3).sum()

    return jax.grad(energy), (normal(800, 3, dtype=jnp.float64) * 5,)


PROGRAMS: dict[str, tuple[str, Callable[[], Program]]] = {
    "optimal transport": ("solver", transport),
    "least squares by conjugate gradients": ("solver", least_squares),
    "ridge regression": ("solver", ridge),
    "logistic regression, gradient": ("solver", regression),
    "Gaussian process": ("solver", gaussian_process),
    "transformer block": ("layer", attention),
    "layers of low rank, gradients": ("layer", low_rank),
    "structural similarity": ("filter", similarity),
    "edges of colour images": ("filter", edges),
    "band-pass and envelope": ("filter", band_pass),
    "diffusion in a volume": ("filter", diffusion),
    "sampling from bfloat16": ("layer", sampling),
    "quantum evolution": ("solver", evolution),
    "coupled oscillators, float64": ("solver", oscillators),
    "orbits, float64": ("solver", orbits),
    "particles in a periodic box, float64": ("solver", periodic_box),
}


if __name__ == "__main__":
    compare(PROGRAMS)
