# SPDX-License-Identifier: Apache-2.0
"""Messages between processes: frames of a known length on a pipe."""

from __future__ import annotations

import json
import pickle
import struct
from typing import IO, Any

_LENGTH = struct.Struct("<Q")


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
