# SPDX-License-Identifier: Apache-2.0
"""Models at real extents, written with equinox."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp

from hloenv_cases import Lower, case, floats, ints, uniform, weights

nn = eqx.nn


def _parts(make):
    model = eqx.filter_eval_shape(make, jax.random.PRNGKey(0))
    is_array = lambda x: isinstance(x, jax.ShapeDtypeStruct)
    params, static = eqx.partition(model, is_array)
    return weights(params, output_axis=0), static


def _cross_entropy(logits, labels):
    scores = jax.nn.log_softmax(logits)
    return -jnp.mean(jnp.take_along_axis(scores, labels[..., None], -1))


class Block(eqx.Module):
    attention: nn.MultiheadAttention
    norms: list[nn.LayerNorm]
    up: nn.Linear
    down: nn.Linear

    def __init__(self, width, heads, key):
        a, b, c = jax.random.split(key, 3)
        self.attention = nn.MultiheadAttention(heads, width, key=a)
        self.norms = [nn.LayerNorm(width), nn.LayerNorm(width)]
        self.up = nn.Linear(width, 4 * width, key=b)
        self.down = nn.Linear(4 * width, width, key=c)

    def __call__(self, x, mask):
        y = jax.vmap(self.norms[0])(x)
        x = x + self.attention(y, y, y, mask)
        y = jax.nn.gelu(jax.vmap(self.up)(jax.vmap(self.norms[1])(x)))
        return x + jax.vmap(self.down)(y)


class Transformer(eqx.Module):
    embed: nn.Embedding
    blocks: list[Block]
    last: nn.Linear

    def __init__(self, width, depth, heads, key):
        a, b, *keys = jax.random.split(key, depth + 2)
        self.embed = nn.Embedding(4096, width, key=a)
        self.blocks = [Block(width, heads, k) for k in keys]
        self.last = nn.Linear(width, 4096, key=b)

    def __call__(self, tokens):
        x = jax.vmap(self.embed)(tokens)
        mask = jnp.tril(jnp.ones((len(x), len(x)), bool))
        for block in self.blocks:
            x = block(x, mask)
        return jax.vmap(self.last)(x)


@case(size=[(384, 3, 6), (512, 2, 8)])
def transformer(lower: Lower, size) -> None:
    params, static = _parts(lambda k: Transformer(*size, k))
    tokens = ints(4096, 2, 96)

    def forward(params, tokens):
        return jax.vmap(eqx.combine(params, static))(tokens)

    loss = lambda p, t: _cross_entropy(forward(p, t)[:, :-1], t[:, 1:])
    lower("forward", forward, params, tokens)
    lower.loss(loss, params, tokens, only=["train_step"])


class MbConv(eqx.Module):
    """A block of EfficientNet: expansion, depthwise, squeeze and excite."""

    expand: nn.Conv2d
    depthwise: nn.Conv2d
    squeeze: nn.Linear
    excite: nn.Linear
    project: nn.Conv2d
    norms: list[nn.GroupNorm]

    def __init__(self, width, key):
        a, b, c, d, e = jax.random.split(key, 5)
        inner = 6 * width
        self.expand = nn.Conv2d(width, inner, 1, key=a)
        self.depthwise = nn.Conv2d(inner, inner, 5, padding=2, groups=inner, key=b)
        self.squeeze = nn.Linear(inner, width // 4, key=c)
        self.excite = nn.Linear(width // 4, inner, key=d)
        self.project = nn.Conv2d(inner, width, 1, key=e)
        self.norms = [nn.GroupNorm(8, inner), nn.GroupNorm(8, width)]

    def __call__(self, x):
        y = jax.nn.silu(self.norms[0](self.depthwise(jax.nn.silu(self.expand(x)))))
        gate = self.excite(jax.nn.silu(self.squeeze(jnp.mean(y, (1, 2)))))
        y = y * jax.nn.sigmoid(gate)[:, None, None]
        return x + self.norms[1](self.project(y))


@case(shape=[(40, 28), (112, 14)])
def efficientnet(lower: Lower, shape) -> None:
    width, size = shape
    params, static = _parts(lambda k: MbConv(width, k))
    x = floats(1, width, size, size)

    def forward(params, x):
        return jax.vmap(eqx.combine(params, static))(x)

    lower("forward", forward, params, x)
    lower(
        "grad", jax.grad(lambda p, x: jnp.mean(forward(p, x) ** 2), (0, 1)), params, x
    )


class Gru(eqx.Module):
    cell: nn.GRUCell
    last: nn.Linear

    def __init__(self, width, key):
        a, b = jax.random.split(key)
        self.cell = nn.GRUCell(40, width, key=a)
        self.last = nn.Linear(width, 29, key=b)

    def __call__(self, x):
        def step(state, x):
            state = self.cell(x, state)
            return state, state

        _, states = jax.lax.scan(step, jnp.zeros(self.cell.hidden_size), x)
        return jax.vmap(self.last)(states)


@case(size=[(128, 1), (512, 8)])
def gru(lower: Lower, size) -> None:
    width, batch = size
    params, static = _parts(lambda k: Gru(width, k))
    x, labels = floats(batch, 100, 40), ints(29, batch, 100)

    def forward(params, x):
        return jax.vmap(eqx.combine(params, static))(x)

    loss = lambda p, x, y: _cross_entropy(forward(p, x), y)
    lower("forward", forward, params, x)
    lower.loss(loss, params, x, labels, only=["train_step"])


class Unet(eqx.Module):
    """A segmentation net of two levels with transposed convolutions."""

    convs: list[nn.Conv2d]
    ups: list[nn.ConvTranspose2d]
    last: nn.Conv2d

    def __init__(self, key):
        keys = jax.random.split(key, 8)
        pairs = [(3, 32), (32, 64), (64, 128), (128, 64), (64, 32)]
        self.convs = [
            nn.Conv2d(m, n, 3, padding=1, key=k)
            for (m, n), k in zip(pairs, keys, strict=False)
        ]
        self.ups = [
            nn.ConvTranspose2d(128, 64, 2, 2, key=keys[5]),
            nn.ConvTranspose2d(64, 32, 2, 2, key=keys[6]),
        ]
        self.last = nn.Conv2d(32, 21, 1, key=keys[7])

    def __call__(self, x):
        pool = nn.MaxPool2d(2, 2)
        first = jax.nn.relu(self.convs[0](x))
        second = jax.nn.relu(self.convs[1](pool(first)))
        x = jax.nn.relu(self.convs[2](pool(second)))
        x = jax.nn.relu(self.convs[3](jnp.concatenate([self.ups[0](x), second])))
        x = jax.nn.relu(self.convs[4](jnp.concatenate([self.ups[1](x), first])))
        return self.last(x)


@case(size=[128])
def unet(lower: Lower, size: int) -> None:
    params, static = _parts(Unet)
    x, labels = floats(1, 3, size, size), ints(21, 1, size, size)

    def forward(params, x):
        return jax.vmap(eqx.combine(params, static))(x)

    def loss(params, x, labels):
        return _cross_entropy(jnp.moveaxis(forward(params, x), 1, -1), labels)

    lower("forward", forward, params, x)
    lower.loss(loss, params, x, labels, only=["train_step"])


@case(width=[512])
def mlp(lower: Lower, width: int) -> None:
    params, static = _parts(lambda k: nn.MLP(64, 1, width, 4, jax.nn.silu, key=k))
    x, y = uniform(-1, 1, 256, 64), floats(256, 1)

    def loss(params, x, y):
        return jnp.mean((jax.vmap(eqx.combine(params, static))(x) - y) ** 2)

    lower.loss(loss, params, x, y, only=["train_step"])
