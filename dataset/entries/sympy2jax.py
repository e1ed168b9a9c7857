# SPDX-License-Identifier: Apache-2.0
"""Symbolic expressions as JAX programs with sympy2jax."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import sympy
import sympy2jax

from hloenv_cases import Lower, case, floats, uniform

x, y, z = sympy.symbols("x y z")
_EXPRESSIONS = {
    "polynomial": [(x + 2 * y) ** 5 + 3 * z * x**2, x * y * z - 7 * y**3],
    "trigonometric": [
        sympy.sin(x) * sympy.cos(y * z),
        sympy.atan2(y, x) + sympy.tan(z),
    ],
    "lagrangian": [
        sympy.diff((x**2 + y**2) / 2 - sympy.cos(x - y) - sympy.cos(x), v)
        for v in (x, y)
    ],
    "gaussian": [sympy.exp(-(x**2) / (2 * (1 + z**2))) / sympy.sqrt(1 + z**2)],
    "rational": [(x**3 - y) / (1 + x**2 * z**2), sympy.log(1 + y**2) / (2 + z**2)],
    "hessian": [
        sympy.diff(sympy.exp(sympy.sin(x * y)) * z, a, b)
        for a in (x, y)
        for b in (x, y, z)
    ],
}


@case(name=list(_EXPRESSIONS))
def expression(lower: Lower, name: str) -> None:
    module = sympy2jax.SymbolicModule(_EXPRESSIONS[name])
    params, static = eqx.partition(module, eqx.is_inexact_array)
    params = jax.tree.map(lambda a: uniform(0.5, 1.5, *a.shape), params)

    def evaluate(params, values):
        found = eqx.combine(params, static)(**values)
        return jnp.stack(jnp.broadcast_arrays(*jax.tree.leaves(found)))

    used = sorted({str(s) for e in _EXPRESSIONS[name] for s in e.free_symbols})
    values = {key: floats(256) for key in used}
    loss = lambda p, v: jnp.mean(evaluate(p, v) ** 2)
    lower("evaluate", evaluate, params, values)
    lower("grad", jax.grad(loss, 1), params, values)
