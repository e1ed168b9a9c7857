#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Programs that JAX users find slow on a CPU, in the style of their reports.

`PROGRAMS` maps a name to a report of jax's, or to the kind of network, and a function
that makes the program and its arguments.

    python scripts/examples/programs.py             # all of them, with jax and hloenv
    python scripts/examples/programs.py depthwise   # those whose name has this text
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import hloenv

jax.config.update("jax_enable_x64", True)

Program = tuple[Callable[..., Any], tuple[Any, ...]]


def normal(*shape: int, seed: int = 0, dtype: Any = np.float32) -> Any:
    """Random numbers of a standard normal distribution."""
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape), dtype)


def filter_3x3() -> Program:
    """A Kalman-like filter: products of 3x3 matrices in a scan."""

    def run(a: Any, xs: Any) -> Any:
        def step(p: Any, x: Any) -> Any:
            p = a @ p @ a.T + x
            return p - jnp.outer(p[:, 0], p[0]) / (p[0, 0] + 1), p[0, 0]

        return jax.lax.scan(step, jnp.eye(3), xs)[1].sum()

    return run, (jnp.eye(3) * 0.9 + 0.01, jnp.ones((1000, 3, 3)) * 0.01)


def gradient_of(program: Program) -> Program:
    """The gradient with respect to the first argument."""
    run, args = program
    return jax.grad(run), args


def cable() -> Program:
    """The cable of a neuron: tridiagonal solves with scatters, in a scan."""

    def solve(lower: Any, diagonal: Any, upper: Any, right: Any) -> Any:
        size = diagonal.shape[0]

        def down(i: Any, state: Any) -> Any:
            diagonal, right = state
            factor = lower[i] / diagonal[i - 1]
            diagonal = diagonal.at[i].add(-factor * upper[i - 1])
            return diagonal, right.at[i].add(-factor * right[i - 1])

        diagonal, right = jax.lax.fori_loop(1, size, down, (diagonal, right))

        def up(k: Any, x: Any) -> Any:
            i = size - 2 - k
            return x.at[i].set((right[i] - upper[i] * x[i + 1]) / diagonal[i])

        last = jnp.zeros_like(right).at[-1].set(right[-1] / diagonal[-1])
        return jax.lax.fori_loop(0, size - 1, up, last)

    def run(voltage: Any, current: Any) -> Any:
        ones = jnp.ones_like(voltage)

        def step(v: Any, i: Any) -> Any:
            gate = jax.nn.sigmoid((v + 40) / 10)
            right = v + 0.025 * (i - gate**3 * (v - 50) - 0.3 * (v + 65))
            v = solve(-0.1 * ones, 1.2 * ones, -0.1 * ones, right)
            return v, v[0]

        return jax.lax.scan(step, voltage, current)[1]

    return run, (jnp.full(16, -65.0), jnp.ones(200))


def arm() -> Program:
    """Forward kinematics of a robot's arm: a chain of 4x4 products."""

    def run(angles: Any, links: Any) -> Any:
        pose = jnp.eye(4)
        ends = []
        for i in range(7):
            c, s = jnp.cos(angles[i]), jnp.sin(angles[i])
            turn = jnp.eye(4).at[:2, :2].set(jnp.array([[c, -s], [s, c]]))
            pose = pose @ links[i] @ turn
            ends.append(pose[:3, 3])
        return (jnp.stack(ends) ** 2).sum()

    links = jnp.eye(4) + 0.1 * normal(7, 4, 4, dtype=np.float64)
    return jax.value_and_grad(run), (normal(7, dtype=np.float64), links)


def many_leaves() -> Program:
    """The gradient of a scan whose state has a hundred scalars."""

    def run(params: Any, xs: Any) -> Any:
        def step(state: Any, x: Any) -> Any:
            new = {
                name: jnp.tanh(value * params[name] + x)
                for name, value in state.items()
            }
            return new, sum(new.values())

        state = {name: jnp.float32(0.1) for name in params}
        return jax.lax.scan(step, state, xs)[1].sum()

    params = {f"p{i}": jnp.float32(i / 100) for i in range(100)}
    return jax.grad(run), (params, normal(50))


