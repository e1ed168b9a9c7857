# SPDX-License-Identifier: Apache-2.0
"""What this machine's processor can do."""

from __future__ import annotations

import functools
from pathlib import Path


@functools.cache
def has_products_of_bf16() -> bool:
    """Whether it multiplies bf16."""
    flags = Path("/proc/cpuinfo")
    return flags.is_file() and "avx512_bf16" in flags.read_text(encoding="utf-8")
