# SPDX-License-Identifier: Apache-2.0
"""hloenv.jit of functions with loops, by the code of TensorFlow's XLA."""

from __future__ import annotations

import functools
from collections import Counter
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hloenv
from hloenv.errors import CompileError, MeasureTimeout
from hloenv.jax import auto, by_wheel, timed_call
from hloenv.runtime.jaxlib import ffi_call
from support import jax_outputs
from support.jit_functions import FASTER, SLOWER, normal

assert_same = functools.partial(jax_outputs.assert_same, tolerance=1e-4)

pytestmark = [
    pytest.mark.jax,
    pytest.mark.compile,
    pytest.mark.usefixtures("own_folder"),
]


def smoothed(carry, rows):
    """A loop that no rule makes one kernel of: its rows are long."""

    def step(state, row):
        state = jnp.tanh(state * 0.9 + row)
        return state, state.sum()

    state, sums = jax.lax.scan(step, carry["state"], rows)
    return {"state": state, "steps": carry["steps"] + 1}, sums


CARRY = {"state": normal(20_000), "steps": jnp.int32(3)}
ROWS = normal(5, 20_000, seed=1)


def test_a_loop_runs_by_the_wheels_code_where_that_is_faster(verdicts, monkeypatch):
    verdicts += [FASTER]
    fast = hloenv.jit(smoothed)
    for _ in range(2):
        assert_same(fast(CARRY, ROWS), jax.jit(smoothed)(CARRY, ROWS))
    (one,) = fast.decided
    assert (one.engine, one.speedup) == ("wheel", FASTER.speedup)
    assert "by TensorFlow's XLA" in fast.explain()
    # As in another process: it is not compared again.
    monkeypatch.setattr(timed_call, "compare", None)
    second = hloenv.jit(smoothed)
    assert_same(second(CARRY, ROWS), jax.jit(smoothed)(CARRY, ROWS))
    assert [each.engine for each in second.decided] == ["wheel"]
    # Inside other transformations it is plain.
    assert_same(
        jax.grad(lambda rows: second(CARRY, rows)[1].sum())(ROWS),
        jax.grad(lambda rows: smoothed(CARRY, rows)[1].sum())(ROWS),
    )


def test_a_loop_stays_in_jaxlib_where_that_is_not_slower(verdicts):
    verdicts += [SLOWER]
    fast = hloenv.jit(smoothed)
    for _ in range(2):
        assert_same(fast(CARRY, ROWS), jax.jit(smoothed)(CARRY, ROWS))
    assert fast.decided == []
    assert verdicts == []


def test_a_small_gain_by_another_compiler_is_none(verdicts):
    """Timed in turns; after other work of the process it may be a loss."""
    verdicts += [replace(FASTER, speedup=1.06, interval=(1.03, 1.08))]
    fast = hloenv.jit(smoothed, remember=False)
    fast(CARRY, ROWS)
    assert fast.decided == []
    assert "by a twentieth" in fast.explain()
    verdicts += [replace(FASTER, speedup=1.06, interval=(1.05, 1.08))]
    fast = hloenv.jit(smoothed, remember=False)
    fast(CARRY, ROWS)
    assert len(fast.decided) == 1


def test_what_is_not_used_is_freed(verdicts):
    before = Counter(ffi_call._uses)
    verdicts += [SLOWER, FASTER, SLOWER]
    unused = hloenv.jit(smoothed, remember=False)
    unused(CARRY, ROWS[:2])
    assert ffi_call._uses == before
    used = hloenv.jit(smoothed, remember=False)
    used(CARRY, ROWS[:3])
    # Another function that does not use the same code leaves it to the one that does.
    hloenv.jit(smoothed, remember=False)(CARRY, ROWS[:3])
    assert (ffi_call._uses - before).total() == 1
    other = jax.tree.map(lambda x: x * 2, (CARRY, ROWS[:3]))
    assert_same(used(*other), jax.jit(smoothed)(*other))


def test_code_is_there_until_nobody_uses_it():
    executable = hloenv.compile(hloenv.HloModule.from_jax(jnp.sin, ROWS))
    call = jax.jit(hloenv.jax.call_executable(executable))
    hloenv.jax.call_executable(executable)
    assert_same(call(ROWS), [jnp.sin(ROWS)])
    ffi_call.discard_executable(executable)
    assert_same(call(ROWS), [jnp.sin(ROWS)])
    ffi_call.discard_executable(executable)
    with pytest.raises(ValueError, match="hloenv's custom call"):
        jax.block_until_ready(call(ROWS))


