# SPDX-License-Identifier: Apache-2.0
"""hloenv.jit uses decided modules only if they are faster with equal outputs."""

from __future__ import annotations

import dataclasses
import statistics
import threading
import time
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hloenv import HloModule
from hloenv.errors import ArgumentError, DecisionError, HloEnvError
from hloenv.jax import FallbackWarning, auto, jit, planners, timed_call
from hloenv.jax.compare import Comparison, compare
from support.jit_functions import FASTER, SLOWER

pytestmark = [pytest.mark.jax, pytest.mark.compile]


def convolution(x, kernel):
    """XLA swaps the operands of this one, and then runs it much slower."""
    return jax.lax.conv_general_dilated(
        x, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )


def simplified(x):  # to a product with 0.5
    return x / 2 + jnp.tanh(x)


# Decides otherwise than XLA for `simplified`, whatever that is worth.
OTHERWISE = {"policy": "reject-all", "passes": "algsimp"}


@pytest.fixture
def verdicts(monkeypatch):
    """Replaces the timing by given results, and records its calls."""
    found: list[Comparison] = []

    def decided_by_test(plain, other, *, seconds, **_):
        jax.block_until_ready((plain(), other()))
        return found.pop(0)

    monkeypatch.setattr(timed_call, "compare", decided_by_test)
    return found


@pytest.mark.parametrize("options", [OTHERWISE, {}])
def test_a_slower_rewrite_stays_rejected(options):
    x = jax.random.normal(jax.random.key(0), (2, 2, 2, 256))
    kernel = jax.random.normal(jax.random.key(1), (3, 3, 256, 256))
    decided, plain = jit(convolution, **options), jax.jit(convolution)
    np.testing.assert_allclose(
        decided(x, kernel), plain(x, kernel), rtol=1e-3, atol=1e-3
    )
    (one,) = decided.decided
    assert one.is_used
    assert one.interval[0] > 1.02
    assert _ratio(plain, decided, (x, kernel)) > 2


@pytest.mark.parametrize("size", [8, 512])
def test_plain_jax_runs_without_a_gain(size, monkeypatch):
    # The wheel's compiler may be faster at the smaller one.
    monkeypatch.setattr(auto, "may_be_short", lambda module: False)

    def step(weights, x):
        return jnp.tanh(x @ weights).sum()

    args = (jnp.ones((size, size)), jnp.ones((size, size)))
    decided, plain = jit(step), jax.jit(step)
    decided(*args), plain(*args)
    assert decided.decided == []
    (one,) = decided.considered
    assert "no rule applies" in one.reason
    # Python's call in front of jax's own costs a tenth of the smallest call.
    # Other tests run beside this one: a few milliseconds are one slice of a core.
    assert _ratio(plain, decided, args, rounds=3000 if size == 8 else 20) > 0.75


def test_a_slower_module_is_not_used(verdicts):
    verdicts.append(SLOWER)
    fn = jit(simplified, **OTHERWISE)
    x = jnp.arange(4.0)
    for _ in range(2):
        np.testing.assert_allclose(fn(x), simplified(x), rtol=1e-6)
    (kept,) = fn.considered
    assert (kept.is_used, kept.reason) == (False, "it is slower")
    assert fn.decided == []
    assert verdicts == []


def test_each_signature_is_compared_once(verdicts):
    """The second and later ones are decided while jax traces them."""
    verdicts += [FASTER, SLOWER, FASTER]
    fn = jit(simplified, **OTHERWISE)
    sizes = (3, 5, 7, 3, 5, 7)
    for size in sizes:
        x = jnp.arange(float(size))
        np.testing.assert_allclose(fn(x), simplified(x), rtol=1e-6)
    assert verdicts == []
    assert [each.is_used for each in fn.considered] == [True, False, True]
    assert len(fn.decided) == 2
    for each, is_injected in ((3, True), (5, False), (7, True)):
        x = jnp.arange(float(each))
        before = fn.num_injected
        # Committed arguments make jax compile the same trace anew.
        np.testing.assert_allclose(
            fn(jax.device_put(x, jax.devices()[0])), simplified(x), rtol=1e-6
        )
        assert (fn.num_injected > before) == is_injected


def test_plain_first_then_decided(verdicts):
    verdicts += [SLOWER, FASTER]
    fn = jit(simplified, **OTHERWISE)
    for size in (3, 5, 3, 5):
        x = jnp.arange(float(size))
        np.testing.assert_allclose(fn(x), simplified(x), rtol=1e-6)
    assert [each.is_used for each in fn.considered] == [False, True]


