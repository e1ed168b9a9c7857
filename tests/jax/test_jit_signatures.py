# SPDX-License-Identifier: Apache-2.0
"""The second and later signatures of a function of hloenv.jit."""

from __future__ import annotations

import itertools
import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import io_callback

import hloenv
from hloenv.errors import PassError
from hloenv.jax import FallbackWarning, auto, decider, from_jax, timed_call
from support.jax_outputs import assert_same
from support.jit_functions import FASTER, SLOWER, depthwise, small_loop, square

pytestmark = [
    pytest.mark.jax,
    pytest.mark.compile,
    pytest.mark.usefixtures("no_fallback"),
]

KERNEL = jnp.ones((3, 3, 1, 32)) / 9
IMAGE, IMAGES = jnp.ones((1, 28, 28, 32)), jnp.ones((2, 28, 28, 32))


@pytest.fixture
def verdicts(monkeypatch):
    """What comparisons find; an exception is raised. At the end, all is faster."""
    found = []

    def decided_by_test(plain, other, *, seconds, **_):
        jax.block_until_ready((plain(), other()))
        result = found.pop(0) if found else FASTER
        if isinstance(result, BaseException):
            raise result
        return result

    monkeypatch.setattr(timed_call, "compare", decided_by_test)
    return found


def jit(fn, **options):
    return hloenv.jit(fn, remember=False, **options)


def test_loops_of_later_signatures_are_kernels_too(verdicts):
    """A constant of the function is the same module in the trial and afterwards."""
    fast = jit(small_loop)
    for size in (4, 5):
        x = square(size)
        before = fast.num_injected
        assert_same(fast(x), jax.jit(small_loop)(x), tolerance=1e-4)
        # The first signature keeps the function of its trial.
        assert fast.num_injected - before == (1 if size == 4 else 2)
    assert len(fast.decided) == 2


def test_constants_are_not_folded_into_the_module(verdicts):
    def masked(kernel, x):
        return depthwise(kernel, x), jnp.tril(jnp.ones((64, 64))) * x.sum()

    fast = jit(masked)
    for x in (IMAGE, IMAGES):
        assert_same(fast(KERNEL, x), jax.jit(masked)(KERNEL, x), tolerance=1e-4)
    for x, decided in zip((IMAGE, IMAGES), fast.decided, strict=True):
        lowered = from_jax(masked, KERNEL, x)
        assert decided.module.fingerprint() == lowered.fingerprint()


def test_callbacks_of_a_later_signature_stay(verdicts):
    numbers, prints = itertools.count(), []

    def fn(kernel, x, noisy):
        y = depthwise(kernel, x)
        if noisy:
            jax.debug.callback(lambda: prints.append("called"))
            kind = jax.ShapeDtypeStruct((), np.float32)
            y = y * 0 + io_callback(lambda: np.float32(next(numbers)), kind)
        return y

    fast = jit(fn, static_argnames="noisy")
    fast(KERNEL, IMAGE, noisy=False)
    assert len(fast.decided) == 1
    found = [float(fast(KERNEL, IMAGE, noisy=True)[0, 0, 0, 0]) for _ in range(3)]
    jax.effects_barrier()
    assert found == [0, 1, 2]
    assert prints == ["called"] * 3
    assert "side effects" in fast.explain()


def test_each_signature_is_traced_once(verdicts):
    traces = []

    def fn(kernel, x):
        traces.append(x.shape)
        return depthwise(kernel, x) + jnp.arange(x.shape[-1])

    fast = jit(fn)
    for x in (IMAGE, IMAGES, IMAGE):
        fast(KERNEL, x)
    assert traces == [IMAGE.shape, IMAGES.shape]
    assert len(fast.decided) == 2


