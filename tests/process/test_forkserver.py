# SPDX-License-Identifier: Apache-2.0
"""Work in children of a server: `hloenv.process.forkserver`."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from support.children import map_jobs

_DRIVER = """
import sys
from hloenv.process.forkserver import Job, Pool
with Pool(workers=1) as pool:
    pool.submit(Job("support.children:say_and_sleep", (sys.argv[1],)))
    pool.next()
"""


def _is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def _wait_for(condition, seconds: float = 30.0) -> bool:
    ends = time.monotonic() + seconds
    while not condition() and time.monotonic() < ends:
        time.sleep(0.05)
    return bool(condition())


def test_no_process_remains_when_the_driver_is_killed(tmp_path: Path):
    path = tmp_path / "pids"
    driver = subprocess.Popen(
        [sys.executable, "-c", _DRIVER, str(path)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    try:
        assert _wait_for(lambda: path.exists() and path.read_text().endswith("\n"))
    finally:
        driver.send_signal(signal.SIGKILL)
        driver.wait()
    child, server = map(int, path.read_text().split())
    assert _wait_for(lambda: not _is_alive(child) and not _is_alive(server))


@pytest.mark.parametrize("by_value", [True, False])
def test_timeouts_by_value_allow_many_values(by_value: bool):
    # Six values of 0.5 s each: late as a whole, in time one by one.
    (outcome,) = map_jobs(
        "support.children:count_slowly",
        [(6, 0.5)],
        timeout=2.0,
        is_timed_by_value=by_value,
    )
    assert (len(outcome.values) == 6) == by_value
    assert outcome.error == ("" if by_value else "timeout")


def test_a_limit_stays_below_what_there_is(run_child):
    code = """
import resource
from hloenv.process.child import limit_memory
limit_memory(6 << 30)
limit_memory(8 << 30)
assert resource.getrlimit(resource.RLIMIT_DATA) == (6 << 30, 6 << 30)
limit_memory(5 << 30)
assert resource.getrlimit(resource.RLIMIT_DATA) == (5 << 30, 5 << 30)
"""
    run_child(code)


def test_doubtful_input_is_read_where_memory_is_limited_already(run_child):
    """The child process that reads it has a limit of its own, which is higher."""
    run_child(
        """
import resource
resource.setrlimit(resource.RLIMIT_DATA, (6 << 30, 6 << 30))
import hloenv
from hloenv.process import child
hloenv.HloModule.from_text("HloModule m\\nENTRY e { ROOT r = s4[1] constant({1}) }")
assert child.num_read() == 1
"""
    )


def test_low_priority_holds_against_other_sessions():
    (own,) = map_jobs("os:nice", [(0,)], nice=7)
    (group,) = map_jobs("linecache:getlines", [("/proc/self/autogroup",)], nice=7)
    assert own.value == os.nice(0) + 7
    # No lines: the kernel does not group processes by session.
    assert all(line.endswith("nice 7\n") for line in group.value)
