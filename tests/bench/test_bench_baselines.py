# SPDX-License-Identifier: Apache-2.0
"""Baselines of the leaderboard, and reuse of stored rows by a resumed run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from hloenv.bench import baselines, flags, runner
from hloenv.bench.entries import Entry
from hloenv.bench.methods import as_method, as_methods
from hloenv.bench.profile import profiles
from hloenv.bench.runner import Plan, run, version_store
from hloenv.cost.roofline import Rates
from hloenv.errors import ArgumentError
from hloenv.hlo.module import HloModule
from hloenv.measurement.config import Settings
from hloenv.measurement.store import Store
from support.modules import ONLY_ONCE

TEXT = """HloModule sums
add { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b) }
ENTRY entry {
  x = f32[16,32] parameter(0)
  y = f32[32,8] parameter(1)
  product = f32[16,8] dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  larger = f32[16,8] maximum(product, product)
  exponential = f32[16,8]{0,1} exponential(larger)
  zero = f32[] constant(0)
  rows = f32[16] reduce(exponential, zero), dimensions={1}, to_apply=add
  ROOT result = (f32[16], f32[16,8]) tuple(rows, product)
}
"""
FOUR_BITS = """HloModule four
ENTRY entry { x = s4[8] parameter(0)
  ROOT y = s32[8] convert(x) }
"""
FAST = Settings(repeats=4, timeout_s=100)


def entry(text: str = TEXT) -> Entry:
    return Entry("tests/sums", text, HloModule.from_text(text).fingerprint())


def plan(*names: str, **fields: object) -> Plan:
    made = Plan(as_methods(names), settings=FAST, version="v1", commit="c1")
    return replace(made, **fields)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store.sqlite")


def test_the_flags_of_the_baseline_are_named(monkeypatch, store):
    monkeypatch.delenv("XLA_FLAGS", raising=False)
    assert flags.baseline_flags() == flags.BASELINE_FLAGS
    given = "--xla_cpu_prefer_vector_width=128"
    monkeypatch.setenv("XLA_FLAGS", given)
    assert plan("fusion/xla").flags == f"{flags.BASELINE_FLAGS} {given}".strip()
    monkeypatch.setenv("XLA_FLAGS", "flags.txt")
    with pytest.raises(ArgumentError, match=r"flags\.txt"):
        flags.baseline_flags()


def test_settings_are_few_and_distinct():
    assert 6 <= len(flags.SETTINGS) <= 16
    assert len(set(flags.SETTINGS)) == len(flags.SETTINGS)
    definition = as_method("baseline/best-flags").definition
    assert all(each in definition for each in flags.SETTINGS)


@pytest.mark.compile
def test_xla_settings_are_timed_in_separate_processes(store):
    names = ("baseline/xla", "baseline/xla-eigen-on-one-core", "fusion/xla")
    rows = run([entry()], plan(*names), store)
    assert {row.method for row in rows} == set(names)
    for row in rows:
        assert row.is_ok, row.error
        assert row.flags == flags.baseline_flags()
        if row.is_baseline:
            assert row.low <= row.speedup <= row.high
            assert row.baseline_ns > 0 < row.median_ns
            assert row.worst_error <= 1


@pytest.mark.compile
def test_the_best_flags_are_chosen_and_measured_again(store):
    (row,) = run([entry()], plan("baseline/best-flags"), store)
    assert row.is_ok, row.error
    assert row.decide_s > 0
    chosen = tuple(row.changes)
    assert (row.same and not chosen) or chosen[0] in flags.SETTINGS
    assert row.same or row.median_ns > 0


_COMPARE = f"""
import numpy as np
from hloenv.bench.sides import Side
text = {TEXT!r}
ours = Side("xla", "", timeout_s=100)
theirs = Side("jax.jit", "", timeout_s=100)
for side in (ours, theirs):
    loaded = side.load(text, None, [0, 1], from_python=True)
    assert loaded.run_ns > 0 < loaded.compile_ns
for index in (0, 1):
    expected, outputs = ours.outputs(index), theirs.outputs(index)
    assert [each.shape for each in outputs] == [(16,), (16, 8)]
    for a, b in zip(expected, outputs):
        np.testing.assert_allclose(a, b, rtol=1e-5)
    assert ours.compare(index, outputs).is_equal
    wrong = [outputs[0], outputs[1] * 1.1]
    assert not ours.compare(index, wrong).is_equal
