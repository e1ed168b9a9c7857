# SPDX-License-Identifier: Apache-2.0
"""Gaussian processes with GPJax: kernels, objectives, predictions."""

from __future__ import annotations

import equinox as eqx
import gpjax as gpx
import jax
import jax.numpy as jnp

from hloenv_cases import Lower, adam, adam_state, case, floats

_KERNELS = {
    "rbf": gpx.kernels.RBF,
    "matern12": gpx.kernels.Matern12,
    "matern32": gpx.kernels.Matern32,
    "matern52": gpx.kernels.Matern52,
    "periodic": gpx.kernels.Periodic,
    "rational": gpx.kernels.RationalQuadratic,
    "exponential": gpx.kernels.PoweredExponential,
    "linear": gpx.kernels.Linear,
    "polynomial": gpx.kernels.Polynomial,
    "sum": lambda: gpx.kernels.RBF() + gpx.kernels.Linear(),
    "product": lambda: gpx.kernels.Matern32() * gpx.kernels.Periodic(),
}


@case(kernel=list(_KERNELS), size=[(10, 1), (30, 3)])
def regression(lower: Lower, kernel: str, size) -> None:
    n, dim = size
    prior = gpx.gps.Prior(
        mean_function=gpx.mean_functions.Constant(), kernel=_KERNELS[kernel]()
    )
    posterior = prior * gpx.likelihoods.Gaussian()
    params, static = eqx.partition(posterior, eqx.is_inexact_array)
    shapes = jax.tree.map(lambda a: floats(*a.shape), params)
    x, y = floats(n, dim), floats(n, 1)

    def loss(params, x, y):
        model = eqx.combine(params, static)
        return -gpx.objectives.conjugate_mll(model, gpx.Dataset(x, y))

    def left_out(params, x, y):
        model = eqx.combine(params, static)
        return -gpx.objectives.conjugate_loocv(model, gpx.Dataset(x, y))

    def predict(params, x, y, new):
        model = eqx.combine(params, static)
        out = model.predict(new, train_data=gpx.Dataset(x, y))
        return out.mean, out.variance

    def train_step(params, moments, x, y):
        value, grads = jax.value_and_grad(loss)(params, x, y)
        return *adam(grads, moments, params), value

    lower("evidence", loss, shapes, x, y)
    lower("grad", jax.grad(loss), shapes, x, y)
    lower("train_step", train_step, shapes, adam_state(shapes), x, y)
    lower("left_out_grad", jax.grad(left_out), shapes, x, y)
    lower("predict", predict, shapes, x, y, floats(7, dim))


@case(kernel=list(_KERNELS), size=[(12, 2), (64, 4)])
def gram(lower: Lower, kernel: str, size) -> None:
    made = _KERNELS[kernel]()
    x, y = floats(*size), floats(8, size[1])
    lower("gram", lambda x: made.cross_covariance(x, x), x)
    lower("cross", lambda x, y: made.cross_covariance(x, y), x, y)
    lower("grad", jax.grad(lambda x, y: jnp.sum(made.cross_covariance(x, y))), x, y)
