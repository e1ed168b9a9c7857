# SPDX-License-Identifier: Apache-2.0
"""Executables of hloenv inside jax, and functions without jax."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hloenv
from hloenv.errors import ArgumentError, ArgumentTypeError, CompileError
from hloenv.jax import call_executable
from support import jax_outputs
from support.threads import in_threads

assert_same = functools.partial(jax_outputs.assert_same, tolerance=1e-5)

pytestmark = [pytest.mark.jax, pytest.mark.compile]


def step(params, batch, *, scale=1.0):
    """Uses none of batch["unused"]."""
    hidden = jnp.tanh(batch["x"] @ params["w"] + params["b"])
    return {"loss": (hidden**2).mean() * scale, "hidden": hidden}


PARAMS = {"w": np.full((3, 4), 0.1, np.float32), "b": np.ones(4, np.float32)}
BATCH = {"x": np.arange(6, dtype=np.float32).reshape(2, 3), "unused": np.ones(5)}


@pytest.fixture
def saved(tmp_path):
    """A decided module in a file."""
    env = hloenv.HloEnv(hloenv.HloModule.from_jax(step, PARAMS, BATCH))
    env.run_until("simplification")
    alternatives = env.get_alternatives("algsimp")
    env.apply_alternatives(alternatives.decisions_for("algsimp"))
    path = tmp_path / "decided.hlo"
    env.module.save(path)
    return path


def test_a_saved_module_takes_the_pytrees_of_its_function(saved):
    loaded = hloenv.load(saved, step)
    assert_same(loaded(PARAMS, BATCH), step(PARAMS, BATCH))
    assert "hloenv_run" in loaded.lower(PARAMS, BATCH).as_text()


def test_a_saved_module_takes_flat_arrays_without_a_function(saved):
    loaded = hloenv.load(saved)
    outputs = loaded(PARAMS["b"], PARAMS["w"], BATCH["x"])
    expected = jax.tree.leaves(step(PARAMS, BATCH))
    assert isinstance(outputs, tuple)
    for one, other in zip(outputs, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5)


def test_static_arguments_are_those_of_the_function(saved):
    loaded = hloenv.load(saved, step, static_argnames="scale")
    assert_same(loaded(PARAMS, BATCH, scale=1.0), step(PARAMS, BATCH))


def test_it_runs_inside_other_functions_of_jax(saved):
    loaded = hloenv.load(saved, step)

    def outer(run):
        def body(total, x):
            result = run(PARAMS, {**BATCH, "x": x})
            return total + result["loss"], result["hidden"]

        return lambda xs: jax.lax.scan(body, 0.0, xs)

    xs = np.stack([BATCH["x"], 2 * BATCH["x"], -BATCH["x"]])
    assert_same(jax.jit(outer(loaded))(xs), outer(step)(xs))

    def each(run):
        return jax.vmap(lambda x: run(PARAMS, {**BATCH, "x": x})["loss"])

    assert_same(each(loaded)(xs), each(step)(xs))


def test_jaxlib_compiles_it_as_a_part_of_the_function(tmp_path):
    env = hloenv.HloEnv(hloenv.HloModule.from_jax(step, PARAMS, BATCH))
    alternatives = env.get_alternatives("dot-forms")
    assert len(alternatives) > 0
    env.apply_alternatives([1] * len(alternatives), alternatives)
    path = tmp_path / "decided.hlo"
    env.module.save(path)
    loaded = hloenv.load(path, step, engine="jaxlib")
    assert loaded.executable is None
    text = loaded.lower(PARAMS, BATCH).as_text()
    assert "dot_general" not in text
    assert "hloenv_run" not in text
    assert_same(loaded(PARAMS, BATCH), step(PARAMS, BATCH))
    outer = jax.jit(lambda x: loaded(PARAMS, {**BATCH, "x": 2 * x})["loss"])
    assert_same(outer(BATCH["x"]), step(PARAMS, {**BATCH, "x": 2 * BATCH["x"]})["loss"])


def test_jaxlib_takes_no_module_from_within_the_pipeline(saved):
    with pytest.raises(CompileError, match="use engine='wheel'"):
        hloenv.load(saved, step, engine="jaxlib")
    with pytest.raises(ArgumentError, match="engine must be one of"):
        hloenv.load(saved, step, engine="gpu")


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        ({**BATCH, "x": np.ones((5, 3), np.float32)}, r"argument 2.*float32\[2,3\]"),
        ({**BATCH, "x": np.ones((2, 3), np.int32)}, r"argument 2.*int32\[2,3\]"),
    ],
)
def test_other_types_are_errors(saved, batch, message):
    with pytest.raises(ArgumentError, match=message):
        hloenv.load(saved, step)(PARAMS, batch)


def test_other_functions_are_errors(saved):
    with pytest.raises(ArgumentError, match="3 arguments, but the function has 1"):
        hloenv.load(saved, lambda x: x)(PARAMS["b"])
    with pytest.raises(ArgumentError, match="2 results, but the function has 1"):
        hloenv.load(saved, lambda p, b: step(p, b)["loss"])(PARAMS, BATCH)
    with pytest.raises(ArgumentError, match="3 arguments, but the function has 1"):
        hloenv.load(saved)(PARAMS["b"])


def test_outputs_of_any_size_are_whole():
    """XLA may want more memory for an output than the array has."""

    def fn(x):
        return x[:3] * 2, x.sum(), x[:0], x > 1, x.astype(jnp.bfloat16), x

    x = np.arange(7, dtype=np.float32)
    module = hloenv.HloModule.from_jax(fn, x)
    call = call_executable(hloenv.compile(module))
    for one, other in zip(jax.jit(call)(x), fn(jnp.asarray(x)), strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("donates_outside", [False, True])
def test_donated_arguments(donates_outside):
    x, y = jnp.ones((64, 128)), jnp.full((64, 128), 3.0)
    inner = jax.jit(lambda x, y: (x + y, x * 2), donate_argnums=0)
    call = call_executable(hloenv.compile(hloenv.HloModule.from_jax(inner, x, y)))
    outer = jax.jit(
        lambda x, y: call(x, y), donate_argnums=0 if donates_outside else ()
    )
    for _ in range(3):
        given = jnp.array(x)
        total, double = outer(given, y)
        assert (total == 4).all()
        assert (double == 2).all()
        assert given.is_deleted() == donates_outside
        if not donates_outside:
            assert (given == 1).all()


@pytest.mark.parametrize("is_needed", [False, True])
def test_a_donated_argument_becomes_the_result_in_place(is_needed):
    x = jnp.arange(4096, dtype=jnp.float32)
    inner = jax.jit(lambda x, y: x.at[7].add(y), donate_argnums=0)
    call = call_executable(hloenv.compile(hloenv.HloModule.from_jax(inner, x, 1.0)))

    def add(x, y):
        (result,) = call(x, y)
        return (result, x * 2) if is_needed else (result, y)

    outer = jax.jit(add, donate_argnums=0)
    assert "output_operand_alias" in outer.lower(x, 1.0).as_text()
    given = jnp.array(x)
    place = given.unsafe_buffer_pointer()
    result, other = outer(given, 1.0)
    np.testing.assert_array_equal(result, x.at[7].add(1.0))
    np.testing.assert_array_equal(other, x * 2 if is_needed else 1.0)
    assert is_needed or result.unsafe_buffer_pointer() == place


def test_a_donated_argument_in_a_loop_and_under_vmap():
    x = jnp.arange(64, dtype=jnp.float32)
    inner = jax.jit(lambda x, i: (x.at[i].mul(2.0), x[i]), donate_argnums=0)
    call = call_executable(hloenv.compile(hloenv.HloModule.from_jax(inner, x, 1)))

    def repeat(f):
        return lambda x: jax.lax.scan(lambda x, i: tuple(f(x, i)), x, jnp.arange(20))

    for wrap in (lambda f: f, jax.vmap):
        given = jnp.stack([x, x + 1]) if wrap is jax.vmap else x
        expected = jax.jit(wrap(repeat(inner)))(given)
        found = jax.jit(wrap(repeat(call)), donate_argnums=0)(jnp.array(given))
        for one, other in zip(found, expected, strict=True):
            np.testing.assert_array_equal(one, other)


def test_a_layout_that_jax_does_not_have_is_an_error():
    module = hloenv.HloModule.from_text(
        """HloModule m, entry_computation_layout={(f32[2,3]{0,1})->f32[2,3]{0,1}}
        ENTRY e {
          x = f32[2,3]{0,1} parameter(0)
          ROOT r = f32[2,3]{0,1} negate(x)
        }"""
    )
    with pytest.raises(CompileError, match="layout"):
        call_executable(hloenv.compile(module))


def test_many_threads_call_one_executable(saved):
    loaded = hloenv.load(saved, step)
    expected = step(PARAMS, BATCH)
    loaded(PARAMS, BATCH)
    for results in in_threads(
        lambda _: [loaded(PARAMS, BATCH) for _ in range(50)], range(4)
    ):
        for result in results:
            assert_same(result, expected)


def test_numpy_outputs():
    fast = hloenv.jit(step, outputs="numpy")
    for batch in (BATCH, {**BATCH, "x": np.ones((5, 3), np.float32)}, BATCH):
        result = fast(PARAMS, batch)
        assert type(result["loss"]) is np.ndarray
        assert_same(result, step(PARAMS, batch))
    assert len(fast._versions) == 2


def test_numpy_outputs_take_arrays_of_jax_and_numbers():
    fast = hloenv.jit(lambda x, y: (x * y, y), outputs="numpy")
    product, y = fast(jnp.arange(3.0), 2.0)
    np.testing.assert_array_equal(product, [0, 2, 4])
    assert y == 2.0
    product, _ = fast(np.arange(3, dtype=np.int32), 2)
    np.testing.assert_array_equal(product, [0, 2, 4])


@pytest.mark.parametrize(
    "options",
    [{"static_argnums": 1}, {"donate_argnums": 0}],
)
def test_numpy_outputs_refuse_options(options):
    with pytest.raises(ArgumentTypeError, match="static"):
        hloenv.jit(step, outputs="numpy", **options)


def test_numpy_outputs_refuse_side_effects_and_keys():
    def prints(x):
        jax.debug.print("{}", x)
        return x

    with pytest.raises(ArgumentError, match="side effects"):
        hloenv.jit(prints, outputs="numpy")(np.ones(2))
    with pytest.raises(ArgumentError, match="key_data"):
        hloenv.jit(jax.random.split, outputs="numpy")(jax.random.key(0))
    with pytest.raises(ArgumentError, match="outputs must be"):
        hloenv.jit(prints, outputs="torch")
    with pytest.raises(ArgumentError, match="policy='auto' only"):
        hloenv.jit(prints, outputs="numpy", policy="accept-all")


def test_numpy_outputs_notice_arguments_that_are_not_used():
    fast = hloenv.jit(lambda x, y: x * y.shape[0], outputs="numpy")
    x = np.ones(3, np.float32)
    for size in (3, 5, 3):
        result = fast(x, np.ones(size, np.float32))
        np.testing.assert_array_equal(result, x * size)


def test_numpy_outputs_distinguish_numbers():
    fn = hloenv.jit(lambda x, s: x * s, outputs="numpy")
    plain = jax.jit(lambda x, s: x * s)
    half = np.ones(2, np.float16)
    for args in (
        (half, 2),
        (half, 2.5),
        (half, np.float32(2.5)),
        (half, 2),
        (half, True),
        (np.ones(2), 2.5),
        (np.ones(2, np.float32), jnp.float32(2)),
        (half, jnp.asarray(2.5)),
    ):
        ours, theirs = fn(*args), plain(*args)
        assert ours.dtype == theirs.dtype
        np.testing.assert_array_equal(ours, theirs)


def test_numpy_outputs_follow_the_settings_of_jax():
    fast = hloenv.jit(lambda x: x.astype(float), outputs="numpy")
    x = np.ones(2, np.float32)
    assert fast(x).dtype == np.float32
    with jax.enable_x64(True):
        assert fast(x).dtype == np.float64
    assert fast(x).dtype == np.float32


@pytest.mark.parametrize(
    "options", [{"passes": "algsimp"}, {"budget": -1}, {"budget": float("nan")}]
)
def test_numpy_outputs_check_their_options(options):
    with pytest.raises(ArgumentError):
        hloenv.jit(step, outputs="numpy", **options)
    with pytest.raises(ArgumentTypeError):
        hloenv.jit(3, outputs="numpy")


def test_positional_static_arguments_by_name():
    def fn(x, n):
        return x * n

    module = hloenv.HloModule.from_jax(fn, np.ones(2), 2, static_argnames="n")
    loaded = hloenv.load(module, fn, static_argnames="n")
    np.testing.assert_array_equal(loaded(np.ones(2), 2), [2, 2])


def test_without_jit_the_function_itself_runs(saved):
    deployed = hloenv.load(saved, step)
    wanted = step(PARAMS, BATCH)
    with jax.disable_jit():
        assert_same(deployed(PARAMS, BATCH), wanted)
    bad = {**BATCH, "x": np.full_like(BATCH["x"], np.nan)}
    with jax.debug_nans(True), pytest.raises(FloatingPointError):
        deployed(PARAMS, bad)


@pytest.mark.parametrize("engine", ["wheel", "jaxlib"])
def test_there_is_no_derivative_but_a_batch_runs_one_by_one(engine):
    module = hloenv.HloModule.from_jax(lambda x: jnp.tanh(x) + 1, jnp.ones(4))
    loaded = hloenv.load(module, engine=engine)
    xs = jnp.arange(12.0).reshape(3, 4)
    assert_same(jax.vmap(lambda x: loaded(x)[0])(xs), jnp.tanh(xs) + 1)
    with pytest.raises(ArgumentError, match="lower and decide the gradient"):
        jax.grad(lambda x: loaded(x)[0].sum())(xs[0])


@pytest.mark.parametrize("engine", ["wheel", "jaxlib"])
def test_results_with_other_layouts_are_as_jax_has_them(engine):
    module = hloenv.HloModule.from_text(
        "HloModule m, entry_computation_layout={(f32[2,3]{0,1})->f32[3,2]{0,1}}\n"
        "ENTRY e {\n  x = f32[2,3]{0,1} parameter(0)\n"
        "  ROOT y = f32[3,2]{0,1} transpose(x), dimensions={1,0}\n}\n"
    )
    x = jnp.arange(6.0).reshape(2, 3)
    assert_same(hloenv.load(module, engine=engine)(x), (x.T,))
