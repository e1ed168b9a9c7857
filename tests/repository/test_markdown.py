# SPDX-License-Identifier: Apache-2.0
"""Tables in Markdown."""

from __future__ import annotations

import pytest

from hloenv._markdown import table


def test_the_first_column_is_text_and_a_bar_is_escaped():
    assert table(("name", "n", "s"), [("a|b", 1, "2.5")]) == [
        "| name | n | s |",
        "| --- | ---: | ---: |",
        "| a\\|b | 1 | 2.5 |",
    ]


def test_columns_may_be_of_another_kind():
    assert table(("n", "why"), [], "rl")[1] == "| ---: | --- |"


@pytest.mark.parametrize("row", [("a",), ("a", 1, 2)])
def test_a_row_of_another_length_is_an_error(row):
    with pytest.raises(ValueError, match="2 columns, but"):
        table(("name", "n"), [row])
