# SPDX-License-Identifier: Apache-2.0
"""What a decided function has in common with jax.jit's, beside its results."""

from __future__ import annotations

import dataclasses
import functools
import threading
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hloenv
from support.jit_functions import FASTER, SLOWER

pytestmark = [
    pytest.mark.jax,
    pytest.mark.compile,
    pytest.mark.usefixtures("own_folder"),
]

NUMBERS = jnp.asarray(np.random.default_rng(0).standard_normal(1000, np.float32))


def test_values_stay_where_the_function_places_them(run_child):
    run_child(
        """
import hloenv, jax, jax.numpy as jnp
one = jax.devices()[1]
there = jax.sharding.SingleDeviceSharding(one)
mesh = jax.sharding.Mesh([one], "a")
spread = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())
numbers = jnp.arange(1000.0)
for place in (
    lambda x: jax.lax.with_sharding_constraint(x, there),
    lambda x: jax.device_put(x, spread),
):
    fast = hloenv.jit(lambda x: place(jnp.argsort(x)), budget=0)
    for _ in range(2):
        result, wanted = fast(numbers), jax.jit(lambda x: place(jnp.argsort(x)))(numbers)
        assert result.sharding == wanted.sharding, (result.sharding, wanted.sharding)
        assert result.committed == wanted.committed
    assert "places values" in fast.explain()
""",
        env={"XLA_FLAGS": "--xla_force_host_platform_device_count=2"},
    )


def test_cleared_caches_are_traced_again(verdicts):
    verdicts += [FASTER] * 2
    scale = 1.0
    fast = hloenv.jit(lambda x: jnp.argsort(x * scale))
    first = fast(NUMBERS)
    assert len(fast.decided) == 1
    scale = -1.0
    assert (fast(NUMBERS) == first).all()
    jax.clear_caches()
    np.testing.assert_array_equal(fast(NUMBERS), jnp.argsort(-NUMBERS))


def test_leaks_are_looked_for(verdicts):
    """Then jax caches no traces."""
    verdicts += [FASTER]
    with jax.checking_leaks():
        fast = hloenv.jit(jnp.argsort)
        for _ in range(3):
            np.testing.assert_array_equal(fast(NUMBERS), jnp.argsort(NUMBERS))
    assert len(fast.decided) == 1


def test_static_arguments_that_are_pytrees(verdicts):
    @functools.partial(
        jax.tree_util.register_dataclass,
        data_fields=[],
        meta_fields=["name"],
        drop_fields=["scale"],
    )
    @dataclasses.dataclass(frozen=True)
    class Settings:
        name: str
        scale: int = 1

    def ranked(x, settings):
        return jnp.argsort(x * settings.scale)

    verdicts += [FASTER] * 4
    for options in ({"static_argnums": 1}, {"static_argnames": "settings"}):
        fast = hloenv.jit(ranked, remember=False, **options)
        for scale in (1, -1):
            settings = Settings("same", scale)
            np.testing.assert_array_equal(
                fast(NUMBERS, settings), jnp.argsort(scale * NUMBERS)
            )
    assert verdicts == []


@pytest.mark.timeout(120)
def test_the_function_may_wait_for_other_threads(verdicts):
    """Nothing of hloenv's is locked while the user's function is traced."""
    lock, is_tracing = threading.Lock(), threading.Event()

    def ranked(x):
        if x.shape[0] == 900:
            is_tracing.set()
            time.sleep(0.3)
            with lock:  # such as for a table that is made on first use
                pass
        return jnp.argsort(x)

    verdicts += [FASTER] * 3
    fast = hloenv.jit(ranked, remember=False)
    fast(NUMBERS)

    def with_lock():
        is_tracing.wait()
        with lock:
            fast(NUMBERS[:800])

    threads = [
        threading.Thread(target=lambda: fast(NUMBERS[:900]), daemon=True),
        threading.Thread(target=with_lock, daemon=True),
    ]
    for each in threads:
        each.start()
    for each in threads:
        each.join(50)
    assert not any(each.is_alive() for each in threads)


@pytest.mark.timeout(120)
def test_threads_do_not_wait_for_each_other(verdicts, monkeypatch):
    """One traces a signature that is plain while another shares what is compiled."""
    verdicts += [SLOWER, FASTER]
    fast = hloenv.jit(lambda x: jnp.argsort(x), remember=False)
    fast(NUMBERS[:800])
    is_sharing = threading.Event()
    share = fast._decider.shared.share_plain

    def slowly(function):
        is_sharing.set()
        time.sleep(0.5)
        share(function)

    monkeypatch.setattr(fast._decider.shared, "share_plain", slowly)

    def call_plain():
        is_sharing.wait()
        fast(NUMBERS[:800])

    threads = [
        threading.Thread(target=lambda: fast(NUMBERS), daemon=True),
        threading.Thread(target=call_plain, daemon=True),
    ]
    for each in threads:
        each.start()
    for each in threads:
        each.join(50)
    assert not any(each.is_alive() for each in threads)
    assert len(fast.decided) == 1


def test_not_a_number_is_found(verdicts):
    verdicts += [FASTER, SLOWER]
    fast = hloenv.jit(lambda s: jnp.cumsum(jnp.full(1000, jnp.log(s))))
    fast(1.0)
    assert len(fast.decided) == 1
    with jax.debug_nans(True), pytest.raises(FloatingPointError):
        fast(-1.0)


