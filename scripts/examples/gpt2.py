# SPDX-License-Identifier: Apache-2.0
"""A training step of a small GPT-2 in plain JAX, as a model to work on.

Usage: python scripts/examples/gpt2.py OUT.pb    writes the step's module
       hloenv optimize scripts/examples/gpt2.py:module ...    does the same inside

Pre-norm blocks, causal attention with several heads, learned positions, a tied
output matrix, mean cross entropy, and one step of Adam.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

import hloenv

LAYERS, HEADS, WIDTH, VOCABULARY, LENGTH, BATCH = 4, 4, 128, 512, 64, 4
LEARNING_RATE, BETA1, BETA2, EPSILON = 1e-3, 0.9, 0.999, 1e-8

Params = dict[str, Any]


def init(key: jax.Array) -> Params:
    """Random parameters."""

    def normal(key: jax.Array, *shape: int) -> jax.Array:
        return 0.02 * jax.random.normal(key, shape)

    def norm() -> Params:
        return {"scale": jnp.ones(WIDTH), "bias": jnp.zeros(WIDTH)}

    def block(key: jax.Array) -> Params:
        keys = jax.random.split(key, 4)
        return {
            "norm1": norm(),
            "qkv": normal(keys[0], WIDTH, 3 * WIDTH),
            "out": normal(keys[1], WIDTH, WIDTH),
            "norm2": norm(),
            "up": normal(keys[2], WIDTH, 4 * WIDTH),
            "down": normal(keys[3], 4 * WIDTH, WIDTH),
        }

    keys = jax.random.split(key, LAYERS + 2)
    return {
        "tokens": normal(keys[0], VOCABULARY, WIDTH),
        "positions": normal(keys[1], LENGTH, WIDTH),
        "blocks": [block(key) for key in keys[2:]],
        "norm": norm(),
    }


def _norm(params: Params, x: jax.Array) -> jax.Array:
    mean = x.mean(-1, keepdims=True)
    variance = ((x - mean) ** 2).mean(-1, keepdims=True)
    return (x - mean) * jax.lax.rsqrt(variance + 1e-5) * params["scale"] + params[
        "bias"
    ]


def _attention(params: Params, x: jax.Array) -> jax.Array:
    batch, length, _ = x.shape
    qkv = (x @ params["qkv"]).reshape(batch, length, 3, HEADS, WIDTH // HEADS)
    query, key, value = jnp.moveaxis(qkv, 2, 0)
    scores = jnp.einsum("bqhd,bkhd->bhqk", query, key) / jnp.sqrt(WIDTH / HEADS)
    causal = jnp.tril(jnp.ones((length, length), bool))
    weights = jax.nn.softmax(jnp.where(causal, scores, -1e9))
    mixed = jnp.einsum("bhqk,bkhd->bqhd", weights, value)
    return mixed.reshape(batch, length, WIDTH) @ params["out"]


def logits(params: Params, tokens: jax.Array) -> jax.Array:
    """[B, L] int32 tokens to [B, L, VOCABULARY] logits of the next ones."""
    x = params["tokens"][tokens] + params["positions"]
    for block in params["blocks"]:
        x = x + _attention(block, _norm(block["norm1"], x))
        x = x + jax.nn.gelu(_norm(block["norm2"], x) @ block["up"]) @ block["down"]
    return _norm(params["norm"], x) @ params["tokens"].T


def loss(params: Params, tokens: jax.Array, targets: jax.Array) -> jax.Array:
    """Mean cross entropy."""
    scores = jax.nn.log_softmax(logits(params, tokens))
    return -jnp.take_along_axis(scores, targets[..., None], -1).mean()


def train_step(
    params: Params,
    moments: tuple[Params, Params],
    step: jax.Array,
    tokens: jax.Array,
    targets: jax.Array,
) -> tuple[Params, tuple[Params, Params], jax.Array]:
    """One step of Adam: new parameters, new moments, and the loss before it."""
    value, grads = jax.value_and_grad(loss)(params, tokens, targets)
    first, second = moments
    first = jax.tree.map(lambda m, g: BETA1 * m + (1 - BETA1) * g, first, grads)
    second = jax.tree.map(lambda m, g: BETA2 * m + (1 - BETA2) * g * g, second, grads)
    rate = LEARNING_RATE * jnp.sqrt(1 - BETA2**step) / (1 - BETA1**step)
    params = jax.tree.map(
        lambda p, m, v: p - rate * m / (jnp.sqrt(v) + EPSILON), params, first, second
    )
    return params, (first, second), value


def example_arguments() -> tuple[Any, ...]:
    """Arguments for `train_step`."""
    key = jax.random.key(0)
    params = init(key)
    tokens = jax.random.randint(key, (BATCH, LENGTH), 0, VOCABULARY)
    zeros = jax.tree.map(jnp.zeros_like, params)
    return params, (zeros, zeros), jnp.float32(1), tokens, jnp.roll(tokens, -1, 1)


def module() -> hloenv.HloModule:
    """The training step as JAX lowers it."""
    return hloenv.HloModule.from_jax(train_step, *example_arguments())


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(f"usage: {sys.argv[0]} OUT.pb")
    path = Path(sys.argv[1])
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(module().to_proto())
    print(f"{path}: {module()}")
