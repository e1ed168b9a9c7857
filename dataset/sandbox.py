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

# What a child keeps of our environment; nothing else is any business of a stranger's
# code.
_KEPT = ("LANG", "LC_ALL", "PATH", "TZ")
_POLL_S = 0.2
# Set when the build is to end: children are killed, and none is started.
STOP = threading.Event()


class StoppedError(RuntimeError):
    """The build was ended from outside while a child ran."""


@dataclass(frozen=True)
class Ending:
    """How a child ended.

    Attributes:
        status: "done", "failed", "timeout" or "memory".
        detail: the last lines of its output, or which limit it met.
        seconds: how long it ran.
        network: "namespace" when the kernel gave it an empty network, "guard" when
            only Python's sockets were closed to it, "open" when it had the network.
    """

    status: str
    detail: str
    seconds: float
    network: str


@functools.cache
def _unshare() -> tuple[str, ...]:
    """The command that runs another one in an empty network; () where not allowed."""
    for command in (("unshare", "--net"), ("unshare", "--map-root-user", "--net")):
        with contextlib.suppress(OSError):
            done = subprocess.run(
                [*command, "true"], capture_output=True, check=False, timeout=10
            )
            if done.returncode == 0:
                return command
    return ()


def network_guard() -> str:
    """What keeps children off the network here: "namespace" or "guard"."""
    return "namespace" if _unshare() else "guard"


def clean_environment(home: Path) -> dict[str, str]:
    """Variables for a stranger's code: nothing private, one thread, the CPU."""
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
    """Runs a command, and ends it and all its children when it goes over a limit.

    Args:
        command: program and arguments.
        log: file that its output goes to.
        cwd: folder that it runs in.
        env: all of its environment.
        timeout_s: how long it may take.
        max_memory_bytes: how much memory it and its children may use together.
        has_network: whether it may use the network.

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
            # Whoever of its session is left, too.
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
    """Resident memory of all processes of a session, what they share counted once each.

    0 where there is no /proc.
    """
    pages = 0
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            stat = (folder / "stat").read_text()
            if int(stat.rpartition(")")[2].split()[3]) == session:
                pages += int((folder / "statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")
