# SPDX-License-Identifier: Apache-2.0
"""The journal survives the end of its process."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from hloenv.tune.journal import Journal, Result, near
from hloenv.tune.space import Configuration

ONE, TWO = (Configuration((("vectors", each),)) for each in ("512", "128"))
RESULT = Result(ONE, "key", "codegen", 1.5, (1.4, 1.6), "", 0.1, 2.0, 3.0)
FEATURES = {"dot": 2, "add": 2}


def test_results_are_read_again(tmp_path):
    path = tmp_path / "a.journal"
    journal = Journal(path, FEATURES)
    journal.begin(ONE)
    journal.add(RESULT)
    assert Journal(path, FEATURES).results == [RESULT]


def test_a_torn_line_is_skipped_and_does_not_eat_the_next(tmp_path):
    path = tmp_path / "a.journal"
    Journal(path, FEATURES).add(RESULT)
    with path.open("a") as file:
        file.write('\n{"result": {"configu')
    Journal(path, FEATURES).add(Result(TWO, error="x"))
    assert [each.configuration for each in Journal(path, FEATURES).results] == [
        ONE,
        TWO,
    ]


@pytest.mark.parametrize(
    "text",
    ["\0\0", "[1]", '{"result": 3}', '{"result": {}}', '{"begun": []}', "[" * 9999],
)
def test_damage_is_skipped(tmp_path, text):
    path = tmp_path / "a.journal"
    path.write_text(text)
    assert Journal(path, FEATURES).results == []


def test_what_ends_the_process_twice_is_left(tmp_path):
    path = tmp_path / "a.journal"
    for times in range(3):
        journal = Journal(path, FEATURES)
        assert journal.crashed == ({ONE} if times == 2 else set())
        journal.begin(ONE)


def test_what_has_ended_is_not_left(tmp_path):
    path = tmp_path / "a.journal"
    for _ in range(3):
        journal = Journal(path, FEATURES)
        journal.begin(ONE)
        journal.end(ONE)
    assert Journal(path, FEATURES).crashed == set()


def test_what_was_measured_afterwards_is_not_left(tmp_path):
    path = tmp_path / "a.journal"
    for _ in range(3):
        Journal(path, FEATURES).begin(ONE)
    Journal(path, FEATURES).add(RESULT)
    assert Journal(path, FEATURES).crashed == set()


def test_a_full_disk_is_said_once_and_nothing_more_is_written(tmp_path, monkeypatch):
    journal = Journal(tmp_path / "a.journal", FEATURES)

    def full(self, *_, **__):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "open", full)
    journal.add(RESULT)
    assert "No space left" in journal.failure
    journal.add(RESULT)


def test_a_folder_that_cannot_be_written_is_no_error(tmp_path):
    file = tmp_path / "file"
    file.write_text("")
    journal = Journal(file / "a.journal", FEATURES)
    journal.add(RESULT)
    assert journal.failure


def test_without_a_path_nothing_is_written(tmp_path):
    Journal(None, FEATURES).add(RESULT)
    assert list(tmp_path.iterdir()) == []


def test_the_nearest_module_comes_first(tmp_path):
    own = tmp_path / "own.journal"
    for name, features, configuration in (
        ("far", {"sort": 5}, TWO),
        ("near", {"dot": 4, "add": 4}, ONE),
        ("own", FEATURES, Configuration((("llvm", "1"),))),
    ):
        Journal(tmp_path / f"{name}.journal", features).add(
            Result(configuration, "k", "", 2.0, (1.9, 2.1))
        )
    assert near(tmp_path, FEATURES, own) == [ONE, TWO]


def test_failures_are_not_near(tmp_path):
    Journal(tmp_path / "a.journal", FEATURES).add(Result(ONE, error="x"))
    assert near(tmp_path, FEATURES, tmp_path / "own.journal") == []
