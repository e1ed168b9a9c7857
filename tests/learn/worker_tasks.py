# SPDX-License-Identifier: Apache-2.0
"""Tasks for workers, which import this file."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from hloenv.errors import ArgumentError


def double_or_die(number: int) -> int:
    """2 fails, and 3 ends its process."""
    if number == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    if number == 2:
        raise ArgumentError("not 2")
    return 2 * number


def touch(path: str) -> int:
    """Leaves a file, after a while; the number of its process."""
    time.sleep(0.1)
    Path(path).touch()
    return os.getpid()
