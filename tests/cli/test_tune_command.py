# SPDX-License-Identifier: Apache-2.0
"""The command `hloenv tune`."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

import hloenv
from hloenv.cli import main
from hloenv.cli import tune as command
from hloenv.cli.explore import open_target
from hloenv.errors import ScriptError
from hloenv.jax import Artefact, Recipe, Tuned
from hloenv.rewrite.trace import ModuleId
from hloenv.tune import DECISIONS
from hloenv.tune.__main__ import main as run_as_tuned
from hloenv.tune.__main__ import summary
from hloenv.tune.recording import Hot, Recording
from hloenv.tune.scripts import NO_TIME, TunedFunction, TunedScript

pytestmark = [pytest.mark.jax, pytest.mark.compile]

MODULE = """HloModule m
ENTRY e { p = f32[64,64] parameter(0)
  ROOT t = f32[64,64] tanh(p) }
"""
# The arrays are large enough that one call takes longer than a thread's start.
SCRIPT = """
import jax, jax.numpy as jnp
step = jax.jit(lambda x: jnp.tanh(x @ x))
x = jnp.ones((64, 64))
for i in range(20): x = step(x)
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Has model.hlo and train.py, and is the working directory."""
    (tmp_path / "model.hlo").write_text(MODULE)
    (tmp_path / "train.py").write_text(SCRIPT)
    (tmp_path / "net.py").write_text(
        "import jax.numpy as jnp\n"
        "def step(): return (lambda x, y: x * y), jnp.ones(3), jnp.ones(3)\n"
        "def fails(): return (lambda x: 1 / 0), jnp.ones(3)\n"
    )
    monkeypatch.setenv("HLOENV_STORE", str(tmp_path / "store.sqlite"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.needs("matplotlib")
def test_a_tuning_is_drawn_and_explored(folder, capsys):
    words = ["tune", "model.hlo", "--stages", "codegen", "--mode", "sequence"]
    words += ["--threads", "1", "--measurements", "1", "--seconds", "20"]
    assert main([*words, "--plot", "curve.png"]) == 0
    out = capsys.readouterr().out
    (journal,) = folder.glob("tuned/*.journal")
    assert f"all measurements: hloenv explore {journal}" in out
    assert "wrote curve.png" in out
    assert Path("curve.png").read_bytes().startswith(b"\x89PNG")
    assert len(open_target(str(journal)).results["rows"]) >= 1


def entry_of(name, **fields):
    module = ModuleId.of(hloenv.HloModule.from_text(MODULE))
    return Tuned(name, module, **{"recipe": Recipe(), "reason": "nothing", **fields})


def test_all_decisions_are_listed(capsys):
    assert main(["tune", "--list"]) == 0
    text = capsys.readouterr().out
    assert all(each.name in text for each in DECISIONS)
    assert main(["tune", "--list", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["decisions"]
    assert [each["name"] for each in found] == [each.name for each in DECISIONS]


def test_a_module_is_tuned(folder, capsys):
    words = ["tune", "model.hlo", "--mode", "sequence", "--measurements", "0"]
    assert main([*words, "--threads", "1", "-o", "m.tuned"]) == 0
    out, err = capsys.readouterr()
    assert "m: as hloenv.compile(engine='jaxlib') has it (no measurement was" in out
    assert "wrote m.tuned" in out
    assert Artefact.load("m.tuned").is_identity
    assert main([*words, "--threads", "1", "--json", "--no-keep"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["entries"][0]["name"] == "m"
    assert err == ""


def test_a_function_is_given_its_arguments(folder, monkeypatch, capsys):
    seen = []

    def fake(*target, **_):
        seen.append(target)
        return Artefact((entry_of("step"),))

    monkeypatch.setattr(command, "tune", fake)
    assert main(["tune", "net.py:step"]) == 0
    ((fn, *args),) = seen
    assert callable(fn)
    assert len(args) == 2
    assert "step: as jax.jit has it (nothing)" in capsys.readouterr().out


def test_a_script_is_reported(folder, monkeypatch, capsys):
    def fake(path, argv, options, **_):
        assert (str(path), argv, options.seconds) == ("train.py", ["--x", "1"], 9.0)
        hot = Hot("step", lambda: None, {}, (), {}, 10, 2.0)
        other = Hot("other", lambda: None, {}, (), {}, 3, 1.0)
        late = Hot("late", lambda: None, {}, (), {}, 3, 0.0)
        stage = {
            "stage": "forms",
            "decided": "forms=known",
            "alone": [2.0, 1.9, 2.1],
            "without": [1.0, 1.0, 1.0],
        }
        entry = entry_of(
            "step",
            recipe=Recipe(options={"xla_cpu_prefer_vector_width": 512}),
            label="forms=known",
            speedup=2.0,
            interval=(1.9, 2.1),
            stages=(stage,),
            compile_s=2.9,
        )
        functions = (
            TunedFunction(hot, entry, is_kept=True),
            TunedFunction(other, None, "it prints"),
            TunedFunction(late, None, NO_TIME),
        )
        return TunedScript(Recording((hot, other, late), 4.0, True), functions)

    monkeypatch.setattr(command, "tune_script", fake)
    words = ["tune", "train.py", "--seconds", "9"]
    assert main([*words, "-o", "a.tuned", "--args", "--x", "1"]) == 0
    out = capsys.readouterr().out
    assert "step: 2.000x of jax.jit (1.900 to 2.100), forms=known" in out
    assert "2.000x (1.900 to 2.100)" in out
    assert "other: it prints" in out
    assert "all calls: 3 s before, about 2 s with the result (1.500x)" in out
    assert "(1.500x), without the first compilation (2.9 s)\nrun it so with:\n" in out
    assert out.count("no time: give more --seconds") == 1
    assert "python -m hloenv.tune train.py --x 1" in out
    assert len(Artefact.load("a.tuned").entries) == 1
    assert main([*words, "--json", "--args", "--x", "1"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["calls_s"], found["expected_s"]) == (3.0, 2.0)


@pytest.mark.parametrize("speedup", [1.0, 2.0])
def test_how_to_run_it_is_not_said_where_nothing_is_kept(
    folder, monkeypatch, capsys, speedup
):
    hot = Hot("step", lambda: None, {}, (), {}, 10, 2.0)
    recipe = Recipe(options={"xla_cpu_prefer_vector_width": 512})
    recipe = Recipe() if speedup == 1 else recipe
    found = TunedFunction(hot, entry_of("step", recipe=recipe, speedup=speedup))
    script = TunedScript(Recording((hot,), 4.0, True), (found,))
    monkeypatch.setattr(command, "tune_script", lambda *_, **__: script)
    assert main(["tune", "train.py"]) == 0
    out = capsys.readouterr().out
    assert f"with the result ({speedup:.3f}x)" in out
    assert "run it" not in out
    assert "python -m" not in out


def test_the_prints_of_a_script_are_not_in_the_json(folder, capfd):
    (folder / "train.py").write_text(
        SCRIPT + "import os, sys\nprint('printed')\nsys.stdout.write('written')\n"
        "sys.stdout.flush()\nos.write(1, b'by others')\n"
    )
    words = ["tune", "train.py", "--stages", "codegen", "--threads", "1", "--seconds"]
    assert main([*words, "5", "--measurements", "0", "--json"]) == 0
    out, err = capfd.readouterr()
    assert [each["calls"] for each in json.loads(out)["functions"]] == [20]
    for text in ("printed", "written", "by others"):
        assert text in err
    sys.stdout.write("after\n")
    assert capfd.readouterr().out == "after\n"


def test_what_a_script_has_not_flushed_is_not_in_the_json(folder):
    """Of C, of Python's own stdout, and of what holds it from before."""
    (folder / "train.py").write_text(
        SCRIPT + "import ctypes, sys\nsys.__stdout__.write('python')\n"
        "ctypes.CDLL(None).printf(b'by c')\n"
    )
    words = ["tune", "train.py", "--stages", "codegen", "--threads", "1", "--seconds"]
    words += ["5", "--measurements", "0", "--json"]
    environment = {**os.environ}
    environment.pop("PYTHONUNBUFFERED", None)
    done = subprocess.run(
        [sys.executable, "-m", "hloenv", *words],
        capture_output=True,
        text=True,
        check=True,
        cwd=folder,
        env=environment,
    )
    assert [each["calls"] for each in json.loads(done.stdout)["functions"]] == [20]
    assert "python" in done.stderr
    assert "by c" in done.stderr


