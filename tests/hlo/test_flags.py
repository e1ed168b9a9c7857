# SPDX-License-Identifier: Apache-2.0
"""XLA_FLAGS that would crash XLA, in child processes that must not crash."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from support.run_child import RunChild

# Loads a module, which is the first thing that reads the flags, and runs XLA's
# pipeline, in which XLA reads them on its own.
LOAD = """
import os
import hloenv
text = "HloModule m\\nENTRY e { a = f32[2] parameter(0) ROOT r = f32[2] negate(a) }"
before = os.environ.get("XLA_FLAGS")
try:
    hloenv.finish(hloenv.HloModule.from_text(text))
    print("fine")
except hloenv.FlagError as error:
    print("FlagError:", error)
assert os.environ.get("XLA_FLAGS") == before
"""


def outcome(run_child: RunChild, flags: str, **env: str) -> str:
    child = run_child(LOAD, env={"XLA_FLAGS": flags, **env})
    assert child.stderr == ""
    return child.stdout.strip()


@pytest.mark.parametrize(
    "flags",
    [
        "",
        "  ",
        "--xla_cpu_enable_fast_math=false",
        "--xla_cpu_enable_fast_math --xla_backend_optimization_level=2",
        """--xla_dump_hlo_pass_re='a b' --xla_dump_hlo_module_re="c \\" d" """,
    ],
)
def test_known_flags_are_fine(run_child: RunChild, flags: str):
    assert outcome(run_child, flags) == "fine"


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        ("--xla_nobody_knows=1", "--xla_nobody_knows,"),
        ("--xla_nobody_knows='1 2'", "--xla_nobody_knows,"),
        ("--xla_a --xla_cpu_enable_fast_math=true --xla_b=2", "--xla_a, --xla_b,"),
        ("--xla_flags_reset=true", "--xla_flags_reset,"),
    ],
)
def test_unknown_flags_are_named(run_child: RunChild, flags: str, named: str):
    message = outcome(run_child, flags)
    assert message.startswith(f"FlagError: XLA_FLAGS holds {named}")
    assert "HLOENV_IGNORE_UNKNOWN_XLA_FLAGS=1" in message


def test_unknown_flags_can_be_ignored(run_child: RunChild):
    flags = "--xla_nobody_knows=1 --xla_cpu_enable_fast_math=true --xla_b='2 3'"
    ignored = {"HLOENV_IGNORE_UNKNOWN_XLA_FLAGS": "1"}
    assert outcome(run_child, flags, **ignored) == "fine"


def test_flags_that_are_known_count_when_others_are_ignored(
    run_child: RunChild, tmp_path: Path
):
    flags = f"--xla_nobody_knows=1 --xla_dump_to={tmp_path}"
    ignored = {"HLOENV_IGNORE_UNKNOWN_XLA_FLAGS": "1"}
    code = LOAD.replace("hloenv.finish(", "hloenv.compile(")
    run_child(code, env={"XLA_FLAGS": flags, **ignored})
    assert any(tmp_path.iterdir())


def test_values_that_xla_rejects_are_named(run_child: RunChild):
    message = outcome(run_child, "--xla_cpu_enable_fast_math=perhaps")
    assert message.startswith("FlagError: XLA cannot parse the value in")
    assert "--xla_cpu_enable_fast_math=perhaps" in message


def test_flags_may_be_in_a_file(run_child: RunChild, tmp_path: Path):
    path = tmp_path / "flags"
    path.write_text("--xla_cpu_enable_fast_math=false\n--xla_nobody_knows\n")
    assert "--xla_nobody_knows" in outcome(run_child, str(path))
    path.write_text("--xla_cpu_enable_fast_math=false\n")
    assert outcome(run_child, str(path)) == "fine"


def test_a_missing_file_of_flags_is_named(run_child: RunChild):
    message = outcome(run_child, "no/such/file")
    assert message.startswith("FlagError: XLA_FLAGS='no/such/file'")


def test_flags_can_be_corrected_in_the_same_process(run_child: RunChild):
    code = LOAD + LOAD.replace(
        "before =",
        "os.environ['XLA_FLAGS'] = '--xla_cpu_enable_fast_math=false'\nbefore =",
    )
    child = run_child(code, env={"XLA_FLAGS": "--xla_nobody_knows"})
    assert child.stdout.splitlines()[-1] == "fine"


def test_the_environment_is_unchanged(run_child: RunChild):
    child = run_child(
        """
import os
before = dict(os.environ)
import hloenv
assert dict(os.environ) == before
"""
    )
    assert child.stdout + child.stderr == ""
