# SPDX-License-Identifier: Apache-2.0
"""Results that `optimize -o` and `search -o` write or do not write."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hloenv
from hloenv.cli import main
from hloenv.cli import search as search_command
from hloenv.cli.parser import make_parser
from hloenv.cli.result import EXIT_NOT_WRITTEN, Result
from hloenv.errors import InvalidModuleError
from hloenv.hlo.module import HloModule
from hloenv.measurement.record import MeasureFailure, Measurement
from hloenv.rewrite.env import HloEnv
from hloenv.search.driver import Candidate, SearchResult
from support.modules import TWO_REWRITES

_MISMATCH = ("OutputMismatchError", "off by 1.0")
_CRASH = ("WorkerError", "the worker process died (signal SIGABRT)")


def _measurement(speedup: float = 1.0, *, error: tuple[str, str] | None = None) -> Any:
    """A measurement of eight copies that agree within 0.1 %."""
    return Measurement(
        *("", "", "legalize", 0),
        durations_ns=(1000, 1001) * 4,
        baseline_ns=(round(1000 * speedup),) * 8,
        copies=(1,) * 8,
        error=None if error is None else MeasureFailure(*error),
    )


@pytest.fixture
def result(tmp_path: Path) -> Callable[..., Result]:
    env = HloEnv(TWO_REWRITES)
    env.run("algsimp")

    def make(
        measurement: Measurement | None, *, force: bool, failure="", engine="wheel"
    ) -> Result:
        args = argparse.Namespace(
            output=str(tmp_path / "out.hlo"), force=force, engine=engine
        )
        return Result(args, env, measurement, failure=failure)

    return make


def _files(folder: Path) -> Iterable[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("force", [False, True])
def test_a_faster_module_is_written(result, tmp_path, force):
    made = result(_measurement(1.2), force=force)
    assert (made.exit_code, made.refused, made.warning) == (0, "", "")
    assert _files(tmp_path) == ["out.hlo", "out.hlo.trace.json"]
    path = str(tmp_path / "out.hlo")
    assert made.to_json() == {
        "output": path,
        "trace": f"{path}.trace.json",
        "not_written": None,
    }
    assert hloenv.replay(f"{path}.trace.json", TWO_REWRITES).fingerprint() == (
        HloModule.from_file(path).fingerprint()
    )


def test_the_printed_line_deploys_on_the_engine_that_was_measured(
    result, tmp_path, capsys
):
    path = str(tmp_path / "out.hlo")
    for engine, line in (
        ("wheel", f"hloenv.load({path!r}), or"),
        ("jaxlib", f"hloenv.load({path!r}, engine='jaxlib'), or"),
    ):
        result(_measurement(1.2), force=False, engine=engine).print()
        assert line in capsys.readouterr().out


@pytest.mark.parametrize(
    ("measurement", "failure", "said"),
    [
        (_measurement(1.001), "", "not faster than XLA's default"),
        (_measurement(0.8), "", "not faster than XLA's default: 0.8"),
        (_measurement(error=_CRASH), "", "WorkerError: the worker process died"),
        (None, "", "not measured"),
        (None, "XLA's default cannot be measured", "cannot be measured"),
    ],
)
def test_doubtful_results_are_written_only_with_force(
    result, tmp_path, measurement, failure, said
):
    made = result(measurement, force=False, failure=failure)
    assert made.exit_code == EXIT_NOT_WRITTEN == 3
    assert said in made.refused
    assert "--force" in made.refused
    assert made.to_json() == {
        "output": None,
        "trace": None,
        "not_written": made.refused,
    }
    assert _files(tmp_path) == []
    made = result(measurement, force=True, failure=failure)
    assert made.exit_code == 0
    assert said in made.warning
    assert _files(tmp_path) == ["out.hlo", "out.hlo.trace.json"]


@pytest.mark.parametrize("force", [False, True])
def test_wrong_outputs_are_not_written(result, tmp_path, force):
    made = result(_measurement(error=_MISMATCH), force=force)
    assert made.exit_code == 3
    assert "off by 1.0" in made.refused
    assert _files(tmp_path) == []


@pytest.mark.parametrize("force", [False, True])
def test_an_invalid_module_is_not_written(result, tmp_path, monkeypatch, force):
    def verify(_: HloModule) -> None:
        raise InvalidModuleError("a shape\nis wrong")

    monkeypatch.setattr(HloModule, "verify", verify)
    made = result(_measurement(2.0), force=force)
    assert made.exit_code == 3
    assert "not valid: a shape is wrong" in made.refused
    assert _files(tmp_path) == []


# The commands.


@pytest.fixture
def model(tmp_path: Path) -> str:
    (tmp_path / "in").mkdir()
    path = tmp_path / "in" / "model.hlo"
    path.write_text(TWO_REWRITES)
    return str(path)


@pytest.mark.compile
def test_optimize_writes_unchanged_modules_only_with_force(model, tmp_path, capsys):
    out = tmp_path / "out"
    out.mkdir()
    argv = ["optimize", model, "-p", "cse", "--policy", "reject-all", "--no-store"]
    argv += ["-o", str(out / "d.hlo")]
    # Two rounds: whatever the times are, they prove nothing.
    assert main([*argv, "--repeats", "1", "--measure"]) == 3
    shown = capsys.readouterr().out
    assert f"{out / 'd.hlo'} is not written" in shown
    assert _files(out) == []
    assert main([*argv, "--force", "--json"]) == 0
    done = json.loads(capsys.readouterr().out)
    assert done["output"] == str(out / "d.hlo")
    assert _files(out) == ["d.hlo", "d.hlo.trace.json"]


@pytest.mark.compile
def test_optimize_writes_unexecutable_modules_only_with_force(tmp_path, model, capsys):
    foreign = TWO_REWRITES.replace(
        "multiply(sin1, sin2)", 'custom-call(sin1, sin2), custom_call_target="nowhere"'
    )
    Path(model).write_text(foreign)
    saved = tmp_path / "d.hlo"
    argv = ["optimize", model, "-p", "algsimp", "--no-store", "-o", str(saved)]
    assert main(argv) == 1
    assert "nowhere" in capsys.readouterr().err
    assert not saved.exists()
    assert main([*argv, "--force"]) == 0
    assert "warning: XLA's default cannot be measured" in capsys.readouterr().out
    assert saved.exists()


def _search(
    monkeypatch: pytest.MonkeyPatch, found: SearchResult, model: str, *argv: str
) -> int:
    monkeypatch.setattr(search_command, "run_search", lambda *_, **__: found)
    return main(["search", model, "-p", "cse", "--no-store", *argv])


def _found(*measurements: Measurement, best: bool = False) -> SearchResult:
    import numpy as np

    candidates = [Candidate((np.array([1]),), 1e-6, str(i)) for i in range(9)]
    found = SearchResult(evaluated=candidates, num_estimates=9)
    found.measured = list(zip(candidates, measurements, strict=False))
    if best:
        found.best, found.confirmed = found.measured[0]
    return found


def test_a_search_whose_workers_all_crashed_fails(monkeypatch, model, capsys):
    found = _found(*[_measurement(error=_CRASH)] * 3)
    assert _search(monkeypatch, found, model) == 1
    err = capsys.readouterr().err.splitlines()[-1]
    assert err.startswith("hloenv: error: the worker process crashed on all 3")
    assert "SIGABRT" in err


def test_a_search_without_estimates_fails(monkeypatch, model, capsys):
    assert _search(monkeypatch, SearchResult(num_estimates=9), model) == 1
    assert "none of 9 candidates could be estimated" in capsys.readouterr().err


def test_a_search_continues_with_one_remaining_worker(monkeypatch, model, capsys):
    found = _found(_measurement(error=_CRASH), _measurement(0.9))
    assert _search(monkeypatch, found, model) == 0
    assert "nothing is faster than XLA's default" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("found", "force", "code"),
    [
        (_found(_measurement(1.2), best=True), False, 0),
        # Faster, but not beyond its interval.
        (_found(_measurement(1.001), best=True), False, 3),
        (_found(_measurement(1.001), best=True), True, 0),
        (_found(_measurement(0.9)), False, 3),
        (_found(_measurement(0.9)), True, 0),
        (_found(_measurement(error=_MISMATCH)), True, 3),
        (_found(), True, 3),
    ],
)
def test_search_writes_results_faster_beyond_the_interval(
    monkeypatch, model, tmp_path, capsys, found, force, code
):
    saved = tmp_path / "d.hlo"
    argv = ["-o", str(saved), *["--force"] * force]
    assert _search(monkeypatch, found, model, *argv) == code
    shown = capsys.readouterr().out
    assert (f"wrote {saved}" in shown) == saved.exists() == (code == 0)
    assert (f"{saved} is not written: " in shown) == (code == 3)


@pytest.mark.needs("matplotlib")
def test_a_search_is_drawn(monkeypatch, model, tmp_path, capsys):
    path = tmp_path / "curve.png"
    found = _found(_measurement(1.2), _measurement(0.9), best=True)
    assert _search(monkeypatch, found, model, "--plot", str(path)) == 0
    assert f"wrote {path}" in capsys.readouterr().out
    assert path.read_bytes().startswith(b"\x89PNG")
    path.unlink()
    assert _search(monkeypatch, _found(), model, "--plot", str(path)) == 0
    assert f"{path} is not written: nothing" in capsys.readouterr().out
    assert not path.exists()


@pytest.mark.needs("matplotlib")
@pytest.mark.parametrize(
    ("name", "message"),
    [("curve.txt", "--plot draws .png, .svg, .pdf"), ("no/curve.png", "folder")],
)
@pytest.mark.parametrize("command", ["search", "tune"])
def test_a_wrong_plot_is_a_message_before_the_work(
    command, name, message, model, tmp_path, capsys
):
    assert main([command, model, "--plot", str(tmp_path / name)]) == 1
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("command", ["optimize", "search"])
def test_the_help_names_the_exit_code(command, capsys):
    with pytest.raises(SystemExit):
        make_parser([command]).parse_args([command, "--help"])
    text = " ".join(capsys.readouterr().out.split())
    assert "otherwise nothing is written and the exit code is 3" in text


# Random inputs are below 100.
OF_LARGE = """HloModule root

