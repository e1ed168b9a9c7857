# SPDX-License-Identifier: Apache-2.0
"""Options of jaxlib's code generator, where they are measured to be faster."""

from __future__ import annotations

import functools
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hloenv
from hloenv.errors import InvalidModuleError
from hloenv.jax import auto, decider, from_jax, settings, timed_call
from hloenv.runtime.machine import this_machine
from support import jax_outputs
from support.jit_functions import (
    FASTER,
    IMAGE,
    KERNEL,
    MATRIX,
    NOISES,
    SLOWER,
    depthwise,
    filtered,
    normal,
)

assert_same = functools.partial(jax_outputs.assert_same, tolerance=1e-4)

pytestmark = [
    pytest.mark.jax,
    pytest.mark.compile,
    pytest.mark.usefixtures("own_folder"),
]

X = normal(300, 300)
LOOP = jax.grad(filtered)
TEXT, LEVEL = "xla_cpu_prefer_vector_width=512", "xla_backend_optimization_level=1"
FASTEST = replace(FASTER, speedup=3.0)


def soft(x):
    return jnp.tanh(x) * jax.nn.softmax(x)


def use(monkeypatch, *names):
    """As where these may be tried, and no call is too short."""
    monkeypatch.setattr(auto, "settings_for", lambda _: names)
    monkeypatch.setattr(auto, "min_ns_of", lambda _: 0.0)


@pytest.fixture
def wide(verdicts, monkeypatch):
    """Wider vectors alone."""
    use(monkeypatch, "_wider")
    return verdicts


def with_features(monkeypatch, features):
    machine = replace(this_machine(), features=features)
    monkeypatch.setattr(settings, "this_machine", lambda: machine)


def test_a_function_without_other_forms_is_tried(wide):
    wide += [FASTER]
    fast = hloenv.jit(soft)
    for _ in range(2):
        assert_same(fast(X), jax.jit(soft)(X))
    assert not wide
    (one,) = fast.decided
    assert one.options == TEXT
    assert f"  with {TEXT}" in fast.explain()


def test_a_later_process_uses_what_was_found(wide):
    wide += [FASTER]
    assert_same(hloenv.jit(soft)(X), soft(X))
    later = hloenv.jit(soft)
    assert_same(later(X), soft(X))
    assert [each.options for each in later.decided] == [TEXT]


def test_what_is_slower_is_left_and_remembered(wide):
    wide += [SLOWER]
    for _ in range(2):
        fast = hloenv.jit(soft)
        assert_same(fast(X), soft(X))
        assert fast.decided == []


@pytest.mark.parametrize(
    ("results", "options", "is_form"),
    [
        ([FASTER, FASTEST], TEXT, True),
        ([FASTER, SLOWER], "", True),
        ([FASTER, replace(FASTER, speedup=1.9)], "", True),
        ([SLOWER, FASTER], TEXT, False),
    ],
)
def test_the_fastest_form_is_tried_with_them(wide, results, options, is_form):
    wide += results
    fast = hloenv.jit(depthwise)
    for _ in range(2):
        assert_same(fast(KERNEL, IMAGE), jax.jit(depthwise)(KERNEL, IMAGE))
    assert not wide
    (one,) = fast.decided
    assert (one.options, bool(one.accepted)) == (options, is_form)
    # As another process would.
    later = hloenv.jit(depthwise)
    assert_same(later(KERNEL, IMAGE), jax.jit(depthwise)(KERNEL, IMAGE))
    (kept,) = later.decided
    assert (kept.options, kept.accepted) == (one.options, one.accepted)


def test_loops_as_one_kernel_may_have_them(wide, monkeypatch):
    checked, check = [], auto.check_compiles
    monkeypatch.setattr(
        auto, "check_compiles", lambda *a, **b: checked.append(check(*a, **b))
    )
    # The loop, the wheel's code twice, and the first of these with wider vectors.
    wide += [FASTER, SLOWER, SLOWER, FASTEST]
    fast = hloenv.jit(LOOP)
    for _ in range(2):
        assert_same(fast(MATRIX, NOISES), jax.jit(LOOP)(MATRIX, NOISES))
    (one,) = fast.decided
    assert (one.options, one.route) == (TEXT, "jaxlib")
    assert len(checked) == 1  # in a child process


def test_another_compilers_code_is_not_tried_with_them(wide):
    wide += [SLOWER, FASTER]
    fast = hloenv.jit(LOOP)
    assert_same(fast(MATRIX, NOISES), jax.jit(LOOP)(MATRIX, NOISES))
    assert not wide
    (one,) = fast.decided
    assert (one.options, one.engine) == ("", "wheel")


def test_what_values_decide_is_not_tried(wide):
    """No other process could use what is found, and each would measure again."""

    def halved(x):
        return jax.lax.while_loop(lambda x: x.max() > 1, lambda x: x / 2, soft(x))

    def chosen(x):
        return jax.lax.cond(x[0, 0] > 0, soft, jnp.tanh, x)

    for fn in (halved, chosen):
        assert_same(hloenv.jit(fn, remember=False)(X), fn(X))


