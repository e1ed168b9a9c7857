# SPDX-License-Identifier: Apache-2.0
"""The store against a shelf of the standard library, which one process can use.

Both hold 20,000 records like those of a measurement, on disk; both give dicts back.
"""

from __future__ import annotations

import hashlib
import json
import random
import shelve
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from hloenv.measurement.store import RecordKey, Store

from .ratio import Ratio, compare, report

pytestmark = pytest.mark.bench

_RECORDS = 20_000
_LOOKUPS = 10_000
_PUTS = 200


def _key(i: int) -> RecordKey:
    fingerprint = hashlib.md5(str(i).encode()).hexdigest()
    return RecordKey(
        kind="measurement",
        fingerprint=fingerprint,
        finish="fusion",
        flags="--xla_cpu_multi_thread_eigen=false --xla_cpu_use_thunk_runtime=true",
        target="cpu",
        machine="0123456789abcdef",
        variant=json.dumps({"baseline": fingerprint[::-1], "seed": i % 3}),
    )


def _value(i: int) -> dict[str, Any]:
    rng = random.Random(i)
    return {
        "durations_ns": [rng.randrange(10**5, 10**6) for _ in range(20)],
        "compile_ns": rng.randrange(10**8),
        "ratio": rng.random(),
        "cpu": "some processor",
        "error": None,
    }


def _text(key: RecordKey) -> str:
    return "\0".join((key.fingerprint, key.finish, key.flags, key.variant))


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    with Store(tmp_path_factory.mktemp("store") / "store.sqlite") as store:
        store.put_many((_key(i), _value(i)) for i in range(_RECORDS))
        yield store


@pytest.fixture(scope="module")
def shelf(tmp_path_factory: pytest.TempPathFactory) -> Iterator[shelve.Shelf[Any]]:
    path: Path = tmp_path_factory.mktemp("shelf") / "shelf"
    with shelve.open(str(path)) as shelf:
        for i in range(_RECORDS):
            shelf[_text(_key(i))] = _value(i)
        yield shelf


@pytest.fixture(scope="module")
def keys() -> list[RecordKey]:
    return [_key(i) for i in random.Random(0).sample(range(_RECORDS), _LOOKUPS)]


def _report(
    benchmark: BenchmarkFixture,
    what: str,
    goal: str,
    got: Ratio,
    count: int,
    *,
    peer: str = "shelve",
) -> None:
    report(
        benchmark,
        f"store: {what}",
        goal,
        f"{count / got.ours_ns * 1e9:,.0f} a second "
        f"({got.ratio:.1f} times the time of {peer})",
    )


def test_look_ups_one_by_one(benchmark, store, shelf, keys):
    texts = [_text(key) for key in keys]
    assert [store.get(key) for key in keys] == [shelf[text] for text in texts]
    got = compare(
        lambda: [store.get(key) for key in keys],
        lambda: [shelf[text] for text in texts],
        seconds=3,
    )
    what = f"{_LOOKUPS:,} look-ups one by one"
    _report(benchmark, what, "at least 10,000 a second", got, _LOOKUPS)
    benchmark.pedantic(lambda: [store.get(key) for key in keys], rounds=5)


def test_look_ups_together(benchmark, store, shelf, keys):
    texts = [_text(key) for key in keys]
    assert store.get_many(keys) == [shelf[text] for text in texts]
    got = compare(
        lambda: store.get_many(keys), lambda: [shelf[text] for text in texts], seconds=3
    )
    what = f"{_LOOKUPS:,} look-ups together"
    _report(benchmark, what, "at least 10,000 a second", got, _LOOKUPS)
    benchmark.pedantic(lambda: store.get_many(keys), rounds=5)


def test_saving_one_by_one(benchmark, store, tmp_path):
    """A line appended to a file survives the process too, but cannot be looked up."""
    items = [(_key(i), _value(i)) for i in range(_PUTS)]

    def ours() -> None:
        for key, value in items:
            store.put(key, value)

    with (tmp_path / "log.jsonl").open("w", encoding="utf-8") as file:

        def theirs() -> None:
            for key, value in items:
                file.write(json.dumps([_text(key), value]) + "\n")
                file.flush()

        got = compare(ours, theirs, seconds=3)
    _report(benchmark, "records saved one by one", "-", got, _PUTS, peer="a log file")
    benchmark.pedantic(ours, rounds=5)
