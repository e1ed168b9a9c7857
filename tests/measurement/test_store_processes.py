# SPDX-License-Identifier: Apache-2.0
"""Threads, processes, forks and kills do not lose saved records."""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hloenv.measurement.store import RecordKey, Store
from support.stores import VALUE, exit_code, filled, forked, key
from support.threads import in_threads


def test_threads_share_a_store(store):
    def work(name: str) -> None:
        for i in range(50):
            store.put(key(f"{name}-{i}"), {"i": i})
            assert store.get(key(f"{name}-{i}")) == {"i": i}

    in_threads(work, [f"t{n}" for n in range(8)])
    assert store.info().records == 400


def test_processes_that_make_a_file_at_once_all_get_it(tmp_path):
    start = time.monotonic() + 0.1

    def work(name: int) -> None:
        for i in range(60):
            time.sleep(max(0.0, start + i / 100 - time.monotonic()))
            with Store(tmp_path / f"{i}.sqlite") as store:
                store.put(key(name), {})

    children = [forked(lambda name=name: work(name)) for name in range(6)]
    assert [exit_code(child) for child in children] == [0] * 6
    for i in range(60):
        with Store(tmp_path / f"{i}.sqlite") as store:
            assert store.info().records == 6


def test_a_store_waits_for_another_process_that_makes_the_file(path):
    other = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    other.execute("BEGIN IMMEDIATE")
    threading.Timer(0.1, other.rollback).start()
    with Store(path) as store:
        assert not other.in_transaction
        store.put(key(), {})
    other.close()


def test_processes_that_write_at_once_lose_nothing(path):
    def work(name: int) -> None:
        with Store(path) as store:
            for i in range(40):
                store.put(key(f"{name}-{i}"), {"i": i})
                store.put(key("shared"), {"by": name})
            store.put_many((key(f"{name}+{i}"), {"i": i}) for i in range(40))

    children = [forked(lambda name=name: work(name)) for name in range(6)]
    assert [exit_code(child) for child in children] == [0] * 6
    with Store(path) as store:
        assert store.info().records == 6 * 80 + 1


def test_imports_wait_for_each_other_and_for_writers(path, tmp_path):
    with filled(tmp_path / "other.sqlite") as other:
        other.export(tmp_path / "records.jsonl")

    def work(name: int) -> None:
        with Store(path) as store:
            for i in range(10):
                store.import_(tmp_path / "records.jsonl")
                store.put(key(f"{name}-{i}"), {})

    children = [forked(lambda name=name: work(name)) for name in range(4)]
    assert [exit_code(child) for child in children] == [0] * 4
    with Store(path) as store:
        assert store.info().records == 30 + 40


def test_a_store_works_after_a_fork_on_both_sides(store, path):
    store.put(key("before"), {})

    def child() -> None:
        assert store.get(key("before")) == {}
        for i in range(50):
            store.put(key(f"child-{i}"), {})

    pid = forked(child)
    for i in range(50):
        store.put(key(f"parent-{i}"), {})
    assert exit_code(pid) == 0
    assert store.info().records == 101
    assert check_integrity(path) == "ok"


def test_a_child_keeps_what_it_saved_when_the_parent_closes_first(path):
    """A lock that only the parent holds would let it delete the log in use."""
    reader, writer = os.pipe()
    store = Store(path)
    store.put(key("parent"), {})

    def child() -> None:
        store.put(key("child-1"), {})
        os.read(reader, 1)
        store.put(key("child-2"), {})

    pid = forked(child)
    while store.get(key("child-1")) is None:
        time.sleep(0.001)
    store.close()
    with Store(path) as other:
        other.put(key("other"), {})
        os.write(writer, b"x")
        assert exit_code(pid) == 0
        assert other.info().records == 4
    os.close(reader)
    os.close(writer)


def test_a_fork_in_the_midst_of_other_threads_work(store):
    is_done = threading.Event()

    def work() -> None:
        while not is_done.is_set():
            store.put(key("thread"), VALUE)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        children = [
            forked(lambda i=i: store.put(key(f"child-{i}"), {})) for i in range(10)
        ]
        assert [exit_code(child) for child in children] == [0] * 10
    finally:
        is_done.set()
        thread.join()
    assert store.info().records == 11


def test_records_in_memory_are_copied_by_a_fork():
    with Store(":memory:") as store:
        store.put(key("before"), {})

        def child() -> None:
            store.put(key("child"), {})
            assert store.info().records == 2

        assert exit_code(forked(child)) == 0
        assert store.info().records == 1


def check_integrity(path: Path) -> str:
    connection = sqlite3.connect(path)
    try:
        (answer,) = connection.execute("PRAGMA integrity_check").fetchone()
        return str(answer)
    finally:
        connection.close()


def write_until_killed(path: Path, report: int, name: int) -> None:
    """Saves, and then says so, with bodies large enough for checkpoints to happen."""
    with Store(path) as store:
        i = 0
        while True:
            value = {"i": i, "durations_ns": list(range(10**6, 10**6 + i * 37 % 2000))}
            if i % 4 == 3:
                store.put_many((key(f"{name}-{i}-{n}"), value) for n in range(10))
            else:
                store.put(key(f"{name}-{i}"), value)
            os.write(report, f"{i}\n".encode())
            i += 1


def kill_writers(path: Path, times: int) -> int:
    """Kills a writer again and again; returns how many saves were reported."""
    rng = random.Random(times)
    reported = 0
    with Store(path) as bystander:
        for name in range(times):
            reader, writer = os.pipe()
            child = forked(lambda w=writer, n=name: write_until_killed(path, w, n))
            os.close(writer)
            deadline = time.monotonic() + rng.uniform(0.0, 0.06)
            with open(reader, "rb") as pipe:  # noqa: PTH123
                bystander.put(key("bystander"), {"name": name})
                time.sleep(max(0.0, deadline - time.monotonic()))
                os.kill(child, signal.SIGKILL)
                saved = pipe.read().splitlines()
            assert exit_code(child) == -signal.SIGKILL
            reported += len(saved)

            assert check_integrity(path) == "ok"
            assert bystander.get(key("bystander")) == {"name": name}
            for i in map(int, saved):
                batch = [f"{name}-{i}-{n}" for n in range(10)]
                names = batch if i % 4 == 3 else [f"{name}-{i}"]
                values = bystander.get_many(map(key, names))
                assert [value and value["i"] for value in values] == [i] * len(names)
            # The save that was under way is there as a whole or not at all.
            rest = [f"{name}-{len(saved)}-{n}" for n in range(10)]
            assert bystander.get_many(map(key, rest)).count(None) in (0, 10)
    return reported


def test_nothing_that_was_saved_is_lost_to_kill_9(path):
    assert kill_writers(path, 5) > 0


@pytest.mark.ci
def test_nothing_that_was_saved_is_lost_to_50_times_kill_9(path):
    assert kill_writers(path, 50) > 100


def test_an_interrupt_in_a_transaction_does_not_swallow_what_follows(path):
    with Store(path) as store:
        with store._database.use() as connection:
            connection.execute("BEGIN IMMEDIATE")
        store.put(key(), {})
        with Store(path) as other:
            assert other.get(key()) == {}


def test_an_interrupted_batch_leaves_nothing(store):
    def items() -> Iterator[tuple[RecordKey, dict[str, Any]]]:
        yield key(1), {}
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        store.put_many(items())
    store.put(key(2), {})
    assert [each for each, _, _ in store.records()] == [key(2)]
