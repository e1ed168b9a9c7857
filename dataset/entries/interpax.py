# SPDX-License-Identifier: Apache-2.0
"""Interpolation in one to three dimensions with interpax."""

from __future__ import annotations

import functools

import interpax
import jax
import jax.numpy as jnp

from hloenv_cases import Lower, case, floats

_METHODS = ["nearest", "linear", "cubic", "cubic2", "catmull-rom", "cardinal",
            "monotonic", "monotonic-0", "akima"]  # fmt: skip


@case(method=_METHODS, size=[(8, 5), (64, 100)])
def line(lower: Lower, method: str, size) -> None:
    n, m = size
    x = jnp.linspace(0.0, 1.0, n)

    def evaluate(q, f, derivative=0):
        return interpax.interp1d(q, x, f, method=method, derivative=derivative)

    q, f = floats(m), floats(n)
    lower("evaluate", evaluate, q, f)
    lower("grad", jax.grad(lambda q, f: jnp.sum(evaluate(q, f)), (0, 1)), q, f)
    if method not in ("nearest", "linear"):
        lower("slope", lambda q, f: evaluate(q, f, 1), q, f)
    if not method.startswith("monotonic") and method != "akima":
        lower("periodic", lambda q, f: interpax.interp1d(
            q, x, f, method=method, period=1.0), q, f)  # fmt: skip


@case(method=["nearest", "linear", "cubic", "catmull-rom"], n=[6, 20])
def surface(lower: Lower, method: str, n: int) -> None:
    x = jnp.linspace(0.0, 1.0, n)
    q, f2, f3 = floats(30), floats(n, n), floats(n, n, n)
    two = lambda q, f: interpax.interp2d(q, q, x, x, f, method=method)
    three = lambda q, f: interpax.interp3d(
        q, q, q, x, x, x, f, method=method)  # fmt: skip
    for name, function, f in (("two", two, f2), ("three", three, f3)):
        lower(name, function, q, f)
        loss = lambda q, f, g=function: jnp.sum(g(q, f) ** 2)
        lower(f"{name}_grad", jax.grad(loss, (0, 1)), q, f)


@case(n=[8, 32])
def splines(lower: Lower, n: int) -> None:
    x = jnp.linspace(0.0, 1.0, n)
    q, f = floats(20), floats(n)
    for name in ("PchipInterpolator", "Akima1DInterpolator", "CubicSpline"):
        kind = functools.partial(getattr(interpax, name), check=False)
        lower(name, lambda q, f, k=kind: k(x, f)(q), q, f)
        lower(f"{name}_integral", lambda f, k=kind: k(x, f).integrate(0.1, 0.9), f)
        lower(f"{name}_grad", jax.grad(
            lambda q, f, k=kind: jnp.sum(k(x, f)(q)), (0, 1)), q, f)  # fmt: skip
