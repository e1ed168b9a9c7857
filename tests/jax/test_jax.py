# SPDX-License-Identifier: Apache-2.0
"""From JAX to modules, and modules inside the user's own jax.jit."""

from __future__ import annotations

import threading
import warnings

import numpy as np
import pytest

import hloenv
from hloenv import HloModule, InvalidModuleError
from hloenv.jax import InjectionWarning, compile_injected, from_jax, inject, injection
from support.threads import in_threads

pytestmark = pytest.mark.jax


@pytest.fixture(scope="module")
def jax():
    import jax

    return jax


@pytest.fixture(scope="module")
def jnp(jax):
    return jax.numpy


def jaxlib_module(lowered) -> HloModule:
    """What jaxlib itself has before scheduling, when it compiles this."""
    found = []
    unregister = injection.register(lambda proto: found.append(proto))
    try:
        lowered.compile(compiler_options=injection.fresh_options())
    finally:
        unregister()
    (proto,) = found
    return HloModule.from_proto(proto)


def edited(module: HloModule, old: str, new: str) -> HloModule:
    text = module.to_text()
    assert text.count(old) == 1, text
    return HloModule.from_text(text.replace(old, new))


# --- from_jax -------------------------------------------------------------------


def test_from_jax_keeps_parameters_and_outputs(jnp):
    def fn(params, x):
        return {"y": x @ params["w"] + params["b"], "n": x.sum(dtype=jnp.int32)}

    params = {"w": jnp.ones((3, 4)), "b": jnp.zeros(4)}
    module = from_jax(fn, params, jnp.ones((2, 3)))
    assert [spec.shape for spec in module.input_specs()] == [(4,), (3, 4), (2, 3)]
    assert [(spec.shape, spec.hlo_dtype) for spec in module.output_specs()] == [
        ((), "s32"),
        ((2, 4), "f32"),
    ]
    module.verify()


def test_from_jax_is_a_constructor_of_the_module(jnp):
    module = HloModule.from_jax(jnp.tanh, jnp.ones(3))
    assert module.opcode_counts()["tanh"] == 1


def test_from_jax_takes_shapes_instead_of_arrays(jax):
    spec = jax.ShapeDtypeStruct((5, 7), "bfloat16")
    module = from_jax(lambda x: x.T, spec)
    assert [spec.shape for spec in module.output_specs()] == [(7, 5)]


@pytest.mark.parametrize(
    "options", [{"static_argnums": 1}, {"static_argnames": ("times",)}]
)
def test_from_jax_takes_static_arguments(jnp, options):
    def fn(x, times):
        for _ in range(times):
            x = jnp.sin(x)
        return x

    module = from_jax(fn, jnp.ones(3), 4, **options)
    assert module.opcode_counts()["sine"] == 4


def test_from_jax_takes_jitted_functions_with_their_static_arguments(jax, jnp):
    fn = jax.jit(lambda x, times: x * times, static_argnums=1)
    assert len(from_jax(fn, jnp.ones(3), 4).input_specs()) == 1


def test_from_jax_rejects_static_arguments_for_a_jitted_function(jax, jnp):
    with pytest.raises(TypeError, match="already jitted"):
        from_jax(jax.jit(jnp.sin), jnp.ones(3), static_argnums=0)


def test_from_jax_takes_a_lowered_function(jax, jnp):
    lowered = jax.jit(jnp.sin).lower(jnp.ones(3))
    fingerprint = from_jax(jnp.sin, jnp.ones(3)).fingerprint()
    assert from_jax(lowered).fingerprint() == fingerprint
    with pytest.raises(TypeError, match="already has its arguments"):
        from_jax(lowered, jnp.ones(3))


def test_from_jax_keeps_donations(jax, jnp):
    fn = jax.jit(lambda x, y: x + y, donate_argnums=0)
    text = from_jax(fn, jnp.ones(3), jnp.ones(3)).to_text()
    assert "input_output_alias={ {}: (0, {}, may-alias) }" in text


def test_from_jax_lowers_for_the_platform_that_is_asked_for(jnp):
    matrix = jnp.eye(3)
    on_cpu = from_jax(jnp.linalg.cholesky, matrix)
    on_tpu = from_jax(jnp.linalg.cholesky, matrix, platform="tpu")
    assert "lapack" in on_cpu.to_text()
    assert "lapack" not in on_tpu.to_text()


# --- inject ---------------------------------------------------------------------


def test_the_injected_module_is_the_one_that_runs(jax, jnp):
    fn = jax.jit(lambda x: jnp.tanh(x) + 1)
    x = jnp.arange(4.0)
    other = edited(jaxlib_module(fn.lower(x)), " add(", " subtract(")
    with inject(other) as injected:
        inside = fn(x)
    assert injected.replaced == 1
    np.testing.assert_allclose(inside, np.tanh(np.arange(4.0)) - 1, atol=1e-6)


