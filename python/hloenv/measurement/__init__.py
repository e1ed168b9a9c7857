# SPDX-License-Identifier: Apache-2.0
"""Timing of modules against a baseline, on one or several machines, and a store."""

from __future__ import annotations

from .config import Settings
from .measurer import Measurer, measure
from .record import Measurement
from .store import Store

__all__ = [
    "Measurement",
    "Measurer",
    "Settings",
    "Store",
    "measure",
]