def test_a_comparison_that_fails_frees_the_code(monkeypatch):
    before = Counter(ffi_call._uses)

    def fails(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(timed_call, "compare", fails)
    with pytest.raises(KeyboardInterrupt):
        hloenv.jit(smoothed, remember=False)(CARRY, ROWS[:4])
    assert ffi_call._uses == before


def _counted(monkeypatch) -> list[hloenv.HloModule]:
    """The modules that are compiled by the wheel's XLA."""
    found, real = [], by_wheel.compile

    def counting(module, **options):
        found.append(module)
        return real(module, **options)

    monkeypatch.setattr(by_wheel, "compile", counting)
    return found


def _until(carry, rows):
    """How often it runs depends on values."""

    def step(state):
        return jnp.tanh(state * 0.9 + rows[0])

    return jax.lax.while_loop(lambda x: x.sum() > 1e4, step, carry["state"])


def _in_a_branch(carry, rows):
    return jax.lax.cond(
        carry["steps"] > 2, smoothed, lambda c, r: (c, r.sum(1)), carry, rows
    )


def _random(carry, rows):
    """jax draws them in a loop."""
    noise = jax.random.normal(jax.random.PRNGKey(carry["steps"]), rows.shape)
    return carry["state"] + rows + noise


@pytest.mark.parametrize(
    ("fn", "options"),
    [
        (smoothed, {"budget": 0}),
        (smoothed, {"donate_argnums": 0}),
        (smoothed, {"compiler_options": {"xla_cpu_enable_fast_min_max": False}}),
        (_until, {}),
        (_in_a_branch, {}),
        (_random, {}),
        (lambda carry, rows: jnp.tanh(carry["state"] + rows), {}),
    ],
    ids=["no comparison", "donated", "options", "while", "cond", "random", "no loop"],
)
def test_the_wheel_compiles_nothing_that_it_may_not_run(monkeypatch, fn, options):
    compiled = _counted(monkeypatch)
    fast = hloenv.jit(fn, remember=False, **options)
    arguments = jax.tree.map(jnp.copy, (CARRY, ROWS))
    assert_same(fast(*arguments), jax.jit(fn)(CARRY, ROWS))
    assert compiled == []


@pytest.mark.parametrize("error", [CompileError("no"), MeasureTimeout("too long")])
def test_what_the_wheel_cannot_compile_stays_plain(monkeypatch, error):
    """It is first compiled in a child process, which may crash."""
    compiled = _counted(monkeypatch)

    def fails(*_, **__):
        raise error

    monkeypatch.setattr(by_wheel.child, "try_compile", fails)
    fast = hloenv.jit(smoothed, remember=False)
    assert_same(fast(CARRY, ROWS), jax.jit(smoothed)(CARRY, ROWS))
    assert fast.decided == []
    assert str(error) in fast.explain()
    assert compiled == []


def test_other_outputs_are_not_used(monkeypatch):
    """The comparison is the real one."""
    real = auto.compiled_by_wheel

    def wrong(module, stages, **options):
        function, discard = real(module, stages, **options)

        def shifted(*args, **kwargs):
            carry, sums = function(*args, **kwargs)
            return carry, sums + 1

        return shifted, discard

    monkeypatch.setattr(auto, "compiled_by_wheel", wrong)
    fast = hloenv.jit(smoothed, remember=False)
    for _ in range(2):
        # Without a warning: another compiler may round otherwise.
        assert_same(fast(CARRY, ROWS), jax.jit(smoothed)(CARRY, ROWS))
    assert fast.decided == []
    assert "outputs differ" in fast.explain()


def test_types_that_numpy_does_not_have(verdicts, monkeypatch):
    monkeypatch.setattr(auto, "_KERNELS", (("single-kernel",), "keep-original"))

    def drawn(key, x):
        def step(state, _):
            key, value = state
            key, other = jax.random.split(key)
            return (key, value * 0.5 + jax.random.bits(other, (3,), "uint8")), value

        return jax.lax.scan(step, (key, x), None, length=4)

    verdicts += [FASTER] * 3
    x = np.arange(3, dtype=np.float32)
    fast = hloenv.jit(drawn)
    for key in (jax.random.key(0), jax.random.key(1)):
        for kind in (jnp.bfloat16, jnp.float16):
            given = jnp.asarray(x, kind)
            (key_a, value_a), values_a = fast(key, given)
            (key_b, value_b), values_b = jax.jit(drawn)(key, given)
            assert jnp.array_equal(
                jax.random.key_data(key_a), jax.random.key_data(key_b)
            )
            assert_same((value_a, values_a), (value_b, values_b))
    assert {each.engine for each in fast.decided} == {"wheel"}


# --- with less overhead


def arm(angles):
    """Products of small matrices, one after the other."""
    pose = jnp.eye(4)
    for i in range(6):
        c, s = jnp.cos(angles[i]), jnp.sin(angles[i])
        pose = pose @ jnp.eye(4).at[:2, :2].set(jnp.array([[c, -s], [s, c]]))
        pose = pose @ jnp.eye(4).at[2, 3].set(0.3)
    return pose[:3, 3], pose[:3, :3] @ angles[:3]


ANGLES = jnp.linspace(0.1, 1, 6)


def test_small_operations_run_with_less_overhead(verdicts, monkeypatch):
    verdicts += [FASTER]
    fast = hloenv.jit(arm)
    assert_same(fast(ANGLES), jax.jit(arm)(ANGLES))
    (one,) = fast.decided
    assert (one.engine, one.route) == ("wheel", "wheel")
    assert any(label.startswith("dot-lowering") for label in one.accepted)
    assert "in the pipeline of TensorFlow's XLA" in fast.explain()
    # As in another process.
    monkeypatch.setattr(timed_call, "compare", None)
    second = hloenv.jit(arm)
    assert_same(second(2 * ANGLES), jax.jit(arm)(2 * ANGLES))
    assert [each.accepted for each in second.decided] == [one.accepted]


def test_forms_with_less_overhead(verdicts, monkeypatch):
    def both(numbers, rows, state):
        def step(state, row):
            state = jnp.tanh(state * 0.9 + row)
            return state, state.sum()

        return jnp.argsort(numbers), jax.lax.scan(step, state, rows)

    args = normal(1000), normal(200, 4, 4, seed=1), normal(4, 4)
    verdicts += [FASTER, replace(FASTER, speedup=9.0)]
    fast = hloenv.jit(both)
    assert_same(fast(*args), jax.jit(both)(*args))
    assert verdicts == []
    (one,) = fast.decided
    assert one.engine == "wheel"
    passes = {label.split("/")[0] for label in one.accepted}
    assert passes > {"sort-forms"}
    monkeypatch.setattr(timed_call, "compare", None)
    second = hloenv.jit(both)
    assert_same(second(*args), jax.jit(both)(*args))
    assert [each.accepted for each in second.decided] == [one.accepted]


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: jax.lax.cond(x[0] > 0, arm, lambda x: (x[:3], x[3:]), x),
        lambda x: jax.lax.while_loop(lambda y: y[0] > 1, lambda y: arm(y)[0], x[:3]),
        lambda x: (*arm(x), jnp.outer(ROWS.ravel(), ROWS[0, :100]) * x[0]),
    ],
)
def test_what_values_decide_and_what_is_long_stays_in_jaxlib(fn, verdicts, monkeypatch):
    monkeypatch.setattr(auto, "for_wheel", None)
    monkeypatch.setattr(timed_call, "compare", lambda *_, **__: SLOWER)
    fast = hloenv.jit(fn)
    fast(ANGLES)
    assert fast.decided == []


