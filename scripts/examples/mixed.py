#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Programs of mixed precision: products of bf16 and bytes, sums of f32.

As people train and run models whose weights are f32 and whose layers compute with bf16,
and models of bytes. The rules were set on single products; these were written after
them. `PROGRAMS` maps a name to a kind and a function that makes the program and
arguments.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from programs import Program, compare, normal

Params = dict[str, Any]
_NARROW = jnp.bfloat16


def weights(*shape: int, seed: int = 0) -> Any:
    """Of a layer, in f32."""
    return normal(*shape, seed=seed) / float(np.sqrt(shape[-2]))


def labels(count: int, classes: int) -> Any:
    """Random classes."""
    found = np.random.default_rng(9).integers(0, classes, count)
    return jnp.asarray(found, jnp.int32)


def dense(x: Any, w: Any) -> Any:
    """A product of bf16."""
    return x.astype(_NARROW) @ w.astype(_NARROW)


def normed(x: Any) -> Any:
    """Layer normalization, in f32."""
    wide = x.astype(jnp.float32)
    centred = wide - wide.mean(-1, keepdims=True)
    return centred * lax.rsqrt((centred**2).mean(-1, keepdims=True) + 1e-5)


def loss_of(logits: Any, wanted: Any) -> Any:
    """Cross-entropy, in f32."""
    chances = jax.nn.log_softmax(logits.astype(jnp.float32))
    return -jnp.take_along_axis(chances, wanted[..., None], -1).mean()


def step_of(loss: Callable[..., Any]) -> Callable[..., Any]:
    """A step of training: gradients, their norm, momentum, weights of f32."""

    def step(params: Any, momentum: Any, *batch: Any) -> tuple[Any, Any, Any]:
        value, found = jax.value_and_grad(loss)(params, *batch)
        norm = jnp.sqrt(sum((each**2).sum() for each in jax.tree.leaves(found)))
        scale = jnp.minimum(1.0, 1.0 / norm)
        momentum = jax.tree.map(lambda m, g: 0.9 * m + scale * g, momentum, found)
        params = jax.tree.map(lambda p, m: p - 0.01 * m, params, momentum)
        return params, momentum, value

    return step


def training(loss: Callable[..., Any], params: Any, *batch: Any) -> Program:
    """A step with its arguments."""
    momentum = jax.tree.map(jnp.zeros_like, params)
    return step_of(loss), (params, momentum, *batch)


def classifier() -> Program:
    """Four layers of 1,024 units, 128 images of handwritten digits."""
    sizes = (784, 1024, 1024, 1024, 10)
    params = [weights(*pair, seed=i) for i, pair in enumerate(pairwise(sizes))]

    def loss(params: list[Any], x: Any, wanted: Any) -> Any:
        for w in params[:-1]:
            x = jax.nn.relu(dense(x, w))
        return loss_of(dense(x, params[-1]), wanted)

    return training(loss, params, normal(128, 784, seed=8), labels(128, 10))


