# SPDX-License-Identifier: Apache-2.0
"""The process for trial compiles."""

from __future__ import annotations

import time

import pytest

import hloenv
from hloenv.process.child import _Standby

MODULE = hloenv.HloModule.from_text(
    "HloModule m\nENTRY e { x = f32[4] parameter(0)\n ROOT y = f32[4] negate(x) }"
)
REQUEST = {"do": "compile", "finish": "legalize", "engine": "wheel"}


@pytest.mark.compile
def test_it_ends_when_it_is_idle_and_starts_again():
    standby = _Standby(idle_s=0.2)
    for _ in range(2):
        standby.request(REQUEST, MODULE.to_bytes(), timeout_s=60)
        process = standby._started
        assert process is not None
        end = time.monotonic() + 30
        while standby._started is not None and time.monotonic() < end:
            time.sleep(0.05)
        assert standby._started is None
        assert not process.is_alive
