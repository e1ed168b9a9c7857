# SPDX-License-Identifier: Apache-2.0
"""Forks of a process that has used XLA."""

from __future__ import annotations

import pytest

# A convolution runs on several threads.
PARENT = """
import contextlib, ctypes, gc, os, signal, sys, threading, time, traceback
import numpy as np
import hloenv
TEXT = '''HloModule m
ENTRY e {
  x = f32[4,64,64,16] parameter(0)
  k = f32[3,3,16,32] parameter(1)
  c = f32[4,64,64,32] convolution(x, k), window={size=3x3 pad=1_1x1_1},
    dim_labels=b01f_01io->b01f
  zero = f32[] constant(0)
  zeros = f32[4,64,64,32] broadcast(zero), dimensions={}
  s = f32[4,64,64,32] add(c, zeros)
  ROOT t = f32[4,64,64,32] tanh(s)
}'''
module = hloenv.HloModule.from_text(TEXT)
inputs = hloenv.random_inputs(module, seed=0)

def forked(function):
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        signal.alarm(60)  # ends a child that hangs
        try:
            function()
        except SystemExit:
            raise  # ends as a process does
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        sys.stdout.flush()
        os._exit(0)
    return pid

def check(function):
    code = os.waitstatus_to_exitcode(os.waitpid(forked(function), 0)[1])
    assert code == 0, (function, code)

@contextlib.contextmanager
def raises(kind, *words):
    try:
        yield
    except kind as error:
        assert all(word in str(error) for word in words), error
    else:
        raise AssertionError(f"no {kind.__name__}")
"""

COMPILED = (
    PARENT
    + """
executable = hloenv.compile(module, isolate=False)
results = executable(*inputs)
"""
)


@pytest.mark.compile
def test_a_compile_after_a_fork_is_a_fork_error(run_child):
    run_child(
        COMPILED
        + """
def compile():
    for _ in range(2):
        with raises(hloenv.ForkError, "was forked", "spawn", "forkserver"):
            hloenv.compile(module, isolate=False)
def compile_in_a_child_of_the_child():
    check(compile)

assert issubclass(hloenv.ForkError, hloenv.HloEnvError)
check(compile)
check(compile_in_a_child_of_the_child)
hloenv.compile(module, isolate=False)  # here it goes on
"""
    )


@pytest.mark.compile
def test_a_fork_before_the_first_compile_may_compile(run_child):
    run_child(
        PARENT
        + """
hloenv.run_until(module, "fusion")
def compile():
    assert hloenv.compile(module, isolate=False)(*inputs)[0].shape == (4, 64, 64, 32)
check(compile)
check(compile)
compile()
"""
    )


@pytest.mark.compile
def test_the_rest_works_after_a_compile(run_child):
    run_child(
        COMPILED
        + """
fingerprint = module.fingerprint()
small = hloenv.HloModule.from_text(
    "HloModule s ENTRY e { p = f32[3] parameter(0) ROOT r = f32[3] tanh(p) }"
)
measurer = hloenv.Measurer()
def same_fingerprint():
    assert module.fingerprint() == fingerprint
def parse():
    read = hloenv.HloModule.from_text(module.to_text())
    assert hloenv.HloModule.from_proto(read.to_proto()).fingerprint() == fingerprint
    read.verify()
def capture():
    place = hloenv.run_until(module, "simplification")
    alternatives = hloenv.HloEnv(place).get_alternatives("general-simplify")
    assert alternatives.graph.num_nodes > len(alternatives) > 0
    hloenv.finish(alternatives.apply(alternatives.reject_all()))
def execute():
    assert np.array_equal(executable(*inputs)[0], results[0])
works = [
    same_fingerprint,
    parse,
    capture,
    execute,
    lambda: hloenv.run_passes(module, "algsimp", "cse"),
    lambda: hloenv.run_passes(module, "cpu-parallel-task-assigner"),
    lambda: hloenv.list_stages(module),
    lambda: hloenv.interpret(small, np.ones(3, np.float32)),
    lambda: hloenv.intercept(module).finish(),
    lambda: [stage.get_alternatives() for stage in hloenv.intercept(module)],
    lambda: hloenv.isolated().run_passes(module, "cse"),
    lambda: hloenv.measure(small),
    lambda: measurer.measure([small]),
]
for work in works:
    work()
def in_another_order():
    # Gives the stacks of the parent's threads to others.
    threads = [threading.Thread(target=time.sleep, args=[0.5]) for _ in range(8)]
    for thread in threads:
        thread.start()
    for work in reversed(works):
        work()
for work in (*works, in_another_order):
    check(work)
for work in works:
    work()
""",
        timeout=300,
    )


