# SPDX-License-Identifier: Apache-2.0
"""Error messages of commands on wrong input."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest


@pytest.fixture
def run(run):
    def call(*argv: str) -> tuple[int, str]:
        code, _, err = run(*argv, "--no-isolate")
        return code, err

    return call


def test_other_kinds_of_files_are_named(run, tmp_path: Path) -> None:
    for name, text, message in (
        ("a.py", "x = 1\n", "a.py:FUNCTION"),
        ("a.mlir", "module {}\n", "is MLIR"),
        ("a.bin", "hello\n", "neither HLO text, which starts with HloModule, nor"),
    ):
        path = tmp_path / name
        path.write_text(text)
        code, err = run("show", str(path))
        assert code == 1
        assert message in err


def test_empty_input_is_reported(run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"\n")))
    code, err = run("show", "-")
    assert code == 1
    assert "standard input is empty" in err


@pytest.mark.parametrize("command", ["search", "optimize"])
def test_a_missing_folder_is_reported_before_the_work(command: str, run, model) -> None:
    code, err = run(command, model, "--pass", "algsimp", "-o", "/nowhere/x.hlo")
    assert code == 1
    assert "cannot write /nowhere/x.hlo: its folder" in err


def test_graphs_are_written_by_their_names(run, model, tmp_path: Path) -> None:
    code, err = run("graph", model, "-o", str(tmp_path / "x.gif"))
    assert code == 1
    assert ".svg" in err
    assert run("graph", model, "-o", str(tmp_path / "x.gif"), "--format", "dot")[0] == 0


@pytest.mark.needs_program("dot")
def test_graphs_are_drawn_by_graphviz(run, model, tmp_path: Path) -> None:
    drawn = tmp_path / "x.svg"
    assert run("graph", model, "-o", str(drawn))[0] == 0
    assert "<svg" in drawn.read_text()


def test_a_missing_graphviz_is_named(
    run, model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    code, err = run("graph", model, "-o", str(tmp_path / "x.svg"))
    assert code == 1
    assert "Graphviz" in err
