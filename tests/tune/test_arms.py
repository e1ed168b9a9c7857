# SPDX-License-Identifier: Apache-2.0
"""What proposes configurations, and the bandit that chooses among them."""

from __future__ import annotations

import math

import pytest

from hloenv.tune.arms import Bandit, JointArm, NearArm, RulesArm, StageArm
from hloenv.tune.space import Configuration, Space

PLAIN = Configuration()


def everything(arm, best=PLAIN):
    """All proposals of an arm."""
    seen = {PLAIN}
    found = []
    while (proposal := arm.ask(best, seen.__contains__)) is not None:
        seen.add(proposal)
        found.append(proposal)
        arm.tell(proposal, 0.0)
        assert len(found) < 1000
    return found


def test_a_stage_proposes_one_change_then_two():
    found = everything(StageArm(Space(), "tiles"))
    assert [each.text for each in found] == [
        "dot-tile=2",
        "dot-tile=4",
        "dot-tile=16",
        "tiled-emitter=off",
        "dot-tile=2, tiled-emitter=off",
        "dot-tile=4, tiled-emitter=off",
        "dot-tile=16, tiled-emitter=off",
    ]


def test_a_stage_changes_the_best():
    best = Configuration((("forms", "known"),))
    assert all(
        each.of("forms") == "known"
        for each in everything(StageArm(Space(), "tiles"), best)
    )


def test_an_engine_is_tried_with_each_choice_that_only_it_has():
    alone = [each.text for each in everything(StageArm(Space(), "engine"))]
    assert alone == ["engine=wheel-passes", "engine=wheel"]
    arm = StageArm(Space(), "engine", is_joint=True)
    found = [each.text for each in everything(arm)]
    assert found.index("engine=wheel") < found.index("engine=wheel, fusion=by-bytes")
    assert "engine=wheel-passes, layout=estimated" in found
    assert not any("forms=" in each for each in found)


def test_a_stage_without_decisions_for_the_engine_proposes_nothing():
    assert everything(StageArm(Space(), "layout")) == []


def test_the_nearest_come_first_if_the_space_has_them():
    near = [
        Configuration((("vectors", "1024"),)),
        Configuration((("vectors", "512"),)),
        Configuration((("math", "fast"),)),
        Configuration((("forms", "known"), ("llvm", "1"))),
    ]
    only_kernels = Configuration((("forms", "known"),))
    assert everything(NearArm(Space(), near)) == [near[1], near[3], only_kernels]


@pytest.mark.needs("optuna")
def test_the_joint_arm_proposes_what_is_not_known():
    space = Space(["tiles"])
    found = everything(JointArm(space, seed=0))
    assert len(set(found)) == len(found) == 7


@pytest.mark.needs("optuna")
def test_the_joint_arm_learns_from_results():
    space = Space(["forms", "tiles", "codegen"])
    arm, seen, good = JointArm(space, seed=0), {PLAIN}, []
    for _ in range(40):
        found = arm.ask(PLAIN, seen.__contains__)
        seen.add(found)
        is_good = found.of("vectors") == "512"
        good.append(is_good)
        arm.tell(found, 0.5 if is_good else -0.5)
    assert sum(good) > 1.3 * len(good) / 3  # one of three choices


@pytest.mark.needs("optuna")
def test_the_same_seed_proposes_the_same():
    one, other = (
        [JointArm(Space(), seed=3).ask(PLAIN, {PLAIN}.__contains__)] for _ in range(2)
    )
    assert one == other


def test_every_arm_is_tried_first():
    bandit = Bandit(["a", "b", "c"])
    for name in ("a", "b", "c"):
        assert bandit.choose(["a", "b", "c"]) == name
        bandit.reward(name, 0.0, 1.0)