def test_static_arguments_are_distinguished(verdicts):
    verdicts += [FASTER, FASTER]
    fn = jit(
        lambda x, times: simplified(x) * times, static_argnames="times", **OTHERWISE
    )
    x = jnp.arange(4.0)
    for times in (2, 3, 2, 3):
        np.testing.assert_allclose(fn(x, times=times), simplified(x) * times, rtol=1e-6)
    assert len(fn.decided) == 2


def test_later_calls_are_jax_s_own(verdicts):
    """An exception inside a trace would leave jax's slow path for good."""
    verdicts += [FASTER, FASTER]
    fn = jit(simplified, **OTHERWISE)
    small, large = jnp.arange(3.0), jnp.arange(5.0)
    fn(small), fn(large)
    assert fn._decided._cache_size() == 2
    for x in (small, large):
        assert _ratio(jax.jit(simplified), fn, (x,)) > 0.5


def test_other_outputs_are_never_used(monkeypatch):
    wrong = HloModule.from_text(
        """HloModule wrong
        ENTRY e {
          a = f32[4] parameter(0)
          ROOT r = f32[4] negate(a)
        }"""
    )
    real = planners.decide

    def decide(module, policy, pipelines, **how):
        decided = real(module, policy, pipelines, **how)
        return dataclasses.replace(decided, applied=wrong)

    monkeypatch.setattr(planners, "decide", decide)
    fn = jit(simplified, **OTHERWISE)
    x = jnp.arange(4.0)
    with pytest.warns(FallbackWarning, match="outputs differ from the plain"):
        np.testing.assert_allclose(fn(x), simplified(x), rtol=1e-6)
    np.testing.assert_allclose(fn(x), simplified(x), rtol=1e-6)
    assert fn.decided == []


DIFFERENT = Comparison(is_equal=False, reason="its outputs differ: all of them")


@pytest.mark.usefixtures("own_folder")
@pytest.mark.parametrize("is_another_used", [True, False])
def test_versions_that_differ_are_no_warning_where_another_is_used(
    verdicts, is_another_used
):
    fast = jit(lambda x: (jnp.argsort(x), jnp.sin(x)), remember=False)
    verdicts += [DIFFERENT, *[FASTER if is_another_used else DIFFERENT] * 9]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fast(jnp.tanh(jnp.arange(10_000.0)))
    assert any(DIFFERENT.reason in each.reason for each in fast.considered)
    assert bool(fast.decided) == is_another_used
    found = [each for each in caught if each.category is FallbackWarning]
    assert len(found) == (0 if is_another_used else 1)


@pytest.mark.usefixtures("own_folder")
def test_settings_of_numpy_do_not_matter():
    """What overflows in a comparison: inputs moved by a unit, errors, squares."""

    def fn(x, mask):
        return jnp.argsort(x, 1), jnp.cumsum(jnp.sin(x) + mask * 0, 1), jnp.sin(x)

    x = np.random.default_rng(0).standard_normal((64, 300), np.float32)
    mask = np.where(x > 0, np.finfo(np.float32).min, np.float32(1e-38))
    fast = jit(fn, remember=False)
    with np.errstate(all="raise"), warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(2):
            found = fast(x, mask)
    assert fast.decided
    for one, other in zip(found, jax.jit(fn)(x, mask), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4)


def test_side_effects_happen_once():
    seen = []

    @jit
    def fn(x):
        jax.debug.callback(lambda value: seen.append(float(value)), x.sum())
        return x * 2

    fn(jnp.ones(3))
    assert "side effects" in fn.explain()
    fn(jnp.ones(3))
    jax.effects_barrier()
    assert seen == [3.0, 3.0]


def test_donations_are_jax_s(verdicts):
    fn = jit(lambda x, y: x + y, donate_argnums=0, **OTHERWISE)
    x = jnp.ones(1000)
    assert fn(x, 2.0).sum() == 3000
    assert x.is_deleted()
    assert fn.considered == []


def test_a_comparison_that_takes_too_long_is_not_made():
    def slow():
        time.sleep(0.03)
        return jnp.ones(2)

    result = compare(slow, slow, seconds=0.001)
    # Of one run of each, which decides nothing.
    assert result.speedup == pytest.approx(1, abs=0.5)
    assert result.interval is None
    assert "budget of 0.001 s" in result.reason


def test_a_module_twice_as_slow_is_dropped_early():
    calls = []

    def slow():
        calls.append(1)
        time.sleep(0.03)
        return jnp.ones(2)

    result = compare(lambda: jnp.ones(2), slow, seconds=5)
    assert result.speedup < 0.5
    assert len(calls) == 3


def test_random_keys_are_compared_by_their_data():
    one, other = jax.random.key(1), jax.random.key(2)
    assert compare(lambda: one, lambda: one, seconds=0.01).is_equal
    assert not compare(lambda: one, lambda: other, seconds=0.01).is_equal