def update_in_loop() -> Program:
    """Small updates of a large array in a loop."""

    def run(array: Any, rows: Any) -> Any:
        def step(i: Any, array: Any) -> Any:
            return jax.lax.dynamic_update_slice(array, rows[i] + array[i, :4], (i, 0))

        rows = rows[:, None, :]
        return jax.lax.fori_loop(0, rows.shape[0], step, array)

    return run, (normal(2000, 8), normal(2000, 4))


def pendulum() -> Program:
    """A Runge-Kutta integration of a small system, with a step that adapts."""

    def field(y: Any) -> Any:
        a, b, va, vb = y
        return jnp.stack(
            [va, vb, -jnp.sin(a) + 0.1 * (b - a), -jnp.sin(b) + 0.1 * (a - b)]
        )

    def run(y: Any) -> Any:
        def step(state: Any) -> Any:
            t, h, y = state
            k1 = field(y)
            k2 = field(y + h / 2 * k1)
            k3 = field(y + h / 2 * k2)
            k4 = field(y + h * k3)
            new = y + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
            error = jnp.abs(h * (k4 - k1)).max()
            return t + h, jnp.clip(h * jnp.sqrt(0.01 / error), 0.001, 0.02), new

        return jax.lax.while_loop(lambda s: s[0] < 10, step, (0.0, 0.01, y))[2]

    return run, (jnp.array([1.0, -0.5, 0.0, 0.3]),)


def total_variation() -> Program:
    """A penalty of neighbouring differences, and its gradient."""

    def run(image: Any, noisy: Any) -> Any:
        rough = jnp.abs(jnp.diff(image, axis=0)).sum()
        rough += jnp.abs(jnp.diff(image, axis=1)).sum()
        return ((image - noisy) ** 2).sum() + 0.1 * rough

    return jax.value_and_grad(run), (normal(1024, 1024), normal(1024, 1024, seed=1))


def rotations() -> Program:
    """Many products of 3x3 matrices and vectors, as one einsum."""

    def run(turns: Any, points: Any) -> Any:
        return jnp.einsum("nij,njk,nk->ni", turns, turns, points)

    return run, (normal(20000, 3, 3), normal(20000, 3))


def small_matrices() -> Program:
    """Ten thousand products of 4x4 matrices."""
    return jnp.matmul, (normal(10000, 4, 4), normal(10000, 4, 4, seed=1))


def recurrent(width: int) -> Program:
    """The gradient of a gated recurrent unit over a sequence."""

    def run(params: Any, xs: Any) -> Any:
        def step(h: Any, x: Any) -> Any:
            both = jnp.concatenate([h, x])
            z, r = jnp.split(jax.nn.sigmoid(both @ params["gates"]), 2)
            new = jnp.tanh(jnp.concatenate([r * h, x]) @ params["new"])
            h = (1 - z) * h + z * new
            return h, h

        return (jax.lax.scan(step, jnp.zeros(width, np.float32), xs)[1] ** 2).mean()

    params = {
        "gates": normal(2 * width, 2 * width) / width**0.5,
        "new": normal(2 * width, width) / width**0.5,
    }
    return jax.grad(run), (params, normal(100, width))


def convolve(
    x: Any, kernel: Any, *, stride: int = 1, groups: int = 1, padding: str = "SAME"
) -> Any:
    """A convolution of images [n, h, w, c]."""
    return jax.lax.conv_general_dilated(
        x,
        kernel,
        (stride, stride),
        padding,
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
        feature_group_count=groups,
    )


def depthwise(size: int, channels: int, window: int) -> Program:
    """A depthwise convolution and its gradient."""

    def run(kernel: Any, x: Any) -> Any:
        return (convolve(x, kernel, groups=channels) ** 2).sum()

    kernel = normal(window, window, 1, channels) / window
    return jax.value_and_grad(run), (kernel, normal(1, size, size, channels))