def test_later_signatures_have_none(wide):
    wide += [FASTER]
    fast = hloenv.jit(soft)
    assert_same((fast(X), fast(X[:200]), fast(X)), (soft(X), soft(X[:200]), soft(X)))
    assert [each.options for each in fast.decided] == [TEXT]


def test_a_later_signature_is_remembered_without_them(wide):
    wide += [FASTER, FASTER, FASTER]
    fast = hloenv.jit(depthwise)
    shapes = IMAGE, IMAGE[:, :20]
    for image in shapes:
        assert_same(fast(KERNEL, image), jax.jit(depthwise)(KERNEL, image))
    assert not wide
    later = hloenv.jit(depthwise)
    for image in shapes[::-1]:
        assert_same(later(KERNEL, image), jax.jit(depthwise)(KERNEL, image))
    assert [bool(each.accepted) for each in later.decided] == [True, True]


def test_a_little_more_is_not_worth_the_options(wide):
    wide += [FASTER, replace(FASTER, speedup=2.03)]
    fast = hloenv.jit(depthwise, remember=False)
    assert_same(fast(KERNEL, IMAGE), jax.jit(depthwise)(KERNEL, IMAGE))
    assert [each.options for each in fast.decided] == [""]


@jax.tree_util.register_pytree_node_class
class Checked:
    """A pytree that cannot be made of types."""

    def __init__(self, leaf):
        if not isinstance(leaf, jax.Array):
            raise TypeError("not an array")
        self.leaf = leaf

    def tree_flatten(self):
        return (self.leaf,), None

    @classmethod
    def tree_unflatten(cls, _, leaves):
        found = cls.__new__(cls)
        if type(leaves[0]) is jax.ShapeDtypeStruct:
            raise TypeError("not an array")
        (found.leaf,) = leaves
        return found


def test_a_pytree_that_checks_its_leaves_keeps_its_forms(wide):
    wide += [FASTER]
    fast = hloenv.jit(lambda kernel, x: depthwise(kernel, x.leaf), remember=False)
    for _ in range(2):
        assert_same(fast(KERNEL, Checked(IMAGE)), jax.jit(depthwise)(KERNEL, IMAGE))
    assert not wide
    (one,) = fast.decided
    assert (one.options, bool(one.accepted)) == ("", True)


def test_the_users_own_option_is_left(wide):
    fast = hloenv.jit(soft, compiler_options={settings.WIDTH: 128})
    assert_same(fast(X), soft(X))
    assert f"{settings.WIDTH} is given" in fast.explain()


def test_donated_arguments_stay_allowed(wide):
    wide += [FASTER]
    fast = hloenv.jit(soft, donate_argnums=0)
    for _ in range(2):
        assert_same(fast(X + 0), soft(X))
    assert fast.decided[0].options == TEXT


def test_after_a_long_decision_none_is_tried(wide, monkeypatch):
    monkeypatch.setattr(decider, "_MAX_OPTION_BUDGETS", 0.0)
    wide += [FASTER]
    fast = hloenv.jit(depthwise, remember=False)
    assert_same(fast(KERNEL, IMAGE), jax.jit(depthwise)(KERNEL, IMAGE))
    assert [each.options for each in fast.decided] == [""]


def scattered(x):
    return soft(x).at[jnp.arange(3), 1].add(1)


def repeated(x):
    return jax.lax.scan(lambda state, _: (soft(state), None), x, length=3)[0]


def test_without_comparisons_there_are_none(wide):
    fast = hloenv.jit(soft, budget=0)
    assert_same(fast(X), soft(X))
    assert fast.decided == []


@pytest.mark.parametrize(
    ("results", "options"),
    [
        ([FASTER, FASTEST], f"{TEXT}, {LEVEL}"),
        ([FASTER, SLOWER], TEXT),
        ([SLOWER, FASTER], LEVEL),
        ([SLOWER, SLOWER], ""),
    ],
)
def test_each_is_tried_with_those_that_have_gained(
    verdicts, monkeypatch, results, options
):
    use(monkeypatch, *settings.SETTINGS)
    verdicts += results
    expected = jax.jit(soft)(X)
    # The second as another process would.
    for _ in range(2):
        fast = hloenv.jit(soft)
        assert_same((fast(X), fast(X)), 2 * (expected,))
        assert not verdicts
        assert [each.options for each in fast.decided] == [options] * bool(options)


@pytest.mark.parametrize(
    ("features", "flags", "expected"),
    [
        ("avx2 avx512f", "", ["_wider", "_level1"]),
        ("avx2 avx512f", "--xla_cpu_multi_thread_eigen=false", ["_wider", "_level1"]),
        ("avx2 avx512f", f"--{settings.WIDTH}=256", ["_level1"]),
        ("avx2 avx512f", f"--{settings.LEVEL}=2", ["_wider"]),
        ("avx2", "", ["_level1"]),
        ("asimd sve", "", ["_level1"]),
        ("", "", ["_level1"]),
    ],
)
def test_what_may_be_tried(monkeypatch, features, flags, expected):
    monkeypatch.setenv("XLA_FLAGS", flags)
    with_features(monkeypatch, features)
    for each in (repeated, scattered):
        assert list(settings.settings_for(from_jax(each, X))) == expected
    # The first level is for loops.
    expected = [each for each in expected if each != "_level1"]
    assert list(settings.settings_for(from_jax(soft, X))) == expected