def test_what_has_nothing_to_gain_is_not_compiled_again(monkeypatch):
    compiled = _counted(monkeypatch)
    fast = hloenv.jit(lambda x: jnp.tanh(x) + 1)
    fast(ANGLES)
    assert fast.decided == []
    assert compiled == []


def test_a_kept_version_by_jaxlib_does_not_ask_the_wheel(verdicts, monkeypatch):
    verdicts += [FASTER, SLOWER]

    def fn(numbers, x):
        return jnp.argsort(numbers), arm(x)

    numbers = normal(1000)
    first = hloenv.jit(fn)
    first(numbers, ANGLES)
    assert [each.engine for each in first.decided] == ["jaxlib"]
    monkeypatch.setattr(auto, "for_wheel", None)
    monkeypatch.setattr(auto, "child", None)
    second = hloenv.jit(fn)
    assert_same(second(numbers, ANGLES), jax.jit(fn)(numbers, ANGLES))
    assert [each.engine for each in second.decided] == ["jaxlib"]


def test_a_version_that_cannot_be_finished_leaves_the_others(verdicts, monkeypatch):
    def fails(*_, **__):
        raise CompileError("no")

    def fn(numbers, x):
        return jnp.argsort(numbers), arm(x)

    monkeypatch.setattr(auto, "compiled_by_wheel", fails)
    verdicts += [FASTER]
    fast = hloenv.jit(fn, remember=False)
    fast(normal(1000), ANGLES)
    assert [each.engine for each in fast.decided] == ["jaxlib"]
    assert "no" in [each.reason for each in fast.considered]


@pytest.mark.parametrize(("other", "best"), [(1.31, "jaxlib"), (1.4, "wheel")])
def test_another_compiler_must_gain_more_than_other_forms(other, best, verdicts):
    verdicts += [
        replace(FASTER, speedup=1.3, interval=(1.25, 1.35)),
        replace(FASTER, speedup=other, interval=(1.3, 1.45)),
    ]
    fast = hloenv.jit(lambda numbers, x: (jnp.argsort(numbers), arm(x)), remember=False)
    fast(normal(1000), ANGLES)
    assert verdicts == []
    assert [each.engine for each in fast.decided] == [best]
