# SPDX-License-Identifier: Apache-2.0
"""Stores with records in them, and processes that use them."""

from __future__ import annotations

import math
import os
import resource
import signal
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hloenv.measurement.store import RecordKey, Store

# What is easily changed on its way through text.
VALUE = {
    "durations_ns": [2**63 - 1, -(2**63), 2**100, 0],
    "ratio": 0.1 + 0.2,
    "tiny": 5e-324,
    "negative_zero": -0.0,
    "error": None,
    "nested": {"ok": True, "text": 'é "quoted" \ud83d \n'},
}


def key(name: object = 0, **fields: str) -> RecordKey:
    """A key; equal arguments give equal keys."""
    given = {
        "kind": "measurement",
        "fingerprint": f"f{name}",
        "finish": "fusion",
        "flags": "--xla_cpu_max_isa=AVX2",
        "target": "cpu",
        "machine": "m1",
        "variant": '{"seed":0}',
    }
    return RecordKey(**{**given, **fields})


def filled(path: Path) -> Store:
    """A store of 30 records."""
    store = Store(path)
    for i in range(30):
        value = {**VALUE, "i": i, "ratio": math.nan if i == 3 else i / 7}
        store.put(key(i, kind=f"k{i % 2}"), value, created=1e9 + i / 3)
    return store


def contents(store: Store) -> list[Any]:
    """All records."""
    return list(store.records())


def forked(function: Callable[[], object]) -> int:
    """Runs `function` in a fork of this process; returns its id."""
    with warnings.catch_warnings():
        # The threads that libraries have started are none of ours.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        code = 1
        try:
            function()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    return child


def exit_code(child: int) -> int:
    """Waits for a fork."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def limit_file_sizes(num_bytes: int) -> None:
    """What is larger cannot be written, as on a full disk."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, num_bytes))
