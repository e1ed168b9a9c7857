# SPDX-License-Identifier: Apache-2.0
"""Layers of equinox and models written with them."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp

from hloenv_cases import Lower, case, floats, ints


def _parts(lower: Lower, make):
    model = eqx.filter_eval_shape(make, jax.random.PRNGKey(0))
    is_array = lambda x: isinstance(x, jax.ShapeDtypeStruct)
    return eqx.partition(model, is_array)


@case(
    name=[
        *("linear", "mlp", "conv1d", "conv2d", "conv3d", "transpose", "grouped"),
        *("layer_norm", "rms_norm", "group_norm", "prelu", "max_pool", "adaptive"),
        *("attention", "rotary", "gru", "lstm", "weight_norm", "embedding"),
    ],
    width=[8, 32],
)
def layer(lower: Lower, name: str, width: int) -> None:
    nn = eqx.nn
    flat, line = floats(6, width), floats(6, width, 10)
    image, block = floats(2, width, 10, 10), floats(2, width, 5, 5, 5)
    make, x = {
        "linear": (lambda k: nn.Linear(width, 7, key=k), flat),
        "mlp": (lambda k: nn.MLP(width, 3, 32, 3, jax.nn.silu, key=k), flat),
        "conv1d": (lambda k: nn.Conv1d(width, 8, 3, 2, key=k), line),
        "conv2d": (lambda k: nn.Conv2d(width, 8, 3, padding=1, key=k), image),
        "conv3d": (lambda k: nn.Conv3d(width, 4, 3, key=k), block),
        "transpose": (lambda k: nn.ConvTranspose2d(width, 4, 3, 2, key=k), image),
        "grouped": (lambda k: nn.Conv2d(width, 8, 3, groups=4, key=k), image),
        "layer_norm": (lambda k: nn.LayerNorm(width), flat),
        "rms_norm": (lambda k: nn.RMSNorm(width), flat),
        "group_norm": (lambda k: nn.GroupNorm(4, width), image),
        "prelu": (lambda k: nn.PReLU(0.2), flat),
        "max_pool": (lambda k: nn.MaxPool2d(3, 2), image),
        "adaptive": (lambda k: nn.AdaptiveAvgPool2d((3, 4)), image),
        "attention": (lambda k: _Attend(width, False, k), floats(2, 12, width)),
        "rotary": (lambda k: _Attend(width, True, k), floats(2, 12, width)),
        "gru": (lambda k: _Cell(nn.GRUCell, width, k), floats(2, 12, width)),
        "lstm": (lambda k: _Cell(nn.LSTMCell, width, k), floats(2, 12, width)),
        "weight_norm": (
            lambda k: nn.WeightNorm(nn.Linear(width, 7, key=k)),
            flat,
        ),
        "embedding": (lambda k: nn.Embedding(17, width, key=k), ints(17, 30)),
    }[name]
    params, static = _parts(lower, make)

    def forward(params, x):
        return jax.vmap(eqx.combine(params, static))(x)

    lower("forward", forward, params, x)
    lower("grad", jax.grad(lambda p, x: jnp.sum(forward(p, x) ** 2)), params, x)


class _Attend(eqx.Module):
    attention: eqx.nn.MultiheadAttention
    rotary: eqx.nn.RotaryPositionalEmbedding | None

    def __init__(self, width, is_rotary, key):
        self.attention = eqx.nn.MultiheadAttention(4, width, key=key)
        rope = eqx.nn.RotaryPositionalEmbedding(width // 4) if is_rotary else None
        self.rotary = rope

    def __call__(self, x):
        mask = jnp.tril(jnp.ones((len(x), len(x)), bool))
        if self.rotary is None:
            return self.attention(x, x, x, mask)

        def heads(q, k, v):
            return jax.vmap(self.rotary, 1, 1)(q), jax.vmap(self.rotary, 1, 1)(k), v

        return self.attention(x, x, x, mask, process_heads=heads)


class _Cell(eqx.Module):
    cell: eqx.Module
    is_lstm: bool

    def __init__(self, kind, width, key):
        self.cell = kind(width, width, key=key)
        self.is_lstm = kind is eqx.nn.LSTMCell

    def __call__(self, x):
        start = jnp.zeros(x.shape[-1])
        carry = (start, start) if self.is_lstm else start

        def step(carry, x):
            carry = self.cell(x, carry)
            return carry, carry[0] if self.is_lstm else carry

        return jax.lax.scan(step, carry, x)[1]


class _Mixer(eqx.Module):
    embed: eqx.nn.Conv2d
    blocks: list
    head: eqx.nn.Linear

    def __init__(self, width, depth, key):
        keys = jax.random.split(key, 2 * depth + 2)
        self.embed = eqx.nn.Conv2d(3, width, 4, 4, key=keys[0])
        self.blocks = [
            (
                eqx.nn.MLP(49, 49, 64, 1, jax.nn.gelu, key=keys[2 * i]),
                eqx.nn.MLP(
                    width, width, 2 * width, 1, jax.nn.gelu, key=keys[2 * i + 1]
                ),
                eqx.nn.LayerNorm((width, 49)),
                eqx.nn.LayerNorm((width, 49)),
            )
            for i in range(depth)
        ]
        self.head = eqx.nn.Linear(width, 10, key=keys[-1])

    def __call__(self, x):
        x = self.embed(x)
        x = x.reshape(x.shape[0], -1)
        for tokens, channels, first, second in self.blocks:
            x = x + jax.vmap(tokens)(first(x))
            x = x + jax.vmap(channels, 1, 1)(second(x))
        return self.head(x.mean(1))


class _Gpt(eqx.Module):
    embed: eqx.nn.Embedding
    blocks: list
    norm: eqx.nn.LayerNorm

    def __init__(self, width, depth, key):
        keys = jax.random.split(key, 2 * depth + 1)
        self.embed = eqx.nn.Embedding(89, width, key=keys[0])
        self.blocks = [
            (
                _Attend(width, True, keys[2 * i + 1]),
                eqx.nn.MLP(
                    width, width, 3 * width, 1, jax.nn.silu, key=keys[2 * i + 2]
                ),
                eqx.nn.RMSNorm(width),
                eqx.nn.RMSNorm(width),
            )
            for i in range(depth)
        ]
        self.norm = eqx.nn.LayerNorm(width)

    def __call__(self, tokens):
        x = jax.vmap(self.embed)(tokens)
        for attend, mlp, first, second in self.blocks:
            x = x + attend(jax.vmap(first)(x))
            x = x + jax.vmap(mlp)(jax.vmap(second)(x))
        return jax.vmap(self.norm)(x) @ self.embed.weight.T


@case(name=["mixer", "gpt"], size=[(16, 2), (32, 4), (64, 6)])
def model(lower: Lower, name: str, size) -> None:
    kind = {"mixer": _Mixer, "gpt": _Gpt}[name]
    params, static = _parts(lower, lambda k: kind(*size, k))

    def forward(params, x):
        return jax.vmap(eqx.combine(params, static))(x)

    if name == "mixer":
        x, labels = floats(4, 3, 28, 28), ints(10, 4)
    else:
        x = ints(89, 4, 16)
        labels = x

    def loss(params, x, labels):
        scores = jax.nn.log_softmax(forward(params, x))
        if name == "gpt":
            scores, labels = scores[:, :-1], labels[:, 1:]
        return -jnp.mean(jnp.take_along_axis(scores, labels[..., None], -1))

    lower("forward", forward, params, x)
    lower.loss(loss, params, x, labels)
    lower("half", lambda p, x: forward(jax.tree.map(
        lambda a: a.astype(jnp.bfloat16), p), x), params, x)  # fmt: skip


@case(kind=["lax", "checkpointed", "bounded"], steps=[8, 20])
def while_loops(lower: Lower, kind: str, steps: int) -> None:
    def run(x, w):
        def body(pair):
            i, x = pair
            return i + 1, jnp.tanh(w @ x)

        return eqx.internal.while_loop(
            lambda pair: pair[0] < steps, body, (0, x), max_steps=steps, kind=kind
        )[1]

    x, w = floats(12), floats(12, 12)
    lower("forward", run, x, w)
    if kind != "lax":
        lower("grad", jax.grad(lambda x, w: jnp.sum(run(x, w)), (0, 1)), x, w)
