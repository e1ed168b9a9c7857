# SPDX-License-Identifier: Apache-2.0
"""Layers and models of flax.linen and flax.nnx."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from flax import linen as nn
from hloenv_cases import Lower, case, floats, ints, key


class Mlp(nn.Module):
    widths: tuple[int, ...]

    @nn.compact
    def __call__(self, x):
        for width in self.widths[:-1]:
            x = nn.gelu(nn.LayerNorm()(nn.Dense(width)(x)))
        return nn.Dense(self.widths[-1])(x)


@case(widths=[(32, 10), (128, 64, 10), (256, 256, 256, 10)], batch=[8, 64])
def mlp(lower: Lower, widths, batch) -> None:
    model = Mlp(tuple(widths))
    x, labels = floats(batch, 48), ints(10, batch)
    params = lower.shapes(model.init, key(), x)
    lower("forward", model.apply, params, x)

    def loss(params, x, labels):
        logits = nn.log_softmax(model.apply(params, x))
        return -jnp.mean(jnp.take_along_axis(logits, labels[:, None], 1))

    lower.loss(loss, params, x, labels)
