# SPDX-License-Identifier: Apache-2.0
"""One module of each fingerprint."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from . import split


def distinct_splits(records: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """As `distinct`; a module of the unseen split that is in another one goes.

    It changes nothing in the other splits, not even a count of copies.
    """
    parts: tuple[list[dict[str, Any]], ...] = ([], [])
    for record in records:
        parts[record["split"] == split.UNSEEN].append(record)
    seen = distinct(parts[0])
    known = {record["fingerprint"] for record in seen}
    unseen = distinct(parts[1])
    return [*seen, *(each for each in unseen if each["fingerprint"] not in known)]


def distinct(records: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Records of distinct fingerprints, sorted by source and name.

    Of equal modules the first one in this order stays, whatever order they come in;
    its `num_copies` says how many there were. A record that has `num_copies` already
    counts as so many.
    """
    kept: dict[str, dict[str, Any]] = {}
    for record in sorted(records, key=lambda each: (each["source"], each["name"])):
        first = kept.setdefault(record["fingerprint"], {**record, "num_copies": 0})
        first["num_copies"] += record.get("num_copies", 1)
    return list(kept.values())
