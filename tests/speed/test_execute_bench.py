# SPDX-License-Identifier: Apache-2.0
"""Calling a compiled module against jax's own call of the same module, as ratios.

Both get arrays that are already in place; jax's call includes `block_until_ready`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from pytest_benchmark.fixture import BenchmarkFixture

import hloenv
from hloenv.runtime.buffers import empty_aligned

from .ratio import compare, report

pytestmark = [pytest.mark.bench, pytest.mark.jax]

# Rows, width and layers of a perceptron that jax runs in about as long.
_SIZES = {"20us": (8, 48, 3), "200us": (64, 128, 4), "2ms": (256, 256, 5)}


def _perceptron(
    rows: int, width: int, layers: int
) -> tuple[Callable[..., Any], list[np.ndarray[Any, Any]]]:
    import jax.numpy as jnp

    def fn(x: Any, *weights: Any) -> Any:
        for weight in weights:
            x = jnp.tanh(x @ weight) + 0.5 * jnp.sin(x)
        return x, jnp.mean(x)

    rng = np.random.default_rng(0)
    shapes = [(rows, width)] + [(width, width)] * layers
    arrays = []
    for shape in shapes:
        array = empty_aligned(shape, np.dtype(np.float32))
        array[...] = rng.normal(size=shape) / np.sqrt(shape[-1])
        arrays.append(array)
    return fn, arrays


@pytest.mark.parametrize("size", _SIZES)
def test_a_call_costs_no_more_than_jaxs(benchmark: BenchmarkFixture, size: str) -> None:
    """Executable.__call__ over a jitted function's call."""
    import jax

    fn, arrays = _perceptron(*_SIZES[size])
    jitted = jax.jit(fn)
    executable = hloenv.compile(jitted.lower(*arrays).compiler_ir("hlo").as_hlo_text())
    on_device = [jax.device_put(each) for each in arrays]
    wanted, got = jitted(*on_device), executable(*arrays)
    np.testing.assert_allclose(np.asarray(wanted[0]), got[0], atol=1e-5)

    measured = compare(
        lambda: executable(*arrays),
        lambda: jax.block_until_ready(jitted(*on_device)),
        seconds=3,
        max_rounds=4000,
    )
    report(
        benchmark,
        f"a call of a compiled module over jax's, {measured.theirs_ns / 1e3:.0f} us",
        "at most 1.05",
        f"{measured.ratio:.2f}",
    )
    benchmark(lambda: executable(*arrays))
