# SPDX-License-Identifier: Apache-2.0
"""From JAX to hloenv and back.

`from_jax` makes a module of a function; `inject` runs a module inside the user's own
`jax.jit`; `jit` does both, with a policy between them.
"""

from __future__ import annotations

from .decide import Decided
from .injection import Injection, InjectionWarning, compile_injected, inject
from .jit import DonationWarning, FallbackWarning, JitFunction, jit
from .lowering import example_inputs, from_jax

__all__ = [
    "Decided",
    "DonationWarning",
    "FallbackWarning",
    "Injection",
    "InjectionWarning",
    "JitFunction",
    "compile_injected",
    "example_inputs",
    "from_jax",
    "inject",
    "jit",
]
