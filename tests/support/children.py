# SPDX-License-Identifier: Apache-2.0
"""What children do in tests."""

from __future__ import annotations

import importlib
import inspect
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from hloenv.process.forkserver import Outcome, run_jobs

_BEGIN, _VALUE, _END = "begin", "value", "end"


def say_and_sleep(path: str) -> None:
    """Writes the child's and the server's process numbers, and never ends."""
    Path(path).write_text(f"{os.getpid()} {os.getppid()}\n")
    time.sleep(3600)


def count_slowly(num_values: int, seconds: float) -> Iterator[int]:
    """Yields a number every so many seconds."""
    for number in range(num_values):
        time.sleep(seconds)
        yield number


def call_each(
    function: str, jobs: Sequence[tuple[int, tuple[Any, ...]]]
) -> Iterator[tuple[int, str, Any]]:
    """Runs in a child: calls "module:name" once for each numbered job."""
    module, name = function.split(":")
    call = getattr(importlib.import_module(module), name)
    for index, arguments in jobs:
        yield index, _BEGIN, None
        found = call(*arguments)
        for value in found if inspect.isgenerator(found) else [found]:
            yield index, _VALUE, value
        yield index, _END, None


def map_jobs(
    function: str, jobs: Iterable[tuple[Any, ...]], **options: Any
) -> list[Outcome]:
    """The outcomes of `run_jobs` in the order of the jobs."""
    outcomes = run_jobs(function, list(jobs), **options)
    return sorted(outcomes, key=lambda outcome: outcome.index)


def map_in_few(
    function: str,
    jobs: Sequence[tuple[Any, ...]],
    *,
    workers: int = 2,
    timeout: float = 250.0,
    is_timed_by_value: bool = False,
) -> list[Outcome]:
    """As `map_jobs`, but with many jobs in each child, which start once.

    A child that ends is followed by another, with the jobs that are left.
    """
    options: dict[str, Any] = {
        "timeout": timeout,
        "is_timed_by_value": is_timed_by_value,
    }
    outcomes = [Outcome(index) for index in range(len(jobs))]
    left = dict(enumerate(jobs))
    while left:
        items = list(left.items())
        parts = [part for i in range(workers) if (part := items[i::workers])]
        calls = [(function, part) for part in parts]
        for child in run_jobs("support.children:call_each", calls, **options):
            last = None
            for index, kind, value in child.values:
                if kind == _VALUE:
                    outcomes[index].values.append(value)
                elif kind == _END:
                    del left[index]
                last = index
            if child.error:
                assert last in left, child.error
                outcomes[last] = replace(outcomes[last], error=child.error)
                del left[last]
    return outcomes
