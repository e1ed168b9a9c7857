# SPDX-License-Identifier: Apache-2.0
"""Models of Keras on jax: layers of vision, language and audio, and applications."""

from __future__ import annotations

import os

os.environ["KERAS_BACKEND"] = "jax"

import jax
import jax.numpy as jnp
import keras
import numpy as np
from keras import layers

from hloenv_cases import Lower, case, floats, ints, uniform, weights


def _block(x, channels: int):
    y = layers.Conv2D(channels, 3, padding="same", use_bias=False)(x)
    y = layers.Activation("relu")(layers.BatchNormalization()(y))
    y = layers.SeparableConv2D(channels, 3, padding="same")(y)
    return layers.Add()([layers.Conv2D(channels, 1)(x), y])


def _image_net(channels: int):
    x = inputs = keras.Input((24, 24, 3))
    for scale in (1, 2):
        x = layers.MaxPooling2D()(_block(x, scale * channels))
    x = layers.GlobalAveragePooling2D()(x)
    return keras.Model(inputs, layers.Dense(10)(x))


def _unet(channels: int):
    x = inputs = keras.Input((16, 16, 1))
    skip = layers.Conv2D(channels, 3, padding="same", activation="gelu")(x)
    x = layers.AveragePooling2D(2)(skip)
    x = layers.GroupNormalization(4)(layers.Conv2D(channels, 3, padding="same")(x))
    x = layers.Conv2DTranspose(channels, 2, strides=2)(x)
    x = layers.Concatenate()([x, skip])
    return keras.Model(inputs, layers.Conv2D(1, 1)(x))


def _audio(channels: int):
    x = inputs = keras.Input((200, 8))
    for rate in (1, 2, 4):
        y = layers.Conv1D(channels, 3, padding="causal", dilation_rate=rate)(x)
        x = layers.LayerNormalization()(layers.PReLU()(y))
    x = layers.GlobalMaxPooling1D()(x)
    return keras.Model(inputs, layers.Dense(5)(x))


def _recurrent(cell):
    def make(width: int):
        x = inputs = keras.Input((20, 12))
        x = layers.Bidirectional(cell(width, return_sequences=True))(x)
        return keras.Model(inputs, layers.TimeDistributed(layers.Dense(4))(x))

    return make


_FLOAT_MODELS = {
    "image_net": _image_net,
    "unet": _unet,
    "audio": _audio,
    "lstm": _recurrent(layers.LSTM),
    "gru": _recurrent(layers.GRU),
}


def _values(variables) -> list:
    """What initial variables are like, by their names; seeds are zero."""
    drawn = weights({v.path: floats(*v.shape, dtype=v.dtype) for v in variables})
    return [
        drawn[v.path]
        if jnp.issubdtype(v.dtype, jnp.floating)
        else np.zeros(v.shape, v.dtype)
        for v in variables
    ]


def _lower(lower: Lower, model, x) -> None:
    # Statistics of batch normalization are fixed, as in fine-tuning.
    trained = _values(model.trainable_variables)
    fixed = _values(model.non_trainable_variables)

    def apply(trained, fixed, x):
        return model.stateless_call(trained, fixed, x, training=False)[0]

    lower("forward", apply, trained, fixed, x)
    target = lower.shapes(apply, trained, fixed, x)

    def loss(trained, fixed, x, y):
        return jnp.mean((apply(trained, fixed, x) - y) ** 2)

    lower.loss(loss, trained, fixed, x, floats(*target.shape))


@case(name=list(_FLOAT_MODELS), width=[8, 32])
def model(lower: Lower, name: str, width: int) -> None:
    made = _FLOAT_MODELS[name](width)
    _lower(lower, made, floats(4, *made.input_shape[1:]))


@case(width=[16, 64], query_groups=[0, 2])
def decoder(lower: Lower, width: int, query_groups: int) -> None:
    inputs = keras.Input((24,), dtype="int32")
    x = layers.Embedding(100, width)(inputs)
    for _ in range(2):
        y = layers.RMSNormalization()(x)
        if query_groups:
            attend = layers.GroupQueryAttention(width // 4, 4, query_groups)
        else:
            attend = layers.MultiHeadAttention(4, width // 4)
        x = layers.Add()([x, attend(y, y, use_causal_mask=True)])
        y = layers.Dense(2 * width, activation="silu")(layers.RMSNormalization()(x))
        x = layers.Add()([x, layers.Dense(width)(y)])
    made = keras.Model(inputs, layers.Dense(100)(x))
    _lower(lower, made, ints(100, 2, 24))


@case(name=["MobileNetV3Small", "EfficientNetB0", "ResNet50V2", "DenseNet121"])
def application(lower: Lower, name: str) -> None:
    made = getattr(keras.applications, name)(
        weights=None, input_shape=(32, 32, 3), classes=10
    )
    trained = _values(made.trainable_variables)
    fixed = _values(made.non_trainable_variables)

    def apply(trained, fixed, x):
        return made.stateless_call(trained, fixed, x, training=False)[0]

    lower("forward", apply, trained, fixed, floats(1, 32, 32, 3))


@case(size=[(16, 16), (48, 20)])
def images(lower: Lower, size) -> None:
    x = floats(2, *size, 3)
    lower("resize", lambda x: keras.ops.image.resize(x, (32, 32)), x)
    lower("gray", lambda x: keras.ops.image.rgb_to_grayscale(x), x)
    lower("hsv", lambda x: keras.ops.image.rgb_to_hsv(x), x)

    def affine(x, t):  # near the identity, without perspective
        t = jnp.array([1.0, 0, 0, 0, 1, 0, 0, 0]) + t * jnp.array([1.0] * 6 + [0, 0])
        return keras.ops.image.affine_transform(x, t)

    lower("affine", affine, x, uniform(-0.1, 0.1, 2, 8))
    blur = lambda x: keras.ops.image.gaussian_blur(x, (3, 3), (1.0, 1.0))
    lower("blur", blur, x)
    lower("stft", lambda x: keras.ops.stft(x, 16, 8, 16), floats(2, 200))
    lower("losses", lambda a, b: [
        keras.losses.CategoricalFocalCrossentropy()(a, jax.nn.softmax(b)),
        keras.losses.Huber()(a, b),
        keras.losses.CosineSimilarity()(a, b),
    ], floats(8, 10), floats(8, 10))  # fmt: skip
