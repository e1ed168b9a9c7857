#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains a small network of separable convolutions on drawn shapes, in plain JAX.

Depthwise convolutions and their gradients are operations for which XLA's CPU backend
has no fast code. hloenv is not imported here: it tunes the script as it is.

    python scripts/examples/train_cnn.py             # plain JAX
    hloenv tune scripts/examples/train_cnn.py        # finds and tunes the hot functions
    python -m hloenv.tune scripts/examples/train_cnn.py   # the same, with the result
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

SIZE, CLASSES = 32, 4
WIDTHS = (16, 32, 64)
Params = dict[str, Any]


def draw(rng: np.random.Generator, count: int) -> tuple[Any, Any]:
    """Images [count, SIZE, SIZE, 1] of squares, discs, crosses, stripes; and kinds."""
    y, x = np.mgrid[:SIZE, :SIZE].astype(np.float32)
    kinds = rng.integers(0, CLASSES, count)
    images = np.empty((count, SIZE, SIZE, 1), np.float32)
    for image, kind in zip(images, kinds, strict=True):
        cy, cx = rng.uniform(10, SIZE - 10, 2)
        radius = rng.uniform(4, 9)
        dy, dx = np.abs(y - cy), np.abs(x - cx)
        shape = (
            np.maximum(dy, dx) < radius,
            np.hypot(dy, dx) < radius,
            (np.minimum(dy, dx) < 2) & (np.maximum(dy, dx) < radius),
            (np.maximum(dy, dx) < radius) & ((y + x) % 6 < 3),
        )[kind]
        image[..., 0] = shape + 0.3 * rng.normal(size=shape.shape)
    return jnp.asarray(images), jnp.asarray(kinds)


def convolve(x: Any, kernel: Any, *, stride: int = 1, groups: int = 1) -> Any:
    """A convolution of images [B, H, W, C]."""
    return jax.lax.conv_general_dilated(
        x,
        kernel,
        (stride, stride),
        "SAME",
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
        feature_group_count=groups,
    )


def init(seed: int) -> Params:
    """Parameters of the network."""
    keys = iter(jax.random.split(jax.random.key(seed), 16))
    params: Params = {"stem": jax.random.normal(next(keys), (3, 3, 1, WIDTHS[0])) / 3}
    for i, (inputs, outputs) in enumerate(zip(WIDTHS, (*WIDTHS[1:], 128), strict=True)):
        params[f"depthwise{i}"] = jax.random.normal(next(keys), (5, 5, 1, inputs)) / 5
        scale = np.sqrt(2 / inputs)
        shape = (1, 1, inputs, outputs)
        params[f"pointwise{i}"] = scale * jax.random.normal(next(keys), shape)
    params["head"] = jax.random.normal(next(keys), (128, CLASSES)) / np.sqrt(128)
    return params


def logits_of(params: Params, images: Any) -> Any:
    """Logits [B, CLASSES]."""
    x = jax.nn.relu(convolve(images, params["stem"], stride=2))
    for i in range(len(WIDTHS)):
        kernel = params[f"depthwise{i}"]
        x = jax.nn.relu(convolve(x, kernel, groups=x.shape[-1]))
        x = jax.nn.relu(convolve(x, params[f"pointwise{i}"], stride=1 + i % 2))
    return x.mean((1, 2)) @ params["head"]


def loss_of(params: Params, images: Any, kinds: Any) -> Any:
    """Mean cross entropy."""
    chosen = jax.nn.log_softmax(logits_of(params, images))
    return -jnp.take_along_axis(chosen, kinds[:, None], axis=1).mean()


@jax.jit
def train_step(params: Params, momentum: Params, images: Any, kinds: Any) -> Any:
    """A step of gradient descent with momentum."""
    loss, gradient = jax.value_and_grad(loss_of)(params, images, kinds)
    momentum = jax.tree.map(lambda m, g: 0.9 * m + g, momentum, gradient)
    params = jax.tree.map(lambda p, m: p - 0.02 * m, params, momentum)
    return params, momentum, loss


@jax.jit
def accuracy(params: Params, images: Any, kinds: Any) -> Any:
    """Share of the images whose kind is found."""
    return (logits_of(params, images).argmax(-1) == kinds).mean()


def main() -> None:
    """Trains, and prints the loss, the accuracy and the time of a step."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--batch", type=int, default=32)
    arguments = parser.parse_args()
    rng = np.random.default_rng(0)
    batches = [draw(rng, arguments.batch) for _ in range(8)]
    tested = draw(rng, 256)
    params = init(0)
    momentum = jax.tree.map(jnp.zeros_like, params)
    durations = []
    for step in range(arguments.steps):
        images, kinds = batches[step % len(batches)]
        started = time.perf_counter()
        params, momentum, loss = train_step(params, momentum, images, kinds)
        jax.block_until_ready(loss)
        durations.append(time.perf_counter() - started)
        if step % 20 == 19:
            found = float(accuracy(params, *tested))
            print(f"step {step + 1}: loss {float(loss):.3f}, accuracy {found:.2f}")
    middle = 1e3 * float(np.median(durations[1:] or durations))
    print(f"median step: {middle:.3f} ms")


if __name__ == "__main__":
    main()
