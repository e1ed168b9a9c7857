# SPDX-License-Identifier: Apache-2.0
"""Programs at sizes that are run on a GPU, which `decide.py` decides and exports.

`PROGRAMS` maps a name to a function that returns the function to compile and the
descriptions of its arguments. No array is made here: `time_modules.py` makes them on
the machine with the GPU.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

F32, BF16, I32 = "float32", "bfloat16", "int32"


@dataclass(frozen=True)
class Argument:
    """An array to make: normal numbers, or integers in [0, high).

    Attributes:
        shape: its extents.
        dtype: name of its element type.
        scale: standard deviation of its numbers.
        high: end of its integers, which is excluded.
    """

    shape: tuple[int, ...]
    dtype: str = F32
    scale: float = 1.0
    high: int = 0

    @property
    def spec(self) -> Any:
        """What jax traces with."""
        return jax.ShapeDtypeStruct(self.shape, jnp.dtype(self.dtype))


Case = tuple[Callable[..., Any], list[Argument]]


def weight(*shape: int, dtype: str = F32) -> Argument:
    """A matrix or kernel, scaled by one over the root of the number of its inputs."""
    return Argument(shape, dtype, 1 / math.sqrt(math.prod(shape[:-1])))


def flattened(fn: Callable[..., Any], tree: Any) -> Callable[..., Any]:
    """A function as one of the leaves of its arguments, whose pytree is `tree`."""

    def flat(*arrays: Any) -> Any:
        return fn(*jax.tree.unflatten(tree, arrays))

    return flat


def _norm(x: Any, scale: Any) -> Any:
    x32 = x.astype(F32)
    x32 = x32 - x32.mean(-1, keepdims=True)
    x32 = x32 * jax.lax.rsqrt((x32 * x32).mean(-1, keepdims=True) + 1e-5)
    return (x32 * scale.astype(F32)).astype(x.dtype)


def _attend(q: Any, k: Any, v: Any, *, is_causal: bool) -> Any:
    scores = jnp.einsum("bthd,bshd->bhts", q, k).astype(F32) / math.sqrt(q.shape[-1])
    if is_causal:
        mask = jnp.tril(jnp.ones(scores.shape[-2:], bool))
        scores = jnp.where(mask, scores, -1e30)
    return jnp.einsum("bhts,bshd->bthd", jax.nn.softmax(scores).astype(v.dtype), v)


def block(x: Any, qkv: Any, out: Any, up: Any, down: Any, s1: Any, s2: Any) -> Any:
    """A block of a transformer: attention with heads of 64, and two dense layers."""
    batch, length, width = x.shape
    h = (_norm(x, s1) @ qkv).reshape(batch, length, 3, width // 64, 64)
    h = _attend(h[:, :, 0], h[:, :, 1], h[:, :, 2], is_causal=True)
    x = x + h.reshape(batch, length, width) @ out
    return x + jax.nn.gelu(_norm(x, s2) @ up) @ down


def block_arguments(width: int, dtype: str) -> list[Argument]:
    """Its weights."""
    shapes = (width, 3 * width), (width, width), (width, 4 * width), (4 * width, width)
    scales = [Argument((width,), dtype)] * 2
    return [weight(*shape, dtype=dtype) for shape in shapes] + scales


def transformer(
    dtype: str, batch: int = 8, length: int = 512, width: int = 768
) -> Case:
    """A block of a decoder, with the gradients of its weights."""

    def loss(weights: Any, x: Any) -> Any:
        return block(x, *weights).astype(F32).var()

    def run(x: Any, *weights: Any) -> Any:
        return jax.grad(loss)(weights, x)

    x = Argument((batch, length, width), dtype)
    return run, [x, *block_arguments(width, dtype)]


def vision_forward() -> Case:
    """A block of an encoder in float32, forward."""

    def run(x: Any, *weights: Any) -> Any:
        return block(x, *weights)

    return run, [Argument((64, 197, 384)), *block_arguments(384, F32)]


def decode() -> Case:
    """One token of a decoder, with a cache of keys and values."""

    def run(x: Any, keys: Any, values: Any, at: Any, q: Any, k: Any, v: Any) -> Any:
        heads = keys.shape[2]
        new = [(x @ w).reshape(x.shape[0], 1, heads, -1) for w in (q, k, v)]
        keys = jax.lax.dynamic_update_slice_in_dim(keys, new[1], at, 1)
        values = jax.lax.dynamic_update_slice_in_dim(values, new[2], at, 1)
        return _attend(new[0], keys, values, is_causal=False), keys, values

    cache = Argument((16, 1024, 12, 64), BF16)
    weights = [weight(768, 768, dtype=BF16)] * 3
    x = Argument((16, 768), BF16)
    return run, [x, cache, cache, Argument((), I32, high=1024), *weights]


def cross_entropy() -> Case:
    """The gradient of the loss of a language model with 32,000 words."""

    def loss(logits: Any, labels: Any) -> Any:
        chosen = jnp.take_along_axis(logits, labels[:, None], 1)
        return (jax.nn.logsumexp(logits, 1) - chosen[:, 0]).mean()

    return jax.value_and_grad(loss), [
        Argument((4096, 32000)),
        Argument((4096,), I32, high=32000),
    ]


def layer_norm() -> Case:
    """The gradient of a layer normalization."""

    def loss(x: Any, scale: Any) -> Any:
        return (_norm(x, scale) ** 3).mean()

    return jax.grad(loss, (0, 1)), [Argument((8192, 1024)), Argument((1024,))]


def adam() -> Case:
    """An update of 24 parameters by Adam, with a limit of the gradient's norm."""
    shapes = [(768, 2304), (768, 768), (768, 3072), (3072, 768), (768,), (768,)] * 4
    size = len(shapes)

    def run(*arrays: Any) -> Any:
        p, g, m, v = (arrays[i * size : (i + 1) * size] for i in range(4))
        norm = jnp.sqrt(sum((each * each).sum() for each in g))
        g = [each / jnp.maximum(norm, 1.0) for each in g]
        m = [0.9 * a + 0.1 * b for a, b in zip(m, g, strict=True)]
        v = [0.999 * abs(a) + 0.001 * b * b for a, b in zip(v, g, strict=True)]
        step = [a / (jnp.sqrt(b) + 1e-8) for a, b in zip(m, v, strict=True)]
        return [a - 1e-3 * b for a, b in zip(p, step, strict=True)], m, v

    return run, [Argument(shape) for _ in range(4) for shape in shapes]


