# SPDX-License-Identifier: Apache-2.0
"""From JAX and back: decides the rewrites of a function and runs it in its own jit."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

import hloenv


def mlp(weights: list[jax.Array], x: jax.Array) -> jax.Array:
    """A small network."""
    for weight in weights[:-1]:
        x = jax.nn.gelu(x @ weight)
    return x @ weights[-1]


def main() -> None:
    """Lowers a gradient, lists its alternatives, and runs it decided, inside jax."""
    keys = jax.random.split(jax.random.key(0), 4)
    weights = [jax.random.normal(key, (32, 32)) / 6 for key in keys[:3]]
    x = jax.random.normal(keys[3], (8, 32))

    def loss(weights: list[jax.Array], x: jax.Array) -> jax.Array:
        return jnp.mean(mlp(weights, x) ** 2)

    module = hloenv.HloModule.from_jax(jax.grad(loss), weights, x)
    alternatives = hloenv.HloEnv(module).get_alternatives("algsimp", "cse")
    print(f"{module}: {len(alternatives)} alternatives")

    # budget=0: whatever that is worth. Without it, only where it is clearly faster.
    fast = hloenv.jit(jax.grad(loss), policy="accept-all", budget=0)
    for ours, plain in zip(fast(weights, x), jax.grad(loss)(weights, x), strict=True):
        np.testing.assert_allclose(ours, plain, rtol=1e-4, atol=1e-6)
    decided = fast.decided[0]
    print(
        f"{decided.num_accepted} of {decided.num_alternatives} accepted, outputs equal"
    )


if __name__ == "__main__":
    main()