def test_large_modules_are_not_compiled_once_more(monkeypatch):
    monkeypatch.setattr(settings, "_MAX_INSTRUCTIONS", 3)
    assert not list(settings.settings_for(from_jax(soft, X)))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("", ("", ())),
        ("plain_wider", ("plain", ("_wider",))),
        ("forms_library_wider_level1", ("forms_library", ("_wider", "_level1"))),
        ("forms of a/b c/d_level1", ("forms of a/b c/d", ("_level1",))),
        ("kernels", ("kernels", ())),
    ],
)
def test_names_say_which_there_are(name, expected):
    assert settings.split_name(name) == expected


def test_what_a_library_computes_gains_nothing(monkeypatch):
    def product(x, y):
        return jnp.tanh(x @ y)

    small, large = (
        settings.min_ns_of(from_jax(product, *2 * [jnp.ones((size, size))]))
        for size in (16, 1024)
    )
    # At 250 operations in a nanosecond and core, in 0.7 of a call.
    cores = this_machine().num_cores
    assert small == 50_000
    assert large == pytest.approx(2 * 1024**3 / (250 * cores) / 0.7)

    def fail(_):
        raise InvalidModuleError("it has no cost")

    monkeypatch.setattr(settings.HloGraph, "from_module", fail)
    assert settings.min_ns_of(from_jax(product, X, X)) == 50_000


def test_a_short_call_is_not_tried(verdicts, monkeypatch):
    monkeypatch.setattr(auto, "settings_for", lambda _: settings.SETTINGS)
    fast = hloenv.jit(jnp.tanh)
    assert_same(fast(X[:2]), jnp.tanh(X[:2]))
    assert not any(each.options for each in fast.considered)


def test_whatever_is_measured_outputs_are_those_of_the_function(monkeypatch):
    use(monkeypatch, *settings.SETTINGS)
    fast = hloenv.jit(soft, budget=0.05)
    for _ in range(3):
        assert_same(fast(X), jax.jit(soft)(X))


def test_what_a_call_gets_anew_is_said(wide):
    wide += [replace(FASTER, fresh_bytes=49 << 20)]
    fast = hloenv.jit(soft, remember=False)
    fast(X)
    assert "a call gets 49 MiB from the system anew: hloenv.keep_memory()" in (
        fast.explain()
    )


def test_comparisons_measure_what_a_call_gets_anew(run_child):
    """In a process that keeps nothing."""
    found = run_child(
        """
import jax.numpy as jnp
from hloenv.jax.compare import compare
for size in (1 << 10, 49 << 18):
    x = jnp.ones(size)
    print(compare(lambda: x * 2, lambda: x * 2, seconds=0.5).fresh_bytes >> 20)
"""
    )
    little, much = map(int, found.stdout.split())
    assert little == 0
    assert 45 <= much <= 53


def test_vectors_that_arc_tangents_are_wrong_in_are_not_tried(wide):
    """jaxlib mixes up the elements of vectors of 512 bits."""
    x = jnp.linspace(-4.0, 4.0, 999)
    fast = hloenv.jit(lambda x: jnp.arctan(x) + 1)
    fast(jnp.zeros(999))
    np.testing.assert_allclose(fast(x), np.arctan(np.asarray(x)) + 1, atol=1e-5)
    assert not any("vector_width" in each.options for each in fast.considered)


def test_such_vectors_are_refused():
    module = hloenv.HloModule.from_jax(jnp.arctan, X)
    for width in (256, 128):
        compiled = hloenv.compile(
            module, engine="jaxlib", options={settings.WIDTH: width}
        )
        np.testing.assert_allclose(compiled(X)[0], np.arctan(np.asarray(X)), rtol=1e-5)
    for width in (512, "512"):
        with pytest.raises(hloenv.CompileError, match="arc tangent"):
            hloenv.compile(module, engine="jaxlib", options={settings.WIDTH: width})


def test_equal_elements_do_not_hide_where_they_come_from(monkeypatch):
    monkeypatch.setattr(timed_call, "compare", lambda *_, **__: FASTER)
    plain = jax.jit(lambda x: x * 2)
    reverse = jax.jit(lambda x: x[::-1] * 2)
    for x in (jnp.zeros(40), np.ones(40, np.float32), jnp.full(40, np.float32(-3))):
        call = timed_call.TimedCall(plain, (x,), {}, donates=False, budget=1.0)
        for fn, has_values in ((plain, True), (reverse, False)):
            found = call.compare(fn, has_values=has_values, is_promising=False)
            assert found is FASTER
        found = call.compare(reverse, has_values=True, is_promising=False)
        assert "for other values" in found.reason
        assert not found.is_equal
