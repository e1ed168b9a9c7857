# SPDX-License-Identifier: Apache-2.0
"""The command `hloenv measure`."""

from __future__ import annotations

import datetime
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import hloenv
from hloenv.cli import main
from hloenv.measurement.config import Settings
from hloenv.measurement.self_test import self_test

pytestmark = pytest.mark.compile

MODEL = """HloModule model
ENTRY entry {
  x = f32[64] parameter(0)
  y = f32[64] parameter(1)
  zero = f32[] constant(0)
  zeros = f32[64] broadcast(zero), dimensions={}
  sum = f32[64] add(x, zeros)
  ROOT result = f32[64] multiply(sum, y)
}
"""
WRONG = MODEL.replace("multiply", "divide")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Has model.hlo, same.hlo and wrong.hlo, and is the working directory."""
    for name, text in (("model", MODEL), ("same", MODEL), ("wrong", WRONG)):
        (tmp_path / f"{name}.hlo").write_text(text)
    monkeypatch.setenv("HLOENV_STORE", str(tmp_path / "store.sqlite"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def run(run, folder: Path):
    """Runs `hloenv measure ...` in few rounds; returns exit code, stdout, stderr."""
    return lambda *argv: run("measure", "--repeats", "4", *argv)


def rows(out: str) -> dict[str, list[str]]:
    """The table's rows by their first word."""
    return {line.split()[0]: line.split() for line in out.splitlines() if line.strip()}


def test_a_baseline_with_another_flag_than_xlas_default_says_so(
    run, folder: Path, monkeypatch: pytest.MonkeyPatch
):
    flag = "xla_cpu_enable_fast_min_max"
    (folder / "max.hlo").write_text(MODEL.replace("multiply", "maximum"))
    note = f"XLA's own default is faster: XLA_FLAGS=--{flag}=true"
    assert note in run("max.hlo")[1]
    assert note not in run("model.hlo")[1]
    assert note not in run("max.hlo", "--engine", "jaxlib")[1]
    monkeypatch.setenv("XLA_FLAGS", f"--{flag}=false")
    assert note not in run("max.hlo", "same.hlo")[1]


def test_candidates_are_compared_with_the_module(run):
    code, out, _ = run("model.hlo", "same.hlo", "wrong.hlo")
    assert code == 0
    found = rows(out)
    assert found["model.hlo"][-1] == "baseline"
    assert found["same.hlo"][-3:] == ["all", "rounds", "taken"]
    assert "OutputMismatchError" in out
    assert out.count("failed") == 1


def test_json_has_every_duration(run):
    code, out, _ = run("model.hlo", "same.hlo", "--json", "--seed", "3")
    assert code == 0
    found = json.loads(out)
    assert found["baseline"] == "model.hlo"
    (measured,) = found["measurements"]
    assert measured["name"] == "same.hlo"
    assert len(measured["durations_ns"]) == len(measured["baseline_ns"]) == 4
    assert measured["seed"] == 3
    assert measured["speedup"] > 0
    assert measured["error"] is None


def test_a_module_alone_is_compared_with_itself(run):
    code, out, _ = run("model.hlo")
    assert code == 0
    assert "model.hlo, once more" in out


def test_a_baseline_makes_the_module_a_candidate(run):
    code, out, _ = run("wrong.hlo", "--baseline", "model.hlo", "--json")
    found = json.loads(out)
    assert found["baseline"] == "model.hlo"
    assert [each["name"] for each in found["measurements"]] == ["wrong.hlo"]
    assert found["measurements"][0]["error"]["kind"] == "OutputMismatchError"
    # Nothing was measured.
    assert code == 1


def test_a_trace_is_a_candidate(run, folder):
    env = hloenv.HloEnv(MODEL)
    alternatives = env.get_alternatives("algsimp")
    env.apply_alternatives(np.ones(len(alternatives), np.int64), alternatives)
    env.trace.save(folder / "decided.trace.json")
    code, out, _ = run("model.hlo", "decided.trace.json", "--json")
    assert code == 0
    (measured,) = json.loads(out)["measurements"]
    assert measured["fingerprint"] == env.fingerprint()
    assert measured["fingerprint"] != measured["baseline"]


