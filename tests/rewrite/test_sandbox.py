# SPDX-License-Identifier: Apache-2.0
"""A crash of XLA is an exception in a sandbox, and an exit code of a command."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import hloenv
from hloenv.cli import main
from support.crashes import CRASHES, ENDLESS, FATAL_TO_READ
from support.run_child import run_python

MODEL = """HloModule model

ENTRY main {
  x = f32[64,64]{1,0} parameter(0)
  zero = f32[] constant(0)
  zeros = f32[64,64]{1,0} broadcast(zero), dimensions={}
  sum = f32[64,64]{1,0} add(x, zeros)
  sin1 = f32[64,64]{1,0} sine(sum)
  sin2 = f32[64,64]{1,0} sine(sum)
  ROOT product = f32[64,64]{1,0} multiply(sin1, sin2)
}
"""


@pytest.fixture(scope="module")
def sandbox() -> Iterator[hloenv.Sandbox]:
    with hloenv.isolated(timeout_s=60) as sandbox:
        yield sandbox


@pytest.mark.parametrize("name", CRASHES)
def test_a_crashing_module_is_an_exception_or_harmless(
    sandbox: hloenv.Sandbox, name: str
) -> None:
    with contextlib.suppress(hloenv.InvalidModuleError):
        module = sandbox.load(CRASHES[name])
        for each in hloenv.list_passes():
            with contextlib.suppress(hloenv.PassError):
                sandbox.check_alternatives(module, each)
    assert sandbox.load(MODEL).fingerprint() == _model().fingerprint()


def test_the_message_is_xlas(sandbox: hloenv.Sandbox) -> None:
    with pytest.raises(hloenv.InvalidModuleError, match=r"SIGABRT.*Check failed"):
        sandbox.load(CRASHES[FATAL_TO_READ])


def test_the_sandbox_works_after_a_crash(sandbox: hloenv.Sandbox) -> None:
    with pytest.raises(hloenv.WorkerError, match="SIGSEGV"):
        sandbox.call("os:kill", 0, int(signal.SIGSEGV))
    with pytest.raises(hloenv.WorkerError, match="SIGABRT"):
        sandbox.call("os:abort")
    assert sandbox.load(MODEL).fingerprint() == _model().fingerprint()


def _model() -> hloenv.HloModule:
    return hloenv.HloModule.from_text(MODEL)


@pytest.mark.parametrize("form", ["text", "path", "proto", "proto path", "module"])
def test_valid_modules_load(sandbox: hloenv.Sandbox, tmp_path: Path, form: str) -> None:
    module = _model()
    path = tmp_path / ("m.pb" if "proto" in form else "m.hlo")
    path.write_bytes(module.to_proto() if "proto" in form else MODEL.encode())
    source = {
        "text": MODEL,
        "path": str(path),
        "proto": module.to_proto(),
        "proto path": path,
        "module": module,
    }[form]
    loaded = sandbox.load(source)
    assert loaded.fingerprint() == module.fingerprint()
    if form != "module":
        assert loaded.to_text() == module.to_text()


@pytest.mark.parametrize(
    ("source", "error", "words"),
    [
        ("HloModule m\n\nENTRY e {", hloenv.ParseError, "ENTRY|expect|parse"),
        (b"\x00\xff" * 9, hloenv.ParseError, "HloModuleProto"),
        ("no/such/file.hlo", FileNotFoundError, "no/such/file.hlo"),
        (
            MODEL.replace("sum = f32[64,64]", "sum = f32[64,65]"),
            hloenv.InvalidModuleError,
            "sum",
        ),
    ],
)
def test_other_input_is_rejected(
    sandbox: hloenv.Sandbox, source: str | bytes, error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        sandbox.load(source)


def test_a_bad_file_is_named(sandbox: hloenv.Sandbox, tmp_path: Path) -> None:
    path = tmp_path / "bad.hlo"
    path.write_text("HloModule m\n\nENTRY e {")
    with pytest.raises(hloenv.ParseError, match=r"bad\.hlo"):
        sandbox.load(path)


def test_passes_and_decisions_give_what_they_give_here(sandbox: hloenv.Sandbox) -> None:
    module = sandbox.load(MODEL)
    there = sandbox.run_passes(module, "algsimp", hloenv.Pass("cse"))
    here = hloenv.run_passes(module, "algsimp", "cse")
    assert there.module.to_text() == here.module.to_text()
    assert there.changed
    env = hloenv.HloEnv(module)
    alternatives = env.get_alternatives("algsimp", "cse")
    num_choices = sandbox.check_alternatives(module, "algsimp", "cse")
    assert num_choices.tolist() == alternatives.num_choices.tolist()
    decisions = np.array([1, *[0] * (len(alternatives) - 1)])
    decided = sandbox.apply_alternatives(module, decisions, "algsimp", "cse")
    assert decided.fingerprint() == env.apply_alternatives(decisions).fingerprint()
    with pytest.raises(hloenv.DecisionError):
        sandbox.apply_alternatives(module, [7], "algsimp")
    with pytest.raises(hloenv.UnknownPassError):
        sandbox.run_passes(module, "algsimpp")


def test_any_function_can_be_called(sandbox: hloenv.Sandbox) -> None:
    assert sandbox.call("math:hypot", 3, 4) == 5.0
    x = np.full((64, 64), 2, np.float32)
    (output,) = sandbox.call("hloenv.runtime.interpreter:interpret", _model(), x)
    np.testing.assert_allclose(output, np.sin(x) ** 2, rtol=1e-5)
    with pytest.raises(hloenv.WorkerError, match=r"ZeroDivisionError"):
        sandbox.call("operator:truediv", 1, 0)
    with pytest.raises(hloenv.ArgumentError, match=r"package\.module:name"):
        sandbox.call("math")


def test_an_endless_loop_is_a_timeout() -> None:
    with hloenv.isolated(timeout_s=2) as sandbox:
        module = sandbox.load(ENDLESS)
        start = time.monotonic()
        with pytest.raises(hloenv.MeasureTimeout, match="2 s"):
            sandbox.call("hloenv.runtime.interpreter:interpret", module, np.int32(0))
        assert time.monotonic() - start < 10
        assert sandbox.call("math:sqrt", 4) == 2.0


def test_memory_has_a_limit() -> None:
    large = (
        "HloModule large\n\nENTRY e {\n  c = f32[] constant(1)\n"
        "  ROOT b = f32[1000000000] broadcast(c), dimensions={}\n}\n"
    )
    with hloenv.isolated(timeout_s=60, max_memory_bytes=2 << 30) as sandbox:
        module = sandbox.load(large)
        with pytest.raises(hloenv.HloEnvError, match=r"(?i)memory|allocate|exhausted"):
            sandbox.call("hloenv.runtime.interpreter:interpret", module)
        with pytest.raises(hloenv.WorkerError, match="MemoryError"):
            sandbox.call("builtins:bytearray", 3 << 30)


def test_too_little_memory_is_rejected() -> None:
    # In a process with less, not even a thread starts, and nobody is told.
    with pytest.raises(hloenv.ArgumentError, match="256 MiB"):
        hloenv.isolated(max_memory_bytes=10)
    with pytest.raises(hloenv.ArgumentError, match="256 MiB"):
        hloenv.Settings(max_memory_bytes=100 << 20)
    done = _run("show", "x.hlo", "--memory-limit=100M")
    assert done.returncode == 2
    assert "256 MiB" in done.stderr


def test_a_closed_sandbox_is_an_error() -> None:
    with hloenv.isolated() as sandbox:
        pass
    with pytest.raises(hloenv.WorkerError, match="closed"):
        sandbox.load(MODEL)


# --- the command line ---------------------------------------------------------


def _run(*argv: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return run_python("-m", "hloenv", *argv, cwd=cwd)


# Each command in a process of its own, which need not import hloenv again.
_FORKS_COMMANDS = """
import json, os, sys
from hloenv.cli import main
codes = []
for number, argv in enumerate(json.loads(sys.argv[1])):
    pid = os.fork()
    if pid == 0:
        for stream, name in ((1, os.devnull), (2, f"{number}.err")):
            os.dup2(os.open(name, os.O_WRONLY | os.O_CREAT), stream)
        sys.argv = ["hloenv", *argv]
        sys.exit(main())
    codes.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
