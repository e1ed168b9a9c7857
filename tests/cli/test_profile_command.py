# SPDX-License-Identifier: Apache-2.0
"""The command `hloenv profile`, and the profile behind it."""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path

import pytest

import hloenv
from hloenv.cli import main
from hloenv.cli import profile as command
from hloenv.cli.arguments import engine_of
from hloenv.cost.profile import Kernel, ModuleProfile, profile
from hloenv.cost.roofline import Rates
from hloenv.hlo.pipeline import finish
from support.modules import ONLY_ONCE

pytestmark = pytest.mark.compile

# A library's product, a loop of five iterations, and a fusion.
MODEL = """HloModule model

add {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT s = f32[] add(a, b)
}

body {
  state = (s32[], f32[128,128]) parameter(0)
  i = s32[] get-tuple-element(state), index=0
  x = f32[128,128] get-tuple-element(state), index=1
  one = s32[] constant(1)
  next = s32[] add(i, one)
  y = f32[128,128] dot(x, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  t = f32[128,128] tanh(y)
  ROOT result = (s32[], f32[128,128]) tuple(next, t)
}

condition {
  state = (s32[], f32[128,128]) parameter(0)
  i = s32[] get-tuple-element(state), index=0
  five = s32[] constant(5)
  ROOT less = pred[] compare(i, five), direction=LT
}

ENTRY entry {
  x = f32[128,128] parameter(0)
  zero = s32[] constant(0)
  start = (s32[], f32[128,128]) tuple(zero, x)
  loop = (s32[], f32[128,128]) while(start), condition=condition, body=body
  y = f32[128,128] get-tuple-element(loop), index=1
  nothing = f32[] constant(0)
  ROOT total = f32[128] reduce(y, nothing), dimensions={1}, to_apply=add
}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Has model.hlo, and is the working directory."""
    (tmp_path / "model.hlo").write_text(MODEL)
    monkeypatch.setenv("HLOENV_STORE", str(tmp_path / "store.sqlite"))
    monkeypatch.setattr(command, "calibrate", lambda **_: Rates())
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_kernels_of_a_module():
    found = profile(hloenv.HloModule.from_text(MODEL))
    assert found.seconds > 0
    assert math.isclose(sum(each.share for each in found.kernels), 1)
    shares = [each.share for each in found.kernels]
    assert shares == sorted(shares, reverse=True)
    (product,) = [each for each in found.kernels if each.opcode == "dot"]
    assert product.runs == 5
    assert product.flops == pytest.approx(5 * 2 * 128**3, rel=0.01)
    assert product.emitter.startswith("library")
    assert {"LLVM kernel"} <= {each.emitter for each in found.kernels}


def test_a_module_that_the_pipeline_takes_only_once():
    module = hloenv.HloModule.from_text(ONLY_ONCE)
    with pytest.raises(hloenv.HloEnvError, match="layout"):
        finish(finish(module))
    found = profile(module)
    assert found.seconds > 0
    assert math.isclose(sum(each.share for each in found.kernels), 1)


@pytest.mark.parametrize(
    ("flops", "size", "expected"),
    [(1e9, 1.0, 0.5), (1.0, 1e9, 0.25), (math.nan, 1e9, 0.25)],
)
def test_the_distance_from_the_peak(flops, size, expected):
    rates = Rates(
        dot_flops_per_s=2e9,
        cache_bytes_per_s=4e9,
        cache_bytes=5e9,
        memory_bytes_per_s=1e9,
        transcendentals_per_s=1e8,
    )
    kernel = Kernel("k", "dot", "", 1, 1.0, 1.0, flops, size, "")
    assert kernel.of_peak(rates) == pytest.approx(expected)
    # Beyond the caches, and in two runs that each fit; exponentials.
    stream = Kernel("k", "fusion", "", 1, 4.0, 1.0, 1.0, 6e9, "")
    assert stream.of_peak(rates) == pytest.approx((1.25 + 1) / 4)
    twice = Kernel("k", "fusion", "", 2, 4.0, 1.0, 1.0, 6e9, "")
    assert twice.of_peak(rates) == pytest.approx(1.5 / 4)
    exponential = Kernel("k", "fusion", "", 1, 4.0, 1.0, 2e8, 8e8, "", 2e8)
    assert exponential.of_peak(rates) == pytest.approx(0.5)
    unknown = Kernel("k", "dot", "", 1, 1.0, 1.0, math.nan, math.nan, "")
    assert math.isnan(unknown.of_peak(rates))


def test_a_table_for_people(folder, capsys):
    assert main(["profile", "model.hlo", "--top", "1"]) == 0
    out = capsys.readouterr().out
    assert "a run on 1 core" in out
    assert "more kernels" in out
    assert "GFLOP/s" in out


def test_json_for_programs(folder, capsys):
    assert main(["profile", "model.hlo", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["module"] == "model"
    assert {"name", "emitter", "share", "of_peak"} <= set(found["kernels"][0])


@pytest.mark.needs("matplotlib")
def test_a_picture(folder, capsys):
    assert main(["profile", "model.hlo", "-o", "profile.png"]) == 0
    assert (folder / "profile.png").read_bytes().startswith(b"\x89PNG")
    assert main(["profile", "model.hlo", "-o", "profile.txt"]) == 1
    assert "--json has the numbers" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("given", "module", "expected"),
    [
        (None, "train.py:step", "jaxlib"),
        (None, "package.module:step", "jaxlib"),
        (None, "model.hlo", "wheel"),
        (None, "-", "wheel"),
        (None, "hloenv://dataset/test", "wheel"),
        ("wheel", "train.py:step", "wheel"),
        ("jaxlib", "model.hlo", "jaxlib"),
    ],
)
def test_a_function_is_profiled_as_jax_runs_it(folder, given, module, expected):
    args = argparse.Namespace(engine=given, module=module)
    assert engine_of(args) == expected


@pytest.mark.parametrize("fresh", [None, 0, 49 << 20])
def test_what_a_run_gets_anew_is_said(capsys, fresh):
    kernel = Kernel("k", "fusion", "LLVM kernel", 1.0, 1e-3, 1.0, 1e6, 1e6, "")
    found = ModuleProfile("m", 1, 1e-3, [kernel], fresh)
    command._print(found, Rates(), 20)
    text = capsys.readouterr().out
    assert ("a call gets 49 MiB from the system anew" in text) is bool(fresh)


@pytest.mark.jax
def test_a_run_by_jaxlib_says_what_it_gets_anew():
    module = hloenv.HloModule.from_text(MODEL)
    found = profile(module, engine="jaxlib")
    assert 0 <= found.fresh_bytes < 1 << 20
    assert found.to_json()["fresh_bytes"] == found.fresh_bytes
