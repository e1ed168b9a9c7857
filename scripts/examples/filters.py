#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Wide filters and networks of few features on single images, slow under jax.jit.

XLA on a CPU is slow at convolutions of few features whose windows are wide, at wide
depthwise windows, and at gradients with respect to kernels where there are few images:
filters of images, networks that are trained on one image, sparse codes. The rules were
set on single convolutions like these; the programs were written afterwards, to see what
they are worth in a whole. The last one multiplies matrices of truth values.
`PROGRAMS` maps a name to a kind and a function that makes the program and arguments.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from programs import Program, compare, convolve, normal


def numbers(count: int) -> Any:
    """The first whole numbers, as float32."""
    return jnp.arange(count, dtype=jnp.float32)


def gaussian(size: int, width: float) -> Any:
    """[size, size, 1, 1] of sum 1."""
    place = numbers(size) - size // 2
    line = jnp.exp(-0.5 * (place / width) ** 2)
    kernel = jnp.outer(line, line)
    return (kernel / kernel.sum())[:, :, None, None]


def blobs() -> Program:
    """Differences of Gaussians of a 512x512 image, and where they are largest."""

    def run(image: Any) -> Any:
        wide, narrow = (convolve(image, gaussian(21, width)) for width in (3.0, 1.9))
        found = jnp.abs(narrow - wide)
        largest = jax.lax.reduce_window(
            found, -jnp.inf, jax.lax.max, (1, 5, 5, 1), (1, 1, 1, 1), "SAME"
        )
        return found, found == largest

    return run, (normal(1, 512, 512, 1),)


def gabor() -> Program:
    """The energy of twelve filters of 17x17 on a 256x256 image."""
    angles = numbers(12) * jnp.pi / 12
    down, across = (numbers(17) - 8)[:, None, None], (numbers(17) - 8)[:, None]
    along = down * jnp.cos(angles) + across * jnp.sin(angles)
    far = down**2 + across**2
    envelope = jnp.exp(-far / 32)

    def run(image: Any) -> Any:
        parts = (
            convolve(image, (envelope * wave(0.8 * along))[:, :, None])
            for wave in (jnp.cos, jnp.sin)
        )
        return jnp.sqrt(sum(part**2 for part in parts) + 1e-6)

    return run, (normal(1, 256, 256, 1),)


def similarity() -> Program:
    """The gradient of the structural similarity of two colour images."""
    kernel = jnp.tile(gaussian(11, 1.5), (1, 1, 1, 3))

    def loss(image: Any, other: Any) -> Any:
        def mean(x: Any) -> Any:
            return convolve(x, kernel, groups=3)

        a, b = mean(image), mean(other)
        of_a, of_b = mean(image**2) - a**2, mean(other**2) - b**2
        both = mean(image * other) - a * b
        ratio = (2 * a * b + 1e-4) * (2 * both + 9e-4)
        return 1 - (ratio / ((a**2 + b**2 + 1e-4) * (of_a + of_b + 9e-4))).mean()

    images = jax.nn.sigmoid(normal(2, 1, 256, 256, 3))
    return jax.value_and_grad(loss), (images[0], images[1])


def automaton() -> Program:
    """The gradient of eight steps of a neural cellular automaton of 16 features."""

    def loss(params: Any, grid: Any, goal: Any) -> Any:
        first, second = params
        for _ in range(8):
            hidden = jax.nn.relu(convolve(grid, first))
            grid = grid + 0.1 * convolve(hidden, second)
        return ((grid[..., :4] - goal) ** 2).mean()

    params = 0.1 * normal(3, 3, 16, 16), 0.1 * normal(1, 1, 16, 16, seed=1)
    return jax.grad(loss), (params, normal(1, 48, 48, 16), normal(1, 48, 48, 4))


