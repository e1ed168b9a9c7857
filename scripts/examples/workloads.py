#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Networks and simulations at sizes that run on a CPU, most as training steps.

Small versions, written here, of the ten workloads with which Constable (a compiler that
searches rewrites of JAX programs) was measured, and a network with pooling. `PROGRAMS`
maps a name to a kind and a function that makes the program and its arguments, as in
programs.py.

    python scripts/examples/workloads.py        # all of them, with jax and hloenv
    python scripts/examples/workloads.py llama  # those whose name has this text
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from programs import Program, compare, normal

Params = dict[str, Any]


def weights(*shape: int, seed: int = 0) -> Any:
    """Normal numbers [..., n, m] of standard deviation 1/sqrt(n)."""
    return normal(*shape, seed=seed) / math.sqrt(shape[-2])


def norm(x: Any, scale: Any) -> Any:
    """Layer norm without an offset."""
    centred = x - x.mean(-1, keepdims=True)
    return scale * centred * jax.lax.rsqrt((centred**2).mean(-1, keepdims=True) + 1e-5)


def rms_norm(x: Any, scale: Any) -> Any:
    """Norm by the root of the mean square."""
    return scale * x * jax.lax.rsqrt((x**2).mean(-1, keepdims=True) + 1e-5)


def split_heads(x: Any, heads: int) -> Any:
    """[B, T, D] to [B, heads, T, D / heads]."""
    batch, length, width = x.shape
    return x.reshape(batch, length, heads, width // heads).transpose(0, 2, 1, 3)


def attend(q: Any, k: Any, v: Any, *, is_causal: bool) -> Any:
    """Attention of heads, and these joined again: [B, T, D]."""
    scores = jnp.einsum("bhqd,bhkd->bhqk", q, k) / math.sqrt(q.shape[-1])
    if is_causal:
        rows = jnp.arange(k.shape[2] - q.shape[2], k.shape[2])[:, None]
        scores = jnp.where(rows >= jnp.arange(k.shape[2]), scores, -1e9)
    out = jnp.einsum("bhqk,bhkd->bhqd", jax.nn.softmax(scores), v)
    batch, _, length, _ = out.shape
    return out.transpose(0, 2, 1, 3).reshape(batch, length, -1)


def layer_params(width: int, seed: int) -> Params:
    """Of one layer of a transformer."""
    return {
        "qkv": weights(width, 3 * width, seed=seed),
        "out": weights(width, width, seed=seed + 1),
        "up": weights(width, 4 * width, seed=seed + 2),
        "down": weights(4 * width, width, seed=seed + 3),
        "norm1": jnp.ones(width, jnp.float32),
        "norm2": jnp.ones(width, jnp.float32),
    }


def layer(p: Params, x: Any, *, heads: int, is_causal: bool) -> Any:
    """One layer of a transformer, norms first."""
    q, k, v = jnp.split(norm(x, p["norm1"]) @ p["qkv"], 3, axis=-1)
    q, k, v = (split_heads(each, heads) for each in (q, k, v))
    x = x + attend(q, k, v, is_causal=is_causal) @ p["out"]
    return x + jax.nn.gelu(norm(x, p["norm2"]) @ p["up"]) @ p["down"]


def cross_entropy(logits: Any, labels: Any) -> Any:
    """Mean over all positions."""
    return -jnp.take_along_axis(
        jax.nn.log_softmax(logits), labels[..., None], axis=-1
    ).mean()


def tokens(*shape: int, vocabulary: int) -> Any:
    """Random tokens."""
    return jnp.asarray(
        np.random.default_rng(0).integers(vocabulary, size=shape), jnp.int32
    )


def trained(loss: Callable[..., Any], params: Params, *args: Any) -> Program:
    """A step of gradient descent with momentum."""

    def step(params: Params, momentum: Params, *args: Any) -> Any:
        value, gradient = jax.value_and_grad(loss)(params, *args)
        momentum = jax.tree.map(lambda m, g: 0.9 * m + g, momentum, gradient)
        params = jax.tree.map(lambda p, m: p - 1e-3 * m, params, momentum)
        return params, momentum, value

    return step, (params, jax.tree.map(jnp.zeros_like, params), *args)


def bert() -> Program:
    """Two layers of an encoder, width 256, with masked tokens to predict."""
    vocabulary, width = 2000, 256
    params = {
        "embedding": weights(vocabulary, width) * 0.1,
        "places": weights(64, width, seed=9) * 0.1,
        "layers": [layer_params(width, 10 * i) for i in range(2)],
    }

    def loss(p: Params, words: Any, labels: Any) -> Any:
        x = p["embedding"][words] + p["places"]
        for each in p["layers"]:
            x = layer(each, x, heads=4, is_causal=False)
        return cross_entropy(x @ p["embedding"].T, labels)

    words = tokens(4, 64, vocabulary=vocabulary)
    return trained(loss, params, words, words)


def gpt2() -> Program:
    """A training step of two decoder layers, width 256."""
    vocabulary, width = 2000, 256
    params = {
        "embedding": weights(vocabulary, width) * 0.1,
        "places": weights(96, width, seed=9) * 0.1,
        "layers": [layer_params(width, 10 * i) for i in range(2)],
        "norm": jnp.ones(width, jnp.float32),
    }

    def loss(p: Params, words: Any) -> Any:
        x = p["embedding"][words[:, :-1]] + p["places"]
        for each in p["layers"]:
            x = layer(each, x, heads=4, is_causal=True)
        return cross_entropy(norm(x, p["norm"]) @ p["embedding"].T, words[:, 1:])

    return trained(loss, params, tokens(2, 97, vocabulary=vocabulary))


def jax_md() -> Program:
    """Forces of 400 Lennard-Jones particles in a periodic box, ten steps."""

    def energy(x: Any, side: float) -> Any:
        d = x[:, None] - x[None]
        d = d - side * jnp.round(d / side)
        r2 = (d**2).sum(-1) + jnp.eye(len(x), dtype=x.dtype)
        s6 = r2**-3
        pair = jnp.where((r2 < 6.25) & ~jnp.eye(len(x), dtype=bool), s6**2 - s6, 0)
        return 2 * pair.sum()

    def run(x: Any, v: Any, side: Any) -> Any:
        force = jax.grad(lambda y: -energy(y, side))

        def step(state: Any, _: Any) -> Any:
            x, v = state
            v = v + 0.001 * force(x)
            return (x + 0.001 * v, v), (v**2).sum()

        return jax.lax.scan(step, (x, v), None, length=10)

    grid = np.stack(np.meshgrid(*3 * [np.arange(8)]), -1).reshape(-1, 3)[:400]
    x = jnp.asarray(1.1 * grid + 0.05, jnp.float32)
    return run, (x, 0.1 * normal(400, 3), jnp.float32(8.8))


def splines(x: Any, knots: Any, order: int) -> Any:
    """B-splines on knots: [..., D] to [..., D, number]."""
    x = x[..., None]
    basis = ((x >= knots[:-1]) & (x < knots[1:])).astype(x.dtype)
    for k in range(1, order + 1):
        left = (x - knots[: -k - 1]) / (knots[k:-1] - knots[: -k - 1])
        right = (knots[k + 1 :] - x) / (knots[k + 1 :] - knots[1:-k])
        basis = left * basis[..., :-1] + right * basis[..., 1:]
    return basis


def kan(widths: tuple[int, ...], order: int, batch: int) -> Program:
    """A training step of a Kolmogorov-Arnold network."""
    knots = jnp.linspace(-2, 2, 12 + order, dtype=jnp.float32)
    number = len(knots) - order - 1
    params = [
        {"spline": 0.1 * normal(a, number, b, seed=i), "base": weights(a, b, seed=i)}
        for i, (a, b) in enumerate(itertools.pairwise(widths))
    ]

    def loss(p: Any, x: Any, y: Any) -> Any:
        for each in p:
            bent = jnp.einsum("bdn,dno->bo", splines(x, knots, order), each["spline"])
            x = bent + jax.nn.silu(x) @ each["base"]
        return ((x - y) ** 2).mean()

    x = jnp.tanh(normal(batch, widths[0]))
    return trained(loss, params, x, normal(batch, widths[-1], seed=5))


def rotated(x: Any, places: Any) -> Any:
    """Rotary embedding of [B, heads, T, D]."""
    half = x.shape[-1] // 2
    angles = places[:, None] * 10_000 ** (-jnp.arange(half, dtype=x.dtype) / half)
    a, b = x[..., :half], x[..., half:]
    cos, sin = jnp.cos(angles), jnp.sin(angles)
    return jnp.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1)


