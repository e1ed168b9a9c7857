# SPDX-License-Identifier: Apache-2.0
"""The engine "jaxlib": modules compiled and run by the XLA of jax.jit."""

from __future__ import annotations

import numpy as np
import pytest

import hloenv
from hloenv.cost import KernelCache
from hloenv.cost.profile import profile
from hloenv.errors import ArgumentError, CompileError
from hloenv.measurement import Measurement, Settings, Store
from hloenv.policies import get_policy
from hloenv.runtime.executable import time_runs
from hloenv.runtime.jaxlib import executable as jaxlib_executable
from hloenv.runtime.random_inputs import random_inputs
from support.fake_time import FakeTime

pytestmark = [pytest.mark.jax, pytest.mark.compile]

# Types of 64 bits, which jax has only on request, among others.
TYPES = """HloModule types

ENTRY entry {
  a = f32[16,24] parameter(0)
  b = f64[3] parameter(1)
  c = bf16[5] parameter(2)
  d = s64[2] parameter(3)
  e = pred[4] parameter(4)
  f = c64[2] parameter(5)
  unused = f32[7] parameter(6)
  g = f32[16,24] tanh(a)
  h = f64[3] multiply(b, b)
  i = bf16[5] add(c, c)
  j = s64[2] add(d, d)
  k = pred[4] not(e)
  l = c64[2] multiply(f, f)
  ROOT all = (f32[16,24], f64[3], bf16[5], s64[2], pred[4], c64[2]) tuple(g, h, i, j, k, l)
}
"""
ADD_ZERO = """HloModule add_zero

ENTRY entry {
  p = f32[8] parameter(0)
  zero = f32[] constant(0)
  zeros = f32[8] broadcast(zero), dimensions={}
  q = f32[8] add(p, zeros)
  ROOT r = f32[8] multiply(q, p)
}
"""
DEPTHWISE = """HloModule depthwise

ENTRY entry {
  x = f32[1,14,14,32] parameter(0)
  w = f32[3,3,1,32] parameter(1)
  ROOT y = f32[1,12,12,32] convolution(x, w), window={size=3x3},
    dim_labels=b01f_01io->b01f, feature_group_count=32
}
"""
COLUMNS = """HloModule columns, entry_computation_layout={(f32[3,4]{0,1})->f32[4,3]{0,1}}

ENTRY entry {
  p = f32[3,4]{0,1} parameter(0)
  t = f32[4,3]{0,1} transpose(p), dimensions={1,0}
  ROOT n = f32[4,3]{0,1} negate(t)
}
"""
LOOP = """HloModule loop

condition {
  p = (s32[], f32[256]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  n = s32[] constant(20)
  ROOT less = pred[] compare(i, n), direction=LT
}

body {
  p = (s32[], f32[256]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  x = f32[256] get-tuple-element(p), index=1
  one = s32[] constant(1)
  j = s32[] add(i, one)
  y = f32[256] cosine(x)
  ROOT t = (s32[], f32[256]) tuple(j, y)
}

ENTRY entry {
  x = f32[256] parameter(0)
  zero = s32[] constant(0)
  start = (s32[], f32[256]) tuple(zero, x)
  loop = (s32[], f32[256]) while(start), condition=condition, body=body
  ROOT y = f32[256] get-tuple-element(loop), index=1
}
"""


def by_jaxlib(module, **options):
    return hloenv.compile(module, engine="jaxlib", **options)


@pytest.mark.parametrize("finish", ["legalize", "xla", "none"])
def test_both_engines_compute_the_same(finish):
    module = hloenv.HloModule.from_text(TYPES)
    inputs = random_inputs(module)
    expected = hloenv.compile(module)(*inputs)
    given = hloenv.finish(module) if finish == "none" else module
    outputs = by_jaxlib(given, finish=finish)(*inputs)
    assert [each.dtype for each in outputs] == [each.dtype for each in expected]
    for one, other in zip(outputs, expected, strict=True):
        np.testing.assert_allclose(
            one.astype(np.complex128), other.astype(np.complex128), rtol=1e-6
        )


def test_a_final_module_runs_as_it_is():
    # Not what any pass would make of it: jaxlib would remove the addition.
    module = hloenv.HloModule.from_text(ADD_ZERO)
    executable = by_jaxlib(module, finish="none")
    assert executable.module.opcode_counts()["add"] == 1
    assert "add" not in by_jaxlib(module).module.opcode_counts()
    p = np.arange(8, dtype=np.float32)
    (output,) = executable(p)
    np.testing.assert_array_equal(output, p * p)


