# SPDX-License-Identifier: Apache-2.0
"""Exit of a process with daemon threads inside hloenv."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor

import pytest

from support.run_child import run_python

HLO = """HloModule m
ENTRY e {
  p = f32[64,64] parameter(0)
  q = f32[64,64] parameter(1)
  d = f32[64,64] dot(p, q), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  t = f32[64,64] tanh(d)
  zero = f32[] constant(0)
  zeros = f32[64,64] broadcast(zero), dimensions={}
  s = f32[64,64] add(t, zeros)
  ROOT a = f32[64,64] add(s, p)
}"""

OPERATIONS = {
    "parse": "hloenv.HloModule.from_text(large)",
    "run passes": "hloenv.run_passes(module, 'algsimp')",
    "borrow": "hloenv.run_passes(module, 'cpu-parallel-task-assigner')",
    "capture": "hloenv.HloEnv(module).get_alternatives('general-simplify')",
    "list stages": "hloenv.list_stages(module)",
    "run until": "hloenv.run_until(module, 'fusion')",
    "compile": "hloenv.compile(module, isolate=False)",
    "run": "executable(*inputs)",
    "convert and run": "executable(*[array.copy(order='F') for array in inputs])",
    "interpret": "hloenv.interpret(module, *inputs)",
    "intercept": "[stage.get_alternatives() for stage in hloenv.intercept(module)]",
    "measure": "hloenv.measure(module)",
}

# Threads repeat each operation while the main thread ends.
CHILD = """
import ctypes, os, sys, threading, time
import hloenv
module = hloenv.HloModule.from_text({hlo!r})
inputs = hloenv.random_inputs(module, seed=0)
if {prepares}:
    large = (module.to_text() + "\\n").replace("HloModule m", "HloModule n")
    executable = hloenv.compile(module, isolate=False)
def repeat(operation):
    started.release()
    while True:
        try:
            operation()
        except hloenv.InterceptError:  # closed at exit
            return
started = threading.Semaphore(0)
operations = [{operations}]
for operation in operations:
    threading.Thread(target=repeat, args=[operation], daemon=True).start()
for _ in operations:
    started.acquire()
time.sleep({delay})
ctypes.CDLL(None).printf(b"kept\\n")  # in a buffer of C's
sys.exit({exit_code})
"""


def end(operations: list[str], delay: float, exit_code: int, prepares: bool) -> None:
    code = CHILD.format(
        hlo=HLO,
        operations=", ".join(f"lambda: {each}" for each in operations),
        delay=delay,
        exit_code=exit_code,
        prepares=prepares,
    )
    child = run_python("-c", code)
    assert (child.returncode, child.stdout, child.stderr) == (exit_code, "kept\n", "")


def end_often(operations: list[str], times: int, *, prepares: bool = True) -> None:
    """Ends that many processes, at different times within an operation."""
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        futures = [
            pool.submit(end, operations, 0.011 * i, 7 * (i % 2), prepares)
            for i in range(times)
        ]
        for future in futures:
            future.result()


@pytest.mark.compile
@pytest.mark.parametrize("name", OPERATIONS)
def test_a_daemon_thread_does_not_keep_a_process_from_ending_well(name):
    end_often([OPERATIONS[name]], 2)


@pytest.mark.compile
def test_a_process_may_end_in_the_midst_of_xlas_first_compile():
    end_often([OPERATIONS["compile"]], 4, prepares=False)


@pytest.mark.compile
@pytest.mark.slow
def test_twenty_processes_end_well_with_threads_in_everything():
    end_often(list(OPERATIONS.values()), 20)
