# SPDX-License-Identifier: Apache-2.0
"""Spectral time steppers of partial differential equations with exponax."""

from __future__ import annotations

import exponax as ex
import jax
import jax.numpy as jnp

from hloenv_cases import Lower, case, floats

_STEPPERS = {
    "burgers": lambda d, n: ex.stepper.Burgers(d, 1.0, n, 0.01),
    "diffusion": lambda d, n: ex.stepper.Diffusion(d, 1.0, n, 0.01),
    "kuramoto": lambda d, n: ex.stepper.KuramotoSivashinsky(d, 30.0, n, 0.1),
    "swift_hohenberg": lambda d, n: ex.stepper.reaction.SwiftHohenberg(d, 9.0, n, 0.1),
    "gray_scott": lambda d, n: ex.stepper.reaction.GrayScott(d, 2.0, n, 1.0),
}


def _lower_all(lower: Lower, stepper, n: int, dims: int) -> None:
    u = floats(stepper.num_channels, *dims * (n,))
    lower("step", lambda u: stepper(u), u)
    lower("rollout", lambda u: ex.rollout(stepper, 10)(u), u)
    lower("repeated", lambda u: ex.RepeatedStepper(stepper, 5)(u), u)

    def loss(u, target):
        return jnp.mean((ex.repeat(stepper, 3)(u) - target) ** 2)

    lower("grad", jax.grad(loss), u, u)


@case(name=list(_STEPPERS), size=[(1, 64), (2, 24)])
def equation(lower: Lower, name: str, size) -> None:
    dims, n = size
    _lower_all(lower, _STEPPERS[name](dims, n), n, dims)


@case(n=[16, 48])
def navier_stokes(lower: Lower, n: int) -> None:
    stepper = ex.stepper.NavierStokesVorticity(2, 1.0, n, 0.01)
    _lower_all(lower, stepper, n, 2)


@case(n=[32, 100], dims=[1, 2])
def tools(lower: Lower, n: int, dims: int) -> None:
    u = floats(1, *dims * (n,))
    lower("spectrum", lambda u: ex.get_spectrum(u), u)
    lower("derivative", lambda u: ex.derivative(u, 1.0), u)
    lower("finer", lambda u: ex.map_between_resolutions(u, 2 * n), u)
    lower("error", lambda u, v: ex.metrics.nRMSE(u, v), u, u)
