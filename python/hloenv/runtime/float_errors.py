# SPDX-License-Identifier: Apache-2.0
"""Arithmetic whose overflow or underflow is no fault, whatever the user's settings."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import numpy as np

P = ParamSpec("P")
T = TypeVar("T")


def without_float_errors(function: Callable[P, T]) -> Callable[P, T]:
    """Runs a function of numpy's arrays without what `np.seterr` asks for.

    `np.errstate` is a decorator, too; before numpy 2 threads share its state.
    """

    @functools.wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> T:
        with np.errstate(all="ignore"):
            return function(*args, **kwargs)

    return run
