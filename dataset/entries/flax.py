# SPDX-License-Identifier: Apache-2.0
"""Models of flax.linen and flax.nnx, written here: from perceptrons to diffusion."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from flax import linen as nn
from flax import nnx

from hloenv_cases import Lower, adam, adam_state, case, floats, ints, key


def _cross_entropy(logits, labels):
    scores = jax.nn.log_softmax(logits.astype(jnp.float32))
    return -jnp.mean(jnp.take_along_axis(scores, labels[..., None], -1))


class Mlp(nn.Module):
    widths: tuple[int, ...]
    act: str = "gelu"

    @nn.compact
    def __call__(self, x):
        for width in self.widths[:-1]:
            x = getattr(nn, self.act)(nn.LayerNorm()(nn.Dense(width)(x)))
        return nn.Dense(self.widths[-1])(x)


@case(
    widths=[(32, 10), (128, 64, 10), (256, 256, 256, 10)],
    act=["gelu", "silu", "selu", "soft_sign"],
)
def mlp(lower: Lower, widths, act) -> None:
    model = Mlp(tuple(widths), act)
    x, labels = floats(16, 48), ints(10, 16)
    params = lower.shapes(model.init, key(), x)

    def loss(params, x, labels):
        return _cross_entropy(model.apply(params, x), labels)

    lower("forward", model.apply, params, x)
    lower.loss(loss, params, x, labels)

    def epoch(params, moments, xs, labels):
        def step(carry, batch):
            grads = jax.grad(loss)(carry[0], *batch)
            return adam(grads, carry[1], carry[0]), ()

        return jax.lax.scan(step, (params, moments), (xs, labels))[0]

    lower("epoch", epoch, params, adam_state(params), floats(8, 16, 48),
          ints(10, 8, 16))  # fmt: skip


class Block(nn.Module):
    width: int
    stride: int
    norm: str

    @nn.compact
    def __call__(self, x, train: bool):
        def norm(x):
            if self.norm == "batch":
                return nn.BatchNorm(use_running_average=not train)(x)
            return nn.GroupNorm(num_groups=4)(x)

        stride = (self.stride, self.stride)
        y = nn.relu(norm(nn.Conv(self.width, (3, 3), stride, use_bias=False)(x)))
        y = norm(nn.Conv(self.width, (3, 3), use_bias=False)(y))
        if x.shape != y.shape:
            x = norm(nn.Conv(self.width, (1, 1), stride, use_bias=False)(x))
        return nn.relu(x + y)


class ResNet(nn.Module):
    depths: tuple[int, ...]
    width: int
    norm: str

    @nn.compact
    def __call__(self, x, train: bool = False):
        x = nn.Conv(self.width, (3, 3), use_bias=False)(x)
        for stage, depth in enumerate(self.depths):
            for i in range(depth):
                stride = 2 if stage and not i else 1
                x = Block(self.width << stage, stride, self.norm)(x, train)
        return nn.Dense(10)(jnp.mean(x, (1, 2)))


@case(depths=[(1, 1), (2, 2, 2, 2)], width=[8, 32], norm=["batch", "group"])
def resnet(lower: Lower, depths, width, norm) -> None:
    model = ResNet(tuple(depths), width, norm)
    x, labels = floats(8, 32, 32, 3), ints(10, 8)
    variables = lower.shapes(model.init, key(), x)
    params, stats = variables["params"], variables.get("batch_stats", {})

    def loss(params, stats, x, labels):
        logits, changed = model.apply(
            {"params": params, "batch_stats": stats},
            x,
            train=True,
            mutable=["batch_stats"],
        )
        return _cross_entropy(logits, labels), changed

    def train_step(params, stats, moments, x, labels):
        (value, stats), grads = jax.value_and_grad(loss, has_aux=True)(
            params, stats, x, labels
        )
        return *adam(grads, moments, params), stats, value

    lower("forward", model.apply, variables, x)
    lower("loss", loss, params, stats, x, labels)
    lower("train_step", train_step, params, stats, adam_state(params), x, labels)


class Recurrent(nn.Module):
    cell: str
    width: int
    depth: int

    @nn.compact
    def __call__(self, tokens):
        x = nn.Embed(101, self.width)(tokens)
        for _ in range(self.depth):
            x = nn.RNN(getattr(nn, self.cell)(self.width))(x)
        return nn.Dense(101)(x)


@case(
    cell=["LSTMCell", "OptimizedLSTMCell", "GRUCell", "MGUCell", "SimpleCell"],
    size=[(16, 1), (64, 2)],
)
def rnn(lower: Lower, cell, size) -> None:
    model = Recurrent(cell, *size)
    tokens = ints(101, 4, 20)
    params = lower.shapes(model.init, key(), tokens)
    lower("forward", model.apply, params, tokens)
    lower.loss(
        lambda p, t: _cross_entropy(model.apply(p, t)[:, :-1], t[:, 1:]),
        params,
        tokens,
    )


@case(size=[(8, 8), (16, 16)])
def conv_lstm(lower: Lower, size) -> None:
    model = nn.RNN(nn.ConvLSTMCell(size[0], (3, 3)))
    x = floats(2, 5, size[1], size[1], 3)
    params = lower.shapes(model.init, key(), x)
    lower("forward", model.apply, params, x)
    lower.loss(lambda p, x: jnp.mean(model.apply(p, x) ** 2), params, x)


class Encoder(nn.Module):
    width: int
    depth: int
    heads: int
    causal: bool

    @nn.compact
    def __call__(self, x):
        mask = nn.make_causal_mask(x[..., 0]) if self.causal else None
        for _ in range(self.depth):
            y = nn.LayerNorm()(x)
            x = x + nn.MultiHeadDotProductAttention(self.heads)(y, y, mask=mask)
            y = nn.Dense(4 * self.width)(nn.RMSNorm()(x))
            x = x + nn.Dense(self.width)(nn.gelu(y))
        return nn.LayerNorm()(x)


class Vit(nn.Module):
    width: int
    depth: int

    @nn.compact
    def __call__(self, images):
        x = nn.Conv(self.width, (8, 8), (8, 8))(images)
        x = x.reshape(x.shape[0], -1, self.width)
        token = self.param("cls", nn.initializers.zeros, (1, 1, self.width))
        x = jnp.concatenate([jnp.tile(token, (x.shape[0], 1, 1)), x], 1)
        x = x + self.param("pos", nn.initializers.normal(0.02), x.shape[1:])
        return nn.Dense(10)(Encoder(self.width, self.depth, 4, False)(x)[:, 0])


@case(size=[(32, 2), (64, 4), (128, 6)])
def vit(lower: Lower, size) -> None:
    model = Vit(*size)
    x, labels = floats(4, 32, 32, 3), ints(10, 4)
    params = lower.shapes(model.init, key(), x)
    lower("forward", model.apply, params, x)
    lower.loss(lambda p, x, y: _cross_entropy(model.apply(p, x), y), params, x, labels)


class Lm(nn.Module):
    width: int
    depth: int

    @nn.compact
    def __call__(self, tokens):
        embed = nn.Embed(211, self.width)
        x = embed(tokens)
        x = x + self.param("pos", nn.initializers.normal(0.02), x.shape[1:])
        return embed.attend(Encoder(self.width, self.depth, 4, True)(x))


@case(size=[(32, 2), (64, 4), (96, 8)], remat=[False, True])
def language_model(lower: Lower, size, remat) -> None:
    model = Lm(*size)
    tokens = ints(211, 4, 24)
    params = lower.shapes(model.init, key(), tokens)

    def loss(params, tokens):
        apply = jax.checkpoint(model.apply) if remat else model.apply
        return _cross_entropy(apply(params, tokens)[:, :-1], tokens[:, 1:])

    lower("forward", model.apply, params, tokens)
    lower.loss(loss, params, tokens)


class Unet(nn.Module):
    width: int
    levels: int

    @nn.compact
    def __call__(self, x, time):
        frequencies = jnp.exp(-jnp.arange(16) / 2.0)
        phase = time[:, None] * frequencies
        embedding = jnp.concatenate([jnp.sin(phase), jnp.cos(phase)], -1)
        embedding = nn.Dense(self.width)(nn.silu(nn.Dense(self.width)(embedding)))
        skips = []
        for level in range(self.levels):
            x = nn.Conv(self.width << level, (3, 3))(x)
            shift = nn.Dense(self.width << level)(embedding)
            x = nn.silu(nn.GroupNorm(4)(x) + shift[:, None, None])
            skips.append(x)
            x = nn.avg_pool(x, (2, 2), (2, 2))
        for level in reversed(range(self.levels)):
            x = nn.ConvTranspose(self.width << level, (4, 4), (2, 2))(x)
            x = jnp.concatenate([x, skips.pop()], -1)
            x = nn.silu(nn.GroupNorm(4)(nn.Conv(self.width << level, (3, 3))(x)))
        return nn.Conv(1, (1, 1))(x)


@case(size=[(8, 2), (16, 3)])
def diffusion(lower: Lower, size) -> None:
    model = Unet(*size)
    images, time = floats(4, 16, 16, 1), floats(4)
    params = lower.shapes(model.init, key(), images, time)
    betas = jnp.linspace(1e-4, 0.02, 50)

    def loss(params, images, seed):
        first, second = jax.random.split(seed)
        step = jax.random.randint(first, (4,), 0, 50)
        kept = jnp.cumprod(1 - betas)[step][:, None, None, None]
        noise = jax.random.normal(second, images.shape)
        noisy = jnp.sqrt(kept) * images + jnp.sqrt(1 - kept) * noise
        return jnp.mean((model.apply(params, noisy, step / 50.0) - noise) ** 2)

    def sample(params, seed):
        def step(x, inputs):
            i, seed = inputs
            beta, kept = betas[i], jnp.cumprod(1 - betas)[i]
            noise = model.apply(params, x, jnp.full((4,), i / 50.0))
            x = (x - beta / jnp.sqrt(1 - kept) * noise) / jnp.sqrt(1 - beta)
            extra = jax.random.normal(seed, x.shape) * jnp.sqrt(beta)
            return x + jnp.where(i > 0, extra, 0.0), ()

        start = jax.random.normal(seed, (4, 16, 16, 1))
        inputs = (jnp.arange(49, -1, -1), jax.random.split(seed, 50))
        return jax.lax.scan(step, start, inputs)[0]

    lower("denoise", model.apply, params, images, time)
    lower.loss(loss, params, images, key())
    lower("sample", sample, params, key())


class Vae(nn.Module):
    latent: int
    width: int

    @nn.compact
    def __call__(self, x, seed):
        y = nn.relu(nn.Dense(self.width)(x))
        mean, scale = nn.Dense(self.latent)(y), nn.Dense(self.latent)(y)
        z = mean + jnp.exp(0.5 * scale) * jax.random.normal(seed, mean.shape)
        y = nn.relu(nn.Dense(self.width)(z))
        return nn.Dense(x.shape[-1])(y), mean, scale


@case(size=[(8, 64), (20, 200)])
def vae(lower: Lower, size) -> None:
    model = Vae(*size)
    x = floats(16, 196)
    params = lower.shapes(model.init, key(), x, key())

    def loss(params, x, seed):
        logits, mean, scale = model.apply(params, x, seed)
        likelihood = jnp.sum(jax.nn.softplus(logits) - x * logits, -1)
        divergence = -0.5 * jnp.sum(1 + scale - mean**2 - jnp.exp(scale), -1)
        return jnp.mean(likelihood + divergence)

    lower.loss(loss, params, x, key())


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
            elif self.kind == "edge":
                pair = jnp.concatenate([h[senders], h[receivers] - h[senders]], -1)
                messages = nn.Dense(self.width)(nn.relu(nn.Dense(self.width)(pair)))
            else:
                degree = jax.ops.segment_sum(jnp.ones(len(senders)), receivers, num)
                scale = jax.lax.rsqrt(jnp.maximum(degree, 1.0))
                messages = h[senders] * (scale[senders] * scale[receivers])[:, None]
            nodes = nn.relu(h + jax.ops.segment_sum(messages, receivers, num))
        return nn.Dense(4)(nodes)


@case(kind=["attention", "convolution", "edge"], size=[(16, 2), (64, 4)])
def graph_network(lower: Lower, kind, size) -> None:
    model = GraphNet(*size, kind)
    args = (floats(30, 12), ints(30, 100), ints(30, 100))
    params = lower.shapes(model.init, key(), *args)
    lower("forward", model.apply, params, *args)
    lower.loss(
        lambda p, *x: _cross_entropy(model.apply(p, *x[:-1]), x[-1]),
        params,
        *args,
        ints(4, 30),
    )


@case(
    layer=[
        *("Dense", "DenseGeneral", "Conv", "ConvLocal", "ConvTranspose"),
        *("LayerNorm", "RMSNorm", "GroupNorm", "InstanceNorm", "SpectralNorm"),
        *("WeightNorm", "PReLU", "Einsum"),
    ],
    width=[16, 64],
)
def layers(lower: Lower, layer, width) -> None:
    x = floats(4, 12, width)
    made = {
        "Dense": lambda: nn.Dense(width),
        "DenseGeneral": lambda: nn.DenseGeneral((4, width // 4), axis=(-2, -1)),
        "Conv": lambda: nn.Conv(width, (3,), feature_group_count=4),
        "ConvLocal": lambda: nn.ConvLocal(width, (3,)),
        "ConvTranspose": lambda: nn.ConvTranspose(width, (4,), (2,)),
        "LayerNorm": nn.LayerNorm,
        "RMSNorm": nn.RMSNorm,
        "GroupNorm": lambda: nn.GroupNorm(4),
        "InstanceNorm": nn.InstanceNorm,
        "SpectralNorm": lambda: _Spectral(width),
        "WeightNorm": lambda: nn.WeightNorm(nn.Dense(width)),
        "PReLU": nn.PReLU,
        "Einsum": lambda: nn.Einsum((4, width, 8), "bld,hdk->bhlk"),
    }[layer]()
    params = lower.shapes(made.init, key(), x)
    lower("forward", made.apply, params, x)
    lower("grad", jax.grad(lambda p, x: jnp.sum(made.apply(p, x) ** 2), (0, 1)),
          params, x)  # fmt: skip


class _Spectral(nn.Module):
    width: int

    @nn.compact
    def __call__(self, x):
        return nn.SpectralNorm(nn.Dense(self.width))(x, update_stats=False)


@case(width=[16, 64], depth=[1, 3])
def nnx_model(lower: Lower, width, depth) -> None:
    class Model(nnx.Module):
        def __init__(self, rngs: nnx.Rngs):
            self.first = nnx.Linear(12, width, rngs=rngs)
            self.blocks = nnx.List(
                [nnx.Linear(width, width, rngs=rngs) for _ in range(depth)]
            )
            self.attention = nnx.MultiHeadAttention(
                num_heads=4, in_features=width, decode=False, rngs=rngs
            )
            self.norm = nnx.LayerNorm(width, rngs=rngs)
            self.last = nnx.Linear(width, 5, rngs=rngs)

        def __call__(self, x):
            x = self.first(x)
            for block in self.blocks:
                x = x + nnx.silu(block(x))
            return self.last(self.norm(x + self.attention(x)))

    model = nnx.eval_shape(lambda: Model(nnx.Rngs(0)))
    graph, state = nnx.split(model)
    state = jax.tree.map(lambda s: floats(*s.shape, dtype=s.dtype), state)
    params, rest = nnx.split_state(state, nnx.Param, ...)

    def loss(params, rest, x, y):
        model = nnx.merge(graph, params, rest)
        return jnp.mean((model(x) - y) ** 2)

    lower.loss(loss, params, rest, floats(4, 10, 12), floats(4, 10, 5))