def _conv(x: Any, kernel: Any, *, stride: int = 1, groups: int = 1) -> Any:
    numbers = jax.lax.conv_dimension_numbers(
        x.shape, kernel.shape, ("NHWC", "HWIO", "NHWC")
    )
    return jax.lax.conv_general_dilated(
        x,
        kernel,
        (stride, stride),
        "SAME",
        dimension_numbers=numbers,
        feature_group_count=groups,
    )


def _with_gradient(fn: Callable[..., Any], size: int) -> Callable[..., Any]:
    def loss(*arrays: Any) -> Any:
        return fn(*arrays).astype(F32).var()

    return jax.value_and_grad(loss, tuple(range(size)))


def residual_block() -> Case:
    """Two convolutions with batch normalization, with gradients."""

    def normalized(x: Any) -> Any:
        x = x - x.mean((0, 1, 2))
        return x * jax.lax.rsqrt((x * x).mean((0, 1, 2)) + 1e-5)

    def run(x: Any, k1: Any, k2: Any) -> Any:
        h = jax.nn.relu(normalized(_conv(x, k1)))
        return jax.nn.relu(x + normalized(_conv(h, k2)))

    x, kernel = Argument((32, 56, 56, 64)), weight(3, 3, 64, 64)
    return _with_gradient(run, 3), [x, kernel, kernel]


def depthwise(window: int, *, gradient: bool) -> Case:
    """A depthwise convolution."""

    def run(x: Any, kernel: Any) -> Any:
        return _conv(x, kernel, groups=96)

    arguments = [Argument((32, 56, 56, 96)), Argument((window, window, 1, 96))]
    return (_with_gradient(run, 2) if gradient else run), arguments


def grouped_gradient() -> Case:
    """A convolution of 32 groups, with gradients."""

    def run(x: Any, kernel: Any) -> Any:
        return _conv(x, kernel, groups=32)

    return _with_gradient(run, 2), [Argument((32, 14, 14, 256)), weight(3, 3, 8, 256)]


def patch_embedding(size: int, width: int, dtype: str) -> Case:
    """Patches of an image, with gradients."""

    def run(x: Any, kernel: Any) -> Any:
        return jax.lax.conv_general_dilated(
            x, kernel, (size, size), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC")
        )

    return _with_gradient(run, 2), [
        Argument((64, 224, 224, 3), dtype),
        weight(size, size, 3, width, dtype=dtype),
    ]


def small_products(size: int) -> Case:
    """100,000 products of small matrices."""

    def run(a: Any, b: Any) -> Any:
        return jnp.einsum("nij,njk->nik", a, b)

    return run, [Argument((100_000, size, size))] * 2


def rotations() -> Case:
    """Points rotated by a chain of 3x3 matrices, with gradients."""

    def run(a: Any, b: Any, x: Any) -> Any:
        return jnp.einsum("nij,njk,nk->ni", a, b, x)

    matrices = Argument((50_000, 3, 3))
    return _with_gradient(run, 3), [matrices, matrices, Argument((50_000, 3))]