def mobile_block() -> Program:
    """A training step of an inverted residual block, as in MobileNet-v2."""

    def run(params: Any, x: Any) -> Any:
        y = jax.nn.relu6(convolve(x, params["expand"]))
        y = jax.nn.relu6(convolve(y, params["depthwise"], groups=96))
        return ((x + convolve(y, params["project"])) ** 2).mean()

    params = {
        "expand": normal(1, 1, 16, 96) / 4,
        "depthwise": normal(3, 3, 1, 96) / 3,
        "project": normal(1, 1, 96, 16) / 10,
    }
    return jax.value_and_grad(run), (params, normal(4, 28, 28, 16))


def next_block() -> Program:
    """A training step of a block of ConvNeXt."""

    def run(params: Any, x: Any) -> Any:
        y = convolve(x, params["depthwise"], groups=96)
        mean = y.mean(-1, keepdims=True)
        y = (y - mean) / jnp.sqrt(((y - mean) ** 2).mean(-1, keepdims=True) + 1e-6)
        y = jax.nn.gelu(y @ params["up"]) @ params["down"]
        return ((x + y) ** 2).mean()

    params = {
        "depthwise": normal(7, 7, 1, 96) / 7,
        "up": normal(96, 384) / 10,
        "down": normal(384, 96) / 20,
    }
    return jax.value_and_grad(run), (params, normal(2, 28, 28, 96))


def grouped_block() -> Program:
    """A training step of a block of ResNeXt: a convolution of 32 groups."""

    def run(params: Any, x: Any) -> Any:
        y = jax.nn.relu(convolve(x, params["in"]))
        y = jax.nn.relu(convolve(y, params["grouped"], groups=32))
        return ((x + convolve(y, params["out"])) ** 2).mean()

    params = {
        "in": normal(1, 1, 256, 128) / 16,
        "grouped": normal(3, 3, 4, 128) / 6,
        "out": normal(1, 1, 128, 256) / 11,
    }
    return jax.value_and_grad(run), (params, normal(1, 14, 14, 256))


def upsampling() -> Program:
    """A training step of a transposed convolution, as in a generator."""

    def run(kernel: Any, x: Any) -> Any:
        y = jax.lax.conv_transpose(
            x, kernel, (2, 2), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
        )
        return (jnp.tanh(y) ** 2).mean()

    return jax.value_and_grad(run), (normal(4, 4, 128, 64) / 45, normal(1, 16, 16, 128))


def patches() -> Program:
    """A training step of a patch embedding, as in a vision transformer."""

    def run(kernel: Any, x: Any) -> Any:
        y = convolve(x, kernel, stride=16, padding="VALID")
        return (jnp.tanh(y) ** 2).mean()

    return jax.value_and_grad(run), (
        normal(16, 16, 3, 384) / 28,
        normal(1, 224, 224, 3),
    )


def tiny_images() -> Program:
    """The last stage of a ResNet-18 on small images."""

    def run(kernels: Any, x: Any) -> Any:
        for kernel in kernels:
            x = jax.nn.relu(x + convolve(x, kernel))
        return x

    kernels = [normal(3, 3, 512, 512, seed=i) / 68 for i in range(3)]
    return run, (kernels, normal(2, 2, 2, 512))


def dense_network() -> Program:
    """A training step of a plain network, where jax.jit is hard to beat."""

    def run(params: Any, x: Any) -> Any:
        for weights in params:
            x = jnp.tanh(x @ weights)
        return (x**2).mean()

    params = [normal(512, 512, seed=i) / 23 for i in range(4)]
    return jax.value_and_grad(run), (params, normal(128, 512))


def attention() -> Program:
    """Self-attention, where jax.jit is hard to beat."""

    def run(q: Any, k: Any, v: Any) -> Any:
        scores = jnp.einsum("hqd,hkd->hqk", q, k) / 8
        return jax.nn.softmax(scores) @ v

    return run, tuple(normal(8, 256, 64, seed=i) for i in range(3))


