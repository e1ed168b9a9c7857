#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Stencils and their gradients, slow on a CPU under jax.jit.

XLA fuses a step on a grid, or its gradient, into one kernel, which computes what
neighbours share once for each of them. The rule (`fusion-cuts`) was set on functions of
one or two operations and on some of these methods; the programs were written to see
what it is worth in a whole. `PROGRAMS` maps a name to a kind and a function that makes
the program and arguments.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
from programs import Program, compare, normal


def shifted(x: Any, by: int, axis: int) -> Any:
    """The neighbours at a distance, on a grid that is a torus."""
    return jnp.roll(x, by, axis)


def laplacian(x: Any) -> Any:
    """The sum over the four neighbours, less four times the point."""
    near = sum(shifted(x, by, axis) for by in (1, -1) for axis in (0, 1))
    return near - 4 * x


def denoising() -> Program:
    """Ten steps down the total variation of an image."""

    def energy(image: Any, noisy: Any) -> Any:
        by_row = jnp.diff(image, axis=0, append=image[-1:])
        by_column = jnp.diff(image, axis=1, append=image[:, -1:])
        variation = jnp.sqrt(by_row**2 + by_column**2 + 1e-4).sum()
        return 0.1 * variation + 0.5 * ((image - noisy) ** 2).sum()

    def run(noisy: Any) -> Any:
        def step(_: Any, image: Any) -> Any:
            return image - 0.1 * jax.grad(energy)(image, noisy)

        return jax.lax.fori_loop(0, 10, step, noisy)

    return run, (normal(512, 512),)


def spins() -> Program:
    """A trajectory of the XY model, by ten leapfrog steps."""

    def energy(angles: Any) -> Any:
        return -sum(jnp.cos(angles - shifted(angles, 1, a)).sum() for a in (0, 1))

    def run(angles: Any, momenta: Any) -> Any:
        def step(_: Any, state: Any) -> Any:
            angles, momenta = state
            momenta = momenta - 0.05 * jax.grad(energy)(angles)
            return angles + 0.05 * momenta, momenta

        return jax.lax.fori_loop(0, 10, step, (angles, momenta))

    return run, (normal(256, 256), normal(256, 256, seed=1))


def gauge_field() -> Program:
    """The force of a U(1) gauge field in four dimensions."""

    def action(links: Any) -> Any:
        total = 0.0
        for a in range(4):
            for b in range(a):
                plaquette = (
                    links[a]
                    + shifted(links[b], -1, a)
                    - shifted(links[a], -1, b)
                    - links[b]
                )
                total = total - jnp.cos(plaquette).sum()
        return total

    return jax.grad(action), (normal(4, 16, 16, 16, 16),)


def reaction_diffusion() -> Program:
    """The gradient of a pattern with respect to where it began, over eight steps."""

    def loss(first: Any, second: Any, target: Any) -> Any:
        for _ in range(8):
            reaction = first * second**2
            first = first + 0.16 * laplacian(first) - reaction + 0.06 * (1 - first)
            second = second + 0.08 * laplacian(second) + reaction - 0.12 * second
        return ((second - target) ** 2).mean()

    start = [0.1 * normal(256, 256, seed=i) for i in range(3)]
    return jax.grad(loss, argnums=(0, 1)), tuple(start)


def upwind(state: Any) -> Any:
    """One step of Burgers' equation, by local Lax-Friedrichs fluxes."""
    right = shifted(state, -1, 0)
    speed = jnp.maximum(jnp.abs(state), jnp.abs(right))
    flux = 0.25 * (state**2 + right**2) - 0.5 * speed * (right - state)
    return state - 0.1 * (flux - shifted(flux, 1, 0))


def burgers() -> Program:
    """Four steps of Burgers' equation."""

    def run(state: Any) -> Any:
        for _ in range(4):
            state = upwind(state)
        return state

    return run, (normal(1_000_000),)


