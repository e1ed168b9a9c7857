# SPDX-License-Identifier: Apache-2.0
"""hloenv.jit limits the time that it takes to decide."""

from __future__ import annotations

import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hloenv
from hloenv.errors import CompileError, MeasureTimeout
from hloenv.jax import auto, by_wheel, decider, timed_call
from hloenv.jax import compare as jax_compare
from hloenv.jax.compare import Comparison, Running, exceeds
from support.fake_time import FakeTime
from support.jit_functions import FASTER, NOISES, SLOWER, depthwise, filtered

pytestmark = [
    pytest.mark.jax,
    pytest.mark.compile,
    pytest.mark.usefixtures("no_fallback"),
]


KERNEL, IMAGE = jnp.ones((3, 3, 1, 32)) / 9, jnp.ones((1, 28, 28, 32))


MATRIX = jnp.eye(3) * 0.9


class Slow:
    """A result that takes some time."""

    def is_ready(self):
        return False

    def block_until_ready(self):
        time.sleep(0.05)


def test_a_slow_function_runs_once_to_see_that_it_is_slow():
    calls = []

    def slow():
        calls.append(1)
        time.sleep(0.05)
        return jnp.ones(2)

    assert "budget of 0.001 s" in exceeds(slow, 0.001)
    assert len(calls) == 1
    assert exceeds(slow, 10.0) == ""


def test_one_delayed_run_does_not_make_a_function_slow():
    durations = [0.3, 0.0]

    def delayed():
        time.sleep(durations.pop(0))
        return jnp.ones(2)

    assert exceeds(delayed, 0.05) == ""
    assert durations == []


def test_a_slow_function_that_still_runs_does_not_run_again():
    assert "budget of 0.001 s" in exceeds(None, 0.001, Running([Slow()]))
    assert exceeds(lambda: jnp.ones(2), 10.0, Running([Slow()])) == ""


def sleeping():
    """The seconds of all calls, and a maker of functions that take so long."""
    calls = []

    def after(seconds):
        def call():
            calls.append(seconds)
            time.sleep(seconds)
            return jnp.ones(2)

        return call

    return calls, after


@pytest.mark.parametrize(("other_s", "is_used"), [(0.005, True), (0.045, False)])
def test_slow_functions_are_compared_by_two_runs(other_s, is_used):
    calls, after = sleeping()
    found = jax_compare.compare(after(0.05), after(other_s), seconds=0.02)
    assert (found.reason == "") == is_used
    assert found.interval is None
    assert calls.count(0.05) == 2
    assert (found.speedup >= 1.5) == is_used
    assert is_used or "not 1.5 times as fast" in found.reason


@pytest.mark.parametrize(("other_s", "is_used"), [(0.01, True), (0.3, False)])
def test_a_promising_form_of_a_slow_function_is_compared_by_one_run(other_s, is_used):
    calls, after = sleeping()
    plain, other = after(0.32), after(other_s)
    assert "takes longer than the budget" in exceeds(plain, 0.02)
    assert exceeds(plain, 0.02, is_promising=True) == ""
    assert "takes longer" in exceeds(plain, 0.005, is_promising=True)
    calls.clear()
    found = jax_compare.compare(plain, other, seconds=0.02, is_promising=True)
    assert (found.reason == "") == is_used
    assert found.interval is None
    assert calls.count(0.32) == 1
    assert calls.count(other_s) == (3 if is_used else 2)
    assert (found.speedup >= 1.5) == is_used
    calls.clear()
    found = jax_compare.compare(plain, other, seconds=0.02)
    assert "longer than the budget" in found.reason


def test_one_delayed_run_does_not_make_a_promising_form_faster():
    def after(first):
        durations = [first]

        def call():
            time.sleep(durations.pop() if durations else 0.002)
            return jnp.ones(2)

        return call

    plain, other = after(0.15), after(0.002)
    found = jax_compare.compare(plain, other, seconds=0.02, is_promising=True)
    assert found.interval is not None
    assert found.speedup < 1.5


