#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Networks of depthwise, grouped and transposed convolutions, at real sizes.

Written here after their papers, each as inference and as a training step with momentum,
the two largest at 96x96 in training:
MobileNet-v2, EfficientNet-B0, stages of ConvNeXt-T, ResNeXt-50 and ShuffleNet, DCGAN's
generator, and a U-Net with transposed convolutions. `PROGRAMS` maps a name to a kind
and a function that makes the program and its arguments, as in programs.py.

    python scripts/examples/networks.py            # all of them, with jax and hloenv
    python scripts/examples/networks.py U-Net      # those whose name has this text
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from programs import Program, compare, convolve, normal
from unseen import cross_entropy, integers, training_step

Params = dict[str, Any]

# Width multiplier, outputs, blocks, stride and window of each stage.
_MOBILE = (
    *((1, 16, 1, 1, 3), (6, 24, 2, 2, 3), (6, 32, 3, 2, 3), (6, 64, 4, 2, 3)),
    *((6, 96, 3, 1, 3), (6, 160, 3, 2, 3), (6, 320, 1, 1, 3)),
)
_EFFICIENT = (
    *((1, 16, 1, 1, 3), (6, 24, 2, 2, 3), (6, 40, 2, 2, 5), (6, 80, 3, 2, 3)),
    *((6, 112, 3, 1, 5), (6, 192, 4, 2, 5), (6, 320, 1, 1, 3)),
)


class Network:
    """Layers, whose parameters are given in order, or made.

    What it calls by these names is jax's; `torch_networks.py` has PyTorch's.

    Args:
        given: of each layer, in order; None to make them.

    Attributes:
        params: those that were made.
    """

    relu, relu6 = staticmethod(jax.nn.relu), staticmethod(jax.nn.relu6)
    silu, gelu = staticmethod(jax.nn.silu), staticmethod(jax.nn.gelu)
    sigmoid, tanh = staticmethod(jax.nn.sigmoid), staticmethod(jnp.tanh)

    def __init__(self, given: Sequence[Params] | None = None) -> None:
        self.params: list[Params] = []
        self._given = None if given is None else iter(given)

    def _next(self, make: Callable[[int], Params]) -> Params:
        if self._given is not None:
            return next(self._given)
        with jax.ensure_compile_time_eval():
            self.params.append(make(len(self.params)))
        return self.params[-1]

    def conv(
        self,
        x: Any,
        outputs: int,
        window: int,
        *,
        stride: int = 1,
        groups: int = 1,
        is_normal: bool = True,
    ) -> Any:
        """A convolution, and if wanted normalization by the batch: [N, H, W, C]."""
        inputs = x.shape[-1] // groups

        def make(seed: int) -> Params:
            kernel = normal(window, window, inputs, outputs, seed=seed)
            params = {
                "kernel": kernel / math.sqrt(window * window * inputs),
                "bias": jnp.zeros(outputs, jnp.float32),
            }
            if is_normal:
                params["scale"] = jnp.ones(outputs, jnp.float32)
            return params

        p = self._next(make)
        y = self.convolve(x, p["kernel"], stride, groups)
        if is_normal:
            y = p["scale"] * self.standardized(y, (0, 1, 2))
        return y + p["bias"]

    def up(self, x: Any, outputs: int, window: int = 4) -> Any:
        """A transposed convolution that doubles height and width."""
        inputs = x.shape[-1]

        def make(seed: int) -> Params:
            kernel = normal(window, window, inputs, outputs, seed=seed)
            return {
                "kernel": kernel / math.sqrt(window * window * inputs / 4),
                "bias": jnp.zeros(outputs, jnp.float32),
            }

        p = self._next(make)
        return self.convolve_up(x, p["kernel"]) + p["bias"]

    def dense(self, x: Any, outputs: int) -> Any:
        """A product with a matrix, and a bias."""
        inputs = x.shape[-1]

        def make(seed: int) -> Params:
            matrix = normal(inputs, outputs, seed=seed) / math.sqrt(inputs)
            return {"matrix": matrix, "bias": jnp.zeros(outputs, jnp.float32)}

        p = self._next(make)
        return x @ p["matrix"] + p["bias"]

    @staticmethod
    def convolve(x: Any, kernel: Any, stride: int, groups: int) -> Any:
        """A convolution with as many outputs as inputs over `stride`."""
        return convolve(x, kernel, stride=stride, groups=groups)

    @staticmethod
    def convolve_up(x: Any, kernel: Any) -> Any:
        """A transposed convolution that doubles height and width."""
        form = ("NHWC", "HWIO", "NHWC")
        return jax.lax.conv_transpose(x, kernel, (2, 2), "SAME", dimension_numbers=form)

    @staticmethod
    def standardized(x: Any, axes: int | tuple[int, ...]) -> Any:
        """Mean 0 and variance 1 over some axes."""
        return (x - x.mean(axes, keepdims=True)) * jax.lax.rsqrt(
            x.var(axes, keepdims=True) + 1e-5
        )

    @staticmethod
    def largest(x: Any, axes: tuple[int, ...]) -> Any:
        """The maximum over some axes."""
        return x.max(axes)

    @staticmethod
    def joined(parts: Sequence[Any]) -> Any:
        """Channels of several arrays, one after the other."""
        return jnp.concatenate(parts, -1)


