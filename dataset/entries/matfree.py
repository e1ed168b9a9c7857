# SPDX-License-Identifier: Apache-2.0
"""Matrix-free linear algebra with matfree."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from matfree import decomp, funm, stochtrace

from hloenv_cases import Lower, case, floats, key


@case(n=[8, 40], rank=[3, 6])
def decompositions(lower: Lower, n: int, rank: int) -> None:
    a, v = floats(n, n), floats(n)

    def product(v, a):
        return (a + a.T) @ v

    makers = {
        "tridiagonal": lambda: decomp.tridiag_sym(rank, reortho="full"),
        "tridiagonal_loose": lambda: decomp.tridiag_sym(rank, reortho="none"),
        "hessenberg": lambda: decomp.hessenberg(rank, reortho="full"),
        "bidiagonal": lambda: decomp.bidiag(rank),
    }
    for name, make in makers.items():
        function = lambda v, a, f=make: f()(product, v, a)
        lower(name, function, v, a)
        total = lambda v, a, f=function: sum(
            jnp.sum(x) for x in jax.tree.leaves(f(v, a)))  # fmt: skip
        lower(f"{name}_grad", jax.grad(total, (0, 1)), v, a)

    def log_determinant(seed, a):
        spd = lambda v, a: a @ (a.T @ v) + v
        integrand = funm.monte_carlo_funm_sym_logdet(
            decomp.tridiag_sym(rank, reortho="full")
        )
        sampler = stochtrace.sampler_normal(v_like(n), num=4)
        return stochtrace.estimator_monte_carlo(integrand, sampler)(spd, seed, a)

    def trace(seed, a):
        sampler = stochtrace.sampler_signs(v_like(n), num=8)
        integrand = stochtrace.monte_carlo_trace()
        return stochtrace.estimator_monte_carlo(integrand, sampler)(product, seed, a)

    lower("log_determinant", log_determinant, key(), a)
    lower("log_determinant_grad", jax.grad(log_determinant, 1), key(), a)
    lower("trace", trace, key(), a)


def v_like(n: int):
    return jnp.ones(n)