def llama() -> Program:
    """One token through two layers of width 512 with a cache of 256 tokens."""
    width, heads, length = 512, 8, 256
    params = [
        {
            "qkv": weights(width, 3 * width, seed=i),
            "out": weights(width, width, seed=i + 1),
            "gate": weights(width, 1376, seed=i + 2),
            "up": weights(width, 1376, seed=i + 3),
            "down": weights(1376, width, seed=i + 4),
            "norm1": jnp.ones(width, jnp.float32),
            "norm2": jnp.ones(width, jnp.float32),
        }
        for i in (0, 10)
    ]

    def run(params: Any, cache: Any, x: Any, place: Any) -> Any:
        caches = []
        for p, (keys, values) in zip(params, cache, strict=True):
            q, k, v = jnp.split(rms_norm(x, p["norm1"]) @ p["qkv"], 3, axis=-1)
            q, k, v = (split_heads(each, heads) for each in (q, k, v))
            at = place[None].astype(jnp.float32)
            keys = jax.lax.dynamic_update_slice_in_dim(keys, rotated(k, at), place, 2)
            values = jax.lax.dynamic_update_slice_in_dim(values, v, place, 2)
            seen = jnp.arange(length) <= place
            scores = jnp.einsum("bhqd,bhkd->bhqk", rotated(q, at), keys) / 8
            share = jax.nn.softmax(jnp.where(seen, scores, -1e9))
            out = jnp.einsum("bhqk,bhkd->bhqd", share, values)
            x = x + out.transpose(0, 2, 1, 3).reshape(x.shape) @ p["out"]
            h = rms_norm(x, p["norm2"])
            x = x + (jax.nn.silu(h @ p["gate"]) * (h @ p["up"])) @ p["down"]
            caches.append((keys, values))
        return x, caches

    cache = [
        tuple(normal(1, heads, length, 64, seed=seed) for seed in (i, i + 1))
        for i in (20, 30)
    ]
    return run, (params, cache, normal(1, 1, width, seed=7), jnp.int32(100))


