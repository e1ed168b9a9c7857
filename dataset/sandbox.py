# SPDX-License-Identifier: Apache-2.0
"""Child processes with a time limit, a memory limit, and no network."""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

# Environment variables passed to untrusted code.
_KEPT = ("LANG", "LC_ALL", "PATH", "TZ")
_POLL_S = 0.2
# Set to end the build: children are killed and none is started.
STOP = threading.Event()


class StoppedError(RuntimeError):
    """The build was stopped while a child ran."""


@dataclass(frozen=True)
class Ending:
    """The result of a child process.

    Attributes:
        status: "done", "failed", "timeout" or "memory".
        detail: the last lines of its output, or the exceeded limit.
        seconds: run time.
        network: "namespace" if it ran in an empty network namespace, "guard" if only
            Python's sockets were blocked, "open" if it had network access.
    """

    status: str
    detail: str
    seconds: float
    network: str


@functools.cache
def _unshare() -> tuple[str, ...]:
    """Returns the prefix that runs a command in an empty network namespace, or ()."""
    for command in (("unshare", "--net"), ("unshare", "--map-root-user", "--net")):
        with contextlib.suppress(OSError):
            done = subprocess.run(
                [*command, "true"], capture_output=True, check=False, timeout=10
            )
            if done.returncode == 0:
                return command
    return ()


def network_guard() -> str:
    """Returns how the network access of children is blocked: "namespace" or "guard"."""
    return "namespace" if _unshare() else "guard"


def clean_environment(home: Path) -> dict[str, str]:
    """Returns variables for untrusted code: nothing private, one thread, the CPU."""
    return {key: os.environ[key] for key in _KEPT if key in os.environ} | {
        "HOME": str(home),
        "TMPDIR": str(home),
        "JAX_PLATFORMS": "cpu",
        "TF_CPP_MIN_LOG_LEVEL": "3",
        "PYTHONHASHSEED": "0",
        "PYTHONNOUSERSITE": "1",
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "MPLBACKEND": "Agg",
        "HF_HUB_OFFLINE": "1",
        "WANDB_MODE": "disabled",
        # equinox: a failed check gives NaN instead of calling back into Python.
        "EQX_ON_ERROR": "nan",
        "SDL_VIDEODRIVER": "dummy",
    }


def run(
    command: Sequence[str],
    log: Path,
    *,
    cwd: Path,
    env: Mapping[str, str],
    timeout_s: float,
    max_memory_bytes: int,
    has_network: bool = False,
) -> Ending:
    """Runs a command; ends it and all its children if it exceeds a limit.

    Args:
        command: program and arguments.
        log: file for its output.
        cwd: working directory.
        env: its environment.
        timeout_s: time limit.
        max_memory_bytes: memory limit of the command and its children together.
        has_network: whether it has network access.

    Raises:
        StoppedError: `STOP` was set.
    """
    network, environment, prefix = "open", dict(env), ()
    if not has_network:
        network, prefix = network_guard(), _unshare()
        if network == "guard":
            environment["HLOENV_NO_NETWORK"] = "1"
    start = time.monotonic()
    with log.open("ab") as output:
        child = subprocess.Popen(
            [*prefix, *command],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=cwd,
            env=environment,
            start_new_session=True,
        )
        status = ""
        try:
            while child.poll() is None and not (status or STOP.is_set()):
                with contextlib.suppress(subprocess.TimeoutExpired):
                    child.wait(_POLL_S)
                if time.monotonic() - start > timeout_s:
                    status = "timeout"
                elif _memory_bytes(child.pid) > max_memory_bytes:
                    status = "memory"
        finally:
            # Also ends remaining processes of its session.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()
    seconds = time.monotonic() - start
    if STOP.is_set():
        raise StoppedError(f"stopped: {command[0]}")
    if status == "timeout":
        return Ending(status, f"more than {timeout_s:g} s", seconds, network)
    if status == "memory":
        limit = f"more than {max_memory_bytes / 2**30:.3g} GiB"
        return Ending(status, limit, seconds, network)
    if child.returncode:
        detail = f"exit code {child.returncode}: {tail(log)}"
        return Ending("failed", detail, seconds, network)
    return Ending("done", "", seconds, network)


def tail(log: Path, num_chars: int = 800) -> str:
    """The end of a log file."""
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - num_chars))
        return file.read().decode(errors="replace").strip()


def _memory_bytes(session: int) -> int:
    """Returns the total resident memory of the processes of a session.

    Shared pages count once per process. 0 without /proc.
    """
    pages = 0
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            stat = (folder / "stat").read_text()
            if int(stat.rpartition(")")[2].split()[3]) == session:
                pages += int((folder / "statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")
