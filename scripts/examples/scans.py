#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Recurrences by jax.lax.associative_scan: state-space models, returns, running values.

All are slow on a CPU under jax.jit, where a scan is a tree of kernels that read and
write each row several times. The rule (`reduce-forms/prefixes`) was set on scans of a
linear recurrence, of extremes and of complex numbers. These programs were written
afterwards. `PROGRAMS` maps a name to a kind and a function that makes the program and
arguments.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from programs import Program, compare, normal


def linear(first: Any, second: Any) -> Any:
    """Two steps of h = a h + b as one."""
    (a, b), (c, d) = first, second
    return a * c, c * b + d


def recurrence(a: Any, b: Any, axis: int = 0, *, reverse: bool = False) -> Any:
    """All h[i] = a[i] h[i - 1] + b[i]."""
    return jax.lax.associative_scan(linear, (a, b), axis=axis, reverse=reverse)[1]


def states(params: Any, u: Any) -> Any:
    """S5's layer: u of [time, features], complex states."""
    decay, inputs, outputs, skip = params
    bu = u @ inputs
    x = recurrence(jnp.broadcast_to(decay, bu.shape), bu)
    return (x @ outputs).real + skip * u


def s5_params() -> Any:
    """Of 128 features and 128 states."""
    angle = normal(128, seed=1)
    decay = 0.99 * jnp.exp(1j * angle).astype(jnp.complex64)
    inputs = (normal(128, 128, seed=2) + 1j * normal(128, 128, seed=3)) / 16
    outputs = (normal(128, 128, seed=4) + 1j * normal(128, 128, seed=5)) / 16
    return decay, inputs, outputs, normal(128, seed=6)


def s5() -> Program:
    """Four sequences of 1024 steps through an S5 layer."""
    return jax.vmap(states, (None, 0)), (s5_params(), normal(4, 1024, 128))


def s5_step() -> Program:
    """The gradient of that layer."""

    def loss(params: Any, u: Any) -> Any:
        return (jax.vmap(states, (None, 0))(params, u) ** 2).mean()

    return jax.grad(loss), (s5_params(), normal(4, 1024, 128))


def selective(x: Any, step: Any, a: Any, b: Any, c: Any) -> Any:
    """Mamba's scan of [batch, time, features] with 16 states of each feature."""
    decay = jnp.exp(-step[..., None] * a)
    given = (step * x)[..., None] * b[:, :, None]
    h = recurrence(decay, given, 1)
    return (h * c[:, :, None]).sum(-1)


def mamba_arguments() -> Any:
    """Two sequences of 512 steps, 128 features."""
    shape = 2, 512, 128
    step = jax.nn.softplus(normal(*shape, seed=1))
    a = jnp.exp(normal(128, 16, seed=2))
    return (
        *(normal(*shape), step, a),
        *(normal(2, 512, 16, seed=3), normal(2, 512, 16, seed=4)),
    )


def mamba() -> Program:
    """A selective scan."""
    return selective, mamba_arguments()


def mamba_step() -> Program:
    """The gradient of a selective scan."""

    def loss(*arguments: Any) -> Any:
        return (selective(*arguments) ** 2).mean()

    return jax.grad(loss, (0, 1, 2)), mamba_arguments()


def gated() -> Program:
    """Griffin's recurrence with its gates: 4 sequences of 512 steps, 256 features."""

    def layer(weights: Any, x: Any) -> Any:
        gate, remember, rate = weights
        kept = jnp.exp(-8 * jax.nn.softplus(rate) * jax.nn.sigmoid(x @ remember))
        given = jnp.sqrt(1 - kept**2) * (jax.nn.sigmoid(x @ gate) * x)
        return recurrence(kept, given, 1)

    weights = normal(256, 256, seed=1) / 16, normal(256, 256, seed=2) / 16
    return layer, ((*weights, normal(256, seed=3)), normal(4, 512, 256))


