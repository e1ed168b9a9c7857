# SPDX-License-Identifier: Apache-2.0
"""The command `hloenv store`."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pytest

from hloenv.cli import main
from support.stores import filled


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.sqlite"


@pytest.fixture
def run(run, path: Path):
    """Runs `hloenv store ...` on `path`; returns exit code, stdout and stderr."""
    return lambda action, *argv: run("store", action, "--store", str(path), *argv)


def test_command_info(run, path):
    filled(path).close()
    code, out, _ = run("info")
    assert code == 0
    assert "30 records, 0 of them failures" in out
    assert [text.split()[:3] for text in out.splitlines()[-2:]] == [
        ["k0", "m1", "15"],
        ["k1", "m1", "15"],
    ]
    found = json.loads(run("info", "--json")[1])
    assert (found["records"], found["schema_version"]) == (30, 2)
    assert [count["kind"] for count in found["counts"]] == ["k0", "k1"]


def test_command_takes_json_before_the_action_too(path, capsys):
    filled(path).close()
    assert main(["store", "--json", "info", "--store", str(path)]) == 0
    assert json.loads(capsys.readouterr().out)["records"] == 30


def test_command_uses_the_default_store(path, capsys, monkeypatch):
    filled(path).close()
    monkeypatch.setenv("HLOENV_STORE", str(path))
    assert main(["store", "info"]) == 0
    assert str(path) in capsys.readouterr().out


def test_command_export_import_prune(run, path, tmp_path):
    filled(path).close()
    file = str(tmp_path / "records.jsonl")
    assert json.loads(run("export", file, "--json")[1]) == {"path": file, "records": 30}
    assert (
        run("prune", "--kind", "k0", "--dry-run")[1] == "15 records would be removed\n"
    )
    assert run("prune", "--kind", "k0")[1] == "15 records removed\n"
    code, out, _ = run("import", file)
    assert code == 0
    assert "15 records added, 0 replaced by newer ones, 15 unchanged" in out
    assert json.loads(run("import", file, "--json")[1])["unchanged"] == 30
    assert json.loads(run("prune", "--older-than", "1d", "--json")[1])["records"] == 30
    assert json.loads(run("info", "--json")[1])["records"] == 0


def test_command_import_makes_a_store(run, path, tmp_path):
    with filled(tmp_path / "other.sqlite"):
        assert run("import", str(tmp_path / "other.sqlite"))[0] == 0
    assert json.loads(run("info", "--json")[1])["records"] == 30


@pytest.mark.parametrize("action", [("info",), ("export", "a.jsonl"), ("prune",)])
def test_reading_commands_do_not_create_a_store(run, path, action):
    code, _, err = run(*action)
    assert code == 1
    assert f"there is no store at {path}" in err
    assert not path.exists()


@pytest.mark.parametrize("argv", [(), ("--all", "--failed"), ("--dry-run",)])
def test_command_prune_asks_for_a_condition(run, path, argv):
    filled(path).close()
    code, _, err = run("prune", *argv)
    assert code == 1
    assert "--older-than" in err
    assert "--all" in err


@pytest.mark.parametrize("age", ["soon", "-1d", "nan", "d", ""])
def test_command_rejects_invalid_ages(run, path, age):
    filled(path).close()
    code, _, err = run("prune", f"--older-than={age}")
    assert code == 2
    assert "must be an age" in err


def test_command_errors_are_one_line(run, path, tmp_path):
    path.write_text("not a database" * 100)
    code, _, err = run("info")
    assert (code, err.count("\n")) == (1, 1)
    assert "not an SQLite file" in err
    path.unlink()
    code, _, err = run("import", str(tmp_path / "absent.jsonl"))
    assert (code, err.splitlines()[-1]) == (
        1,
        f"hloenv: error: {tmp_path / 'absent.jsonl'}: No such file or directory",
    )


def test_command_repair_removes_damaged_records(run, path):
    filled(path).close()
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE records SET body = '{}' WHERE fingerprint = 'f3'")
    connection.close()
    code, _, err = run("export", str(path.with_name("all.jsonl")))
    assert code == 1
    assert "hloenv store repair" in err
    assert run("repair")[1] == "1 damaged records removed\n"
    assert json.loads(run("repair", "--json")[1]) == {"records": 0}
    assert json.loads(run("info", "--json")[1])["records"] == 29
