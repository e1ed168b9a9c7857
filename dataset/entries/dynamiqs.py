# SPDX-License-Identifier: Apache-2.0
"""Quantum dynamics with dynamiqs: closed, open and driven systems."""

from __future__ import annotations

import dynamiqs as dq
import jax
import jax.numpy as jnp

from hloenv_cases import Lower, case, floats


@case(n=[4, 12], method=["Tsit5", "Dopri5", "Euler", "Expm"])
def evolution(lower: Lower, n: int, method: str) -> None:
    a = dq.destroy(n)
    times = jnp.linspace(0.0, 1.0, 6)
    made = (
        dq.method.Euler(dt=0.05) if method == "Euler" else getattr(dq.method, method)()
    )

    def closed(w, k):
        h = w * a.dag() @ a + k * (a + a.dag())
        out = dq.sesolve(h, dq.fock(n, 1), times, method=made, progress_meter=False)
        return out.states.to_jax()

    def open_(w, kappa):
        h = w * a.dag() @ a
        jumps = [jnp.sqrt(kappa) * a]
        out = dq.mesolve(
            h, jumps, dq.fock(n, 1), times, method=made, progress_meter=False
        )
        return out.states.to_jax()

    def infidelity(w, k):
        final = closed(w, k)[-1]
        return 1.0 - jnp.abs(final[0, 0]) ** 2

    lower("closed", closed, floats(), floats())
    lower("open", open_, floats(), floats())
    lower("closed_grad", jax.grad(infidelity, (0, 1)), floats(), floats())
    lower("open_grad", jax.grad(lambda w, k: jnp.abs(open_(w, k)[-1][0, 0])),
          floats(), floats())  # fmt: skip


@case(n=[3, 10])
def states(lower: Lower, n: int) -> None:
    lower("coherent", lambda a: dq.coherent(n, a).to_jax(), floats())
    lower("displace", lambda a: dq.displace(n, a).to_jax(), floats())
    lower("wigner", lambda a: dq.wigner(dq.coherent(n, a), npixels=11)[2], floats())
    lower("entropy", lambda a: dq.entropy_vn(dq.coherent(n, a)), floats())
    lower("squeeze", lambda a: dq.squeeze(n, a).to_jax(), floats())
