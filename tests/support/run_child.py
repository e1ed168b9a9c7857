# SPDX-License-Identifier: Apache-2.0
"""Python in child processes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Protocol

import hloenv


class RunChild(Protocol):
    """See `run_child`."""

    def __call__(
        self,
        code: str,
        *,
        exit_code: int = 0,
        env: dict[str, str] | None = None,
        timeout: float = 120,
    ) -> subprocess.CompletedProcess[str]: ...


def run_python(
    *words: str,
    cwd: Path | None = None,
    env: dict[str, str] | None = None,
    timeout: float = 120,
) -> subprocess.CompletedProcess[str]:
    """Runs Python, with the hloenv of this process, and takes what it prints.

    Args:
        words: arguments of the interpreter.
        cwd: the folder it runs in.
        env: in addition to the environment of this process.
        timeout: in seconds, after which it is killed and the test fails.
    """
    package = str(Path(hloenv.__file__).parent.parent)
    return subprocess.run(
        [sys.executable, *words],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": package, **(env or {})},
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
