#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Many small problems at once, slow on a CPU under jax.jit.

Short sorts (medians, filters, the best of a few), linear algebra of tiny matrices
(Kalman filters, poses, densities) and divisions of floats: XLA sorts one row, and jax
calls LAPACK for one matrix, after the other. The rules for these were set on the
operations alone; the programs were written to see what they are worth in a whole.
`PROGRAMS` maps a name to a kind and a function that makes the program and arguments.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from programs import Program, compare, normal


def windows(images: Any, size: int) -> Any:
    """The elements of each window, in the first dimension."""
    half = size // 2
    padded = jnp.pad(images, ((0, 0), (half, half), (half, half)), mode="edge")
    height, width = images.shape[1:]
    return jnp.stack(
        [
            padded[:, i : i + height, j : j + width]
            for i in range(size)
            for j in range(size)
        ]
    )


def median_filter() -> Program:
    """Medians of 3x3 windows of eight images of bytes."""

    def run(images: Any) -> Any:
        return jnp.sort(windows(images, 3), axis=0)[4]

    images = np.random.default_rng(0).integers(0, 256, (8, 256, 256))
    return run, (jnp.asarray(images, jnp.uint8),)


def impulse_noise() -> Program:
    """Replaces what differs much from the median of its 5x5 window."""

    def run(images: Any) -> Any:
        medians = jnp.sort(windows(images, 5), axis=0)[12]
        return jnp.where(jnp.abs(images - medians) > 1, medians, images)

    return run, (normal(4, 128, 128),)


def ensemble() -> Program:
    """The mean of 16 outputs but the two largest and smallest, and their spread."""

    def run(outputs: Any) -> Any:
        ordered = jnp.sort(outputs, axis=0)
        low, high = jnp.quantile(outputs, jnp.array([0.25, 0.75]), axis=0)
        return ordered[2:-2].mean(0), high - low

    return run, (normal(16, 20_000),)


def stack_of_exposures() -> Program:
    """The median of eleven exposures of one picture."""

    def run(exposures: Any) -> Any:
        return jnp.median(exposures, axis=0)

    return run, (normal(11, 512, 512),)


def routing() -> Program:
    """The order of eight experts for each of 16,384 tokens, and their weights."""

    def run(tokens: Any, gates: Any) -> Any:
        scores = jax.nn.softmax(tokens @ gates)
        order = jnp.argsort(-scores, axis=1)
        return order, jnp.take_along_axis(scores, order[:, :2], axis=1)

    return run, (normal(16_384, 64), normal(64, 8, seed=1))


def kalman() -> Program:
    """Ten steps of 2,000 Kalman filters of four states and two observations."""

    def run(means: Any, covariances: Any, observations: Any) -> Any:
        a = jnp.eye(4, dtype=jnp.float32) + 0.1 * jnp.eye(4, k=2, dtype=jnp.float32)
        h = jnp.eye(2, 4, dtype=jnp.float32)

        def step(state: Any, seen: Any) -> Any:
            mean, p = state
            mean = mean @ a.T
            p = a @ p @ a.T + 0.01 * jnp.eye(4, dtype=jnp.float32)
            s = h @ p @ h.T + 0.1 * jnp.eye(2, dtype=jnp.float32)
            gain = jnp.linalg.solve(s, h @ p).swapaxes(1, 2)
            mean = mean + (gain @ (seen - mean @ h.T)[..., None])[..., 0]
            return (mean, p - gain @ h @ p), mean

        return jax.lax.scan(step, (means, covariances), observations)[1]

    covariances = jnp.broadcast_to(jnp.eye(4, dtype=jnp.float32), (2000, 4, 4))
    return run, (normal(2000, 4), covariances, normal(10, 2000, 2, seed=1))


def poses() -> Program:
    """Points of 5,000 cameras in the frames of others, by inverses of 4x4 matrices."""

    def run(cameras: Any, points: Any) -> Any:
        return jnp.einsum("nij,nkj->nki", jnp.linalg.inv(cameras), points)

    cameras = normal(5000, 4, 4) + 3 * jnp.eye(4, dtype=jnp.float32)
    return run, (cameras, normal(5000, 8, 4, seed=1))


def densities() -> Program:
    """Logarithms of normal densities of 10,000 points, each with its covariance."""

    def run(points: Any, means: Any, factors: Any) -> Any:
        covariances = factors @ factors.swapaxes(1, 2)
        covariances = covariances + 0.1 * jnp.eye(3, dtype=jnp.float32)
        logpdf = jax.scipy.stats.multivariate_normal.logpdf
        return jax.vmap(logpdf)(points, means, covariances)

    points = normal(10_000, 3), normal(10_000, 3, seed=1), normal(10_000, 3, 3, seed=2)
    return run, points


def local_fits() -> Program:
    """The gradient of ridge regressions of five features at 3,000 places."""

    def loss(x: Any, y: Any) -> Any:
        gram = x.swapaxes(1, 2) @ x + 0.1 * jnp.eye(5, dtype=jnp.float32)
        factor = jax.scipy.linalg.cho_factor(gram)
        fitted = jax.scipy.linalg.cho_solve(factor, x.swapaxes(1, 2) @ y)
        return ((x @ fitted - y) ** 2).mean()

    return jax.grad(loss), (normal(3000, 12, 5), normal(3000, 12, 1, seed=1))


def cells() -> Program:
    """The cells of a grid, and the places in them, of 200,000 particles."""

    def run(positions: Any, widths: Any) -> Any:
        cell, place = jnp.divmod(positions, widths)
        return (cell @ jnp.array([1.0, 64.0, 4096.0])).astype(jnp.int32), place

    return run, (10 * normal(200_000, 3), jnp.abs(normal(3, seed=1)) + 0.5)


PROGRAMS: dict[str, tuple[str, Callable[[], Program]]] = {
    "median filter of bytes": ("filter", median_filter),
    "impulse noise": ("filter", impulse_noise),
    "ensemble, robust mean": ("statistics", ensemble),
    "median of exposures": ("statistics", stack_of_exposures),
    "routing to experts": ("layer", routing),
    "Kalman filters": ("solver", kalman),
    "poses of cameras": ("solver", poses),
    "normal densities": ("solver", densities),
    "local regressions, gradient": ("solver", local_fits),
    "particles in cells": ("solver", cells),
}


if __name__ == "__main__":
    compare(PROGRAMS)
