# SPDX-License-Identifier: Apache-2.0
"""hloenv against the best of what there is, options, and ranks of estimates."""

from __future__ import annotations

import argparse
from types import SimpleNamespace

import numpy as np
import pytest

import hloenv
import run_best
import run_estimates
import run_settings
from reporting import drawn_by_entry_point

_PAIR = """
HloModule pair
ENTRY e {
  x = f32[64,64] parameter(0)
  y = f32[64,64] parameter(1)
  d = f32[64,64] dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  t = f32[64,64] tanh(d)
  m = f32[64,64] multiply(t, x)
  s = f32[64,64] subtract(m, y)
  e = f32[64,64] exponential(s)
  c = f32[64,64] cosine(x)
  a = f32[64,64] add(e, c)
  ROOT r = (f32[64,64], f32[64,64]) tuple(a, t)
}
"""


@pytest.fixture
def record():
    module = hloenv.HloModule.from_text(_PAIR)
    rng = np.random.default_rng(0)
    arrays = [rng.normal(size=(64, 64)).astype(np.float32) for _ in range(2)]
    return SimpleNamespace(module=module, inputs=lambda: arrays)


def _row(name, speedups, final, given, ours, repository="r"):
    versions = {
        each: {"speedup": speedup, "low": speedup, "is_equal": True, "ns": 2e6}
        for each, speedup in speedups.items()
    }
    return {
        "name": name,
        "repository": repository,
        "entry_point": name,
        "versions": versions,
        "settings": {"flag=1": speedups["best flags"]},
        "given": given,
        "ours": ours,
        "final": {
            "speedup": final,
            "low": final - 0.1,
            "high": final + 0.1,
            "is_equal": True,
            "other_ns": 1e6,
            "ns": 1e6 / final,
        },
    }


def _speedups(**given):
    names = (*run_best._GIVEN, *run_best._OURS)
    return dict.fromkeys(names, 1.0) | given


def test_the_best_version_has_equal_outputs():
    rows = {
        "jax.jit": {"speedup": 1.0, "is_equal": True},
        "best flags": {"speedup": 3.0, "is_equal": False},
        "wheel's XLA": {"error": "CompileError"},
        "Enzyme-JAX": {"speedup": 1.5, "is_equal": True},
    }
    assert run_best.best_of(rows, run_best._GIVEN) == "Enzyme-JAX"
    assert run_best.best_of({"a": {"error": ""}}, ("a",)) == "jax.jit"


def test_the_page_compares_with_the_best_of_the_others():
    arguments = argparse.Namespace(seed=0, cores=1, tune_seconds=1.0)
    rows = [
        _row(
            "a",
            _speedups(**{"best flags": 2.0, "hloenv.tune": 4.0}),
            2.0,
            "best flags",
            "hloenv.tune",
        ),
        _row("b", _speedups(), 0.5, "jax.jit", "hloenv.jit"),
        {"name": "c", "repository": "r", "entry_point": "c", "error": "not done"},
    ]
    text = "\n".join(run_best.report(rows, arguments))
    # 2, 0.5 and a failure.
    line = "| hloenv over the best of the others | 1.000 |"
    assert line in text
    # 1 and 1 ms of the others, 0.5 and 2 ms of hloenv.
    assert "of those that ran: 0.800" in text
    assert "not done" in text
    # Of the first table, the program that failed.
    assert "| hloenv.jit | 1.000 |" in text
    line = next(each for each in text.splitlines() if each.startswith("| hloenv.tune"))
    assert line.endswith("| 1 | 0 | 1 | 0 |")


def test_other_outputs_count_as_1():
    row = _row("a", _speedups(**{"hloenv.jit": 4.0}), 4.0, "jax.jit", "hloenv.jit")
    assert run_best.final_of(row) == run_best.counted("hloenv.jit", row) == 4
    row["final"]["is_equal"] = row["versions"]["hloenv.jit"]["is_equal"] = False
    assert run_best.final_of(row) == run_best.counted("hloenv.jit", row) == 1


