# SPDX-License-Identifier: Apache-2.0
"""The type of the `run_child` fixture, where every test can import it."""

from __future__ import annotations

import subprocess
from typing import Protocol


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
