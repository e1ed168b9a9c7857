# SPDX-License-Identifier: Apache-2.0
"""How many threads PyTorch uses."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def one_thread() -> Iterator[None]:
    """PyTorch on one thread: its operations on small graphs are too small for more."""
    import torch

    count = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(count)