def test_decorators_with_and_without_arguments():
    @jit
    def plain(x):
        return x + 1

    @jit(policy="fewest-ops", passes="algsimp", static_argnames="times")
    def repeated(x, times=2):
        """Says something."""
        return x * times

    class Model:
        scale = 3.0

        @jit(static_argnums=0)
        def method(self, x):
            return x * self.scale

    assert plain(jnp.float32(1)) == 2
    assert repeated(jnp.float32(1), times=3) == 3
    assert repeated.__name__ == "repeated"
    assert repeated.__doc__ == "Says something."
    model = Model()
    assert model.method(jnp.float32(2)) == 6
    assert model.method(jnp.float32(3)) == 9
    assert len(Model.__dict__["method"].considered) == 1


def test_a_wrong_policy_after_the_first_signature(verdicts):
    verdicts.append(FASTER)

    def policy(alternatives):
        if verdicts:
            return alternatives.reject_all()
        return [7]

    fn = jit(simplified, policy=policy, passes="algsimp")
    fn(jnp.ones(3))
    with pytest.warns(FallbackWarning, match="DecisionError"):
        assert fn(jnp.zeros(5)).sum() == 0
    first = jit(simplified, policy=policy, passes="algsimp")
    for _ in range(2):
        with pytest.raises(DecisionError):
            first(jnp.ones(3))


def test_failures_after_the_first_call_lose_no_outputs():
    def policy(_):
        raise ZeroDivisionError("a bug of the policy")

    fn = jit(simplified, policy=policy)
    with pytest.warns(FallbackWarning, match="ZeroDivisionError: a bug"):
        assert fn(jnp.zeros(3)).sum() == 0
    assert fn(jnp.zeros(3)).sum() == 0


def test_an_equal_module_is_left_without_a_warning(verdicts):
    """Another static argument that makes the same module is not tried again."""
    verdicts += [FASTER, SLOWER]
    fn = jit(lambda x, tag: simplified(x), static_argnames="tag", **OTHERWISE)
    fn(jnp.ones(3), tag=1)
    with warnings.catch_warnings():
        warnings.simplefilter("error", FallbackWarning)
        for tag in (2, 3):
            fn(jnp.ones(5), tag=tag)
    assert [each.is_used for each in fn.considered] == [True, False, False]
    assert "equal module" in fn.considered[-1].reason


def test_warnings_name_the_caller():
    def policy(_):
        raise HloEnvError("no decisions")

    fn = jit(simplified, policy=policy)
    with pytest.warns(FallbackWarning, match="no decisions") as caught:
        fn(jnp.ones(3))
    assert [warning.filename for warning in caught] == [__file__]


@pytest.mark.parametrize("budget", [-1, float("nan")])
def test_budgets_are_times(budget):
    with pytest.raises(ArgumentError, match="budget"):
        jit(simplified, budget=budget)


def test_nothing_is_decided_under_another_transformation():
    with warnings.catch_warnings():
        warnings.simplefilter("error", FallbackWarning)
        fn = jit(lambda x: simplified(x).sum(), **OTHERWISE)
        x = jnp.ones(3)
        assert jax.jit(fn)(x) == jax.jit(lambda x: simplified(x).sum())(x)
        np.testing.assert_allclose(
            jax.grad(fn)(x), 0.5 + 1 / np.cosh(1) ** 2, rtol=1e-5
        )
        assert fn.considered == []
        fn(x)
        assert len(fn.considered) == 1


def _ratio(one, other, args, rounds=60):
    """Median over rounds of one's time over other's, called in turns."""
    ratios = []
    for _ in range(rounds):
        times = []
        for fn in (one, other):
            begin = time.perf_counter_ns()
            for _ in range(5):
                jax.block_until_ready(fn(*args))
            times.append(time.perf_counter_ns() - begin)
        ratios.append(times[0] / times[1])
    return statistics.median(ratios)


def test_a_signature_that_found_another_thread_deciding_is_considered_later():
    fast = jit(simplified, remember=False)
    ones = [jnp.ones(size) for size in (3, 4, 5)]
    fast(ones[0])
    holds, may_end = threading.Event(), threading.Event()

    def decide():
        with fast._lock:
            holds.set()
            may_end.wait(60)

    thread = threading.Thread(target=decide)
    thread.start()
    holds.wait(60)
    fast(ones[1])
    may_end.set()
    thread.join()
    fast(ones[2])  # a call of another signature
    assert len(fast.considered) == 2
    fast(ones[1])
    assert len(fast.considered) == 3


def test_a_signature_that_does_not_return_is_given_up():
    fast = jit(simplified, remember=False)
    fast(jnp.ones(3))
    fast._waiting.add("gone")
    fast._waits = True
    fast._num_waits = 3
    for _ in range(3):
        fast(jnp.ones(3))
    assert fast._waiting == set()
