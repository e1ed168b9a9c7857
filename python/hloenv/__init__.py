# SPDX-License-Identifier: Apache-2.0
"""hloenv: XLA's graph rewrites as a decision game."""

from __future__ import annotations

__version__ = "0.1.0"
