# SPDX-License-Identifier: Apache-2.0
"""hloenv: XLA's graph rewrites as a decision game.

A module goes in; every rewrite that an XLA pass would make comes out as an
alternative that a policy accepts or rejects; the result is compiled, checked against
the original, and timed.
"""

from __future__ import annotations

from . import _interrupt

_interrupt.install()  # before anything that takes time

# ruff: noqa: E402
import importlib
from typing import Any

from .arrays import OutputComparison, compare_outputs, random_inputs
from .env import HloEnv, State, replay
from .errors import (
    ArgumentError,
    ArgumentTypeError,
    CompileError,
    DatasetError,
    DecisionError,
    ExecuteError,
    FlagError,
    ForkError,
    GraphError,
    HloEnvError,
    HookError,
    InterceptError,
    InvalidModuleError,
    LockError,
    MeasureTimeout,
    ModuleTooLargeError,
    OutputMismatchError,
    ParseError,
    PassError,
    PassOptionError,
    PlaceError,
    PlaceWarning,
    StaleAlternativesError,
    TargetError,
    TensorflowError,
    TraceError,
    UnknownPassError,
    WorkerError,
)
from .evaluate import Measurement, Measurer, measure
from .executable import Executable, compile
from .ffi import register_target
from .graph import HloGraph, dtypes, opcodes
from .intercept import Interception, LiveStage, gpu_targets, intercept
from .interpreter import ChoiceError, interpret, verify_alternatives
from .isolate import Lab, isolated
from .module import ArraySpec, HloModule, ModuleCost, as_module
from .passes import (
    Pass,
    Pipeline,
    describe_pass,
    excluded_passes,
    list_passes,
    run_passes,
)
from .place import Place, Stage, finish, list_stages, run_until
from .rewrite import Alternative, Alternatives, Choice, Site, Use
from .settings import Settings
from .store import Store
from .trace import Trace
from .widen import widened

__version__ = "0.1.0"

# Loaded on first use: they need optional packages, or few programs need them.
_SUBMODULES = ("convert", "dataset", "diff", "ffi", "jax", "policies", "searches")
_LAZY = {
    "Game": "game",
    "Stop": "game",
    "jit": "jax",
    "to_networkx": "convert",
    "to_pyg": "convert",
}

__all__ = [
    "Alternative",
    "Alternatives",
    "ArgumentError",
    "ArgumentTypeError",
    "ArraySpec",
    "Choice",
    "ChoiceError",
    "CompileError",
    "DatasetError",
    "DecisionError",
    "Executable",
    "ExecuteError",
    "FlagError",
    "ForkError",
    "GraphError",
    "HloEnv",
    "HloEnvError",
    "HloGraph",
    "HloModule",
    "HookError",
    "InterceptError",
    "Interception",
    "InvalidModuleError",
    "Lab",
    "LiveStage",
    "LockError",
    "MeasureTimeout",
    "Measurement",
    "Measurer",
    "ModuleCost",
    "ModuleTooLargeError",
    "OutputComparison",
    "OutputMismatchError",
    "ParseError",
    "Pass",
    "PassError",
    "PassOptionError",
    "Pipeline",
    "Place",
    "PlaceError",
    "PlaceWarning",
    "Settings",
    "Site",
    "Stage",
    "StaleAlternativesError",
    "State",
    "Store",
    "TargetError",
    "TensorflowError",
    "Trace",
    "TraceError",
    "UnknownPassError",
    "Use",
    "WorkerError",
    "__version__",
    "as_module",
    "compare_outputs",
    "compile",
    "describe_pass",
    "dtypes",
    "excluded_passes",
    "finish",
    "gpu_targets",
    "intercept",
    "interpret",
    "isolated",
    "list_passes",
    "list_stages",
    "measure",
    "opcodes",
    "random_inputs",
    "register_target",
    "replay",
    "run_passes",
    "run_until",
    "verify_alternatives",
    "widened",
]


def __getattr__(name: str) -> Any:
    if name in _SUBMODULES:
        return importlib.import_module(f".{name}", __name__)
    if name in _LAZY:
        return getattr(importlib.import_module(f".{_LAZY[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*__all__, *_SUBMODULES, *_LAZY})
