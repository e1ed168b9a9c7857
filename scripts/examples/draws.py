#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Random numbers: dropout, sampling, simulation, and training that draws noise.

All are slow on a CPU under jax.jit, which computes the five iterations of threefry by
kernels that read and write all bits. The rule (`fusion-cuts/rounds`) was set on
`jax.random.bits`, `normal` and `bernoulli`. These programs were written afterwards.
`PROGRAMS` maps a name to a kind and a function that makes the program and arguments.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from programs import Program, compare, normal

KEY = jax.random.key(0)


def gaussian(key: Any, *shape: int) -> Any:
    """Random numbers of float32."""
    return jax.random.normal(key, shape, jnp.float32)


def dropout() -> Program:
    """A training step of three layers with dropout, 256 rows of 512 features."""

    def loss(weights: Any, key: Any, x: Any) -> Any:
        for number, weight in enumerate(weights):
            kept = jax.random.bernoulli(jax.random.fold_in(key, number), 0.9, x.shape)
            x = jnp.where(kept, jax.nn.relu(x @ weight) / 0.9, 0)
        return (x * x).mean()

    weights = tuple(normal(512, 512, seed=k) / 16 for k in range(3))
    return jax.grad(loss), (weights, KEY, normal(256, 512))


def autoencoder() -> Program:
    """The loss of a variational autoencoder: 512 samples of 128 dimensions each."""

    def loss(key: Any, mean: Any, scale: Any) -> Any:
        z = mean + jnp.exp(scale) * gaussian(key, *mean.shape)
        return (z * z - 2 * scale).mean()

    shape = 512, 1024
    return jax.grad(loss, (1, 2)), (KEY, normal(*shape), normal(*shape, seed=1) / 9)


def option() -> Program:
    """An option's price by a million paths."""

    def price(key: Any, volatility: Any) -> Any:
        last = jnp.exp(volatility * gaussian(key, 1_000_000) - volatility**2 / 2)
        return jnp.maximum(100 * last - 100, 0).mean()

    return jax.value_and_grad(price, 1), (KEY, jnp.float32(0.2))


def barrier() -> Program:
    """The share of 10,000 walks of 250 steps that stay above a bound."""

    def share(key: Any) -> Any:
        steps = gaussian(key, 10_000, 250) * 0.01
        return (jnp.cumsum(steps, axis=1).min(axis=1) > -0.1).mean()

    return share, (KEY,)


def langevin() -> Program:
    """A hundred steps of Langevin's equation for 20,000 particles."""

    def run(key: Any, x: Any) -> Any:
        def step(x: Any, key: Any) -> Any:
            force = -x * (x * x - 1)
            return x + 0.01 * force + 0.1 * gaussian(key, *x.shape), x.mean()

        return jax.lax.scan(step, x, jax.random.split(key, 100))

    return run, (KEY, normal(20_000))


def tokens() -> Program:
    """The next tokens of 32 texts from 32,000 each."""

    def draw(key: Any, scores: Any) -> Any:
        return jax.random.categorical(key, scores / 0.8)

    return draw, (KEY, normal(32, 32_000))


def shuffled() -> Program:
    """An epoch's order of 50,000 rows, and the first batch of it."""

    def draw(key: Any, rows: Any) -> Any:
        return rows[jax.random.permutation(key, len(rows))[:512]]

    return draw, (KEY, normal(50_000, 64))


def bootstrap() -> Program:
    """The spread of a mean by 500 samples of 2,000 numbers."""

    def spread(key: Any, x: Any) -> Any:
        places = jax.random.randint(key, (500, len(x)), 0, len(x), jnp.int32)
        return x[places].mean(axis=1).std()

    return spread, (KEY, normal(2_000))


def diffusion() -> Program:
    """Noise on a batch of 64 images of 32x32x3, as for the training of diffusion."""

    def noisy(key: Any, images: Any) -> Any:
        for_time, for_noise = jax.random.split(key)
        time = jax.random.uniform(for_time, (len(images), 1, 1, 1), jnp.float32)
        noise = gaussian(for_noise, *images.shape)
        return jnp.sqrt(1 - time) * images + jnp.sqrt(time) * noise, noise

    return noisy, (KEY, normal(64, 32, 32, 3))


def flips() -> Program:
    """Augmented images: 128 of 64x64x3, flipped or not, brighter or not, with noise."""

    def augment(key: Any, images: Any) -> Any:
        flip, light, noise = jax.random.split(key, 3)
        shape = len(images), 1, 1, 1
        turned = jnp.where(
            jax.random.bernoulli(flip, 0.5, shape), images[:, :, ::-1], images
        )
        factor = jax.random.uniform(light, shape, jnp.float32, 0.8, 1.2)
        grain = jax.random.uniform(noise, images.shape, jnp.float32, -0.02, 0.02)
        return jnp.clip(turned * factor + grain, -1, 1)

    return augment, (KEY, normal(128, 64, 64, 3) / 3)


def metropolis() -> Program:
    """Fifty steps of Metropolis' algorithm with 10,000 chains in three dimensions."""

    def run(key: Any, x: Any) -> Any:
        def energy(x: Any) -> Any:
            return (x * x).sum(1) / 2 + jnp.cos(3 * x[:, 0])

        def step(x: Any, key: Any) -> Any:
            move, accept = jax.random.split(key)
            other = x + 0.5 * gaussian(move, *x.shape)
            u = jax.random.uniform(accept, (len(x),), jnp.float32)
            is_taken = jnp.log(u) < energy(x) - energy(other)
            return jnp.where(is_taken[:, None], other, x), is_taken.mean()

        return jax.lax.scan(step, x, jax.random.split(key, 50))

    return run, (KEY, normal(10_000, 3))


def weights() -> Program:
    """The first weights of a transformer's layer, 512 wide."""

    def layer(key: Any) -> Any:
        shapes = (512, 1536), (512, 512), (512, 2048), (2048, 512)
        keys = jax.random.split(key, len(shapes))
        return [
            jax.random.truncated_normal(k, -2, 2, shape, jnp.float32)
            / np.float32(np.sqrt(shape[0]))
            for k, shape in zip(keys, shapes, strict=True)
        ]

    return layer, (KEY,)


PROGRAMS: dict[str, tuple[str, Callable[[], Program]]] = {
    "dropout, training step": ("training", dropout),
    "variational autoencoder": ("training", autoencoder),
    "noise of diffusion": ("training", diffusion),
    "augmented images": ("training", flips),
    "first weights": ("training", weights),
    "option by a million paths": ("simulation", option),
    "walks above a bound": ("simulation", barrier),
    "Langevin's equation": ("simulation", langevin),
    "Metropolis' algorithm": ("simulation", metropolis),
    "next tokens": ("sampling", tokens),
    "shuffled rows": ("sampling", shuffled),
    "bootstrap": ("sampling", bootstrap),
}


if __name__ == "__main__":
    compare(PROGRAMS)
