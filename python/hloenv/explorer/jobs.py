# SPDX-License-Identifier: Apache-2.0
"""Jobs: long work in child processes, with progress, and ended to cancel it."""

from __future__ import annotations

import json
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..errors import HloEnvError
from ..rewrite.sandbox import Sandbox
from .finished import nothing_finished
from .schema import JobInfo

_MAX_KEPT = 50
_TIMEOUT_S = 3600.0

Finish = Callable[[JobInfo, Any], None]


@dataclass
class _Job:
    info: JobInfo
    sandbox: Sandbox
    progress: Path
    began: float = field(default_factory=time.monotonic)


class Jobs:
    """Runs jobs in threads, each of which waits for a child process.

    Args:
        max_running: jobs at one time; a further one is refused.
    """

    def __init__(self, max_running: int = 2) -> None:
        self._max_running = max_running
        self._lock = threading.Lock()
        self._jobs: dict[int, _Job] = {}
        self._next = 1
        self._folder = tempfile.TemporaryDirectory(prefix="hloenv-explorer-")
        self._is_closed = False

    def start(self, kind: str, arguments: tuple[Any, ...], finish: Finish) -> JobInfo:
        """Starts a job.

        Args:
            kind: a function in `work`; the progress path is its first argument.
            arguments: the others.
            finish: puts the result into the job.

        Raises:
            BusyError: too many jobs are running.
        """
        with self._lock:
            running = sum(
                each.info["state"] == "running" for each in self._jobs.values()
            )
            if self._is_closed or running >= self._max_running:
                raise BusyError(
                    f"{running} jobs are running, the most at one time; wait for one, "
                    "or cancel it"
                )
            number = self._next
            self._next += 1
            info = _new_info(number, kind)
            job = _Job(
                info,
                Sandbox(timeout_s=_TIMEOUT_S),
                Path(self._folder.name, f"{number}.jsonl"),
            )
            self._jobs[number] = job
            for old in list(self._jobs)[:-_MAX_KEPT]:
                if self._jobs[old].info["state"] != "running":
                    del self._jobs[old]
        work = f"{__package__}.work:{kind}"
        threading.Thread(
            target=self._run,
            args=(job, work, (str(job.progress), *arguments), finish),
            name=f"hloenv-job-{number}",
            daemon=True,
        ).start()
        return self.info(number)

    def info(self, number: int) -> JobInfo:
        """A job as it is now.

        Raises:
            UnknownJobError: there is no such job.
        """
        job = self._find(number)
        if job.info["state"] == "running":
            job.info["seconds"] = time.monotonic() - job.began
            job.info.update(_last_progress(job.progress))  # type: ignore[typeddict-item]
        return JobInfo(**job.info)

    def cancel(self, number: int) -> JobInfo:
        """Ends a job; one that has ended stays as it is."""
        job = self._find(number)
        with self._lock:
            if job.info["state"] == "running":
                job.info["state"] = "cancelled"
        job.sandbox.interrupt()
        return self.info(number)

    def close(self) -> None:
        """Ends all jobs."""
        with self._lock:
            self._is_closed = True
            jobs = list(self._jobs.values())
        for job in jobs:
            self.cancel(job.info["id"])
        self._folder.cleanup()

    def _find(self, number: int) -> _Job:
        with self._lock:
            job = self._jobs.get(number)
        if job is None:
            raise UnknownJobError(f"there is no job {number}")
        return job

    def _run(
        self, job: _Job, function: str, arguments: tuple[Any, ...], finish: Finish
    ) -> None:
        state, message = "done", ""
        try:
            with job.sandbox:
                result = job.sandbox.call(function, *arguments)
            finish(job.info, result)
        except (HloEnvError, OSError, ValueError) as error:
            state, message = "failed", f"{type(error).__name__}: {error}"
        with self._lock:
            job.info["seconds"] = time.monotonic() - job.began
            if job.info["state"] == "running":
                job.info["state"], job.info["message"] = state, message


class BusyError(HloEnvError, RuntimeError):
    """Too many jobs are running."""


class UnknownJobError(HloEnvError, LookupError):
    """There is no such job."""


def _new_info(number: int, kind: str) -> JobInfo:
    return {
        "id": number,
        "kind": kind,
        "state": "running",
        "done": 0,
        "total": 0,
        "phase": "starting",
        "seconds": 0.0,
        "message": "",
        **nothing_finished(),
    }


def _last_progress(path: Path) -> dict[str, Any]:
    """The last complete line of a progress file; empty if there is none."""
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except OSError:
        return {}
    for line in reversed(lines[:-1]):
        try:
            found: dict[str, Any] = json.loads(line)
        except ValueError:
            continue
        return found
    return {}