def test_the_best_of_the_others_is_clearly_faster():
    equal = {"is_equal": True, "speedup": 1.3}
    assert run_best.is_clear(equal | {"low": 1.1})
    assert not run_best.is_clear(equal | {"low": 0.9})
    assert not run_best.is_clear({"is_equal": False, "speedup": 2.0, "low": 1.9})
    assert not run_best.is_clear({"error": "CompileError"})


@pytest.mark.jax
@pytest.mark.compile
def test_each_version_is_measured(record, monkeypatch, tmp_path):
    monkeypatch.setenv("HLOENV_STORE", str(tmp_path / "store.sqlite"))
    monkeypatch.setattr(
        run_best,
        "_SETTINGS",
        ({"xla_cpu_prefer_vector_width": 128}, {"xla_no_such_flag": True}),
    )
    arguments = argparse.Namespace(seconds=0.01, tune_seconds=1.0, seed=0)
    row = run_best.measure(record, arguments)
    failed = {name for name, each in row["versions"].items() if "error" in each}
    assert failed <= {"Enzyme-JAX"}  # an extra
    assert list(row["settings"]) == ["xla_cpu_prefer_vector_width=128"]
    for name, each in row["versions"].items():
        assert name in failed or each["is_equal"], name
        assert name in failed or each["speedup"] > 0


def test_one_program_of_each_entry_point():
    records = [
        SimpleNamespace(source="s", name=f"{name}[size={size}]/forward")
        for name in ("b", "a")
        for size in range(9)
    ]
    drawn = drawn_by_entry_point(records, 0)
    assert [each.name[0] for each in drawn] == ["a", "b"]
    assert drawn == drawn_by_entry_point(records, 0)
    assert any(drawn != drawn_by_entry_point(records, seed) for seed in range(1, 9))


def test_versions_are_from_no_fusions_to_all(record):
    found = list(run_estimates.versions(record.module, 4, 0))
    counts = [str(each.to_text()).count(" fusion(") for each in found]
    assert counts[0] == 0 < counts[-1]
    # What follows the last alternatives does not fuse more.
    assert counts[-1] == max(counts)
    for each in found:
        each.verify()


@pytest.mark.compile
def test_estimates_are_compared_with_times(record, monkeypatch):
    monkeypatch.setattr(run_estimates, "_COPIES", 2)
    arguments = argparse.Namespace(threads=1, versions=5, seed=0)
    row = run_estimates.measure(record, arguments)
    assert row["versions"] == 5
    assert row["spread"] >= 1
    assert 1 <= row["cache_pick"] <= row["spread"]
    row |= {"name": "a"}
    page = argparse.Namespace(split="validation", seed=0, threads=1)
    text = "\n".join(run_estimates.report([row], page))
    assert "Median over 1 programs" in text


@pytest.mark.jax
@pytest.mark.compile
def test_options_of_the_code_generator_are_compared_with_jax_jit(record, monkeypatch):
    options = {"wide": {"xla_cpu_prefer_vector_width": 512}, "none": {"xla_no": True}}
    monkeypatch.setattr(run_settings, "_SETTINGS", options)
    arguments = argparse.Namespace(seconds=0.01, splits=["train"], cores=1)
    row = run_settings.measure(run_best.Versions(record, arguments))
    assert row["settings"]["wide"]["is_equal"]
    assert "CompileError" in row["settings"]["none"]["error"]
    row |= {"name": "a", "repository": "r", "entry_point": "e"}
    row["settings"]["wide"] |= {"speedup": 4.0, "low": 3.0, "high": 5.0}
    other = {"name": "b", "repository": "r", "entry_point": "f", "error": "not done"}
    text = "\n".join(run_settings.report([row, other], arguments))
    # 4 and a failure.
    assert "| wide | `xla_cpu_prefer_vector_width=512` | 2.000 |" in text
    assert "| a | 4.000 (3.000 to 5.000) | fails |" in text
    assert "| b | fails | fails |" in text
