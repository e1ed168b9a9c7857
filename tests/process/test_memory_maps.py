# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations


def test_a_process_without_memory_maps_left_gets_an_error(run_child, max_map_count):
    # LLVM would end the process.
    child = run_child(f"""
import mmap
import hloenv

TEXT = "HloModule m\\nENTRY e {{ ROOT p = f32[4]{{0}} parameter(0) }}"
first = hloenv.compile(TEXT, isolate=False)
allowed = {max_map_count}
def count():
    return sum(1 for _ in open("/proc/self/maps"))
# Neighbours with the same rights would become one map.
held, before = [], count()
for index in range(allowed):
    is_near = before + index > allowed - 6000
    if index % 100 == 0 and is_near and count() > allowed - 3000:
        break
    rights = mmap.PROT_READ | (mmap.PROT_WRITE if index % 2 else 0)
    held.append(mmap.mmap(-1, 4096, flags=mmap.MAP_PRIVATE, prot=rights))
for again in (lambda: hloenv.compile(TEXT, isolate=False), first.copy):
    try:
        again()
    except hloenv.CompileError as error:
        print(error)
held.clear()
hloenv.compile(TEXT, isolate=False)
print("alive")
""")
    assert child.stdout.count("memory maps that the system allows") == 2
    assert child.stdout.endswith("alive\n")
