# SPDX-License-Identifier: Apache-2.0
"""Nearest neighbours with jaxkd: trees, queries, counts, clusters."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import jaxkd

from hloenv_cases import Lower, case, floats, key


@case(points=[16, 200], dim=[2, 3], k=[1, 5])
def neighbours(lower: Lower, points: int, dim: int, k: int) -> None:
    x, q = floats(points, dim), floats(10, dim)
    lower("build", lambda x: jaxkd.build_tree(x, optimize=False), x)
    lower("query", lambda x, q: jaxkd.query_neighbors(
        jaxkd.build_tree(x, optimize=False), q, k=k), x, q)  # fmt: skip
    lower("count", lambda x, q: jaxkd.count_neighbors(
        jaxkd.build_tree(x, optimize=False), q, r=0.3), x, q)  # fmt: skip
    lower("grad", jax.grad(lambda x, q: jnp.sum(jaxkd.query_neighbors(
        jaxkd.build_tree(x, optimize=False), q, k=k)[1])), x, q)  # fmt: skip


@case(points=[32, 128])
def clusters(lower: Lower, points: int) -> None:
    x = floats(points, 2)
    lower("k_means", lambda k, x: jaxkd.extras.k_means(
        k, x, k=4, steps=5), key(), x)  # fmt: skip
    lower("k_means_optimize", lambda x: jaxkd.extras.k_means_optimize(
        x, x[:4], steps=5), x)  # fmt: skip
