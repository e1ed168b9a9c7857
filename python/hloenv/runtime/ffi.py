# SPDX-License-Identifier: Apache-2.0
"""Implementations of custom calls: jaxlib's, and your own.

XLA calls LAPACK and other libraries through handlers that are registered under a name.
jaxlib has the handlers for the custom calls of jax; hloenv registers them when a module
first needs one.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from .._native import core
from ..errors import ArgumentError

if TYPE_CHECKING:
    from ..hlo.module import HloModule

_STAGES = ("instantiate", "prepare", "initialize", "execute")
_JAXLIB_MODULES = ("jaxlib.cpu._lapack", "jaxlib.cpu._sparse")

# The names that register_jaxlib has registered; None before its first call.
_jaxlib_targets: frozenset[str] | None = None


def register_target(name: str, target: Any, *, api_version: int = 1) -> None:
    """Registers the CPU implementation of a custom call.

    Args:
        name: the `custom_call_target` of the instructions.
        target: a PyCapsule of the function, as `jax.ffi.pycapsule` makes it; or, for
            a typed handler with several stages, a dict of capsules by stage
            ("instantiate", "prepare", "initialize", "execute").
        api_version: 1 for XLA's typed FFI, 0 for the older untyped convention.

    Raises:
        ArgumentError: XLA rejects the handler, or another handler has the name.
    """
    if api_version == 0:
        core.register_untyped_target(name, target)
        return
    if api_version != 1:
        raise ArgumentError(
            f"api_version of {name!r} must be 1 (typed FFI) or 0 (untyped), got "
            f"{api_version}"
        )
    stages: Mapping[str, Any] = (
        target if isinstance(target, Mapping) else {"execute": target}
    )
    unknown = sorted(set(stages) - set(_STAGES))
    if unknown or stages.get("execute") is None:
        raise ArgumentError(
            f"the handler of {name!r} has stages {sorted(stages)}; it must have "
            f"'execute' and may have {', '.join(_STAGES[:-1])}"
        )
    core.register_ffi_handler(name, *(stages.get(stage) for stage in _STAGES))


def register_jaxlib() -> frozenset[str]:
    """Registers jaxlib's handlers for the CPU: LAPACK and sparse products.

    Only the first call has an effect. jax itself is not imported.

    Returns:
        The registered names; none if jaxlib or scipy, whose LAPACK it calls, is not
        installed.
    """
    global _jaxlib_targets
    if _jaxlib_targets is not None:
        return _jaxlib_targets
    names: set[str] = set()
    for path in _JAXLIB_MODULES:
        try:
            library = importlib.import_module(path)
            if hasattr(library, "initialize"):
                library.initialize()
        except ImportError:
            continue
        for name, target in library.registrations().items():
            # The name determines the convention: jaxlib before 0.5 has both.
            is_typed = name.endswith("_ffi") or isinstance(target, Mapping)
            register_target(name, target, api_version=int(is_typed))
            names.add(name)
    _jaxlib_targets = frozenset(names)
    return _jaxlib_targets


def register_for(module: HloModule) -> None:
    """Registers jaxlib's handlers if `module` has unimplemented custom calls."""
    if any(not target[2] for target in core.custom_call_targets(module._core)):
        register_jaxlib()
