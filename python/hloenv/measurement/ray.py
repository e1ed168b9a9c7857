# SPDX-License-Identifier: Apache-2.0
"""Measurements on a Ray cluster: `Evaluator(executor=RayExecutor())`.

Ray schedules the tasks, retries those of lost workers, and reuses its worker processes
and their child processes. On each machine, a measurement leases cores that no other
measurement of hloenv uses.
"""

from __future__ import annotations

import threading
from concurrent.futures import Executor, Future
from typing import Any

from .._optional import needed_by
from .measurer import Measurer
from .pool import Task, measure_task
from .record import Measurement

_lock = threading.Lock()
_measurer: Measurer | None = None


def measure_here(task: Task) -> dict[str, Any]:
    """Measures a task in a Ray worker; keeps the child process for the next task."""
    global _measurer
    with _lock:
        if _measurer is None or _measurer.settings.worker != task.settings.worker:
            if _measurer is not None:
                _measurer.close()
            _measurer = Measurer(task.settings)
        _measurer.settings = task.settings
        return measure_task(task, _measurer).to_json()


class RayExecutor(Executor):
    """Measures tasks on a Ray cluster.

    Args:
        retries: how often Ray retries a task after its worker was lost.
        resources: resources of a task, as in `ray.remote`; by default "num_cpus" is
            the number of the task's threads.
    """

    def __init__(self, *, retries: int = 3, resources: dict[str, Any] | None = None):
        """Connects to the cluster of this program, or starts a local one.

        Raises:
            ImportError: Ray is not installed.
        """
        with needed_by("RayExecutor", "Ray", "ray"):
            import ray
        if not ray.is_initialized():
            ray.init(log_to_driver=False)
        self._ray = ray
        self._measure = ray.remote(measure_here)
        self._options = {"max_retries": retries, **(resources or {})}
        self._running: set[Any] = set()

    def submit(  # type: ignore[override]
        self, task: Task, /
    ) -> Future[Measurement]:
        """Measures a task's candidate as soon as Ray schedules it."""
        options = {"num_cpus": task.settings.threads, **self._options}
        reference = self._measure.options(**options).remote(task)
        self._running.add(reference)
        result: Future[Measurement] = Future()
        result.set_running_or_notify_cancel()

        def finish(answer: Future[dict[str, Any]]) -> None:
            self._running.discard(reference)
            error = answer.exception()
            if error is None:
                result.set_result(Measurement.from_json(answer.result()))
            else:
                # Ray wraps the exceptions of tasks.
                result.set_exception(getattr(error, "cause", None) or error)

        reference.future().add_done_callback(finish)
        return result

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Waits for the running tasks or cancels them; does not stop the cluster."""
        if cancel_futures:
            for reference in list(self._running):
                self._ray.cancel(reference, force=True)
        elif wait and self._running:
            self._ray.wait(list(self._running), num_returns=len(self._running))
