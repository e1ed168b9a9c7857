# SPDX-License-Identifier: Apache-2.0
"""The packages jax and jaxlib, which are optional."""

from __future__ import annotations

from types import ModuleType

from ..._optional import needed_by

# Element types of which jax has no arrays in memory of its own.
NOT_IN_JAX = frozenset({"token", "s1", "u1", "s2", "u2", "s4", "u4", "f4e2m1fn"})


def require_jax(user: str) -> ModuleType:
    """The package jax.

    Args:
        user: what needs it, for the message.

    Raises:
        ImportError: jax is not installed.
    """
    with needed_by(user, "jax", "jax"):
        import jax
    return jax


def require_injection(user: str) -> ModuleType:
    """The module jax.extend.xla, which can replace modules.

    Args:
        user: what needs it, for the message.

    Raises:
        ImportError: jax is missing or too old.
    """
    jax = require_jax(user)
    try:
        from jax.extend import xla
    except ImportError:
        xla = None  # type: ignore[assignment]
    if not hasattr(xla, "PipelineStage"):
        raise ImportError(
            f"{user} needs jax >= 0.10.2 to replace modules, got jax "
            f"{jax.__version__}: pip install -U 'hloenv[jax]'"
        )
    return xla