def maxtext() -> Program:
    """A training step of four decoder layers in a scan, with rematerialization."""
    vocabulary, width, depth = 1000, 192, 4
    one = [layer_params(width, 10 * i) for i in range(depth)]
    params = {
        "embedding": weights(vocabulary, width) * 0.1,
        "layers": jax.tree.map(lambda *each: jnp.stack(each), *one),
    }

    def loss(p: Params, words: Any) -> Any:
        @jax.checkpoint
        def body(x: Any, each: Params) -> Any:
            return layer(each, x, heads=4, is_causal=True), None

        x = jax.lax.scan(body, p["embedding"][words[:, :-1]], p["layers"])[0]
        return cross_entropy(x @ p["embedding"].T, words[:, 1:])

    return trained(loss, params, tokens(2, 65, vocabulary=vocabulary))


def nas_rnn() -> Program:
    """A recurrent cell that a search found: a tree of eight products of gates."""
    width = 64

    def cell(p: Params, h: Any, x: Any) -> Any:
        a = jnp.split(x @ p["x"], 8, axis=-1)
        b = jnp.split(h @ p["h"], 8, axis=-1)
        one = [
            jax.nn.sigmoid(a[0] + b[0]),
            jax.nn.relu(a[1] + b[1]),
            jax.nn.sigmoid(a[2] + b[2]),
            jax.nn.relu(a[3] * b[3]),
            jnp.tanh(a[4] + b[4]),
            jax.nn.sigmoid(a[5] + b[5]),
            jnp.tanh(a[6] + b[6]),
            jax.nn.sigmoid(a[7] + b[7]),
        ]
        two = [
            jnp.tanh(one[0] * one[1]),
            jnp.tanh(one[2] + one[3]),
            jnp.tanh(one[4] * one[5]),
            jax.nn.sigmoid(one[6] + one[7]),
        ]
        return jnp.tanh(jnp.tanh(two[0] + two[1]) * jnp.tanh(two[2] + two[3]))

    def loss(p: Params, xs: Any, y: Any) -> Any:
        def step(h: Any, x: Any) -> Any:
            return cell(p, h, x), None

        h = jax.lax.scan(step, jnp.zeros((16, width), xs.dtype), xs)[0]
        return ((h - y) ** 2).mean()

    params = {name: weights(width, 8 * width, seed=i) for i, name in enumerate("xh")}
    return trained(loss, params, normal(50, 16, width), normal(16, width, seed=3))


