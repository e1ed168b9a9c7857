# SPDX-License-Identifier: Apache-2.0
"""Structured linear algebra with CoLA: solves, determinants, eigenvalues, traces."""

from __future__ import annotations

import cola
import jax
import jax.numpy as jnp

from hloenv_cases import Lower, case, floats, normal


def _spd(a):
    return a @ a.T / len(a) + jnp.eye(len(a))


def _operator(kind: str, a):
    n = len(a)
    return {
        "dense": lambda: cola.PSD(cola.ops.Dense(_spd(a))),
        "kronecker": lambda: cola.PSD(
            cola.ops.Kronecker(
                cola.ops.Dense(_spd(a[:8, :8])), cola.ops.Dense(_spd(a[: n // 8, :8]))
            )
        ),
        "block": lambda: cola.PSD(
            cola.ops.BlockDiag(
                cola.ops.Dense(_spd(a[: n // 2])), cola.ops.Dense(_spd(a[n // 2 :]))
            )
        ),
        "tridiagonal": lambda: cola.PSD(
            cola.ops.Tridiagonal(a[0, 1:], jnp.abs(a[1]) + 9.0, a[0, 1:])
        ),
    }[kind]()


@case(kind=["dense", "kronecker", "block", "tridiagonal"], n=[64])
def operator(lower: Lower, kind: str, n: int) -> None:
    a, b = normal(n, n), floats(n, 3)
    functions = {
        "product": lambda a, b: _operator(kind, a) @ b,
        "solve": lambda a, b: cola.inv(_operator(kind, a)) @ b,
        "logdet": lambda a, b: cola.logdet(_operator(kind, a)) + jnp.sum(b),
        "trace": lambda a, b: cola.trace(_operator(kind, a)) + jnp.sum(b),
        "diagonal": lambda a, b: cola.diag(_operator(kind, a)) + b[:, 0],
        "root": lambda a, b: cola.sqrt(_operator(kind, a)) @ b,
        "exponential": lambda a, b: cola.exp(_operator(kind, a)) @ b,
    }
    for name, function in functions.items():
        lower(name, function, a, b)
    for name in ("product", "solve", "logdet"):
        loss = lambda a, b, f=functions[name]: jnp.sum(f(a, b))
        lower(f"{name}_grad", jax.grad(loss), a, b)
