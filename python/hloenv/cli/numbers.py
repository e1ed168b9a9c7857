# SPDX-License-Identifier: Apache-2.0
"""Numbers on the command line: counts, durations, sizes."""

from __future__ import annotations

import argparse
import contextlib
import functools

from ..errors import ArgumentError
from ..process.child import check_memory
from .output import shortened

# Rounds of a measurement: more than end in a year.
MAX_REPEATS = 1_000_000_000
_MAX_COUNT = 2**63 - 1
_MAX_NUMBER = 1e9


def add_count(
    parser: argparse.ArgumentParser,
    name: str,
    text: str,
    default: int | None = None,
    *,
    least: int = 1,
    most: int = _MAX_COUNT,
    metavar: str = "N",
) -> None:
    """Adds an option that takes an integer.

    Args:
        parser: of the command.
        name: of the option.
        text: the help, to which the default is added.
        default: None for none.
        least: the smallest integer that it takes.
        most: the largest.
        metavar: its name in the help.
    """
    shown = "" if default is None else f" (default {default})"
    parser.add_argument(
        name,
        metavar=metavar,
        type=functools.partial(_int_between, least, most),
        default=default,
        help=text + shown,
    )


def _int_between(least: int, most: int, text: str) -> int:
    is_small = True
    with contextlib.suppress(ValueError):
        value = int(text)
        if least <= value <= most:
            return value
        is_small = value < least
    allowed = f">= {least}" if is_small and most == _MAX_COUNT else f"{least} to {most}"
    raise argparse.ArgumentTypeError(
        f"must be an integer {allowed}, got {shortened(text)!r}"
    )


def above_zero(text: str) -> float:
    """A number > 0 that the system can wait in seconds, for argparse."""
    with contextlib.suppress(ValueError):
        value = float(text)
        if 0 < value <= _MAX_NUMBER:
            return value
    raise argparse.ArgumentTypeError(
        f"must be a number > 0, got {text!r}; the largest is {_MAX_NUMBER:g}"
    )


def share(text: str) -> float:
    """A number from 0 to 1, for argparse."""
    with contextlib.suppress(ValueError):
        value = float(text)
        if 0 <= value <= 1:
            return value
    raise argparse.ArgumentTypeError(f"must be a number from 0 to 1, got {text!r}")


def size_bytes(text: str) -> int:
    """A size of memory that a process can work in, such as 4G, for argparse."""
    scale = {"K": 2**10, "M": 2**20, "G": 2**30}.get(text[-1:].upper(), 1)
    with contextlib.suppress(ValueError):
        value = float(text if scale == 1 else text[:-1]) * scale
        if 1 <= value < 2**62:
            try:
                check_memory(int(value))
            except ArgumentError as error:
                raise argparse.ArgumentTypeError(str(error)) from None
            return int(value)
    raise argparse.ArgumentTypeError(
        f"must be a size, such as 500M, 4G or a number of bytes, got {text!r}"
    )