def shallow_water() -> Program:
    """The gradient of the energy after two steps of the shallow water equations."""

    def along(x: Any, axis: int) -> Any:
        return (shifted(x, -1, axis) - shifted(x, 1, axis)) / 2

    def step(h: Any, u: Any, v: Any) -> Any:
        flow = along(h * u, 0) + along(h * v, 1)
        du = u * along(u, 0) + v * along(u, 1) + 9.8 * along(h, 0)
        dv = u * along(v, 0) + v * along(v, 1) + 9.8 * along(h, 1)
        return h - 0.01 * flow, u - 0.01 * du, v - 0.01 * dv

    def loss(*state: Any) -> Any:
        return sum((each**2).sum() for each in step(*step(*state)))

    start = [normal(256, 256, seed=i) for i in range(3)]
    return jax.grad(loss, argnums=(0, 1, 2)), tuple(start)


def diffusion_of_edges() -> Program:
    """The gradient of Perona and Malik's filter, of three steps."""

    def filtered(image: Any) -> Any:
        for _ in range(3):
            parts = [
                shifted(image, by, axis) - image for by in (1, -1) for axis in (0, 1)
            ]
            image = image + 0.2 * sum(jnp.exp(-((4 * d) ** 2)) * d for d in parts)
        return image

    def loss(image: Any, target: Any) -> Any:
        return ((filtered(image) - target) ** 2).mean()

    return jax.grad(loss), (normal(512, 512), normal(512, 512, seed=1))


def edges() -> Program:
    """Edges of an image: where the gradient is largest among the neighbours."""

    def run(image: Any) -> Any:
        weights = jnp.array([0.06, 0.24, 0.4, 0.24, 0.06])
        wide = jnp.pad(image, 2, mode="edge")
        image = sum(weights[i] * wide[i : i + 512, 2:-2] for i in range(5))
        wide = jnp.pad(image, 2, mode="edge")
        image = sum(weights[i] * wide[2:-2, i : i + 512] for i in range(5))
        wide = jnp.pad(image, 1, mode="edge")
        by_column = wide[1:-1, 2:] - wide[1:-1, :-2]
        by_row = wide[2:, 1:-1] - wide[:-2, 1:-1]
        size = jnp.hypot(by_column, by_row)
        around = jnp.pad(size, 1)
        is_largest = (size >= around[1:-1, 2:]) & (size >= around[1:-1, :-2])
        is_largest &= (size >= around[2:, 1:-1]) & (size >= around[:-2, 1:-1])
        return jnp.where(is_largest, size, 0), jnp.arctan2(by_row, by_column)

    return run, (normal(512, 512),)


def radiance() -> Program:
    """A field of colours and densities, of 65,536 points in Fourier features."""

    def run(points: Any, params: Any) -> Any:
        angles = points[:, None, :] * 2.0 ** jnp.arange(10, dtype="float32")[:, None]
        angles = angles.reshape(len(points), -1)
        x = jnp.concatenate([points, jnp.sin(angles), jnp.cos(angles)], -1)
        for weights in params[:-1]:
            x = jax.nn.relu(x @ weights)
        return jax.nn.sigmoid(x @ params[-1])

    sizes = (63, 64, 64, 4)
    params = [0.1 * normal(*pair, seed=i) for i, pair in enumerate(pairwise(sizes))]
    return run, (normal(65536, 3), params)


def waves() -> Program:
    """Eight steps of a wave in a medium, zero at the border."""

    def run(now: Any, before: Any, speed: Any) -> Any:
        for _ in range(8):
            wide = jnp.pad(now, 1)
            near = wide[:-2, 1:-1] + wide[2:, 1:-1] + wide[1:-1, :-2] + wide[1:-1, 2:]
            now, before = 2 * now - before + speed * (near - 4 * now), now
        return now

    return run, (normal(512, 512), normal(512, 512, seed=1), 0.2 + 0 * normal(512, 512))


PROGRAMS: dict[str, tuple[str, Callable[[], Program]]] = {
    "total variation, ten steps": ("image", denoising),
    "XY model, trajectory": ("lattice", spins),
    "U(1) gauge force": ("lattice", gauge_field),
    "reaction and diffusion, gradient": ("equation", reaction_diffusion),
    "Burgers' equation, four steps": ("equation", burgers),
    "shallow water, gradient": ("equation", shallow_water),
    "diffusion of edges, gradient": ("image", diffusion_of_edges),
    "edges": ("image", edges),
    "radiance field": ("image", radiance),
    "waves, eight steps": ("equation", waves),
}


if __name__ == "__main__":
    compare(PROGRAMS)
