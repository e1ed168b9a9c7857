# SPDX-License-Identifier: Apache-2.0
"""Games of several decision points on one module."""

from __future__ import annotations

import numpy as np
import pytest

import hloenv
from hloenv.errors import LeftOutWarning
from hloenv.hlo.passes import Pass
from hloenv.rewrite.game import DecisionPoint, Game

# cse joins the sines; at fusion, the chain is one kernel.
TEXT = """HloModule m

ENTRY main {
  x = f32[1024]{0} parameter(0)
  y = f32[1024]{0} parameter(1)
  sin1 = f32[1024]{0} sine(x)
  sin2 = f32[1024]{0} sine(x)
  product = f32[1024]{0} multiply(sin1, sin2)
  sum = f32[1024]{0} add(product, y)
  ROOT out = f32[1024]{0} negate(sum)
}
"""
# XLA's algsimp slices a constant of three dimensions as if it had two.
BROKEN_BY_ALGSIMP = """HloModule m

ENTRY main {
  x = f32[4]{0} parameter(0)
  y = f32[1]{0} parameter(1)
  both = f32[5]{0} concatenate(x, y), dimensions={0}
  c = f32[5,2,1]{2,1,0} constant({{{1},{2}},{{3},{4}},{{5},{6}},{{7},{8}},{{9},{10}}})
  dot1 = f32[2,1]{1,0} dot(both, c), lhs_contracting_dims={0}, rhs_contracting_dims={0}
  dot2 = f32[2,1]{1,0} dot(both, c), lhs_contracting_dims={0}, rhs_contracting_dims={0}
  ROOT sum = f32[2,1]{1,0} add(dot1, dot2)
}
"""
CSE = DecisionPoint(("cse",), where="simplification", default="cse")
FUSION = DecisionPoint(("fusion", "general-fusion"), where="fusion", default="fusion")


@pytest.fixture
def game():
    """A game of two decision points."""
    return Game(TEXT, [CSE, FUSION])


def test_a_game_needs_decision_points():
    with pytest.raises(hloenv.ArgumentError, match="at least one DecisionPoint"):
        Game(TEXT, [])


def test_xlas_own_decisions_give_what_xla_gives(game):
    env = hloenv.HloEnv(TEXT)
    env.run_until("simplification")
    env.run("cse")
    env.run_until("fusion")
    env.run("fusion")
    assert game.play(game.complete()).fingerprint() == env.fingerprint()


def test_a_decision_point_without_a_default_leaves_all_to_xla():
    game = Game(TEXT, [DecisionPoint(("cse",))])
    assert (game.default() == -1).all()
    assert game.play(game.complete()).fingerprint() == game.module.fingerprint()


@pytest.mark.parametrize("cse", ["cse", Pass("cse")])
@pytest.mark.parametrize("default", ["", "cse"])
def test_a_pass_that_fails_on_the_module_is_left_out(cse, default):
    game = Game(BROKEN_BY_ALGSIMP, [DecisionPoint(("algsimp", cse), default=default)])
    with pytest.warns(LeftOutWarning, match="only cse .*algsimp"):
        assert game.alternatives().pass_names == ("cse",)
    assert len(game.alternatives()) == 1


def test_a_pass_that_fails_is_an_error_where_it_is_xlas_own_or_the_only_one():
    with pytest.raises(hloenv.PassError, match="algsimp"):
        Game(BROKEN_BY_ALGSIMP, [DecisionPoint(("algsimp",))]).alternatives()
    as_default = DecisionPoint(("algsimp", "cse"), default="algsimp")
    with pytest.raises(hloenv.PassError, match="algsimp"):
        Game(BROKEN_BY_ALGSIMP, [as_default]).alternatives()


def test_what_is_decided_changes_what_there_is_to_decide():
    stop = DecisionPoint(("cse",), default="cse")
    game = Game(TEXT, [stop, stop])
    joined, apart = np.array([1]), np.array([0])
    assert len(game.alternatives()) == 1
    assert len(game.alternatives((joined,))) == 0
    assert len(game.alternatives((apart,))) == 1
    assert game.alternatives((joined,)) is game.alternatives((joined.copy(),))
    (kept, later) = game.complete((apart,))
    np.testing.assert_array_equal(kept, apart)
    # What was rejected stays rejected: later runs of the pass do not make it either.
    np.testing.assert_array_equal(later, apart)
    finished = hloenv.finish(game.play((kept, later)))
    undecided = hloenv.finish(game.play((kept, np.array([-1]))))
    assert finished.fingerprint() == undecided.fingerprint()


def test_decisions_are_carried_to_the_same_sites(game):
    apart, joined = np.array([0]), np.array([1])
    there, here = game.alternatives((apart,)), game.alternatives((joined,))
    own = game.default((joined,))
    num_carried = 0
    for index in range(len(there)):
        decisions = there.reject_all()
        decisions[index] = there.num_choices[index] - 1
        first, carried = game.carry((apart, decisions), (joined,))
        assert first is joined
        for each, choice in zip(here, carried.tolist(), strict=True):
            before = [other for other in there if other.sites == each.sites]
            if not before:
                assert choice == own[each.index]
                continue
            wanted = before[0].choices[int(decisions[before[0].index])]
            taken = each.choices[choice]
            is_like = (taken.passes, taken.opcode) == (wanted.passes, wanted.opcode)
            assert is_like or choice == own[each.index]
            num_carried += is_like and choice > 0
        game.play((first, carried)).verify()
    assert num_carried > 0


