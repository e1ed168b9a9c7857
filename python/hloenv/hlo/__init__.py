# SPDX-License-Identifier: Apache-2.0
"""Modules, XLA's passes, and XLA's own pipeline."""

from __future__ import annotations

from .array_spec import ArraySpec
from .diff import ModuleDiff, diff_modules
from .module import HloModule, ModuleCost, as_module
from .pass_info import PassInfo
from .passes import (
    Pass,
    Pipeline,
    describe_pass,
    excluded_passes,
    list_passes,
    run_passes,
)
from .pipeline import Stage, finish, list_stages, run_until
from .position import PipelinePosition

__all__ = [
    "ArraySpec",
    "HloModule",
    "ModuleCost",
    "ModuleDiff",
    "Pass",
    "PassInfo",
    "Pipeline",
    "PipelinePosition",
    "Stage",
    "as_module",
    "describe_pass",
    "diff_modules",
    "excluded_passes",
    "finish",
    "list_passes",
    "list_stages",
    "run_passes",
    "run_until",
]
