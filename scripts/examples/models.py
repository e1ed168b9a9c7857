#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The models on which graph substitution was measured, small, as inference in JAX.

Written here after the papers of the models, at sizes that run on a CPU in 0.2 ms to
1 s: Inception-v3's blocks, ResNet-18, ResNeXt-50's blocks, SqueezeNet 1.1, a ViT, a
transformer over text and image tokens as in DALL-E, and a transformer transducer.
`workloads.py` has BERT and others. Batch normalization is that of inference: it is what
rules fold into convolutions.

    python scripts/examples/models.py            # all of them, with jax and hloenv
    python scripts/examples/models.py squeezenet # those whose name has this text
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from programs import Program, compare, normal
from workloads import attend, norm, split_heads, weights

Params = dict[str, Any]


class Maker:
    """Makes parameters, each with another seed."""

    def __init__(self) -> None:
        """Starts from the first seed."""
        self._seeds = itertools.count()

    def matrix(self, *shape: int) -> Any:
        """Normal numbers of standard deviation 1/sqrt(n)."""
        return weights(*shape, seed=next(self._seeds))

    def conv(self, size: int | tuple[int, int], inputs: int, outputs: int) -> Params:
        """A convolution and the batch normalization after it."""
        height, width = (size, size) if isinstance(size, int) else size
        spread = 1 / math.sqrt(height * width * inputs)
        kernel = normal(height, width, inputs, outputs, seed=next(self._seeds))
        return {
            "kernel": kernel * spread,
            "mean": normal(outputs, seed=next(self._seeds)) * 0.1,
            "variance": jnp.abs(normal(outputs, seed=next(self._seeds))) + 0.5,
            "scale": jnp.ones(outputs, jnp.float32),
            "bias": jnp.zeros(outputs, jnp.float32),
        }


def conv(
    p: Params, x: Any, *, stride: int = 1, groups: int = 1, padding: str = "SAME"
) -> Any:
    """Convolution and batch normalization with fixed statistics: [B, H, W, C]."""
    y = jax.lax.conv_general_dilated(
        x,
        p["kernel"],
        (stride, stride),
        padding,
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
        feature_group_count=groups,
    )
    return (y - p["mean"]) * jax.lax.rsqrt(p["variance"] + 1e-5) * p["scale"] + p[
        "bias"
    ]


def relu(x: Any) -> Any:
    """The positive part, without a call of its own."""
    return jnp.maximum(x, 0)


def pool(x: Any, size: int, stride: int) -> Any:
    """Maximum pooling."""
    window, strides = (1, size, size, 1), (1, stride, stride, 1)
    return jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, window, strides, "SAME")


def _images(size: int) -> Any:
    return normal(1, size, size, 3, seed=999)


def inception(blocks: int = 3, size: int = 35) -> Program:
    """Blocks of Inception-v3 with branches of 1x1, 5x5, two 3x3 and pooling."""
    make = Maker()
    width = 64
    params: list[Params] = [{"stem": make.conv(3, 3, width)}]
    for _ in range(blocks):
        params.append(
            {
                "one": make.conv(1, width, 16),
                "five": [make.conv(1, width, 12), make.conv(5, 12, 16)],
                "three": [
                    make.conv(1, width, 16),
                    make.conv(3, 16, 24),
                    make.conv((1, 3), 24, 16),
                    make.conv((3, 1), 24, 8),
                ],
                "pool": make.conv(1, width, 8),
            }
        )

    def run(params: Sequence[Params], x: Any) -> Any:
        x = relu(conv(params[0]["stem"], x))
        for p in params[1:]:
            five = relu(conv(p["five"][1], relu(conv(p["five"][0], x))))
            three = relu(conv(p["three"][1], relu(conv(p["three"][0], x))))
            wide = relu(conv(p["three"][2], three))
            high = relu(conv(p["three"][3], three))
            pooled = relu(conv(p["pool"], pool(x, 3, 1)))
            one = relu(conv(p["one"], x))
            x = jnp.concatenate([one, five, wide, high, pooled], axis=-1)
        return x.mean((1, 2))

    return run, (params, _images(size))


