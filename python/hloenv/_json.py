# SPDX-License-Identifier: Apache-2.0
"""JSON for any reader: it has no infinities and no NaN."""

from __future__ import annotations

import math
from typing import Any


def finite(value: Any) -> Any:
    """The value with None for each number in it that is not finite."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: finite(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(each) for each in value]
    return value
