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

    Raises:
        OSError: it cannot be written, or is something else than a regular file.
    """
    check_replaceable(path)
    # Other threads, and processes of another PID namespace, may write it too.
    draft = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
    try:
        yield draft
        draft.replace(path)
    except OSError as error:
        # The user knows `path`, and a full disk names no file.
        if error.errno is None or error.filename not in (None, str(draft), draft):
            raise
        raise OSError(error.errno, error.strerror, str(path)) from error
    finally:
        draft.unlink(missing_ok=True)


def check_replaceable(path: Path) -> None:
    """Checks that there is a regular file, or nothing, at a path to write to.

    A file that takes the place of /dev/null would stay there for all programs.

    Raises:
        IsADirectoryError: it is a folder.
        OSError: it is a device, a pipe or a socket, or a link to an open file, as
            /dev/stdout.
    """
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        return
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(f"cannot write {path}: it is a folder; name a file")
    is_link_to_open_file = path.is_symlink() and str(path.readlink()).startswith(
        "/proc/"
    )
    if not stat.S_ISREG(mode) or is_link_to_open_file:
        raise OSError(
            f"cannot write {path}: it is not a regular file, but a device, a pipe or a "
            "socket; name another file"
        )


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
    with open(path, "rb", opener=_open_without_waiting) as file:
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode):
            raise OSError(f"{path} is not a regular file")
        if found.st_size > max_bytes:
            raise OSError(f"{path} has {found.st_size} bytes, more than {max_bytes}")
        if is_own and not (_is_own(found) and _is_own(path.parent.stat())):
            raise PermissionError(f"other users may have written {path}")
        return file.read(max_bytes)


def _open_without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)


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
