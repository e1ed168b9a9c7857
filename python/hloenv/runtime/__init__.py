# SPDX-License-Identifier: Apache-2.0
"""Compiling and running modules, and comparing what they return."""

from __future__ import annotations

from .compare import OutputComparison, compare_outputs
from .executable import Executable, compile
from .ffi import register_target
from .interpreter import interpret
from .memory import keep_memory
from .random_inputs import random_inputs
from .upcast import upcast_to_float64

__all__ = [
    "Executable",
    "OutputComparison",
    "compare_outputs",
    "compile",
    "interpret",
    "keep_memory",
    "random_inputs",
    "register_target",
    "upcast_to_float64",
]
