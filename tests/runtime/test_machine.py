# SPDX-License-Identifier: Apache-2.0
"""What identifies a machine."""

from __future__ import annotations

import dataclasses

import pytest

from hloenv.runtime import machine
from hloenv.runtime.machine import this_machine

X86 = {
    "model name": "AMD EPYC",
    "cpu family": "26",
    "model": "2",
    "stepping": "1",
    "flags": "fpu sse2 avx2 hypervisor avx512f",
}


def test_what_it_can_run_is_part_of_it():
    here = this_machine()
    without = dataclasses.replace(here, features="sse2")
    assert here.id != without.id
    assert here.id == dataclasses.replace(here, kernel="another", num_cores=99).id


def test_processors_of_one_name_differ_by_their_numbers():
    assert machine._cpu_model(X86) == "AMD EPYC (26.2.1)"
    assert machine._cpu_model({**X86, "model": "17"}) != machine._cpu_model(X86)
    assert machine._cpu_model({"model name": "Some CPU"}) == "Some CPU"


@pytest.mark.parametrize(
    ("fields", "found"),
    [
        (X86, "avx2 avx512f sse2"),
        ({"Features": "fp asimd sve crc32"}, "asimd crc32 sve"),
        ({}, ""),
    ],
)
def test_extensions_of_the_instruction_set(fields, found):
    assert machine._features(fields) == found
