# SPDX-License-Identifier: Apache-2.0
"""Array-ish types of quax pushed through ordinary models: LoRA, units of structure."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import quax
from quax.examples import lora

from hloenv_cases import Lower, case, floats


@case(widths=[(8, 16, 4), (32, 64, 64, 8)], rank=[1, 4])
def low_rank(lower: Lower, widths, rank: int) -> None:
    keys = jax.random.split(jax.random.PRNGKey(0), len(widths))

    def make(seed):
        mlp = eqx.nn.MLP(widths[0], widths[-1], widths[1], len(widths) - 1, key=seed)
        return lora.loraify(mlp, rank=rank, key=seed)

    model = make(keys[0])
    params, static = eqx.partition(model, eqx.is_inexact_array)

    def forward(params, x):
        return jax.vmap(quax.quaxify(eqx.combine(params, static)))(x)

    def loss(params, x, y):
        return jnp.mean((forward(params, x) - y) ** 2)

    x, y = floats(16, widths[0]), floats(16, widths[-1])
    lower("forward", forward, params, x)
    lower.loss(loss, params, x, y)
