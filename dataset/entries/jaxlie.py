# SPDX-License-Identifier: Apache-2.0
"""Lie groups with jaxlie: poses, their algebra, pose graphs."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import jaxlie

from hloenv_cases import Lower, case, floats, ints, key

_GROUPS = [jaxlie.SO2, jaxlie.SE2, jaxlie.SO3, jaxlie.SE3]


@case(group=_GROUPS, batch=[1, 50])
def algebra(lower: Lower, group, batch: int) -> None:
    size, data = group.tangent_dim, group.parameters_dim
    v, p = floats(batch, size), floats(batch, data)
    x = floats(batch, group.space_dim)
    functions = {
        "exp": (lambda v: group.exp(v).parameters(), (v,)),
        "log": (lambda p: group(p).log(), (p,)),
        "adjoint": (lambda p: group(p).adjoint(), (p,)),
        "inverse": (lambda p: group(p).inverse().parameters(), (p,)),
        "compose": (lambda p, q: (group(p) @ group(q)).parameters(), (p, p)),
        "apply": (lambda p, x: group(p) @ x, (p, x)),
        "normalize": (lambda p: group(p).normalize().parameters(), (p,)),
        "matrix": (lambda p: group(p).as_matrix(), (p,)),
        "round_trip": (lambda v: group.exp(v).log(), (v,)),
        "rminus": (lambda p, q: jaxlie.manifold.rminus(group(p), group(q)), (p, p)),
        "interpolate": (
            lambda p, q: jaxlie.manifold.rplus(
                group(p), 0.5 * jaxlie.manifold.rminus(group(p), group(q))
            ).parameters(),
            (p, p),
        ),
    }
    for name, (function, args) in functions.items():
        mapped = jax.vmap(function)
        lower(name, mapped, *args)
        loss = lambda *a, f=mapped: jnp.sum(f(*a) ** 2)
        lower(f"{name}_grad", jax.grad(loss, tuple(range(len(args)))), *args)
    lower("sample", lambda k: group.sample_uniform(k, (batch,)).parameters(), key())


@case(group=[jaxlie.SE2, jaxlie.SE3], size=[(6, 10), (20, 60)])
def pose_graph(lower: Lower, group, size) -> None:
    poses, edges = size
    data = group.parameters_dim

    def residuals(parameters, first, second, measured):
        a, b = group(parameters[first]), group(parameters[second])
        return (group(measured).inverse() @ (a.inverse() @ b)).log()

    def cost(parameters, *rest):
        return jnp.sum(residuals(parameters, *rest) ** 2)

    def gauss_newton(parameters, *rest):
        def moved(delta):
            start = group(parameters)
            return residuals((start @ group.exp(delta)).parameters(), *rest).ravel()

        zero = jnp.zeros((poses, group.tangent_dim))
        r, jacobian = moved(zero), jax.jacfwd(moved)(zero)
        jacobian = jacobian.reshape(len(r), -1)
        normal = jacobian.T @ jacobian + 1e-3 * jnp.eye(jacobian.shape[1])
        step = -jnp.linalg.solve(normal, jacobian.T @ r)
        delta = step.reshape(zero.shape)
        return (group(parameters) @ group.exp(delta)).parameters()

    args = (floats(poses, data), ints(poses, edges), ints(poses, edges),
            floats(edges, data))  # fmt: skip
    lower("cost", cost, *args)
    lower("grad", jax.grad(cost), *args)
    lower("gauss_newton", gauss_newton, *args)
