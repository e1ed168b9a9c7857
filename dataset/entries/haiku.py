# SPDX-License-Identifier: Apache-2.0
"""Layers and nets of dm-haiku, and models written with them."""

from __future__ import annotations

import haiku as hk
import jax
import jax.numpy as jnp

from hloenv_cases import Lower, adam, adam_state, case, floats, ints, key


def _cross_entropy(logits, labels):
    scores = jax.nn.log_softmax(logits)
    return -jnp.mean(jnp.take_along_axis(scores, labels[..., None], -1))


def _image_net(name: str):
    nets = hk.nets
    narrow = (8, 16, 16, *[32] * 10)
    return {
        "resnet": lambda: nets.ResNet(
            (1, 1, 1, 1), 10, bottleneck=False, channels_per_group=(16, 16, 32, 32)
        ),
        "resnet_v2": lambda: nets.ResNet(
            (1, 2, 1, 1), 10, resnet_v2=True, channels_per_group=(16, 16, 32, 32)
        ),
        "resnet18": lambda: nets.ResNet18(10),
        "resnet50": lambda: nets.ResNet50(10),
        "mobilenet": lambda: nets.MobileNetV1(num_classes=10, channels=narrow),
        "mobilenet_full": lambda: nets.MobileNetV1(num_classes=10),
    }[name]()


@case(
    name=["resnet", "resnet_v2", "resnet18", "resnet50", "mobilenet", "mobilenet_full"],
    size=[32, 48],
)
def image_net(lower: Lower, name: str, size: int) -> None:
    net = hk.transform_with_state(lambda x, train: _image_net(name)(x, train))
    x, labels = floats(4, size, size, 3), ints(10, 4)
    params, state = lower.shapes(lambda k, x: net.init(k, x, True), key(), x)

    def loss(params, state, x, labels):
        logits, state = net.apply(params, state, None, x, True)
        return _cross_entropy(logits, labels), state

    def train_step(params, state, moments, x, labels):
        (value, state), grads = jax.value_and_grad(loss, has_aux=True)(
            params, state, x, labels
        )
        return *adam(grads, moments, params), state, value

    lower("forward", lambda p, s, x: net.apply(p, s, None, x, False)[0],
          params, state, x)  # fmt: skip
    lower("loss", loss, params, state, x, labels)
    lower("train_step", train_step, params, state, adam_state(params), x, labels)


def _core(name: str, width: int):
    return {
        "gru": lambda: hk.GRU(width),
        "lstm": lambda: hk.LSTM(width),
        "vanilla": lambda: hk.VanillaRNN(width),
        "deep": lambda: hk.DeepRNN([hk.LSTM(width), jax.nn.relu, hk.GRU(width)]),
        "skip": lambda: hk.deep_rnn_with_skip_connections(
            [hk.LSTM(width), hk.LSTM(width)]
        ),
        "identity": lambda: hk.DeepRNN([hk.Linear(width), hk.IdentityCore()]),
    }[name]()


@case(
    name=["gru", "lstm", "vanilla", "deep", "skip", "identity"],
    unroll=["dynamic", "static"],
    width=[16, 64],
)
def recurrent(lower: Lower, name: str, unroll: str, width: int) -> None:
    length = 12 if unroll == "dynamic" else 6

    def model(tokens):
        core = _core(name, width)
        x = hk.Embed(61, width)(tokens)
        run = hk.dynamic_unroll if unroll == "dynamic" else hk.static_unroll
        y, _ = run(core, x, core.initial_state(tokens.shape[1]))
        return hk.Linear(61)(y)

    net = hk.without_apply_rng(hk.transform(model))
    tokens = ints(61, length, 4)
    params = lower.shapes(net.init, key(), tokens)
    lower("forward", net.apply, params, tokens)
    lower.loss(lambda p, t: _cross_entropy(net.apply(p, t)[:-1], t[1:]), params, tokens)