def test_stored_results_are_not_measured_again(run):
    def durations(*argv: str) -> list[int]:
        out = run("model.hlo", "same.hlo", "--json", *argv)[1]
        return json.loads(out)["measurements"][0]["durations_ns"]

    first = durations()
    assert durations() == first
    assert durations("--again") != first
    assert durations("--no-store") != first


@pytest.mark.parametrize("command", ["measure", "optimize"])
def test_without_a_store_the_results_are_shown(command, folder, monkeypatch, capsys):
    monkeypatch.setenv("HLOENV_STORE", str(folder / "model.hlo" / "store.sqlite"))
    written = [] if command == "measure" else ["-o", "d.hlo", "--force"]
    assert main([command, "model.hlo", "--repeats", "2", *written]) == 0
    out, err = capsys.readouterr()
    assert ("wrote d.hlo" if written else "model.hlo") in out
    assert err.count("warning: going on without the store") == 1
    assert "--no-store" in err


def test_a_table_marks_stored_results_with_their_age(run):
    assert "store" not in run("model.hlo", "same.hlo")[1]
    _, out, _ = run("model.hlo", "same.hlo")
    today = datetime.date.today()
    assert f"1 of 1 measurements are from the store, measured on {today}" in out
    assert "store" not in run("model.hlo", "same.hlo", "--again")[1]


def test_inputs_come_from_a_file(run, folder):
    np.savez(folder / "inputs.npz", *[np.ones(64, np.float32)] * 2)
    out = run("model.hlo", "wrong.hlo", "--inputs", "inputs.npz", "--json")[1]
    (measured,) = json.loads(out)["measurements"]
    # One times one is one divided by one.
    assert measured["error"] is None
    assert measured["inputs"].startswith("given (")


def test_measure_needs_a_module(run):
    code, _, err = run()
    assert code == 2
    assert "--self-test" in err
    assert run("model.hlo", "--precision", "0")[0] == 2


def test_self_test_of_given_modules(run):
    code, out, _ = run("--self-test", "model.hlo", "--comparisons", "2")
    *_, comparisons, missed, _, _ = rows(out)["all"]
    assert comparisons == "2"
    # One interval in twenty misses, by its meaning; one of two may be such a one.
    assert code == int(missed == "2")
    assert "of 2 comparisons" in out
    found = json.loads(
        run("--self-test", "model.hlo", "--comparisons", "1", "--json")[1]
    )
    assert found["comparisons"][0]["kind"] == "model.hlo"
    assert found["total"]["comparisons"] == 1


def test_self_test_fails_if_intervals_miss_too_often(run, monkeypatch):
    one = self_test(1, settings=Settings(repeats=4), modules={"model": MODEL})
    miss = replace(one.comparisons[0], low=1.1, high=1.2)
    result = replace(one, comparisons=(miss,) * 20)
    monkeypatch.setattr("hloenv.cli.measure.self_test", lambda *_, **__: result)
    code, out, err = run("--self-test", "--comparisons", "20")
    assert code == 1
    assert "20 of 20" in " ".join(out.split())
    assert "do not rely on them" in err


def test_policies_use_the_kernel_store_of_the_command(folder, capsys):
    argv = ["optimize", "model.hlo", "--pass", "algsimp", "--policy", "greedy-kernels"]

    def kernels(store: Path) -> int:
        with hloenv.Store(store) as opened:
            return sum(each.records for each in opened.info().counts)

    assert main([*argv, "--no-store"]) == 0
    assert not (folder / "store.sqlite").exists()
    assert main([*argv, "--store", "other.sqlite"]) == 0
    assert not (folder / "store.sqlite").exists()
    assert kernels(folder / "other.sqlite") > 0
    assert main(argv) == 0
    assert kernels(folder / "store.sqlite") > 0