def test_two_delayed_runs_do_not_make_a_form_slower():
    """Where other processes have the cores, short calls wait for some milliseconds."""
    durations = [0.01] * 3

    def delayed():
        time.sleep(durations.pop() if durations else 0.0001)
        return jnp.ones(2)

    def plain():
        time.sleep(0.002)
        return jnp.ones(2)

    found = jax_compare.compare(plain, delayed, seconds=0.1)
    assert durations == []
    assert found.reason == ""
    assert found.interval[0] > 1.02


def test_copies_of_donated_arguments_do_not_count_as_time():
    def with_copies(seconds):
        call = jax_compare.Consuming(lambda: jnp.ones(2), (), {})
        call.max_calls = 2

        def copy():
            time.sleep(seconds)
            return (), {}

        call._copy = copy
        return call

    jax.block_until_ready(jnp.ones(2))
    plain, other = with_copies(0.1), with_copies(0.001)
    found = jax_compare.compare(plain, other, seconds=0.002, is_promising=True)
    assert found.interval is not None  # more than one run decides


def test_long_runs_are_timed_after_a_pause(monkeypatch):
    fake = FakeTime(monkeypatch, jax_compare)
    pair = fake.taking("a", 0.06), fake.taking("b", 0.04)
    durations = jax_compare.take_turns(*pair, rounds=(3, 3), seconds=0)
    assert durations == ([60_000_000] * 3, [40_000_000] * 3)
    # Untimed before the first alone: once a time is known, it is long enough.
    assert "".join(fake.calls) == "aab" + "ba" + "ab"
    assert fake.pauses == [jax_compare.PAUSE_S] * 5


@pytest.mark.parametrize(
    ("times", "rounds"),
    [
        ((0.5, 0.02), 3),  # long, and beyond doubt
        ((0.5, 0.3), 5),
        ((0.02, 0.5), 5),
    ],
)
def test_long_runs_end_where_the_gain_is_beyond_doubt(monkeypatch, times, rounds):
    fake = FakeTime(monkeypatch, jax_compare)
    pair = fake.taking("a", times[0]), fake.taking("b", times[1])
    found = jax_compare._until_told(*pair, seconds=1.0, calls=1)
    assert [len(each) for each in found] == [rounds, rounds]


@pytest.mark.parametrize(
    ("other_s", "gains", "is_used"), [(0.01, 50, True), (0.03, 17, False)]
)
def test_once_a_version_is_much_faster_others_are_timed_against_it(
    monkeypatch, other_s, gains, is_used
):
    fake = FakeTime(monkeypatch, jax_compare)

    def equal(call):
        return lambda: (call(), jnp.ones(2))[1]

    plain, other = equal(fake.taking("a", 0.5)), equal(fake.taking("b", other_s))
    faster = jax_compare.Faster(fake.taking("f", 0.02), Comparison(25.0, (20.0, 30.0)))
    found = jax_compare.compare(plain, other, seconds=0.1, than=faster)
    assert fake.calls.count("a") == 1  # for its outputs
    assert found.speedup == pytest.approx(gains, rel=0.1)
    assert (found.reason == "") == is_used
    assert found.interval[0] < found.speedup < found.interval[1]


@pytest.mark.parametrize(
    ("first", "is_long"),
    [
        (Comparison(25.0, (20.0, 30.0)), True),
        (Comparison(25.0), True),
        (Comparison(5.0, (3.0, 7.0)), False),
        (Comparison(25.0, (20.0, 30.0), "it is not used"), False),
    ],
)
def test_what_later_versions_are_compared_with(monkeypatch, first, is_long):
    found = []

    def decided_by_test(plain, other, *, than, **_):
        found.append(than)
        return first if len(found) == 1 else SLOWER

    monkeypatch.setattr(timed_call, "compare", decided_by_test)

    def two(kernel, x, matrix, noises):
        return depthwise(kernel, x), jax.grad(filtered)(matrix, noises)

    fast = hloenv.jit(two, remember=False)
    fast(KERNEL, IMAGE, MATRIX, NOISES)
    assert found[0] is None
    assert len(found) > 1
    for each in found[1:]:
        assert (each is not None) == is_long
    if is_long:
        assert found[1].known.speedup == 25.0
        assert len(jax.tree.leaves(found[1].call())) == 2


