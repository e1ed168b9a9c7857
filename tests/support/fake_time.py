# SPDX-License-Identifier: Apache-2.0
"""Functions that take a given time, without waiting."""

from __future__ import annotations

from typing import Any


class FakeTime:
    """Replaces the clock and the pauses of a module that times functions.

    Attributes:
        calls: names of the functions, in the order of their calls.
        pauses: the seconds of each pause.
    """

    def __init__(self, monkeypatch: Any, module: Any) -> None:
        """`module` uses its `time.perf_counter`, `perf_counter_ns` and `sleep`."""
        self.calls: list[str] = []
        self.pauses: list[float] = []
        self._now_ns = 0
        monkeypatch.setattr(module.time, "perf_counter_ns", lambda: self._now_ns)
        monkeypatch.setattr(module.time, "perf_counter", lambda: self._now_ns * 1e-9)
        monkeypatch.setattr(module.time, "sleep", self.pauses.append)

    def taking(self, name: str, seconds: float) -> Any:
        """A function of this name that takes so long."""

        def call() -> None:
            self.calls.append(name)
            self._now_ns += int(seconds * 1e9)

        return call