def inverted(net: Network, x: Any, stages: Any, act: Any, *, excite: bool) -> Any:
    """Stages of inverted residual blocks; with squeeze and excitation if wanted."""
    for factor, outputs, blocks, first_stride, window in stages:
        for block in range(blocks):
            stride, inputs = (first_stride if block == 0 else 1), x.shape[-1]
            y = x if factor == 1 else act(net.conv(x, factor * inputs, 1))
            y = act(net.conv(y, y.shape[-1], window, stride=stride, groups=y.shape[-1]))
            if excite:
                squeezed = act(net.dense(y.mean((1, 2)), max(1, inputs // 4)))
                gate = net.sigmoid(net.dense(squeezed, y.shape[-1]))
                y = y * gate[:, None, None]
            y = net.conv(y, outputs, 1)
            x = x + y if stride == 1 and inputs == outputs else y
    return x


def mobilenet(net: Network, x: Any) -> Any:
    """MobileNet-v2: logits of 1000 classes."""
    act = net.relu6
    x = act(net.conv(x, 32, 3, stride=2))
    x = act(net.conv(inverted(net, x, _MOBILE, act, excite=False), 1280, 1))
    return net.dense(x.mean((1, 2)), 1000)


def efficientnet(net: Network, x: Any) -> Any:
    """EfficientNet-B0: logits of 1000 classes."""
    act = net.silu
    x = act(net.conv(x, 32, 3, stride=2))
    x = act(net.conv(inverted(net, x, _EFFICIENT, act, excite=True), 1280, 1))
    return net.dense(x.mean((1, 2)), 1000)


def convnext(net: Network, x: Any) -> Any:
    """Three blocks of ConvNeXt-T's third stage, and a head."""
    width = x.shape[-1]
    for _ in range(3):
        y = net.conv(x, width, 7, groups=width, is_normal=False)
        y = net.dense(net.standardized(y, -1), 4 * width)
        x = x + net.dense(net.gelu(y), width)
    return net.dense(x.mean((1, 2)), 1000)


def resnext(net: Network, x: Any) -> Any:
    """Three blocks of ResNeXt-50's second stage, of 32 groups, and a head."""
    width = x.shape[-1]
    for _ in range(3):
        y = net.relu(net.conv(x, width // 2, 1))
        y = net.relu(net.conv(y, width // 2, 3, groups=32))
        x = net.relu(x + net.conv(y, width, 1))
    return net.dense(x.mean((1, 2)), 1000)


def shufflenet(net: Network, x: Any) -> Any:
    """Four units of ShuffleNet's second stage, of four groups, and a head."""
    width = x.shape[-1]
    for _ in range(4):
        y = net.relu(net.conv(x, width // 4, 1, groups=4))
        shuffled = y.reshape(*y.shape[:3], 4, -1).swapaxes(3, 4).reshape(y.shape)
        y = net.conv(shuffled, width // 4, 3, groups=width // 4)
        x = net.relu(x + net.conv(y, width, 1, groups=4))
    return net.dense(x.mean((1, 2)), 1000)


def generator(net: Network, x: Any) -> Any:
    """DCGAN's generator of images of 64x64x3."""
    x = net.dense(x, 4 * 4 * 512).reshape(-1, 4, 4, 512)
    for outputs in (256, 128, 64):
        x = net.relu(net.standardized(net.up(net.relu(x), outputs), (0, 1, 2)))
    return net.tanh(net.up(x, 3))


def unet(net: Network, x: Any) -> Any:
    """A U-Net of four levels that goes up by transposed convolutions."""
    across = []
    for level in range(3):
        x = net.relu(net.conv(x, 32 * 2**level, 3))
        x = net.relu(net.conv(x, 32 * 2**level, 3))
        across.append(x)
        x = x.reshape(x.shape[0], x.shape[1] // 2, 2, x.shape[2] // 2, 2, -1)
        x = net.largest(x, (2, 4))
    x = net.relu(net.conv(x, 256, 3))
    for level in (2, 1, 0):
        x = net.joined([net.up(x, 32 * 2**level, 2), across.pop()])
        x = net.relu(net.conv(x, 32 * 2**level, 3))
    return net.conv(x, 3, 1)


def program(
    network: Callable[[Network, Any], Any], shape: tuple[int, ...], *, is_step: bool
) -> Program:
    """A network on random inputs.

    Args:
        network: applies its layers.
        shape: of the inputs.
        is_step: whether it is a training step: for classes where there are logits,
            else for a random image.
    """
    net, x = Network(), normal(*shape, seed=999)
    out = jax.eval_shape(partial(network, net), x)

    def run(params: Any, x: Any) -> Any:
        return network(Network(params), x)

    if not is_step:
        return run, (net.params, x)

    def loss(params: Any, x: Any, target: Any) -> Any:
        y = run(params, x)
        return cross_entropy(y, target) if y.ndim == 2 else ((y - target) ** 2).mean()

    is_logits = len(out.shape) == 2
    target = integers(1000, shape[0]) if is_logits else normal(*out.shape, seed=998)
    return training_step(loss, net.params, x, target)


# Each network, and the shapes of its inputs as inference and in training.
NETWORKS: dict[str, tuple[Any, tuple[int, ...], tuple[int, ...]]] = {
    "MobileNet-v2": (mobilenet, (1, 224, 224, 3), (4, 96, 96, 3)),
    "EfficientNet-B0": (efficientnet, (1, 224, 224, 3), (4, 96, 96, 3)),
    "ConvNeXt-T stage": (convnext, (1, 14, 14, 384), (4, 14, 14, 384)),
    "ResNeXt-50 stage": (resnext, (1, 28, 28, 512), (4, 28, 28, 512)),
    "ShuffleNet stage": (shufflenet, (1, 28, 28, 272), (4, 28, 28, 272)),
    "DCGAN generator": (generator, (16, 100), (16, 100)),
    "U-Net": (unet, (1, 128, 128, 3), (1, 128, 128, 3)),
}
PROGRAMS: dict[str, tuple[str, Callable[[], Program]]] = {
    f"{name}, {kind}": (kind, partial(program, network, shape, is_step=is_step))
    for name, (network, *shapes) in NETWORKS.items()
    for kind, shape, is_step in (
        ("inference", shapes[0], False),
        ("training step", shapes[1], True),
    )
}


if __name__ == "__main__":
    compare(PROGRAMS)
