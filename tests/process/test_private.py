# SPDX-License-Identifier: Apache-2.0
"""Files planted in the current folder or in /tmp have no effect."""

from __future__ import annotations

import fcntl
import os
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

import hloenv
from hloenv.errors import LockError, WorkerError
from hloenv.process import child, cpu_affinity
from support.modules import TWO_REWRITES
from support.run_child import run_python

PACKAGE = Path(hloenv.__file__).parents[1]

# What child processes import, and what they would if it were installed.
_PLANTED = (
    *("json", "numpy", "ml_dtypes", "struct", "random", "pickle", "resource"),
    *("hloenv", "jaxlib", "sitecustomize", "tensorflow", "threading"),
)


@pytest.fixture
def planted(tmp_path: Path) -> Path:
    """A folder of modules that say who imported them, in a file `ran`."""
    folder = tmp_path / "planted"
    folder.mkdir()
    for name in _PLANTED:
        (folder / f"{name}.py").write_text(
            f"open({str(folder / 'ran')!r}, 'a').write({name + ' '!r})\n"
            "raise SystemExit('planted')\n"
        )
    return folder


def _run(planted: Path, code: str, *options: str) -> subprocess.CompletedProcess[str]:
    """Runs a program that lies elsewhere in the folder; nothing in there may run."""
    program = planted.parent / "program.py"
    program.write_text(code)
    done = run_python(*options, str(program), cwd=planted, timeout=240)
    ran = planted / "ran"
    assert not ran.exists(), f"planted modules ran: {ran.read_text()}"
    return done


_USES = {
    "measure": "print(hloenv.measure(TEXT, repeats=2).check().threads)",
    "sandbox": "with hloenv.isolated() as lab: print(lab.load(TEXT).name)",
    "pool": (
        "from hloenv.process.forkserver import run_jobs\n"
        "(done,) = run_jobs('hloenv.hlo.module:as_module', [(TEXT,)])\n"
        "print(done.value.name)"
    ),
    "workers of learning": (
        "from hloenv.learn.workers import run_tasks\n"
        "if __name__ == '__main__': print(sum(\n"
        "    found for _, found in run_tasks(abs, [1, -1, 0], workers=2)) // 2)"
    ),
    "reproducers": (
        "import pathlib, types\n"
        "from hloenv.rewrite_map.reproducer import run_script\n"
        "folder = pathlib.Path.cwd()\n"
        "(folder / 'script.py').write_text('import json, subprocess, sys\\n'\n"
        "    'done = subprocess.run([sys.executable, __file__[:-9] + \\'inner.py\\'])\\n'\n"
        "    'print(json.dumps({\\'with_ms\\': 1 + done.returncode, \\'without_ms\\': 1}))')\n"
        "(folder / 'inner.py').write_text('import json, pickle')\n"
        "found = types.SimpleNamespace(script='script.py', error='')\n"
        "run_script(found, folder)\n"
        "print(found.error or found.with_ms)"
    ),
    "busy cores": (
        "import os\nfrom hloenv.measurement.self_test import busy_cores\nos.sched_getaffinity"
        " = lambda _: {0, 1}\nwith busy_cores([0]): print('busy')"
    ),
}


@pytest.mark.compile
@pytest.mark.parametrize("use", _USES)
def test_children_run_nothing_from_the_current_folder(planted: Path, use: str) -> None:
    done = _run(planted, f"import hloenv\nTEXT = {TWO_REWRITES!r}\n{_USES[use]}\n")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.strip() in ("1", "two_rewrites", "busy")


def test_a_parent_with_the_folder_on_its_path_keeps_it_from_children(
    planted: Path,
) -> None:
    done = _run(
        planted,
        f"import hloenv, os, sys\nTEXT = {TWO_REWRITES!r}\n"
        "sys.path[:0] = ['', '.', os.getcwd(), os.getcwd() + '/../planted']\n"
        f"{_USES['measure']}\n{_USES['sandbox']}\n",
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("before", [None, "", "1"])
def test_blocks_of_safe_path_may_overlap(
    before: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYTHONSAFEPATH", raising=False)
    if before is not None:
        monkeypatch.setenv("PYTHONSAFEPATH", before)
    first, second = child.safe_path(), child.safe_path()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert os.environ["PYTHONSAFEPATH"] == "1"  # `second` is still open
    second.__exit__(None, None, None)
    assert os.environ.get("PYTHONSAFEPATH") == before


def test_children_find_what_the_parent_finds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "beside").mkdir()
    (tmp_path / "beside" / "helpers_of_a_test.py").write_text("ANSWER = 42\n")
    monkeypatch.chdir(tmp_path)
    code = "import sys, helpers_of_a_test as h; sys.stdout.write(str(h.ANSWER))"

    def run() -> str:
        command = [*child.PYTHON, "-c", code]
        return subprocess.run(
            command,
            env=child.child_environment(),
            capture_output=True,
            text=True,
            check=False,
        ).stdout

    assert run() == ""
    monkeypatch.setattr(sys, "path", ["beside", *sys.path])
    assert run() == "42"


def _path() -> list[str]:
    return child.child_environment()["PYTHONPATH"].split(os.pathsep)


@pytest.mark.parametrize("here", ["", ".", "{}", "{}/lib/.."])
def test_the_current_folder_is_not_passed_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, here: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "lib").mkdir()
    path = [here.format(tmp_path), "lib", "/usr/lib/python3"]
    monkeypatch.setattr(sys, "path", path)
    assert _path() == [str(tmp_path / "lib"), "/usr/lib/python3"]


