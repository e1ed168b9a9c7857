# SPDX-License-Identifier: Apache-2.0
"""Forks of a process in which XLA's pipeline has run.

Constant folding, and with it XLA's pipeline, starts a thread that reports slow
operations. It does not exist in a forked process. XLA would still wake it up there,
which ends the process (a CHECK failure in absl's mutex), or writes to the memory of
other threads.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path

from .._native import core
from ..errors import ForkError

# The pass that starts the thread; XLA's pipeline runs it, too.
FOLDING = "constant_folding"

# Native threads before the first run; None: none has been.
_num_before: int | None = None
# Whether the thread exists in the process that forks, and hence is lost in the new one.
_is_lost = False
_will_be_lost = False


def enter_pipeline() -> None:
    """Call before constant folding or XLA's pipeline runs.

    Raises:
        ForkError: this process was forked from one in which either has run.
    """
    global _num_before
    if _is_lost:
        core.check_pass(FOLDING, {})  # raises where another thread was inside XLA
        raise ForkError(
            f"process {os.getpid()} was forked from one in which XLA's pipeline had "
            "run: a thread that XLA's constant folding needs does not exist here, so "
            "that XLA would crash. Start such processes with "
            "multiprocessing.get_context('spawn') or 'forkserver' (of Gymnasium: "
            "AsyncVectorEnv(..., context='spawn')), or fork before the first pass runs"
        )
    if _num_before is None:
        _num_before = _num_native_threads()


def _before_fork() -> None:
    global _will_be_lost
    has_started = _num_before is not None and _num_native_threads() > _num_before
    _will_be_lost = _is_lost or has_started


def _after_fork() -> None:
    global _is_lost, _num_before
    _is_lost, _num_before = _will_be_lost, None


def _num_native_threads() -> int:
    """Threads that are not Python's, as numpy's; without XLA's pools, which have names.

    The thread that matters has the name of the process, as others may have.
    """
    num_threads = 0
    for task in Path("/proc/self/task").iterdir():
        try:
            num_threads += not (task / "comm").read_text().startswith("tf_")
        except OSError:  # it has ended
            continue
    return num_threads - threading.active_count()


os.register_at_fork(before=_before_fork, after_in_child=_after_fork)
