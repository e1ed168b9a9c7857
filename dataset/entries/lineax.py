# SPDX-License-Identifier: Apache-2.0
"""The linear solvers of lineax, and derivatives through them."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import lineax as lx

from hloenv_cases import Lower, case, floats

_SOLVERS = {
    "lu": lx.LU,
    "qr": lx.QR,
    "svd": lx.SVD,
    "cholesky": lx.Cholesky,
    "auto": lx.AutoLinearSolver,
    "cg": lambda: lx.CG(1e-4, 1e-4, max_steps=20),
    "bicgstab": lambda: lx.BiCGStab(1e-4, 1e-4, max_steps=20),
    "gmres": lambda: lx.GMRES(1e-4, 1e-4, max_steps=20, restart=8),
    "normal_cg": lambda: lx.Normal(lx.CG(1e-4, 1e-4, max_steps=20)),
}
_NO_ARGUMENT = ("lu", "qr", "svd", "cholesky")


@case(name=list(_SOLVERS), size=[3, 12, 40])
def solver(lower: Lower, name: str, size: int) -> None:
    make = _SOLVERS[name]
    made = make(well_posed=None) if name == "auto" else make()
    is_definite = name in ("cg", "cholesky")

    def solve(a, b):
        if is_definite:
            matrix = a @ a.T + jnp.eye(size)
            tag = lx.positive_semidefinite_tag
            operator = lx.MatrixLinearOperator(matrix, tag)
        else:
            operator = lx.MatrixLinearOperator(a)
        return lx.linear_solve(operator, b, made, throw=False).value

    a, b = floats(size, size), floats(size)
    lower("solve", solve, a, b)
    lower("solve_vmap", jax.vmap(solve, (None, 0)), a, floats(5, size))
    loss = lambda a, b: jnp.sum(solve(a, b) ** 2)
    lower("grad", jax.grad(loss, (0, 1)), a, b)
    lower("jvp", lambda a, b: jax.jvp(solve, (a, b), (b[:, None] * a, b)), a, b)


@case(size=[5, 30])
def structured(lower: Lower, size: int) -> None:
    d, e, b = floats(size), floats(size - 1), floats(size)

    def tridiagonal(d, e, b):
        operator = lx.TridiagonalLinearOperator(d, e, e)
        return lx.linear_solve(operator, b, lx.Tridiagonal(), throw=False).value

    def diagonal(d, b):
        operator = lx.DiagonalLinearOperator(d)
        return lx.linear_solve(operator, b, lx.Diagonal(), throw=False).value

    def triangular(a, b):
        operator = lx.MatrixLinearOperator(a, lx.lower_triangular_tag)
        return lx.linear_solve(operator, b, lx.Triangular(), throw=False).value

    def least_squares(a, b):
        operator = lx.MatrixLinearOperator(a)
        return lx.linear_solve(operator, b, lx.QR(), throw=False).value

    def implicit(x, b):
        operator = lx.JacobianLinearOperator(
            lambda y, _: jnp.tanh(y) + 2 * y + jnp.roll(y, 1), x
        )
        made = lx.GMRES(1e-4, 1e-4, max_steps=15)
        return lx.linear_solve(operator, b, made, throw=False).value

    def composed(d, e, b):
        first = lx.TridiagonalLinearOperator(d, e, e)
        both = first @ lx.DiagonalLinearOperator(d) + 0.5 * first
        return both.mv(b), both.as_matrix()

    a = floats(size, size)
    for name, function, args in (
        ("tridiagonal", tridiagonal, (d, e, b)),
        ("diagonal", diagonal, (d, b)),
        ("triangular", triangular, (a, b)),
        ("least_squares", least_squares, (floats(2 * size, size), floats(2 * size))),
        ("implicit", implicit, (d, b)),
        ("composed", composed, (d, e, b)),
    ):
        lower(name, function, *args)
        total = lambda *x, f=function: sum(
            jnp.sum(leaf) for leaf in jax.tree.leaves(f(*x)))  # fmt: skip
        lower(f"{name}_grad", jax.grad(total), *args)