ENTRY main {
  x = f32[64] parameter(0)
  hundred = f32[] constant(100)
  hundreds = f32[64] broadcast(hundred), dimensions={}
  d = f32[64] subtract(x, hundreds)
  r = f32[64] sqrt(d)
  one = f32[] constant(1)
  ones = f32[64] broadcast(one), dimensions={}
  ROOT same = f32[64] multiply(r, ones)
}
"""


@pytest.mark.parametrize(
    "words",
    [
        ("optimize", "--policy", "accept-all", "--repeats", "3"),
        ("search", "--estimates", "2", "--measurements", "2"),
    ],
)
def test_inputs_come_from_a_file(run, tmp_path: Path, monkeypatch, words):
    monkeypatch.chdir(tmp_path)
    Path("model.hlo").write_text(OF_LARGE)
    np.savez("inputs.npz", np.full(64, 300.0, np.float32))
    np.savez("others.npz", np.ones(3, np.float32))
    words = (*words, "model.hlo", "-p", "algsimp", "--no-store", "--force")
    code, _, err = run(*words, "--inputs", "others.npz")
    assert code == 1
    assert "input" in err
    _, out, err = run(*words, "-o", "random.hlo")
    assert "NotComparedError" in out + err
    code, out, err = run(*words, "-o", "given.hlo", "--inputs", "inputs.npz")
    assert "NotComparedError" not in out + err
    assert code == 0, err
