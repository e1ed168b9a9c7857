# SPDX-License-Identifier: Apache-2.0
"""Files that are complete or as they were before, and files of the user alone."""

from __future__ import annotations

import os
import secrets
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A path to write to, whose file takes the place of `path` at the end.

    An error leaves `path` as it was. Other readers of the folder skip the file: its
    name begins with a dot. What is no regular file, as a pipe or /dev/stdout, stays
    where it is, and gets the contents at the end.

    Raises:
        OSError: it cannot be written.
    """
    check_no_folder(path)
    # Other threads, and processes of another PID namespace, may write it too.
    name = f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}"
    with _draft_folder(path) as folder:
        draft = folder / name
        try:
            yield draft
            if folder == path.parent:
                draft.replace(path)
            else:
                with draft.open("rb") as source, path.open("ab") as target:
                    shutil.copyfileobj(source, target)
        except OSError as error:
            # The user knows `path`, and a full disk names no file.
            if error.errno is None or error.filename not in (None, str(draft), draft):
                raise
            raise OSError(error.errno, error.strerror, str(path)) from error
        finally:
            draft.unlink(missing_ok=True)


@contextmanager
def _draft_folder(path: Path) -> Iterator[Path]:
    """That of a regular file; for what stays where it is, one of this user alone."""
    if not _stays(path):
        yield path.parent
        return
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


def check_no_folder(path: Path) -> None:
    """Checks that a path to write to is no folder.

    Raises:
        IsADirectoryError: it is one.
    """
    if path.is_dir():
        raise IsADirectoryError(f"cannot write {path}: it is a folder; name a file")


def check_folder(path: Path) -> None:
    """Checks that files can be made in a folder, which need not exist yet.

    Raises:
        NotADirectoryError: it, or what it is to be in, is no folder.
        PermissionError: this user may not write there.
    """
    here = path.absolute()
    found = next(each for each in (here, *here.parents) if os.path.lexists(each))
    if not found.is_dir():
        raise NotADirectoryError(
            f"cannot make the folder {path}: {found} is no folder; name another one"
        )
    if not os.access(found, os.W_OK):
        raise PermissionError(
            f"cannot write to the folder {path}: no permission to write to {found}"
        )


@contextmanager
def naming(path: str | os.PathLike[str]) -> Iterator[None]:
    """Errors of writing in this block name the file, as that of a full disk."""
    try:
        yield
    except OSError as error:
        if error.errno is None or error.filename is not None:
            raise
        raise OSError(error.errno, error.strerror, os.fspath(path)) from error


def _stays(path: Path) -> bool:
    """Whether it is a device, a pipe or a socket, or a link to an open file.

    A file that took the place of /dev/null would stay there for all programs.
    """
    if path.is_symlink() and str(path.readlink()).startswith("/proc/"):
        return True  # as /dev/stdout
    return path.exists() and not path.is_file()


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
