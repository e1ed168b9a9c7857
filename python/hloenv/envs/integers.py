# SPDX-License-Identifier: Apache-2.0
"""Checks of integers: actions, and the limits of environments."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..errors import ArgumentError


def is_integer(value: Any) -> bool:
    """Whether a value is one integer, of Python or numpy; a boolean is not."""
    if isinstance(value, (np.ndarray, np.generic)):
        return value.shape == () and value.dtype.kind in "iu"
    return isinstance(value, int) and not isinstance(value, bool)


def check_limit(name: str, value: Any, *, least: int = 1) -> None:
    """Checks a limit.

    Raises:
        ArgumentError: it is not an integer of at least `least`.
    """
    if not is_integer(value) or value < least:
        raise ArgumentError(f"{name} must be an integer >= {least}, got {value!r}")