def test_other_modules_are_left_alone(jax, jnp):
    def target(x):
        return x + 1

    def bystander(x):
        return x + 1

    x = jnp.arange(4.0)
    other = edited(jaxlib_module(jax.jit(target).lower(x)), " add(", " subtract(")
    with inject(other) as injected:
        np.testing.assert_array_equal(jax.jit(bystander)(x), x + 1)
        wrong_shape = jnp.arange(5.0)
        np.testing.assert_array_equal(jax.jit(target)(wrong_shape), wrong_shape + 1)
        assert injected.replaced == 0
        np.testing.assert_array_equal(jax.jit(target)(x), x - 1)
    assert injected.replaced == 1
    assert "f32[5]" in injected.refused[0]


def test_nothing_is_replaced_after_the_block(jax, jnp):
    fn = jax.jit(lambda x: x + 1)
    x = jnp.arange(4.0)
    other = edited(jaxlib_module(fn.lower(x)), " add(", " subtract(")
    with inject(other):
        np.testing.assert_array_equal(fn(x), x - 1)
    fn.clear_cache()
    np.testing.assert_array_equal(fn(x), x + 1)


def test_nothing_is_replaced_after_an_exception_in_the_block(jax, jnp):
    fn = jax.jit(lambda x: x + 1)
    x = jnp.arange(4.0)
    other = edited(jaxlib_module(fn.lower(x)), " add(", " subtract(")
    with pytest.raises(KeyError), inject(other):
        raise KeyError
    np.testing.assert_array_equal(fn(x), x + 1)


def test_inject_warns_when_nothing_was_compiled(jax, jnp):
    fn = jax.jit(lambda x: x + 1)
    x = jnp.arange(4.0)
    module = jaxlib_module(fn.lower(x))
    fn(x)
    expected = pytest.warns(InjectionWarning, match="if it was compiled before")
    with expected, inject(module):
        fn(x)


def test_a_module_with_donations_is_rejected(jax, jnp):
    fn = jax.jit(lambda x, y: x + y, donate_argnums=0)
    x = jnp.arange(4.0)
    module = hloenv.finish(from_jax(fn, x, x))
    with pytest.raises(InvalidModuleError, match="donations=False"), inject(module):
        fn(x, x)
    module = hloenv.finish(from_jax(fn, x, x, donations=False))
    with inject(module) as injected:
        np.testing.assert_array_equal(fn(x, x + 1), [1, 3, 5, 7])
    assert injected.replaced == 1


def test_a_module_finished_by_the_other_xla_runs(jnp):
    """Transposed results keep the layout that jax expects."""

    def fn(x, w):
        return (x @ w).T, jnp.tanh(w).T @ x.T

    x, w = jnp.arange(6.0).reshape(2, 3), jnp.arange(12.0).reshape(3, 4)
    module = hloenv.finish(from_jax(fn, x, w))
    compiled = compile_injected(module, fn, x, w)
    for actual, expected in zip(compiled(x, w), fn(x, w), strict=True):
        np.testing.assert_allclose(actual, expected, rtol=1e-6)


def test_blocks_in_two_threads_are_independent(jax, jnp):
    def add(x):
        return x + 1

    def multiply(x):
        return x * 3

    x = jnp.arange(4.0)
    plans = {
        add: edited(jaxlib_module(jax.jit(add).lower(x)), " add(", " subtract("),
        multiply: edited(
            jaxlib_module(jax.jit(multiply).lower(x)), " multiply(", " divide("
        ),
    }
    barrier = threading.Barrier(2)

    def work(fn):
        with inject(plans[fn]):
            barrier.wait()
            result = np.asarray(jax.jit(fn)(x))
            barrier.wait()
        return result

    added, multiplied = in_threads(work, plans)
    np.testing.assert_allclose(added, np.arange(4.0) - 1)
    np.testing.assert_allclose(multiplied, np.arange(4.0) / 3, rtol=1e-6)


def test_the_cache_on_disk_is_left_out_and_restored(tmp_path, run_child):
    run_child(
        f"""
import jax, jax.numpy as jnp, os
jax.config.update("jax_compilation_cache_dir", {str(tmp_path)!r})
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
from hloenv import HloModule, InvalidModuleError
from hloenv.jax import inject, injection
x = jnp.arange(4.0)
def fn(x): return x + 1
found = []
unregister = injection.register(lambda proto: found.append(proto))
jax.jit(fn).lower(x).compile()
unregister()
entries = sorted(os.listdir({str(tmp_path)!r}))
assert any("fn" in entry for entry in entries), entries
text = HloModule.from_proto(found[0]).to_text().replace(" add(", " subtract(")
jax.clear_caches()
with inject(HloModule.from_text(text)) as injected:
    assert jax.jit(fn)(x)[0] == -1
assert injected.replaced == 1
assert sorted(os.listdir({str(tmp_path)!r})) == entries
assert jax.config.jax_enable_compilation_cache
jax.clear_caches()
assert jax.jit(fn)(x)[0] == 1
"""
    )


