# SPDX-License-Identifier: Apache-2.0
"""Convolutions by oneDNN in programs that jaxlib compiles."""

from __future__ import annotations

import functools
import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental.compilation_cache import compilation_cache

import hloenv
from hloenv.errors import CompileError
from hloenv.jax import auto, onednn, timed_call
from hloenv.jax.stages import Stages
from hloenv.runtime.jaxlib.stablehlo import program_of
from support import jax_outputs
from support.jit_functions import FASTER, SLOWER, normal

assert_same = functools.partial(jax_outputs.assert_same, tolerance=1e-4)

pytestmark = [
    pytest.mark.jax,
    pytest.mark.compile,
    pytest.mark.usefixtures("own_folder", "with_onednn"),
]

NHWC, NCHW = ("NHWC", "HWIO", "NHWC"), ("NCHW", "OIHW", "NCHW")


def convolve(x, kernel, groups=1, strides=None, pad="SAME", dilation=None, dims=NHWC):
    return jax.lax.conv_general_dilated(
        x,
        kernel,
        strides or (1,) * (x.ndim - 2),
        pad,
        rhs_dilation=dilation,
        dimension_numbers=dims,
        feature_group_count=groups,
    )


IMAGE, KERNEL = normal(2, 28, 28, 32), normal(3, 3, 4, 32, seed=1)
grouped = functools.partial(convolve, groups=8)


def gradients(x, kernel):
    return jax.grad(lambda *each: jnp.sin(grouped(*each)).sum(), (0, 1))(x, kernel)


def scanned(x, kernel):
    def step(state, _):
        return jnp.tanh(grouped(state, kernel)), state.sum()

    return jax.lax.scan(step, x, length=3)


