# SPDX-License-Identifier: Apache-2.0
"""Differential equations with diffrax: solvers, adjoints, neural and stochastic."""

from __future__ import annotations

import diffrax as dfx
import jax
import jax.numpy as jnp

from hloenv_cases import Lower, case, floats, key


def _lotka(t, y, args):
    a, b = args
    return jnp.stack([a * y[0] - y[0] * y[1], y[0] * y[1] - b * y[1]])


def _pendulum(t, y, args):
    a, b = args
    return jnp.stack([y[1], -a * jnp.sin(y[0]) - b * y[1]])


def _lorenz(t, y, args):
    a, b = args
    x, y, z = y[0], y[1], y[2 % len(y)]
    return jnp.stack([a * (y - x), x * (28.0 - z) - y, x * y - b * z])


_FIELDS = {"lotka": (_lotka, 2), "pendulum": (_pendulum, 2), "lorenz": (_lorenz, 3)}
_ADAPTIVE = ["Dopri5", "Dopri8", "Tsit5", "Bosh3", "Heun", "Kvaerno5", "KenCarp4"]


@case(
    field=list(_FIELDS),
    solver=["Euler", "Midpoint", "Ralston", "ReversibleHeun", "ImplicitEuler",
            "Kvaerno3", *_ADAPTIVE],
)  # fmt: skip
def ode(lower: Lower, field: str, solver: str) -> None:
    function, size = _FIELDS[field]
    term = dfx.ODETerm(function)
    made = getattr(dfx, solver)()
    if solver in _ADAPTIVE:
        controller = dfx.PIDController(rtol=1e-3, atol=1e-4)
    else:
        controller = dfx.ConstantStepSize()

    def solve(y, args):
        return dfx.diffeqsolve(
            term,
            made,
            0.0,
            1.0,
            0.05,
            y,
            args,
            stepsize_controller=controller,
            saveat=dfx.SaveAt(ts=jnp.linspace(0.0, 1.0, 5)),
            max_steps=64,
            throw=False,
        ).ys

    y, args = floats(size), (floats(), floats())
    lower("solve", solve, y, args)
    if field == "lotka":
        loss = lambda y, a: jnp.sum(solve(y, a) ** 2)
        lower("grad", jax.grad(loss), y, args)
        lower("vmap", jax.vmap(solve, (0, None)), floats(4, size), args)


@case(
    solver=["Euler", "EulerHeun", "ItoMilstein", "Heun", "SPaRK", "SRA1"], size=[1, 4]
)
def sde(lower: Lower, solver: str, size: int) -> None:
    def solve(seed, y):
        path = dfx.VirtualBrownianTree(
            0.0,
            1.0,
            0.01,
            (size,),
            jax.random.wrap_key_data(seed),
            levy_area=dfx.SpaceTimeLevyArea,
        )
        drift = dfx.ODETerm(lambda t, y, _: -y)
        noise = dfx.ControlTerm(lambda t, y, _: 0.1 * jnp.eye(size), path)
        terms = dfx.MultiTerm(drift, noise)
        return dfx.diffeqsolve(
            terms, getattr(dfx, solver)(), 0.0, 1.0, 0.05, y, throw=False
        ).ys

    lower("solve", solve, key(), floats(size))


@case(adjoint=["RecursiveCheckpointAdjoint", "DirectAdjoint", "BacksolveAdjoint"],
      width=[8, 32])  # fmt: skip
def neural_ode(lower: Lower, adjoint: str, width: int) -> None:
    def field(t, y, params):
        for w, b in params[:-1]:
            y = jnp.tanh(y @ w + b)
        w, b = params[-1]
        return y @ w + b

    params = [
        (floats(3, width), floats(width)),
        (floats(width, width), floats(width)),
        (floats(width, 3), floats(3)),
    ]

    def loss(params, y, target):
        def one(y):
            return dfx.diffeqsolve(
                dfx.ODETerm(field),
                dfx.Tsit5(),
                0.0,
                1.0,
                0.1,
                y,
                params,
                adjoint=getattr(dfx, adjoint)(),
                saveat=dfx.SaveAt(t1=True),
                max_steps=32,
                throw=False,
            ).ys[0]

        return jnp.mean((jax.vmap(one)(y) - target) ** 2)

    lower.loss(loss, params, floats(8, 3), floats(8, 3))


@case(kind=["linear", "cubic"], length=[8, 20])
def interpolation(lower: Lower, kind: str, length: int) -> None:
    ts = jnp.linspace(0.0, 1.0, length)

    def evaluate(ys, t):
        if kind == "linear":
            path = dfx.LinearInterpolation(ts, ys)
        else:
            path = dfx.CubicInterpolation(ts, dfx.backward_hermite_coefficients(ts, ys))
        return path.evaluate(t), path.derivative(t)

    lower("evaluate", evaluate, floats(length, 3), floats())
    lower("vmap", jax.vmap(evaluate, (None, 0)), floats(length, 3), floats(16))
