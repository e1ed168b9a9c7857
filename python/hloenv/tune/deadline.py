# SPDX-License-Identifier: Apache-2.0
"""Ends a script that has run for long enough, by an exception in its main thread.

A script may take that exception for an error of its own. It is then raised again, soon
at intervals of microseconds, so that it also comes where no block catches it: where a
loop begins anew, or within the block that has caught it.
"""

from __future__ import annotations

import contextlib
import random
import signal
import threading
import time
from collections.abc import Iterator
from types import CodeType, FrameType

# Seconds that a script has to call a function, before it is ended anywhere.
_GRACE_S = 1.0
# And after which it is ended once more, where it takes that for an error; what it does
# at its end, as writing a checkpoint, may take as long.
_AGAIN_S = 30.0
# A script that has caught so many is ended at short intervals: those that calls of
# functions raise, and those of the timer.
_MAX_CALLS, _MAX_TIMES = 100, 3
_SHORT_S = (1e-6, 5e-5)


class TimeUpError(BaseException):
    """Ends a script; no `except Exception` takes it."""


class Deadline:
    """When a script is to end."""

    def __init__(self, seconds: float) -> None:
        """Counts from now."""
        self._seconds = seconds
        self._end = time.monotonic() + seconds
        self._num_calls = self._num_times = 0
        self._is_hurried = False
        self._code: CodeType | None = None

    def check(self) -> None:
        """Called by each call of a function.

        Raises:
            TimeUpError: the time is up.
        """
        if time.monotonic() > self._end:
            self._num_calls += 1
            if self._num_calls >= _MAX_CALLS and not self._is_hurried:
                self._hurry()
            raise TimeUpError

    @contextlib.contextmanager
    def enforced(self, code: CodeType) -> Iterator[None]:
        """Ends a script in this block, with `TimeUpError`; in the main thread only.

        Args:
            code: of the script.
        """
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        self._code = code
        before = signal.signal(signal.SIGALRM, self._raise)
        timer = signal.setitimer(signal.ITIMER_REAL, self._seconds + _GRACE_S, _AGAIN_S)
        try:
            yield
        finally:
            self._code = None  # what still comes does nothing
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
            signal.setitimer(signal.ITIMER_REAL, *timer)

    def _raise(self, _: int, frame: FrameType | None) -> None:
        self._num_times += 1
        if self._is_hurried or self._num_times >= _MAX_TIMES:
            self._hurry()
        # Not where the script has ended, and what it changed is restored.
        while frame is not None and frame.f_code is not self._code:
            frame = frame.f_back
        if frame is not None:
            raise TimeUpError

    def _hurry(self) -> None:
        is_main = threading.current_thread() is threading.main_thread()
        if is_main and self._code is not None:
            self._is_hurried = True
            signal.setitimer(signal.ITIMER_REAL, random.uniform(*_SHORT_S))
