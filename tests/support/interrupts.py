# SPDX-License-Identifier: Apache-2.0
"""Ctrl-C in the midst of work.

Python raises KeyboardInterrupt after work that ignores Ctrl-C, too, so what tells the
two apart is how much of the work was done by then. It is counted in CPU time of the
process, which does not depend on what else the machine does.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable

import pytest

# A real module whose pipeline takes about a second: long enough for Ctrl-C to come
# well before the end, and of many passes, none of which takes a large share.
LARGE_MODULE = "brax/inverted_pendulum_positional_step"


def _interrupt_after(cpu_seconds: float, is_done: threading.Event) -> None:
    ends = time.process_time() + cpu_seconds
    while time.process_time() < ends and not is_done.wait(0.001):
        pass
    if not is_done.is_set():
        signal.raise_signal(signal.SIGINT)


def share_done_when_interrupted(
    work: Callable[[], object], *, after: float = 0.2
) -> float:
    """How much of `work` is done when Ctrl-C ends it, from 0 to about 1.

    Args:
        work: what is interrupted; it takes the same CPU time whenever it is called.
        after: the share of its CPU time after which Ctrl-C comes.
    """
    work()  # the first call also loads and caches
    started = time.process_time()
    work()
    whole = time.process_time() - started
    is_done = threading.Event()
    thread = threading.Thread(target=_interrupt_after, args=(after * whole, is_done))

    def interrupted() -> float:
        try:
            thread.start()
            work()
            is_done.set()
            thread.join()
        except KeyboardInterrupt:
            return time.process_time() - started
        pytest.fail("the work ended before Ctrl-C came")

    started = time.process_time()
    try:
        used = interrupted()
    finally:
        is_done.set()
        thread.join()
    return used / whole
