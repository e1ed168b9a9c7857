# SPDX-License-Identifier: Apache-2.0
"""Measuring many candidates: crashes of workers and drivers, stores, Ray."""

from __future__ import annotations

import contextlib
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import hloenv
from hloenv.measurement.pool import Evaluator, Result
from hloenv.measurement.ray import RayExecutor
from hloenv.process.child import try_load
from support.modules import ADD
from support.paths import TESTS

pytestmark = pytest.mark.compile

SWAPPED = ADD.replace("add(a, b)", "add(b, a)")
WRONG = ADD.replace("add(a, b)", "subtract(a, b)")
REFUSED = ADD.replace("add(a, b)", 'custom-call(a, b), custom_call_target="x"')
ENDLESS = """
HloModule endless
cond { p = (f32[3,4], f32[3,4]) parameter(0)
  ROOT always = pred[] constant(true) }
body { ROOT p = (f32[3,4], f32[3,4]) parameter(0) }
ENTRY e {
  a = f32[3,4] parameter(0)
  b = f32[3,4] parameter(1)
  t = (f32[3,4], f32[3,4]) tuple(a, b)
  w = (f32[3,4], f32[3,4]) while(t), condition=cond, body=body
  ROOT r = f32[3,4] get-tuple-element(w), index=0
}
"""
HUNGRY = """
HloModule hungry
ENTRY e {
  a = f32[3,4] parameter(0)
  b = f32[3,4] parameter(1)
  s = f32[1] slice(a), slice={[0:1], [0:1]}
  x = f32[] constant(1)
  big = f32[50000,50000] broadcast(x), dimensions={}
  c = f32[50000,50000] cosine(big)
  t = f32[50000,50000] transpose(c), dimensions={1,0}
  m = f32[50000,50000] dot(c, t), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  l = f32[3,4] slice(m), slice={[0:3], [0:4]}
  ROOT r = f32[3,4] add(a, l)
}
""".replace("  s = f32[1] slice(a), slice={[0:1], [0:1]}\n", "")
SETTINGS = hloenv.Settings(repeats=3)


def version(depth: int, operands: str = "a, b") -> str:
    """`ADD` with pairs of negations behind it."""
    lines = [f"  n0 = f32[3,4] add({operands})"]
    lines += [f"  n{i + 1} = f32[3,4] negate(n{i})" for i in range(2 * depth)]
    body = "\n".join(lines)
    root = f"  ROOT r = f32[3,4] copy(n{2 * depth})"
    return ADD.replace("  ROOT r = f32[3,4] add(a, b)", f"{body}\n{root}")


def wrong(depth: int) -> str:
    """A version that subtracts."""
    return version(depth).replace("add(a, b)", "subtract(a, b)")


def modules(*texts: str) -> list[hloenv.HloModule]:
    """Parsed."""
    return [hloenv.HloModule.from_text(text) for text in texts]


def kinds(measurements: list[hloenv.Measurement]) -> list[str | None]:
    """Of the errors."""
    return [None if each.error is None else each.error.kind for each in measurements]


def test_results_come_in_the_order_of_the_candidates():
    candidates = modules(ADD, WRONG, REFUSED, SWAPPED)
    reported: list[Result] = []
    with Evaluator(SETTINGS, workers=2) as evaluator:
        results = evaluator.evaluate(candidates, baseline=ADD, report=reported.append)
    assert kinds(results) == [None, "OutputMismatchError", "CompileError", None]
    assert [each.fingerprint for each in results] == [
        each.fingerprint() for each in candidates
    ]
    assert sorted(each.index for each in reported) == [0, 1, 2, 3]


def test_each_candidate_is_one_record():
    settings = hloenv.Settings(repeats=2, timeout_s=8, max_memory_bytes=3 * 2**30)
    candidates = modules(ENDLESS, HUNGRY, WRONG, REFUSED, ADD)
    with Evaluator(settings, workers=2) as evaluator:
        results = evaluator.evaluate(candidates, baseline=ADD)
    assert kinds(results)[0] == "MeasureTimeout"
    assert kinds(results)[1] in ("WorkerError", "ExecuteError", "CompileError")
    assert kinds(results)[2:] == ["OutputMismatchError", "CompileError", None]


def test_stored_results_are_not_measured_again():
    candidates = modules(ADD, SWAPPED)
    with hloenv.Store(":memory:") as store:
        with Evaluator(SETTINGS, store=store) as evaluator:
            first = evaluator.evaluate(candidates, baseline=ADD)
            found = list(evaluator.results(candidates[::-1], baseline=ADD))
        assert [each.is_new for each in found] == [False, False]
        assert [each.measurement for each in found] == first[::-1]
        # `measure` looks in the same place.
        assert hloenv.measure(ADD, baseline=ADD, repeats=3, store=store) == first[0]
        with Evaluator(SETTINGS, store=store, again=True) as evaluator:
            (again,) = evaluator.results(candidates[:1], baseline=ADD)
        assert again.is_new


def test_equal_candidates_are_measured_once():
    with Evaluator(SETTINGS, workers=2) as evaluator:
        results = list(evaluator.results(modules(ADD, ADD, SWAPPED, ADD), baseline=ADD))
    assert sorted(each.index for each in results) == [0, 1, 2, 3]
    assert sum(each.is_new for each in results) == 2
    by_index = {each.index: each.measurement for each in results}
    assert by_index[0] == by_index[1]