def test_attributes_of_callable_objects_do_not_matter(verdicts):
    class Model:
        def __init__(self):
            for name in ("_signature", "_traced", "warn", "explain", "mine"):
                setattr(self, name, "an attribute of the user's")

        def __call__(self, x):
            return jnp.argsort(x)

    verdicts += [FASTER]
    fast = hloenv.jit(Model())
    np.testing.assert_array_equal(fast(NUMBERS), jnp.argsort(NUMBERS))
    assert "sort-forms" in fast.explain()
    assert fast.mine == "an attribute of the user's"


@pytest.mark.parametrize("outputs", ["jax", "numpy"])
def test_what_jax_does_not_take(outputs):
    def generated(x):
        yield x

    for fn in (generated, staticmethod(lambda x: x)):
        with pytest.raises(TypeError):
            jax.jit(fn)
        with pytest.raises(TypeError):
            hloenv.jit(fn, outputs=outputs)


def test_names_of_partial_functions():
    descending = functools.partial(jnp.argsort, descending=True)
    assert hloenv.jit(descending).__name__ == "argsort"
    assert hloenv.jit(descending, outputs="numpy").__name__ == "argsort"


class TestNumpyOutputs:
    """outputs="numpy" follows jax's settings."""

    def test_nothing_is_compiled_where_jit_is_disabled(self):
        traced = []

        def double(x):
            traced.append(isinstance(x, jax.core.Tracer))
            return x * 2

        fast = hloenv.jit(double, outputs="numpy")
        with jax.disable_jit():
            result = fast(np.ones(3, np.float32))
        assert type(result) is np.ndarray
        assert traced == [False]

    def test_not_a_number_is_found(self):
        fast = hloenv.jit(jnp.log, outputs="numpy")
        assert np.isnan(fast(np.float32(-1)))
        with jax.debug_nans(True), pytest.raises(FloatingPointError):
            fast(np.float32(-1))

    def test_float0_is_an_error(self):
        gradient = jax.grad(lambda x, n: x * n, (0, 1), allow_int=True)
        with pytest.raises(hloenv.errors.ArgumentError, match="float0"):
            hloenv.jit(gradient, outputs="numpy")(np.float32(1), np.int32(2))

    def test_its_cache_can_be_cleared(self):
        scale = 2

        fast = hloenv.jit(lambda x: x * scale, outputs="numpy")
        assert fast(np.float32(1)) == 2
        scale = 3
        fast.clear_cache()
        assert fast(np.float32(1)) == 3


@pytest.mark.parametrize("shape", [(256, 100), (100, 90, 5)])
@pytest.mark.parametrize("axis", [0, 1])
def test_not_a_number_is_an_extreme_beside_its_index(shape, axis):
    """XLA's maximum alone may lose it; in one kernel with the index it does not."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal(shape).astype(np.float32)
    hard = np.where(rng.random(shape) < 0.01, np.float32(np.nan), x)
    zeros = -np.zeros(shape, np.float32)

    def fn(x):
        best = x.max(axis) * 2 + 1
        return best, jnp.argmax(x, axis), x.min(axis), jnp.argmin(x, axis)

    fast, plain = hloenv.jit(fn, budget=0, remember=False), jax.jit(fn)
    fast(x)
    assert len(fast.decided) == 1
    assert fast.decided[0].accepted["reduce-forms/packed_index"] == 2
    for numbers in (x, hard, zeros):
        for wanted, found in zip(plain(numbers), fast(numbers), strict=True):
            np.testing.assert_array_equal(found, wanted)


def test_functions_of_python_are_called_as_often_as_by_jax():
    count = []

    def add(x):
        count.append(1)
        return np.asarray(x) + 1

    @hloenv.jit(remember=False)
    def fast(x):
        y = jnp.cumsum(jnp.sin(x @ x), 0)
        return jax.pure_callback(add, jax.ShapeDtypeStruct((), y.dtype), y.sum())

    x = np.full((300, 300), 0.01, np.float32)
    for _ in range(3):
        jax.block_until_ready(fast(x))
    assert len(count) == 3
    assert "calls Python" in fast.explain()


def test_the_version_in_use_is_explained_first(verdicts):
    verdicts += [SLOWER, FASTER, *12 * [SLOWER]]
    fast = hloenv.jit(lambda x: (jnp.argsort(x), x.max(), jnp.argmax(x)))
    fast(NUMBERS)
    lines = [each for each in fast.explain().splitlines() if not each.startswith(" ")]
    assert ": decided" in lines[0]
    assert all(": not used" in each for each in lines[1:])


def test_rules_that_gain_more_than_what_was_tuned():
    from hloenv.jax.artefact import ModuleId, Recipe, Tuned
    from hloenv.jax.kept import is_faster
    from hloenv.jax.verdicts import Verdict

    module = hloenv.HloModule.from_jax(jnp.sin, NUMBERS)
    tuned = Tuned(
        "f",
        ModuleId.of(module),
        Recipe(options={"xla_cpu_prefer_vector_width": 512}),
        label="x",
        speedup=1.5,
    )
    assert is_faster(Verdict("forms", speedup=1.6), tuned)
    assert not is_faster(Verdict("forms", speedup=1.51), tuned)
    assert not is_faster(Verdict("", "nothing is faster"), tuned)
    assert not is_faster(Verdict("forms"), tuned)
    assert not is_faster(None, tuned)