# Report or kind, and what makes the program.
def decode_step() -> Program:
    """A feed-forward block on one token, with weights as PyTorch stores them."""

    def run(x: Any, up: Any, b: Any, down: Any, c: Any) -> Any:
        return x + jax.nn.gelu(x @ up.T + b) @ down.T + c

    weights = normal(3072, 768, seed=1), normal(3072, seed=2)
    return run, (normal(1, 768), *weights, normal(768, 3072, seed=3), normal(768))


def codebook() -> Program:
    """The nearest of 512 vectors, as in vector quantization."""

    def run(x: Any, codes: Any) -> Any:
        distances = -2 * x @ codes.T + (codes**2).sum(1)
        return codes[jnp.argmin(distances, axis=1)]

    return run, (normal(4096, 64), normal(512, 64, seed=1))


def accuracy() -> Program:
    """The share of right classes."""

    def run(logits: Any, labels: Any) -> Any:
        return (jnp.argmax(logits, axis=-1) == labels).mean()

    labels = np.random.default_rng(1).integers(0, 1000, 1024)
    return run, (normal(1024, 1000), jnp.asarray(labels, np.int32))


PROGRAMS: dict[str, tuple[str, Callable[[], Program]]] = {
    "filter 3x3, f64": ("jax#36799", filter_3x3),
    "filter 3x3, f64, gradient": ("jax#36799", lambda: gradient_of(filter_3x3())),
    "cable": ("jax#26145", cable),
    "arm": ("jax#26021", arm),
    "many leaves": ("jax#40150", many_leaves),
    "update in loop": ("jax#40101", update_in_loop),
    "pendulum": ("jax#31282", pendulum),
    "total variation": ("jax#37465", total_variation),
    "rotations": ("jax#33004", rotations),
    "small matrices": ("jax#33004", small_matrices),
    "gated unit 8": ("recurrent", partial(recurrent, 8)),
    "gated unit 16": ("recurrent", partial(recurrent, 16)),
    "gated unit 64": ("recurrent", partial(recurrent, 64)),
    "depthwise 3x3, 56x56x64": ("mobile", partial(depthwise, 56, 64, 3)),
    "depthwise 7x7, 14x14x384": ("mobile", partial(depthwise, 14, 384, 7)),
    "MobileNet block": ("mobile", mobile_block),
    "ConvNeXt block": ("mobile", next_block),
    "ResNeXt block": ("grouped", grouped_block),
    "transposed convolution": ("generator", upsampling),
    "patch embedding": ("transformer", patches),
    "decode step, transposed weights": ("transformer", decode_step),
    "nearest code": ("argmax", codebook),
    "accuracy": ("argmax", accuracy),
    "ResNet stage, 2x2": ("residual", tiny_images),
    "dense network": ("plain", dense_network),
    "attention": ("plain", attention),
}


def compare(programs: dict[str, tuple[str, Callable[[], Program]]]) -> None:
    """Times the programs that the command line names with jax.jit and hloenv.jit."""
    chosen = [name for name in programs if all(text in name for text in sys.argv[1:])]
    for name in chosen:
        run, args = programs[name][1]()
        # Separate functions: jax shares its caches between uses of one.
        plain, ours = jax.jit(lambda *xs, run=run: run(*xs)), hloenv.jit(run)
        times: dict[str, list[float]] = {"plain": [], "ours": []}
        for _ in range(30):
            for label, fn in (("plain", plain), ("ours", ours)):
                begin = time.perf_counter()
                jax.block_until_ready(fn(*args))
                times[label].append(time.perf_counter() - begin)
        medians = [np.median(times[label][5:]) * 1e6 for label in ("plain", "ours")]
        print(f"{name}: jax.jit {medians[0]:.0f} us, hloenv.jit {medians[1]:.0f} us")
        print(ours.explain(), flush=True)


if __name__ == "__main__":
    compare(PROGRAMS)
