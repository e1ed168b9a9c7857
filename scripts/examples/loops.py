#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Convolutions in loops and branches: training in a scan, samplers, deep networks.

XLA gives convolutions on a CPU to a library where their dimensions have its order, and
brings them into that order in the entry computation alone: gradients with respect to
images and kernels, and images with the features first, are slow in loops and branches.
The rule (`convolution-forms/channels_last`) was set on single convolutions. These
programs were written afterwards. `PROGRAMS` maps a name to a kind and a function that
makes the program and arguments.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from programs import Program, compare, normal

Params = Any


def convolve(x: Any, kernel: Any, stride: int = 1, order: str = "NHWC") -> Any:
    """A convolution of images with the features last or, as of PyTorch, first."""
    numbers = (order, "HWIO" if order == "NHWC" else "OIHW", order)
    return lax.conv_general_dilated(
        x, kernel, (stride, stride), "SAME", dimension_numbers=numbers
    )


def kernels(*features: int, first: bool = False) -> list[Any]:
    """Of 3x3 convolutions from each number of features to the next."""
    made = []
    for seed, (inputs, outputs) in enumerate(itertools.pairwise(features)):
        kernel = normal(3, 3, inputs, outputs, seed=seed + 1) / (3 * inputs**0.5)
        made.append(kernel.transpose(3, 2, 0, 1) if first else kernel)
    return made


def classes(params: Params, x: Any) -> Any:
    """Scores of a small CNN: two layers of strides of two, and a dense one."""
    for kernel in params[0]:
        x = jax.nn.relu(convolve(x, kernel, 2))
    return x.reshape(len(x), -1) @ params[1]


def cross_entropy(params: Params, x: Any, labels: Any) -> Any:
    """Of these classes."""
    scores = jax.nn.log_softmax(classes(params, x))
    return -jnp.take_along_axis(scores, labels[:, None], 1).mean()


def descend(params: Params, gradients: Params) -> Params:
    """A step of gradient descent."""
    return jax.tree.map(lambda a, b: a - 0.1 * b, params, gradients)


def digits(*leading: int) -> tuple[Params, Any, Any]:
    """Weights of the CNN, images of digits and labels."""
    params = kernels(1, 16, 32), normal(7 * 7 * 32, 10, seed=9) / 40
    return params, normal(*leading, 28, 28, 1), jnp.zeros(leading, jnp.int32) + 3


def train_in_scan() -> Program:
    """An epoch of eight steps of the CNN, 32 images each, in one scan."""

    def epoch(params: Params, images: Any, labels: Any) -> Params:
        def step(params: Params, batch: Any) -> tuple[Params, None]:
            return descend(params, jax.grad(cross_entropy)(params, *batch)), None

        return lax.scan(step, params, (images, labels))[0]

    return epoch, digits(8, 32)


def accumulate() -> Program:
    """Gradients of three residual layers, summed over four parts of a batch."""

    def loss(params: Params, x: Any) -> Any:
        for kernel in params:
            x = x + jax.nn.gelu(convolve(x, kernel))
        return (x**2).mean()

    def gradients(params: Params, parts: Any) -> Params:
        def add(total: Params, part: Any) -> tuple[Params, None]:
            found = jax.grad(loss)(params, part)
            return jax.tree.map(jnp.add, total, found), None

        return lax.scan(add, jax.tree.map(jnp.zeros_like, params), parts)[0]

    return gradients, (kernels(32, 32, 32, 32), normal(4, 4, 32, 32, 32))


def deep() -> Program:
    """The gradient of twelve equal residual layers, a scan over their weights."""

    def loss(params: Params, x: Any) -> Any:
        def layer(x: Any, kernel: Any) -> tuple[Any, None]:
            return x + jax.nn.silu(convolve(x, kernel)), None

        return (lax.scan(layer, x, params)[0] ** 2).mean()

    params = normal(12, 3, 3, 32, 32, seed=1) / 20
    return jax.grad(loss), (params, normal(4, 24, 24, 32))


def meta_learning() -> Program:
    """Three steps of gradient descent for each of eight tasks."""

    def adapt(params: Params, images: Any, labels: Any) -> Params:
        def one(task: Any) -> Any:
            def step(_: int, own: Params) -> Params:
                return descend(own, jax.grad(cross_entropy)(own, *task))

            return cross_entropy(lax.fori_loop(0, 3, step, params), *task)

        return lax.map(one, (images, labels)).mean()

    return adapt, digits(8, 10)


