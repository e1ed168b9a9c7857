# SPDX-License-Identifier: Apache-2.0
"""Normalizing flows of flowjax: density, sampling, training."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from flowjax import bijections as bij
from flowjax import distributions as dist
from flowjax import flows

from hloenv_cases import Lower, case, floats, key

_FLOWS = {
    "coupling": flows.coupling_flow,
    "maf": flows.masked_autoregressive_flow,
    "bnaf": flows.block_neural_autoregressive_flow,
    "planar": flows.planar_flow,
    "triangular": flows.triangular_spline_flow,
}


@case(name=list(_FLOWS), size=[(2, 2), (5, 4)], conditional=[False, True])
def flow(lower: Lower, name: str, size, conditional: bool) -> None:
    dim, layers = size
    extra = {"cond_dim": 3} if conditional else {}
    if name == "planar" and conditional:
        extra |= {"width_size": 16, "depth": 1}
    made = _FLOWS[name](
        jax.random.key(0),
        base_dist=dist.Normal(jnp.zeros(dim)),
        flow_layers=layers,
        **extra,
    )
    params, static = eqx.partition(made, eqx.is_inexact_array)
    args = (floats(16, 3),) if conditional else ()

    def loss(params, x, *condition):
        return -jnp.mean(eqx.combine(params, static).log_prob(x, *condition))

    lower("log_prob", lambda p, x, *c: eqx.combine(p, static).log_prob(x, *c),
          params, floats(16, dim), *args)  # fmt: skip
    lower.loss(loss, params, floats(16, dim), *args)
    if name in ("coupling", "maf", "triangular") and not conditional:
        lower("sample", lambda p, k: eqx.combine(p, static).sample(
            jax.random.wrap_key_data(k), (8,)), params, key())  # fmt: skip


@case(size=[3, 12])
def bijections(lower: Lower, size: int) -> None:
    x = floats(size)
    made = {
        "affine": lambda: bij.Affine(jnp.ones(size), jnp.ones(size) * 2),
        "tanh": lambda: bij.Tanh((size,)),
        "leaky_tanh": lambda: bij.LeakyTanh(2, (size,)),
        "softplus": lambda: bij.SoftPlus((size,)),
        "exp": lambda: bij.Exp((size,)),
        "triangular": lambda: bij.TriangularAffine(jnp.zeros(size), jnp.eye(size)),
        "permute": lambda: bij.Permute(jnp.arange(size)[::-1]),
        "spline": lambda: bij.RationalQuadraticSpline(knots=5, interval=3),
        "sandwich": lambda: bij.Sandwich(
            bij.Tanh((size,)), bij.Affine(jnp.ones(size), jnp.ones(size))
        ),
    }
    for name, make in made.items():
        shape = floats() if name == "spline" else x
        lower(f"{name}_forward", lambda x, f=make: f().transform_and_log_det(x), shape)
        lower(f"{name}_inverse", lambda x, f=make: f().inverse_and_log_det(x), shape)
