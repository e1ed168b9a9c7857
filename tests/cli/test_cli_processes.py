# SPDX-License-Identifier: Apache-2.0
"""Commands as processes: their input and output, and what Ctrl-C does to them."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

import hloenv
from support.modules import TWO_REWRITES


def _child(
    *argv: str, program: Sequence[str] = ("-m", "hloenv"), **options
) -> subprocess.Popen[str]:
    package = str(Path(hloenv.__file__).parent.parent)
    environment = {**os.environ, "PYTHONPATH": package}
    return subprocess.Popen(
        [sys.executable, *program, *argv],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )


def test_module_from_standard_input():
    child = _child("show", "-", "--json", stdin=subprocess.PIPE)
    out, err = child.communicate(TWO_REWRITES, timeout=120)
    assert child.returncode == 0, err
    assert json.loads(out)["instructions"] == 7


def test_a_closed_pipe_gives_no_traceback():
    child = _child("passes")
    assert child.stdout is not None
    child.stdout.close()
    assert child.wait(timeout=120) == 141
    assert child.stderr is not None
    assert child.stderr.read() == ""
    child.stderr.close()


@pytest.mark.parametrize("where", ["python", "xla"])
def test_ctrl_c_is_exit_code_130(tmp_path, where):
    source = tmp_path / "slow.py"
    # In XLA's evaluator, a loop that takes minutes and knows of no signal.
    source.write_text(
        textwrap.dedent(f"""\
            import sys, time
            import hloenv
            import numpy as np

            TEXT = '''HloModule slow
            body {{
              i = s32[] parameter(0)
              one = s32[] constant(1)
              ROOT next = s32[] add(i, one)
            }}
            condition {{
              i = s32[] parameter(0)
              limit = s32[] constant(2000000000)
              ROOT less = pred[] compare(i, limit), direction=LT
            }}
            ENTRY main {{
              i = s32[] parameter(0)
              ROOT last = s32[] while(i), condition=condition, body=body
            }}
            '''

            def slow():
                print("started", file=sys.stderr, flush=True)
                if {where!r} == "python":
                    time.sleep(60)
                hloenv.interpret(hloenv.HloModule.from_text(TEXT), np.int32(0))
        """),
        encoding="utf-8",
    )
    child = _child("show", f"{source}:slow")
    assert child.stderr is not None
    assert child.stderr.readline() == "started\n"
    child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=30)
    assert child.returncode == 130
    assert (out, err) == ("", "hloenv: interrupted\n")


# What a starting command has loaded when Ctrl-C comes, in the order of its imports.
_LOADED = ("multiarray", "libtensorflow_framework", "libtensorflow_cc", "hloenv/_core")


@pytest.mark.parametrize("how", ["module", "script"])
@pytest.mark.parametrize(
    ("loaded", "later_s"),
    [*((name, 0.0) for name in _LOADED), ("_core", 0.1), ("_core", 0.5)],
)
def test_ctrl_c_while_a_command_starts_is_exit_code_130(tmp_path, how, loaded, later_s):
    script = tmp_path / "hloenv"  # as pip writes it
    script.write_text(
        "import sys\nfrom hloenv.cli import main\n"
        "if __name__ == '__main__':\n    sys.exit(main())\n"
    )
    program = [str(script)] if how == "script" else ["-m", "hloenv"]
    child = _child("show", "-", program=program, stdin=subprocess.PIPE)
    maps = Path(f"/proc/{child.pid}/maps")
    deadline = time.monotonic() + 60
    while loaded not in maps.read_text():
        assert child.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.001)
    time.sleep(later_s)
    child.send_signal(signal.SIGINT)
    # The command waits for its input: only the signal ends it.
    code = child.wait(timeout=30)
    out, err = child.communicate()
    assert code == 130
    # While the libraries load, stderr is held back.
    assert (out, err) in (("", "hloenv: interrupted\n"), ("", ""))


def test_importing_the_library_does_not_handle_ctrl_c(run_child):
    run_child(
        "import signal\nbefore = signal.getsignal(signal.SIGINT)\nimport hloenv\n"
        "import hloenv.cli\nassert signal.getsignal(signal.SIGINT) is before\n"
        "assert before is signal.default_int_handler\n"
    )


@pytest.mark.compile
def test_ctrl_c_while_measuring_ends_the_worker(model):
    argv = ("optimize", model, "-p", "cse", "--measure", "--repeats", "1000000000")
    child = _child(*argv)
    assert child.stderr is not None
    while child.stderr.readline() != "measuring ...\n":
        assert child.poll() is None
    children = Path(f"/proc/{child.pid}/task/{child.pid}/children")
    deadline = time.monotonic() + 60
    while not (workers := children.read_text().split()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=30)
    assert child.returncode == 130
    assert (out, err) == ("", "hloenv: interrupted\n")
    while any(Path(f"/proc/{worker}").exists() for worker in workers):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_terminated_fuzz_run_says_what_it_checked(tmp_path):
    # Says so more often, for the sake of the test.
    program = (
        "import sys; from hloenv.cli import fuzz, main;"
        "fuzz._CASES_IN_A_LINE = 5; sys.argv[0] = 'hloenv'; sys.exit(main())"
    )
    child = _child(
        *("fuzz", "-p", "cse", "--cases", "100000", "-o", str(tmp_path)),
        program=("-c", program),
    )
    assert child.stderr is not None
    assert child.stderr.readline().endswith("cases, 0 invariants broken\n")
    child.send_signal(signal.SIGTERM)
    out, err = child.communicate(timeout=60)
    assert child.returncode == 130
    (cases,) = re.findall(r"(\d+) cases in", out)
    (first,) = re.findall(r"ended early; .*: --first (\d+)", err)
    assert 0 < int(first) <= int(cases)


# Stands for an environment without these packages.
_WITHOUT = """\
import sys
names, sys.argv = sys.argv[1].split(","), ["hloenv", *sys.argv[2:]]
for name in names:
    sys.modules[name] = None
from hloenv.cli import main
sys.exit(main())
"""


def _without(names: str, *argv: str) -> tuple[int, str, str]:
    child = _child(names, *argv, program=("-c", _WITHOUT))
    out, err = child.communicate(timeout=120)
    return child.returncode, out, err


def test_a_module_of_the_dataset_needs_no_gymnasium():
    code, out, err = _without(
        "gymnasium,torch", "show", "hloenv://dataset/test/flax", "--json"
    )
    assert code == 0, err
    assert json.loads(out)["instructions"] > 0


@pytest.mark.parametrize(
    ("names", "extra"),
    [("gymnasium", "hloenv[rl]"), ("torch", "hloenv[learn]")],
)
@pytest.mark.parametrize("command", ["optimize", "search"])
def test_a_missing_package_is_one_line_with_its_extra(tmp_path, command, names, extra):
    path = tmp_path / "m.hlo"
    path.write_text(TWO_REWRITES)
    words = {
        "optimize": ("--policy", "gnn"),
        "search": ("--search", "policy:gnn"),
    }[command]
    code, _, err = _without(names, command, str(path), "--pass", "algsimp", *words)
    assert code == 1
    assert extra in err
    assert err.count("\n") == 1


@pytest.mark.parametrize("names", ["gymnasium", "torch"])
def test_training_without_its_packages_is_one_line(tmp_path, names):
    code, _, err = _without(names, "train", "rewrite", "-o", str(tmp_path / "o"))
    assert code == 1
    assert "pip install 'hloenv[" in err
    assert "Traceback" not in err
