# SPDX-License-Identifier: Apache-2.0
"""TensorBoard without TensorFlow, whose libraries hloenv has loaded already."""

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
    """A block of imports, in which TensorBoard does not import all of TensorFlow."""
    name = "tensorboard.compat.notf"  # with it, TensorBoard uses its own stub
    is_missing = name not in sys.modules
    sys.modules.setdefault(name, types.ModuleType(name))
    try:
        yield
    finally:
        if is_missing:
            del sys.modules[name]


def open_writer(folder: Path) -> Any:
    """Writes scalars for TensorBoard; None where it is not installed."""
    if importlib.util.find_spec("tensorboard") is None:
        return None
    with without_tensorflow():
        from torch.utils.tensorboard import SummaryWriter

        return SummaryWriter(str(folder))
