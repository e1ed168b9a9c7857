# SPDX-License-Identifier: Apache-2.0
"""Functions of jax with all alternatives of math-forms."""

from __future__ import annotations

import numpy as np

import hloenv


def decided(fn, *arrays):
    """The module with all alternatives, and these."""
    env = hloenv.HloEnv(hloenv.HloModule.from_jax(fn, *arrays))
    alternatives = env.get_alternatives("math-forms")
    env.apply_alternatives(np.ones(len(alternatives), np.int64))
    return env.module, alternatives


def compiled(module, engine="jaxlib"):
    """The module as a function of arrays, with one output."""
    executable = hloenv.compile(module, engine=engine, isolate=False)

    def call(*arrays):
        (found,) = executable(*arrays)
        return np.asarray(found)

    return call


def run(module, *arrays, engine="jaxlib"):
    return compiled(module, engine)(*arrays)
