# SPDX-License-Identifier: Apache-2.0
"""Sums that XLA must not copy into the kernels of what reads them."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest

import hloenv
from hloenv.hlo.passes import run_passes
from support.captures import rules
from support.jit_functions import IMAGE, KERNEL, depthwise

pytestmark = [pytest.mark.jax, pytest.mark.compile]


def apart(function, *arguments):
    """A module with its depthwise convolutions in calls, and the module."""
    module = hloenv.HloModule.from_jax(function, *arguments)
    module = run_passes(module, "call-inliner").module
    alternatives = hloenv.HloEnv(module).get_alternatives("convolution-forms")
    choices = [1 + rules([each]).index("taps_apart") for each in alternatives]
    return alternatives.apply(choices), module


def twice(kernel, x):
    y = depthwise(kernel, x)
    return depthwise(kernel, jnp.tanh(y)) - y


def in_loop(kernel, x):
    return jax.lax.fori_loop(0, 3, lambda _, y: depthwise(kernel, y) + x, x)


@pytest.mark.parametrize(("function", "count"), [(twice, 2), (in_loop, 1)])
@pytest.mark.parametrize("engine", ["wheel", "jaxlib"])
def test_calls_stay_calls(function, count, engine):
    decided, module = apart(function, KERNEL, IMAGE)
    assert run_passes(decided, "call-inliner").module.to_text().count(" call(") == count
    executable = hloenv.compile(decided, engine=engine, isolate=False)
    assert executable.module.to_text().count(" call(") == count
    inputs = hloenv.random_inputs(module)
    expected = hloenv.compile(module, engine=engine)(*inputs)
    hloenv.compare_outputs(expected, executable(*inputs)).check()
