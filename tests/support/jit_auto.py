# SPDX-License-Identifier: Apache-2.0
"""Functions that hloenv's rules decide, and results of comparisons."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from hloenv.jax.compare import Comparison

FASTER = Comparison(speedup=2.0, interval=(1.9, 2.1))
SLOWER = Comparison(speedup=0.5, interval=(0.4, 0.6), reason="it is slower")


def normal(*shape, seed=0):
    # Not by jax.random, which compiles for each shape.
    return jnp.asarray(np.random.default_rng(seed).standard_normal(shape, np.float32))


def depthwise(kernel, x):
    return jax.lax.conv_general_dilated(
        x,
        kernel,
        (1, 1),
        "SAME",
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
        feature_group_count=x.shape[-1],
    )


KERNEL, IMAGE = normal(3, 3, 1, 32), normal(1, 28, 28, 32, seed=1)


def filtered(a, noises):
    def step(p, noise):
        p = a @ p @ a.T + noise
        return p - jnp.outer(p[:, 0], p[0]) / (p[0, 0] + 1), p[0, 0]

    return jax.lax.scan(step, jnp.eye(3), noises)[1].sum()


MATRIX, NOISES = jnp.eye(3) * 0.9 + 0.01, jnp.ones((500, 3, 3)) * 0.01
