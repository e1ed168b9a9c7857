# SPDX-License-Identifier: Apache-2.0
"""The policy avoid-costly, and the table of rules behind it."""

from __future__ import annotations

from typing import Any

import hloenv
from hloenv.policies import get_policy
from hloenv.policies.avoid_costly import AvoidCostly
from hloenv.rewrite_map import ProgramMap
from hloenv.rewrite_map.aggregate import aggregate
from hloenv.rewrite_map.known import (
    KnownRule,
    known_rules,
    rules_that_cost,
    write_known,
)
from support.convolutions import one_convolution
from support.modules import TWO_REWRITES
from support.rewrites import SMALL_IMAGE, TWO_LAYERS, row

SWAP = "algsimp", "convolution -> reverse, convolution"
LARGE = "convolution with a kernel larger than the image, f32, above 1 M"
SMALL = "convolution with a kernel larger than the image, f32, to 1 M"


def alternatives_of(text: str):
    env = hloenv.HloEnv(hloenv.HloModule.from_text(text))
    return env.get_alternatives("algsimp")


def test_known_rewrites_are_rejected():
    policy = AvoidCostly([(*SWAP, LARGE)])
    assert policy(alternatives_of(SMALL_IMAGE)).tolist() == [0]
    # Of another class, and another rule.
    assert policy(alternatives_of(TWO_LAYERS)).tolist() == [-1, -1]
    assert policy(alternatives_of(TWO_REWRITES)).tolist() == [-1]


def test_other_passes_stay_undecided():
    policy = AvoidCostly([("fusion", SWAP[1], LARGE)])
    assert policy(alternatives_of(SMALL_IMAGE)).tolist() == [-1]


def test_the_shipped_table_has_the_convolution():
    assert (*SWAP, LARGE) in known_rules()
    assert get_policy("avoid-costly")(alternatives_of(SMALL_IMAGE)).tolist() == [0]


def test_a_depthwise_convolution_with_features_first_is_not_transposed():
    module = hloenv.HloModule.from_text(
        one_convolution(
            *("1,240,28,28", "240,1,5,5", "1,240,28,28"),
            "window={size=5x5 pad=2_2x2_2}, dim_labels=bf01_oi01->bf01, "
            "feature_group_count=240",
        )
    )
    alternatives = hloenv.HloEnv(module).get_alternatives(
        "convolution-canonicalization"
    )
    decided = alternatives.apply(get_policy("avoid-costly")(alternatives), partial=True)
    assert "transpose" in hloenv.finish(module).opcode_counts()
    assert "transpose" not in hloenv.finish(decided).opcode_counts()


def programs(*measured: float) -> list[ProgramMap]:
    """One program for each worth, whose intervals are narrow."""
    return [
        ProgramMap(
            f"p{number}",
            rows=[row("1", worth, measured=worth, low=worth - 0.01, high=worth + 0.01)],
        )
        for number, worth in enumerate(measured)
    ]


def test_only_rules_that_cost_everywhere_are_in_the_table(tmp_path):
    (found,) = rules_that_cost(aggregate(programs(0.5, 0.7)))
    assert found.num_programs == 2
    assert not rules_that_cost(aggregate(programs(0.5, 1.2)))  # pays in one
    assert not rules_that_cost(aggregate(programs(0.95, 0.96)))  # too little
    assert not rules_that_cost(aggregate(programs(0.5)))  # of one program
    unmeasured = ProgramMap("p", rows=[row("1", 0.3)])
    assert not rules_that_cost(aggregate([unmeasured]))
    assert len(rules_that_cost(aggregate([unmeasured, *programs(0.5)]))) == 1
    path = tmp_path / "table.py"
    path.write_text("RULES: tuple[tuple[str, str, str, float, int], ...] = ()\n")
    write_known([found], path)
    space: dict[str, Any] = {}
    exec(path.read_text(), space)
    assert [KnownRule(*each).key for each in space["RULES"]] == [found.key]
