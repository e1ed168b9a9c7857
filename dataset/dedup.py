# SPDX-License-Identifier: Apache-2.0
"""Removes modules with equal fingerprints."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from . import split


def distinct_splits(records: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """As `distinct`; also drops modules of the unseen split that are in another split.

    The other splits do not change, nor do their counts of copies.
    """
    parts: tuple[list[dict[str, Any]], ...] = ([], [])
    for record in records:
        parts[record["split"] == split.UNSEEN].append(record)
    seen = distinct(parts[0])
    known = {record["fingerprint"] for record in seen}
    unseen = distinct(parts[1])
    return [*seen, *(each for each in unseen if each["fingerprint"] not in known)]


def distinct(records: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Returns records of distinct fingerprints, sorted by source and name.

    Of equal modules the first in this order is kept, with their number as `num_copies`.
    A record that has `num_copies` counts as so many.
    """
    kept: dict[str, dict[str, Any]] = {}
    for record in sorted(records, key=lambda each: (each["source"], each["name"])):
        first = kept.setdefault(record["fingerprint"], {**record, "num_copies": 0})
        first["num_copies"] += record.get("num_copies", 1)
    return list(kept.values())
