# SPDX-License-Identifier: Apache-2.0
"""Options of jax.jit and of jaxlib's compiler, for every signature."""

from __future__ import annotations

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hloenv
from hloenv.errors import ArgumentTypeError
from hloenv.jax import decider, executables, timed_call
from hloenv.jax.artefact import Artefact, Tuned
from hloenv.jax.recipe import Recipe
from hloenv.rewrite.trace import ModuleId
from hloenv.runtime.jaxlib import options as compiler_options
from support.jit_functions import FASTER, SLOWER, depthwise, small_loop, square

pytestmark = [
    pytest.mark.jax,
    pytest.mark.compile,
    pytest.mark.usefixtures("own_folder"),
]

FAST_MATH = {"xla_cpu_enable_fast_math": True}
WIDE = {"xla_cpu_prefer_vector_width": 512}
KERNEL, IMAGE = jnp.ones((3, 3, 1, 32)) / 9, jnp.ones((2, 16, 16, 32))


def test_options_of_the_compiler_without_a_comparison():
    fast = hloenv.jit(lambda x: x + 1, compiler_options=FAST_MATH, budget=0)
    for x in (1.0, jnp.ones(3)):
        np.testing.assert_array_equal(fast(x), x + 1)


@pytest.mark.parametrize("verdict", [FASTER, SLOWER])
def test_options_of_the_compiler_with_each_result(verdict, monkeypatch):
    monkeypatch.setattr(timed_call, "compare", lambda *_, **__: verdict)
    fast = hloenv.jit(depthwise, compiler_options=FAST_MATH)
    for count in (32, 16, 8):
        args = KERNEL[..., :count], IMAGE[..., :count]
        for _ in range(2):
            np.testing.assert_allclose(fast(*args), depthwise(*args), rtol=1e-5)
    # One channel less: no rule applies to what follows.
    plain = hloenv.jit(jnp.tanh, compiler_options=FAST_MATH)
    for size in (3, 4):
        plain(jnp.ones(size))


def test_options_of_the_compiler_with_loops(monkeypatch):
    monkeypatch.setattr(timed_call, "compare", lambda *_, **__: FASTER)
    fast = hloenv.jit(small_loop, compiler_options=FAST_MATH)
    for size in (3, 4):
        expected = jax.jit(small_loop, compiler_options=FAST_MATH)(square(size))
        np.testing.assert_allclose(fast(square(size)), expected, rtol=1e-4)
    assert len(fast.decided) == 2


@pytest.fixture
def compiled_with(monkeypatch):
    """The executables that were compiled with options, by size of the argument."""
    found = []
    real = compiler_options.compile_lowered

    def observed(lowered, options=None):
        compiled = real(lowered, options)
        found.append((options, compiled))
        return compiled

    monkeypatch.setattr(executables, "compile_lowered", observed)
    return found


def test_each_signature_runs_what_was_compiled_with_its_options(compiled_with):
    def function(x):
        return jnp.tanh(x @ x)

    sizes = 16, 32, 64
    entries = []
    for size in sizes:
        module = hloenv.HloModule.from_jax(function, jnp.ones((size, size)))
        entries.append(
            Tuned(
                *("function", ModuleId.of(module), Recipe(options=WIDE)),
                *("wide", "", "jax.jit", 2.0, (1.9, 2.1)),
                date="2026-11-26",
            )
        )
    fast = hloenv.jit(function, tuned=Artefact(tuple(entries)))
    for size in sizes:
        x = jnp.ones((size, size)) / size
        for _ in range(2):
            np.testing.assert_allclose(fast(x), function(x), rtol=1e-5)
    assert [dict(options) for options, _ in compiled_with] == [WIDE] * len(sizes)
    for size, (_, compiled) in zip(sizes, compiled_with, strict=True):
        lowered = fast._decided.lower(jax.ShapeDtypeStruct((size, size), jnp.float32))
        assert lowered._lowering._executable is compiled._executable


@pytest.mark.parametrize(
    "option",
    [
        {"compiler_options": FAST_MATH},
        {"out_shardings": jax.sharding.SingleDeviceSharding(jax.devices("cpu")[0])},
    ],
)
def test_numpy_outputs_refuse_what_they_cannot_follow(option):
    with pytest.raises(ArgumentTypeError, match=next(iter(option))):
        hloenv.jit(jnp.tanh, outputs="numpy", **option)
    assert hloenv.jit(jnp.tanh, outputs="numpy", keep_unused=False)(0.0) == 0