def test_a_batch_asks_each_arm_once_at_first():
    bandit = Bandit(["a", "b", "c"])
    assert [bandit.choose(["a", "b", "c"]) for _ in range(3)] == ["a", "b", "c"]
    assert bandit.choose(["b", "c"]) == "b"  # nothing is known of any
    bandit.reward("b", 0.1, 1.0)
    assert bandit.choose(["a", "b", "c"]) == "b"
    bandit.reward("a", 0.5, 1.0)
    assert bandit.choose(["a", "b", "c"]) == "a"
    # The first ask of "c" has no result yet; where it had no proposal, it is next.
    assert bandit.choose(["a", "b", "c"]) != "c"
    bandit.passed("c")
    assert bandit.choose(["a", "b", "c"]) == "c"


def test_the_arm_with_gains_is_chosen_more_often():
    bandit = Bandit(["a", "b", "c"])
    counts = dict.fromkeys("abc", 0)
    for _ in range(60):
        name = bandit.choose(list("abc"))
        counts[name] += 1
        bandit.reward(name, 0.2 if name == "b" else 0.0, 1.0)
    assert counts["b"] > 2 * max(counts["a"], counts["c"])
    assert min(counts.values()) >= 2


def test_an_arm_that_runs_dry_is_left():
    bandit = Bandit(["a", "b"])
    for step in range(40):
        name = bandit.choose(["a", "b"])
        bandit.reward(name, 0.5 if (name == "a") == (step < 10) else 0.0, 1.0)
    last = []
    for _ in range(10):
        last.append(bandit.choose(["a", "b"]))
        bandit.reward(last[-1], 0.5 if last[-1] == "b" else 0.0, 1.0)
    assert last.count("b") > 5


def test_slow_measurements_lower_the_value_of_an_arm():
    bandit = Bandit(["slow", "fast"])
    counts = dict.fromkeys(("slow", "fast"), 0)
    for _ in range(40):
        name = bandit.choose(["slow", "fast"])
        counts[name] += 1
        bandit.reward(name, 0.1, 10.0 if name == "slow" else 1.0)
    assert counts["fast"] > counts["slow"]


def test_a_failure_is_no_gain():
    bandit = Bandit(["a", "b"])
    bandit.reward("a", -math.inf, 1.0)
    assert bandit.choose(["a", "b"]) == "b"


def test_what_rules_would_do_comes_first_and_once():
    arm = RulesArm(Space())
    known: set[Configuration] = set()
    found = []
    while (proposal := arm.ask(Configuration(), known.__contains__)) is not None:
        known.add(proposal)
        found.append(proposal.text)
    assert found[:2] == ["forms=known", "calls=onednn, forms=known"]
    assert "loops=single-kernel" in found
    assert any(each.startswith("engine=wheel, forms=known, small-") for each in found)
    assert len(found) == len(set(found)) == 7
    assert (
        RulesArm(Space(("codegen",))).ask(Configuration(), known.__contains__) is None
    )
    exact = RulesArm(Space(numerics="exact"))
    assert exact.ask(Configuration(), known.__contains__) is None


def test_what_the_library_is_slow_at_comes_first():
    arm = RulesArm(Space(), library="no-reductions")
    found = arm.ask(Configuration(), set[Configuration]().__contains__)
    assert found is not None
    assert found.text == "forms=known, library=no-reductions"


def test_rules_are_left_out_one_by_one():
    space = Space(rules=["dot-forms/swapped", "sort-forms/packed"])
    arm = StageArm(space, "forms", is_joint=True)
    found = [each.text for each in everything(arm)]
    assert found.index("forms=known") < found.index(
        "dot-forms/swapped=left, forms=known"
    )
    # With nothing decided, leaving a rule to XLA changes nothing.
    assert not any("=left" in each and "forms=" not in each for each in found)
    best = Configuration((("forms", "known"),))
    around = [each.text for each in everything(arm, best)]
    assert "dot-forms/swapped=left, forms=known" in around
    assert "dot-forms/swapped=left, forms=known, sort-forms/packed=left" in around


def test_what_was_near_drops_rules_that_do_not_apply():
    near = Configuration((("dot-forms/swapped", "left"), ("forms", "known")))
    assert everything(NearArm(Space(rules=["dot-forms/swapped"]), [near])) == [near]
    assert everything(NearArm(Space(), [near])) == [
        Configuration((("forms", "known"),))
    ]
