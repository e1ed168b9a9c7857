# SPDX-License-Identifier: Apache-2.0
"""What children do in tests."""

from __future__ import annotations

import os
import time
from pathlib import Path


def say_and_sleep(path: str) -> None:
    """Writes the child's and the server's process numbers, and never ends."""
    Path(path).write_text(f"{os.getpid()} {os.getppid()}\n")
    time.sleep(3600)