print(json.dumps(codes))
"""


@pytest.mark.parametrize("name", CRASHES)
def test_a_crashing_module_never_ends_a_command_by_a_signal(
    tmp_path: Path, name: str
) -> None:
    path = tmp_path / "killer.hlo"
    path.write_text(CRASHES[name])
    commands = [
        ("show", str(path)),
        ("alternatives", str(path), "-p", "algsimp"),
        ("optimize", str(path), "-p", "algsimp"),
        ("diff", str(path), str(path)),
        ("graph", str(path)),
    ]
    done = run_python("-c", _FORKS_COMMANDS, json.dumps(commands), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    for number, (argv, code) in enumerate(
        zip(commands, json.loads(done.stdout), strict=True)
    ):
        errors = (tmp_path / f"{number}.err").read_text()
        assert code in (0, 1), (argv, code, errors)
        if code:
            assert errors.splitlines()[-1].startswith("hloenv: error: "), argv


def test_a_command_prints_xlas_fatal_message(tmp_path: Path) -> None:
    path = tmp_path / "killer.hlo"
    path.write_text(CRASHES[FATAL_TO_READ])
    done = _run("show", str(path))
    assert done.returncode == 1
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1
    assert "SIGABRT" in done.stderr
    assert "Check failed" in done.stderr
    # Without isolation too: the module is read in a process of its own first.
    assert _run("show", str(path), "--no-isolate").returncode == 1


@pytest.mark.parametrize(
    ("body", "argv", "words"),
    [
        ("os.kill(os.getpid(), signal.SIGSEGV)", (), "SIGSEGV"),
        ("os.kill(os.getpid(), signal.SIGKILL)", (), "lack of memory"),
        ("hloenv.interpret(MODULE, np.int32(0))", ("--time-limit", "2"), "limit of 2"),
        ("bytearray(8 << 30)", ("--memory-limit", "2G"), "MemoryError"),
    ],
)
def test_a_crash_in_a_command_is_an_error(
    tmp_path: Path, body: str, argv: tuple[str, ...], words: str
) -> None:
    source = tmp_path / "model.py"
    source.write_text(
        "import os, signal\nimport hloenv\nimport numpy as np\n"
        f"MODULE = hloenv.HloModule.from_text('''{ENDLESS}''')\n"
        f"def model():\n    {body}\n"
    )
    done = _run("show", f"{source}:model", *argv)
    assert done.returncode == 1
    assert done.stderr.startswith("hloenv: error: ")
    assert words in done.stderr


def test_reading_has_a_limit_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    code = (
        "import sys, time\n"
        "from hloenv import cli\n"
        "from hloenv.cli import load, sandbox\n"
        "sandbox.READING_LIMIT_S = 1\n"
        "load.HloModule.from_file = lambda path: time.sleep(60)\n"
        "sys.argv = ['hloenv', 'show', 'x.hlo']\n"
        "sys.exit(cli.main())\n"
    )
    done = run_python("-c", code, timeout=60)
    assert done.returncode == 1
    assert "did not finish reading" in done.stderr


def test_a_signal_reaches_the_command(tmp_path: Path) -> None:
    source = tmp_path / "model.py"
    source.write_text(
        "import sys, time\ndef model():\n"
        "    print('started', file=sys.stderr, flush=True)\n    time.sleep(60)\n"
    )
    child = subprocess.Popen(
        [sys.executable, "-m", "hloenv", "show", f"{source}:model"],
        env={
            **os.environ,
            "PYTHONPATH": str(Path(hloenv.__file__).parent.parent),
        },
        stderr=subprocess.PIPE,
        text=True,
    )
    assert child.stderr is not None
    assert child.stderr.readline() == "started\n"
    (worker,) = _children(child.pid)
    child.terminate()
    assert child.wait(timeout=30) == 128 + signal.SIGTERM
    assert not Path(f"/proc/{worker}").exists()
    child.stderr.close()


def _children(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()


@pytest.mark.parametrize("limit", ["0", "-1", "much", "1X"])
def test_limits_have_to_be_positive(
    limit: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for option in ("--time-limit", "--memory-limit"):
        assert main(["show", "x.hlo", f"{option}={limit}"]) == 2
        assert option in capsys.readouterr().err
