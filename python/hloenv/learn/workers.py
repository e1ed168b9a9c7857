# SPDX-License-Identifier: Apache-2.0
"""Runs a function on many tasks: here, in child processes, or on Ray.

XLA may crash on a task, or the system may end a worker. The tasks that a lost worker
had are run again, each in a process of its own, so that the one that ends its process
is known; it fails, and the others go on.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from typing import Any, TypeVar

from .._optional import needed_by
from ..errors import ArgumentError, HloEnvError, WorkerError

Task = TypeVar("Task")
Made = TypeVar("Made")


def run_tasks(
    function: Callable[[Task], Made],
    tasks: Sequence[Task],
    *,
    workers: int = 1,
    use_ray: bool = False,
) -> Iterator[tuple[int, Made | HloEnvError]]:
    """The number of each task, and what the function returns or raises for it.

    Args:
        function: of a module, so that a worker can import it.
        tasks: its arguments.
        workers: child processes; 1 runs the tasks in this process, in order. With more,
            results come as they are ready.
        use_ray: whether the tasks run on Ray, which has its own workers.

    Raises:
        ArgumentError: `workers` is not positive.
        ImportError: Ray is not installed.
    """
    if workers < 1:
        raise ArgumentError(f"workers must be an integer >= 1, got {workers}")
    if use_ray:
        yield from _on_ray(function, tasks)
    elif workers == 1:
        for number, task in enumerate(tasks):
            yield number, _call(function, task)
    else:
        yield from _in_processes(function, tasks, workers)


def _call(function: Callable[[Task], Made], task: Task) -> Made | HloEnvError:
    try:
        return function(task)
    except HloEnvError as error:
        return error


def _in_processes(
    function: Callable[[Task], Made], tasks: Sequence[Task], workers: int
) -> Iterator[tuple[int, Made | HloEnvError]]:
    lost: list[int] = []
    with _pool(workers) as pool:
        futures = {
            pool.submit(_call, function, task): number
            for number, task in enumerate(tasks)
        }
        for future in as_completed(futures):
            if _is_lost(future):
                lost.append(futures[future])
            else:
                yield futures[future], future.result()
    lost.sort()
    while lost:
        # One at a time, in one process until it is lost again.
        with _pool(1) as pool:
            while lost:
                number = lost.pop(0)
                future = pool.submit(_call, function, tasks[number])
                if _is_lost(future):
                    text = f"task {number} ends the process that runs it"
                    yield number, WorkerError(text)
                    break
                yield number, future.result()


def _is_lost(future: Future[Made | HloEnvError]) -> bool:
    """Whether the worker ended before the task did; waits for it."""
    return isinstance(future.exception(), BrokenProcessPool)


def _pool(workers: int) -> ProcessPoolExecutor:
    # A fork of a process that has compiled cannot compile.
    context = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(workers, mp_context=context)


def _on_ray(
    function: Callable[[Task], Made], tasks: Sequence[Task]
) -> Iterator[tuple[int, Made | HloEnvError]]:
    with needed_by("workers on Ray", "Ray", "ray"):
        import ray
    if not ray.is_initialized():
        ray.init(log_to_driver=False)
    remote: Any = ray.remote(max_retries=3)(_call)
    numbers = {remote.remote(function, task): i for i, task in enumerate(tasks)}
    left = list(numbers)
    while left:
        (ready,), left = ray.wait(left)
        try:
            yield numbers[ready], ray.get(ready)
        except ray.exceptions.WorkerCrashedError as error:
            yield numbers[ready], WorkerError(f"the worker was lost: {error}")
