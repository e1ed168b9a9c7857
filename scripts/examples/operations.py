#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Operations in jax and in PyTorch, most of which XLA's CPU backend runs slower.

`OPERATIONS` maps a name to a function that makes the operation in both, with the same
numbers: each in its own usual layout of images ([n, h, w, c] in jax, [n, c, h, w] in
PyTorch). Those of `_RUN_WELL` are controls: XLA runs them well, some of them in forms
that others than the usual ones were tried for, as sums of segments.

    python scripts/examples/operations.py            # all of them
    python scripts/examples/operations.py pooling    # those whose name has this text
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch
from torch.nn import functional

import hloenv

Tensors = tuple[Any, ...]
Function = Callable[..., Any]


@dataclass(frozen=True)
class Operation:
    """One operation in jax and in PyTorch.

    Attributes:
        jax: a function of `arrays`.
        torch: a function of tensors, with the results of `jax`.
        arrays: the arguments, numpy.
        layouts: for each argument how PyTorch's axes follow from jax's; None if they
            are the same.
        results: likewise for the results.
        off: how far each result may be off, in the root mean square and relative, where
            rounding decides what is computed, as in front of a ReLU; None: all its
            elements are compared.
    """

    jax: Function
    torch: Function
    arrays: tuple[np.ndarray, ...]
    layouts: tuple[tuple[int, ...] | None, ...]
    results: tuple[tuple[int, ...] | None, ...] = (None,)
    off: float | None = None

    def torch_tensors(self) -> Tensors:
        """The arguments of `torch`."""
        return tuple(
            torch.from_numpy(np.ascontiguousarray(_transposed(array, layout)))
            for array, layout in zip(self.arrays, self.layouts, strict=True)
        )

    def channels_last_tensors(self) -> Tensors:
        """The same in memory as [n, h, w, c], which PyTorch may prefer for images."""
        return tuple(
            each.contiguous(memory_format=torch.channels_last)
            if each.ndim == 4
            else each
            for each in self.torch_tensors()
        )

    def in_jax_layout(self, outputs: Any) -> list[np.ndarray]:
        """The results of `torch` as numpy arrays, comparable with those of `jax`."""
        found = outputs if isinstance(outputs, tuple) else (outputs,)
        return [
            _transposed(each.numpy(), None if axes is None else np.argsort(axes))
            for each, axes in zip(found, self.results, strict=True)
        ]


def _transposed(array: np.ndarray, axes: Any) -> np.ndarray:
    return array if axes is None else array.transpose(tuple(axes))


IMAGES = (0, 3, 1, 2)  # from [n, h, w, c] to [n, c, h, w]
KERNEL = (3, 2, 0, 1)  # from [h, w, in, out] to [out, in, h, w]


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    """Random numbers of a standard normal distribution."""
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def gradient_of(operation: Operation) -> Operation:
    """Value and gradient with respect to all arguments, for a given one of the result.

    With the value, as PyTorch computes it in any case.
    """
    shape = jax.eval_shape(operation.jax, *operation.arrays).shape

    def by_jax(cotangent: Any, *arrays: Any) -> Any:
        value, pull = jax.vjp(operation.jax, *arrays)
        return value, *pull(cotangent)

    def by_torch(cotangent: Any, *tensors: Any) -> Any:
        tensors = tuple(each.detach().requires_grad_() for each in tensors)
        value = operation.torch(*tensors)
        return value.detach(), *torch.autograd.grad(value, tensors, cotangent)

    return Operation(
        by_jax,
        by_torch,
        (normal(*shape, seed=9), *operation.arrays),
        (operation.results[0], *operation.layouts),
        (operation.results[0], *operation.layouts),
    )


