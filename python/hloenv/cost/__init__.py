# SPDX-License-Identifier: Apache-2.0
"""Cost models: estimate the run time of a module without running it."""

from __future__ import annotations

from .base import Estimate, Estimator
from .kernel_cache import KernelCache
from .kernels import KernelSplit
from .registry import (
    UnknownEstimatorError,
    describe_estimator,
    get_estimator,
    list_estimators,
    open_estimator,
    register_estimator,
)
from .roofline import Rates, Roofline

__all__ = [
    "Estimate",
    "Estimator",
    "KernelCache",
    "KernelSplit",
    "Rates",
    "Roofline",
    "UnknownEstimatorError",
    "describe_estimator",
    "get_estimator",
    "list_estimators",
    "open_estimator",
    "register_estimator",
]