def test_numpy_outputs_follow_what_the_function_refers_to():
    scale = 2.0

    def scaled(x):
        return x * scale

    fast = hloenv.jit(scaled, outputs="numpy")
    x = np.ones(3, np.float32)
    for _ in range(3):
        np.testing.assert_array_equal(fast(x), 2 * x)
    executable = next(iter(fast._versions.values())).executable
    jax.clear_caches()
    np.testing.assert_array_equal(fast(x), 2 * x)
    assert next(iter(fast._versions.values())).executable is executable
    scale = 3.0
    jax.clear_caches()
    for _ in range(3):
        np.testing.assert_array_equal(fast(x), 3 * x)


def test_numpy_outputs_are_those_of_plain_jax_where_that_is_faster(monkeypatch):
    from hloenv.jax import numpy_calls

    monkeypatch.setattr(numpy_calls, "compare", lambda *_, **__: SLOWER)
    fast = hloenv.jit(lambda x: {"y": jnp.tanh(x)}, outputs="numpy")
    x = np.linspace(0, 1, 8, dtype=np.float32)
    for _ in range(3):
        found = fast(x)["y"]
        assert isinstance(found, np.ndarray)
        np.testing.assert_allclose(found, np.tanh(x), rtol=1e-6)
    (one,) = fast.considered
    assert (one.is_used, one.reason) == (False, SLOWER.reason)


def test_arguments_that_nothing_reads_stay_so(monkeypatch):
    """As under jax.jit, which neither transfers nor donates them."""
    monkeypatch.setattr(timed_call, "compare", lambda *_, **__: FASTER)

    def function(params, batch):
        return depthwise(params["kernel"], batch["x"])

    fast = hloenv.jit(function, donate_argnums=1)
    unused = jnp.ones(100)
    batch = {"meta": unused, "x": IMAGE + 0}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = jax.jit(function)({"kernel": KERNEL}, batch)
        found = fast({"kernel": KERNEL}, batch)
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    assert len(fast.decided) == 1
    assert not unused.is_deleted()
    kept = fast._decided.lower({"kernel": KERNEL}, {"meta": unused, "x": IMAGE})
    assert sorted(kept._lowering.compile_args["kept_var_idx"]) == [0, 2]


def test_arguments_that_only_dead_equations_read(monkeypatch):
    """jax leaves them out, and the function for other platforms must not need them."""
    monkeypatch.setattr(timed_call, "compare", lambda *_, **__: FASTER)
    inner = jax.jit(lambda k, x, unused: depthwise(k, x))

    def function(kernel, x, labels, key):
        (labels * 2 + jax.random.uniform(key)).sum()
        return inner(kernel, x, labels)

    fast = hloenv.jit(function)
    args = KERNEL, IMAGE, jnp.ones(3), jax.random.key(0)
    np.testing.assert_allclose(fast(*args), function(*args), rtol=1e-5)
    assert len(fast.decided) == 1
    for platform in ("cpu", "cuda"):
        lowered = fast._decided.trace(*args).lower(lowering_platforms=(platform,))
        is_plain = "stablehlo.convolution" in lowered.as_text()
        assert is_plain == (platform == "cuda")


def test_another_program_of_a_signature_is_compiled_with_options_again(compiled_with):
    scale = 1.0

    def function(x):
        return jnp.tanh(x @ x) * scale

    def entry(x):
        module = hloenv.HloModule.from_jax(function, x)
        return Tuned(
            *("function", ModuleId.of(module), Recipe(options=WIDE)),
            *("wide", "", "jax.jit", 2.0, (1.9, 2.1)),
            date="2026-11-26",
        )

    x, other = jnp.ones((16, 16)) / 16, jnp.ones((32, 32)) / 32
    entries = [entry(x)]
    scale = 2.0
    jax.clear_caches()
    entries += [entry(x), entry(other)]
    scale = 1.0
    jax.clear_caches()
    fast = hloenv.jit(function, tuned=Artefact(tuple(entries)))
    np.testing.assert_allclose(fast(x), function(x), rtol=1e-5)
    scale = 2.0
    jax.clear_caches()
    for each in (x, other, x):
        np.testing.assert_allclose(fast(each), function(each), rtol=1e-5)
    for each, (_, compiled) in zip((x, other), compiled_with[-2:], strict=True):
        lowered = fast._decided.lower(each)
        assert lowered._lowering._executable is compiled._executable


