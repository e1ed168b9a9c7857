# SPDX-License-Identifier: Apache-2.0
"""hloenv.jit by hloenv's rules: other forms of operations, loops as one kernel."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import functools
import gc
import json
import os
import warnings
import weakref

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hloenv
from hloenv.errors import ArgumentError
from hloenv.jax import FallbackWarning, attempts, decider
from hloenv.jax import verdicts as kept_verdicts
from hloenv.jax.compare import Comparison
from hloenv.jax.facts import key_of_lowered
from hloenv.measurement.store import default_path
from support import jax_outputs

assert_same = functools.partial(jax_outputs.assert_same, tolerance=1e-4)

pytestmark = [pytest.mark.jax, pytest.mark.compile]

FASTER = Comparison(speedup=2.0, interval=(1.9, 2.1))
SLOWER = Comparison(speedup=0.5, interval=(0.4, 0.6), reason="it is slower")


def normal(*shape, seed=0):
    # Not by jax.random, which compiles for each shape.
    return jnp.asarray(np.random.default_rng(seed).standard_normal(shape, np.float32))


def depthwise(kernel, x):
    return jax.lax.conv_general_dilated(
        x,
        kernel,
        (1, 1),
        "SAME",
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
        feature_group_count=x.shape[-1],
    )


KERNEL, IMAGE = normal(3, 3, 1, 32), normal(1, 28, 28, 32, seed=1)


def filtered(a, noises):
    def step(p, noise):
        p = a @ p @ a.T + noise
        return p - jnp.outer(p[:, 0], p[0]) / (p[0, 0] + 1), p[0, 0]

    return jax.lax.scan(step, jnp.eye(3), noises)[1].sum()


MATRIX, NOISES = jnp.eye(3) * 0.9 + 0.01, jnp.ones((500, 3, 3)) * 0.01


@pytest.fixture(autouse=True)
def _own_folder(tmp_path, monkeypatch):
    """Nothing is found that another test has left; fallbacks are errors."""
    monkeypatch.setenv("HLOENV_STORE", str(tmp_path / "store.sqlite"))
    with warnings.catch_warnings():
        warnings.simplefilter("error", FallbackWarning)
        yield


@pytest.fixture
def verdicts(monkeypatch):
    """Replaces the timing by given results; outputs are still computed."""
    found: list[Comparison] = []

    def decided_by_test(plain, other, *, seconds):
        for one, other_one in zip(
            jax.tree.leaves(plain()), jax.tree.leaves(other()), strict=True
        ):
            assert one.dtype == other_one.dtype
        return found.pop(0)

    monkeypatch.setattr(decider, "compare", decided_by_test)
    return found


def test_a_depthwise_convolution_takes_another_form():
    fast = hloenv.jit(depthwise)
    for _ in range(2):
        assert_same(fast(KERNEL, IMAGE), jax.jit(depthwise)(KERNEL, IMAGE))
    (one,) = fast.decided
    assert one.route == "stablehlo"
    assert sum(one.accepted.values()) == 1
    assert one.interval[0] > 1.02
    assert "on the module as jax lowers it: 1 of " in fast.explain()
    assert "float32[3,3,1,32]" in fast.explain()


def test_a_small_loop_becomes_one_kernel():
    fast = hloenv.jit(jax.grad(filtered))
    for _ in range(2):
        assert_same(fast(MATRIX, NOISES), jax.jit(jax.grad(filtered))(MATRIX, NOISES))
    (one,) = fast.decided
    assert one.route == "jaxlib"
    assert one.num_accepted >= 1
    assert "the module that jaxlib has optimized" in fast.explain()


def test_both_at_once(verdicts):
    def both(kernel, x, matrix, noises):
        return depthwise(kernel, x), jax.grad(filtered)(matrix, noises)

    verdicts += [FASTER, SLOWER]
    fast = hloenv.jit(both)
    args = KERNEL, IMAGE, MATRIX, NOISES
    for _ in range(2):
        assert_same(fast(*args), jax.jit(both)(*args))
    (one,) = fast.decided
    assert one.then is not None
    assert (one.route, one.then.route) == ("stablehlo", "jaxlib")
    assert verdicts == []


def test_plain_where_no_rule_applies():
    fast = hloenv.jit(lambda x: jnp.tanh(x @ x))
    fast(normal(64, 64))
    assert fast.decided == []
    assert "no rule applies" in fast.explain()


def test_a_slower_version_is_not_used(verdicts):
    verdicts += [SLOWER]
    fast = hloenv.jit(depthwise)
    for _ in range(2):
        assert_same(fast(KERNEL, IMAGE), jax.jit(depthwise)(KERNEL, IMAGE))
    assert [each.is_used for each in fast.considered] == [False]
    assert "it is slower" in fast.explain()


def test_transformations_of_a_decided_function(verdicts):
    verdicts += [FASTER]
    fast, plain = hloenv.jit(depthwise), jax.jit(depthwise)
    fast(KERNEL, IMAGE)
    assert len(fast.decided) == 1

    def loss(fn):
        return lambda kernel, x: (fn(kernel, x) ** 2).sum()

    images = jnp.stack([IMAGE, 2 * IMAGE])
    for transform in (
        lambda fn: jax.grad(loss(fn), (0, 1))(KERNEL, IMAGE),
        lambda fn: jax.jit(jax.value_and_grad(loss(fn)))(KERNEL, IMAGE),
        lambda fn: jax.vmap(fn, (None, 0))(KERNEL, images),
        lambda fn: jax.vmap(jax.grad(loss(fn)), (None, 0))(KERNEL, images),
        lambda fn: jax.grad(lambda k: jax.vmap(loss(fn), (None, 0))(k, images).sum())(
            KERNEL
        ),
        lambda fn: jax.jvp(fn, (KERNEL, IMAGE), (KERNEL, IMAGE)),
        lambda fn: jax.jit(lambda k, x: fn(k, fn(k, x)))(KERNEL, IMAGE),
        lambda fn: jax.lax.scan(
            lambda x, _: (fn(KERNEL, x) / 9, None), IMAGE, None, length=3
        )[0],
        lambda fn: jax.checkpoint(lambda k: fn(k, IMAGE))(KERNEL),
        lambda fn: jax.linear_transpose(lambda x: fn(KERNEL, x), IMAGE)(IMAGE),
    ):
        for one, other in zip(
            jax.tree.leaves(transform(fast)),
            jax.tree.leaves(transform(plain)),
            strict=True,
        ):
            np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-2)
    # Inside another function it is the plain one: decide the outer function.
    text = jax.jit(lambda k, x: fast(k, x)).lower(KERNEL, IMAGE).as_text()
    assert "stablehlo.convolution" in text
    assert_same(fast(KERNEL, IMAGE), plain(KERNEL, IMAGE))


def test_arguments_and_results_of_all_kinds(verdicts):
    """Static arguments, unused ones, keys, weak types, numbers, pytrees."""

    def fn(key, params, scale, mode, *, times):
        noise = jax.random.normal(key, params["x"].shape)
        y = depthwise(params["kernel"], params["x"] + 0.01 * noise)
        return {"y": y * scale, "key": jax.random.split(key)[0], "scale": scale}, (
            y if mode == "all" else times
        )

    verdicts += [FASTER] * 3
    fast = hloenv.jit(fn, static_argnums=3, static_argnames="times")
    plain = jax.jit(fn, static_argnums=3, static_argnames="times")
    params = {"kernel": KERNEL, "unused": np.ones(3), "x": IMAGE}
    for mode, times, scale in (
        ("all", 2, 2.0),
        ("one", 3, 2.0),
        ("all", 2, jnp.float32(2)),
        ("all", 2, 2.0),
    ):
        ours, ours_key = _without_key(
            fast(jax.random.key(3), params, scale, mode, times=times)
        )
        theirs, theirs_key = _without_key(
            plain(jax.random.key(3), params, scale, mode, times=times)
        )
        assert_same(ours, theirs)
        assert ours_key == theirs_key
    assert len(fast.decided) == 3, fast.explain()


def _without_key(result):
    first, second = result
    key = first.pop("key")
    return (first, second), key


def test_donations_are_kept(verdicts):
    verdicts += [FASTER]

    def step(kernel, x):
        return kernel - 0.1 * jax.grad(lambda k: (depthwise(k, x) ** 2).mean())(kernel)

    fast = hloenv.jit(step, donate_argnums=0)
    kernel = KERNEL.copy()
    result = fast(kernel, IMAGE)
    assert kernel.is_deleted()
    (one,) = fast.decided
    assert one.route == "stablehlo"
    assert_same(result, jax.jit(step)(KERNEL, IMAGE))
    again = fast(result, IMAGE)
    assert result.is_deleted()
    assert again.shape == kernel.shape


def test_donations_are_timed_on_copies():
    fast = hloenv.jit(depthwise, donate_argnums=1, budget=0.5)
    image = IMAGE.copy()
    expected = jax.jit(depthwise)(KERNEL, IMAGE)
    assert_same(fast(KERNEL, image), expected)
    (one,) = fast.decided
    assert one.speedup > 1.02
    assert image.is_deleted()


def test_without_a_budget_nothing_is_timed(monkeypatch):
    monkeypatch.setattr(decider, "compare", None)
    fast = hloenv.jit(depthwise, budget=0)
    assert_same(fast(KERNEL, IMAGE), jax.jit(depthwise)(KERNEL, IMAGE))
    (one,) = fast.decided
    assert one.speedup is None


def test_another_process_starts_with_what_was_found(verdicts, monkeypatch):
    verdicts += [FASTER]
    first = hloenv.jit(depthwise)
    first(KERNEL, IMAGE)
    # Another function object, as in another process; timing would be an error.
    monkeypatch.setattr(decider, "compare", None)
    second = hloenv.jit(depthwise)
    assert_same(second(KERNEL, IMAGE), jax.jit(depthwise)(KERNEL, IMAGE))
    (one,) = second.decided
    assert (one.speedup, one.interval) == (FASTER.speedup, FASTER.interval)
    assert second._plain._cache_size() == 0


def test_plain_is_remembered_too(verdicts, monkeypatch):
    verdicts += [SLOWER]
    hloenv.jit(depthwise)(KERNEL, IMAGE)
    monkeypatch.setattr(decider, "compare", None)
    second = hloenv.jit(depthwise)
    second(KERNEL, IMAGE)
    assert second.decided == []
    assert "it is slower (found on 20" in second.explain()


def test_plain_is_compared_again_after_a_week(verdicts, monkeypatch):
    verdicts += [SLOWER, FASTER]
    hloenv.jit(depthwise)(KERNEL, IMAGE)
    today = datetime.date.fromisoformat(kept_verdicts.today())
    for days, count in ((6, 1), (9, 0)):
        date = (today - datetime.timedelta(days)).isoformat()
        (path,) = (default_path().parent / "jit").glob("*.json")
        key, fields = path.stem, json.loads(path.read_text())["verdict"]
        monkeypatch.setattr(kept_verdicts, "today", lambda date=date: date)
        kept_verdicts.remember(key, kept_verdicts.Verdict("", fields["reason"]))
        again = hloenv.jit(depthwise)
        again(KERNEL, IMAGE)
        assert len(verdicts) == count
    assert len(again.decided) == 1


def test_plain_is_not_kept_where_loops_depend_on_values(verdicts):
    def repeated(kernel, x, count):
        step = lambda _, y: depthwise(kernel, y)  # noqa: E731
        return jax.lax.fori_loop(0, count, step, x)

    verdicts += [SLOWER, FASTER]
    args = KERNEL, IMAGE
    hloenv.jit(repeated)(*args, 0)
    again = hloenv.jit(repeated)
    again(*args, 3)
    assert len(again.decided) == 1
    assert verdicts == []


def test_options_of_the_compiler_are_part_of_what_is_kept(verdicts):
    verdicts += [SLOWER, FASTER]
    hloenv.jit(depthwise)(KERNEL, IMAGE)
    with _setting("jax_optimization_level", "O1"):
        again = hloenv.jit(depthwise)
        again(KERNEL, IMAGE)
    assert len(again.decided) == 1


def _another_machine(patch):
    here = kept_verdicts.this_machine()
    patch.setattr(
        kept_verdicts, "this_machine", lambda: dataclasses.replace(here, cpu="another")
    )


@pytest.mark.parametrize(
    "change",
    [
        _another_machine,
        lambda patch: patch.setattr(kept_verdicts, "__version__", "0.0.0"),
        lambda patch: patch.setattr(jax, "__version__", "0.0.0"),
        lambda patch: patch.setattr(jax.lib, "__version__", "0.0.0"),
        lambda patch: patch.setattr(kept_verdicts, "sources", lambda: "others"),
        lambda patch: patch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2, 3}),
    ],
    ids=["machine", "hloenv", "jax", "jaxlib", "sources", "cores"],
)
def test_what_another_machine_or_version_found_does_not_count(
    change, verdicts, monkeypatch
):
    verdicts += [SLOWER, FASTER, FASTER]
    hloenv.jit(depthwise)(KERNEL, IMAGE)
    with monkeypatch.context() as patch:
        change(patch)
        other = hloenv.jit(depthwise)
        other(KERNEL, IMAGE)
    assert len(other.decided) == 1
    again = hloenv.jit(depthwise)
    again(KERNEL, IMAGE)  # what was found here is still kept
    assert again.decided == []
    assert verdicts == [FASTER]


@contextlib.contextmanager
def _setting(name, value):
    before = getattr(jax.config, name)
    jax.config.update(name, value)
    yield
    jax.config.update(name, before)


def test_remember_is_an_option(verdicts):
    verdicts += [FASTER, FASTER]
    for _ in range(2):
        hloenv.jit(depthwise, remember=False)(KERNEL, IMAGE)
    assert verdicts == []
    assert not (default_path().parent / "jit").exists()


def test_where_all_rules_lose_those_that_gain_alone_are_taken(verdicts, monkeypatch):
    def three(kernel, x, matrices, scores):
        products = matrices @ matrices.swapaxes(1, 2)
        return depthwise(kernel, x), products, scores.argmax(-1)

    args = KERNEL, IMAGE, normal(256, 3, 3), normal(64, 1000)
    best = Comparison(speedup=3.0, interval=(2.9, 3.1))
    # All; each alone; the two that are faster alone, together.
    verdicts += [SLOWER, FASTER, SLOWER, FASTER, best]
    first = hloenv.jit(three)
    first(*args)
    assert verdicts == []
    (one,) = first.decided
    assert (one.num_accepted, one.speedup) == (2, 3.0)
    assert_same(first(*args), jax.jit(three)(*args))

    monkeypatch.setattr(decider, "compare", None)
    second = hloenv.jit(three)
    assert_same(second(*args), jax.jit(three)(*args))
    (again,) = second.decided
    assert (again.accepted, again.speedup) == (one.accepted, 3.0)


def test_where_all_rules_lose_kernels_alone_are_tried(verdicts):
    def both(kernel, x, matrix, noises):
        return depthwise(kernel, x), jax.grad(filtered)(matrix, noises)

    args = KERNEL, IMAGE, MATRIX, NOISES
    verdicts += [SLOWER, SLOWER, FASTER]
    fast = hloenv.jit(both)
    fast(*args)
    assert verdicts == []
    assert [each.route for each in fast.decided] == ["jaxlib"]


def test_expanded_scatters_get_their_copies(verdicts):
    """On jaxlib's module, which has its own copies already."""

    def fn(x, w):
        index = jnp.array([1, 3, 3])
        return jax.lax.fori_loop(
            0, 400, lambda i, c: (c * 0.9).at[index].add(w[:3] * c[i % 4]), x
        )

    verdicts += [FASTER]
    x, w = 0.3 * normal(8, 8), 0.3 * normal(8, 8, seed=1)
    fast = hloenv.jit(fn)
    for _ in range(2):
        assert_same(fast(x, w), jax.jit(fn)(x, w))
    (one,) = fast.decided
    assert one.accepted == {"single-kernel/loop_plain_scatters": 1}


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text.replace('"forms"', '"other"'),
        lambda text: text.replace("2.0", "9.0"),
        lambda text: text[: len(text) // 2],
        lambda _: "[]",
        lambda _: json.dumps({"verdict": {}, "checksum": "0"}),
        lambda _: "",
    ],
)
def test_a_damaged_file_counts_as_absent(verdicts, damage):
    verdicts += [FASTER, FASTER]
    hloenv.jit(depthwise)(KERNEL, IMAGE)
    (path,) = (default_path().parent / "jit").glob("*.json")
    path.write_text(damage(path.read_text()))
    second = hloenv.jit(depthwise)
    second(KERNEL, IMAGE)
    assert len(second.decided) == 1
    assert verdicts == []


