# SPDX-License-Identifier: Apache-2.0
"""Error messages of commands on wrong input."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest

from hloenv.cli import main


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


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (("show", "m.hlo", "--time-limit", "1e308"), "largest is 1e+09"),
        (("explore", "m.hlo", "--port", "70000"), "1 to 65535"),
        (("optimize", "m.hlo", "--pass", "cse", "--repeats", "9" * 20), "1 to 1000000"),
        (("measure", "m.hlo", "--repeats", "9" * 5000), "1 to 1000000"),
        (("measure", "m.hlo", "--seed", "9" * 20), "0 to 9223372036854775807"),
        (("fuzz", "--real", "2"), "from 0 to 1"),
        (("fuzz", "--seconds", "nan"), "> 0"),
        (("measure",), "no MODULE"),
        (("tune",), "TARGET is missing"),
        (("search", "MODEL", "--stop", "fusion"), "POSITION: PASS"),
        (("search", "MODEL", "--stop", ": cse", "--pass", "cse"), "together with"),
        (("search", "MODEL", "--until", "fusion"), "--pass PASS"),
        (("search", "MODEL", "--policy", "gnn", "--search", "evolve"), "use one"),
    ],
)
def test_wrong_usage_is_exit_code_2(capsys, model, argv, message) -> None:
    assert main([model if each == "MODEL" else each for each in argv]) == 2
    err = capsys.readouterr().err
    assert message in err
    assert "9" * 100 not in err


def test_a_result_file_that_is_missing_is_named(run) -> None:
    code, err = run("explore", "missing.parquet", "--no-open")
    assert code == 1
    assert "missing.parquet does not exist" in err


_HOSTILE = "\x1b]0;owned\x07\u202egnp\x9b31m"
_HOSTILE_MODULE = """HloModule m
ENTRY e {
  p = f32[4] parameter(0)
  zero = f32[] constant(0)
  zeros = f32[4] broadcast(zero), dimensions={}
  ROOT s = f32[4] add(p, zeros), metadata={op_name="f" source_file="HOSTILE"}
}"""
_HOSTILE_CALL = """HloModule m
ENTRY e {
  p = f32[4] parameter(0)
  ROOT c = f32[4] custom-call(p), custom_call_target="HOSTILE"
}"""


@pytest.mark.parametrize(
    ("command", "text"),
    [("alternatives", _HOSTILE_MODULE), ("profile", _HOSTILE_CALL)],
)
def test_names_do_not_reach_the_terminal_as_commands(
    capsys, tmp_path: Path, command: str, text: str
) -> None:
    path = tmp_path / "evil.hlo"
    path.write_text(text.replace("HOSTILE", _HOSTILE), encoding="utf-8")
    options = {"alternatives": ["--pass", "algsimp"], "profile": ["--no-store"]}
    main([command, str(path), *options[command]])
    captured = capsys.readouterr()
    shown = captured.out + captured.err
    assert "owned" in shown
    assert r"\x1b" in shown
    assert not {"\x1b", "\x07", "\u202e", "\x9b"} & set(shown)


def test_a_trace_that_is_none_is_named(run, model, tmp_path: Path) -> None:
    path = tmp_path / "empty.json"
    path.write_text("")
    code, err = run("apply", str(path), model)
    assert code == 1
    assert "empty.json: this is not a trace" in err


def test_a_function_of_a_module_file_is_a_message(run, model) -> None:
    code, err = run("measure", f"{model}:f")
    assert code == 1
    assert "model.hlo is not a Python file" in err


def test_a_file_in_place_of_a_folder_is_reported_before_the_work(run, model) -> None:
    code, err = run("rewrites", model, "--reproducers", model)
    assert code == 1
    assert "File exists" in err
    assert "trying the rewrites" not in err


@pytest.mark.parametrize(
    "words",
    [
        *[("profile", "MODEL"), ("calibrate",), ("measure", "MODEL")],
        *[("search", "MODEL"), ("optimize", "MODEL", "--measure")],
    ],
)
def test_too_many_threads_are_reported_before_the_work(capsys, model, words) -> None:
    words = [model if each == "MODEL" else each for each in words]
    assert main([*words, "--threads", "9999"]) == 1
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    assert "error: threads must be between 1 and " in lines[0]