@pytest.mark.compile
def test_an_open_interception_belongs_to_its_process(run_child):
    child = run_child(
        COMPILED
        + """
pipeline = hloenv.intercept(module)
def use():
    for use in (
        pipeline.stage.run,
        pipeline.stage.get_alternatives,
        pipeline.finish,
        lambda: pipeline.run_until("cse"),
        lambda: pipeline.module,
    ):
        with raises(hloenv.InterceptError, f"from process {os.getppid()}"):
            use()
    # Its thread may get the number of the one that stayed behind.
    own = hloenv.intercept(module)
    pipeline.close()
    assert own.finish().instruction_count > 0
    own.close()
check(use)

def leave():
    pipeline.stage
    sys.exit(0)
check(leave)
print(pipeline.finish().instruction_count > 0)
"""
    )
    assert child.stdout == "True\n"


@pytest.mark.parametrize("advance", ["", "core.wait()", "core.finish(); core.wait()"])
def test_an_interception_may_be_dropped_without_being_closed(run_child, advance):
    run_child(
        PARENT
        + f"""
core = hloenv._native.core.Interception(module._core, "cpu")
core.wait()
{advance}
time.sleep(0.1)
def drop():
    global core
    del core
    gc.collect()
check(drop)
drop()
"""
    )


def test_an_ended_interception_survives_a_fork(run_child):
    run_child(
        PARENT
        + """
pipeline = hloenv.intercept(module)
text = pipeline.finish().to_text()
other = hloenv.intercept(module)
while other.stage is not None:
    other.stage.run()
def look():
    assert pipeline.module.to_text() == other.module.to_text() == text
check(look)
look()
"""
    )


@pytest.mark.compile
def test_a_fork_during_another_threads_work_is_an_error(run_child):
    """XLA would wait forever for the locks of threads that do not exist any more."""
    run_child(
        PARENT
        + """
def repeat(operation):
    while not is_over:
        operation()
# Python itself waits for an import that another thread was making at the fork.
hloenv.HloEnv(module).get_alternatives("algsimp")
hloenv.intercept(module).finish()
is_over = False
threads = [
    threading.Thread(target=repeat, args=[operation])
    for operation in (
        lambda: hloenv.HloModule.from_text(TEXT),
        lambda: hloenv.HloEnv(module).get_alternatives("algsimp"),
        lambda: hloenv.intercept(module).finish(),
        lambda: hloenv.compile(module, isolate=False),
    )
]
for thread in threads:
    thread.start()
def works():
    for work in (
        lambda: hloenv.HloModule.from_text(TEXT),
        lambda: hloenv.HloModule.from_proto(b"\\0"),
        lambda: hloenv.HloEnv(module).get_alternatives("algsimp"),
        lambda: hloenv.run_passes(module, "cse"),
        lambda: hloenv.finish(module),
        lambda: hloenv.intercept(module).finish(),
        lambda: hloenv.compile(module, isolate=False),
    ):
        yield work
REFUSED = 3
codes = []
def refuse():
    # All of the work, or none, where no thread was in XLA at the fork.
    try:
        hloenv.HloModule.from_text(TEXT)
    except hloenv.ForkError:
        for work in works():
            with raises(hloenv.ForkError, "was forked", "another thread", "spawn"):
                work()
        os._exit(REFUSED)
def refuse_in_a_child_of_the_child():
    refuse_again = forked(refuse)
    os._exit(os.waitstatus_to_exitcode(os.waitpid(refuse_again, 0)[1]))
try:
    for function in [refuse] * 30 + [refuse_in_a_child_of_the_child] * 5:
        codes.append(os.waitstatus_to_exitcode(os.waitpid(forked(function), 0)[1]))
finally:
    is_over = True
    for thread in threads:
        thread.join()
assert set(codes) <= {0, REFUSED}, codes
assert codes[:30].count(REFUSED) > 15, codes
assert REFUSED in codes[30:], codes
for work in works():
    try:
        work()
    except hloenv.ParseError:
        pass
""",
        timeout=300,
    )


