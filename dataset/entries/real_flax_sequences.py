# SPDX-License-Identifier: Apache-2.0
"""Language models, recurrent nets, perceptrons and graph nets at real extents.

Written with flax.linen and flax.nnx.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from flax import linen as nn
from flax import nnx

from hloenv_cases import Lower, case, floats, ints, key, normal, weights


def _cross_entropy(logits, labels):
    scores = jax.nn.log_softmax(logits)
    return -jnp.mean(jnp.take_along_axis(scores, labels[..., None], -1))


class Gpt2(nn.Module):
    width: int
    depth: int
    heads: int
    vocabulary: int

    @nn.compact
    def __call__(self, tokens):
        embed = nn.Embed(self.vocabulary, self.width)
        x = embed(tokens)
        x = x + self.param("pos", nn.initializers.normal(0.02), x.shape[1:])
        mask = nn.make_causal_mask(tokens)
        for _ in range(self.depth):
            y = nn.LayerNorm()(x)
            x = x + nn.MultiHeadDotProductAttention(self.heads)(y, y, mask=mask)
            y = nn.gelu(nn.Dense(4 * self.width)(nn.LayerNorm()(x)))
            x = x + nn.Dense(self.width)(y)
        return embed.attend(nn.LayerNorm()(x))


@case(size=[(256, 4, 4), (512, 2, 8), (768, 2, 12)])
def gpt2(lower: Lower, size) -> None:
    model = Gpt2(*size, vocabulary=8192)
    tokens = ints(8192, 1, 128)
    params = weights(lower.shapes(model.init, key(), tokens))

    def loss(params, tokens):
        return _cross_entropy(model.apply(params, tokens)[:, :-1], tokens[:, 1:])

    lower("forward", model.apply, params, tokens)
    lower.loss(loss, params, tokens, only=["train_step"])


class Recurrent(nn.Module):
    cell: str
    width: int

    @nn.compact
    def __call__(self, tokens):
        x = nn.Embed(1000, self.width)(tokens)
        x = nn.RNN(getattr(nn, self.cell)(self.width))(x)
        return nn.Dense(1000)(x)


@case(
    cell=["OptimizedLSTMCell", "LSTMCell", "GRUCell"],
    size=[(128, 1, 64), (256, 16, 64)],
)
def rnn(lower: Lower, cell: str, size) -> None:
    width, batch, length = size
    model = Recurrent(cell, width)
    tokens = ints(1000, batch, length)
    params = weights(lower.shapes(model.init, key(), tokens))
    loss = lambda p, t: _cross_entropy(model.apply(p, t)[:, :-1], t[:, 1:])
    lower("forward", model.apply, params, tokens)
    if cell != "LSTMCell":
        lower.loss(loss, params, tokens, only=["train_step"])


@case(batch=[1, 128])
def mlp(lower: Lower, batch: int) -> None:
    layers = [nn.Dense(512), nn.relu, nn.Dense(512), nn.relu, nn.Dense(10)]
    model = nn.Sequential(layers)
    x, labels = floats(batch, 784), ints(10, batch)
    params = weights(lower.shapes(model.init, key(), x))
    if batch > 1:
        lower("forward", model.apply, params, x)
    loss = lambda p, x, y: _cross_entropy(model.apply(p, x), y)
    lower.loss(loss, params, x, labels, only=["train_step"])


class GraphNet(nn.Module):
    width: int
    rounds: int
    kind: str

    @nn.compact
    def __call__(self, nodes, senders, receivers):
        num = nodes.shape[0]
        for _ in range(self.rounds):
            h = nn.Dense(self.width)(nodes)
            if self.kind == "attention":
                pair = jnp.concatenate([h[senders], h[receivers]], -1)
                score = nn.leaky_relu(nn.Dense(1)(pair), 0.2)[:, 0]
                top = jax.ops.segment_max(score, receivers, num)
                weight = jnp.exp(score - top[receivers])
                total = jax.ops.segment_sum(weight, receivers, num) + 1e-9
                messages = h[senders] * (weight / total[receivers])[:, None]
            else:
                pair = jnp.concatenate([h[senders], h[receivers] - h[senders]], -1)
                messages = nn.Dense(self.width)(nn.relu(nn.Dense(self.width)(pair)))
            nodes = nn.relu(h + jax.ops.segment_sum(messages, receivers, num))
        return nn.Dense(7)(nodes)


@case(kind=["attention", "edge"])
def graph_network(lower: Lower, kind: str) -> None:
    """A graph as large as Cora's: 2,708 nodes, 10,556 edges."""
    model = GraphNet(32, 2, kind)
    args = (floats(2708, 64), ints(2708, 10556), ints(2708, 10556))
    params = weights(lower.shapes(model.init, key(), *args))
    lower("forward", model.apply, params, *args)
    lower.loss(
        lambda p, *x: _cross_entropy(model.apply(p, *x[:-1]), x[-1]),
        params,
        *args,
        ints(7, 2708),
        only=["train_step"],
    )


