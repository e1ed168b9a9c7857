# SPDX-License-Identifier: Apache-2.0
"""Process-wide state is restored: logs, memory protection, environment."""

from __future__ import annotations

from pathlib import Path

from hloenv._native import core

# The level of the library's own logs, 0 for INFO: jax, once imported, asks for another in
# the environment that child processes inherit.
LEVEL = """
import ctypes, os, threading
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "0"
import hloenv
from hloenv._native import _tensorflow_folder
framework = ctypes.CDLL(str(_tensorflow_folder() / "libtensorflow_framework.so.2"))
level = framework._ZN4absl12lts_2025081411MinLogLevelEv
module = hloenv.HloModule.from_text(
    "HloModule m ENTRY e { a = f32[2] parameter(0) ROOT r = f32[2] negate(a) }"
)
levels = [level()]
"""


def test_logs_are_restored_after_a_compiler_owned_pass(run_child):
    code = "hloenv.run_passes(module, 'cpu-parallel-task-assigner')\nprint(levels, level())"
    assert run_child(LEVEL + code).stdout == "[0] 0\n"


def test_logs_come_back_while_an_interception_waits(run_child):
    code = """
with hloenv.intercept(module) as pipeline:
    for stage in pipeline:
        levels.append(level())
        stage.run()
        levels.append(level())
assert len(levels) > 100
print(set(levels), level())
"""
    assert run_child(LEVEL + code).stdout == "{0} 0\n"


def test_logs_are_held_back_while_xla_works(run_child):
    code = """
def repeat():
    while not is_over:
        hloenv.finish(module)
is_over = False
thread = threading.Thread(target=repeat)
thread.start()
while level() != 3:
    pass
is_over = True
thread.join()
print(level())
"""
    assert run_child(LEVEL + code, timeout=60).stdout == "0\n"


def test_logs_come_back_in_a_forked_process(run_child):
    code = """
def repeat():
    while not is_over:
        hloenv.finish(module)
is_over = False
thread = threading.Thread(target=repeat)
thread.start()
codes = []
for _ in range(20):
    while level() != 3:
        pass
    pid = os.fork()
    if pid == 0:
        os._exit(level())
    codes.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
is_over = True
thread.join()
assert codes == [0] * 20, codes
"""
    run_child(LEVEL + code)


def test_hooks_leave_the_protection_of_memory_as_it_was(run_child):
    child = run_child(
        """
import ctypes, importlib.util, os
from pathlib import Path

spec = importlib.util.find_spec("tensorflow")
folder = Path(next(iter(spec.submodule_search_locations)))
for name in ("libtensorflow_framework.so.2", "libtensorflow_cc.so.2"):
    ctypes.CDLL(str(folder / name), mode=os.RTLD_LOCAL | os.RTLD_NOW)

def protections():
    pages = {}
    for line in open("/proc/self/maps"):
        fields = line.split()
        if "libtensorflow_" in fields[-1]:
            begin, end = (int(each, 16) for each in fields[0].split("-"))
            pages |= dict.fromkeys(range(begin, end, 4096), fields[1])
    return pages

before = protections()
import hloenv
from hloenv._native import core
hloenv.compile(hloenv.HloModule.from_text(
    "HloModule m ENTRY e { a = f32[2] parameter(0) ROOT r = f32[2] negate(a) }"
), isolate=False)
assert core.num_patched_slots() > 0
assert protections() == before
core.remove_hooks()
assert core.num_patched_slots() == 0
assert protections() == before
print(sorted(set(before.values())))
"""
    )
    assert child.stdout == "['r--p', 'r-xp', 'rw-p']\n"


def test_the_core_writes_no_environment_variable():
    # Other threads may read the environment, or start processes, at any time.
    data = Path(core.__file__).read_bytes()
    assert b"\0getenv\0" in data
    for name in (b"setenv", b"putenv", b"unsetenv", b"clearenv"):
        assert b"\0" + name + b"\0" not in data