theirs.renew()
assert len(theirs.time(2, 3)) == len(ours.time(2, 3)) == 3
"""


@pytest.mark.compile
@pytest.mark.needs("jax")
def test_jax_jit_outputs_are_compared(run_child):
    run_child(_COMPARE)


@pytest.mark.compile
@pytest.mark.needs("jax")
def test_jax_jit_is_a_method_and_its_rejections_are_errors(store):
    (row,) = run([entry()], plan("baseline/jax.jit"), store)
    assert row.is_ok, row.error
    assert row.median_ns > 0
    (refused,) = run([entry(FOUR_BITS)], plan("baseline/jax.jit"), store)
    assert refused.error.startswith("CompileError: jax has no arrays of type s4")


_CRASH = """
import os, signal
from hloenv.bench import sides
from hloenv.errors import MeasureTimeout, WorkerError

class Crashes:
    def __init__(self, *_):
        os.kill(os.getpid(), signal.SIGSEGV)

class Hangs:
    def __init__(self, *_):
        signal.pause()

for made, error in ((Crashes, WorkerError), (Hangs, MeasureTimeout)):
    sides._Xla = made
    side = sides.Side("xla", "", timeout_s=2)
    try:
        side.load("", None, [0], from_python=False)
    except error as found:
        print(found)
    else:
        raise AssertionError(made)
    side.close()
    side.close()
"""


def test_a_side_that_crashes_or_hangs_is_an_error(run_child):
    out = run_child(_CRASH).stdout
    assert "SIGSEGV" in out
    assert "no answer within 2 s" in out


@pytest.mark.compile
def test_rows_of_another_version_are_not_reused(store, monkeypatch):
    name = "live/accept-all"
    first = run([entry()], plan(name), store)
    jobs = []
    monkeypatch.setattr(runner, "Job", lambda *a, **k: jobs.append(a) or _stop())
    again = run([entry()], plan(name), store)
    assert repr(again) == repr(first)
    assert not jobs
    for changed in (
        plan(name, version="v2"),
        plan(name, flags="--xla_cpu_enable_fast_math=true"),
        plan(name, settings=replace(FAST, threads=2)),
        plan(name, again=True),
    ):
        with pytest.raises(_StoppedError):
            run([entry()], changed, store)
    # Nor measurements and times of kernels.
    one, other = (version_store(store.path, each) for each in ("v1", "v2"))
    assert one != other
    assert one.exists()
    assert not other.exists()


def test_another_definition_of_a_space_is_another_row():
    key = runner._key(entry(), "small-dots/accept-all", 0, plan("fusion/xla"))
    other = runner._key(entry(), "dots/accept-all", 0, plan("fusion/xla"))
    assert "max_products" in key.variant
    assert key.variant != other.variant


@pytest.mark.compile
def test_a_timeout_is_a_row_and_is_repeated(store, monkeypatch):
    names = ("live/accept-all", "fusion/xla")
    monkeypatch.setattr(runner, "_reason", lambda *_: "MeasureTimeout: late")
    monkeypatch.setattr(
        runner._Part, "function", property(lambda _: "hloenv.no_such:thing")
    )
    rows = run([entry()], plan(*names), store)
    assert [row.error for row in rows] == ["MeasureTimeout: late"] * 2
    # Where there is no time to try again, the timeout stays a row.
    late = run([entry()], plan(*names), store, seconds=-1)
    assert [row.error for row in late] == ["MeasureTimeout: late"] * 2
    monkeypatch.undo()
    again = run([entry()], plan(*names), store)
    assert all(row.is_ok for row in again)


class _StoppedError(Exception):
    pass


def _stop() -> None:
    raise _StoppedError


def test_every_baseline_has_a_description():
    assert {"jax.jit", "xla-eigen-on-one-core", "best-flags"} <= set(
        baselines.BASELINES
    )
    for each in baselines.BASELINES.values():
        assert each.summary
        assert each.settings


@pytest.mark.compile
def test_a_profile_of_a_module_that_the_pipeline_takes_only_once(store):
    (profile,) = profiles([entry(ONLY_ONCE)], plan("fusion/xla"), store)
    assert not profile.error


@pytest.mark.compile
def test_a_profile_has_the_module_and_its_kernel_times(store):
    made = plan("fusion/xla")
    (profile,) = profiles([entry()], made, store)
    assert not profile.error
    assert sum(profile.shares.values()) == pytest.approx(1)
    assert profile.shares["dot"] > 0
    dot_flops = 2 * 16 * 32 * 8
    assert dot_flops <= profile.flops < 1.5 * dot_flops
    arguments = 4 * (16 * 32 + 32 * 8 + 16 + 16 * 8)
    assert profile.argument_bytes == arguments <= profile.moved_bytes
    rates = Rates(dot_flops_per_s=1e9, memory_bytes_per_s=1e12)
    assert profile.floor_s(rates) == profile.flops / 1e9
    assert profiles([entry()], made, store) == [profile]
