# SPDX-License-Identifier: Apache-2.0
"""Scripts that run for too long are ended; what they called is known."""

from __future__ import annotations

import signal
import sys
import textwrap

import jax.numpy as jnp
import pytest

from hloenv.jax import Recipe, Tuned
from hloenv.rewrite.trace import ModuleId
from hloenv.tune import deadline, scripts
from hloenv.tune.options import TuneOptions
from hloenv.tune.recording import record
from hloenv.tune.state import State

pytestmark = pytest.mark.jax


def recorded(path, *, seconds):
    return record(path, (), seconds=seconds)


def test_a_long_script_is_ended(script):
    jnp.ones(3).block_until_ready()  # what a process does once takes most of a second
    found = recorded(
        script(
            """
            step = jax.jit(lambda x: x + 1)
            while True:
                try: step(jnp.ones(3))
                except Exception: pass
            """
        ),
        seconds=2.0,
    )
    assert not found.is_complete
    assert found.functions[0].calls > 2


@pytest.mark.parametrize("text", ["time.sleep(99)", "while True: pass"])
def test_a_long_script_that_calls_nothing_is_ended(script, monkeypatch, text):
    monkeypatch.setattr(deadline, "_GRACE_S", 0.0)
    before = signal.getsignal(signal.SIGALRM)
    found = recorded(script(f"import time\n{text}"), seconds=1.0)
    assert not found.is_complete
    assert found.seconds < 60
    assert signal.getsignal(signal.SIGALRM) is before


def test_a_script_that_takes_the_end_for_an_error_is_ended_again(script, monkeypatch):
    monkeypatch.setattr(deadline, "_GRACE_S", 0.0)
    monkeypatch.setattr(deadline, "_AGAIN_S", 0.5)
    found = recorded(
        script(
            """
            import time
            for seconds in (99, 99, 0):
                try: time.sleep(seconds)
                except BaseException: assert seconds
                else: break
            time.sleep(99)
            """
        ),
        seconds=0.5,
    )
    assert not found.is_complete
    assert found.seconds < 60


CALLS = """
import contextlib, time
step = jax.jit(lambda x: x + 1)
for i in range(3): step(jnp.ones(3))
"""
STUBBORN = {
    "call": """
        while True:
            try: step(jnp.ones(3))
            except: pass
        """,
    "one call in a function": """
        def main():
            while True:
                with contextlib.suppress(BaseException):
                    step(jnp.ones(3))
        main()
        """,
    "nested": """
        while True:
            try:
                while True:
                    try: step(jnp.ones(3))
                    except BaseException: continue
                    finally: time.sleep(0)
            except BaseException: pass
        """,
    "other work": """
        while True:
            try: time.sleep(0.01); sum(range(1000))
            except: pass
        """,
    "retries": """
        def retry(left):
            try: step(jnp.ones(3)); time.sleep(0.001)
            except BaseException: pass
            return left and retry(left - 1)
        while True: retry(50)
        """,
}


@pytest.mark.parametrize("name", STUBBORN)
def test_a_script_that_catches_everything_is_ended(script, monkeypatch, name):
    monkeypatch.setattr(deadline, "_GRACE_S", 0.0)
    monkeypatch.setattr(deadline, "_AGAIN_S", 0.05)
    before = signal.getsignal(signal.SIGALRM), list(sys.path), list(sys.argv)
    text = textwrap.dedent(STUBBORN[name])
    found = recorded(script(CALLS + text), seconds=1.0)
    assert not found.is_complete
    assert found.functions[0].calls >= 3
    assert (signal.getsignal(signal.SIGALRM), sys.path, sys.argv) == before


def test_what_a_stubborn_script_has_called_is_tuned(script, monkeypatch):
    class Fake:
        state = State(None)

        def __init__(self, program, *_, **__):
            self._program = program

        def run(self):
            module = ModuleId.of(self._program.module)
            return Tuned("step", module, Recipe(), reason="-")

    monkeypatch.setattr(scripts, "Tuner", Fake)
    found = scripts.tune_script(
        script(CALLS + textwrap.dedent(STUBBORN["call"])),
        (),
        TuneOptions(),
        run_seconds=1.0,
        store=None,
    )
    assert len(found.artefact.entries) == 1
