# SPDX-License-Identifier: Apache-2.0
"""oneDNN in jaxlib, whose own passes do not call it.

Its code cannot be serialized: jaxlib raises MemoryError, also where jax writes what it
compiles to its persistent cache.
"""

from __future__ import annotations

import functools
import importlib.metadata

import numpy as np

from .._native import core
from ..hlo.module import HloModule
from ..rewrite.env import HloEnv
from ..runtime.jaxlib.package import require_jax
from ..runtime.jaxlib.stablehlo import program_of

# What a call's configuration means is XLA's own affair: another version may read past
# its end.
_KNOWN_JAXLIB = "0.10."
_IMAGE, _KERNEL = (2, 7, 9, 8), (3, 2, 4, 16)
_PROBE = """HloModule probe
ENTRY e { x = f32[2,7,9,8] parameter(0)
  k = f32[3,2,4,16] parameter(1)
  ROOT c = f32[2,4,12,16] convolution(x, k),
    window={size=3x2 stride=2x1 pad=1_2x4_1 rhs_dilate=1x2},
    dim_labels=b01f_01io->b01f, feature_group_count=2
}
"""
CACHE_IS_ON = (
    "calls of oneDNN are not tried while jax's persistent cache is on "
    "(jax_compilation_cache_dir): jaxlib cannot write such code"
)


def calls_onednn(module: HloModule) -> bool:
    """Whether a module has calls of oneDNN."""
    return core.calls_onednn(module._core)


def is_cache_on() -> bool:
    """Whether jax writes what it compiles to files."""
    config = require_jax("hloenv.jit").config
    return bool(
        config.jax_enable_compilation_cache and config.jax_compilation_cache_dir
    )


@functools.cache
def has_onednn() -> bool:
    """Whether this jaxlib runs calls of oneDNN; a convolution is compiled and run.

    Not to be called while jax's persistent cache is on.
    """
    jax = require_jax("hloenv.jit")
    if not importlib.metadata.version("jaxlib").startswith(_KNOWN_JAXLIB):
        return False
    plain = HloModule.from_text(_PROBE)
    env = HloEnv(plain)
    alternatives = env.get_alternatives("onednn-calls")
    module = env.apply_alternatives(np.ones(len(alternatives), np.int64), alternatives)
    rng = np.random.default_rng(0)
    # Small integers, whose sums are exact.
    inputs = [
        rng.integers(-3, 4, shape).astype(np.float32) for shape in (_IMAGE, _KERNEL)
    ]
    try:
        with (
            jax.disable_jit(False),
            jax.transfer_guard("allow"),
            jax.default_device(jax.devices("cpu")[0]),
        ):
            found, expected = (
                np.asarray(jax.jit(program_of(each))(*inputs)[0])
                for each in (module, plain)
            )
    except Exception:  # jaxlib's, of whatever kind
        return False
    return bool(np.array_equal(found, expected))