def convolution(
    size: int,
    channels: tuple[int, int],
    window: int,
    *,
    groups: int = 1,
    stride: int = 1,
    padding: int = 0,
    images: int = 1,
) -> Operation:
    """A convolution."""

    def by_jax(x: Any, kernel: Any) -> Any:
        return jax.lax.conv_general_dilated(
            x,
            kernel,
            (stride, stride),
            [(padding, padding)] * 2,
            dimension_numbers=("NHWC", "HWIO", "NHWC"),
            feature_group_count=groups,
        )

    by_torch = partial(functional.conv2d, stride=stride, padding=padding, groups=groups)
    left, right = channels
    kernel = normal(window, window, left // groups, right, seed=1) / window
    x = normal(images, size, size, left)
    return Operation(by_jax, by_torch, (x, kernel), (IMAGES, KERNEL), (IMAGES,))


def transposed_convolution() -> Operation:
    """A layer of a generator: 16x16 to 32x32."""

    def by_jax(x: Any, kernel: Any) -> Any:
        return jax.lax.conv_transpose(
            x,
            kernel,
            (2, 2),
            [(2, 2), (2, 2)],
            dimension_numbers=("NHWC", "HWIO", "NHWC"),
        )

    def by_torch(x: Any, kernel: Any) -> Any:
        flipped = kernel.flip(2, 3)  # PyTorch's is that of a convolution's gradient
        return functional.conv_transpose2d(x, flipped, stride=2, padding=1)

    arrays = normal(4, 16, 16, 128), normal(4, 4, 128, 64, seed=1) / 20
    return Operation(by_jax, by_torch, arrays, (IMAGES, (2, 3, 0, 1)), (IMAGES,))


def plain(by_jax: Function, by_torch: Function, *arrays: np.ndarray) -> Operation:
    """An operation whose arrays have the same axes in both."""
    return Operation(by_jax, by_torch, arrays, (None,) * len(arrays))


def resize() -> Operation:
    """Bilinear, to twice the size."""

    def by_jax(x: Any) -> Any:
        return jax.image.resize(x, (1, 128, 128, 64), "bilinear")

    def by_torch(x: Any) -> Any:
        return functional.interpolate(x, scale_factor=2, mode="bilinear")

    return Operation(by_jax, by_torch, (normal(1, 64, 64, 64),), (IMAGES,), (IMAGES,))


def average_pooling() -> Operation:
    """Of windows of 3x3."""

    def by_jax(x: Any) -> Any:
        window = (1, 3, 3, 1)
        return jax.lax.reduce_window(x, 0.0, jax.lax.add, window, (1,) * 4, "VALID") / 9

    def by_torch(x: Any) -> Any:
        return functional.avg_pool2d(x, 3, stride=1)

    return Operation(by_jax, by_torch, (normal(1, 56, 56, 64),), (IMAGES,), (IMAGES,))


def max_pooling(size: int = 2, stride: int = 2, padding: int = 0) -> Operation:
    """Of square windows."""

    def by_jax(x: Any) -> Any:
        shape, strides = (1, size, size, 1), (1, stride, stride, 1)
        pads = ((0, 0), (padding,) * 2, (padding,) * 2, (0, 0))
        return jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, shape, strides, pads)

    def by_torch(x: Any) -> Any:
        return functional.max_pool2d(x, size, stride, padding)

    return Operation(by_jax, by_torch, (normal(4, 56, 56, 64),), (IMAGES,), (IMAGES,))


def patches(size: int = 8, stride: int = 4) -> Operation:
    """Of 4 images 112x112x3, which overlap: first the channels, then the pixels."""

    def by_jax(x: Any) -> Any:
        return jax.lax.conv_general_dilated_patches(
            x, (size, size), (stride, stride), "VALID"
        )

    def by_torch(x: Any) -> Any:
        side = (x.shape[-1] - size) // stride + 1
        return functional.unfold(x, size, stride=stride).unflatten(2, (side, side))

    return Operation(by_jax, by_torch, (normal(4, 3, 112, 112),), (None,))


