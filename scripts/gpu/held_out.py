# SPDX-License-Identifier: Apache-2.0
"""Programs that no rule for GPUs was chosen on: networks, sampling, recurrence.

As `PROGRAMS` in cases.py. The networks are those of scripts/examples/networks.py,
with larger batches.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from cases import (
    F32,
    I32,
    Argument,
    Case,
    block,
    block_arguments,
    flattened,
    weight,
)

sys.path.append(str(Path(__file__).parents[1] / "examples"))
import networks

jax.config.update("jax_enable_x64", False)  # as in cases.py; networks.py sets it


def network(apply: Callable[..., Any], *shape: int, is_step: bool) -> Case:
    """A network, or its training step with momentum."""
    run, values = networks.program(apply, shape, is_step=is_step)
    leaves, tree = jax.tree.flatten(values)
    return flattened(run, tree), [_like(each) for each in leaves]


def _like(array: Any) -> Argument:
    """An argument as `array`; weights with the scale of their layer."""
    if array.dtype.kind == "i":
        return Argument(array.shape, I32, high=1000)
    is_weight = array.ndim in (2, 4)
    scale = 1 / math.sqrt(math.prod(array.shape[:-1])) if is_weight else 0.5
    return Argument(array.shape, F32, scale)


def gru_step() -> Case:
    """The gradient of a gated recurrent network over 64 steps."""

    def loss(weights: Any, x: Any) -> Any:
        w, u = weights

        def step(h: Any, xt: Any) -> Any:
            a, b = jnp.split(jax.nn.sigmoid(xt @ w[:, :1024] + h @ u[:, :1024]), 2, -1)
            new = jnp.tanh(xt @ w[:, 1024:] + (a * h) @ u[:, 1024:])
            h = (1 - b) * h + b * new
            return h, h

        return (jax.lax.scan(step, jnp.zeros((32, 512)), x)[1] ** 2).mean()

    def run(w: Any, u: Any, x: Any) -> Any:
        return jax.grad(loss)((w, u), x)

    return run, [weight(256, 1536), weight(512, 1536), Argument((64, 32, 256))]


def sampling() -> Case:
    """The 16 likeliest of 32,000 words, and one of them drawn."""

    def run(logits: Any, noise: Any) -> Any:
        values, indices = jax.lax.top_k(logits, 16)
        chosen = jnp.argmax(jax.nn.log_softmax(values) + noise, 1)
        return jnp.take_along_axis(indices, chosen[:, None], 1)[:, 0]

    return run, [Argument((64, 32_000)), Argument((64, 16))]


def beam_search() -> Case:
    """The eight best continuations of eight beams."""

    def run(scores: Any, logits: Any) -> Any:
        total = scores[..., None] + jax.nn.log_softmax(logits)
        best, at = jax.lax.top_k(total.reshape(scores.shape[0], -1), 8)
        return best, at // logits.shape[-1], at % logits.shape[-1]

    return run, [Argument((16, 8)), Argument((16, 8, 32_000))]


def routing() -> Case:
    """A mixture of 64 experts: the two best for each of 16,384 tokens."""

    def run(x: Any, gate: Any) -> Any:
        # Rounding would choose other experts.
        scores = jnp.matmul(x, gate, precision="highest")
        weights, experts = jax.lax.top_k(jax.nn.softmax(scores), 2)
        counts = jnp.zeros(gate.shape[1]).at[experts.reshape(-1)].add(1)
        return weights / weights.sum(-1, keepdims=True), experts, counts

    return run, [Argument((16_384, 512)), weight(512, 64)]


def saliency() -> Case:
    """The gradient of a vision transformer's output with respect to its images."""

    def loss(x: Any, kernel: Any, *weights: Any) -> Any:
        tokens = jax.lax.conv_general_dilated(
            x, kernel, (16, 16), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC")
        )
        return block(tokens.reshape(x.shape[0], -1, 384), *weights).var()

    images = Argument((32, 224, 224, 3))
    kernel = weight(16, 16, 3, 384)
    return jax.grad(loss), [images, kernel, *block_arguments(384, F32)]


def pooled_step() -> Case:
    """The gradient of three convolutions, each with a maximum of windows after it."""

    def loss(kernels: Any, x: Any) -> Any:
        for kernel in kernels:
            x = jax.nn.relu(networks.convolve(x, kernel))
            x = jax.lax.reduce_window(
                x, -jnp.inf, jax.lax.max, (1, 3, 3, 1), (1, 2, 2, 1), "SAME"
            )
        return x.var()

    def run(x: Any, *kernels: Any) -> Any:
        return jax.grad(loss)(kernels, x)

    shapes = (3, 3, 3, 64), (3, 3, 64, 128), (3, 3, 128, 128)
    return run, [Argument((64, 96, 96, 3)), *(weight(*shape) for shape in shapes)]


def upsampling() -> Case:
    """The gradient of a convolution of images that were made twice as large."""

    def loss(kernel: Any, x: Any) -> Any:
        batch, height, width, features = x.shape
        x = jax.image.resize(x, (batch, 2 * height, 2 * width, features), "bilinear")
        return networks.convolve(x, kernel).var()

    return jax.grad(loss, (0, 1)), [weight(3, 3, 64, 64), Argument((16, 56, 56, 64))]


PROGRAMS: dict[str, Callable[[], Case]] = {
    "mobilenet": lambda: network(networks.mobilenet, 32, 128, 128, 3, is_step=False),
    "convnext_step": lambda: network(networks.convnext, 32, 14, 14, 384, is_step=True),
    "resnext_step": lambda: network(networks.resnext, 32, 28, 28, 512, is_step=True),
    "dcgan_step": lambda: network(networks.generator, 64, 100, is_step=True),
    "unet_step": lambda: network(networks.unet, 8, 128, 128, 3, is_step=True),
    "gru_step": gru_step,
    "sampling": sampling,
    "beam_search": beam_search,
    "routing": routing,
    "saliency": saliency,
    "pooled_step": pooled_step,
    "upsampling": upsampling,
}