def test_a_branch_that_was_not_taken_is_compared_again(monkeypatch):
    compared = []

    def compare(*_, **__):
        compared.append(1)
        return FASTER

    monkeypatch.setattr(timed_call, "compare", compare)

    def function(is_used, kernel, x):
        return jax.lax.cond(is_used, lambda: depthwise(kernel, x), lambda: x)

    for _ in range(2):
        fast = hloenv.jit(function)
        fast(False, KERNEL, IMAGE)
        assert len(fast.decided) == 1
    assert len(compared) == 2


def test_ever_new_shapes_are_left_alone_after_a_while(monkeypatch):
    monkeypatch.setattr(timed_call, "compare", lambda *_, **__: SLOWER)
    monkeypatch.setattr(decider, "_MAX_WASTED", 1e-9)
    fast = hloenv.jit(depthwise, remember=False)
    for count in (32, 16, 8):
        fast(KERNEL[..., :count], IMAGE[..., :count])
    reasons = [each.reason for each in fast.considered]
    assert "it is slower" in reasons[0]
    assert ["ever new shapes" in each for each in reasons[-2:]] == [True, True]
    # What is known already costs nothing.
    module = hloenv.HloModule.from_jax(depthwise, KERNEL[..., :4], IMAGE[..., :4])
    entry = Tuned(
        *("depthwise", ModuleId.of(module), Recipe(options=WIDE)),
        *("wide", "", "jax.jit", 2.0, (1.9, 2.1)),
        date="2026-11-26",
    )
    monkeypatch.setattr(fast._decider, "_tuned", Artefact((entry,)))
    fast(KERNEL[..., :4], IMAGE[..., :4])
    assert fast.considered[-1].tuned == "wide"


class Eager:
    """A pytree node that does not flatten while it holds tracers."""

    def __init__(self, x):
        self.x = x


jax.tree_util.register_pytree_node(
    Eager,
    lambda node: ((np.asarray(node.x),), None),
    lambda _, children: Eager(children[0]),
)


def test_nodes_that_do_not_flatten_in_a_trace():
    fast = hloenv.jit(lambda node: node.x * 2)
    for _ in range(3):
        np.testing.assert_array_equal(fast(Eager(np.ones(3))), np.full(3, 2.0))


def test_what_is_loaded_is_exported():
    x = jnp.ones(3)
    module = hloenv.HloModule.from_jax(jnp.tanh, x)
    loaded = hloenv.load(module, jnp.tanh, engine="jaxlib")
    assert loaded.eval_shape(x).shape == (3,)
    assert loaded.trace(x).jaxpr.out_avals[0].shape == (3,)
    assert isinstance(loaded, jax.stages.Wrapped)

    class Holder:
        double = hloenv.load(
            hloenv.HloModule.from_jax(lambda x: x * 2, x), engine="jaxlib"
        )

        def scaled(self, x):
            return x * 3

        fast = hloenv.load(
            hloenv.HloModule.from_jax(lambda x: x * 3, x),
            lambda self, x: x * 3,
            engine="jaxlib",
            static_argnums=0,
        )

    np.testing.assert_allclose(Holder().double(x)[0], 2 * x)
    np.testing.assert_allclose(Holder().fast(x), 3 * x)
    loaded.clear_cache()
    np.testing.assert_allclose(loaded(x), jnp.tanh(x))


class Checked:
    """A pytree node that cannot be made of types."""

    def __init__(self, x):
        if isinstance(x, jax.ShapeDtypeStruct):
            raise TypeError("expected an array, got a type")
        self.x = x


jax.tree_util.register_pytree_node(
    Checked, lambda node: ((node.x,), None), lambda _, children: Checked(children[0])
)


def test_options_for_nodes_that_check_their_leaves_are_given_up_with_a_reason():
    def function(node):
        return jnp.tanh(node.x @ node.x)

    node = Checked(jnp.ones((16, 16)) / 16)
    module = hloenv.HloModule.from_jax(function, node)
    entry = Tuned(
        *("function", ModuleId.of(module), Recipe(options=WIDE)),
        *("wide", "", "jax.jit", 2.0, (1.9, 2.1)),
        date="2026-11-26",
    )
    fast = hloenv.jit(function, tuned=Artefact((entry,)))
    for _ in range(2):
        np.testing.assert_allclose(fast(node), function(node), rtol=1e-5)
    assert fast.decided == []
    assert "types alone" in fast.explain()
