# SPDX-License-Identifier: Apache-2.0
"""Memory that a process keeps for its next calls."""

from __future__ import annotations

import numpy as np
import pytest

import hloenv
from hloenv.errors import ArgumentError, ArgumentTypeError
from hloenv.runtime import memory

# Of 49 MiB: more than the C library ever keeps by itself.
CODE = """
import hloenv
from hloenv.runtime.memory import fresh_bytes
{before}
def call():
    return b"x" * (49 << 20)
call()
before = fresh_bytes()
for _ in range(4):
    call()
print((fresh_bytes() - before) >> 20)
"""


def fresh_mib(run_child, before):
    return int(run_child(CODE.format(before=before)).stdout)


def test_a_block_that_is_freed_is_used_again(run_child):
    assert fresh_mib(run_child, "") >= 4 * 48
    assert fresh_mib(run_child, "assert hloenv.keep_memory()") < 48
    assert fresh_mib(run_child, "assert hloenv.keep_memory(max_bytes=1 << 20)") > 48


@pytest.mark.parametrize("max_bytes", [-1, 0, 1, (128 << 10) - 1, 2**31])
def test_other_sizes_are_refused(max_bytes):
    with pytest.raises(ArgumentError, match="from 131072 to 2147483647"):
        hloenv.keep_memory(max_bytes)


@pytest.mark.parametrize("max_bytes", [1e9, "1", [1 << 20]])
def test_other_types_are_refused(max_bytes):
    with pytest.raises(ArgumentTypeError, match="must be an integer"):
        hloenv.keep_memory(max_bytes)


@pytest.mark.parametrize("version", [None, "", "musl 1.2"])
def test_another_c_library_keeps_nothing(monkeypatch, version):
    monkeypatch.setattr(memory.os, "confstr", lambda _: version)
    monkeypatch.setattr(memory.ctypes, "CDLL", None)
    assert hloenv.keep_memory() is False


def test_how_much_depends_on_what_the_process_may_use(monkeypatch, tmp_path):
    given = []

    class Library:
        def __init__(self, _):
            pass

        def mallopt(self, name, value):
            given.append((name, value))
            return name != memory._MMAP_THRESHOLD or is_new

    limit = tmp_path / "memory.max"
    monkeypatch.setattr(memory.ctypes, "CDLL", Library)
    monkeypatch.setattr(memory.os, "confstr", lambda _: "glibc 2.36")
    monkeypatch.setattr(memory, "_LIMITS", (str(limit), str(tmp_path / "none")))
    is_new = True
    for text, block, free in (
        (str(1 << 30), 1 << 27, 1 << 28),
        (str(1 << 10), 128 << 10, 128 << 10),
    ):
        limit.write_text(text)
        given.clear()
        assert hloenv.keep_memory()
        assert dict(given) == {-3: block, -1: free, -8: 1}
    given.clear()
    assert hloenv.keep_memory(np.int64(1 << 20))
    assert given[0] == (-3, 1 << 20)
    assert type(given[0][1]) is int
    # Before 2.35 it refuses so large a threshold.
    is_new = False
    given.clear()
    assert hloenv.keep_memory()
    assert (-4, 0) in given
    # No limit.
    limit.write_text("max\n")
    assert 0 < memory._memory_bytes() != 1 << 10
