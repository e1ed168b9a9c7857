# SPDX-License-Identifier: Apache-2.0
"""Tables in Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def table(
    columns: Sequence[str], rows: Iterable[Iterable[object]], align: str = ""
) -> list[str]:
    """The lines of a table.

    Args:
        columns: names.
        rows: of each row, one cell for each column; "|" in a cell is escaped.
        align: a letter for each column, "l" for text and "r" for numbers. By default
            the first column holds text and all others hold numbers.

    Raises:
        ValueError: `align` or a row has another length than `columns`.
    """
    align = align or "l" + "r" * (len(columns) - 1)
    lines = [columns, ["---:" if each == "r" else "---" for each in align]]
    lines += [[str(cell).replace("|", "\\|") for cell in row] for row in rows]
    if wrong := [line for line in lines if len(line) != len(columns)]:
        raise ValueError(f"{len(columns)} columns, but {wrong[0]}")
    return [f"| {' | '.join(line)} |" for line in lines]
