# SPDX-License-Identifier: Apache-2.0
"""Nets of dm-haiku at real extents."""

from __future__ import annotations

import haiku as hk
import jax
import jax.numpy as jnp

from hloenv_cases import Lower, adam, adam_state, case, floats, ints, key, weights


def _cross_entropy(logits, labels):
    scores = jax.nn.log_softmax(logits)
    return -jnp.mean(jnp.take_along_axis(scores, labels[..., None], -1))


_NETS = {
    "resnet18": lambda: hk.nets.ResNet18(1000),
    "resnet50": lambda: hk.nets.ResNet50(1000),
    "mobilenet_v1": lambda: hk.nets.MobileNetV1(num_classes=1000),
}


@case(
    net=[("resnet18", 64), ("resnet50", 64), ("resnet50", 224), ("mobilenet_v1", 128)]
)
def image_net(lower: Lower, net) -> None:
    name, size = net
    made = hk.without_apply_rng(
        hk.transform_with_state(lambda x, train: _NETS[name]()(x, train))
    )
    x, labels = floats(1, size, size, 3), ints(1000, 1)
    params, state = lower.shapes(lambda k, x: made.init(k, x, True), key(), x)
    params = weights(params)
    state = jax.tree.map(lambda s: s, state)
    named = {name: weights({"var": part}) for name, part in state.items()}
    state = {name: part["var"] for name, part in named.items()}

    def loss(params, state, x, labels):
        logits, state = made.apply(params, state, x, True)
        return _cross_entropy(logits, labels), state

    def train_step(params, state, moments, x, labels):
        (value, state), grads = jax.value_and_grad(loss, has_aux=True)(
            params, state, x, labels
        )
        return *adam(grads, moments, params), state, value

    lower("forward", lambda p, s, x: made.apply(p, s, x, False)[0], params, state, x)
    if name == "resnet18":
        many, labels = floats(2, size, size, 3), ints(1000, 2)
        args = (params, state, adam_state(params), many, labels)
        lower("train_step", train_step, *args)
    elif name == "mobilenet_v1":
        lower("grad", jax.grad(loss, has_aux=True), params, state, x, labels)


@case(core=["lstm", "gru"], size=[(512, 1, 32), (256, 32, 32)])
def recurrent(lower: Lower, core: str, size) -> None:
    width, batch, length = size

    def model(tokens):
        made = {"lstm": hk.LSTM, "gru": hk.GRU}[core](width)
        x = hk.Embed(2000, width)(tokens)
        y, _ = hk.dynamic_unroll(made, x, made.initial_state(tokens.shape[1]))
        return hk.Linear(2000)(y)

    net = hk.without_apply_rng(hk.transform(model))
    tokens = ints(2000, length, batch)
    params = weights(lower.shapes(net.init, key(), tokens))
    loss = lambda p, t: _cross_entropy(net.apply(p, t)[:-1], t[1:])
    lower("forward", net.apply, params, tokens)
    lower.loss(loss, params, tokens, only=["train_step"])


@case(size=[32])
def vq_vae(lower: Lower, size: int) -> None:
    def model(x):
        y = jax.nn.relu(hk.Conv2D(64, 4, 2)(x))
        y = jax.nn.relu(hk.Conv2D(128, 4, 2)(y))
        out = hk.nets.VectorQuantizer(64, 512, 0.25)(
            hk.Conv2D(64, 1)(y), is_training=True
        )
        y = jax.nn.relu(hk.Conv2DTranspose(64, 4, 2)(out["quantize"]))
        return jnp.mean((hk.Conv2DTranspose(3, 4, 2)(y) - x) ** 2) + out["loss"]

    net = hk.without_apply_rng(hk.transform(model))
    x = floats(4, size, size, 3)
    params = weights(lower.shapes(net.init, key(), x))
    lower.loss(net.apply, params, x, only=["train_step"])
