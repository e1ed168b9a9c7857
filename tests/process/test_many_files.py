# SPDX-License-Identifier: Apache-2.0
"""Child processes answer a process that has more than 1024 open files."""

from __future__ import annotations

import os

import pytest

from hloenv.process.frames import is_readable_within

MANY_FILES = """
import resource
_, most = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, most), most))
held = [open("/dev/null") for _ in range(1100)]
"""


def test_a_child_answers_a_process_with_many_files(run_child):
    child = run_child(f"""
{MANY_FILES}
import hloenv

TEXT = "HloModule m\\nENTRY e {{ ROOT p = f32[4]{{0}} parameter(0) }}"
from hloenv.process import child
child.try_compile(hloenv.HloModule.from_text(TEXT).to_bytes(), "none", timeout_s=300.0)
print("compiled")
""")
    assert child.stdout == "compiled\n"


def test_waiting_for_a_pipe():
    read, write = os.pipe()
    try:
        assert not is_readable_within(read, 0.0)
        os.write(write, b"x")
        for limit in (None, 0.0, 1e12, float("inf")):
            assert is_readable_within(read, limit)
        os.read(read, 1)
    finally:
        os.close(write)
    assert is_readable_within(read, None)  # the other end is closed
    os.close(read)


@pytest.mark.parametrize("limit", [1e-9, 1e-4])
def test_a_short_limit_is_a_limit(limit):
    read, write = os.pipe()
    assert not is_readable_within(read, limit)
    os.close(read)
    os.close(write)
