# SPDX-License-Identifier: Apache-2.0
"""What children do in tests."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path


def say_and_sleep(path: str) -> None:
    """Writes the child's and the server's process numbers, and never ends."""
    Path(path).write_text(f"{os.getpid()} {os.getppid()}\n")
    time.sleep(3600)


def count_slowly(num_values: int, seconds: float) -> Iterator[int]:
    """Yields a number every so many seconds."""
    for number in range(num_values):
        time.sleep(seconds)
        yield number
