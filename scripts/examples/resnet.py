# SPDX-License-Identifier: Apache-2.0
"""The forward pass of a small ResNet in plain JAX, as a model to work on.

Usage: hloenv optimize scripts/examples/resnet.py:module --pass algsimp --measure
       python scripts/examples/resnet.py OUT.pb    writes the module

Residual blocks of two 3x3 convolutions with batch normalization by running
statistics, a 1x1 convolution where a block changes the shape, global average
pooling, and a softmax over the classes.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

import hloenv

STAGES, BLOCKS, WIDTH, CLASSES, SIZE, BATCH = 3, 2, 16, 10, 32, 4
EPSILON = 1e-5

Params = dict[str, Any]


def init(key: jax.Array) -> Params:
    """Random parameters; statistics as after some training."""

    def convolution(key: jax.Array, size: int, inputs: int, outputs: int) -> jax.Array:
        scale = (2 / (size * size * inputs)) ** 0.5
        return scale * jax.random.normal(key, (size, size, inputs, outputs))

    def norm(key: jax.Array, width: int) -> Params:
        keys = jax.random.split(key, 4)
        return {
            "scale": 1 + 0.1 * jax.random.normal(keys[0], (width,)),
            "bias": 0.1 * jax.random.normal(keys[1], (width,)),
            "mean": 0.1 * jax.random.normal(keys[2], (width,)),
            "variance": jnp.exp(0.1 * jax.random.normal(keys[3], (width,))),
        }

    def block(key: jax.Array, inputs: int, outputs: int) -> Params:
        keys = jax.random.split(key, 5)
        params = {
            "conv1": convolution(keys[0], 3, inputs, outputs),
            "norm1": norm(keys[1], outputs),
            "conv2": convolution(keys[2], 3, outputs, outputs),
            "norm2": norm(keys[3], outputs),
        }
        if inputs != outputs:
            params["shortcut"] = convolution(keys[4], 1, inputs, outputs)
        return params

    keys = iter(jax.random.split(key, STAGES * BLOCKS + 3))
    width = WIDTH
    params: Params = {
        "stem": convolution(next(keys), 3, 3, width),
        "norm": norm(next(keys), width),
        "blocks": [],
    }
    for stage in range(STAGES):
        for _ in range(BLOCKS):
            wanted = WIDTH * 2**stage
            params["blocks"].append(block(next(keys), width, wanted))
            width = wanted
    params["head"] = jax.random.normal(next(keys), (width, CLASSES)) / width**0.5
    return params


def _convolve(x: jax.Array, kernel: jax.Array, stride: int = 1) -> jax.Array:
    return jax.lax.conv_general_dilated(
        x, kernel, (stride, stride), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )


def _norm(params: Params, x: jax.Array) -> jax.Array:
    centered = x - params["mean"]
    scale = params["scale"] * jax.lax.rsqrt(params["variance"] + EPSILON)
    return centered * scale + params["bias"]


def _block(params: Params, x: jax.Array) -> jax.Array:
    stride = 2 if "shortcut" in params else 1
    y = jax.nn.relu(_norm(params["norm1"], _convolve(x, params["conv1"], stride)))
    y = _norm(params["norm2"], _convolve(y, params["conv2"]))
    if "shortcut" in params:
        x = _convolve(x, params["shortcut"], stride)
    return jax.nn.relu(x + y)


def forward(params: Params, images: jax.Array) -> jax.Array:
    """[B, SIZE, SIZE, 3] images to [B, CLASSES] probabilities."""
    x = jax.nn.relu(_norm(params["norm"], _convolve(images, params["stem"])))
    for block in params["blocks"]:
        x = _block(block, x)
    return jax.nn.softmax(x.mean((1, 2)) @ params["head"])


def example_arguments() -> tuple[Any, ...]:
    """Arguments for `forward`."""
    keys = jax.random.split(jax.random.key(0))
    return init(keys[0]), jax.random.normal(keys[1], (BATCH, SIZE, SIZE, 3))


def module() -> hloenv.HloModule:
    """The forward pass as JAX lowers it."""
    return hloenv.HloModule.from_jax(forward, *example_arguments())


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(f"usage: {sys.argv[0]} OUT.pb")
    path = Path(sys.argv[1])
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(module().to_proto())
    print(f"{path}: {module()}")