def test_a_plot_that_fails_does_not_deny_the_artefact(folder, monkeypatch, capsys):
    def full(*_):
        raise OSError(28, "No space left on device")

    found = Artefact((entry_of("step", label="forms=known", speedup=2.0),))
    monkeypatch.setattr(command, "_tuned", lambda *_: found)
    monkeypatch.setattr(command, "_draw", full)
    words = ["tune", "model.hlo", "-o", "a.tuned", "--plot", "a.png", "--json"]
    assert main(words) == 1
    assert json.loads(capsys.readouterr().out)["output"] == "a.tuned"
    assert Path("a.tuned").exists()


@pytest.mark.parametrize("is_json", [False, True])
def test_a_full_disk_takes_nothing_of_the_report(folder, monkeypatch, capsys, is_json):
    def full(*_):
        raise OSError(28, "No space left on device")

    found = Artefact((entry_of("step", label="forms=known", speedup=2.0),))
    monkeypatch.setattr(command, "_tuned", lambda *_: found)
    monkeypatch.setattr(Artefact, "save", full)
    words = ["tune", "model.hlo", "-o", "a.tuned", *["--json"] * is_json]
    assert main(words) == 1
    out, err = capsys.readouterr()
    assert "No space left" in err
    assert "wrote" not in out
    if is_json:
        assert json.loads(out)["entries"][0]["label"] == "forms=known"
        assert json.loads(out)["output"] is None
    else:
        assert "step:" in out


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["none.py"], "none.py does not exist"),
        (["none.hlo"], "none.hlo"),
        (["net.py:none"], "none"),
        (["net.py:fails"], "ZeroDivisionError"),
        (["model.hlo", "--args", "x"], "are for a script"),
        (["model.hlo", "-o", "no/where"], "folder does not exist"),
        (["model.hlo", "-o", "."], "cannot write .: it is a folder"),
    ],
)
def test_wrong_targets_are_one_line(folder, words, reason, capsys, monkeypatch):
    if "-o" in words:  # it is found before the work
        monkeypatch.delattr(command, "tune")
    assert main(["tune", *words]) == 1
    err = capsys.readouterr().err
    assert reason in err
    assert "Traceback" not in err


