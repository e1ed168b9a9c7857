# SPDX-License-Identifier: Apache-2.0
"""Messages between processes: frames of a known length on a pipe."""

from __future__ import annotations

import json
import math
import pickle
import select
import struct
from typing import IO, Any

_LENGTH = struct.Struct("<Q")
# poll takes its time limit as an int of milliseconds.
_MAX_WAIT_S = 1e6


def is_readable_within(stream: int | IO[bytes], timeout_s: float | None) -> bool:
    """Waits until there is something to read, or the other end is closed.

    Any number of files may be open: select would take only the first 1024.

    Args:
        stream: a pipe or its descriptor.
        timeout_s: limit, in seconds; None for none.

    Returns:
        False after the limit.
    """
    poll = select.poll()
    poll.register(stream, select.POLLIN)
    if timeout_s is None or timeout_s > _MAX_WAIT_S:
        return bool(poll.poll())
    return bool(poll.poll(math.ceil(max(timeout_s, 0.0) * 1000)))


def write_frame(stream: IO[bytes], header: dict[str, Any], *blobs: bytes) -> None:
    """Writes JSON and binary blobs as one frame, and flushes."""
    text = json.dumps({**header, "blobs": [len(blob) for blob in blobs]}).encode()
    stream.write(b"".join((_LENGTH.pack(len(text)), text, *blobs)))
    stream.flush()


def read_frame(stream: IO[bytes]) -> tuple[dict[str, Any], list[bytes]]:
    """Reads a frame of `write_frame`.

    Raises:
        EOFError: the other process has closed the connection.
    """
    header: dict[str, Any] = json.loads(_read_sized(stream))
    return header, [_read_exactly(stream, size) for size in header.pop("blobs")]


def write_pickle(stream: IO[bytes], value: object) -> None:
    """Writes a value as one frame, and flushes; for a process that is trusted."""
    data = pickle.dumps(value)
    stream.write(_LENGTH.pack(len(data)) + data)
    stream.flush()


def read_pickle(stream: IO[bytes]) -> Any:
    """Reads a value of `write_pickle`.

    Raises:
        EOFError: the other process has closed the connection.
    """
    return pickle.loads(_read_sized(stream))


def _read_sized(stream: IO[bytes]) -> bytes:
    (length,) = _LENGTH.unpack(_read_exactly(stream, _LENGTH.size))
    return _read_exactly(stream, length)


def _read_exactly(stream: IO[bytes], size: int) -> bytes:
    """Reads from a pipe, which gives less at a time if it is not buffered."""
    data = bytearray()
    while len(data) < size:
        part = stream.read(size - len(data))
        if not part:
            raise EOFError("the other process has closed the connection")
        data += part
    return bytes(data)