@pytest.mark.parametrize("is_there", [True, False])
def test_a_sandbox_finds_the_callers_functions_after_everything_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_there: bool
) -> None:
    (tmp_path / "functions_of_a_test.py").write_text(
        "import json\nimport sys\n\n\n"
        "def answer():\n    return [json.__file__, sys.path[-1]]\n"
    )
    (tmp_path / "json.py").write_text("")
    monkeypatch.chdir(tmp_path)
    if is_there:
        monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    with hloenv.isolated() as lab:
        if is_there:
            file, last = lab.call("functions_of_a_test:answer")
            assert last == str(tmp_path)
            assert Path(file).parent.parent != tmp_path
            assert Path(file).parent != tmp_path
        else:
            with pytest.raises(WorkerError, match="functions_of_a_test"):
                lab.call("functions_of_a_test:answer")


def test_hloenv_is_found_where_it_lies_in_the_current_folder(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(PACKAGE)
    monkeypatch.setattr(sys, "path", [str(PACKAGE), "/usr/lib/python3"])
    assert _path() == ["/usr/lib/python3", str(PACKAGE)]


def test_a_current_folder_that_is_gone_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    monkeypatch.setattr(sys, "path", ["", "relative", "/usr/lib/python3"])
    assert _path() == ["/usr/lib/python3"]
    monkeypatch.chdir(tmp_path)


# Locks.


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the lock files go; not made yet."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path / f"hloenv-{os.getuid()}"


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_locks_are_in_a_folder_of_this_user_alone(folder: Path) -> None:
    before = os.umask(0)
    try:
        lease = cpu_affinity.CoreLease(1)
    finally:
        os.umask(before)
    assert _mode(folder) == 0o700
    (file,) = folder.iterdir()
    assert _mode(file) == 0o600
    lease.release()


def test_a_folder_that_others_could_write_to_is_closed_to_them(folder: Path) -> None:
    folder.mkdir()
    folder.chmod(0o777)
    cpu_affinity.CoreLease(1).release()
    assert _mode(folder) == 0o700


def test_a_folder_of_another_user_is_rejected(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.mkdir()
    mine = os.getuid()
    if mine == 0:
        os.chown(folder, 12345, -1)
    else:
        folder.rename(folder.with_name(f"hloenv-{mine + 1}"))
        monkeypatch.setattr(os, "getuid", lambda: mine + 1)
    with pytest.raises(LockError, match="another user"):
        cpu_affinity.CoreLease(1)


@pytest.mark.parametrize("kind", ["link", "file"])
def test_other_files_are_not_folders(folder: Path, kind: str) -> None:
    if kind == "link":
        (folder.parent / "elsewhere").mkdir(mode=0o700)
        folder.symlink_to(folder.parent / "elsewhere")
    else:
        folder.write_text("")
    with pytest.raises(LockError, match="Not a directory"):
        cpu_affinity.CoreLease(1)
    assert not list((folder.parent).glob("elsewhere/*"))


@pytest.mark.parametrize("kind", ["link", "pipe", "folder"])
def test_other_objects_are_not_lock_files(folder: Path, kind: str) -> None:
    folder.mkdir(mode=0o700)
    victim = folder.parent / "victim"
    victim.write_text("precious")
    for core in os.sched_getaffinity(0):
        path = folder / f"core-{core}.lease"
        if kind == "link":
            path.symlink_to(victim)
        elif kind == "pipe":
            os.mkfifo(path)
        else:
            path.mkdir()
    with pytest.raises(LockError, match="lock file"):
        cpu_affinity.CoreLease(1)
    assert victim.read_text() == "precious"


def test_a_lock_file_keeps_what_it_holds(folder: Path) -> None:
    folder.mkdir(mode=0o700)
    files = [folder / f"core-{core}.timing" for core in os.sched_getaffinity(0)]
    for file in files:
        file.write_text("kept")
    with cpu_affinity.turn_to_time(list(os.sched_getaffinity(0))):
        pass
    assert {file.read_text() for file in files} == {"kept"}


def test_a_lock_file_is_closed_in_programs_that_are_started(folder: Path) -> None:
    lease = cpu_affinity.CoreLease(1)
    (file,) = lease._files
    assert fcntl.fcntl(file, fcntl.F_GETFD) & fcntl.FD_CLOEXEC
    assert not os.get_inheritable(file.fileno())
    lease.release()