@pytest.mark.parametrize(
    "words",
    [["--stages", "x"], ["--mode", "x"], ["--numerics", "x"], ["--seconds", "0"]],
)
def test_wrong_options_are_usage_errors(words):
    assert main(["tune", "model.hlo", *words]) == 2


def test_the_engine_is_of_a_module(folder, capsys):
    assert main(["tune", "--help"]) == 0
    assert "(default: jaxlib)" in " ".join(capsys.readouterr().out.split())
    for target in ("net.py:step", "train.py"):
        assert main(["tune", target, "--engine", "wheel"]) == 2
        assert f"--engine wheel is for a module; {target}" in capsys.readouterr().err


def test_everything_after_args_is_of_the_script(folder, monkeypatch):
    seen = []

    def fake(path, argv, *_, **__):
        seen.append(argv)
        raise ScriptError("seen")

    monkeypatch.setattr(command, "tune_script", fake)
    argv = ["--n", "5", "--import", "none.py", "--seconds", "3", "-o", "x"]
    assert main(["tune", "train.py", "--args", *argv]) == 1
    assert seen == [argv]


def test_a_script_that_fails_is_a_warning(folder, capsys):
    (folder / "train.py").write_text(SCRIPT + "raise KeyError('boo')\n")
    words = ["tune", "train.py", "--stages", "codegen", "--threads", "1", "--json"]
    assert main([*words, "--measurements", "0"]) == 0
    out, err = capsys.readouterr()
    assert "warning: train.py failed with KeyError: 'boo' (--verbose: traceback); " in (
        err
    )
    assert "boo" in json.loads(out)["failure"]
    assert main([*words, "--measurements", "0", "--verbose"]) == 0
    assert "Traceback" in capsys.readouterr().err


def begun(folder: Path) -> int:
    journals = (folder / "tuned").glob("*.journal")
    return sum(path.read_text().count('"begun"') for path in journals)


