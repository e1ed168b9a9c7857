# SPDX-License-Identifier: Apache-2.0
"""Maps as data, and rewrites of many programs by rule."""

from __future__ import annotations

import json
import math

import pytest

from hloenv.rewrite_map import ProgramMap, RewriteRow
from hloenv.rewrite_map.aggregate import aggregate
from support.rewrites import row


def program(name: str, *rows: RewriteRow, repository: str = "r") -> ProgramMap:
    return ProgramMap(name, repository, reference_s=1.0, rows=list(rows))


def test_a_map_survives_json():
    found = program("p", row("1", 0.5, stopped=("cse",), measured=0.4), row("2", 1.0))
    text = json.dumps(found.to_json())
    assert "NaN" not in text
    again = ProgramMap.from_json(json.loads(text))
    assert again.rows[0].stopped == ("cse",)
    assert again.rows[0].measured == 0.4
    assert math.isnan(again.rows[1].measured)
    assert json.dumps(again.to_json()) == text


def test_costly_rows_are_those_above_the_threshold_the_worst_first():
    found = program(
        "p", row("1", 0.99), row("2", 0.5), row("3", 0.2), row("4", 3.0), row("5", 0.5)
    )
    found.rows[4].measured = 1.0  # the estimate was wrong
    assert [each.identity for each in found.costly(0.03)] == ["3", "2"]
    assert [each.identity for each in found.costly(0.005)] == ["3", "2", "1"]


def test_an_interval_around_one_says_nothing():
    sure = row("1", 0.5, measured=0.6, low=0.5, high=0.7)
    unsure = row("2", 0.5, measured=0.6, low=0.3, high=1.1)
    faster = row("3", 0.5, measured=1.6, low=1.2, high=1.9)
    found = program("p", sure, unsure, faster)
    assert found.costly(0.03) == [sure]
    assert found.paying(0.03) == [faster]


def test_rules_of_several_programs():
    maps = [
        program("p", row("1", 0.5, count=3), row("2", 0.9), repository="r"),
        program("q", row("1", 2.0), row("9", math.nan), repository="r"),
        program("s", row("3", 8.0), repository="other"),
        program("t", row("4", 1.5, rule="c -> d"), repository="other"),
    ]
    first, second = aggregate(maps)
    assert (first.rule, second.rule) == ("c -> d", "a -> b")
    assert second.worth == pytest.approx((0.5 * 2 * 8) ** (1 / 3))
    assert second.num_programs == 3
    assert second.num_repositories == 2
    assert second.num_rewrites == 6
    assert second.worst.row.worth == 0.5
    assert second.best.program.program == "s"
