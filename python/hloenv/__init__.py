# SPDX-License-Identifier: Apache-2.0
"""hloenv: XLA's graph rewrites as decisions.

A module goes in; every rewrite that an XLA pass would make comes out as an
alternative that a policy accepts or rejects; the result is compiled, checked against
the original, and timed.

What most programs need is here; the rest is in its package: `hloenv.errors`,
`hloenv.measurement.Store`, `hloenv.graph.to_json`.
"""

from __future__ import annotations

from . import _interrupt, errors

_interrupt.install()  # before anything that takes time

# ruff: noqa: E402
import importlib
from typing import Any

from ._version import __version__
from .errors import HloEnvError
from .graph.hlo_graph import HloGraph
from .hlo.module import HloModule
from .hlo.passes import Pass, Pipeline, describe_pass, list_passes, run_passes
from .hlo.pipeline import finish, list_stages, run_until
from .measurement.measurer import Measurer, measure
from .rewrite.alternatives import Alternatives
from .rewrite.env import HloEnv, replay
from .rewrite.interception import intercept
from .rewrite.sandbox import isolated
from .rewrite.verify import verify_alternatives
from .runtime.compare import compare_outputs
from .runtime.executable import compile
from .runtime.interpreter import interpret
from .runtime.random_inputs import random_inputs

# Loaded on first use: they need optional packages, or few programs need them.
_SUBMODULES = frozenset({"dataset", "jax", "policies", "search", "tune"})
_LAZY = {
    "DecisionPoint": "rewrite",
    "Game": "rewrite",
    "jit": "jax",
    "keep_memory": "runtime",
    "load": "jax",
    "register_pass": "rules",
    "rule": "rules",
    "to_networkx": "graph",
    "to_pyg": "graph",
}
# Names that earlier versions had here, and the packages that have them.
_MOVED = {
    "Alternative": "rewrite",
    "ArraySpec": "hlo",
    "Choice": "rewrite",
    "ChoiceError": "rewrite",
    "Executable": "runtime",
    "Interception": "rewrite",
    "LiveStage": "rewrite",
    "Measurement": "measurement",
    "ModuleCost": "hlo",
    "PipelinePosition": "hlo",
    "OutputComparison": "runtime",
    "Settings": "measurement",
    "Sandbox": "rewrite",
    "Site": "rewrite",
    "Stage": "hlo",
    "State": "rewrite",
    "Store": "measurement",
    "Trace": "rewrite",
    "Use": "rewrite",
    "as_module": "hlo",
    "dtypes": "graph",
    "excluded_passes": "hlo",
    "gpu_targets": "rewrite",
    "opcodes": "graph",
    "register_target": "runtime",
    "upcast_to_float64": "runtime",
}
_RENAMED = {
    "Lab": "Sandbox",
    "Place": "PipelinePosition",
    "PlaceError": "PositionError",
    "PlaceWarning": "PositionWarning",
    "Stop": "DecisionPoint",
    "widened": "upcast_to_float64",
}

__all__ = [
    "Alternatives",
    "HloEnv",
    "HloEnvError",
    "HloGraph",
    "HloModule",
    "Measurer",
    "Pass",
    "Pipeline",
    "__version__",
    "compare_outputs",
    "compile",
    "describe_pass",
    "finish",
    "intercept",
    "interpret",
    "isolated",
    "list_passes",
    "list_stages",
    "measure",
    "random_inputs",
    "replay",
    "run_passes",
    "run_until",
    "verify_alternatives",
]


def __getattr__(name: str) -> Any:
    if name in _SUBMODULES:
        return importlib.import_module(f".{name}", __name__)
    name = _RENAMED.get(name, name)
    home = _LAZY.get(name) or _MOVED.get(name)
    if home is None:
        home = "errors"
        if name.startswith("_") or not hasattr(errors, name):
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f".{home}", __name__), name)


def __dir__() -> list[str]:
    return sorted({*__all__, *_SUBMODULES, *_LAZY})
