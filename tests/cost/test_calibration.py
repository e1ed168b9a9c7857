# SPDX-License-Identifier: Apache-2.0
"""The roofline, and the command that measures its constants."""

from __future__ import annotations

import json
from dataclasses import fields, replace

import pytest

import hloenv
from hloenv.cli import main
from hloenv.cost.calibration import NUM_STEPS, calibrate, load_rates, rows
from hloenv.cost.roofline import Rates, Roofline, estimate_seconds

ADD = """HloModule add
ENTRY entry {
  x = f32[1024,1024] parameter(0)
  ROOT y = f32[1024,1024] add(x, x)
}
"""


def seconds(text: str, rates: Rates | None = None) -> float:
    return estimate_seconds(hloenv.HloGraph.from_module(text), rates)


def loop(limit: str) -> str:
    """A loop that runs as often as its limit says, if XLA can tell."""
    return f"""HloModule loop
condition {{ state = (s32[], s32[], f32[65536]) parameter(0)
  i = s32[] get-tuple-element(state), index=0
  n = {limit}
  ROOT is_less = pred[] compare(i, n), direction=LT }}
body {{ state = (s32[], s32[], f32[65536]) parameter(0)
  i = s32[] get-tuple-element(state), index=0
  n = s32[] get-tuple-element(state), index=1
  x = f32[65536] get-tuple-element(state), index=2
  one = s32[] constant(1)
  next = s32[] add(i, one)
  y = f32[65536] cosine(x)
  ROOT result = (s32[], s32[], f32[65536]) tuple(next, n, y) }}
ENTRY entry {{ x = f32[65536] parameter(0)
  n = s32[] parameter(1)
  zero = s32[] constant(0)
  start = (s32[], s32[], f32[65536]) tuple(zero, n, x)
  end = (s32[], s32[], f32[65536]) while(start), condition=condition, body=body
  ROOT result = f32[65536] get-tuple-element(end), index=2 }}
"""


def test_estimates_grow_with_work():
    larger = ADD.replace("1024,1024", "4096,4096")
    assert seconds(larger) > 10 * seconds(ADD)
    slower = replace(Rates(), memory_bytes_per_s=1e9)
    assert seconds(ADD, slower) > 5 * seconds(ADD)


def test_a_dot_and_a_sum_of_as_many_flops_differ():
    dot = """HloModule dot
ENTRY entry {
  x = f32[256,256] parameter(0)
  ROOT y = f32[256,256] dot(x, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
"""
    free = Rates(cache_bytes_per_s=1e30, s_per_kernel=0)
    flops = 2 * 256**3
    assert seconds(dot, free) == pytest.approx(flops / free.dot_flops_per_s, rel=0.01)


def test_data_in_the_cache_moves_faster():
    rates = Rates(
        flops_per_s=1e30,
        cache_bytes=1e6,
        cache_bytes_per_s=1e9,
        memory_bytes_per_s=1e8,
        s_per_kernel=0,
    )
    # XLA counts an operand as often as it is read.
    moved = 3 * 4 * 1024 * 1024
    assert seconds(ADD, rates) == pytest.approx(1e-3 + (moved - 1e6) / 1e8)
    assert seconds(ADD.replace("1024,1024", "50,1000"), rates) == pytest.approx(6e-4)


def test_a_loop_counts_as_often_as_it_runs():
    once = seconds(loop("s32[] constant(1)"))
    assert seconds(loop("s32[] constant(20)")) == pytest.approx(20 * once, rel=0.05)
    unknown = seconds(loop("s32[] get-tuple-element(state), index=1"))
    assert unknown == pytest.approx(once, rel=0.05)


def test_called_computations_count_without_launch_overhead():
    body = """  a = f32[1048576] negate(x)
  b = f32[1048576] sine(a)
  ROOT c = f32[1048576] negate(b)
"""
    inlined = f"HloModule m\n\nENTRY e {{\n  x = f32[1048576] parameter(0)\n{body}}}\n"
    called = (
        f"HloModule m\n\nf {{\n  x = f32[1048576] parameter(0)\n{body}}}\n\n"
        "ENTRY e {\n  x = f32[1048576] parameter(0)\n"
        "  ROOT y = f32[1048576] call(x), to_apply=f\n}\n"
    )
    rates = Rates(s_per_kernel=1e-3)
    apart = seconds(inlined, rates)
    assert apart - seconds(called, rates) == pytest.approx(2e-3, rel=1e-6)


def test_the_roofline_estimates_the_optimized_module():
    unfused = (
        ADD.replace("add(x, x)", "add(x, x)\n")
        .replace("ROOT y", "y")
        .replace(
            "}\n",
            "  z = f32[1024,1024] negate(y)\n  ROOT r = f32[1024,1024] exponential(z)\n}\n",
        )
    )
    module = hloenv.HloModule.from_text(unfused)
    roofline = Roofline()
    one, two = roofline.estimate_many([module, hloenv.HloModule.from_text(ADD)])
    # XLA fuses the three into one kernel.
    assert one.num_kernels == two.num_kernels == 1
    assert one.is_ok
    assert one == roofline.estimate(module)
    assert one.seconds < seconds(unfused)


@pytest.mark.compile
def test_calibration_is_kept():
    steps = []
    with hloenv.Store(":memory:") as store:
        assert load_rates(store) is None
        rates = calibrate(store=store, seconds=0.01, progress=lambda: steps.append(1))
        assert load_rates(store) == rates
        assert load_rates(store, threads=2) is None
        ((key, _, value),) = store.records("calibration")
        store.put(key, {"flops_per_s": 1})
        with pytest.raises(hloenv.HloEnvError, match="hloenv calibrate"):
            load_rates(store)
    assert len(steps) == NUM_STEPS
    assert set(value) == {each.name for each in fields(Rates)}
    assert all(number > 0 for number in value.values())
    # What any processor of the last ten years does, and what none does.
    assert 1e9 < rates.dot_flops_per_s < 1e13
    assert 1e8 < rates.memory_bytes_per_s < 1e12
    assert rates.flops_per_s > rates.transcendentals_per_s
    assert rates.s_per_kernel < 1e-4


def test_command_saves_and_shows_the_rates(monkeypatch, tmp_path, capsys):
    def measured(*, threads, store, progress):
        assert (threads, str(store.path)) == (1, path)
        progress()
        return Rates()

    path = str(tmp_path / "store.sqlite")
    monkeypatch.setattr("hloenv.cli.calibrate.calibrate", measured)
    assert main(["calibrate", "--store", path]) == 0
    out = capsys.readouterr().out
    assert all(name in out for name, _, _ in rows(Rates()))
    assert "40 Gflop/s" in out
    assert path in out
    assert main(["calibrate", "--store", path, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["rates"]["flops_per_s"] == 4e10