def block(params: Params, x: Any, heads: int) -> Any:
    """A block of a transformer, [b, t, width]."""
    batch, time, width = x.shape
    y = normed(x)
    q, k, v = (
        dense(y, params[name]).reshape(batch, time, heads, width // heads)
        for name in ("q", "k", "v")
    )
    scores = jnp.einsum("bthd,bshd->bhts", q, k).astype(jnp.float32)
    chances = jax.nn.softmax(scores * (width // heads) ** -0.5).astype(_NARROW)
    found = jnp.einsum("bhts,bshd->bthd", chances, v).reshape(x.shape)
    x = x + dense(found, params["out"])
    return x + dense(jax.nn.gelu(dense(normed(x), params["up"])), params["down"])


def block_params(width: int, seed: int) -> Params:
    """Weights of a block."""
    shapes = dict.fromkeys(("q", "k", "v", "out"), (width, width))
    shapes |= {"up": (width, 4 * width), "down": (4 * width, width)}
    return {
        name: weights(*shape, seed=seed + i)
        for i, (name, shape) in enumerate(shapes.items())
    }


def vision() -> Program:
    """Training of four blocks on patches of 8 images."""
    params = {
        "patches": weights(192, 256),
        "blocks": [block_params(256, 10 * i) for i in range(1, 5)],
        "head": weights(256, 100, seed=3),
    }

    def loss(params: Params, images: Any, wanted: Any) -> Any:
        parts = images.reshape(8, 8, 8, 8, 8, 3).transpose(0, 1, 3, 2, 4, 5)
        x = dense(parts.reshape(8, 64, 192), params["patches"])
        for each in params["blocks"]:
            x = block(each, x, 8)
        return loss_of(dense(normed(x).mean(1), params["head"]), wanted)

    return training(loss, params, normal(8, 64, 64, 3, seed=8), labels(8, 100))


def encoder() -> Program:
    """Three blocks over 16 sentences of 64 words."""
    params = [block_params(384, 10 * i) for i in range(3)]

    def run(params: list[Params], x: Any) -> Any:
        for each in params:
            x = block(each, x, 6)
        return normed(x).mean(1)

    return run, (params, normal(16, 64, 384, seed=8))


def adapters() -> Program:
    """Training of adapters of rank 16 beside frozen layers."""
    frozen = [weights(768, 768, seed=i).astype(_NARROW) for i in range(4)]
    params = [(weights(768, 16, seed=i), 0.1 * weights(16, 768)) for i in range(4)]

    def loss(params: Any, x: Any, wanted: Any) -> Any:
        for w, (down, up) in zip(frozen, params, strict=True):
            x = x + jax.nn.silu(dense(x, w) + dense(dense(x, down), up))
        return ((x - wanted) ** 2).mean()

    return training(loss, params, normal(256, 768), normal(256, 768, seed=1))


def experts() -> Program:
    """A layer of eight experts, 32 tokens each, and its gradient."""
    params = (weights(8, 256, 512), weights(8, 512, 256, seed=1))

    def loss(params: Any, x: Any) -> Any:
        up, down = (each.astype(_NARROW) for each in params)
        y = jax.nn.gelu(jnp.einsum("ecd,edf->ecf", x.astype(_NARROW), up))
        return (jnp.einsum("ecf,efd->ecd", y, down).astype(jnp.float32) ** 2).mean()

    return jax.grad(loss), (params, normal(8, 32, 256))


def two_towers() -> Program:
    """Contrastive training of two encoders, 256 pairs."""
    params = [[weights(512, 512, seed=2 * i + j) for j in range(2)] for i in range(2)]

    def loss(params: Any, *sides: Any) -> Any:
        found = []
        for ws, x in zip(params, sides, strict=True):
            y = dense(jax.nn.relu(dense(x, ws[0])), ws[1]).astype(jnp.float32)
            found.append(y / jnp.linalg.norm(y, axis=-1, keepdims=True))
        return loss_of(20 * dense(found[0], found[1].T), jnp.arange(256))

    return training(loss, params, normal(256, 512), normal(256, 512, seed=1))


def recurrent() -> Program:
    """A gated recurrent unit over 64 steps, 32 sequences."""
    params = weights(256, 768), weights(256, 768, seed=1)

    def run(params: Any, x: Any) -> Any:
        w, u = (each.astype(_NARROW) for each in params)

        def step(h: Any, x: Any) -> tuple[Any, Any]:
            a, b = dense(x, w), dense(h, u)
            gates = jax.nn.sigmoid(a[:, :512] + b[:, :512])
            reset, update = gates[:, :256], gates[:, 256:]
            new = jnp.tanh(a[:, 512:] + reset * b[:, 512:])
            h = (update * h + (1 - update) * new).astype(_NARROW)
            return h, h.mean()

        return lax.scan(step, jnp.zeros((32, 256), _NARROW), x)[1]

    return run, (params, normal(64, 32, 256))


def head() -> Program:
    """Loss and gradient of the last layer of a language model, 8,000 words."""
    params = weights(384, 8000)

    def loss(w: Any, x: Any, wanted: Any) -> Any:
        return loss_of(dense(x, w).astype(jnp.float32), wanted)

    return jax.value_and_grad(loss, (0, 1)), (
        params,
        normal(128, 384, seed=1),
        labels(128, 8000),
    )


def messages() -> Program:
    """Messages over 4,000 edges, a layer of 256 units on each."""
    rng = np.random.default_rng(0)
    ends = jnp.asarray(rng.integers(0, 500, (2, 4000)), jnp.int32)
    params = weights(512, 256), weights(256, 256, seed=1)

    def run(params: Any, nodes: Any, ends: Any) -> Any:
        both = jnp.concatenate([nodes[ends[0]], nodes[ends[1]]], 1)
        sent = jax.nn.silu(dense(both, params[0])).astype(jnp.float32)
        return dense(jax.ops.segment_sum(sent, ends[1], 500), params[1])

    return run, (params, normal(500, 256), ends)


def bytes_layers() -> Program:
    """Three layers of int8 weights and uint8 activations."""
    rng = np.random.default_rng(0)
    ws = [jnp.asarray(rng.integers(-127, 128, (512, 512)), jnp.int8) for _ in range(3)]

    def run(ws: Any, x: Any) -> Any:
        for w in ws:
            sums = lax.dot_general(
                *(x, w, (((1,), (0,)), ((), ()))), preferred_element_type=jnp.int32
            )
            x = jnp.clip(sums // 256, 0, 255).astype(jnp.uint8)
        return x

    return run, (ws, jnp.asarray(rng.integers(0, 256, (128, 512)), jnp.uint8))


def sampling() -> Program:
    """Chances of 64 rows of 8,000 words, in f16, and the sums of the largest ones."""

    def run(x: Any) -> Any:
        chances = jax.nn.softmax(x, -1)
        return chances, jnp.cumsum(chances[:, :1024], 1)

    return run, (normal(64, 8000).astype(jnp.float16),)


PROGRAMS: dict[str, tuple[str, Callable[[], Program]]] = {
    "classifier": ("training", classifier),
    "vision transformer": ("training", vision),
    "adapters of low rank": ("training", adapters),
    "two encoders, contrastive": ("training", two_towers),
    "a layer of experts": ("training", experts),
    "last layer of a language model": ("training", head),
    "encoder of sentences": ("inference", encoder),
    "gated recurrent unit": ("inference", recurrent),
    "messages on a graph": ("inference", messages),
    "layers of bytes": ("inference", bytes_layers),
    "chances in float16": ("sampling", sampling),
}


if __name__ == "__main__":
    compare(PROGRAMS)
