# SPDX-License-Identifier: Apache-2.0
"""Small solvers over chex's dataclasses: states as trees through scans and maps."""

from __future__ import annotations

import chex
import jax
import jax.numpy as jnp

from hloenv_cases import Lower, case, floats, key


@chex.dataclass
class Swarm:
    position: chex.Array
    velocity: chex.Array
    best: chex.Array
    value: chex.Array


@case(size=[(8, 2), (40, 10)])
def particle_swarm(lower: Lower, size) -> None:
    def value(x):
        return 10 * x.shape[-1] + jnp.sum(x**2 - 10 * jnp.cos(2 * jnp.pi * x), -1)

    def step(swarm, seed):
        a, b = jax.random.uniform(seed, (2, *size))
        leader = swarm.best[jnp.argmin(swarm.value)]
        velocity = 0.7 * swarm.velocity + 1.4 * a * (swarm.best - swarm.position)
        velocity = velocity + 1.4 * b * (leader - swarm.position)
        position = swarm.position + velocity
        chex.assert_equal_shape([position, velocity])
        found = value(position)
        better = found < swarm.value
        return swarm.replace(
            position=position,
            velocity=velocity,
            best=jnp.where(better[:, None], position, swarm.best),
            value=jnp.where(better, found, swarm.value),
        )

    state = Swarm(
        position=floats(*size),
        velocity=floats(*size),
        best=floats(*size),
        value=floats(size[0]),
    )
    lower("step", step, state, key())
    lower("run", lambda s, k: jax.lax.scan(
        lambda s, k: (step(s, k), s.value.min()), s, jax.random.split(k, 30)),
        state, key())  # fmt: skip


@chex.dataclass
class Filter:
    mean: chex.Array
    cov: chex.Array


@case(size=[(2, 1), (6, 3)], length=[10, 50])
def kalman_filter(lower: Lower, size, length: int) -> None:
    n, m = size

    def step(state, y, a, c):
        mean, cov = a @ state.mean, a @ state.cov @ a.T + 0.1 * jnp.eye(n)
        innovation = c @ cov @ c.T + jnp.eye(m)
        gain = jnp.linalg.solve(innovation, c @ cov).T
        mean = mean + gain @ (y - c @ mean)
        return Filter(mean=mean, cov=cov - gain @ innovation @ gain.T)

    def run(state, ys, a, c):
        def body(state, y):
            state = step(state, y, a, c)
            return state, state.mean

        return jax.lax.scan(body, state, ys)[1]

    state = Filter(mean=floats(n), cov=floats(n, n))
    args = (floats(n, n), floats(m, n))
    lower("step", step, state, floats(m), *args)
    lower("run", run, state, floats(length, m), *args)
    lower("grad", jax.grad(lambda a, s, y, c: jnp.sum(run(s, y, a, c) ** 2)),
          args[0], state, floats(length, m), args[1])  # fmt: skip
    many = jax.tree.map(lambda x: floats(4, *x.shape), state)
    lower("vmap", jax.vmap(run, (0, 0, None, None)), many, floats(4, length, m), *args)


@case(chunk=[4, 8])
def batched(lower: Lower, chunk: int) -> None:
    tree = {"a": floats(16, 5), "b": (floats(16), floats(16, 2, 2))}

    def mean(tree):
        chex.assert_equal_shape_prefix(jax.tree.leaves(tree), 1)
        return jax.tree.map(lambda x: x.reshape(16 // chunk, chunk, -1).mean(1), tree)

    lower("mean", mean, tree)
    lower("variance", lambda t: jax.tree.map(jnp.var, mean(t)), tree)
