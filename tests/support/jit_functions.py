# SPDX-License-Identifier: Apache-2.0
"""Functions that hloenv.jit decides, and results of comparisons."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from hloenv.jax.compare import Comparison

FASTER = Comparison(speedup=2.0, interval=(1.9, 2.1))
SLOWER = Comparison(speedup=0.5, interval=(0.4, 0.6), reason="it is slower")


def normal(*shape: int, seed: int = 0) -> Any:
    """Random numbers."""
    # Not by jax.random, which compiles for each shape.
    return jnp.asarray(np.random.default_rng(seed).standard_normal(shape, np.float32))


def depthwise(kernel: Any, x: Any) -> Any:
    """A convolution that takes another form, on the module as jax lowers it."""
    return jax.lax.conv_general_dilated(
        x,
        kernel,
        (1, 1),
        "SAME",
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
        feature_group_count=x.shape[-1],
    )


KERNEL, IMAGE = normal(3, 3, 1, 32), normal(1, 28, 28, 32, seed=1)


def filtered(a: Any, noises: Any) -> Any:
    """A loop whose gradient is decided on jaxlib's module."""

    def step(p: Any, noise: Any) -> Any:
        p = a @ p @ a.T + noise
        return p - jnp.outer(p[:, 0], p[0]) / (p[0, 0] + 1), p[0, 0]

    return jax.lax.scan(step, jnp.eye(3), noises)[1].sum()


MATRIX, NOISES = jnp.eye(3) * 0.9 + 0.01, jnp.ones((500, 3, 3)) * 0.01


def small_loop(x: Any) -> Any:
    """The gradient of a loop: two become kernels, on jaxlib's module."""

    def last(a: Any) -> Any:
        def step(p: Any, number: Any) -> Any:
            p = a @ p @ a.T + number
            return p - jnp.outer(p[:, 0], p[0]) / (p[0, 0] + 1), p[0, 0]

        start, numbers = jnp.eye(len(a)), jnp.linspace(0.01, 0.02, 500)
        return jax.lax.scan(step, start, numbers)[1].sum()

    return jax.grad(last)(x)


def square(size: int) -> Any:
    """An argument of `small_loop`."""
    return jnp.eye(size) * 0.9 + 0.01
