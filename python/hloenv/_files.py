# SPDX-License-Identifier: Apache-2.0
"""Files that are either complete or as they were before."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A path to write to, whose file takes the place of `path` at the end.

    An error leaves `path` as it was. Other readers of the folder skip the file: its
    name begins with a dot.
    """
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        yield draft
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
