# SPDX-License-Identifier: Apache-2.0
"""Every search finds a planted optimum, deterministically, and can be resumed."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

import hloenv
from hloenv import search
from hloenv.rewrite.game import DecisionPoint, Game
from hloenv.search import beam, get_search, starting_points
from hloenv.search.spaces import SPACES, get_space
from support.rewrites import SMALL_IMAGE

# Independent places where algsimp and cse have something to do, eight of each.
_COUNT = 8
_LINES = [
    f"""  x{i} = f32[{64 + i}]{{0}} parameter({i})
  zero{i} = f32[] constant(0)
  zeros{i} = f32[{64 + i}]{{0}} broadcast(zero{i}), dimensions={{}}
  sum{i} = f32[{64 + i}]{{0}} add(x{i}, zeros{i})
  sine{i} = f32[{64 + i}]{{0}} sine(sum{i})
  again{i} = f32[{64 + i}]{{0}} sine(sum{i})
  out{i} = f32[{64 + i}]{{0}} divide(sine{i}, again{i})"""
    for i in range(_COUNT)
]
TEXT = (
    "HloModule planted\n\nENTRY main {\n"
    + "\n".join(_LINES)
    + "\n  ROOT out = ("
    + ", ".join(f"f32[{64 + i}]{{0}}" for i in range(_COUNT))
    + ") tuple("
    + ", ".join(f"out{i}" for i in range(_COUNT))
    + ")\n}\n"
)
# One stop, and two of which the second depends on the first.
STOPS = {
    "one": [DecisionPoint(("algsimp", "cse"), default="algsimp")],
    "two": [
        DecisionPoint(("algsimp",), default="algsimp"),
        DecisionPoint(("cse",), default="cse"),
    ],
}
NAMES = [*search.list_searches(), "optuna:tpe", "optuna:cmaes", "optuna:random"]
needs_optuna = pytest.mark.needs("optuna", "cmaes")
every_search = pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=needs_optuna if name.startswith("optuna") else ())
        for name in NAMES
    ],
)


def planted(game):
    """A time for each complete prefix: the rewrites wanted are every other one's.

    No rule knows which: what is wanted depends on where a rewrite stands.
    """

    def seconds(prefix):
        total = 1.0
        for stop, decisions in enumerate(game.canonical(prefix)):
            alternatives = game.alternatives(prefix[:stop])
            for each, choice in zip(alternatives, decisions.tolist(), strict=True):
                number = int(each.original.lstrip("abcdefghijklmnopqrstuvwxyz")[:1])
                total += 0.1 * ((choice > 0) != (number % 2 == stop % 2))
        return total

    return seconds


def run(search, seconds, asks):
    while len(search.history) < asks and (prefix := search.ask()) is not None:
        search.tell(prefix, seconds(prefix))
    return search


def same(one, other):
    return len(one) == len(other) and all(
        a[1] == b[1] and all(map(np.array_equal, a[0], b[0]))
        for a, b in zip(one, other, strict=True)
    )


def test_registry():
    names = search.list_searches()
    assert names == ("anneal", "beam", "evolve", "hill-climb", "mcts", "random")
    assert search.list_searches(families=True) == (
        "optuna:SAMPLER",
        "policy:NAME",
    )
    for name in (*names, "optuna:tpe"):
        assert search.describe_search(name).summary
    with pytest.raises(search.UnknownSearchError, match="Did you mean 'evolve'"):
        get_search("evolv", Game(TEXT, STOPS["one"]))


def test_initial_points_differ_and_begin_with_xlas_own():
    game = Game(TEXT, STOPS["two"])
    points = starting_points(game)
    for ours, own in zip(points[0], game.complete(), strict=True):
        np.testing.assert_array_equal(ours, own)
    keys = {tuple(each.tobytes() for each in game.canonical(point)) for point in points}
    assert len(keys) == len(points) >= 2
    assert any(not any(each.any() for each in point) for point in points)
    # Rules at one stop alone, the other as XLA has it.
    first, _ = points[0]
    early = [each for each in points if not np.array_equal(each[0], first)]
    assert early
    assert any(np.array_equal(each[1], game.default(each[:1])) for each in early)


def test_initial_points_leave_out_inadmissible_choices(monkeypatch):
    game = Game(
        TEXT, [DecisionPoint(("algsimp",)), DecisionPoint(("cse",), default="cse")]
    )
    usual, first = Game.alternatives, game.default()

    def refusing(self, prefix=()):
        if prefix and (prefix[0] != first).any():
            raise hloenv.PassError("XLA cannot follow this")
        return usual(self, prefix)

    monkeypatch.setattr(Game, "alternatives", refusing)
    points = starting_points(game)
    assert len(points) >= 2
    assert all((each[0] == first).all() for each in points)


@every_search
@pytest.mark.parametrize("stops", STOPS)
def test_each_beats_its_initial_points(name, stops):
    game = Game(TEXT, STOPS[stops])
    seconds = planted(game)
    search = run(get_search(name, game, seed=0), seconds, 150)
    best_start = min(seconds(each) for each in starting_points(game))
    assert search.best[1] < best_start
    assert search.best[1] == seconds(search.best[0]) == min(search.curve)
    assert (
        search.curve == np.minimum.accumulate([s for _, s in search.history]).tolist()
    )


@pytest.mark.parametrize("name", ["hill-climb", "anneal", "beam", "evolve"])
def test_local_searches_find_the_optimum(name):
    game = Game(TEXT, STOPS["one"])
    alternatives = game.alternatives()
    wanted = np.random.default_rng(7).integers(0, alternatives.num_choices)
    (target,) = game.canonical((wanted,))

    def seconds(prefix):
        return 1.0 + (game.canonical(prefix)[0] != target).sum()

    search = run(get_search(name, game, seed=1), seconds, 400)
    assert search.best[1] == 1.0
    assert len(search.history) > 20


@every_search
def test_each_is_deterministic_and_resumable(name):
    game = Game(TEXT, STOPS["two"])
    seconds = planted(game)
    whole = run(get_search(name, game, seed=4), seconds, 60)
    again = run(get_search(name, game, seed=4), seconds, 60)
    assert same(whole.history, again.history)
    first = run(get_search(name, game, seed=4), seconds, 23)
    state = json.loads(json.dumps(first.state_dict(), allow_nan=False))
    # Another process has another game, with nothing captured.
    resumed = get_search(name, Game(TEXT, STOPS["two"]), seed=4)
    resumed.load_state_dict(state)
    assert same(resumed.history, first.history)
    assert same([resumed.best], [first.best])
    run(resumed, seconds, 60)
    assert same(resumed.history, whole.history)
    if name != "mcts":  # with blocks of one decision there is nothing to draw
        other = run(get_search(name, game, seed=5), seconds, 60)
        assert not same(other.history, whole.history)


@every_search
def test_no_candidate_is_proposed_twice(name):
    game = Game(TEXT, STOPS["one"])
    search = run(get_search(name, game, seed=2), planted(game), 100)
    keys = {
        tuple(each.tobytes() for each in game.canonical(prefix))
        for prefix, _ in search.history
    }
    assert len(keys) == len(search.history)


@every_search
def test_a_failure_is_never_the_best(name):
    game = Game(TEXT, STOPS["one"])
    plain = planted(game)

    def seconds(prefix):
        value = plain(prefix)
        # Most fail, one way or the other, the start among them.
        return value if value < 2.05 else (math.nan if value > 2.15 else math.inf)

    search = run(get_search(name, game, seed=0), seconds, 120)
    assert all(not math.isnan(each) for _, each in search.history)
    assert math.isinf(search.history[0][1])
    finite = [each for _, each in search.history if math.isfinite(each)]
    assert search.best[1] == min(finite)
    state = json.dumps(search.state_dict(), allow_nan=False)
    again = get_search(name, Game(TEXT, STOPS["one"]), seed=0)
    again.load_state_dict(json.loads(state))
    assert same(again.history, search.history)


@every_search
def test_without_successes_there_is_no_best(name):
    search = get_search(name, Game(TEXT, STOPS["one"]), seed=0)
    run(search, lambda _: math.inf, 30)
    assert search.best is None
    assert search.curve == [math.inf] * len(search.history)


@every_search
def test_a_game_with_nothing_to_decide_ends(name):
    game = Game(
        TEXT,
        [DecisionPoint(("batchnorm_expander",)), DecisionPoint(("dot_decomposer",))],
    )
    search = run(get_search(name, game), lambda _: 1.0, 50)
    assert len(search.history) == 1
    assert search.ask() is None
    assert [each.size for each in search.best[0]] == [0, 0]


@every_search
def test_a_decision_point_without_alternatives_among_others(name):
    game = Game(TEXT, [DecisionPoint(("batchnorm_expander",)), *STOPS["one"]])
    search = run(get_search(name, game), lambda p: 2.0 - (p[1] > 0).mean(), 30)
    assert len(search.history) == 30
    assert all(prefix[0].size == 0 for prefix, _ in search.history)


@every_search
def test_a_small_game_ends(name):
    text = "HloModule small\n\nENTRY main {\n" + _LINES[0].replace("out0", "ROOT out0")
    game = Game.of(hloenv.HloEnv(text + "\n}\n").get_alternatives("algsimp", "cse"))
    ways = int(game.alternatives().num_choices.prod())
    search = run(get_search(name, game, seed=0), lambda p: 1.0 + p[0].sum(), 200)
    assert search.ask() is None
    assert 1 < len(search.history) <= ways


@every_search
def test_only_a_game_of_the_same_decisions_takes_a_state(name):
    game = Game(TEXT, STOPS["one"])
    search = run(get_search(name, game, seed=0), planted(game), 12)
    with pytest.raises(hloenv.ArgumentError, match="another game"):
        get_search(name, Game(TEXT, STOPS["two"]), seed=0).load_state_dict(
            search.state_dict()
        )
    with pytest.raises(hloenv.ArgumentError, match="with seed 1"):
        get_search(name, game, seed=1).load_state_dict(search.state_dict())


def test_only_proposed_candidates_are_reported():
    game = Game(TEXT, STOPS["one"])
    search = get_search("random", game)
    with pytest.raises(hloenv.ArgumentError, match="no proposal is pending"):
        search.tell(game.complete(), 1.0)
    prefix = search.ask()
    assert search.ask() is prefix
    other = tuple(1 - each for each in prefix)
    with pytest.raises(hloenv.ArgumentError, match="another"):
        search.tell(other, 1.0)
    search.tell(prefix, 1.0)
    with pytest.raises(hloenv.ArgumentError, match="another"):
        search.tell(prefix, 1.0)


def test_real_decisions_are_valid_and_gain(hlo_dir):
    """At fusion, where a decision makes hundreds of others matter."""
    path = hlo_dir / "brax" / "sac_actor_grad.txt"
    game = Game(
        path,
        [DecisionPoint(("fusion", "general-fusion"), where="fusion", default="fusion")],
    )

    alternatives = game.alternatives()
    wanted = game.default()
    where = np.random.default_rng(3).choice(len(wanted), len(wanted) // 3, False)
    wanted[where] = alternatives.num_choices[where] - 1 - wanted[where]
    (target,) = game.canonical((np.clip(wanted, 0, None),))

    def seconds(prefix):
        game.play(prefix)
        return 1.0 + (game.canonical(prefix)[0] != target).sum()

    best_start = min(map(seconds, starting_points(game)))
    for name in ("hill-climb", "evolve", "anneal"):
        search = run(get_search(name, game, seed=0), seconds, 60)
        assert search.best[1] < best_start, name
        game.play(search.best[0]).verify()


@needs_optuna
def test_an_unknown_sampler_is_an_error():
    with pytest.raises(hloenv.ArgumentError, match="'tpee'; use one of tpe"):
        get_search("optuna:tpee", Game(TEXT, STOPS["one"]))


def test_initial_points_leave_out_what_is_known_to_cost():
    module = hloenv.HloModule.from_text(SMALL_IMAGE)
    game = hloenv.Game(module, get_space("algsimp").stops)
    first, second = starting_points(game)[:2]
    assert "rhs_reversal" in hloenv.finish(game.play(first)).to_text()
    assert "rhs_reversal" not in hloenv.finish(game.play(second)).to_text()


def test_a_space_is_found_by_its_earlier_name() -> None:
    assert get_space("in-order") is get_space("thunk-order")
    assert "in-order" not in SPACES


@needs_optuna
def test_optuna_may_leave_decisions_to_xla() -> None:
    game = Game(TEXT, [DecisionPoint(("algsimp", "cse"))])
    found = get_search("optuna:tpe", game)
    left = []
    for _ in range(30):
        prefix = found.ask()
        if prefix is None:
            break
        left.append(bool((prefix[0] < 0).any()))
        found.tell(prefix, 1.0)
    assert True in left
    assert False in left


def test_a_beam_has_no_copies() -> None:
    game = Game(TEXT, STOPS["one"])
    time_of = planted(game)
    found = get_search("beam", game)
    flips: list[tuple[bytes, ...]] = []
    score = beam.GainScore.flips

    def counted(self, prefix):
        flips.append(tuple(each.tobytes() for each in prefix))
        return score(self, prefix)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(beam.GainScore, "flips", counted)
        for _ in range(100):
            prefix = found.ask()
            if prefix is None:
                break
            found.tell(prefix, time_of(prefix))
    starts = len(starting_points(game))
    assert len(set(flips[starts:])) >= 0.9 * len(flips[starts:])
