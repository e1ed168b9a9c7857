# SPDX-License-Identifier: Apache-2.0
"""Vision models of transformers at real extents: ViT-S, ResNet, RegNet."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import transformers as hf

from hloenv_cases import Lower, case, floats, ints, key, weights


def _vit_s(image: int):
    return hf.FlaxViTForImageClassification, hf.ViTConfig(
        hidden_size=384,
        num_hidden_layers=6,
        num_attention_heads=6,
        intermediate_size=1536,
        image_size=image,
        num_labels=1000,
    )


def _resnet18(image: int):
    return hf.FlaxResNetForImageClassification, hf.ResNetConfig(
        embedding_size=64,
        hidden_sizes=[64, 128, 256, 512],
        depths=[2, 2, 2, 2],
        layer_type="basic",
        num_labels=1000,
    )


def _regnet(image: int):
    return hf.FlaxRegNetForImageClassification, hf.RegNetConfig(
        embedding_size=32,
        hidden_sizes=[48, 104, 208, 440],
        depths=[1, 3, 6, 6],
        groups_width=8,
        layer_type="y",
        num_labels=1000,
    )


@case(model=[(_vit_s, 224), (_resnet18, 128), (_regnet, 96)])
def classifier(lower: Lower, model) -> None:
    make, image = model
    model_class, config = make(image)
    shape = (1, image, image, 3)
    made = model_class(config, input_shape=shape, _do_init=False)
    variables = weights(lower.shapes(lambda k: made.init_weights(k, shape), key()))
    pixels, labels = floats(1, 3, image, image), ints(1000, 1)

    def forward(variables, pixels):
        return made(pixels, params=variables).logits

    lower("forward", forward, variables, pixels)
    if make is _regnet:
        return
    stats = variables.get("batch_stats")
    params = variables["params"] if stats else variables

    def loss(params, stats, pixels, labels):
        given = {"params": params, "batch_stats": stats} if stats else params
        scores = jax.nn.log_softmax(forward(given, pixels))
        return -jnp.mean(jnp.take_along_axis(scores, labels[:, None], -1))

    lower("grad", jax.grad(loss), params, stats, pixels, labels)
