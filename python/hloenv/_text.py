# SPDX-License-Identifier: Apache-2.0
"""Text of messages."""

from __future__ import annotations


def shortened(text: str, most: int) -> str:
    """A text in one line of `most` characters at most, cut between words if it can be.

    Args:
        text: with any white space, which becomes single spaces.
        most: characters, of which " ..." takes four.
    """
    line = " ".join(text.split())
    if len(line) <= most:
        return line
    cut = line[: most - 4]
    words, _, _ = cut.rpartition(" ")
    return f"{words if len(words) > most // 2 else cut} ..."
