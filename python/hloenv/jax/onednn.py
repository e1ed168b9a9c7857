# SPDX-License-Identifier: Apache-2.0
"""oneDNN in jaxlib, whose own passes do not call it.

Its code cannot be serialized: jaxlib raises MemoryError.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator

import numpy as np

from .._native import core
from ..hlo.module import HloModule
from ..rewrite.env import HloEnv
from ..runtime.jaxlib.hook import without_persistent_cache
from ..runtime.jaxlib.package import require_jax
from ..runtime.jaxlib.stablehlo import program_of

_PROBE = """HloModule probe
ENTRY e { x = f32[1,8,8,16] parameter(0)
  k = f32[1,1,16,16] parameter(1)
  ROOT c = f32[1,8,8,16] convolution(x, k), window={size=1x1},
    dim_labels=b01f_01io->b01f
}
"""


def calls_onednn(module: HloModule) -> bool:
    """Whether a module has calls of oneDNN."""
    return core.calls_onednn(module._core)


@functools.cache
def has_onednn() -> bool:
    """Whether this jaxlib runs calls of oneDNN; a convolution is compiled and run."""
    jax = require_jax("hloenv.jit")
    env = HloEnv(HloModule.from_text(_PROBE))
    alternatives = env.get_alternatives("onednn-calls")
    module = env.apply_alternatives(np.ones(len(alternatives), np.int64), alternatives)
    x = np.arange(8 * 8 * 16, dtype=np.float32).reshape(1, 8, 8, 16) / 100
    kernel = np.eye(16, dtype=np.float32)[None, None] * 2
    try:
        with not_serialized(module), jax.default_device(jax.devices("cpu")[0]):
            (found,) = jax.jit(program_of(module))(x, kernel)
        return bool(np.array_equal(found, 2 * x))
    except Exception:  # jaxlib's, of whatever kind
        return False


@contextlib.contextmanager
def not_serialized(module: HloModule) -> Iterator[None]:
    """Keeps jax from writing what it compiles of a module that calls oneDNN."""
    jax = require_jax("hloenv.jit")
    if not (jax.config.jax_compilation_cache_dir and calls_onednn(module)):
        yield
        return
    with without_persistent_cache():
        yield