def test_a_module_that_jaxlib_rejects_is_a_compile_error(jax, jnp):
    fn = jax.jit(lambda x: x + 1)
    x = jnp.arange(4.0)
    unknown = HloModule.from_text(
        "HloModule jit__lambda, entry_computation_layout={(f32[4]{0})->f32[4]{0}}\n"
        "ENTRY e {\n"
        "  p = f32[4]{0} parameter(0)\n"
        '  ROOT r = f32[4]{0} custom-call(p), custom_call_target="nobody-has-this",'
        " api_version=API_VERSION_TYPED_FFI\n"
        "}\n"
    )
    with pytest.raises(hloenv.errors.CompileError, match="nobody-has-this"):
        compile_injected(unknown, fn, x)
    np.testing.assert_array_equal(fn(x), x + 1)


def test_a_module_of_another_signature_is_rejected(jax, jnp):
    fn = jax.jit(lambda x: x + 1)
    module = jaxlib_module(fn.lower(jnp.arange(5.0)))
    with pytest.raises(hloenv.errors.CompileError, match=r"f32\[5\]"):
        compile_injected(module, fn, jnp.arange(4.0))


def test_compile_injected_keeps_pytrees(jax, jnp):
    def fn(tree, *, scale):
        return {"sum": tree["a"] + tree["b"], "scaled": (tree["a"] * scale,)}

    tree = {"a": jnp.arange(3.0), "b": jnp.ones(3)}
    module = jaxlib_module(jax.jit(fn).lower(tree, scale=2.0))
    compiled = compile_injected(module, fn, tree, scale=2.0)
    outputs = compiled(tree, scale=3.0)
    np.testing.assert_array_equal(outputs["sum"], [1, 2, 3])
    np.testing.assert_array_equal(outputs["scaled"][0], [0, 3, 6])


@pytest.mark.parametrize(
    ("proto", "name"),
    [
        (b"", None),
        (b"\x12\x01a", None),
        (b"\x0a", None),
        (b"\x0a\x05jit_f\x12", "jit_f"),
        (b"\x0a\xac\x02" + b"x" * 300 + b"\x12", "x" * 300),
    ],
)
def test_module_name_reads_the_first_field(proto, name):
    assert injection.module_name(proto) == name


def test_import_error_names_the_extra(run_child):
    child = run_child(
        "import sys; sys.modules['jax'] = None\n"
        "from hloenv.jax import from_jax\n"
        "try:\n"
        "    from_jax(abs, 1)\n"
        "except ImportError as error:\n"
        "    print(error)\n"
    )
    assert "pip install 'hloenv[jax]'" in child.stdout


def test_an_old_jax_is_named(jax, monkeypatch):
    from jax.extend import xla

    monkeypatch.delattr(xla, "PipelineStage")
    with pytest.raises(ImportError, match=r"hloenv\.jit needs jax >= 0\.10\.2"):
        hloenv.jit(abs)
    module = from_jax(jax.numpy.sin, 1.0)
    expected = pytest.raises(ImportError, match=jax.__version__)
    with expected, inject(module):
        pass


def test_plain_use_of_jax_sees_no_warning(jnp):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        from_jax(lambda x: x, jnp.ones(1))


@pytest.mark.compile
def test_example_inputs_are_those_of_the_call():
    import jax
    import jax.numpy as jnp

    def step(state, batch, unused, scale, *, power):
        return {"w": state["w"] * scale + batch["x"] ** power, "n": state["n"] + 1}

    arguments = (
        {"w": jnp.full((3,), 2.0), "n": np.int32(7)},
        {"x": np.arange(3, dtype=np.float32)},
        np.zeros(5, np.float32),
        0.5,
    )
    static = {"static_argnames": "power", "power": 2}
    module = hloenv.HloModule.from_jax(step, *arguments, **static)
    inputs = hloenv.jax.example_inputs(step, *arguments, **static)
    assert [each.shape for each in inputs] == [s.shape for s in module.input_specs()]
    outputs = hloenv.compile(module)(*inputs)
    expected = jax.tree.leaves(step(*arguments, power=2))
    for output, value in zip(outputs, expected, strict=True):
        np.testing.assert_allclose(output, value)
    result = hloenv.measure(module, inputs=inputs, repeats=2)
    assert result.is_ok
    with pytest.raises(TypeError, match="no values"):
        hloenv.jax.example_inputs(jnp.sin, jax.ShapeDtypeStruct((3,), np.float32))
    jitted = jax.jit(step, static_argnames="power")
    with pytest.raises(TypeError, match="plain function"):
        hloenv.jax.example_inputs(jitted, *arguments, power=2)
