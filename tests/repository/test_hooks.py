# SPDX-License-Identifier: Apache-2.0
"""Hooks into an incompatible library.

The library is changed in the memory of a child process, after it was loaded.
"""

from __future__ import annotations

# Names for what a real TensorFlow holds: HloComputation::RemoveInstructionImpl, which
# captures need, and ThunkExecutor::Create, which one compile needs.
REMOVE = "_ZN3xla14HloComputation21RemoveInstructionImplEPNS_14HloInstructionEb"
CREATE = "_ZN3xla3cpu13ThunkExecutor6CreateENS0_13ThunkSequenceERKNS1_7OptionsE"

CHANGE = """
import ctypes, importlib.util, mmap, os, struct, sys
from pathlib import Path

spec = importlib.util.find_spec("tensorflow")
folder = Path(next(iter(spec.submodule_search_locations)))
for name in ("libtensorflow_framework.so.2", "libtensorflow_cc.so.2"):
    ctypes.CDLL(str(folder / name), mode=os.RTLD_LOCAL | os.RTLD_NOW)
path = os.path.realpath(folder / "libtensorflow_cc.so.2")
(base,) = (
    int(line.split("-")[0], 16)
    for line in open("/proc/self/maps")
    if line.rstrip().endswith(path) and line.split()[2] == "00000000"
)
with open(path, "rb") as file:
    library = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)

def sections():
    (table,) = struct.unpack_from("<Q", library, 40)
    size, count, names = struct.unpack_from("<HHH", library, 58)
    headers = [
        struct.unpack_from("<IIQQQQ", library, table + i * size) for i in range(count)
    ]
    start = headers[names][4]
    for name, _, _, address, offset, length in headers:
        end = library.find(b"\\0", start + name)
        yield library[start + name : end].decode(), (address, offset, length)

def find(name, section, step, at):
    # Where the entries of a section have these bytes; all at the same distance.
    _, begin, length = section
    position = begin - 1
    while True:
        position = library.find(name, position + 1, begin + length)
        assert position >= 0, name
        if (position - begin - at) % step == 0:
            return position

def write(section, offset, data):
    # Into the loaded library.
    address = base + section[0] + offset - section[1]
    page = address & ~4095
    libc = ctypes.CDLL(None, use_errno=True)
    both = mmap.PROT_READ | mmap.PROT_WRITE
    assert libc.mprotect(ctypes.c_void_p(page), 8192, both) == 0, ctypes.get_errno()
    ctypes.memmove(address, data, len(data))

by_name = dict(sections())
strings = by_name[".dynstr"]

def take_away_symbol(symbol):
    offset = find(b"\\0" + symbol.encode() + b"\\0", strings, 1, 0)
    write(strings, offset + 1, b"?")

def take_away_slot(symbol):
    offset = find(b"\\0" + symbol.encode() + b"\\0", strings, 1, 0)
    name = struct.pack("<I", offset + 1 - strings[1])
    symbols = by_name[".dynsym"]
    index = (find(name, symbols, 24, 0) - symbols[1]) // 24
    slots = by_name[".rela.plt"]
    kind = {"x86_64": 7, "aarch64": 1026}[os.uname().machine]
    info = struct.pack("<II", kind, index)
    write(slots, find(info, slots, 24, 8), bytes(8))
"""

IMPORT = """
try:
    import hloenv
except RuntimeError as error:
    print(f"{type(error).__name__}: {error}")
"""


def test_a_symbol_that_is_not_exported(run_child):
    child = run_child(f"{CHANGE}\ntake_away_symbol({REMOVE!r})\n{IMPORT}")
    assert child.stdout.startswith(
        f"HookError: this TensorFlow does not export {REMOVE}; hloenv was built "
        "against TensorFlow 2."
    )


def test_a_library_that_binds_its_own_calls(run_child):
    child = run_child(f"{CHANGE}\ntake_away_slot({REMOVE!r})\n{IMPORT}")
    assert child.stdout.startswith(f"HookError: no GOT slot for {REMOVE}: this build")


def test_a_hook_that_is_needed_later(run_child):
    child = run_child(
        CHANGE
        + f"take_away_symbol({CREATE!r})\n"
        + """
import hloenv
module = hloenv.HloModule.from_text(
    "HloModule m ENTRY e { p = f32[9] parameter(0) ROOT r = f32[9] tanh(p), "
    'frontend_attributes={hloenv_execution="in_order"} }'
)
before = hloenv._native.core.num_patched_slots()
for _ in range(2):
    try:
        hloenv.compile(module, isolate=False)
    except hloenv.HookError as error:
        print(error)
# The rest goes on.
hloenv.compile(hloenv.HloModule.from_text(
    "HloModule m ENTRY e { p = f32[9] parameter(0) ROOT r = f32[9] tanh(p) }"
), isolate=False)
"""
    )
    lines = child.stdout.splitlines()
    assert len(lines) == 2
    assert all(f"does not export {CREATE}" in line for line in lines)