def resnet() -> Program:
    """A training step of a ResNet with a block at each of four sizes, 64x64 images."""

    def conv(x: Any, kernel: Any, stride: int = 1) -> Any:
        return jax.lax.conv_general_dilated(
            *(x, kernel, (stride, stride), "SAME"),
            dimension_numbers=("NHWC", "HWIO", "NHWC"),
        )

    def normed(x: Any) -> Any:
        mean = x.mean((0, 1, 2))
        return (x - mean) * jax.lax.rsqrt(((x - mean) ** 2).mean((0, 1, 2)) + 1e-5)

    sizes = (32, 64, 128, 256)
    params: Params = {
        "stem": 0.2 * normal(7, 7, 3, sizes[0]),
        "head": weights(sizes[-1], 10),
        "blocks": [
            {
                "one": normal(3, 3, a, b, seed=i) / math.sqrt(9 * a),
                "two": normal(3, 3, b, b, seed=i + 9) / math.sqrt(9 * b),
                "skip": weights(1, 1, a, b, seed=i + 18),
            }
            for i, (a, b) in enumerate(zip((sizes[0], *sizes), sizes, strict=False))
        ],
    }

    def loss(p: Params, x: Any, labels: Any) -> Any:
        x = jax.nn.relu(normed(conv(x, p["stem"], 2)))
        for i, each in enumerate(p["blocks"]):
            stride = 1 if i == 0 else 2
            y = jax.nn.relu(normed(conv(x, each["one"], stride)))
            y = normed(conv(y, each["two"]))
            x = jax.nn.relu(y + conv(x, each["skip"], stride))
        return cross_entropy(x.mean((1, 2)) @ p["head"], labels)

    return trained(loss, params, normal(4, 64, 64, 3), tokens(4, vocabulary=10))


def pooled() -> Program:
    """A training step of two convolutions with max pooling, 16 images of 32x32."""

    def pool(x: Any) -> Any:
        return jax.lax.reduce_window(
            *(x, -jnp.inf, jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
        )

    params: Params = {
        "one": 0.2 * normal(3, 3, 3, 32),
        "two": 0.05 * normal(3, 3, 32, 64, seed=1),
        "head": weights(8 * 8 * 64, 10),
    }

    def loss(p: Params, x: Any, labels: Any) -> Any:
        for name in ("one", "two"):
            x = jax.lax.conv_general_dilated(
                *(x, p[name], (1, 1), "SAME"),
                dimension_numbers=("NHWC", "HWIO", "NHWC"),
            )
            x = pool(jax.nn.relu(x))
        return cross_entropy(x.reshape(len(x), -1) @ p["head"], labels)

    return trained(loss, params, normal(16, 32, 32, 3), tokens(16, vocabulary=10))


def searchless_chess() -> Program:
    """Values of moves by a transformer over 78 squares and signs, batch 8."""
    width = 128
    params = {
        "embedding": weights(32, width),
        "places": weights(78, width, seed=9),
        "layers": [layer_params(width, 10 * i) for i in range(4)],
        "head": weights(width, 128, seed=8),
    }

    def run(p: Params, board: Any) -> Any:
        x = p["embedding"][board] + p["places"]
        for each in p["layers"]:
            x = layer(each, x, heads=8, is_causal=False)
        return jax.nn.log_softmax(x[:, -1] @ p["head"])

    return run, (params, tokens(8, 78, vocabulary=32))


PROGRAMS: dict[str, tuple[str, Callable[[], Program]]] = {
    "bert, training step": ("workload, transformer", bert),
    "gpt2, training step": ("workload, transformer", gpt2),
    "jax_md, 400 particles": ("workload, simulation", jax_md),
    "kan1, training step": ("workload, splines", partial(kan, (16, 32, 1), 3, 256)),
    "kan2, training step": ("workload, splines", partial(kan, (64, 64, 64, 10), 2, 64)),
    "llama, one token": ("workload, transformer", llama),
    "maxtext, training step": ("workload, transformer", maxtext),
    "nasrnn, training step": ("workload, recurrent", nas_rnn),
    "resnet, training step": ("workload, residual", resnet),
    "pooling, training step": ("workload, convolutions", pooled),
    "searchless chess": ("workload, transformer", searchless_chess),
}


if __name__ == "__main__":
    compare(PROGRAMS)