def recurrent() -> Case:
    """An LSTM over 128 steps."""

    def run(x: Any, w: Any, u: Any) -> Any:
        def step(state: Any, xt: Any) -> Any:
            c, h = state
            i, f, o, g = jnp.split(xt @ w + h @ u, 4, -1)
            c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
            return (c, jax.nn.sigmoid(o) * jnp.tanh(c)), None

        zeros = jnp.zeros((x.shape[1], u.shape[0]), x.dtype)
        return jax.lax.scan(step, (zeros, zeros), x)[0]

    return run, [Argument((128, 64, 256)), weight(256, 1024), weight(256, 1024)]


def choices() -> Case:
    """The index of the largest number and the five largest of each row."""

    def run(x: Any) -> Any:
        return jnp.argmax(x, 1), jax.lax.top_k(x, 5)

    return run, [Argument((4096, 4096))]


def cumulative() -> Case:
    """Cumulative sums of rows and of one long array."""

    def run(x: Any, y: Any) -> Any:
        return jnp.cumsum(x, 1), jnp.cumsum(y)

    return run, [Argument((1024, 4096)), Argument((1_000_000,))]


def particles() -> Case:
    """Forces of 4,096 particles on each other."""

    def energy(x: Any) -> Any:
        d = x[:, None] - x[None]
        r2 = (d * d).sum(-1) + jnp.eye(x.shape[0], dtype=x.dtype) + 0.1
        s = 1 / (r2 * r2 * r2)
        return (s * s - s).sum()

    return jax.value_and_grad(energy), [Argument((4096, 3), scale=10.0)]


def messages() -> Case:
    """A layer of a graph network with 200,000 edges, with gradients."""

    def run(x: Any, w: Any, source: Any, target: Any) -> Any:
        sent = jax.nn.silu((x @ w)[source] * x[target])
        return jax.ops.segment_sum(sent, target, x.shape[0])

    def loss(x: Any, w: Any, source: Any, target: Any) -> Any:
        return run(x, w, source, target).var()

    ends = Argument((200_000,), I32, high=20_000)
    return jax.value_and_grad(loss, (0, 1)), [
        Argument((20_000, 64)),
        weight(64, 64),
        ends,
        ends,
    ]


def resize() -> Case:
    """Images of 64x64 resized to 128x128."""

    def run(x: Any) -> Any:
        return jax.image.resize(x, (8, 128, 128, 64), "bilinear")

    return run, [Argument((8, 64, 64, 64))]


def k_means() -> Case:
    """One step of k-means: 100,000 points, 256 centres."""

    def run(x: Any, centres: Any) -> Any:
        d = (centres**2).sum(1) - 2 * x @ centres.T
        near = jnp.argmin(d, 1)
        sums = jax.ops.segment_sum(x, near, centres.shape[0])
        counts = jax.ops.segment_sum(jnp.ones(x.shape[0]), near, centres.shape[0])
        return sums / jnp.maximum(counts, 1)[:, None]

    return run, [Argument((100_000, 32)), Argument((256, 32))]


def pooling() -> Case:
    """Maxima and means of windows of 3x3, with gradients."""

    def run(x: Any) -> Any:
        window, strides = (1, 3, 3, 1), (1, 2, 2, 1)
        high = jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, window, strides, "SAME")
        mean = jax.lax.reduce_window(x, 0.0, jax.lax.add, window, strides, "SAME")
        return high * mean

    return _with_gradient(run, 1), [Argument((32, 112, 112, 64))]


PROGRAMS: dict[str, Callable[[], Case]] = {
    "transformer_bf16": lambda: transformer(BF16),
    "transformer_f32": lambda: transformer(F32),
    "vision_forward": vision_forward,
    "decode": decode,
    "cross_entropy": cross_entropy,
    "layer_norm": layer_norm,
    "adam": adam,
    "residual_block": residual_block,
    "depthwise_3x3": lambda: depthwise(3, gradient=False),
    "depthwise_7x7": lambda: depthwise(7, gradient=False),
    "depthwise_3x3_gradient": lambda: depthwise(3, gradient=True),
    "grouped_gradient": grouped_gradient,
    "patch_embedding": lambda: patch_embedding(16, 384, F32),
    "patch_embedding_bf16": lambda: patch_embedding(16, 384, BF16),
    "patches_4x4": lambda: patch_embedding(4, 96, F32),
    "products_4x4": lambda: small_products(4),
    "products_8x8": lambda: small_products(8),
    "rotations": rotations,
    "recurrent": recurrent,
    "choices": choices,
    "cumulative": cumulative,
    "particles": particles,
    "messages": messages,
    "resize": resize,
    "k_means": k_means,
    "pooling": pooling,
}
