#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Steps on grids without an edge, whose corners count, slow on a CPU under jax.jit.

Each neighbour is a `jnp.roll`, one along a diagonal two. The rules (`fusion-cuts/halo`
and `joined`) were set on a nine-point reaction and diffusion, the game of life and sums
of rolls; these programs were written afterwards. What they showed then: that a program
may have one function in many places, and that a limit on narrow rows was too strict.
`PROGRAMS` maps a name to a kind and a function that makes the program and arguments.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import jax
import jax.numpy as jnp
from programs import Program, compare, normal


def at(x: Any, *by: int) -> Any:
    """The neighbours at a distance along the last dimensions."""
    axes = tuple(range(x.ndim - len(by), x.ndim))
    return jnp.roll(x, tuple(-each for each in by), axes)


def around(x: Any) -> Any:
    """The isotropic Laplacian of nine points."""
    straight = at(x, 0, 1) + at(x, 0, -1) + at(x, 1, 0) + at(x, -1, 0)
    corners = at(x, 1, 1) + at(x, 1, -1) + at(x, -1, 1) + at(x, -1, -1)
    return (4 * straight + corners - 20 * x) / 6


def repeated(step: Callable[[Any], Any], count: int) -> Callable[[Any], Any]:
    """So many steps, in a loop."""
    return lambda x: jax.lax.fori_loop(0, count, lambda _, x: step(x), x)


def separation() -> Program:
    """Ten steps of Cahn and Hilliard's equation on 512x512."""

    def step(c: Any) -> Any:
        return c + 0.01 * around(c**3 - c - 0.5 * around(c))

    return repeated(step, 10), (0.1 * normal(512, 512),)


def separation_gradient() -> Program:
    """The gradient of the energy after three such steps, with respect to the start."""

    def energy(c: Any) -> Any:
        for _ in range(3):
            c = c + 0.01 * around(c**3 - c - 0.5 * around(c))
        return ((c**2 - 1) ** 2 / 4 + (at(c, 1, 0) - c) ** 2).sum()

    return jax.grad(energy), (0.1 * normal(384, 384),)


def vortices() -> Program:
    """Arakawa's Jacobian of stream function and vorticity, 768x768."""

    def jacobian(p: Any, z: Any) -> Any:
        straight = (at(p, 1, 0) - at(p, -1, 0)) * (at(z, 0, 1) - at(z, 0, -1)) - (
            at(p, 0, 1) - at(p, 0, -1)
        ) * (at(z, 1, 0) - at(z, -1, 0))
        by_p = (
            at(p, 1, 0) * (at(z, 1, 1) - at(z, 1, -1))
            - at(p, -1, 0) * (at(z, -1, 1) - at(z, -1, -1))
            - at(p, 0, 1) * (at(z, 1, 1) - at(z, -1, 1))
            + at(p, 0, -1) * (at(z, 1, -1) - at(z, -1, -1))
        )
        by_z = (
            at(z, 0, 1) * (at(p, 1, 1) - at(p, -1, 1))
            - at(z, 0, -1) * (at(p, 1, -1) - at(p, -1, -1))
            - at(z, 1, 0) * (at(p, 1, 1) - at(p, 1, -1))
            + at(z, -1, 0) * (at(p, -1, 1) - at(p, -1, -1))
        )
        return (straight + by_p + by_z) / 12

    return jacobian, (normal(768, 768), normal(768, 768, seed=1))


def waves_of_excitement() -> Program:
    """Twenty steps of FitzHugh and Nagumo's equations on 256x256."""

    def step(state: Any) -> Any:
        v, w = state
        v, w = (
            v + 0.1 * (v - v**3 / 3 - w + around(v)),
            w + 0.008 * (v + 0.7 - 0.8 * w),
        )
        return v, w

    return repeated(step, 20), ((normal(256, 256), normal(256, 256, seed=1)),)