def test_a_folder_that_cannot_be_written_keeps_nothing(verdicts, tmp_path):
    verdicts += [FASTER, FASTER]
    for name in ("jit", "modules"):
        (tmp_path / name).write_text("a file in the place of the folder")
    for _ in range(2):
        fast = hloenv.jit(depthwise)
        fast(KERNEL, IMAGE)
        assert len(fast.decided) == 1
    assert sorted(each.name for each in tmp_path.iterdir()) == ["jit", "modules"]


def test_where_plain_is_known_to_be_best_the_module_is_not_converted(
    verdicts, monkeypatch
):
    verdicts += [SLOWER]
    hloenv.jit(depthwise)(KERNEL, IMAGE)
    monkeypatch.setattr(attempts, "from_lowered", None)
    again = hloenv.jit(depthwise)
    again(KERNEL, IMAGE)
    assert "it is slower (found on 20" in again.explain()
    assert again.considered[0].module.name == "not_kept"


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text.replace("false", "true"),
        lambda text: text[: len(text) // 2],
        lambda _: '{"facts": [], "checksum": "0"}',
        lambda _: "",
    ],
)
def test_damaged_facts_count_as_absent(verdicts, damage):
    verdicts += [SLOWER]
    hloenv.jit(depthwise)(KERNEL, IMAGE)
    (path,) = (default_path().parent / "modules").glob("*.json")
    whole = path.read_text()
    path.write_text(damage(whole))
    again = hloenv.jit(depthwise)
    again(KERNEL, IMAGE)
    assert "it is slower (found on 20" in again.explain()
    assert path.read_text() == whole