PROGRAMS = {
    "groups": (grouped, (IMAGE, KERNEL)),
    "a bias and a function": (
        lambda x, k: jax.nn.relu(grouped(x, k) + 1) * 2,
        (IMAGE, KERNEL),
    ),
    "gradients, which reverse the window": (gradients, (IMAGE, KERNEL)),
    "a loop": (scanned, (IMAGE, KERNEL)),
    "a depthwise one with strides and dilation": (
        functools.partial(convolve, groups=32, pad=[(2, 1), (0, 3)], dilation=(1, 2)),
        (IMAGE, normal(5, 5, 1, 32)),
    ),
    "strides": (
        functools.partial(convolve, groups=32, strides=(2, 1)),
        (IMAGE, normal(5, 5, 1, 64)),
    ),
    "features first": (
        functools.partial(convolve, groups=8, dims=NCHW),
        (normal(2, 32, 28, 28), normal(32, 4, 3, 3)),
    ),
    "three dimensions": (
        functools.partial(convolve, dims=("NDHWC", "DHWIO", "NDHWC")),
        (normal(1, 8, 9, 10, 8), normal(3, 3, 3, 8, 16)),
    ),
    "few input features": (convolve, (normal(8, 32, 32, 3), normal(3, 3, 3, 32))),
    "one dimension": (
        functools.partial(convolve, dims=("NWC", "WIO", "NWC")),
        (normal(4, 300, 16), normal(5, 16, 32)),
    ),
    "two that differ in their padding": (
        lambda x, k: (
            grouped(x, k, pad=[(1, 1), (1, 1)]),
            grouped(x, k, pad=[(2, 0), (0, 2)]),
        ),
        (IMAGE, KERNEL),
    ),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_outputs_are_those_of_jax(name, verdicts):
    function, arguments = PROGRAMS[name]
    verdicts += [FASTER] * 9
    fast = hloenv.jit(function, remember=False)
    expected = jax.jit(function)(*arguments)
    for _ in range(2):
        assert_same(fast(*arguments), expected)
    by_onednn = [each for each in fast.considered if "onednn-calls" in str(each)]
    assert any(each.speedup == FASTER.speedup for each in by_onednn)


@pytest.mark.parametrize("seed", range(12))
def test_random_convolutions(seed):
    """All that oneDNN may run, whether it is faster or not."""
    rng = np.random.default_rng(seed)
    num_dims = 1 + seed % 3
    groups, inputs = int(rng.choice([1, 2, 3])), int(rng.choice([1, 2, 5]))
    outputs = groups * int(rng.choice([1, 2, 8]))
    space = "DHW"[3 - num_dims :]
    sizes = {"N": 2, "C": groups * inputs, **dict.fromkeys(space, 7)}
    window = {
        "O": outputs,
        "I": inputs,
        **{each: int(rng.integers(1, 4)) for each in space},
    }
    dims = tuple(
        "".join(rng.permutation(list(each)))
        for each in (f"N{space}C", f"{space}IO", f"N{space}C")
    )
    arguments = (
        normal(*(sizes[each] for each in dims[0])),
        normal(*(window[each] for each in dims[1]), seed=1),
    )
    function = functools.partial(
        convolve,
        groups=groups,
        strides=tuple(rng.integers(1, 3, num_dims).tolist()),
        pad=[tuple(each) for each in rng.integers(0, 3, (num_dims, 2)).tolist()],
        dilation=tuple(rng.integers(1, 3, num_dims).tolist()),
        dims=dims,
    )

    def both(x, kernel):
        result, back = jax.vjp(function, x, kernel)
        return result, back(jnp.cos(result))

    env = hloenv.HloEnv(hloenv.HloModule.from_jax(both, *arguments))
    alternatives = env.get_alternatives("onednn-calls")
    assert len(alternatives) >= 1
    called = env.apply_alternatives(np.ones(len(alternatives), int), alternatives)
    found = jax.jit(program_of(called))(*arguments)
    assert_same(found, jax.tree.leaves(jax.jit(both)(*arguments)))


def test_threads_may_call_it_at_once(verdicts):
    verdicts += [SLOWER, FASTER]
    fast = hloenv.jit(grouped, remember=False)
    fast(IMAGE, KERNEL)  # runs the plain function, too
    expected = np.asarray(fast(IMAGE, KERNEL))
    found = [None] * 8

    def call(number):
        for _ in range(20):
            found[number] = np.asarray(fast(IMAGE, KERNEL))

    threads = [threading.Thread(target=call, args=(each,)) for each in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    for each in found:
        np.testing.assert_array_equal(each, expected)


def test_a_later_process_uses_what_was_found(verdicts, monkeypatch):
    verdicts += [SLOWER, FASTER]
    fast = hloenv.jit(grouped)
    assert_same(fast(IMAGE, KERNEL), grouped(IMAGE, KERNEL))
    (one,) = fast.decided
    assert dict(one.accepted) == {"onednn-calls/convolution": 1}
    assert "onednn-calls/convolution" in fast.explain()
    monkeypatch.setattr(timed_call, "compare", None)
    later = hloenv.jit(grouped)
    assert_same(later(IMAGE, KERNEL), grouped(IMAGE, KERNEL))
    assert [dict(each.accepted) for each in later.decided] == [dict(one.accepted)]


def test_what_is_slower_is_not_used(verdicts):
    verdicts += [SLOWER] * 4
    slow = hloenv.jit(grouped, remember=False)
    assert_same(slow(IMAGE, KERNEL), grouped(IMAGE, KERNEL))
    assert not slow.decided


def test_without_it_nothing_is_tried(verdicts, monkeypatch):
    monkeypatch.setattr(auto, "has_onednn", lambda: False)
    verdicts += [SLOWER] * 4
    slow = hloenv.jit(grouped, remember=False)
    assert_same(slow(IMAGE, KERNEL), grouped(IMAGE, KERNEL))
    assert not any("onednn" in str(each.accepted) for each in slow.considered)


def test_where_jaxlib_does_not_run_it_there_is_none(monkeypatch):
    def fails(*_, **__):
        raise RuntimeError("no such custom call")

    monkeypatch.setattr(onednn, "program_of", lambda _: fails)
    assert not onednn.has_onednn.__wrapped__()


def test_of_an_unknown_jaxlib_nothing_is_tried(monkeypatch):
    monkeypatch.setattr(onednn, "_KNOWN_JAXLIB", "9.9.")
    assert not onednn.has_onednn.__wrapped__()


def test_the_answer_does_not_depend_on_what_the_caller_has_set():
    with jax.disable_jit(), jax.transfer_guard("disallow"):
        assert onednn.has_onednn.__wrapped__()


@pytest.fixture
def cache(tmp_path):
    """jax's persistent cache, of whose errors none is hidden."""
    names = {
        "jax_compilation_cache_dir": str(tmp_path),
        "jax_persistent_cache_min_compile_time_secs": 0.0,
        "jax_persistent_cache_min_entry_size_bytes": -1,
        "jax_raise_persistent_cache_errors": True,
    }
    before = {name: getattr(jax.config, name) for name in names}
    for name, value in names.items():
        jax.config.update(name, value)
    compilation_cache.reset_cache()
    yield
    for name, value in before.items():
        jax.config.update(name, value)
    compilation_cache.reset_cache()


def test_it_is_not_tried_while_jax_has_a_persistent_cache(cache, verdicts):
    """jaxlib cannot serialize it, and would do so for each new kind of call."""
    verdicts += [SLOWER] * 4
    for _ in range(2):
        fast = hloenv.jit(grouped)
        for image in (IMAGE, jax.device_put(IMAGE, jax.devices("cpu")[0])):
            assert_same(fast(image, KERNEL), grouped(IMAGE, KERNEL))
    assert any(onednn.CACHE_IS_ON in each.reason for each in fast.considered)


def test_what_was_found_with_a_cache_is_not_for_calls_without(verdicts, request):
    verdicts += [SLOWER] * 4
    request.getfixturevalue("cache")
    hloenv.jit(grouped)(IMAGE, KERNEL)
    jax.config.update("jax_compilation_cache_dir", None)
    compilation_cache.reset_cache()
    verdicts[:] = [SLOWER, FASTER]
    fast = hloenv.jit(grouped)
    fast(IMAGE, KERNEL)
    assert [dict(each.accepted) for each in fast.decided] == [
        {"onednn-calls/convolution": 1}
    ]


def test_what_was_tuned_is_not_used_with_a_cache(cache):
    env = hloenv.HloEnv(hloenv.HloModule.from_jax(grouped, IMAGE, KERNEL))
    alternatives = env.get_alternatives("onednn-calls")
    env.apply_alternatives(np.ones(1, int), alternatives)
    recipe = hloenv.jax.Recipe(trace=env.trace)
    stages = Stages(jax.jit(grouped).trace(IMAGE, KERNEL))
    with pytest.raises(CompileError, match="persistent cache"):
        recipe.attempt(stages, label="")


def test_donated_arguments_and_several_calls_in_one_program(verdicts):
    def function(x, kernels):
        return sum(grouped(x, each) for each in kernels) + x

    kernels = [normal(3, 3, 4, 32, seed=each) for each in range(6)]
    expected = jax.jit(function)(IMAGE, kernels)
    verdicts += [FASTER] * 4
    fast = hloenv.jit(function, donate_argnums=0, remember=False)
    for _ in range(30):
        assert_same(fast(jnp.array(IMAGE), kernels), expected)
    assert any("onednn" in str(each.accepted) for each in fast.considered)


def test_options_are_added_to_it(verdicts, monkeypatch):
    monkeypatch.setattr(auto, "settings_for", lambda _: ("_wider",))
    monkeypatch.setattr(auto, "min_ns_of", lambda _: 0.0)
    verdicts += [SLOWER, FASTER, FASTER.__class__(speedup=3.0, interval=(2.9, 3.1))]
    fast = hloenv.jit(grouped)
    for _ in range(2):
        assert_same(fast(IMAGE, KERNEL), grouped(IMAGE, KERNEL))
    (one,) = fast.decided
    assert one.options == "xla_cpu_prefer_vector_width=512"
    assert dict(one.accepted) == {"onednn-calls/convolution": 1}
    later = hloenv.jit(grouped)
    assert_same(later(IMAGE, KERNEL), grouped(IMAGE, KERNEL))
    assert [each.options for each in later.decided] == [one.options]


@pytest.mark.parametrize(
    ("function", "shapes"),
    [
        # Depthwise in one dimension.
        (
            functools.partial(convolve, groups=64, dims=("NWC", "WIO", "NWC")),
            [(1, 4096, 64), (31, 1, 64)],
        ),
        # Few output features, and few products.
        (convolve, [(8, 64, 64, 64), (3, 3, 64, 3)]),
        (convolve, [(1, 4, 4, 8), (3, 3, 8, 8)]),
        # Other forms are faster.
        (convolve, [(1, 2, 2, 512), (3, 3, 512, 512)]),
        # A gradient with respect to the kernel.
        (
            functools.partial(
                convolve, pad=[(1, 1), (1, 1)], dims=("CHWN", "IHWO", "HWNC")
            ),
            [(1, 28, 28, 64), (1, 28, 28, 64)],
        ),
    ],
)
def test_others_stay_as_they_are(function, shapes):
    structs = [jax.ShapeDtypeStruct(each, np.float32) for each in shapes]
    assert auto.calls_of(hloenv.HloModule.from_jax(function, *structs)) is None