def test_candidates_are_read_as_workers_get_free():
    read = []

    def candidates():
        for index in range(50):
            read.append(index)
            yield hloenv.HloModule.from_text(version(index))

    with Evaluator(SETTINGS, workers=1) as evaluator:
        results = evaluator.results(candidates(), baseline=ADD)
        next(results)
        results.close()
    assert len(read) < 10


def workers_of(pid: int) -> list[int]:
    """Child processes of `pid` that measure."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = path.read_text().rsplit(")", 1)[1].split()
            command = (path.parent / "cmdline").read_bytes()
            if int(fields[1]) == pid and b"hloenv.measurement.worker" in command:
                found.append(int(path.parent.name))
    return found


def test_a_killed_worker_loses_nothing():
    killed = []
    # Processes that earlier tests' trial compiles and reads have left standing by.
    others = set(workers_of(os.getpid()))

    def kill() -> None:
        deadline = time.monotonic() + 60
        while len(killed) < 2 and time.monotonic() < deadline:
            time.sleep(0.7)
            for pid in set(workers_of(os.getpid())) - others:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                    killed.append(pid)

    thread = threading.Thread(target=kill)
    candidates = modules(
        *(
            text
            for depth in range(8)
            for text in (version(depth), version(depth, "b, a"), wrong(depth))
        )
    )
    with Evaluator(SETTINGS, workers=1) as evaluator:
        thread.start()
        results = evaluator.evaluate(candidates, baseline=ADD)
    thread.join()
    assert len(killed) >= 2
    assert kinds(results) == [None, None, "OutputMismatchError"] * 8


def test_leaving_early_ends_the_workers():
    # So that a process of hloenv itself stands by: it is not one of these workers.
    try_load(ADD, verify=True, doubt="")
    others = set(workers_of(os.getpid()))
    with Evaluator(SETTINGS, workers=1) as evaluator:
        for _ in evaluator.results(modules(*map(version, range(9))), baseline=ADD):
            assert set(workers_of(os.getpid())) - others
            break
        started = time.monotonic()
    assert time.monotonic() - started < 30
    assert not set(workers_of(os.getpid())) - others


SEARCH = TESTS / "support" / "search.py"


def search(store: Path) -> subprocess.Popen[str]:
    """Starts the search of `support/search.py`."""
    return subprocess.Popen(
        [sys.executable, str(SEARCH), str(store)], stdout=subprocess.PIPE, text=True
    )


def saved(path: Path) -> int:
    """Records in a store, by whoever writes to it."""
    with (
        contextlib.suppress(sqlite3.Error),
        contextlib.closing(sqlite3.connect(path)) as connection,
    ):
        return int(connection.execute("SELECT count(*) FROM records").fetchone()[0])
    return 0


def test_a_search_whose_driver_and_workers_are_killed_ends_as_any_other(
    tmp_path: Path,
):
    undisturbed, _ = search(tmp_path / "undisturbed.sqlite").communicate(timeout=200)
    path = tmp_path / "killed.sqlite"
    kills = 0
    for records in (2, 4, 5, 7):
        driver = search(path)
        is_worker_killed = False
        while driver.poll() is None:
            workers = workers_of(driver.pid)
            if workers and not is_worker_killed:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(workers[0], signal.SIGKILL)
                is_worker_killed = True
            if path.exists() and saved(path) >= records:
                driver.kill()
                kills += 1
                break
            time.sleep(0.002)
        driver.communicate()
    resumed, _ = search(path).communicate(timeout=200)
    assert kills >= 3
    assert len(undisturbed.splitlines()) == 20
    assert resumed == undisturbed
    assert saved(path) == saved(tmp_path / "undisturbed.sqlite")


def measuring_below(pid: int) -> set[int]:
    """Processes that measure, among the descendants of `pid`."""
    children: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            parent = int(path.read_text().rsplit(")", 1)[1].split()[1])
            children.setdefault(parent, []).append(int(path.parent.name))
    found, pending = set(workers_of(pid)), list(children.get(pid, ()))
    while pending:
        child = pending.pop()
        found.update(workers_of(child))
        pending += children.get(child, ())
    return found


@pytest.fixture
def two_ray_workers() -> Iterator[None]:
    """A Ray cluster of two worker processes, both of which are up."""
    import ray

    @ray.remote
    def pid_of_worker() -> int:
        time.sleep(0.5)  # keeps this worker, so that the other call needs another
        return os.getpid()

    ray.init(num_cpus=2, log_to_driver=False, include_dashboard=False)
    try:
        while len(set(ray.get([pid_of_worker.remote() for _ in range(2)]))) < 2:
            pass
        yield
    finally:
        ray.shutdown()


@pytest.mark.ci
@pytest.mark.needs("ray")
def test_two_ray_workers_give_the_same_results(two_ray_workers: None):
    candidates = modules(ADD, WRONG, REFUSED, SWAPPED, *map(version, range(8)))
    # Reading a module may have started a process too.
    before = measuring_below(os.getpid())
    with Evaluator(SETTINGS, workers=2, executor=RayExecutor()) as evaluator:
        results = evaluator.evaluate(candidates, baseline=ADD)
        expected = [None, "OutputMismatchError", "CompileError", None, *[None] * 8]
        assert kinds(results) == expected
        assert len(measuring_below(os.getpid()) - before) == 2
        with pytest.raises(hloenv.CompileError, match="custom call 'x'"):
            evaluator.evaluate(candidates, baseline=REFUSED)