def test_the_final_module_replaces_the_one_with_its_interface():
    final = hloenv.finish(hloenv.HloModule.from_text(ADD_ZERO))
    (output,) = by_jaxlib(final, finish="none")(np.full(8, 3, np.float32))
    np.testing.assert_array_equal(output, np.full(8, 9, np.float32))


def test_rejected_rewrites_stay_rejected():
    env = hloenv.HloEnv(hloenv.HloModule.from_text(ADD_ZERO))
    alternatives = env.get_alternatives("algsimp")
    assert len(alternatives) == 1
    env.apply_alternatives([0], alternatives)
    executable = by_jaxlib(env.module)
    assert executable.module.fingerprint() == hloenv.finish(env.module).fingerprint()
    text = executable.module.to_text()
    assert "add(" in text


def test_accepted_forms_go_through_jaxlibs_own_pipeline():
    env = hloenv.HloEnv(hloenv.HloModule.from_text(DEPTHWISE))
    alternatives = env.get_alternatives("convolution-forms")
    env.apply_alternatives(get_policy("known-forms")(alternatives), alternatives)
    executable = by_jaxlib(env.module)
    assert "convolution" not in executable.module.to_text()
    # jaxlib's module, not the wheel's.
    assert executable.module.name.startswith("jit_hloenv")
    inputs = random_inputs(env.module)
    np.testing.assert_allclose(
        executable(*inputs)[0], hloenv.compile(DEPTHWISE)(*inputs)[0], atol=1e-5
    )


def test_orders_in_memory_other_than_jaxs_are_kept():
    module = hloenv.HloModule.from_text(COLUMNS)
    p = np.arange(12, dtype=np.float32).reshape(3, 4)
    executable = by_jaxlib(module, finish="none")
    assert executable.module.entry_layout == module.entry_layout
    np.testing.assert_array_equal(executable(p)[0], -p.T)
    assert (executable.run(3, inputs=[p]) > 0).all()


def test_donated_inputs_are_not_modified():
    text = ADD_ZERO.replace(
        "HloModule add_zero", "HloModule d, input_output_alias={ {}: (0, {}) }"
    )
    p = np.ones(8, np.float32)
    for finish in ("legalize", "none"):
        (output,) = by_jaxlib(text, finish=finish)(p)
        np.testing.assert_array_equal(output, p)
        output += 1
        np.testing.assert_array_equal(p, np.ones(8, np.float32))


def test_jaxs_settings_do_not_change():
    import jax

    before = bool(jax.config.jax_enable_x64)
    by_jaxlib(TYPES).run(2)
    assert bool(jax.config.jax_enable_x64) == before


@pytest.mark.parametrize(
    ("text", "options", "error", "message"),
    [
        (
            "HloModule m\nENTRY e {\n  ROOT p = s4[8] parameter(0)\n}\n",
            {},
            CompileError,
            "no arrays of type s4",
        ),
        (
            "HloModule m\nENTRY e {\n  ROOT t = token[] after-all()\n}\n",
            {"finish": "none", "isolate": False},
            CompileError,
            "no arrays of type token",
        ),
        (ADD_ZERO, {"engine": "tpu"}, ArgumentError, "wheel, jaxlib, got 'tpu'"),
        (ADD_ZERO, {"finish": "all"}, CompileError, "finish must be one of"),
    ],
)
def test_what_cannot_be_compiled_raises(text, options, error, message):
    with pytest.raises(error, match=message):
        hloenv.compile(text, **{"engine": "jaxlib", **options})


def test_arrays_that_do_not_fit_raise():
    executable = by_jaxlib(ADD_ZERO)
    with pytest.raises(ArgumentError, match="takes 1 arrays, got 2"):
        executable(np.ones(8, np.float32), np.ones(8, np.float32))
    with pytest.raises(ArgumentError, match="argument 0 is float64"):
        executable(np.ones(8))


def test_steps_of_a_loop_count_its_iterations():
    times = by_jaxlib(LOOP).time_steps(3)
    runs = dict(zip(times.names, times.runs, strict=True))
    assert max(runs.values()) == 20
    assert times.durations_ns.shape == (3, len(times.names))
    # Self times: together not more than the runs took.
    assert (times.durations_ns.sum(axis=1) <= times.totals_ns).all()


def test_measurements_compare_outputs_and_name_the_engine(tmp_path):
    module = hloenv.HloModule.from_text(LOOP)
    wrong = hloenv.HloModule.from_text(LOOP.replace("constant(20)", "constant(3)"))
    with Store(tmp_path / "store.sqlite") as store:
        settings = {"repeats": 3, "store": store}
        first = hloenv.measure(module, engine="jaxlib", **settings)
        assert first.is_ok
        assert first.engine == "jaxlib"
        assert Measurement.from_json(first.to_json()) == first
        assert hloenv.measure(module, engine="jaxlib", **settings) == first
        # Another key of the store.
        assert hloenv.measure(module, **settings).engine == "wheel"
        bad = hloenv.measure(wrong, baseline=module, engine="jaxlib", repeats=3)
    assert bad.error is not None
    assert bad.error.kind == "OutputMismatchError"


