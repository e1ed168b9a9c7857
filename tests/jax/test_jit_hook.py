# SPDX-License-Identifier: Apache-2.0
"""When hloenv.jit sees the modules that jaxlib compiles."""

from __future__ import annotations

import importlib

import jax
import jax.numpy as jnp
import pytest

import hloenv
from hloenv.jax import dispatch, replacements, timed_call
from support.jax_outputs import assert_same
from support.jit_functions import FASTER, NOISES, SLOWER, depthwise, filtered

pytestmark = [pytest.mark.jax, pytest.mark.compile]


FORMS = depthwise, (jnp.ones((3, 3, 1, 32)) / 9, jnp.ones((1, 28, 28, 32)))
LOOPS = jax.grad(filtered), (jnp.eye(3) * 0.9, NOISES)


@pytest.fixture
def dispatcher(monkeypatch):
    """One without the functions of other tests."""
    new = dispatch.Dispatcher()
    jit = importlib.import_module("hloenv.jax.jit")
    for module in (dispatch, replacements, jit):
        monkeypatch.setattr(module, "dispatcher", new)
    return new


@pytest.mark.parametrize(
    ("what", "verdict", "is_registered"),
    [(FORMS, FASTER, False), (LOOPS, SLOWER, False), (LOOPS, FASTER, True)],
)
def test_the_hook_is_registered_only_where_modules_are_replaced(
    what, verdict, is_registered, dispatcher, monkeypatch
):
    monkeypatch.setattr(timed_call, "compare", lambda *_, **__: verdict)
    fn, args = what
    fast = hloenv.jit(fn, remember=False)
    assert_same(fast(*args), fn(*args), tolerance=1e-4)
    # A loop is compared by the wheel's code, too, with less overhead and as it is.
    assert len(fast.considered) == 1 + (what is LOOPS) * (1 + (verdict is SLOWER))
    assert len(fast.decided) == (verdict is FASTER)
    assert (dispatcher._unregister is not None) == is_registered
    # jax compiles the same trace anew for an argument that is tied to a device.
    before = fast.num_injected
    tied = jax.device_put(args, jax.devices()[0])
    assert_same(fast(*tied), fn(*args), tolerance=1e-4)
    assert fast.num_injected - before == is_registered
    fast.clear_cache()
    assert dispatcher._unregister is None