def group_normalization() -> Operation:
    """Of 8 groups, as flax's GroupNorm computes it."""

    def by_jax(x: Any) -> Any:
        groups = x.reshape(*x.shape[:-1], 8, x.shape[-1] // 8)
        mean, square = (
            each.mean((1, 2, 4), keepdims=True) for each in (groups, groups**2)
        )
        variance = jnp.maximum(square - mean**2, 0)
        return ((groups - mean) * jax.lax.rsqrt(variance + 1e-5)).reshape(x.shape)

    def by_torch(x: Any) -> Any:
        return functional.group_norm(x, 8)

    return Operation(by_jax, by_torch, (normal(8, 56, 56, 64),), (IMAGES,), (IMAGES,))


def sequences() -> Operation:
    """Of each feature with the three steps before, as in Mamba's layers."""

    def by_jax(x: Any, kernel: Any) -> Any:
        return jax.lax.conv_general_dilated(
            *(x, kernel, (1,), ((3, 0),)),
            dimension_numbers=("NWC", "WIO", "NWC"),
            feature_group_count=64,
        )

    def by_torch(x: Any, kernel: Any) -> Any:
        return functional.conv1d(functional.pad(x, (3, 0)), kernel, groups=64)

    return Operation(
        *(by_jax, by_torch, (normal(16, 1024, 64), normal(4, 1, 64, seed=1))),
        *(((0, 2, 1), (2, 1, 0)), ((0, 2, 1),)),
    )


def integers(end: int, *shape: int, seed: int = 0) -> np.ndarray:
    """Random ones from 0 to `end`, without it."""
    return np.random.default_rng(seed).integers(0, end, shape).astype(np.int32)


_PATCHES = partial(convolution, 224, (3, 384), 16, stride=16)
# With their gradients.
_CONVOLUTIONS: dict[str, Callable[[], Operation]] = {
    "depthwise convolution 56x56x64, 3x3": partial(
        convolution, 56, (64, 64), 3, groups=64, padding=1
    ),
    "depthwise convolution 14x14x384, 7x7": partial(
        convolution, 14, (384, 384), 7, groups=384, padding=3
    ),
    "depthwise convolution of 8 images 28x28x96, 7x7": partial(
        convolution, 28, (96, 96), 7, groups=96, padding=3, images=8
    ),
    "convolution of 32 groups, 14x14x256": partial(
        convolution, 14, (256, 256), 3, groups=32, padding=1
    ),
    "transposed convolution 16x16x128": transposed_convolution,
    "convolution 2x2x512, 3x3": partial(convolution, 2, (512, 512), 3, padding=1),
}

_RUN_WELL: dict[str, Callable[[], Operation]] = {
    "product of 768x768": lambda: plain(
        jnp.matmul, torch.matmul, normal(768, 768), normal(768, 768, seed=1) / 28
    ),
    "convolution 28x28x128, 3x3": partial(convolution, 28, (128, 128), 3, padding=1),
    "softmax of 512x512": lambda: plain(
        lambda x: jax.nn.softmax(x), lambda x: x.softmax(1), normal(512, 512)
    ),
    "variance of 1024 rows of 1000": lambda: plain(
        lambda x: x.var(1), lambda x: x.var(1, unbiased=False), normal(1024, 1000)
    ),
    "layer normalization of 1024 rows of 1000": lambda: plain(
        lambda x: (
            (x - x.mean(1, keepdims=True)) / jnp.sqrt(x.var(1, keepdims=True) + 1e-5)
        ),
        lambda x: functional.layer_norm(x, (1000,)),
        normal(1024, 1000),
    ),
    "sums of 1000 segments of 100,000 rows of 16": lambda: plain(
        lambda x, ids: jax.ops.segment_sum(x, ids, 1000),
        lambda x, ids: torch.zeros(1000, 16).index_add_(0, ids, x),
        normal(100_000, 16),
        integers(1000, 100_000),
    ),
    "gradient of 4096 embeddings of 256 of 32,000": lambda: plain(
        lambda x, ids: jnp.zeros((32_000, 256)).at[ids].add(x),
        lambda x, ids: torch.zeros(32_000, 256).index_add_(0, ids, x),
        normal(4096, 256),
        integers(32_000, 4096),
    ),
}

OPERATIONS: dict[str, Callable[[], Operation]] = {
    **_CONVOLUTIONS,
    **{
        f"value and gradient of {name}": (
            lambda make=make: gradient_of(make())  # type: ignore[misc]
        )
        for name, make in _CONVOLUTIONS.items()
    },
    "value and gradient of a 16x16 patch embedding": lambda: gradient_of(_PATCHES()),
    "convolution 224x224x3, 7x7, stride 2": partial(
        convolution, 224, (3, 64), 7, stride=2, padding=3
    ),
    "10,000 products of 4x4": lambda: plain(
        jnp.matmul, torch.matmul, normal(10000, 4, 4), normal(10000, 4, 4, seed=1)
    ),
    "argmax of 1024 rows of 1000": lambda: plain(
        lambda x: jnp.argmax(x, 1), lambda x: x.argmax(1), normal(1024, 1000)
    ),
    "absolute error of 100,000 numbers in a column": lambda: plain(
        lambda x, y: jnp.abs(x - y).mean(),
        lambda x, y: (x - y).abs().mean(),
        normal(100_000, 1),
        normal(100_000, 1, seed=1),
    ),
    "variance of the colours of 8 images 256x256": lambda: plain(
        lambda x: x.var((0, 1, 2)),
        lambda x: x.var((0, 1, 2), unbiased=False),
        normal(8, 256, 256, 3),
    ),
    "equal labels of 64 rows of 32,000": lambda: plain(
        lambda x, y: (x == y).sum(1),
        lambda x, y: (x == y).sum(1, dtype=torch.int32),
        integers(10, 64, 32_000),
        integers(10, 64, 32_000, seed=1),
    ),
    "cumulative sum of a million": lambda: plain(
        lambda x: jnp.cumsum(x, 0), lambda x: x.cumsum(0), normal(1_000_000) / 1000
    ),
    "cumulative sums of 1000 rows of 1000": lambda: plain(
        lambda x: jnp.cumsum(x, 1), lambda x: x.cumsum(1), normal(1000, 1000) / 30
    ),
    "log-softmax of 128x32000": lambda: plain(
        lambda x: jax.nn.log_softmax(x), lambda x: x.log_softmax(1), normal(128, 32000)
    ),
    "bilinear resize 64x64x64, twice": resize,
    "sort of 100,000": lambda: plain(jnp.sort, lambda x: x.sort()[0], normal(100_000)),
    "argsort of 100,000": lambda: plain(
        jnp.argsort, lambda x: x.argsort(stable=True), normal(100_000)
    ),
    "argsort of 256 rows of 1024": lambda: plain(
        lambda x: jnp.argsort(x, 1),
        lambda x: x.argsort(dim=1, stable=True),
        normal(256, 1024),
    ),
    "average pooling 56x56x64, 3x3": average_pooling,
    "value and gradient of max pooling 56x56x64, 2x2": lambda: gradient_of(
        max_pooling()
    ),
    "value and gradient of max pooling 56x56x64, 5x5, stride 1": lambda: gradient_of(
        max_pooling(5, 1, 2)
    ),
    "value and gradient of overlapping patches 8x8 of 4 images 112x112x3": lambda: (
        gradient_of(patches())
    ),
    "sine of a million": lambda: plain(jnp.sin, torch.sin, 10 * normal(1_000_000)),
    "angle of a million points": lambda: plain(
        jnp.arctan2, torch.atan2, normal(1_000_000), normal(1_000_000, seed=1)
    ),
    "remainder of a million by 0.7": lambda: plain(
        lambda x: jax.lax.rem(x, jnp.full_like(x, 0.7)),
        lambda x: x.fmod(0.7),
        10 * normal(1_000_000),
    ),
    "x**-1.5 of a million": lambda: plain(
        lambda x: x**-1.5, lambda x: x**-1.5, abs(normal(1_000_000)) + 0.1
    ),
    "group normalization of 8 images 56x56x64": group_normalization,
    "value and gradient of group normalization of 8 images 56x56x64": lambda: (
        gradient_of(group_normalization())
    ),
    "largest so far of 1000 rows of 1000": lambda: plain(
        lambda x: jax.lax.cummax(x, 1), lambda x: x.cummax(1)[0], normal(1000, 1000)
    ),
    "median of 1024 rows of 999": lambda: plain(
        lambda x: jnp.median(x, 1), lambda x: x.median(1)[0], normal(1024, 999)
    ),
    "causal depthwise convolution of 16 sequences 1024x64, 4": sequences,
    "value and gradient of causal depthwise convolution 1024x64, 4": lambda: (
        gradient_of(sequences())
    ),
    "exact GELU of a million": lambda: plain(
        lambda x: jax.nn.gelu(x, approximate=False),
        functional.gelu,
        normal(1_000_000),
    ),
    "filter of 4 images 256x256, 5x5": partial(
        convolution, 256, (1, 1), 5, padding=2, images=4
    ),
    "filter of 4 images 256x256, 11x11": partial(
        convolution, 256, (1, 1), 11, padding=5, images=4
    ),
    "convolution of colours, 4 images 128x128, 3x3": partial(
        convolution, 128, (3, 3), 3, padding=1, images=4
    ),
    "filter of a signal of 65,536, 101": lambda: plain(
        lambda x, kernel: jnp.convolve(x, kernel, mode="same"),
        lambda x, kernel: functional.conv1d(
            x[None, None], kernel.flip(0)[None, None], padding=50
        )[0, 0],
        normal(65_536),
        normal(101, seed=1) / 10,
    ),
    "convolution 16x16x16 of 16 to 1, 3x3x3": lambda: plain(
        lambda x, kernel: jax.lax.conv_general_dilated(x, kernel, (1, 1, 1), "SAME"),
        lambda x, kernel: functional.conv3d(x, kernel, padding=1),
        normal(2, 16, 16, 16, 16),
        normal(1, 16, 3, 3, 3, seed=1) / 20,
    ),
    "transposed 1024x1024 by a vector": lambda: plain(
        lambda a, x: a.T @ x,
        lambda a, x: a.T @ x,
        normal(1024, 1024),
        normal(1024, seed=1) / 32,
    ),
    "transposed 128x512 by 128x10": lambda: plain(
        lambda x, y: x.T @ y,
        lambda x, y: x.T @ y,
        normal(128, 512),
        normal(128, 10, seed=1) / 11,
    ),
    "values of attention, 4x8 heads of 256x32": lambda: plain(
        lambda p, v: jnp.einsum("bhqk,bkhd->bqhd", p, v),
        lambda p, v: torch.einsum("bhqk,bkhd->bqhd", p, v),
        abs(normal(4, 8, 256, 256)) / 200,
        normal(4, 256, 8, 32, seed=1),
    ),
    "10 largest of 1024 rows of 1000": lambda: plain(
        lambda x: jax.lax.top_k(x, 10)[0], lambda x: x.topk(10)[0], normal(1024, 1000)
    ),
    **_RUN_WELL,
}


def compare(operations: Mapping[str, Callable[[], Operation]]) -> None:
    """Runs the operations that are named, each way, and prints the times."""
    wanted = sys.argv[1] if len(sys.argv) > 1 else ""
    for name, make in operations.items():
        if wanted not in name:
            continue
        operation = make()
        arrays = [jnp.asarray(each) for each in operation.arrays]
        tensors = operation.torch_tensors()
        ways = {
            "jax.jit": partial(jax.jit(operation.jax), *arrays),
            "hloenv.jit": partial(hloenv.jit(operation.jax), *arrays),
            "PyTorch": partial(operation.torch, *tensors),
        }
        times = []
        for way, call in ways.items():
            call()
            begin = time.perf_counter()
            for _ in range(5):
                jax.block_until_ready(call())
            times.append(f"{way} {(time.perf_counter() - begin) * 200:.3f} ms")
        print(f"{name}: {', '.join(times)}")


if __name__ == "__main__":
    compare(OPERATIONS)
