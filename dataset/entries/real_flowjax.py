# SPDX-License-Identifier: Apache-2.0
"""Normalizing flows of flowjax at real extents."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from flowjax import distributions as dist
from flowjax import flows

from hloenv_cases import Lower, case, floats, key, weights


@case(size=[(8, 4, 50, 256), (16, 6, 128, 512)])
def coupling(lower: Lower, size) -> None:
    dim, layers, width, batch = size
    made = flows.coupling_flow(
        jax.random.key(0),
        base_dist=dist.Normal(jnp.zeros(dim)),
        flow_layers=layers,
        nn_width=width,
    )
    params, static = eqx.partition(made, eqx.is_inexact_array)
    # The layers are stacked in front: [layers, outputs, inputs].
    params = weights(params, output_axis=-2)
    x = floats(batch, dim)

    def log_prob(params, x):
        return eqx.combine(params, static).log_prob(x)

    def sample(params, seed):
        made = eqx.combine(params, static)
        return made.sample(jax.random.wrap_key_data(seed), (batch,))

    lower("log_prob", log_prob, params, x)
    lower("sample", sample, params, key())
    loss = lambda p, x: -jnp.mean(log_prob(p, x))
    lower.loss(loss, params, x, only=["train_step"])