def test_both_engines_are_timed_in_the_same_rounds():
    module = hloenv.HloModule.from_text(TYPES)
    both = [hloenv.compile(module, engine=each) for each in ("wheel", "jaxlib")]
    inputs = random_inputs(module)
    found = time_runs(both, [inputs, None], repeats=5, batch=[2, 1])
    assert [each.shape for each in found] == [(5,), (5,)]
    assert all((each > 0).all() for each in found)


def test_measurements_from_before_there_were_engines_are_read():
    row = Measurement("a", "b", "legalize", 0).to_json()
    del row["engine"]
    assert Measurement.from_json(row).engine == "wheel"


def test_settings_name_an_engine():
    with pytest.raises(ArgumentError, match="engine must be one of"):
        Settings(engine="gpu")


def test_kernels_are_estimated_for_each_engine(tmp_path):
    module = hloenv.HloModule.from_text(LOOP)
    with Store(tmp_path / "store.sqlite") as store:
        with KernelCache(store=store) as cache:
            assert cache.estimate(module).num_timed > 0
        with KernelCache(store=store, engine="jaxlib") as cache:
            estimate = cache.estimate(module)
            assert estimate.is_ok, estimate.error
            assert estimate.num_timed == estimate.num_kernels > 0
            assert cache.estimate(module).seconds == estimate.seconds
    with pytest.raises(ArgumentError, match="engine must be one of"):
        KernelCache(engine="gpu")


def test_a_profile_of_jaxlib_has_its_kernels():
    found = profile(hloenv.HloModule.from_text(LOOP), engine="jaxlib")
    assert found.seconds > 0
    assert max(each.runs for each in found.kernels) == 20
    assert sum(each.share for each in found.kernels) == pytest.approx(1)
    assert "LLVM kernel" in {each.emitter for each in found.kernels}


def test_runs_are_timed_after_an_untimed_one_and_long_ones_after_a_pause(monkeypatch):
    fake = FakeTime(monkeypatch, jaxlib_executable)

    def timed(a_s, b_s):
        fake.calls.clear()
        pair = fake.taking("a", a_s), fake.taking("b", b_s)
        return jaxlib_executable.time_calls(pair, [1, 2], repeats=3, warmup=1, seed=0)

    durations = timed(0.002, 0.001)
    assert [each.tolist() for each in durations] == [[2_000_000] * 3, [1_000_000] * 3]
    # One untimed before each sample.
    counts = [fake.calls.count(name) for name in "ab"]
    assert (counts, fake.pauses) == ([4 * 2, 4 * 3], [])
    durations = timed(0.2, 0.001)
    assert [each.tolist() for each in durations] == [[200_000_000] * 3, [1_000_000] * 3]
    # But for the first of them, at most.
    assert set(fake.pauses) == {jaxlib_executable.PAUSE_S}
    assert len(fake.pauses) >= 6


CALL = """HloModule call

ENTRY entry {{
  x = f32[4,4] parameter(0)
  {line}
  ROOT y = f32[4,4] negate(x)
}}
"""


@pytest.mark.parametrize("engine", ["wheel", "jaxlib"])
@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        (["t = token[] after-all()", "o = token[] outfeed(x, t)"], "outfeed"),
        (["t = token[] after-all()", "i = (f32[2], token[]) infeed(t)"], "infeed"),
    ],
)
def test_what_would_wait_for_a_host_is_refused(engine, lines, reason):
    text = CALL.format(line="\n  ".join(lines))
    with pytest.raises(CompileError, match=f"is an {reason}: it would wait"):
        hloenv.compile(text, engine=engine)


@pytest.mark.parametrize("engine", ["wheel", "jaxlib"])
@pytest.mark.parametrize(
    ("target", "reason"),
    [
        ("TopK", "results do not fit"),
        ("xla_ffi_python_cpu_callback", "it calls Python in the process"),
    ],
)
def test_calls_that_would_end_the_process_are_refused(engine, target, reason):
    text = f"""HloModule call

ENTRY entry {{
  x = f32[4,4] parameter(0)
  ROOT y = (f32[4,9], s32[4,9]) custom-call(x), custom_call_target="{target}"
}}
"""
    with pytest.raises(CompileError, match=reason):
        hloenv.compile(text, engine=engine)