def test_short_runs_have_many_rounds_whatever_they_gain(monkeypatch):
    fake = FakeTime(monkeypatch, jax_compare)
    pair = fake.taking("a", 0.005), fake.taking("b", 0.001)
    found = jax_compare._until_told(*pair, seconds=1.0, calls=1)
    assert len(found[0]) >= 10


@pytest.mark.parametrize("is_promising", [True, False])
def test_which_forms_are_promising(monkeypatch, is_promising):
    asked = []

    def noted(*_, is_promising, **__):
        asked.append(is_promising)
        return Comparison(reason="it is not asked")

    def is_fine(*_, is_promising, **__):
        asked.append(is_promising)
        return ""

    monkeypatch.setattr(timed_call, "compare", noted)
    monkeypatch.setattr(timed_call, "exceeds", is_fine)

    def products(x, y):
        return jnp.einsum("bij,bjk->bik", x, y)

    if is_promising:
        hloenv.jit(depthwise, remember=False)(KERNEL, IMAGE)
    else:
        small = jnp.ones((1000, 4, 4))
        hloenv.jit(products, remember=False)(small, small)
    assert asked[:2] == [is_promising] * 2


def test_each_sample_follows_a_call_of_the_same_function():
    """Which frees its memory in the time of the next call."""
    calls = []
    first, second = (lambda name=name: calls.append(name) for name in "ab")
    durations = jax_compare.take_turns(first, second, rounds=(2, 2), seconds=0, calls=3)
    assert "".join(calls) == "aaaabbbbbbbbaaaa"
    assert [len(each) for each in durations] == [2, 2]


def test_results_of_all_kinds_are_waited_for():
    outputs = jax.block_until_ready((jax.random.key(0), jnp.ones(2)))
    float0 = np.zeros(2, jax.dtypes.float0)
    assert Running((outputs, float0, None)).wait_ns() == 0


def test_the_first_call_runs_a_slow_function_at_most_twice(monkeypatch):
    samples, running = [], []
    real = timed_call.exceeds

    def sample(jax, call, count, **_):
        samples.append(call)
        return 1e12

    def observed(plain, seconds, still, **more):
        running.append(still)
        return real(plain, seconds, still, **more)

    monkeypatch.setattr(jax_compare, "_sample", sample)
    monkeypatch.setattr(timed_call, "exceeds", observed)
    monkeypatch.setattr(timed_call, "compare", None)
    fast = hloenv.jit(depthwise, remember=False)
    outputs = fast(KERNEL, IMAGE)
    assert fast.decided == []
    assert "takes longer than the budget" in fast.explain()
    assert len(samples) == 1
    assert len(running) == 1
    assert running[0]._outputs is outputs


def test_no_attempt_starts_after_the_limit(monkeypatch):
    compared = []

    def decided_by_test(plain, other, *, seconds, **_):
        compared.append(seconds)
        return SLOWER

    def three(kernel, x, matrices, scores):
        products = matrices @ matrices.swapaxes(1, 2)
        return depthwise(kernel, x), products, scores.argmax(-1)

    monkeypatch.setattr(timed_call, "compare", decided_by_test)
    monkeypatch.setattr(decider, "_MAX_IN_VAIN", 0)
    fast = hloenv.jit(three, remember=False)
    fast(KERNEL, IMAGE, jnp.ones((256, 3, 3)), jnp.ones((64, 1000)))
    assert len(compared) == 1
    assert "deciding has taken longer than its limit" in fast.explain()