@case(size=[(32, 2), (64, 4), (96, 6)], dropout=[0.0, 0.1])
def transformer(lower: Lower, size, dropout: float) -> None:
    width, depth = size

    def model(tokens):
        x = hk.Embed(97, width)(tokens)
        x = x + hk.get_parameter(
            "pos", x.shape[1:], init=hk.initializers.RandomNormal()
        )
        mask = jnp.tril(jnp.ones((1, 1, tokens.shape[1], tokens.shape[1])))
        start = hk.initializers.VarianceScaling(2 / depth)
        for _ in range(depth):
            y = hk.LayerNorm(-1, True, True)(x)
            attend = hk.MultiHeadAttention(4, width // 4, w_init=start)
            y = attend(y, y, y, mask)
            x = x + (hk.dropout(hk.next_rng_key(), dropout, y) if dropout else y)
            y = hk.Linear(4 * width, w_init=start)(hk.LayerNorm(-1, True, True)(x))
            y = hk.Linear(width, w_init=start)(jax.nn.gelu(y))
            x = x + (hk.dropout(hk.next_rng_key(), dropout, y) if dropout else y)
        return hk.Linear(97)(hk.LayerNorm(-1, True, True)(x))

    net = hk.transform(model)
    tokens = ints(97, 4, 16)
    params = lower.shapes(net.init, key(), tokens)
    lower("forward", net.apply, params, key(), tokens)
    lower.loss(
        lambda p, k, t: _cross_entropy(net.apply(p, k, t)[:, :-1], t[:, 1:]),
        params,
        key(),
        tokens,
    )


@case(codes=[16, 128], ema=[False, True])
def vq_vae(lower: Lower, codes: int, ema: bool) -> None:
    def model(x):
        y = jax.nn.relu(hk.Conv2D(16, 4, 2)(x))
        y = hk.Conv2D(8, 3)(y)
        kind = hk.nets.VectorQuantizerEMA if ema else hk.nets.VectorQuantizer
        extra = {"decay": 0.99} if ema else {}
        out = kind(8, codes, 0.25, **extra)(y, is_training=True)
        y = jax.nn.relu(hk.Conv2DTranspose(16, 4, 2)(out["quantize"]))
        return jnp.mean((hk.Conv2D(3, 3)(y) - x) ** 2) + out["loss"]

    net = hk.without_apply_rng(hk.transform_with_state(model))
    x = floats(2, 16, 16, 3)
    params, state = lower.shapes(net.init, key(), x)
    lower("loss", net.apply, params, state, x)
    lower("grad", jax.grad(net.apply, has_aux=True), params, state, x)

    def train_step(params, state, moments, x):
        grads, state = jax.grad(net.apply, has_aux=True)(params, state, x)
        return *adam(grads, moments, params), state

    lower("train_step", train_step, params, state, adam_state(params), x)


@case(width=[8, 48])
def layers(lower: Lower, width: int) -> None:
    image, line = floats(2, 12, 12, width), floats(4, 12, width)
    made = {
        "conv1d": (lambda x: hk.Conv1D(width, 5, 2)(x), line),
        "conv2d": (lambda x: hk.Conv2D(width, 3, rate=2)(x), image),
        "depthwise": (lambda x: hk.DepthwiseConv2D(2, (3, 3))(x), image),
        "separable": (lambda x: hk.SeparableDepthwiseConv2D(2, (3, 3))(x), image),
        "transpose": (lambda x: hk.Conv2DTranspose(width, 3, 2)(x), image),
        "layer_norm": (lambda x: hk.LayerNorm(-1, True, True)(x), line),
        "group_norm": (lambda x: hk.GroupNorm(4)(x), image),
        "instance_norm": (lambda x: hk.InstanceNorm(True, True)(x), image),
        "rms_norm": (lambda x: hk.RMSNorm(-1)(x), line),
        "pools": (lambda x: hk.AvgPool(3, 2, "SAME")(x) + hk.MaxPool(3, 2, "SAME")(x),
                  image),
        "mlp": (lambda x: hk.nets.MLP((32, 16, 4), activation=jax.nn.silu)(x), line),
        "scanned": (lambda x: hk.experimental.layer_stack(6)(
            lambda x: x + jax.nn.gelu(hk.Linear(width)(x)))(x), line),
    }  # fmt: skip
    for name, (function, x) in made.items():
        with lower.attempt(name):
            net = hk.without_apply_rng(hk.transform(function))
            params = lower.shapes(net.init, key(), x)
            lower(f"{name}_forward", net.apply, params, x)
            loss = lambda p, x, f=net.apply: jnp.sum(f(p, x) ** 2)
            lower(f"{name}_grad", jax.grad(loss, (0, 1)), params, x)
