# SPDX-License-Identifier: Apache-2.0
"""Numbers on the command line: counts, durations, sizes."""

from __future__ import annotations

import argparse
import contextlib
import functools
import math

from ..errors import ArgumentError
from ..process.child import check_memory


def add_count(
    parser: argparse.ArgumentParser,
    name: str,
    text: str,
    default: int | None = None,
    *,
    least: int = 1,
    metavar: str = "N",
) -> None:
    """Adds an option that takes an integer.

    Args:
        parser: of the command.
        name: of the option.
        text: the help, to which the default is added.
        default: None for none.
        least: the smallest integer that it takes.
        metavar: its name in the help.
    """
    shown = "" if default is None else f" (default {default})"
    parser.add_argument(
        name,
        metavar=metavar,
        type=functools.partial(_int_of_at_least, least),
        default=default,
        help=text + shown,
    )


def _int_of_at_least(least: int, text: str) -> int:
    with contextlib.suppress(ValueError):
        if (value := int(text)) >= least:
            return value
    raise argparse.ArgumentTypeError(f"must be an integer >= {least}, got {text!r}")


def above_zero(text: str) -> float:
    """A finite number > 0, for argparse."""
    with contextlib.suppress(ValueError):
        value = float(text)
        if 0 < value < math.inf:
            return value
    raise argparse.ArgumentTypeError(f"must be a number > 0, got {text!r}")


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
