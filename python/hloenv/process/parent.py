# SPDX-License-Identifier: Apache-2.0
"""A child process that does not outlive its parent."""

from __future__ import annotations

import ctypes
import os
import signal

# Of Linux: the signal that a process gets when the thread that made it ends.
_PR_SET_PDEATHSIG = 1


def end_with(parent: int) -> None:
    """Ends this process when its parent ends.

    Args:
        parent: its process id; where it has ended already, this process exits.
    """
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)
