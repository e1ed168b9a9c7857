# SPDX-License-Identifier: Apache-2.0
"""Timing modules, in this process and in child processes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import hloenv
from hloenv import compile, measure
from hloenv.measurement.statistics import speedup_interval, speedup_of
from hloenv.runtime.executable import time_runs
from support.modules import ADD, entry_of

pytestmark = pytest.mark.compile


def test_run_times_every_run():
    durations = compile(ADD).run(repeats=7)
    assert durations.shape == (7,)
    assert durations.dtype == np.int64
    assert (durations > 0).all()


def test_executables_are_timed_in_turns():
    executable = compile(ADD)
    times = time_runs([executable, executable], [None, None], repeats=4)
    assert [len(each) for each in times] == [4, 4]


WRONG = ADD.replace("add(a, b)", "subtract(a, b)")
OTHER_INPUTS = ADD.replace("f32[3,4]", "f32[4,3]")
UNKNOWN_CALL = ADD.replace("add(a, b)", 'custom-call(a, b), custom_call_target="x"')


def test_measure_keeps_every_duration():
    result = measure(ADD, repeats=20)
    assert result.is_ok
    assert len(result.durations_ns) == len(result.baseline_ns) == 20
    low, high = result.speedup_interval
    assert low <= result.speedup <= high
    assert result.outputs is not None
    assert result.outputs.is_equal
    assert result.check() is result
    assert result.threads == 1
    assert sum(result.copies) == 20


def test_a_failure_is_a_record_and_others_continue():
    results = measure(
        [ADD, WRONG, OTHER_INPUTS, UNKNOWN_CALL, ADD], baseline=ADD, repeats=5
    )
    kinds = [None if each.error is None else each.error.kind for each in results]
    assert kinds == [
        None,
        "OutputMismatchError",
        "ArgumentError",
        "CompileError",
        None,
    ]
    assert "f32[4, 3]" in results[2].error.message
    with pytest.raises(hloenv.OutputMismatchError, match="worst is output 0"):
        results[1].check()
    assert np.isnan(results[3].speedup)


def test_integers_are_compared_over_their_whole_range():
    module = """HloModule m

