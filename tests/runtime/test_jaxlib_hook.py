# SPDX-License-Identifier: Apache-2.0
"""The hook of jaxlib's compiler, with compilations in other threads."""

from __future__ import annotations

import pytest

pytestmark = [pytest.mark.jax, pytest.mark.compile]


def test_a_callback_may_be_unregistered_while_another_thread_compiles(run_child):
    child = run_child(
        """
import threading
import jax, jax.numpy as jnp
from hloenv.runtime.jaxlib.hook import register

ends = threading.Event()

def compiles(first):
    size = first
    while not ends.is_set():
        size += 1
        jax.jit(lambda x: x * 3)(jnp.zeros(size))

threads = [threading.Thread(target=compiles, args=(1000 * i,)) for i in range(2)]
for thread in threads:
    thread.start()
for _ in range(30):
    called = threading.Event()
    unregister = register(lambda proto, called=called: called.set())
    called.wait(60)
    unregister()
    del called
ends.set()
for thread in threads:
    thread.join()
print("alive")
"""
    )
    assert child.stdout == "alive\n"
