# SPDX-License-Identifier: Apache-2.0
"""Runs a function on many tasks: here, in child processes, or on Ray.

XLA may crash on a task, or the system may end a worker. The tasks that a lost worker
had, and those that ran beside them, are run again, each in a process of its own, so
that the one that ends its process is known; it fails, and the others continue.
"""

from __future__ import annotations

import multiprocessing
import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from typing import Any, TypeVar

from .._optional import needed_by
from ..errors import ArgumentError, HloEnvError, WorkerError
from ..process.child import safe_path
from ..process.parent import end_with

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
    waiting = deque(range(len(tasks)))
    while waiting:
        lost: list[int] = []
        running: dict[Future[Made | HloEnvError], int] = {}
        with _pool(workers) as pool:
            while running or (waiting and not lost):
                # A lost worker breaks the pool, with all tasks that were submitted.
                while waiting and not lost and len(running) < workers:
                    number = waiting.popleft()
                    try:
                        future = pool.submit(_call, function, tasks[number])
                    except BrokenProcessPool:
                        lost.append(number)
                    else:
                        running[future] = number
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    number = running.pop(future)
                    if _is_lost(future):
                        lost.append(number)
                    else:
                        yield number, future.result()
        for number in sorted(lost):
            with _pool(1) as pool:
                future = pool.submit(_call, function, tasks[number])
                if _is_lost(future):
                    text = f"task {number} ends the process that runs it"
                    yield number, WorkerError(text)
                else:
                    yield number, future.result()


def _is_lost(future: Future[Made | HloEnvError]) -> bool:
    """Whether the worker ended before the task did; waits for it."""
    return isinstance(future.exception(), BrokenProcessPool)


@contextmanager
def _pool(workers: int) -> Iterator[ProcessPoolExecutor]:
    """Worker processes, which end with this block and with this process.

    After an error, an interrupt or a loop that was left, the tasks in work are not
    waited for.
    """
    # A fork of a process that has compiled cannot compile.
    context = multiprocessing.get_context("spawn")
    with safe_path():
        pool = ProcessPoolExecutor(
            workers, mp_context=context, initializer=end_with, initargs=(os.getpid(),)
        )
        try:
            yield pool
        except BaseException:
            for process in list((pool._processes or {}).values()):
                process.terminate()
            pool.shutdown(cancel_futures=True)
            raise
        pool.shutdown()


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
        except ray.exceptions.RayTaskError:
            raise
        except ray.exceptions.RayError as error:
            yield numbers[ready], WorkerError(f"the worker was lost: {error}")