def resnet18(size: int = 32, width: int = 16) -> Program:
    """Four stages of two residual blocks."""
    make = Maker()
    params: list[Params] = [{"stem": make.conv(7, 3, width)}]
    inputs = width
    for stage, block in itertools.product(range(4), range(2)):
        outputs = width * 2**stage
        layer = {"first": make.conv(3, inputs, outputs)}
        layer["second"] = make.conv(3, outputs, outputs)
        if block == 0 and stage > 0:
            layer["short"] = make.conv(1, inputs, outputs)
        params.append(layer)
        inputs = outputs
    params.append({"head": make.matrix(inputs, 10)})

    def run(params: Sequence[Params], x: Any) -> Any:
        x = pool(relu(conv(params[0]["stem"], x, stride=2)), 3, 2)
        for p in params[1:-1]:
            stride = 2 if "short" in p else 1
            short = conv(p["short"], x, stride=2) if "short" in p else x
            y = relu(conv(p["first"], x, stride=stride))
            x = relu(conv(p["second"], y) + short)
        return x.mean((1, 2)) @ params[-1]["head"]

    return run, (params, _images(size))


def resnext50(size: int = 32, blocks: int = 3, groups: int = 8) -> Program:
    """Bottleneck blocks of ResNeXt-50, whose middle convolution is grouped."""
    make = Maker()
    wide, narrow = 64, 32
    params: list[Params] = [{"stem": make.conv(3, 3, wide)}]
    for _ in range(blocks):
        params.append(
            {
                "down": make.conv(1, wide, narrow),
                "grouped": make.conv(3, narrow // groups, narrow),
                "up": make.conv(1, narrow, wide),
            }
        )

    def run(params: Sequence[Params], x: Any) -> Any:
        x = relu(conv(params[0]["stem"], x, stride=2))
        for p in params[1:]:
            y = relu(conv(p["down"], x))
            y = relu(conv(p["grouped"], y, groups=groups))
            x = relu(conv(p["up"], y) + x)
        return x.mean((1, 2))

    return run, (params, _images(size))


def squeezenet(size: int = 64) -> Program:
    """Fire modules of SqueezeNet 1.1: a squeeze, and expansions of 1x1 and 3x3."""
    make = Maker()
    params: list[Params] = [{"stem": make.conv(3, 3, 32)}]
    inputs = 32
    for squeeze, expand in ((8, 32), (8, 32), (16, 64), (16, 64), (24, 96)):
        params.append(
            {
                "squeeze": make.conv(1, inputs, squeeze),
                "one": make.conv(1, squeeze, expand),
                "three": make.conv(3, squeeze, expand),
            }
        )
        inputs = 2 * expand
    params.append({"head": make.conv(1, inputs, 10)})

    def run(params: Sequence[Params], x: Any) -> Any:
        x = pool(relu(conv(params[0]["stem"], x, stride=2)), 3, 2)
        for index, p in enumerate(params[1:-1]):
            if index in (2, 4):
                x = pool(x, 3, 2)
            y = relu(conv(p["squeeze"], x))
            one, three = relu(conv(p["one"], y)), relu(conv(p["three"], y))
            x = jnp.concatenate([one, three], axis=-1)
        return relu(conv(params[-1]["head"], x)).mean((1, 2))

    return run, (params, _images(size))


def _block(make: Maker, width: int) -> Params:
    return {
        "q": make.matrix(width, width),
        "k": make.matrix(width, width),
        "v": make.matrix(width, width),
        "o": make.matrix(width, width),
        "up": make.matrix(width, 4 * width),
        "down": make.matrix(4 * width, width),
        "norms": jnp.ones((2, width), jnp.float32),
    }


def transform(p: Params, x: Any, heads: int, *, is_causal: bool) -> Any:
    """One block of a transformer, normalized in front: [B, T, D]."""
    y = norm(x, p["norms"][0])
    q, k, v = (split_heads(y @ p[name], heads) for name in "qkv")
    x = x + attend(q, k, v, is_causal=is_causal) @ p["o"]
    y = norm(x, p["norms"][1])
    return x + relu(y @ p["up"]) @ p["down"]


def vit(size: int = 64, patch: int = 8, width: int = 96, layers: int = 3) -> Program:
    """A vision transformer on patches."""
    make = Maker()
    count = (size // patch) ** 2
    params = {
        "embed": make.matrix(patch * patch * 3, width),
        "positions": make.matrix(count, width),
        "blocks": [_block(make, width) for _ in range(layers)],
        "head": make.matrix(width, 10),
    }

    def run(params: Params, x: Any) -> Any:
        side = size // patch
        x = x.reshape(1, side, patch, side, patch, 3).transpose(0, 1, 3, 2, 4, 5)
        x = x.reshape(1, count, -1) @ params["embed"] + params["positions"]
        for p in params["blocks"]:
            x = transform(p, x, 4, is_causal=False)
        return x.mean(1) @ params["head"]

    return run, (params, _images(size))


def dalle(text: int = 32, image: int = 64, width: int = 96, layers: int = 3) -> Program:
    """A decoder over the tokens of a text and of an image."""
    make = Maker()
    params = {
        "text": make.matrix(256, width),
        "image": make.matrix(512, width),
        "positions": make.matrix(text + image, width),
        "blocks": [_block(make, width) for _ in range(layers)],
        "head": make.matrix(width, 512),
    }

    def run(params: Params, words: Any, tokens: Any) -> Any:
        parts = [params["text"][words], params["image"][tokens]]
        x = jnp.concatenate(parts, axis=1) + params["positions"]
        for p in params["blocks"]:
            x = transform(p, x, 4, is_causal=True)
        return x[:, text:] @ params["head"]

    words = jnp.arange(text)[None] % 256
    return run, (params, words, jnp.arange(image)[None] % 512)


def transducer(
    frames: int = 48, labels: int = 12, width: int = 96, layers: int = 2
) -> Program:
    """A transformer transducer: encoders of audio and labels, joined for every pair."""
    make = Maker()
    params = {
        "audio": make.matrix(80, width),
        "label": make.matrix(32, width),
        "encoder": [_block(make, width) for _ in range(layers)],
        "predictor": [_block(make, width)],
        "left": make.matrix(width, width),
        "right": make.matrix(width, width),
        "out": make.matrix(width, 32),
    }

    def run(params: Params, audio: Any, tokens: Any) -> Any:
        x = audio @ params["audio"]
        for p in params["encoder"]:
            x = transform(p, x, 4, is_causal=True)
        y = params["label"][tokens]
        for p in params["predictor"]:
            y = transform(p, y, 4, is_causal=True)
        joined = (x @ params["left"])[:, :, None] + (y @ params["right"])[:, None]
        return jnp.tanh(joined) @ params["out"]

    audio = normal(1, frames, 80, seed=998)
    return run, (params, audio, jnp.arange(labels)[None] % 32)


PROGRAMS: dict[str, tuple[str, Callable[[], Program]]] = {
    "inception-v3": ("model, convolutions", inception),
    "resnet-18": ("model, convolutions", resnet18),
    "resnext-50": ("model, convolutions", resnext50),
    "squeezenet": ("model, convolutions", squeezenet),
    "vit": ("model, transformer", vit),
    "dall-e": ("model, transformer", dalle),
    "transducer": ("model, transformer", transducer),
}
# The same at other sizes, for agents that are trained on these.
OTHER_SIZES: dict[str, tuple[str, Callable[[], Program]]] = {
    "resnet-18, 64 pixels": ("model, convolutions", partial(resnet18, 64)),
    "squeezenet, 96 pixels": ("model, convolutions", partial(squeezenet, 96)),
    "vit, 96 pixels": ("model, transformer", partial(vit, 96)),
    "dall-e, 128 image tokens": ("model, transformer", partial(dalle, 32, 128)),
    "transducer, 96 frames": ("model, transformer", partial(transducer, 96)),
}


if __name__ == "__main__":
    compare(PROGRAMS | OTHER_SIZES)
