# SPDX-License-Identifier: Apache-2.0
"""What jaxlib has compiled for decided functions, kept for other processes.

One file for each, in the folder of the store, by what jax lowers, options, machine and
versions: a later process loads it in some milliseconds. The rules that hold for kept
verdicts hold here.
"""

from __future__ import annotations

import contextlib
import hashlib
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .._files import read_bytes, write_own
from .._native import core
from ..measurement.store import default_path
from ..runtime.jaxlib.options import compile_lowered, keep_compiled
from ..runtime.jaxlib.serialized import loading, serialize
from .attempts import Attempt
from .facts import key_of_lowered
from .onednn import calls_onednn
from .verdicts import key_of

_MAX_BYTES = 64 << 20
# Of all files together.
_MAX_TOTAL_BYTES = 512 << 20
_MAX_FILE_DAYS = 30
# Custom calls by whose names another process finds the same functions. Others may hold
# addresses.
_PORTABLE = ("lapack_", "blas_", "TopK", "mhlo.", "Sharding")
_DIGEST = hashlib.sha256
# In place of what this jaxlib does not load on this machine: it is compiled each time.
# jaxlib 0.10 refuses some processors of Intel its own code.
_UNLOADABLE = b""


def compile_attempt(
    attempt: Attempt, lowered: Any, compiling: Mapping[str, str], *, is_best: bool
) -> None:
    """Compiles a version into jax's caches, where its first call does not.

    Args:
        attempt: the version.
        lowered: a `jax.stages.Lowered` of it.
        compiling: options of the compiler that the user has given, as text.
        is_best: whether an earlier process has found it best: what that has compiled is
            loaded, or what is compiled here is kept.

    Raises:
        CompileError: jaxlib has no such option.
        JaxRuntimeError: jaxlib cannot compile the function.
    """
    if not is_best and not attempt.options:
        return
    path = _path_of(attempt, lowered, compiling) if is_best else None
    data = None if path is None else _read(path)
    if data:
        with loading(data) as found:
            compiled = compile_lowered(lowered, attempt.options)
        if found.is_tried and not found.is_loaded and path is not None:
            _write(path, _UNLOADABLE)
    else:
        compiled = compile_lowered(lowered, attempt.options)
        if path is not None and data is None:
            _write(path, serialize(compiled))
    if attempt.options:
        keep_compiled(lowered, compiled)


def keep_executable(
    attempt: Attempt, lowered: Any, compiling: Mapping[str, str]
) -> None:
    """Keeps what has been compiled, where that is possible.

    Args:
        attempt: which is best.
        lowered: a `jax.stages.Lowered` of it, whose executable jax has.
        compiling: as in `compile_attempt`.
    """
    path = _path_of(attempt, lowered, compiling)
    if path is not None:
        _write(path, serialize(lowered.compile()))


def _path_of(
    attempt: Attempt, lowered: Any, compiling: Mapping[str, str]
) -> Path | None:
    """The file; None if it holds only in this process, or cannot be identified."""
    if attempt.replace is not None or attempt.discard is not None:
        return None
    if calls_onednn(attempt.decided.applied):
        return None
    targets = core.custom_call_targets(attempt.decided.applied._core)
    if not all(each[0].startswith(_PORTABLE) for each in targets):
        return None
    digest = key_of_lowered(lowered)
    if digest is None:
        return None
    others = {"kind": "executable", "options": dict(attempt.options), **compiling}
    with contextlib.suppress(RuntimeError):  # there is no home folder
        return default_path().parent / "executables" / key_of(digest, 0.0, others)
    return None


def _read(path: Path) -> bytes | None:
    with contextlib.suppress(OSError):
        found = read_bytes(path, max_bytes=_MAX_BYTES, is_own=True)
        size = _DIGEST().digest_size
        if found[:size] == _DIGEST(found[size:]).digest():
            return found[size:]
    return None


def _write(path: Path, data: bytes | None) -> None:
    if data is None or len(data) > _MAX_BYTES - _DIGEST().digest_size:
        return
    with contextlib.suppress(OSError):
        write_own(path, _DIGEST(data).digest() + data)
        _remove_old(path.parent)


def _remove_old(folder: Path) -> None:
    """Removes what was kept long ago, or is too much.

    Raises:
        OSError: the folder cannot be read.
    """
    oldest = time.time() - _MAX_FILE_DAYS * 86_400
    total = 0
    found = [(path.stat(), path) for path in folder.iterdir()]
    for stat, path in sorted(found, key=lambda each: -each[0].st_mtime):
        total += stat.st_size
        if stat.st_mtime < oldest or total > _MAX_TOTAL_BYTES:
            path.unlink(missing_ok=True)  # another process removes it, too
