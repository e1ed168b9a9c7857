# SPDX-License-Identifier: Apache-2.0
"""From JAX to hloenv and back.

`from_jax` makes a module of a function; `inject` runs a module inside the user's own
`jax.jit`; `jit` does both, with a policy between them.
"""

from __future__ import annotations

from ..runtime.jaxlib.ffi_call import call_executable
from ..runtime.jaxlib.hook import InjectionWarning
from .artefact import Artefact, Tuned
from .decide import Decided
from .exported import Export, export
from .injection import Injection, compile_injected, inject
from .jit import FallbackWarning, JitFunction, jit
from .loaded import Loaded, load
from .lowering import example_inputs, from_jax
from .numpy_calls import NumpyFunction
from .recipe import Recipe
from .wrapping import DonationWarning

__all__ = [
    "Artefact",
    "Decided",
    "DonationWarning",
    "Export",
    "FallbackWarning",
    "Injection",
    "InjectionWarning",
    "JitFunction",
    "Loaded",
    "NumpyFunction",
    "Recipe",
    "Tuned",
    "call_executable",
    "compile_injected",
    "example_inputs",
    "export",
    "from_jax",
    "inject",
    "jit",
    "load",
]
