# SPDX-License-Identifier: Apache-2.0
"""An equivariant message-passing potential of e3x at real extents."""

from __future__ import annotations

import e3x
import jax
import jax.numpy as jnp
from flax import linen as nn

from hloenv_cases import Lower, case, floats, ints, key, uniform, weights


class Potential(nn.Module):
    features: int
    degree: int
    rounds: int

    @nn.compact
    def __call__(self, positions, charges, senders, receivers):
        gap = positions[senders] - positions[receivers]
        basis = e3x.nn.basis(
            gap,
            num=16,
            max_degree=self.degree,
            radial_fn=e3x.nn.reciprocal_bernstein,
            cutoff_fn=lambda r: e3x.nn.smooth_cutoff(r, cutoff=8.0),
        )
        x = e3x.nn.Embed(20, self.features)(charges)
        for _ in range(self.rounds):
            y = e3x.nn.MessagePass()(x, basis, dst_idx=receivers, src_idx=senders)
            x = e3x.nn.add(x, y)
            x = e3x.nn.silu(e3x.nn.Dense(self.features)(x))
        x = e3x.nn.change_max_degree_or_type(
            x, max_degree=0, include_pseudotensors=False
        )
        return jnp.sum(nn.Dense(1)(x))


@case(size=[(32, 2, 2)])
def potential(lower: Lower, size) -> None:
    """64 atoms in a cube of 10, with 1,200 pairs that are near each other."""
    model = Potential(*size)
    args = (
        uniform(0, 10, 64, 3),
        ints(20, 64),
        ints(32, 1200),
        ints(64, 1200, low=32),
    )
    params = weights(lower.shapes(model.init, key(), *args))

    def loss(params, positions, charges, senders, receivers, energy, forces):
        value, slope = jax.value_and_grad(model.apply, 1)(
            params, positions, charges, senders, receivers
        )
        return (value - energy) ** 2 + jnp.mean((slope + forces) ** 2)

    lower("forces", jax.grad(model.apply, 1), params, *args)
    lower.loss(loss, params, *args, floats(), floats(64, 3), only=["train_step"])
