# SPDX-License-Identifier: Apache-2.0
"""TensorBoard without TensorFlow's Python, which it would import."""

from __future__ import annotations

import importlib.util
import sys
import types
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


@contextmanager
def without_tensorflow() -> Iterator[None]:
    """A block of imports in which TensorBoard does not import TensorFlow."""
    name = "tensorboard.compat.notf"
    is_missing = name not in sys.modules
    sys.modules.setdefault(name, types.ModuleType(name))
    try:
        yield
    finally:
        if is_missing:
            del sys.modules[name]


def make_writer(folder: Path) -> Any:
    """A writer of scalars into a folder; None where TensorBoard is not installed."""
    if importlib.util.find_spec("tensorboard") is None:
        return None
    with without_tensorflow():
        from torch.utils.tensorboard import SummaryWriter
    return SummaryWriter(str(folder))
