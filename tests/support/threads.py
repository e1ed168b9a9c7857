# SPDX-License-Identifier: Apache-2.0
"""Calls that run at the same time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any


def in_threads(work: Callable[[Any], Any], arguments: Iterable[Any]) -> list[Any]:
    """The results of `work`, called in one thread for each argument, all at once.

    What one of them raises is raised here.
    """
    arguments = list(arguments)
    begins = threading.Barrier(len(arguments))

    def call(argument: Any) -> Any:
        begins.wait()
        return work(argument)

    with ThreadPoolExecutor(len(arguments)) as pool:
        return list(pool.map(call, arguments))
