# SPDX-License-Identifier: Apache-2.0
"""--plot: the curve of a result as a picture."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from .._charts import SUFFIXES, Chart, check_path, draw
from .arguments import check_output


def add_plot(parser: argparse.ArgumentParser, what: str) -> None:
    """Adds --plot.

    Args:
        parser: of the command.
        what: is drawn, for the help.
    """
    parser.add_argument(
        "--plot",
        metavar="FILE",
        help=f"also draw {what}, as {', '.join(SUFFIXES)} (needs matplotlib)",
    )


def check_plot(path: str | None) -> None:
    """Checks, before the work, that the file of --plot can be written.

    Raises:
        ArgumentError: it has another suffix.
        OSError: its folder does not exist, or it is a folder.
        ImportError: matplotlib is missing.
    """
    if path is not None:
        check_path(path, "--plot")
        check_output(path)


def draw_plot(path: str, charts: Sequence[Chart], *, title: str) -> str:
    """Draws the charts; returns what to print about the file."""
    if draw(charts, path, title=title):
        return f"wrote {path}"
    return f"{path} is not written: nothing was estimated or measured"