def resolution() -> Program:
    """A training step of SRCNN (9x9, 5x5, 5x5) on one 128x128 image."""

    def loss(params: Any, image: Any, goal: Any) -> Any:
        for kernel in params[:-1]:
            image = jax.nn.relu(convolve(image, kernel))
        return ((convolve(image, params[-1]) - goal) ** 2).mean()

    def step(params: Any, image: Any, goal: Any) -> Any:
        found, slopes = jax.value_and_grad(loss)(params, image, goal)
        return found, jax.tree.map(lambda p, g: p - 1e-3 * g, params, slopes)

    sizes = (9, 1, 32), (5, 32, 16), (5, 16, 1)
    params = [0.1 * normal(k, k, i, o) for k, i, o in sizes]
    return step, (params, normal(1, 128, 128, 1), normal(1, 128, 128, 1, seed=1))


def prior() -> Program:
    """A step of a deep image prior: six layers of 16 features on one image."""

    def loss(params: Any, noise: Any, image: Any) -> Any:
        x = noise
        for kernel in params[:-1]:
            x = jax.nn.leaky_relu(convolve(x, kernel))
            x = (x - x.mean((1, 2))) / jnp.sqrt(x.var((1, 2)) + 1e-5)
        return ((jax.nn.sigmoid(convolve(x, params[-1])) - image) ** 2).mean()

    params = [0.1 * normal(3, 3, 16, 16, seed=n) for n in range(6)]
    params.append(0.1 * normal(3, 3, 16, 3))
    image = jax.nn.sigmoid(normal(1, 128, 128, 3))
    return jax.value_and_grad(loss), (params, normal(1, 128, 128, 16), image)


def deblurring() -> Program:
    """The gradient with respect to an image and the 15x15 kernel that blurred it."""

    def loss(unknown: Any, blurred: Any) -> Any:
        image, kernel = unknown
        rough = jnp.abs(jnp.diff(image, axis=1)).mean()
        error = convolve(image, jax.nn.softmax(kernel.ravel()).reshape(kernel.shape))
        return ((error - blurred) ** 2).mean() + 1e-3 * rough

    unknown = normal(1, 200, 200, 1), normal(15, 15, 1, 1)
    return jax.grad(loss), (unknown, normal(1, 200, 200, 1, seed=1))


def large_kernels() -> Program:
    """The gradient of a block with a 27x27 depthwise window, 28x28x48."""

    def loss(params: Any, x: Any) -> Any:
        wide, into, out = params
        y = convolve(x, wide, groups=48)
        y = jax.nn.gelu(y @ into, approximate=True) @ out
        return ((x + y) ** 2).mean()

    params = 0.05 * normal(27, 27, 1, 48), 0.1 * normal(48, 192), 0.1 * normal(192, 48)
    return jax.grad(loss), (params, normal(1, 28, 28, 48))


def sparse_codes() -> Program:
    """Ten steps to the code of a 128x128 image by eight 11x11 atoms."""

    def run(image: Any, atoms: Any) -> Any:
        def made(code: Any) -> Any:
            return convolve(code, atoms)

        code = jnp.zeros((1, 128, 128, 8), jnp.float32)
        for _ in range(10):
            error, pull = jax.vjp(made, code)
            code = code - 0.05 * pull(error - image)[0]
            code = jnp.sign(code) * jnp.maximum(jnp.abs(code) - 0.01, 0)
        return code

    return run, (normal(1, 128, 128, 1), 0.1 * normal(11, 11, 8, 1))


def reachable() -> Program:
    """Which of 512 nodes can be reached from which, by squares."""

    def run(edges: Any) -> Any:
        for _ in range(9):
            edges = edges | (edges @ edges)
        return edges, edges.all(1), edges.any(0)

    return run, (jnp.eye(512, dtype=bool) | (normal(512, 512) > 2.6),)


PROGRAMS: dict[str, tuple[str, Callable[[], Program]]] = {
    "differences of Gaussians": ("filters", blobs),
    "Gabor filters": ("filters", gabor),
    "structural similarity, gradient": ("filters", similarity),
    "blind deblurring, gradient": ("filters", deblurring),
    "sparse code, ten steps": ("filters", sparse_codes),
    "cellular automaton, gradient": ("one image", automaton),
    "SRCNN, training step": ("one image", resolution),
    "deep image prior, step": ("one image", prior),
    "27x27 depthwise block, gradient": ("one image", large_kernels),
    "reachable nodes": ("truth values", reachable),
}


if __name__ == "__main__":
    compare(PROGRAMS)
