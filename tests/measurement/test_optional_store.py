# SPDX-License-Identifier: Apache-2.0
"""The store of a caller that can do without it."""

from __future__ import annotations

import sqlite3

import pytest

from hloenv.errors import StoreError, StoreWarning
from hloenv.measurement import optional_store as of_caller
from hloenv.measurement.optional_store import optional_store
from hloenv.measurement.store import Store
from support.stores import key


@pytest.fixture(autouse=True)
def _warned_of_nothing():
    of_caller._warn.cache_clear()


def test_it_is_a_store(path, recwarn):
    with optional_store(path) as store:
        store.put(key(1), {"a": 1})
        assert store.get(key(1)) == {"a": 1}
        assert store.get_many([key(0), key(1)]) == [None, {"a": 1}]
    assert not recwarn


def test_one_that_cannot_be_opened_is_one_warning(path, monkeypatch, recwarn):
    path.write_text("")
    monkeypatch.setenv("HLOENV_STORE", str(path / "store.sqlite"))
    assert optional_store() is None
    assert optional_store() is None
    (message,) = [str(each.message) for each in recwarn]
    assert message.startswith(f"going on without the store: the folder of {path}")
    assert "HLOENV_STORE; leave it out with --no-store" in message
    monkeypatch.setenv("HLOENV_STORE", "~no-such-user/store.sqlite")
    with pytest.warns(StoreWarning, match="home"):
        assert optional_store() is None


def test_a_full_disk_is_one_warning(path, monkeypatch, recwarn):
    def full(*_, **__):
        raise StoreError("the disk is full")

    monkeypatch.setattr(Store, "put_many", full)
    with optional_store(path) as store:
        for _ in range(3):
            store.put(key(1), {})
            assert store.get(key(1)) is None
    assert [each.category for each in recwarn] == [StoreWarning]


def test_a_damaged_record_is_a_warning(path):
    with optional_store(path) as store:
        store.put(key(1), {})
        with sqlite3.connect(path) as connection:
            connection.execute("UPDATE records SET body = '[]'")
        connection.close()
        with pytest.warns(StoreWarning, match="hloenv store repair"):
            assert store.get(key(1)) is None
