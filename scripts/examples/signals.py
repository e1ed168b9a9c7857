#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Long filters of signals, and their gradients, slow on a CPU under jax.jit.

XLA's code for a convolution in one dimension of few channels makes a few GFLOP/s, and
less where each channel has its own filter. The rule (`convolution-forms/toeplitz`) was
set on single convolutions; these programs were written afterwards, with it in view.
`PROGRAMS` maps a name to a kind and a function that makes the program and arguments.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from programs import Program, compare, normal


def numbers(count: int) -> Any:
    """The first whole numbers, as float32."""
    return jnp.arange(count, dtype=jnp.float32)


def filtered(signals: Any, taps: Any) -> Any:
    """[..., time] each with the same filter."""
    return jax.vmap(lambda signal: jnp.convolve(signal, taps, mode="same"))(signals)


def low_pass() -> Program:
    """One second of sound at 48 kHz, by 511 taps, of which every fourth is kept."""
    place = numbers(511) - 255
    window = 0.54 + 0.46 * jnp.cos(jnp.pi * place / 255)
    taps = jnp.sinc(place / 4) * window / 4

    def run(sound: Any) -> Any:
        return jnp.convolve(sound, taps, mode="same")[::4]

    return run, (normal(48000),)


def reverberation() -> Program:
    """Two channels in a room whose response has 3,000 taps."""

    def run(sound: Any, room: Any) -> Any:
        wet = jax.vmap(lambda s, r: jnp.convolve(s, r)[: s.shape[0]])(sound, room)
        return 0.7 * sound + 0.3 * wet

    decay = jnp.exp(-numbers(3000) / 600)
    return run, (normal(2, 24000), 0.05 * decay * normal(2, 3000, seed=1))


def equaliser() -> Program:
    """The gradient of an equaliser's error with respect to its 301 taps."""

    def error(taps: Any, received: Any, sent: Any) -> Any:
        return ((jnp.convolve(received, taps, mode="same") - sent) ** 2).mean()

    return jax.grad(error), (0.1 * normal(301), normal(16000), normal(16000, seed=1))


def templates() -> Program:
    """Where each of four templates of 1,000 samples fits 30,000 best."""

    def run(record: Any, shapes: Any) -> Any:
        found = jax.vmap(lambda shape: jnp.correlate(record, shape))(shapes)
        return found.max(1), jnp.abs(found).argmax(1)

    return run, (normal(30000), normal(4, 1000, seed=1))


def calcium() -> Program:
    """A step of the spikes and decays that explain the light of 64 cells."""

    def error(spikes: Any, decays: Any, light: Any) -> Any:
        kernels = jnp.exp(-numbers(300) / decays[:, None])
        made = jax.vmap(lambda s, k: jnp.convolve(s, k)[: s.shape[0]])(spikes, kernels)
        return ((made - light) ** 2).mean() + 0.01 * jnp.abs(spikes).mean()

    def step(spikes: Any, decays: Any, light: Any) -> Any:
        found, slopes = jax.value_and_grad(error, (0, 1))(spikes, decays, light)
        return found, jnp.maximum(spikes - 0.1 * slopes[0], 0), decays - slopes[1]

    return step, (
        jnp.abs(normal(64, 2000)),
        40 + 20 * numbers(64) / 64,
        normal(64, 2000, seed=1),
    )


def runoff() -> Program:
    """The gradient of a river's error: rain of 30 basins by unit hydrographs."""

    def error(shape: Any, rain: Any, flow: Any) -> Any:
        time = numbers(240) + 0.5
        response = time ** (shape[:, :1] - 1) * jnp.exp(-time / shape[:, 1:])
        response = response / response.sum(1, keepdims=True)
        made = jax.vmap(lambda r, h: jnp.convolve(r, h)[: r.shape[0]])(rain, response)
        return ((made.sum(0) - flow) ** 2).mean()

    shape = jnp.stack([2 + numbers(30) / 30, 20 + numbers(30)], 1)
    return jax.grad(error), (shape, jnp.abs(normal(30, 3000)), normal(3000, seed=1))


def spectra() -> Program:
    """Smoothing and slopes of 100 spectra by 101 taps each."""
    place = numbers(101) - 50
    smooth = (1 - (place / 51) ** 2) / 68

    def run(lines: Any) -> Any:
        return filtered(lines, smooth), filtered(lines, -place / (place**2).sum())

    return run, (normal(100, 2048),)


def states() -> Program:
    """The gradient of a state space model's layer: 32 channels with kernels of 512."""

    def loss(weights: Any, x: Any) -> Any:
        rates, mix = weights
        kernels = jnp.exp(-numbers(512) * jnp.exp(rates)[:, None])
        made = jax.lax.conv_general_dilated(
            x,
            kernels[:, ::-1].T[:, None, :],
            (1,),
            [(511, 0)],
            dimension_numbers=("NWC", "WIO", "NWC"),
            feature_group_count=32,
        )
        return (jax.nn.gelu(made) @ mix).mean()

    weights = (-1 - numbers(32) / 8, normal(32, 32))
    return jax.grad(loss), (weights, normal(4, 512, 32))


def wavelets() -> Program:
    """The power of 8,192 samples at twelve scales of a Morlet wavelet."""
    scales = [4.0 * 2 ** (each / 2) for each in range(12)]

    def power(signal: Any, scale: float) -> Any:
        width = int(4 * scale) * 2 + 1
        place = (numbers(width) - width // 2) / scale
        envelope = jnp.exp(-0.5 * place**2) / scale**0.5
        parts = (envelope * wave(6 * place) for wave in (jnp.cos, jnp.sin))
        return sum(jnp.convolve(signal, each, mode="same") ** 2 for each in parts)

    return lambda x: jnp.stack([power(x, each) for each in scales]), (normal(8192),)


def echoes() -> Program:
    """Ten steps of blind deconvolution: a signal and the filter of its echoes."""

    def error(signal: Any, taps: Any, heard: Any) -> Any:
        return ((jnp.convolve(signal, taps, mode="same") - heard) ** 2).mean()

    def run(signal: Any, taps: Any, heard: Any) -> Any:
        for _ in range(10):
            slopes = jax.grad(error, (0, 1))(signal, taps, heard)
            signal, taps = signal - slopes[0], taps - 0.01 * slopes[1]
        return signal, taps

    return run, (normal(8000), 0.1 * normal(401, seed=1), normal(8000, seed=2))


PROGRAMS: dict[str, tuple[str, Callable[[], Program]]] = {
    "low-pass filter of sound": ("sound", low_pass),
    "reverberation of two channels": ("sound", reverberation),
    "equaliser, gradient": ("signals", equaliser),
    "templates in a record": ("signals", templates),
    "spikes of 64 cells, step": ("channels", calcium),
    "runoff of 30 basins, gradient": ("channels", runoff),
    "smoothing of 100 spectra": ("signals", spectra),
    "state space layer, gradient": ("channels", states),
    "power of wavelets": ("signals", wavelets),
    "blind deconvolution, ten steps": ("signals", echoes),
}


if __name__ == "__main__":
    compare(PROGRAMS)
