# SPDX-License-Identifier: Apache-2.0
"""Path signatures with signax, and models on top of them."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import signax

from hloenv_cases import Lower, case, floats


@case(size=[(10, 2), (30, 3)], depth=[2, 3, 4])
def signatures(lower: Lower, size, depth: int) -> None:
    path = floats(*size)
    functions = {
        "signature": lambda x: signax.signature(x, depth),
        "log_signature": lambda x: signax.logsignature(x, depth),
        "stream": lambda x: signax.signature(x, depth, stream=True),
    }
    for name, function in functions.items():
        lower(name, function, path)
        loss = lambda x, f=function: sum(jnp.sum(a) for a in jax.tree.leaves(f(x)))
        lower(f"{name}_grad", jax.grad(loss), path)
        lower(f"{name}_vmap", jax.vmap(function), floats(8, *size))


@case(depth=[2, 3], width=[16, 64])
def classifier(lower: Lower, depth: int, width: int) -> None:
    features = sum(3**i for i in range(1, depth + 1))

    def loss(params, paths, targets):
        (w1, b1), (w2, b2) = params
        found = jax.vmap(lambda x: signax.signature(x, depth))(paths)
        out = jnp.tanh(found @ w1 + b1) @ w2 + b2
        return jnp.mean((out - targets) ** 2)

    params = [(floats(features, width), floats(width)), (floats(width, 2), floats(2))]
    lower.loss(loss, params, floats(8, 20, 3), floats(8, 2))
