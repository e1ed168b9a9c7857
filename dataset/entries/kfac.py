# SPDX-License-Identifier: Apache-2.0
"""Curvature with kfac-jax: implicit products, factors, whole K-FAC steps' parts."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import kfac_jax

from hloenv_cases import Lower, case, floats, key


def _params(widths):
    pairs = zip(widths[:-1], widths[1:], strict=True)
    return [{"w": floats(m, n), "b": floats(n)} for m, n in pairs]


def _apply(params, x):
    for i, layer in enumerate(params):
        x = kfac_jax.register_dense(
            x @ layer["w"] + layer["b"], x, layer["w"], layer["b"]
        )
        x = jnp.tanh(x) if i + 1 < len(params) else x
    return x


@case(widths=[(6, 12, 3), (16, 32, 32, 8)], loss=["squared", "softmax"])
def curvature(lower: Lower, widths, loss: str) -> None:
    params = _params(widths)
    x, y = floats(10, widths[0]), floats(10, widths[-1])

    def objective(params, batch):
        x, y = batch
        out = _apply(params, x)
        if loss == "squared":
            kfac_jax.register_squared_error_loss(out, y)
            return jnp.mean(jnp.sum((out - y) ** 2, -1))
        kfac_jax.register_softmax_cross_entropy_loss(out, jnp.argmax(y, -1))
        return -jnp.mean(jnp.sum(jax.nn.softmax(y) * jax.nn.log_softmax(out), -1))

    lower("loss", objective, params, (x, y))
    lower("grad", jax.grad(objective), params, (x, y))
    implicit = kfac_jax.ImplicitExactCurvature(objective)
    args = (params, (x, y))
    lower("hessian_product", lambda p, b, v: implicit.multiply_hessian((p, b), v),
          *args, params)  # fmt: skip
    lower("ggn_product", lambda p, b, v: implicit.multiply_ggn((p, b), v),
          *args, params)  # fmt: skip
    lower("fisher_product", lambda p, b, v: implicit.multiply_fisher((p, b), v),
          *args, params)  # fmt: skip
    estimator = kfac_jax.BlockDiagonalCurvature(
        objective, params_index=0, default_estimation_mode="fisher_gradients"
    )
    state = lower.shapes(
        lambda k, p, b: estimator.init(
            rng=k,
            func_args=(p, b),
            exact_powers_to_cache=-1,
            approx_powers_to_cache=None,
            cache_eigenvalues=False,
        ),
        key(),
        *args,
    )

    def update(state, seed, params, batch):
        return estimator.update_curvature_matrix_estimate(
            state=state,
            ema_old=0.95,
            ema_new=0.05,
            identity_weight=0.0,
            batch_size=10,
            rng=seed,
            func_args=(params, batch),
        )

    def precondition(state, grads):
        return estimator.multiply_inverse(
            state=state,
            parameter_structured_vector=grads,
            identity_weight=1e-3,
            exact_power=True,
            use_cached=False,
        )

    lower("update_factors", update, state, key(), *args)
    lower("precondition", precondition, state, params)


@case(n=[8, 32])
def inverses(lower: Lower, n: int) -> None:
    a, b = floats(n, n), floats(n, n)
    lower("psd_inverse", lambda a: kfac_jax.utils.psd_inv(a @ a.T + jnp.eye(n)), a)
    lower("pi_kronecker", lambda a, b: kfac_jax.utils.pi_adjusted_kronecker_inverse(
        a @ a.T + jnp.eye(n), b @ b.T + jnp.eye(n), damping=1e-2), a, b)  # fmt: skip