ENTRY e {
  x = s32[64] parameter(0)
  two = s32[] constant(2)
  twos = s32[64] broadcast(two), dimensions={}
  m = s32[64] multiply(x, twos)
  ROOT r = s32[64] divide(m, twos)
}
"""
    same = module.replace("multiply(x, twos)", "add(x, x)")
    wrong = module.replace("ROOT r = s32[64] divide(m, twos)", "").replace(
        "m = s32[64] multiply(x, twos)", "ROOT m = s32[64] copy(x)"
    )
    results = measure([same, wrong], baseline=module, repeats=5)
    kinds = [None if each.error is None else each.error.kind for each in results]
    assert kinds == [None, "OutputMismatchError"]


def test_programs_whose_outputs_are_all_nan_are_not_compared():
    logarithm = """HloModule m
    ENTRY main {
      p = f32[4]{0} parameter(0)
      square = f32[4]{0} multiply(p, p)
      minus = f32[4]{0} negate(square)
      ROOT r = f32[4]{0} log(minus)
    }"""
    same, other = measure(
        [logarithm, logarithm.replace("log(", "sqrt(")], baseline=logarithm, repeats=5
    )
    assert same.is_ok  # the same program
    assert other.error is not None
    assert other.error.kind == "NotComparedError"
    assert np.isnan(other.speedup)
    assert "give inputs" in str(other)


def test_a_crash_does_not_affect_other_modules(hlo_dir: Path):
    path = hlo_dir / "brax" / "sac_actor_grad.txt"
    raw = hloenv.HloModule.from_file(path)
    results = measure([raw, hloenv.finish(raw)], baseline=raw, finish="none", repeats=3)
    assert results[0].error.kind == "WorkerError"
    assert "SIGABRT" in results[0].error.message
    assert "Check failed" in results[0].error.message
    assert results[1].is_ok


LOOP = """
HloModule loop
cond { p = (s32[], f32[]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  n = s32[] constant(2000000000)
  ROOT lt = pred[] compare(i, n), direction=LT }
body { p = (s32[], f32[]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  x = f32[] get-tuple-element(p), index=1
  one = s32[] constant(1)
  j = s32[] add(i, one)
  y = f32[] cosine(x)
  ROOT t = (s32[], f32[]) tuple(j, y) }
ENTRY e { x = f32[] parameter(0)
  zero = s32[] constant(0)
  t = (s32[], f32[]) tuple(zero, x)
  w = (s32[], f32[]) while(t), condition=cond, body=body
  ROOT r = f32[] get-tuple-element(w), index=1 }
"""
QUICK = LOOP.replace("2000000000", "3")


def test_a_timeout_is_a_record():
    results = measure([LOOP, QUICK], baseline=QUICK, repeats=3, timeout_s=5)
    assert results[0].error.kind == "MeasureTimeout"
    with pytest.raises(TimeoutError):
        results[0].check()
    assert results[1].is_ok


def test_a_baseline_that_fails_is_an_exception():
    with pytest.raises(hloenv.CompileError, match="no implementation"):
        measure(ADD, baseline=UNKNOWN_CALL)


def test_the_memory_of_a_measurement_can_be_limited():
    text = entry_of(
        "a = f32[] parameter(0)",
        """b = f32[40000,40000] broadcast(a), dimensions={}
        ROOT r = f32[40000,40000] cosine(b)""",
    )
    results = measure(
        [text.replace("40000,40000", "40,40")], max_memory_bytes=2**31, repeats=2
    )
    assert results[0].is_ok
    with pytest.raises(hloenv.HloEnvError):
        measure(text, max_memory_bytes=2**31, repeats=2)


def test_repeats_are_checked():
    with pytest.raises(hloenv.ArgumentError, match=r"repeats must be .* got 0"):
        measure(ADD, repeats=0)


def test_the_interval_holds_the_ratio():
    rng = np.random.default_rng(0)
    base = (1000 + 50 * rng.standard_normal(200)).astype(int).tolist()
    half = (500 + 25 * rng.standard_normal(200)).astype(int).tolist()
    for copies in [(), (20,) * 10]:
        low, high = speedup_interval(base, half, copies)
        assert 1.9 < low < speedup_of(base, half, copies) < high < 2.1
        assert (low, high) == speedup_interval(base, half, copies)


def test_executables_free_their_code():
    def maps() -> int:
        return len(Path("/proc/self/maps").read_text().splitlines())

    compile(ADD)
    before = maps()
    for _ in range(5):
        compile(ADD)
    assert maps() - before < 5


def test_a_copy_computes_the_same_at_another_address():
    executable = compile(ADD)
    arrays = hloenv.random_inputs(ADD)
    copy = executable.copy()
    np.testing.assert_array_equal(copy(*arrays)[0], executable(*arrays)[0])
    del executable
    copy(*arrays)


def test_several_copies_share_the_rounds():
    result = measure(ADD, repeats=50)
    assert len(result.copies) == 6
    assert sum(result.copies) == len(result.durations_ns) == 50


def test_timing_stops_once_the_speedup_is_known():
    loops = LOOP.replace("2000000000", "20000"), LOOP.replace("2000000000", "40000")
    result = measure(loops[1], baseline=loops[0], give_up_below=0.8)
    # Both loops come to the fixed point of the cosine.
    assert result.is_ok
    assert result.stopped == "slower"
    assert len(result.copies) < 24


def test_outputs_are_compared_on_every_set_of_inputs():
    text = entry_of(
        "a = f32[] parameter(0)",
        """zero = f32[] constant(0)
        ROOT r = f32[] maximum(a, zero)""",
    )
    positive = entry_of("ROOT a = f32[] parameter(0)", "")
    signs = [float(hloenv.random_inputs(text, seed=seed)[0]) > 0 for seed in range(9)]
    seed = next(i for i in range(8) if signs[i] and not signs[i + 1])
    one = measure(positive, baseline=text, seed=seed, repeats=2, input_sets=1)
    two = measure(positive, baseline=text, seed=seed, repeats=2)
    assert one.is_ok
    assert two.error.kind == "OutputMismatchError"


def test_inputs_come_from_files(tmp_path: Path):
    arrays = [np.ones((3, 4), np.float32), np.full((3, 4), 2, np.float32)]
    np.savez(tmp_path / "inputs.npz", *arrays)
    result = measure(ADD, inputs=tmp_path / "inputs.npz", repeats=2)
    assert result.is_ok
    assert result.inputs.startswith("given (")
    with pytest.raises(hloenv.ArgumentError, match="input 1 is float64"):
        measure(ADD, inputs=[arrays[0], np.ones((3, 4))])
    with pytest.raises(hloenv.ArgumentError, match="got 1 inputs"):
        measure(ADD, inputs=arrays[:1])
    np.savez(tmp_path / "named.npz", x=arrays[0], y=arrays[1])
    with pytest.raises(hloenv.ArgumentError, match="numbers 0 to 1"):
        measure(ADD, inputs=tmp_path / "named.npz")


def test_nothing_is_measured_twice_unless_asked():
    with hloenv.Store(":memory:") as store:
        first = measure([ADD, WRONG], baseline=ADD, repeats=3, store=store)
        second = measure([WRONG, ADD], baseline=ADD, repeats=3, store=store)
        assert second == first[::-1]
        assert second[0].error.kind == "OutputMismatchError"
        other = measure(ADD, baseline=ADD, repeats=4, store=store)
        assert len(other.durations_ns) == 4
        again = measure(ADD, baseline=ADD, repeats=3, store=store, again=True)
        assert again.time > first[0].time


def test_modules_of_any_name_are_measured() -> None:
    """A proto may look like text: the length of the name is its second byte."""
    text = "HloModule HloModuleTest\nENTRY e { p = f32[8] parameter(0) ROOT r = f32[8] tanh(p) }"
    module = hloenv.HloModule.from_text(text)
    assert hloenv.measure(module, repeats=1).is_ok
