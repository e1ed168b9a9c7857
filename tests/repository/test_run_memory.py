# SPDX-License-Identifier: Apache-2.0
"""The page of kept memory."""

from __future__ import annotations

import argparse

import pytest

import run_memory


def row(name, given, kept, point=""):
    return {
        "name": name,
        "repository": "r",
        "entry_point": point,
        "given": {"ns": given, "fresh": 49 << 20},
        "kept": {"ns": kept, "fresh": 0.0},
    }


def test_the_page():
    arguments = argparse.Namespace(cores=1, split="test", seed=0)
    rows = [
        row("x + 1, 64 MiB", 8e6, 2e6),
        row("a", 4e6, 1e6, "a"),
        {"name": "b", "repository": "r", "entry_point": "b", "error": "not done"},
    ]
    text = "\n".join(run_memory.report(rows, arguments))
    assert "| x + 1, 64 MiB | 8.000 ms | 2.000 ms | 49.0 MiB | 0.0 MiB | 4.00 |" in text
    # 4 and a failure.
    assert "geometric mean 2.000" in text
    assert "not done" in text


def test_the_less_of_two_processes_each_way_counts(monkeypatch):
    times = iter([8e6, 2e6, 6e6, 3e6])
    asked = []

    def run(words, **_):
        asked.append("--keep" in words)
        return {"ns": next(times), "fresh": 0.0}

    monkeypatch.setattr(run_memory, "run_again", run)
    arguments = argparse.Namespace(split="test", extent="real", seconds=0.1, cores=1)
    found = run_memory.both("x + 1, 4 MiB", arguments)
    assert asked == [False, True, False, True]
    assert run_memory.speedup_of(found) == 3
    monkeypatch.setattr(run_memory, "run_again", lambda *_, **__: {"error": "e"})
    assert run_memory.speedup_of(run_memory.both("f", arguments)) == 1


@pytest.mark.jax
@pytest.mark.compile
@pytest.mark.parametrize("name", ["x + 1", "log-softmax", "an update of Adam"])
def test_each_function_runs(name, monkeypatch):
    monkeypatch.setattr(run_memory, "_SIZES", {"small": 1 << 10})
    call = run_memory.call_of(f"{name}, small", argparse.Namespace())
    assert run_memory.measure(call, 0.0)["ns"] > 0