@pytest.mark.compile
def test_a_child_process_serves_the_process_that_started_it(run_child):
    run_child(
        PARENT
        + """
small = hloenv.HloModule.from_text(
    "HloModule s ENTRY e { p = f32[3] parameter(0) ROOT r = f32[3] tanh(p) }"
)
measurer = hloenv.Measurer()
measurer.measure([small])
child = measurer._child
def close():
    assert not child.is_alive
    measurer.close()
check(close)
assert child.is_alive
measurer.measure([small])
assert measurer._child is child
"""
    )


@pytest.mark.compile
@pytest.mark.learn
def test_a_data_loader_reads_modules_after_a_compile(run_child):
    run_child(
        COMPILED
        + """
from torch.utils.data import DataLoader
class Counts:
    def __len__(self):
        return 6
    def __getitem__(self, index):
        read = hloenv.HloModule.from_text(TEXT.replace("64", str(60 + index)))
        alternatives = hloenv.HloEnv(read).get_alternatives("algsimp")
        return len(alternatives) + alternatives.graph.num_nodes
loader = DataLoader(
    Counts(), batch_size=3, num_workers=2, multiprocessing_context="fork", timeout=60
)
for _ in range(2):
    batches = [batch.tolist() for batch in loader]
    assert len(batches) == 2, batches
    assert min(min(batches)) > 8, batches
"""
    )


def test_a_fork_while_a_thread_waits_for_a_child_process(run_child):
    """The lock of the process that reads doubtful input is free in the fork."""
    run_child(
        """
import os, signal, threading, time
import hloenv
from hloenv.process import child
doubtful = "HloModule m\\nENTRY e { ROOT r = s4[1] constant({1}) }"
hloenv.HloModule.from_text(doubtful)
begun = threading.Event()
real = child.Child.request
def slow(self, *args, **kwargs):
    begun.set()
    time.sleep(0.5)
    return real(self, *args, **kwargs)
child.Child.request = slow
thread = threading.Thread(target=hloenv.HloModule.from_text, args=(doubtful,))
thread.start()
begun.wait()
child.Child.request = real
pid = os.fork()
if pid == 0:
    signal.alarm(30)
    hloenv.HloModule.from_text(doubtful)
    os._exit(0)
assert os.waitpid(pid, 0)[1] == 0
thread.join()
"""
    )


def test_a_sandbox_serves_the_process_that_started_it(run_child):
    run_child(
        PARENT
        + """
sandbox = hloenv.isolated()
assert sandbox.run_passes(module, "cse").module.fingerprint() == module.fingerprint()
parents = sandbox._child._process.pid
def use():
    result = sandbox.run_passes(module, "algsimp").module
    assert result.instruction_count < module.instruction_count
    assert sandbox._child._process.pid != parents
    sandbox.close()
check(use)
assert sandbox._child._process.pid == parents
assert sandbox.run_passes(module, "cse").module.fingerprint() == module.fingerprint()
"""
    )


FOLDS = """HloModule m

ENTRY e {
  c = f32[4] constant({1, 2, 3, 4})
  p = f32[4] parameter(0)
  n = f32[4] negate(c)
  ROOT r = f32[4] add(n, p)
}
"""


@pytest.mark.compile
@pytest.mark.parametrize(
    "first",
    ["compile(folds)", "run_until(folds, 'fusion')", "intercept(folds).finish()"],
)
def test_constants_are_folded_after_a_fork(run_child, first):
    """XLA would wake up a thread that logs slow operations, whose stack others get."""
    run_child(
        PARENT
        + f"""
folds = hloenv.HloModule.from_text('''{FOLDS}''')
hloenv.{first}
def pipeline():
    for _ in range(8):
        threading.Thread(target=time.sleep, args=[0.2]).start()
    for _ in range(4):
        hloenv.run_until(folds, "fusion")
        hloenv.finish(folds)
        hloenv.list_stages(folds)
        hloenv.intercept(folds).finish()
        folded = hloenv.run_passes(folds, "constant_folding").module
        assert "negate" not in folded.opcode_counts()
        hloenv.HloEnv(folds).get_alternatives("cse", "constant_folding")
check(pipeline)
check(lambda: check(pipeline))
hloenv.run_until(folds, "fusion")
"""
    )
