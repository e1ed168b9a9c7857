# SPDX-License-Identifier: Apache-2.0
"""The learning curve of a run: a row for each evaluation, as CSV."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .._files import replacing
from ..errors import ArgumentError

CURVE = "curve.csv"


def write_curve(folder: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Writes the curve of the run in a folder.

    Args:
        folder: of the run.
        rows: at least one, with the columns of the last, `step` and `seconds` among
            them; those of an earlier version may lack some.
    """
    with (
        replacing(folder / CURVE) as draft,
        draft.open("w", newline="", encoding="utf-8") as file,
    ):
        writer = csv.DictWriter(file, rows[-1])
        writer.writeheader()
        writer.writerows(rows)


def read_curve(path: Path) -> list[dict[str, str]]:
    """The rows of a curve.

    Args:
        path: of the file.

    Raises:
        ArgumentError: the file is no curve.
        FileNotFoundError: there is no such file.
    """
    with path.open(newline="", encoding="utf-8", errors="replace") as file:
        reader = csv.DictReader(file)
        rows = [dict(each) for each in reader]
    try:
        if reader.fieldnames:
            (reader.fieldnames.index("step"), reader.fieldnames.index("seconds"))
        for row in rows:
            for key in ("step", "seconds"):
                float(row[key])
    except (KeyError, TypeError, ValueError):
        raise ArgumentError(
            f"{path} is not the curve of a run of hloenv train: each row must have "
            "numbers in the columns step and seconds"
        ) from None
    return rows
