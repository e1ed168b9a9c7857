# SPDX-License-Identifier: Apache-2.0
"""Equivariant networks with e3x: layers and a message-passing potential."""

from __future__ import annotations

import e3x
import jax
import jax.numpy as jnp
from flax import linen as nn

from hloenv_cases import Lower, case, floats, ints, key


class Potential(nn.Module):
    features: int
    degree: int
    rounds: int

    @nn.compact
    def __call__(self, positions, charges, senders, receivers):
        gap = positions[senders] - positions[receivers]
        basis = e3x.nn.basis(
            gap,
            num=8,
            max_degree=self.degree,
            radial_fn=e3x.nn.reciprocal_bernstein,
            cutoff_fn=lambda r: e3x.nn.smooth_cutoff(r, cutoff=5.0),
        )
        x = e3x.nn.Embed(10, self.features)(charges)
        for _ in range(self.rounds):
            y = e3x.nn.MessagePass()(x, basis, dst_idx=receivers, src_idx=senders)
            x = e3x.nn.add(x, y)
            x = e3x.nn.silu(e3x.nn.Dense(self.features)(x))
        x = e3x.nn.change_max_degree_or_type(
            x, max_degree=0, include_pseudotensors=False
        )
        return jnp.sum(nn.Dense(1)(x))


@case(size=[(8, 1, 1), (16, 2, 2), (16, 2, 3)])
def potential(lower: Lower, size) -> None:
    model = Potential(*size)
    args = (floats(9, 3), ints(10, 9), ints(9, 40), ints(9, 40))
    params = lower.shapes(model.init, key(), *args)

    def loss(params, positions, charges, senders, receivers, energy, forces):
        value, slope = jax.value_and_grad(model.apply, 1)(
            params, positions, charges, senders, receivers
        )
        return (value - energy) ** 2 + jnp.mean((slope + forces) ** 2)

    lower("energy", model.apply, params, *args)
    lower("forces", jax.grad(model.apply, 1), params, *args)
    lower.loss(loss, params, *args, floats(), floats(9, 3))


@case(degree=[1, 2, 3], features=[4, 16])
def layers(lower: Lower, degree: int, features: int) -> None:
    x = floats(6, 2, (degree + 1) ** 2, features)
    made = {
        "dense": lambda: e3x.nn.Dense(features),
        "tensor_dense": lambda: e3x.nn.TensorDense(features),
    }
    for name, make in made.items():
        layer = make()
        params = lower.shapes(layer.init, key(), x)
        lower(f"{name}_forward", layer.apply, params, x)
        loss = lambda p, x, f=layer.apply: jnp.sum(f(p, x) ** 2)
        lower(f"{name}_grad", jax.grad(loss), params, x)
    for name in ("silu", "gelu", "relu", "softplus"):
        lower(name, getattr(e3x.nn, name), x)
    lower("harmonics", lambda r: e3x.so3.spherical_harmonics(r, degree), floats(20, 3))
    lower("harmonics_grad", jax.grad(lambda r: jnp.sum(
        e3x.so3.spherical_harmonics(r, degree))), floats(20, 3))  # fmt: skip