def test_equal_prefixes_share_captures(game):
    decided = game.complete((np.array([0]),))
    decided[1][:] = 0
    carried = game.carry(decided, decided[:1])
    np.testing.assert_array_equal(carried[1], 0)
    carried[1][0] = 1  # a copy
    assert not decided[1].any()


def test_canonical_decisions_drop_irrelevant_decisions(game):
    default = game.complete()
    alternatives = game.alternatives(default[:1])
    idle = np.flatnonzero(~alternatives.relevant(default[1]))
    assert idle.size
    changed = default[1].copy()
    changed[idle] = alternatives.num_choices[idle] - 1
    other = game.canonical((default[0], changed))
    for one, two in zip(game.canonical(default), other, strict=True):
        np.testing.assert_array_equal(one, two)
    same = game.play(other).fingerprint()
    assert same == game.play((default[0], changed)).fingerprint()
    assert same == game.play(default).fingerprint()


def test_only_as_much_as_there_is_can_be_decided(game):
    complete = game.complete()
    with pytest.raises(hloenv.ArgumentError, match="fewer than all 2"):
        game.alternatives(complete)
    with pytest.raises(hloenv.ArgumentError, match="must have them for all 2"):
        game.play(complete[:1])


def test_an_episode_is_the_same_game_with_a_trace(game):
    decided = game.complete((np.array([0]),))
    env = game.episode(decided)
    assert env.fingerprint() == game.play(decided).fingerprint()
    again = hloenv.replay(env.trace, game.module)
    assert again.fingerprint() == env.fingerprint()


def test_a_game_of_what_was_captured():
    env = hloenv.HloEnv(TEXT)
    env.run_until("fusion")
    alternatives = env.get_alternatives("general-fusion", "fusion")
    game = Game.of(alternatives)
    assert game.alternatives() is alternatives
    np.testing.assert_array_equal(game.default(), alternatives.decisions_for("fusion"))
    native = hloenv.HloEnv(env.module)
    native.run("fusion")
    assert game.play(game.complete()).fingerprint() == native.fingerprint()
    assert game.module.fingerprint() == env.fingerprint()
    with pytest.raises(hloenv.ArgumentError, match=r"Game\.of"):
        game.episode(game.complete())


def test_games_remember_the_latest_positions_only(monkeypatch):
    monkeypatch.setattr("hloenv.rewrite.game._KEPT", 2)
    game = Game(TEXT, [CSE, FUSION])
    first = game.alternatives((np.array([0]),))
    game.alternatives((np.array([1]),))
    assert len(game._positions) == 2
    again = game.alternatives((np.array([0]),))
    assert len(again) == len(first)
    given = Game.of(hloenv.HloEnv(TEXT).get_alternatives("cse"))
    assert given.default().tolist() == [1]


def test_a_decision_point_without_alternatives():
    game = Game(TEXT, [DecisionPoint(("batchnorm_expander",)), CSE])
    assert [len(each) for each in game.complete()] == [0, 1]
    empty = np.zeros(0, np.int64)
    assert game.carry((empty, np.array([0])), (empty,))[1].tolist() == [0]


# algsimp removes both; each identity is the same wherever the pass runs.
NEUTRAL = """HloModule neutral

ENTRY main {
  x = f32[64]{0} parameter(0)
  y = f32[64]{0} parameter(1)
  zero = f32[] constant(0)
  zeros = f32[64]{0} broadcast(zero), dimensions={}
  sum = f32[64]{0} add(x, zeros)
  one = f32[] constant(1)
  ones = f32[64]{0} broadcast(one), dimensions={}
  product = f32[64]{0} multiply(y, ones)
  ROOT out = f32[64]{0} maximum(sum, product)
}
"""


@pytest.mark.parametrize("rejected", ["sum", "product"])
def test_xlas_own_decisions_keep_what_was_rejected_before(rejected):
    raw = DecisionPoint(("algsimp",))
    later = DecisionPoint(("algsimp",), where="simplification", default="algsimp")
    game = Game(NEUTRAL, [raw, later])
    first = game.alternatives()
    decisions = first.leave_to_xla()
    (index,) = (each.index for each in first if each.original == rejected)
    decisions[index] = 0
    prefix = (decisions,)
    second = game.alternatives(prefix)
    # The pass alone would make both.
    assert (second.decisions_for("algsimp") > 0).all()
    own = game.default(prefix)
    assert [each.original for each in second if own[each.index] == 0] == [rejected]
    assert np.array_equal(second.unrejected_decisions_for("algsimp"), own)
    undecided = game.play((decisions, second.leave_to_xla()))
    decided = game.play(game.complete(prefix))
    assert rejected in decided.to_text()
    finished = hloenv.finish(decided).fingerprint()
    assert finished == hloenv.finish(undecided).fingerprint()


def test_xlas_decisions_are_those_of_the_pass_that_it_runs_next():
    env = hloenv.HloEnv(NEUTRAL)
    raw = env.get_alternatives("algsimp")
    assert set(raw.xla_decisions()) == {-1}
    env.run_until("simplification")
    here = env.get_alternatives("algsimp", "convolution-forms")
    assert np.array_equal(here.xla_decisions(), here.decisions_for("algsimp"))
    elsewhere = hloenv.HloEnv(TEXT)
    elsewhere.run_until("topk-decomposer")
    (undecided,) = elsewhere.get_alternatives("cse").xla_decisions()
    assert undecided == -1