def test_what_jax_lowers_is_identified_without_its_source_lines():
    def other(kernel, x):
        return 2 * depthwise(kernel, x)

    def key(fn, *args):
        return key_of_lowered(jax.jit(fn).lower(*args))

    here = key(lambda x: jnp.sin(x) + 1, IMAGE)
    assert here == key(lambda x: jnp.sin(x) + 1, IMAGE)
    assert here != key(lambda x: jnp.sin(x) + 2, IMAGE)
    assert here != key(lambda x: jnp.sin(x) + 1, KERNEL)
    assert key(depthwise, KERNEL, IMAGE) != key(other, KERNEL, IMAGE)


def test_functions_that_call_python_stay_plain():
    def fn(kernel, x):
        y = depthwise(kernel, x)
        total = jax.pure_callback(
            lambda v: np.float32(v.sum()), jax.ShapeDtypeStruct((), np.float32), y
        )
        return y, total

    fast = hloenv.jit(fn)
    y, total = fast(KERNEL, IMAGE)
    np.testing.assert_allclose(total, y.sum(), rtol=1e-3)
    assert fast.decided == []
    assert "calls Python" in fast.explain()


def test_static_arguments_of_equal_value_and_other_type(verdicts):
    def fn(kernel, x, mode):
        return depthwise(kernel, x) * (1 if mode is True else 5)

    verdicts += [FASTER] * 3
    fast = hloenv.jit(fn, static_argnums=2)
    for mode in (True, 1, 1.0, True):
        expected = jax.jit(fn, static_argnums=2)(KERNEL, IMAGE, mode)
        assert_same(fast(KERNEL, IMAGE, mode), expected)
    assert len(fast.decided) == 3