class LlamaBlock(nnx.Module):
    """Grouped-query attention with rotary positions and a cache; a gated perceptron."""

    def __init__(self, width: int, heads: int, groups: int, rngs: nnx.Rngs):
        self.heads, self.groups, self.size = heads, groups, width // heads

        def linear(inputs, outputs):
            return nnx.Linear(inputs, outputs, use_bias=False, rngs=rngs)

        self.query, self.output = linear(width, width), linear(width, width)
        self.key = linear(width, groups * self.size)
        self.value = linear(width, groups * self.size)
        self.gate, self.up = linear(width, 3 * width), linear(width, 3 * width)
        self.down = linear(3 * width, width)
        self.first = nnx.RMSNorm(width, rngs=rngs)
        self.second = nnx.RMSNorm(width, rngs=rngs)

    def rotate(self, x, positions):
        half = self.size // 2
        angle = positions[:, None] * 1e4 ** (-jnp.arange(half) / half)
        cos, sin = jnp.cos(angle)[:, None], jnp.sin(angle)[:, None]
        a, b = x[..., :half], x[..., half:]
        return jnp.concatenate([a * cos - b * sin, a * sin + b * cos], -1)

    def __call__(self, x, cache, start):
        """One sequence: x is [tokens, width], each cache [length, groups, size]."""
        y, length = self.first(x), x.shape[0]
        positions = start + jnp.arange(length)
        q = self.rotate(self.query(y).reshape(length, self.heads, -1), positions)
        k = self.rotate(self.key(y).reshape(length, self.groups, -1), positions)
        v = self.value(y).reshape(length, self.groups, -1)
        keys = jax.lax.dynamic_update_slice(cache[0], k, (start, 0, 0))
        values = jax.lax.dynamic_update_slice(cache[1], v, (start, 0, 0))
        q = q.reshape(length, self.groups, self.heads // self.groups, self.size)
        scores = jnp.einsum("tghd,sgd->ghts", q, keys) / self.size**0.5
        seen = jnp.arange(keys.shape[0]) <= positions[:, None]
        scores = jax.nn.softmax(jnp.where(seen, scores, -1e9))
        out = jnp.einsum("ghts,sgd->tghd", scores, values).reshape(length, -1)
        x = x + self.output(out)
        y = self.second(x)
        return x + self.down(nnx.silu(self.gate(y)) * self.up(y)), (keys, values)


@case(size=[(512, 8, 4), (768, 12, 4)])
def llama(lower: Lower, size) -> None:
    width, heads, groups = size

    class Model(nnx.Module):
        def __init__(self, rngs):
            self.blocks = nnx.List(
                [LlamaBlock(width, heads, groups, rngs) for _ in range(2)]
            )

        def __call__(self, x, caches, start):
            new = []
            for block, cache in zip(self.blocks, caches, strict=True):
                x, cache = block(x, cache, start)
                new.append(cache)
            return x, new

    graph, state = nnx.split(nnx.eval_shape(lambda: Model(nnx.Rngs(0))))
    state = weights(jax.tree.map(lambda s: floats(*s.shape, dtype=s.dtype), state))
    cache = normal(256, groups, width // heads)
    caches = [(cache, cache)] * 2

    def apply(state, x, caches, start):
        return nnx.merge(graph, state)(x, caches, start)

    lower("prefill", apply, state, floats(128, width), caches, ints(1, low=0))
    lower("decode_step", apply, state, floats(1, width), caches, ints(200, low=199))
    loss = lambda s, x, c: jnp.mean(apply(s, x, c, 0)[0] ** 2)
    lower("grad", jax.grad(loss), state, floats(128, width), caches)
