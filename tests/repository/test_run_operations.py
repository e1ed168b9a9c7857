# SPDX-License-Identifier: Apache-2.0
"""scripts/reports/run_operations.py, and the networks that it compares."""

from __future__ import annotations

import jax
import numpy as np
import pytest

import run_operations
from reporting import from_example


@pytest.fixture
def examples():
    """Whose files turn on jax's numbers of 64 bits."""
    before = jax.config.jax_enable_x64
    yield
    jax.config.update("jax_enable_x64", before)


@pytest.mark.jax
@pytest.mark.compile
@pytest.mark.usefixtures("examples")
@pytest.mark.parametrize("kind", ["inference", "training step"])
def test_a_network_is_the_same_in_both(kind):
    """One with groups, depthwise convolutions, normalizations and a shuffle."""
    make = from_example("torch_networks.py", "OPERATIONS")[f"ShuffleNet stage, {kind}"]
    operation = make()
    found = jax.jit(operation.jax)(*operation.arrays)
    for tensors in (operation.torch_tensors(), operation.channels_last_tensors()):
        expected = operation.in_jax_layout(operation.torch(*tensors))
        assert run_operations._is_close(found, expected, operation.off)


@pytest.mark.parametrize(
    ("off", "change", "is_close"),
    [
        (None, 1e-4, True),
        (None, 1e-1, False),
        (0.05, 1e-1, True),  # of one of a hundred elements
        (0.05, 1.0, False),
    ],
)
def test_results_are_compared_by_element_or_by_size(off, change, is_close):
    expected = [np.ones((10, 10), np.float32), np.zeros(3, np.float32)]
    found = [each.copy() for each in expected]
    found[0][3, 4] += change
    assert run_operations._is_close(tuple(found), expected, off) == is_close


def test_what_is_as_good_as_zero_may_be_off():
    expected = [np.ones(100, np.float32), np.ones(100), np.full(3, 1e-9)]
    found = (*expected[:2], np.full(3, -1e-9))
    assert run_operations._is_close(found, expected, 0.05)
    assert not run_operations._is_close((*found[:2], np.full(3, 0.5)), expected, 0.05)
    assert not run_operations._is_close(found[:2], expected, 0.05)