def test_settings_of_jax_are_part_of_the_signature(verdicts):
    def fn(kernel, x):
        return depthwise(kernel, x), jnp.zeros(3).astype(float)

    verdicts += [FASTER] * 2
    fast = hloenv.jit(fn)
    fast(KERNEL, IMAGE)
    with jax.enable_x64(True):
        assert_same(fast(KERNEL, IMAGE), jax.jit(fn)(KERNEL, IMAGE))
        assert fast(KERNEL, IMAGE)[1].dtype == np.float64
    assert fast(KERNEL, IMAGE)[1].dtype == np.float32


def test_donation_is_part_of_what_is_kept(verdicts):
    """A function that donates is not decided in the same way."""
    verdicts += [FASTER]
    gradient = jax.grad(filtered)
    donating = hloenv.jit(lambda a, n: gradient(a, n), donate_argnums=0)
    donating(MATRIX.copy(), NOISES)
    assert donating.decided == []
    fast = hloenv.jit(lambda a, n: gradient(a, n))
    fast(MATRIX, NOISES)
    assert len(fast.decided) == 1


def test_a_slow_function_is_not_compared_beyond_the_budget(monkeypatch):
    calls = []

    def slow(plain, seconds, running):
        calls.append(seconds)
        return "a comparison takes longer than the budget"

    monkeypatch.setattr(decider, "exceeds", slow)
    monkeypatch.setattr(decider, "compare", None)
    fast = hloenv.jit(depthwise, budget=0.001)
    assert_same(fast(KERNEL, IMAGE), jax.jit(depthwise)(KERNEL, IMAGE))
    assert fast.decided == []
    assert "longer than the budget" in fast.explain()
    assert calls == [0.001]


def test_a_function_that_is_gone_leaves_no_arrays(verdicts):
    verdicts += [FASTER]

    def use():
        constant = jnp.full((1, 28, 28, 32), 3.0)
        reference = weakref.ref(constant)
        fast = hloenv.jit(lambda k, x: depthwise(k, x) + constant)
        fast(KERNEL, IMAGE)
        assert len(fast.decided) == 1
        return reference

    reference = use()
    gc.collect()
    assert reference() is None


def test_without_a_home_folder(run_child):
    run_child(
        """
import hloenv, jax.numpy as jnp
assert hloenv.jit(lambda x: x * 2)(jnp.ones(2)).sum() == 4
""",
        env={"HLOENV_STORE": "~no-such-user/store.sqlite"},
    )


def test_auto_has_its_own_passes():
    with pytest.raises(ArgumentError, match="policy='auto' decides its own passes"):
        hloenv.jit(depthwise, passes="algsimp")
