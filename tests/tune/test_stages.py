# SPDX-License-Identifier: Apache-2.0
"""The stages and their relations."""

from __future__ import annotations

import itertools

import pytest

from hloenv.errors import ArgumentError
from hloenv.tune import stages
from hloenv.tune.decisions import DECISIONS

NAMES = stages.stage_names()


def test_a_relation_does_not_depend_on_the_order():
    for one, other in itertools.combinations(NAMES, 2):
        assert stages.relation(one, other) == stages.relation(other, one)


def test_what_is_not_separable_has_a_reason():
    for one, other in itertools.combinations(NAMES, 2):
        is_separable = stages.relation(one, other) == "separable"
        assert (stages.reason(one, other) == "") == is_separable


def test_every_stage_decides_something():
    assert {each.stage for each in DECISIONS} == set(NAMES)


def test_a_joint_stage_is_reopened_in_both_directions():
    assert "fusion" in stages.reopened_by("simplify", NAMES)
    assert "simplify" in stages.reopened_by("fusion", NAMES)


def test_a_sequential_stage_is_reopened_by_earlier_ones_only():
    assert "schedule" in stages.reopened_by("fusion", NAMES)
    assert "fusion" not in stages.reopened_by("schedule", NAMES)


def test_a_separable_stage_is_not_reopened():
    assert stages.relation("schedule", "codegen") == "separable"
    assert "codegen" not in stages.reopened_by("schedule", NAMES)


def test_only_the_stages_that_are_tuned_are_reopened():
    assert stages.reopened_by("simplify", ("forms",)) == ("forms",)


def test_stages_are_ordered():
    assert stages.check_stages(["codegen", "forms"]) == ("forms", "codegen")


@pytest.mark.parametrize("names", [[], ["forms", "nothing"]])
def test_a_wrong_stage_is_an_error(names):
    with pytest.raises(ArgumentError):
        stages.check_stages(names)