@pytest.mark.parametrize(
    ("result", "is_tried_alone"),
    [
        (Comparison(1.0, (0.95, 1.02), "not faster"), False),
        (Comparison(1.0, (0.8, 1.2), "not faster"), True),
        (Comparison(0.9, (0.89, 0.91), "slower"), True),
        (Comparison(reason="too long"), True),
    ],
)
def test_rules_are_tried_alone_where_all_together_change_something(
    verdicts, result, is_tried_alone
):
    def two(kernel, x, matrices):
        return depthwise(kernel, x), matrices @ matrices.swapaxes(1, 2)

    verdicts += [result] * 9
    fast = hloenv.jit(two, remember=False)
    fast(KERNEL, IMAGE, jnp.ones((256, 3, 3)))
    counts = [sum(each.accepted.values()) for each in fast.considered]
    assert (1 in counts) == is_tried_alone


def test_the_limit_is_lower_while_nothing_has_gained(monkeypatch):
    monkeypatch.setattr(decider, "_MAX_IN_VAIN", 0)

    def two(kernel, x, scores):
        return depthwise(kernel, x), scores.argmax(-1)

    for result, is_ended in ((SLOWER, True), (FASTER, False)):
        monkeypatch.setattr(timed_call, "compare", lambda *_, r=result, **__: r)
        fast = hloenv.jit(two, remember=False)
        fast(KERNEL, IMAGE, jnp.ones((64, 1000)))
        said = any("its limit of 0 s" in each.reason for each in fast.considered)
        assert said == is_ended


def test_a_module_that_compiles_too_long_is_left(monkeypatch):
    limits = []

    def slow(module, *_, timeout_s):
        limits.append(timeout_s)
        raise MeasureTimeout("no answer from the worker process")

    monkeypatch.setattr(auto, "check_compiles", slow)
    monkeypatch.setattr(by_wheel.child, "try_compile", slow)
    fast = hloenv.jit(jax.grad(filtered), remember=False)
    assert fast(MATRIX, NOISES).shape == (3, 3)
    # As a kernel, and by the wheel's compiler.
    assert limits == [by_wheel.COMPILE_TIMEOUT_S] * 2
    assert fast.decided == []
    assert "no answer from the worker" in fast.explain()


def test_the_child_ends_a_compilation_that_takes_too_long():
    module = hloenv.HloModule.from_jax(filtered, MATRIX, NOISES)
    with pytest.raises((MeasureTimeout, CompileError)):
        auto.check_compiles(module, timeout_s=0.0)
    auto.check_compiles(hloenv.finish(module), timeout_s=300.0)


@pytest.mark.parametrize(
    ("other_ns", "spread", "num_parts"),
    [(1010, 1, 1), (1000, 1, 1), (900, 1, 2), (500, 1, 1), (500, 200, 2)],
)
def test_a_comparison_ends_early_where_it_is_clear(
    monkeypatch, other_ns, spread, num_parts
):
    parts = []

    def timed(plain, other, *, rounds, seconds, calls):
        parts.append((rounds, seconds))
        noise = [each % 3 * spread for each in range(20)]
        return [1000 + each for each in noise], [other_ns + each for each in noise]

    monkeypatch.setattr(jax_compare, "take_turns", timed)
    found = jax_compare.compare(
        lambda: jnp.float32(1), lambda: jnp.float32(1), seconds=1.0
    )
    assert len(parts) == num_parts
    assert parts[0] == ((3, 200), 0.25)
    if num_parts == 2:
        ((fewest, most), seconds) = parts[1]
        assert (fewest, most) == (0, 180)
        assert 0.25 < seconds <= 1.0
    assert (found.reason == "") == (other_ns < 1000)
    assert found.speedup == pytest.approx(
        1000 / other_ns, rel=0.3 if spread > 1 else 0.01
    )