def started(folder: Path, *words: str) -> subprocess.Popen[str]:
    """A tuning in a child process that has begun to measure."""
    package = str(Path(hloenv.__file__).parent.parent)
    child = subprocess.Popen(
        [sys.executable, "-m", "hloenv", "tune", *words],
        env={**os.environ, "PYTHONPATH": package},
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    while begun(folder) < 3 and child.poll() is None:
        time.sleep(0.05)
    return child


def interrupted(folder: Path, *words: str) -> tuple[int, str]:
    """Exit code and stderr of a tuning that Ctrl-C ends when its target says so."""
    package = str(Path(hloenv.__file__).parent.parent)
    child = subprocess.Popen(
        [sys.executable, "-m", "hloenv", "tune", *words],
        env={**os.environ, "PYTHONPATH": package},
        cwd=folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert child.stderr is not None
    while (line := child.stderr.readline()) != "started\n":
        assert line, "it ended"
    child.send_signal(signal.SIGINT)
    err = child.communicate(timeout=120)[1]
    return child.returncode, err


def test_ctrl_c_while_the_target_is_loaded_is_the_end(folder):
    """As in a callback of jax's, which prints and drops a KeyboardInterrupt."""
    (folder / "net.py").write_text(
        "import sys, time\nimport jax.numpy as jnp\n"
        "print('started', file=sys.stderr, flush=True)\n"
        "try: time.sleep(60)\nexcept KeyboardInterrupt: pass\n"
        "def step(): return (lambda x, y: x * y), jnp.ones(3), jnp.ones(3)\n"
    )
    words = ["--stages", "codegen", "--measurements", "0"]
    assert interrupted(folder, "net.py:step", *words) == (130, "hloenv: interrupted\n")


def test_ctrl_c_while_a_script_runs_tunes_what_has_run(folder):
    (folder / "train.py").write_text(
        SCRIPT + "import sys, time\nprint('started', file=sys.stderr, flush=True)\n"
        "time.sleep(60)\n"
    )
    words = ["--stages", "codegen", "--measurements", "0", "--threads", "1"]
    code, err = interrupted(folder, "train.py", *words)
    assert code == 0, err
    assert "interrupted: tunes what has run; Ctrl-C again ends\n" in err
    assert "tunes <lambda>: 20 calls" in err


@pytest.mark.parametrize("words", [(), ("--verbose",)])
def test_a_script_that_crashes_is_one_line(folder, words):
    (folder / "train.py").write_text(
        SCRIPT + "import os, signal, sys\nprint('before', file=sys.stderr)\n"
        "os.kill(os.getpid(), signal.SIGSEGV)\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "hloenv", "tune", "train.py", *words],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
    )
    assert done.returncode == 1
    assert "\nbefore\n" in done.stderr
    assert done.stderr.endswith(
        "error: train.py crashed (SIGSEGV): nothing is tuned; --verbose shows where, "
        "--run-seconds ends it before\n"
    )
    assert ('train.py", line 8 in <module>' in done.stderr) == bool(words)


@pytest.mark.slow
def test_ctrl_c_keeps_what_was_found(folder):
    child = started(folder, "train.py", "--threads", "1", "-o", "a.tuned")
    child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=120)
    assert child.returncode == 0, err
    assert "interrupted: the best so far is checked and kept" in err
    assert "wrote a.tuned" in out
    assert len(Artefact.load(folder / "a.tuned").entries) == 1


@pytest.mark.slow
def test_after_kill_9_the_next_tuning_resumes(folder, capsys):
    child = started(folder, "model.hlo", "--threads", "1", "--mode", "sequence")
    child.kill()
    child.communicate()
    words = ["tune", "model.hlo", "--threads", "1", "--mode", "sequence"]
    assert main([*words, "--measurements", "1"]) == 0
    assert "continues from" in capsys.readouterr().err


def test_a_script_that_runs_as_tuned_says_so(folder):
    python = [sys.executable, "-m", "hloenv.tune", "train.py"]

    def said():
        done = subprocess.run(
            python, capture_output=True, text=True, check=True, cwd=folder
        )
        assert done.stdout == ""
        return done.stderr

    before = said()
    assert "ran as plain jax.jit: <lambda>: nothing is tuned for it" in before
    assert "to tune it: hloenv tune train.py" in before
    words = ["--stages", "codegen", "--threads", "1", "--measurements", "0"]
    assert main(["tune", "train.py", *words]) == 0
    assert said() == (
        "hloenv.tune: ran as plain jax.jit: <lambda>: tuned, but no measurement was "
        "allowed: give more than measurements=0\n"
        "hloenv.tune: to search on: hloenv tune train.py\n"
    )
    (folder / "train.py").write_text("x = 1\n")
    assert "has no function of jax.jit that was called" in said()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("none.py", "hloenv.tune: file none.py does not exist\n"),
        ("tuned", "hloenv.tune: tuned is a folder; give a Python file in it\n"),
    ],
)
def test_what_is_no_script_is_one_line(folder, monkeypatch, capsys, name, message):
    (folder / "tuned").mkdir()
    monkeypatch.setattr(sys, "argv", ["hloenv.tune", name])
    assert run_as_tuned() == 1
    assert capsys.readouterr() == ("", message)


def test_a_script_that_does_not_begin_has_no_summary(folder, monkeypatch, capsys):
    (folder / "train.py").write_text("def")
    monkeypatch.setattr(sys, "argv", ["hloenv.tune", "train.py"])
    assert run_as_tuned() == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f'  File "{folder}/train.py", line 1\n')
    assert err.endswith("SyntaxError: invalid syntax\n")


@pytest.mark.parametrize("code", [0, 7])
def test_the_summary_leaves_the_exit_code_of_the_script(folder, code):
    (folder / "train.py").write_text(f"import sys\nsys.exit({code})\n")
    words = f"{sys.executable} -m hloenv.tune train.py 2>&-"
    done = subprocess.run(words, shell=True, check=False, cwd=folder)
    assert done.returncode == code


def test_the_summary_of_a_script_is_short():
    class Function:
        __name__ = "step"

        def __init__(self, number, *, is_used):
            self.considered = [
                SimpleNamespace(
                    is_used=is_used, tuned=f"forms={number}" * is_used, reason="slow"
                )
            ]

    many = [Function(number, is_used=True) for number in range(20)]
    lines = summary([*many, Function(0, is_used=False)], Path("a.py"))
    assert len(lines) == 9
    assert lines[0] == "ran as tuned: step: forms=0"
    assert lines[-1] == "and 12 more"