def cycles() -> Program:
    """Ten steps of a cyclic automaton of 14 states, 512x512."""

    def step(cells: Any) -> Any:
        after = (cells + 1) % 14
        near = [at(cells, *by) == after for by in product((-1, 0, 1), repeat=2)]
        return jnp.where(sum(each.astype(jnp.int32) for each in near) > 0, after, cells)

    cells = jnp.abs(normal(512, 512) * 1000).astype(jnp.int32) % 14
    return repeated(step, 10), (cells,)


def magnets() -> Program:
    """The energy of Heisenberg spins on 48x48x48, and its gradient."""

    def energy(spins: Any) -> Any:
        spins = spins / jnp.linalg.norm(spins, axis=0, keepdims=True)
        near = [by for by in product((-1, 0, 1), repeat=3) if sum(map(abs, by)) == 2]
        first = sum(at(spins, *by) for by in ((0, 0, 1), (0, 1, 0), (1, 0, 0)))
        return -(spins * (first + 0.3 * sum(at(spins, *by) for by in near))).sum()

    return jax.value_and_grad(energy), (normal(3, 48, 48, 48),)


def smoothing() -> Program:
    """Three sweeps of a smoother of 27 points, 96x96x96."""

    def step(state: Any) -> Any:
        u, f = state
        near = [by for by in product((-1, 0, 1), repeat=3) if any(by)]
        total = sum(at(u, *by) / (2.0 ** sum(map(abs, by))) for by in near)
        return 0.3 * u + 0.7 * (total + f) / 8, f

    return repeated(step, 3), ((normal(96, 96, 96), normal(96, 96, 96, seed=1)),)


def edges_that_stop() -> Program:
    """Ten steps of Perona and Malik's diffusion to eight neighbours, 3x400x400."""

    def step(image: Any) -> Any:
        flow = jnp.zeros_like(image)
        for by in product((-1, 0, 1), repeat=2):
            if any(by):
                slope = at(image, *by) - image
                flow = flow + slope / (1 + (slope / 0.2) ** 2) / sum(map(abs, by))
        return image + 0.1 * flow

    return repeated(step, 10), (normal(3, 400, 400),)


def swarm() -> Program:
    """The mean direction of the neighbours at up to two sites, 300x300."""

    def step(angle: Any) -> Any:
        near = list(product((-2, -1, 0, 1, 2), repeat=2))
        x = sum(at(jnp.cos(angle), *by) for by in near)
        y = sum(at(jnp.sin(angle), *by) for by in near)
        return jnp.arctan2(y, x)

    return step, (normal(300, 300),)


def oscillators() -> Program:
    """The gradient through eight steps of coupled phases, 200x200."""

    def loss(phase: Any, speed: Any) -> Any:
        for _ in range(8):
            pull = sum(
                jnp.sin(at(phase, *by) - phase)
                for by in product((-1, 0, 1), repeat=2)
                if any(by)
            )
            phase = phase + 0.05 * (speed + 0.5 * pull)
        return jnp.cos(phase).mean() ** 2 + jnp.sin(phase).mean() ** 2

    return jax.grad(loss, argnums=(0, 1)), (normal(200, 200), normal(200, 200, seed=1))


PROGRAMS: dict[str, tuple[str, Callable[[], Program]]] = {
    "separation of phases, ten steps": ("equation", separation),
    "separation of phases, gradient": ("equation", separation_gradient),
    "vortices, Arakawa's Jacobian": ("equation", vortices),
    "excitable medium, twenty steps": ("equation", waves_of_excitement),
    "smoother of 27 points": ("equation", smoothing),
    "cyclic automaton, ten steps": ("lattice", cycles),
    "Heisenberg spins, gradient": ("lattice", magnets),
    "swarm": ("lattice", swarm),
    "coupled oscillators, gradient": ("lattice", oscillators),
    "diffusion to eight neighbours": ("image", edges_that_stop),
}


if __name__ == "__main__":
    compare(PROGRAMS)
