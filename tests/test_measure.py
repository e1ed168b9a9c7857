# SPDX-License-Identifier: Apache-2.0
"""Timing modules, in this process and in child processes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import hloenv
from hloenv.evaluate import bootstrap_ratio, compile, measure
from hloenv.executable import time_runs

pytestmark = pytest.mark.compile


ADD = """
HloModule add
ENTRY e {
  a = f32[3,4] parameter(0)
  b = f32[3,4] parameter(1)
  ROOT r = f32[3,4] add(a, b)
}
"""


def hlo(parameters: str, body: str) -> str:
    """A module whose entry has the given lines."""
    lines = "".join(f"  {line}\n" for line in body.strip().split("\n"))
    return f"HloModule m\nENTRY e {{\n  {parameters}\n{lines}}}\n"


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
    assert result.num_threads >= 1


def test_what_fails_is_a_record_and_stops_nobody():
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


def test_a_module_that_dies_takes_no_other_along(hlo_dir: Path):
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


def test_what_takes_too_long_is_a_record():
    results = measure([LOOP, QUICK], baseline=QUICK, repeats=3, timeout_s=5)
    assert results[0].error.kind == "MeasureTimeout"
    with pytest.raises(TimeoutError):
        results[0].check()
    assert results[1].is_ok


def test_a_baseline_that_fails_is_an_exception():
    with pytest.raises(hloenv.CompileError, match="nobody implements"):
        measure(ADD, baseline=UNKNOWN_CALL)


def test_the_memory_of_a_measurement_can_be_limited():
    text = hlo(
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
    with pytest.raises(hloenv.ArgumentError, match="repeats is 0"):
        measure(ADD, repeats=0)


def test_the_bootstrap_interval_holds_the_ratio():
    rng = np.random.default_rng(0)
    base = (1000 + 50 * rng.standard_normal(200)).astype(int).tolist()
    half = (500 + 25 * rng.standard_normal(200)).astype(int).tolist()
    low, high = bootstrap_ratio(base, half)
    assert 1.9 < low < 2 < high < 2.1
    assert (low, high) == bootstrap_ratio(base, half)
