# SPDX-License-Identifier: Apache-2.0
"""Files that are complete or as they were before, and files of the user alone."""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A path to write to, whose file takes the place of `path` at the end.

    An error leaves `path` as it was. Other readers of the folder skip the file: its
    name begins with a dot.
    """
    # Other threads, and processes of another PID namespace, may write it too.
    draft = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
    try:
        yield draft
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def read_file(path: Path, *, max_bytes: int, is_own: bool = False) -> str:
    """The text of a regular file; as `read_bytes`.

    Raises:
        OSError: it cannot be read, or is not as it must be.
        UnicodeDecodeError: it is not text.
    """
    return read_bytes(path, max_bytes=max_bytes, is_own=is_own).decode()


def read_bytes(path: Path, *, max_bytes: int, is_own: bool = False) -> bytes:
    """The contents of a regular file; others, such as pipes, may have no end.

    Args:
        path: of the file.
        max_bytes: that it may have.
        is_own: whether to require that the file and its folder are owned by this user
            and are not writable by others.

    Raises:
        OSError: it cannot be read, or is not as it must be.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise OSError(f"{path} is not a regular file")
        if found.st_size > max_bytes:
            raise OSError(f"{path} has {found.st_size} bytes, more than {max_bytes}")
        if is_own and not (_is_own(found) and _is_own(path.parent.stat())):
            raise PermissionError(f"other users may have written {path}")
        return file.read(max_bytes)


def write_own(path: Path, contents: str | bytes) -> None:
    """Writes a file with mode 0600; makes its folder, with mode 0700, if need be.

    Raises:
        OSError: it cannot be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with replacing(path) as draft:
        draft.touch(mode=0o600)
        draft.write_bytes(contents.encode() if isinstance(contents, str) else contents)


def _is_own(found: os.stat_result) -> bool:
    others = stat.S_IWGRP | stat.S_IWOTH
    return found.st_uid == os.geteuid() and not found.st_mode & others
