# SPDX-License-Identifier: Apache-2.0
"""The engine of jax.jit: jaxlib's XLA, with its own pipeline or with a final module."""

from __future__ import annotations

from .executable import JaxlibExecutable, compile_by_jaxlib, time_calls

__all__ = ["JaxlibExecutable", "compile_by_jaxlib", "time_calls"]