def retention() -> Program:
    """Linear attention with a decay for each head and step: states of 32x32."""

    def heads(q: Any, k: Any, v: Any, decay: Any) -> Any:
        outer = k[..., :, None] * v[..., None, :]
        states = recurrence(decay[..., None, None], outer)
        return jnp.einsum("bha,bhac->bhc", q, states)

    shape = 512, 4, 32
    decay = jax.nn.sigmoid(normal(512, 4, seed=3) + 3)
    return heads, (
        normal(*shape),
        normal(*shape, seed=1),
        normal(*shape, seed=2),
        decay,
    )


def advantages() -> Program:
    """Generalised advantages of 128 environments over 1024 steps."""

    def gae(rewards: Any, values: Any, done: Any) -> Any:
        goes_on = 0.99 * (1 - done)
        delta = rewards + goes_on * values[1:] - values[:-1]
        found = recurrence(0.95 * goes_on, delta, reverse=True)
        return (found - found.mean()) / (found.std() + 1e-6)

    done = (normal(1024, 128, seed=2) > 2).astype(jnp.float32)
    return gae, (normal(1024, 128), normal(1025, 128, seed=1), done)


def averages() -> Program:
    """How far moving averages of two lengths are apart: 200 prices, 2,500 days."""

    def distance(prices: Any) -> Any:
        def average(rate: float) -> Any:
            return recurrence(jnp.full_like(prices, 1 - rate), rate * prices)

        return average(0.1) - average(0.02)

    return distance, (normal(2500, 200).cumsum(0) / 50 + 100,)


def drawdown() -> Program:
    """The largest losses of 500 paths of 2,500 days."""

    def losses(returns: Any) -> Any:
        value = jnp.exp(jnp.cumsum(returns, 0))
        highest = jax.lax.associative_scan(jnp.maximum, value, axis=0)
        return (1 - value / highest).max(0)

    return losses, (normal(2500, 500) / 100,)


def best_segments() -> Program:
    """Smith and Waterman's scores of one sequence: sums that start again at zero."""

    def join(first: Any, second: Any) -> Any:
        return first[0] + second[0], jnp.maximum(first[1] + second[0], second[1])

    def scores(x: Any) -> Any:
        return jax.lax.associative_scan(join, (x, jnp.maximum(x, 0)))[1].max(0)

    return scores, (normal(4096, 64),)


def kalman() -> Program:
    """Filters of 128 series of one state each, by Särkkä's five numbers."""

    def join(first: Any, second: Any) -> Any:
        a, b, c, eta, j = first
        d, e, f, theta, k = second
        share = 1 / (1 + c * k)
        return (
            *(a * d * share, d * share * (b + c * theta) + e, d * d * share * c + f),
            *(a * share * (theta - k * b) + eta, a * a * share * k + j),
        )

    def means(observed: Any) -> Any:
        given = (
            *(jnp.full_like(observed, 0.5), 0.4 * observed),
            *(jnp.full_like(observed, 0.3), 0.4 * observed),
            jnp.full_like(observed, 0.6),
        )
        return jax.lax.associative_scan(join, given)[1]

    return means, (normal(1024, 128),)


def rotations() -> Program:
    """Orientations of 64 bodies: products of 1024 small rotations."""

    def poses(angles: Any) -> Any:
        cosine, sine = jnp.cos(angles), jnp.sin(angles)
        turns = jnp.stack([cosine, -sine, sine, cosine], -1)
        turns = turns.reshape(*angles.shape, 2, 2)
        return jax.lax.associative_scan(jnp.matmul, turns)

    return poses, (normal(1024, 64) / 10,)


PROGRAMS: dict[str, tuple[str, Callable[[], Program]]] = {
    "S5 layer": ("layer", s5),
    "S5 layer, training step": ("training", s5_step),
    "selective scan of Mamba": ("layer", mamba),
    "selective scan, training step": ("training", mamba_step),
    "gated recurrence of Griffin": ("layer", gated),
    "linear attention with decays": ("layer", retention),
    "generalised advantages": ("learning", advantages),
    "moving averages": ("series", averages),
    "largest losses": ("series", drawdown),
    "best segments": ("series", best_segments),
    "Kalman filters": ("series", kalman),
    "orientations": ("simulation", rotations),
}


if __name__ == "__main__":
    compare(PROGRAMS)
