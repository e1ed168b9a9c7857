# SPDX-License-Identifier: Apache-2.0
"""The command `hloenv rewrites`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import hloenv
from hloenv.cli import main
from hloenv.measurement.record import Measurement
from support.rewrites import TWO_LAYERS

pytestmark = pytest.mark.compile


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Has model.hlo, and is the working directory."""
    (tmp_path / "model.hlo").write_text(TWO_LAYERS)
    monkeypatch.setenv("HLOENV_STORE", str(tmp_path / "store.sqlite"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_table_and_a_module_without_what_costs(folder, capsys):
    command = ["rewrites", "model.hlo", "--no-measure", "-o", "without.hlo"]
    assert main(command) == 0
    out = capsys.readouterr().out
    assert "rewrites that cost" in out
    assert "algsimp" in out
    assert "times as fast" in out
    without = hloenv.HloModule.from_file("without.hlo")
    assert "rhs_reversal" not in hloenv.finish(without).to_text()


def test_json_for_programs(folder, capsys):
    assert main(["rewrites", "model.hlo", "--no-measure", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["rows"][0]["pass_name"] == "algsimp"
    assert found["rows"][0]["worth"] < 1
    assert found["reproducers"] == []


def test_nothing_is_written_where_nothing_costs(folder, capsys):
    (folder / "model.hlo").write_text(
        "HloModule m\nENTRY e {\n  x = f32[8] parameter(0)\n"
        "  ROOT y = f32[8] tanh(x)\n}\n"
    )
    command = ["rewrites", "model.hlo", "--no-measure", "-o", "without.hlo"]
    assert main(command) == 3
    shown = capsys.readouterr()
    assert "no rewrites that cost" in shown.out
    assert "without.hlo is not written: no rewrite costs" in shown.err
    assert not (folder / "without.hlo").exists()


@pytest.mark.parametrize(("run_ns", "code"), [(100, 0), (400, 3)])
def test_only_what_is_faster_is_written(folder, capsys, monkeypatch, run_ns, code):
    written = []

    def measure(module: hloenv.HloModule, *, baseline, threads) -> Measurement:
        written.append(module)
        return Measurement(
            fingerprint=module.fingerprint(),
            baseline=baseline.fingerprint(),
            finish="",
            seed=0,
            durations_ns=(run_ns, run_ns + 1) * 20,
            baseline_ns=(200, 201) * 20,
            copies=(40,),
            threads=threads,
        )

    monkeypatch.setattr("hloenv.cli.rewrites.measure", measure)
    command = ["rewrites", "model.hlo", "-o", "without.hlo", "--json"]
    assert main(command) == code
    (module,) = written
    assert "rhs_reversal" not in hloenv.finish(module).to_text()
    assert (folder / "without.hlo").exists() == (code == 0)
    assert ("not faster than XLA's default" in capsys.readouterr().err) == (code == 3)


def test_limits_are_checked(folder, capsys):
    assert main(["rewrites", "model.hlo", "--threshold", "0"]) == 2
    assert "must be a number > 0, got '0'" in capsys.readouterr().err
