# SPDX-License-Identifier: Apache-2.0
"""Whether the memory that a call frees stays in the process, for the next call.

The C library returns large blocks to the system as soon as they are freed: those of
over 32 MiB always, and of over 64 MiB in each thread but the first. XLA's CPU backend
allocates the results and the temporary buffers of each call anew, so that the system
maps and clears each of their pages in each call, which takes as long as computing
several values for each: jax.jit's `x + 1` of 64 MiB takes 29 ms, and 3 ms in memory
that the process has kept (docs/results/memory.md).
"""

from __future__ import annotations

import contextlib
import ctypes
import operator
import os
import resource
from pathlib import Path

from ..errors import ArgumentError, ArgumentTypeError

# Parameters of glibc's mallopt.
_TRIM_THRESHOLD, _MMAP_THRESHOLD, _MMAP_MAX, _ARENA_MAX = -1, -3, -4, -8
_MAX_BYTES = 2**31 - 1
# The C library's default; smaller blocks are kept already.
_MIN_BYTES = 128 << 10
# Of the memory that the process may use: of one block, and of what is free at the end.
_BLOCK_SHARE, _FREE_SHARE = 8, 4
# Worth a line, as the system takes some 0.4 ms to clear it.
_MUCH_BYTES = 1 << 20
# Files with the limit of a control group, of both versions.
_LIMITS = (
    "/sys/fs/cgroup/memory.max",
    "/sys/fs/cgroup/memory/memory.limit_in_bytes",
)


def keep_memory(max_bytes: int | None = None) -> bool:
    """Keeps memory that is freed in the process, for as long as it runs.

    Call it once, before the first computation: threads that have allocated memory
    before keep their own way for blocks of over 64 MiB. It holds for the whole process,
    jax.jit and numpy as well, and cannot be undone. All threads then allocate from one
    arena. A process keeps about the most memory that it has used; where blocks of many
    sizes take turns, it may be more.

        hloenv.keep_memory()
        step = jax.jit(step)

    Args:
        max_bytes: the largest block that is kept, from 128 KiB to 2 GiB - 1; an eighth
            of the memory that the process may use by default, at most 2 GiB - 1. glibc
            before 2.35 keeps blocks of all sizes, if this is above 32 MiB.

    Returns:
        Whether the C library does so: False if it is not glibc.

    Raises:
        ArgumentError: `max_bytes` is out of range.
        ArgumentTypeError: it is no integer.
    """
    try:
        max_bytes = None if max_bytes is None else operator.index(max_bytes)
    except TypeError:
        raise ArgumentTypeError(
            f"max_bytes must be an integer, got {max_bytes!r}"
        ) from None
    if max_bytes is not None and not _MIN_BYTES <= max_bytes <= _MAX_BYTES:
        raise ArgumentError(
            f"max_bytes must be from {_MIN_BYTES} to {_MAX_BYTES}, got {max_bytes}"
        )
    if not _is_glibc():
        return False
    memory = _memory_bytes()
    block = max_bytes or max(_MIN_BYTES, min(_MAX_BYTES, memory // _BLOCK_SHARE))
    free = max(block, min(_MAX_BYTES, memory // _FREE_SHARE))
    mallopt = ctypes.CDLL(None).mallopt
    # glibc before 2.35 takes no threshold above 32 MiB, but none at all.
    is_kept = mallopt(_MMAP_THRESHOLD, block) or mallopt(_MMAP_MAX, 0)
    # Other threads have blocks of 64 MiB at most of their own.
    return all((is_kept, mallopt(_TRIM_THRESHOLD, free), mallopt(_ARENA_MAX, 1)))


def _is_glibc() -> bool:
    with contextlib.suppress(ValueError, OSError):  # it has no such name
        return (os.confstr("CS_GNU_LIBC_VERSION") or "").startswith("glibc")
    return False


def fresh_bytes() -> int:
    """Memory of which this process has touched the pages for the first time, so far.

    The difference of two of these is about what all threads have got anew between them:
    less where the system has pages of 2 MiB, which count as one of 4 KiB each.
    """
    faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    return faults * resource.getpagesize()


def fresh_text(num_bytes: int) -> str:
    """Says what a call gets from the system anew, and what to do; empty if little."""
    if num_bytes < _MUCH_BYTES:
        return ""
    return (
        f"a call gets {num_bytes / 2**20:.0f} MiB from the system anew: "
        "hloenv.keep_memory() before the first computation keeps them"
    )


def _memory_bytes() -> int:
    """Memory that this process may use."""
    found = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit != resource.RLIM_INFINITY:
        found.append(limit)
    for path in _LIMITS:
        with contextlib.suppress(OSError, ValueError):  # "max" is no limit
            found.append(int(Path(path).read_text()))
    return min(found)
