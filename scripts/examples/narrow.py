#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Programs of 16-bit floats and of integers, slow on a CPU under jax.jit.

Language models in bf16, as they are published, and masks, labels and indices. The rules
for these were set on the operations alone; the programs were written to see what they
are worth in a whole. `PROGRAMS` maps a name to a kind and a function that makes the
program and arguments.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from programs import Program, compare, normal

Params = dict[str, Any]
_WIDTH, _HEADS, _HIDDEN, _WORDS = 512, 8, 1376, 8000


def integers(end: int, *shape: int, seed: int = 0) -> Any:
    """Random ones of 32 bits, from 0 to `end`, without it."""
    found = np.random.default_rng(seed).integers(0, end, shape)
    return jnp.asarray(found, jnp.int32)


def bf16(*shape: int, seed: int = 0, scale: float = 0.05) -> Any:
    """Random numbers of 16 bits."""
    return (scale * normal(*shape, seed=seed)).astype(jnp.bfloat16)


def block_params(seed: int) -> Params:
    """The weights of one block."""
    shapes = {
        **dict.fromkeys(("query", "key", "value", "out"), (_WIDTH, _WIDTH)),
        **dict.fromkeys(("gate", "up"), (_WIDTH, _HIDDEN)),
        "down": (_HIDDEN, _WIDTH),
    }
    return {
        name: bf16(*shape, seed=seed + i)
        for i, (name, shape) in enumerate(shapes.items())
    }


def normed(x: Any) -> Any:
    """Root mean square normalization, in 32 bits."""
    wide = x.astype(jnp.float32)
    scale = jax.lax.rsqrt((wide**2).mean(-1, keepdims=True) + 1e-6)
    return (wide * scale).astype(x.dtype)


def attended(queries: Any, keys: Any, values: Any, mask: Any) -> Any:
    """Attention of queries [b, t, h, d] to keys and values [b, s, h, d]."""
    scores = jnp.einsum("bthd,bshd->bhts", queries, keys).astype(jnp.float32)
    scores = jnp.where(mask, scores / 8, -1e9)
    weights = jax.nn.softmax(scores).astype(queries.dtype)
    return jnp.einsum("bhts,bshd->bthd", weights, values)


def block(params: Params, x: Any, cache: Any = None) -> tuple[Any, Any]:
    """One block; with the keys and values of earlier words, of one more."""
    heads = (*x.shape[:2], _HEADS, _WIDTH // _HEADS)
    y = normed(x)
    queries, keys, values = (
        (y @ params[name]).reshape(heads) for name in ("query", "key", "value")
    )
    mask = jnp.tril(jnp.ones((x.shape[1], x.shape[1]), bool))
    if cache is not None:
        keys, values = (
            jnp.concatenate([old, new], 1)
            for old, new in zip(cache, (keys, values), strict=True)
        )
        mask = jnp.ones((1, keys.shape[1]), bool)
    y = attended(queries, keys, values, mask)
    x = x + y.reshape(x.shape) @ params["out"]
    y = normed(x)
    hidden = jax.nn.silu(y @ params["gate"]) * (y @ params["up"])
    return x + hidden @ params["down"], (keys, values)


def decoding(batch: int) -> Program:
    """One more word by four blocks, after 255 words."""

    def run(params: list[Params], table: Any, words: Any, caches: Any) -> Any:
        x = table[words]
        kept = []
        for each, cache in zip(params, caches, strict=True):
            x, cache = block(each, x, cache)
            kept.append(cache)
        return (normed(x) @ table.T)[:, -1], kept

    params = [block_params(10 * i) for i in range(4)]
    old = (batch, 255, _HEADS, _WIDTH // _HEADS)
    caches = [(bf16(*old, seed=i), bf16(*old, seed=50 + i)) for i in range(4)]
    words = integers(_WORDS, batch, 1)
    return run, (params, bf16(_WORDS, _WIDTH), words, caches)


def prefill() -> Program:
    """256 words by two blocks."""

    def run(params: list[Params], x: Any) -> Any:
        for each in params:
            x, _ = block(each, x)
        return x

    return run, ([block_params(10 * i) for i in range(2)], bf16(1, 256, _WIDTH))


def training() -> Program:
    """The gradient of two blocks, of four times 128 words."""

    def loss(params: list[Params], x: Any, target: Any) -> Any:
        for each in params:
            x, _ = block(each, x)
        return ((x - target).astype(jnp.float32) ** 2).mean()

    params = [block_params(10 * i) for i in range(2)]
    x, target = bf16(4, 128, _WIDTH), bf16(4, 128, _WIDTH, seed=1)
    return jax.grad(loss), (params, x, target)


def opening() -> Program:
    """Erosion and dilation of eight masks by a square of five."""

    def run(masks: Any) -> Any:
        window = partial(
            jax.lax.reduce_window,
            window_dimensions=(1, 5, 5),
            window_strides=(1, 1, 1),
            padding="SAME",
        )
        eroded = window(masks, np.uint8(255), jax.lax.min)
        return window(eroded, np.uint8(0), jax.lax.max)

    return run, (integers(256, 8, 512, 512).astype(jnp.uint8),)


def components() -> Program:
    """Labels of the connected parts of a mask, until none changes."""

    def run(mask: Any) -> Any:
        labels = jnp.where(mask, 1 + jnp.arange(mask.size).reshape(mask.shape), 0)

        def grown(state: Any) -> Any:
            labels, _ = state
            wide = jax.lax.reduce_window(
                labels, np.int32(0), jax.lax.max, (3, 3), (1, 1), "SAME"
            )
            larger = jnp.where(mask, wide, 0)
            return larger, (larger != labels).any()

        start = (labels.astype(jnp.int32), jnp.bool_(True))
        return jax.lax.while_loop(lambda state: state[1], grown, start)[0]

    return run, (normal(256, 256) > 0.5,)


def buckets() -> Program:
    """Positions in a table of a million keys, by two multiplicative hashes."""

    def run(keys: Any, size: Any) -> Any:
        first, second = keys * 40503 + 12345, keys * 30011 + 54321
        return first % size, second % size, (first // size) % 7

    return run, (integers(30_000, 1_000_000), jnp.int32(4093))


def calendar() -> Program:
    """Weeks and days of a million events of calendars of different lengths."""

    def run(days: Any, lengths: Any) -> Any:
        weeks, rest = jnp.divmod(days, lengths)
        return weeks, rest, weeks % 52

    return run, (integers(100_000, 1_000_000), 5 + integers(4, 1_000_000, seed=1))


PROGRAMS: dict[str, tuple[str, Callable[[], Program]]] = {
    "one more word": ("language model", partial(decoding, 1)),
    "one more word, batch of 8": ("language model", partial(decoding, 8)),
    "256 words": ("language model", prefill),
    "training, gradient": ("language model", training),
    "opening of masks": ("image", opening),
    "connected parts": ("image", components),
    "positions in a hash table": ("indices", buckets),
    "weeks and days": ("indices", calendar),
}


if __name__ == "__main__":
    compare(PROGRAMS)
