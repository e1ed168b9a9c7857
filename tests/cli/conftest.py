# SPDX-License-Identifier: Apache-2.0
"""A module, and command lines that run in this process."""

from __future__ import annotations

from pathlib import Path

import pytest

from hloenv.cli import main
from support.modules import TWO_REWRITES


@pytest.fixture
def model(tmp_path: Path) -> str:
    """A file with a small module that algsimp and cse rewrite."""
    path = tmp_path / "model.hlo"
    path.write_text(TWO_REWRITES, encoding="utf-8")
    return str(path)


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]):
    """Runs a command line; returns exit code, stdout and stderr."""

    def run(*argv: str) -> tuple[int, str, str]:
        code = main(argv)
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run