def test_what_plain_jax_has_compiled_stays_in_use(verdicts, caplog):
    verdicts += [SLOWER, SLOWER, FASTER]
    fast = jit(depthwise)
    calls = [(KERNEL, jnp.ones((n, 28, 28, 32))) for n in (1, 2, 3)]
    for args in calls:
        fast(*args)
    assert [each.is_used for each in fast.considered] == [False, False, True]
    with jax.log_compiles():
        for args in calls[:2]:
            assert_same(fast(*args), jax.jit(depthwise)(*args))
    compiled = [text for text in caplog.messages if "XLA compilation of jit(" in text]
    assert [text for text in compiled if "hloenv" in text] == []


@pytest.mark.parametrize("position", [0, 1])
def test_an_interrupted_signature_is_decided_later(verdicts, position):
    verdicts += [FASTER] * position + [KeyboardInterrupt()]
    fast = jit(depthwise)
    calls = [(KERNEL, IMAGE), (KERNEL, IMAGES)]
    for args in calls[:position]:
        fast(*args)
    with pytest.raises(KeyboardInterrupt):
        fast(*calls[position])
    for args in calls[: position + 1]:
        assert_same(fast(*args), jax.jit(depthwise)(*args))
    assert len(fast.decided) == position + 1


@pytest.mark.parametrize("options", [{}, {"budget": 0}])
def test_errors_of_the_function_are_its_own(verdicts, options):
    traces = []

    def fn(kernel, x):
        traces.append(x.shape)
        if x.shape[0] == 3:
            raise TypeError("three images")
        return depthwise(kernel, x)

    fast = jit(fn, **options)
    for x in (IMAGE, IMAGES):
        traces.clear()
        with pytest.raises(TypeError, match="three images"):
            fast(KERNEL, jnp.ones((3, 28, 28, 32)))
        assert len(traces) == 1
        fast(KERNEL, x)
    assert len(fast.decided) == 2


def test_a_signature_of_another_device_is_decided_on_this_one(verdicts, monkeypatch):
    """jax's types of arguments do not say on which platform they are."""

    def elsewhere(*_):
        return "it runs on cuda"

    with monkeypatch.context() as patch:
        patch.setattr(decider, "unsupported", elsewhere)
        patch.setattr(decider, "other_devices", elsewhere)
        fast = jit(depthwise)
        fast(KERNEL, IMAGE)
    assert fast.decided == []
    # Another entry in jax's cache: the argument has a device.
    fast(jax.device_put(KERNEL, jax.devices()[0]), IMAGE)
    assert len(fast.decided) == 1


def test_the_reason_of_a_failure_is_explained():
    def policy(_):
        raise PassError("this pass fails")

    fast = jit(lambda x: x + 1, policy=policy)
    with pytest.warns(FallbackWarning, match="this pass fails"):
        fast(jnp.float32(1))
    assert "PassError: this pass fails" in fast.explain()


def test_other_threads_compile_while_a_version_is_tried(verdicts, monkeypatch):
    """A module of another signature is not taken for the one that is tried."""

    def fn(x, kind):
        return small_loop(x) if kind == "loop" else jnp.sin(x) * 2

    fast = jit(fn, static_argnames="kind")
    x = square(4)
    fast(x, kind="loop")
    expected = fast(x, kind="other")
    assert len(fast.decided) == 1
    found = []
    committed = jax.device_put(x, jax.devices()[0])

    def compile_others():
        found.extend(fast(committed, kind=kind) for kind in ("other", "loop"))

    real = auto.check_compiles

    def check(module, **options):
        thread = threading.Thread(target=compile_others)
        thread.start()
        thread.join()
        real(module, **options)

    monkeypatch.setattr(auto, "check_compiles", check)
    y = square(5)
    before = fast.num_injected
    assert_same(fast(y, kind="loop"), jax.jit(small_loop)(y), tolerance=1e-4)
    assert fast.num_injected - before == 3
    assert_same(found, [expected, jax.jit(small_loop)(x)], tolerance=1e-4)
    assert len(fast.decided) == 2
