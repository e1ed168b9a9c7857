# SPDX-License-Identifier: Apache-2.0
"""What can be tuned, and what is refused."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hloenv
from hloenv.errors import ArgumentError, ArgumentTypeError
from hloenv.tune import api
from hloenv.tune.program import program_of_function, program_of_module

MODULE = """HloModule m
ENTRY e { p = f32[8] parameter(0)
  ROOT t = f32[8] tanh(p) }
"""


def test_a_module_from_within_the_pipeline_is_refused():
    with pytest.raises(ArgumentError, match="from before"):
        program_of_module(
            hloenv.run_until(hloenv.HloModule.from_text(MODULE), "fusion")
        )


X = jnp.ones(8)


def fails(x):
    raise KeyError("boo")


def random_each_time(x):
    return x + np.random.default_rng().normal()


def prints(x):
    jax.debug.print("{}", x)
    return x


def with_text(x, name):
    return x * len(name)


def fails_when_it_runs(x):
    return jax.pure_callback(lambda _: 1 / 0, x, x)


def counts(x, calls=[]):  # noqa: B006
    def host(x):
        calls.append(1)
        return x + len(calls)

    return jax.pure_callback(host, x, x)


@pytest.mark.jax
@pytest.mark.compile
@pytest.mark.parametrize(
    ("fn", "args", "reason"),
    [
        (fails, (X,), "KeyError"),
        (random_each_time, (X,), "another program each time"),
        (prints, (X,), "side effects"),
        (with_text, (X, "a"), "static_argnums"),
        (fails_when_it_runs, (X,), "fails with"),
        (counts, (X,), "different results"),
        (with_text, (), "TypeError"),
        (jax.jit(with_text), (X, "a"), "static_argnums"),
        (
            jax.jit(jnp.sin, compiler_options={"xla_cpu_enable_fast_math": True}),
            (X,),
            "compiler_options",
        ),
    ],
)
def test_functions_that_cannot_be_tuned_are_refused(fn, args, reason):
    with pytest.raises(ArgumentError, match=reason):
        hloenv.tune(fn, *args)


def tunes(x):
    hloenv.tune(jnp.sin, x)
    return x


def tunes_an_array(x):
    hloenv.tune(jnp.sin, np.ones(8, np.float32))
    return x


@pytest.mark.jax
@pytest.mark.parametrize("fn", [tunes, tunes_an_array])
@pytest.mark.parametrize("transform", [jax.jit, jax.vmap])
def test_a_function_is_tuned_outside_of_transformations(fn, transform):
    with pytest.raises(ArgumentError, match=r"call hloenv.tune outside .* with arrays"):
        transform(fn)(X)


@pytest.mark.jax
def test_a_shape_is_no_argument():
    shape = jax.ShapeDtypeStruct((8,), "float32")
    with pytest.raises(ArgumentError, match=r"ShapeDtypeStruct.*give arrays"):
        hloenv.tune(jnp.sin, shape)
    with pytest.raises(ArgumentError, match=r"ShapeDtypeStruct.*give arrays"):
        hloenv.tune(lambda a: a["x"], {"x": shape})


@pytest.mark.jax
def test_none_is_no_store_and_the_default_is_the_users(monkeypatch, tmp_path):
    stores = []

    class Seen:
        def __init__(self, *_, store, **__):
            stores.append(store)

        def run(self):
            return None

    monkeypatch.setattr(api, "Tuner", Seen)
    hloenv.tune(hloenv.HloModule.from_text(MODULE), store=None)
    assert not (tmp_path / "store.sqlite").exists()
    hloenv.tune(hloenv.HloModule.from_text(MODULE))
    assert stores[0] is None
    assert isinstance(stores[1], hloenv.Store)


@pytest.mark.jax
def test_static_arguments_that_are_given_by_name():
    # jax takes their positions from the names, too, which the call does not have.
    program = program_of_function(
        lambda x, n=3: x * n,
        (np.ones(8, np.float32),),
        {"n": 2},
        {"static_argnames": "n"},
    )
    assert [each.shape for each in program.inputs] == [(8,)]
    only = program_of_function(
        lambda *, x, n: x * n,
        (),
        {"x": np.ones(8, np.float32), "n": 2},
        {"static_argnames": ("n",)},
    )
    assert len(only.inputs) == 1
    inputs = hloenv.jax.example_inputs(
        lambda x, n=3: x * n, np.ones(8, np.float32), n=2, static_argnames="n"
    )
    assert len(inputs) == 1


@pytest.mark.jax
@pytest.mark.parametrize("target", [3, None, [1]])
def test_other_things_cannot_be_tuned(target):
    with pytest.raises(ArgumentError, match="a function or a module"):
        hloenv.tune(target)


@pytest.mark.jax
@pytest.mark.parametrize("options", [3, 0, {"seconds": 3}])
def test_other_options_are_refused(options):
    with pytest.raises(ArgumentTypeError, match="options must be hloenv"):
        hloenv.tune(with_text, X, options=options)


@pytest.mark.jax
@pytest.mark.compile
@pytest.mark.parametrize("is_jitted", [True, False])
def test_static_and_donated_arguments_are_found(is_jitted):
    options = {"static_argnames": "name", "donate_argnums": (0,)}
    fn = jax.jit(with_text, **options) if is_jitted else with_text
    x = jnp.arange(4.0)
    found = program_of_function(fn, (x, "abc"), {}, {} if is_jitted else options)
    assert found.donates
    assert not x.is_deleted()
    assert [each.tolist() for each in found.inputs] == [[0.0, 1.0, 2.0, 3.0]]


@pytest.mark.jax
def test_a_jitted_function_takes_no_options():
    with pytest.raises(ArgumentError, match="options are fixed"):
        hloenv.tune(jax.jit(prints), X, jit_options={"donate_argnums": 0})
