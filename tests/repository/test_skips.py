# SPDX-License-Identifier: Apache-2.0
"""Skips, failures and counts of conftest.py, in separate test runs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from hloenv.fuzz.invariants import Report
from hloenv.process.forkserver import Outcome
from support.cases import assert_invariants, unchecked
from support.paths import TESTS

_CONFTEST = TESTS / "conftest.py"
_SETTINGS = """[pytest]
addopts = -ra --strict-markers
markers =
  custom_calls(flag)
  max_instructions(n)
  needs(package)
  slow
"""
_SMALL = "HloModule m\nENTRY e {\n  ROOT x = f32[2] parameter(0)\n}\n"
_CALL = (
    "HloModule m\nENTRY e {\n  x = f32[2] parameter(0)\n"
    '  ROOT y = f32[2] custom-call(x), custom_call_target="f"\n}\n'
)


@pytest.fixture
def run(tmp_path: Path):
    """Runs pytest on the text of a test file, beside this folder's conftest.py."""
    for name, text in (("small", _SMALL), ("call", _CALL)):
        path = tmp_path / "hlo" / "package" / f"{name}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (tmp_path / "conftest.py").write_text(_CONFTEST.read_text())
    (tmp_path / "pytest.ini").write_text(_SETTINGS)

    def run(text: str, *options: str, **variables: str) -> tuple[int, str]:
        (tmp_path / "test_it.py").write_text(text)
        done = subprocess.run(
            [sys.executable, "-m", "pytest", *options, "test_it.py"],
            cwd=tmp_path,
            env={
                **os.environ,
                "HLOENV_TEST_HLO": str(tmp_path / "hlo"),
                "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
                **variables,
            },
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        return done.returncode, done.stdout + done.stderr

    return run


_NEEDS = """
import pytest
@pytest.mark.needs("no_such_package")
def test_it(): pass
"""


def test_a_missing_package_is_a_skip_with_a_reason(run):
    code, out = run(_NEEDS)
    assert code == 0
    assert "1 skipped" in out
    assert "no_such_package is not installed: pip install no_such_package" in out


def test_a_required_package_that_is_missing_is_a_failure(run):
    code, out = run(_NEEDS, "--require-packages")
    assert code == 1
    assert "no_such_package is not installed" in out


@pytest.mark.parametrize("package", ["gymnasium", "jax", "playwright", "torch"])
def test_a_file_that_imports_a_missing_package_is_skipped(run, tmp_path, package):
    (tmp_path / "without.py").write_text(f"import sys; sys.modules[{package!r}] = None")
    text = f"import {package}\ndef test_it(): pass\n"
    code, out = run(text, "-p", "without")
    assert code == pytest.ExitCode.NO_TESTS_COLLECTED
    assert "1 skipped" in out
    assert f"{package} is not installed: pip install" in out
    code, out = run(text, "-p", "without", "--require-packages")
    assert code == pytest.ExitCode.INTERRUPTED
    assert f"{package} is not installed: pip install" in out


_REAL = """
import pytest
@pytest.mark.max_instructions(1)
def test_it(real_module_path): assert real_module_path.exists()
@pytest.mark.custom_calls(True)
def test_calls(real_module_path): assert real_module_path.stem == "call"
"""


def test_modules_above_a_size_are_skips_with_a_count(run):
    code, out = run(_REAL)
    assert code == 0
    assert "2 passed, 1 skipped" in out
    assert "SKIPPED [1]" in out
    assert "real modules above 1 instructions" in out
    assert "3 passed" in run(_REAL, "--all-sizes")[1]


def test_a_folder_of_real_modules_that_is_not_there_is_an_error(run):
    code, out = run(_REAL, HLOENV_TEST_HLO="/no/such/folder")
    assert code != 0
    assert "HLOENV_TEST_HLO=/no/such/folder is no folder" in out


def test_tests_that_are_left_out_are_counted(run):
    text = """
import pytest
@pytest.mark.slow
def test_slow(): pass
def test_other(): pass
"""
    code, out = run(text, "-m", "not slow")
    assert code == 0
    assert "left out: 1 slow" in out


# --- tests/invariants/conftest.py -------------------------------------------------

_LARGE = Report("cse", 0, skipped=("module 'm' is too large",))
_OTHER_LARGE = Report("dce", 0, skipped=("module 'other' is too large",))
_NAN = Report("cse", 2, skipped=("an output is NaN",))
_PARTLY = Report("cse", 2, skipped=("an output is NaN",), num_checks=1)
_CHECKED = Report("cse", 2, num_checks=3)
_BROKEN = Report("cse", 2, ("invariant 4: off by 1",), ("an output is NaN",), 3)


def test_reports_without_a_check_are_counted_by_reason():
    reports = [_LARGE, _OTHER_LARGE, _NAN, _PARTLY, _CHECKED]
    reasons = {"module '…' is too large": 2, "an output is NaN": 1}
    assert unchecked(Outcome(0, reports)) == reasons
    assert not unchecked(Outcome(0, [_PARTLY, _CHECKED]))
    assert not unchecked(Outcome(0))


@pytest.mark.parametrize("reports", [[_CHECKED, _PARTLY], [_LARGE, _NAN]])
def test_outcomes_without_a_violation_pass(reports):
    assert_invariants(Outcome(0, reports))
    assert_invariants(Outcome(0, reports), 2)
    with pytest.raises(AssertionError):
        assert_invariants(Outcome(0, reports), 3)


@pytest.mark.parametrize(
    ("outcome", "message"),
    [
        (Outcome(0, [_LARGE, _BROKEN]), "cse: invariant 4: off by 1"),
        (Outcome(0, [_CHECKED], "SIGABRT"), "crashed after 1 reports: SIGABRT"),
        (Outcome(0), "checked nothing"),
    ],
)
def test_violations_crashes_and_no_reports_are_failures(outcome, message):
    with pytest.raises(AssertionError, match=message):
        assert_invariants(outcome)


_OUTCOMES = """
import pytest
from hloenv.fuzz.invariants import Report
from hloenv.process.forkserver import Outcome
LARGE = Report("cse", 0, skipped=("module 'm' is too large",))
NAN = Report("cse", 2, skipped=("an output is NaN",))
PARTLY = Report("cse", 2, skipped=("an output is NaN",), num_checks=1)
CHECKED = Report("cse", 2, num_checks=3)
BROKEN = Report("cse", 2, ("invariant 4: off by 1",), num_checks=3)
@pytest.mark.parametrize(
    "reports",
    [[LARGE, NAN, LARGE], [PARTLY, LARGE], [CHECKED, PARTLY], [LARGE, BROKEN]],
)
def test_it(assert_checked, reports): assert_checked(Outcome(0, reports))
"""


def test_outcomes_are_skipped_if_nothing_in_them_was_checked(run, tmp_path: Path):
    conftest = TESTS / "invariants" / "conftest.py"
    (tmp_path / "conftest.py").write_text(conftest.read_text())
    code, out = run(_OUTCOMES)
    assert code == 1
    assert "1 failed, 2 passed, 1 skipped" in out
    reasons = "2 x module '…' is too large, 1 x an output is NaN"
    assert f"none of 3 captures: {reasons}" in out
    assert "cse: invariant 4: off by 1" in out
    # Those of the failed test are not counted.
    assert "     3 module '…' is too large" in out
    assert "     1 an output is NaN" in out
    assert "4 of 7 captures were not checked" in out