def attack() -> Program:
    """Ten steps towards images that the CNN takes for others."""

    def worst(images: Any, params: Params, labels: Any) -> Any:
        def step(_: int, x: Any) -> Any:
            slope = jax.grad(cross_entropy, 1)(params, x, labels)
            return jnp.clip(x + 0.01 * jnp.sign(slope), images - 0.1, images + 0.1)

        return lax.fori_loop(0, 10, step, images)

    params, images, labels = digits(16)
    return worst, (images, params, labels)


def denoiser(params: Params, x: Any, order: str) -> Any:
    """A residual network."""
    first, *middle, last = params
    x = convolve(x, first, order=order)
    for kernel in middle:
        x = x + convolve(jax.nn.silu(x), kernel, order=order)
    return convolve(jax.nn.silu(x), last, order=order)


def sampler(order: str) -> Program:
    """Ten steps of diffusion on two images."""
    is_first = order == "NCHW"

    def sample(params: Params, x: Any) -> Any:
        def step(i: int, x: Any) -> Any:
            return x - 0.1 * denoiser(params, x * (1 - 0.05 * i), order)

        return lax.fori_loop(0, 10, step, x)

    shape = (2, 3, 32, 32) if is_first else (2, 32, 32, 3)
    return sample, (kernels(3, 32, 32, 32, 3, first=is_first), normal(*shape))


def equilibrium() -> Program:
    """A fixed point of a layer of images with the features first, to a tolerance."""

    def solve(kernel: Any, x: Any) -> Any:
        def is_far(state: Any) -> Any:
            i, _, error = state
            return (error > 1e-4) & (i < 30)

        def step(state: Any) -> Any:
            i, z, _ = state
            after = jnp.tanh(0.3 * convolve(z, kernel, order="NCHW") + x)
            return i + 1, after, abs(after - z).max()

        return lax.while_loop(is_far, step, (0, jnp.zeros_like(x), jnp.inf))[1]

    (kernel,) = kernels(24, 24, first=True)
    return solve, (kernel, normal(4, 24, 24, 24))


def video() -> Program:
    """The gradient of a convolutional LSTM over eight frames."""

    def loss(kernel: Any, frames: Any) -> Any:
        def step(state: Any, frame: Any) -> Any:
            h, c = state
            gates = convolve(jnp.concatenate([frame, h], -1), kernel)
            i, f, o, g = jnp.split(gates, 4, -1)
            c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
            h = jax.nn.sigmoid(o) * jnp.tanh(c)
            return (h, c), h

        zero = jnp.zeros((*frames.shape[1:-1], 16), frames.dtype)
        return (lax.scan(step, (zero, zero), frames)[1] ** 2).mean()

    (kernel,) = kernels(24, 64)
    return jax.grad(loss), (kernel, normal(8, 2, 24, 24, 8))


def early_exit() -> Program:
    """Layers of which the later ones run only where the first are not sure."""

    def scores(params: Params, x: Any) -> Any:
        x = jax.nn.relu(convolve(x, params[0], order="NCHW"))

        def later(x: Any) -> Any:
            for kernel in params[1:]:
                x = x + jax.nn.relu(convolve(x, kernel, order="NCHW"))
            return x

        return lax.cond(x.mean() < 9, later, lambda x: x, x).mean((2, 3))

    return scores, (kernels(3, 32, 32, 32, 32, first=True), normal(4, 3, 32, 32))


def signals() -> Program:
    """The gradient of eight dilated layers of a signal, a scan over their weights."""

    def loss(params: Params, x: Any) -> Any:
        def layer(x: Any, kernel: Any) -> tuple[Any, None]:
            y = lax.conv_general_dilated(
                *(x, kernel, (1,), [(4, 0)]),
                rhs_dilation=(2,),
                dimension_numbers=("NHC", "HIO", "NHC"),
            )
            return x + jnp.tanh(y), None

        return (lax.scan(layer, x, params)[0] ** 2).mean()

    params = normal(8, 3, 32, 32, seed=1) / 10
    return jax.grad(loss), (params, normal(4, 1024, 32))


PROGRAMS: dict[str, tuple[str, Callable[[], Program]]] = {
    "epoch of a CNN in a scan": ("training", train_in_scan),
    "gradients summed over parts of a batch": ("training", accumulate),
    "gradient of a scan over layers": ("training", deep),
    "adaptation to tasks": ("training", meta_learning),
    "adversarial images": ("training", attack),
    "diffusion, features first": ("sampling", lambda: sampler("NCHW")),
    "diffusion, features last": ("sampling", lambda: sampler("NHWC")),
    "equilibrium of a layer, features first": ("inference", equilibrium),
    "gradient of a convolutional LSTM": ("training", video),
    "early exit, features first": ("inference", early_exit),
    "gradient of dilated layers of signals": ("training", signals),
}


if __name__ == "__main__":
    compare(PROGRAMS)
