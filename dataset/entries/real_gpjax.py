# SPDX-License-Identifier: Apache-2.0
"""Gaussian processes of hundreds of points with GPJax."""

from __future__ import annotations

import equinox as eqx
import gpjax as gpx
import jax

from hloenv_cases import Lower, adam, adam_state, case, floats, normal

_KERNELS = {
    "rbf": gpx.kernels.RBF,
    "matern52": gpx.kernels.Matern52,
    "sum": lambda: gpx.kernels.RBF() + gpx.kernels.Linear(),
}


@case(kernel=list(_KERNELS), num=[500])
def regression(lower: Lower, kernel: str, num: int) -> None:
    prior = gpx.gps.Prior(
        mean_function=gpx.mean_functions.Constant(), kernel=_KERNELS[kernel]()
    )
    posterior = prior * gpx.likelihoods.Gaussian()
    params, static = eqx.partition(posterior, eqx.is_inexact_array)
    # Unconstrained: softplus makes lengthscales and variances of them.
    shapes = jax.tree.map(
        lambda a: normal(*a.shape, mean=0.5, deviation=0.1, dtype=a.dtype), params
    )
    x, y = floats(num, 4), floats(num, 1)

    def loss(params, x, y):
        model = eqx.combine(params, static)
        return -gpx.objectives.conjugate_mll(model, gpx.Dataset(x, y))

    def predict(params, x, y, new):
        model = eqx.combine(params, static)
        out = model.predict(new, train_data=gpx.Dataset(x, y))
        return out.mean, out.variance

    def train_step(params, moments, x, y):
        value, grads = jax.value_and_grad(loss)(params, x, y)
        return *adam(grads, moments, params), value

    lower("train_step", train_step, shapes, adam_state(shapes), x, y)
    if kernel == "rbf":
        lower("evidence", loss, shapes, x, y)
        lower("predict", predict, shapes, x, y, floats(100, 4))
