# SPDX-License-Identifier: Apache-2.0
"""Joint tuning across the stages of the compiler.

    found = hloenv.tune(step, state, batch)      # a function with arguments
    found = hloenv.tune(module)                  # a module from before XLA's passes
    found.save("step.tuned")
    step = hloenv.jit(step, tuned="step.tuned")

The package is callable: `hloenv.tune(...)` is `hloenv.tune.tune(...)`.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

from ..jax.artefact import Artefact, Tuned
from .api import tune, use
from .decisions import DECISIONS, Choice, Decision
from .options import Mode, TuneOptions
from .space import Configuration, Space
from .stages import STAGES, Stage, reason, relation, reopened_by
from .state import State
from .tuner import Tuner

__all__ = [
    "DECISIONS",
    "STAGES",
    "Artefact",
    "Choice",
    "Configuration",
    "Decision",
    "Mode",
    "Space",
    "Stage",
    "State",
    "TuneOptions",
    "Tuned",
    "Tuner",
    "reason",
    "relation",
    "reopened_by",
    "tune",
    "use",
]


class _Callable(ModuleType):
    """A package that is called as its main function."""

    def __call__(self, *args: Any, **kwargs: Any) -> Artefact:
        """As `tune`."""
        return tune(*args, **kwargs)


sys.modules[__name__].__class__ = _Callable
