# SPDX-License-Identifier: Apache-2.0
"""Differentiable quadratic programs with qpax."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import qpax

from hloenv_cases import Lower, case, floats, uniform


def _arguments(variables: int, equalities: int, inequalities: int, *batch: int):
    return (
        floats(*batch, variables, variables),
        floats(*batch, variables),
        floats(*batch, equalities, variables),
        floats(*batch, equalities),
        floats(*batch, inequalities, variables),
        uniform(1.0, 2.0, *batch, inequalities),
    )


@case(size=[(3, 1, 4), (8, 2, 10), (24, 6, 30)], backend=["e", "i"])
def program(lower: Lower, size, backend: str) -> None:
    def solve(root, *rest):
        matrix = root @ root.T + jnp.eye(size[0])
        return qpax.solve_qp(matrix, *rest, backend=backend)[:4]

    def loss(root, *rest):
        matrix = root @ root.T + jnp.eye(size[0])
        x = qpax.solve_qp_primal(matrix, *rest, backend=backend)
        return jnp.sum(x**2)

    arguments = _arguments(*size)
    lower("solve", solve, *arguments)
    lower("grad", jax.grad(loss, (0, 1, 4)), *arguments)
    lower("batch", jax.vmap(solve), *_arguments(*size, 16))


@case(size=[(4, 0, 6), (16, 0, 24)])
def elastic(lower: Lower, size) -> None:
    root, q, _, _, g, h = _arguments(*size)

    def solve(root, q, g, h):
        matrix = root @ root.T + jnp.eye(size[0])
        return qpax.solve_qp_elastic(matrix, q, g, h, 10.0)[:3]

    lower("solve", solve, root, q, g, h)
    lower(
        "grad",
        jax.grad(
            lambda root, q, g, h: jnp.sum(
                qpax.solve_qp_elastic_primal(
                    root @ root.T + jnp.eye(size[0]), q, g, h, 10.0
                )
            ),
            (0, 1),
        ),
        *(root, q, g, h),
    )
