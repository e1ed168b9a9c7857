# SPDX-License-Identifier: Apache-2.0
"""Searching for decisions: estimates first, then measurements."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path

import numpy as np
import pytest

import hloenv
from hloenv.cli import main
from hloenv.cost.base import Estimate
from hloenv.measurement.pool import Evaluator, Task
from hloenv.measurement.record import Measurement
from hloenv.rewrite.game import Game
from hloenv.search import get_search
from hloenv.search.driver import Budget, SearchResult, run_search, search

pytestmark = pytest.mark.compile

TEXT = """
HloModule m
ENTRY e {
  a = f32[64,64] parameter(0)
  b = f32[64,64] parameter(1)
  at = f32[64,64] transpose(a), dimensions={1,0}
  back = f32[64,64] transpose(at), dimensions={1,0}
  e1 = f32[64,64] exponential(back)
  e2 = f32[64,64] exponential(a)
  sum = f32[64,64] add(e1, e2)
  one = f32[] constant(1)
  ones = f32[64,64] broadcast(one), dimensions={}
  scaled = f32[64,64] multiply(sum, ones)
  ROOT out = f32[64,64] multiply(scaled, b)
}
"""


class Instructions:
    """Estimates a second for each instruction."""

    def estimate_many(self, modules):
        """One estimate for each module."""
        return [Estimate(float(each.instruction_count)) for each in modules]


class Nothing:
    """Gives no estimate."""

    def estimate_many(self, modules):
        """An error for each module."""
        return [Estimate(float("nan"), error="no") for _ in modules]


@pytest.fixture
def alternatives() -> hloenv.Alternatives:
    """Of the module above."""
    return hloenv.HloEnv(TEXT).get_alternatives("algsimp", "cse")


def test_a_search_of_estimates_alone_has_a_curve(alternatives):
    reported = []
    found = run_search(
        get_search("hill-climb", Game.of(alternatives), seed=3),
        Instructions(),
        budget=Budget(estimates=12),
        on_estimate=lambda prefix, estimate: reported.append(
            (prefix, estimate.seconds)
        ),
    )
    assert found.num_estimates == len(reported) == len(found.estimate_curve) <= 12
    times, best = zip(*found.estimate_curve, strict=True)
    assert list(times) == sorted(times)
    assert list(best) == np.minimum.accumulate([each for _, each in reported]).tolist()
    assert found.default_s == reported[0][1]
    np.testing.assert_array_equal(
        reported[0][0][0], alternatives.decisions_for("algsimp")
    )
    prints = [each.fingerprint for each in found.evaluated]
    assert len(prints) == len(set(prints))
    assert found.measured == []
    assert found.best is None


def test_where_nothing_can_be_estimated_nothing_is_measured(alternatives):
    with Evaluator(workers=1) as evaluator:
        found = run_search(
            get_search("random", Game.of(alternatives)),
            Nothing(),
            evaluator,
            budget=Budget(estimates=9, measurements=2),
        )
    assert found.num_estimates > 0
    assert found.evaluated == []
    assert found.measured == []


def test_an_interrupted_search_resumes_to_the_same_result(alternatives):
    def run(search, estimates):
        return run_search(search, Instructions(), budget=Budget(estimates=estimates))

    whole = get_search("evolve", Game.of(alternatives), seed=5)
    expected = run(whole, 20)
    first = get_search("evolve", Game.of(alternatives), seed=5)
    run(first, 7)
    second = get_search("evolve", Game.of(alternatives), seed=5)
    second.load_state_dict(json.loads(json.dumps(first.state_dict())))
    found = run(second, 20)
    assert found.num_estimates == expected.num_estimates
    assert second.state_dict() == whole.state_dict()
    assert [each for _, each in found.estimate_curve] == whole.curve


def test_time_is_a_budget_too(alternatives):
    found = run_search(
        get_search("random", Game.of(alternatives)),
        Instructions(),
        budget=Budget(estimates=10**6, seconds=1e-6),
    )
    assert found.num_estimates <= 1


@pytest.mark.parametrize(
    "budget", [{"estimates": 0}, {"measurements": -1}, {"seconds": 0}]
)
def test_a_budget_of_nothing_is_an_error(budget):
    with pytest.raises(hloenv.ArgumentError, match=r"estimates >= 1|0 alternatives"):
        Budget(**budget)


def test_the_best_estimates_are_measured(alternatives):
    with Evaluator(hloenv.Settings(repeats=2), workers=1) as evaluator:
        found = search(
            alternatives,
            baseline=hloenv.HloModule.from_text(TEXT),
            estimator=Instructions(),
            evaluator=evaluator,
            estimates=10,
            measurements=2,
        )
    assert len(found.measured) == 2
    estimates = sorted(each.estimate_s for each in found.evaluated)
    assert [each.estimate_s for each, _ in found.measured] == estimates[:2]
    speedups = [measurement.speedup for _, measurement in found.measured]
    assert found.measurement_curve[-1][1] == max(speedups)
    assert len(found.measurement_curve) == 2
    assert all(each.is_ok for _, each in found.measured)
    json.dumps(found.to_json())


class Planted:
    """Replaces measurements by the times of `seconds`.

    Args:
        seconds: of a number of instructions; `is_again` when the best is measured
            afresh.
    """

    def __init__(self, seconds: Callable[[int, bool], float]):
        self.seconds = seconds

    def submit(self, task: Task) -> Future[Measurement]:
        """The measurement at once."""
        candidate, baseline = task.candidate, task.baseline
        is_again = task.settings.seed != hloenv.Settings().seed

        def durations(module: hloenv.HloModule) -> tuple[int, ...]:
            return (int(1e9 * self.seconds(module.instruction_count, is_again)),) * 4

        result: Future[Measurement] = Future()
        result.set_result(
            Measurement(
                fingerprint=candidate.fingerprint(),
                baseline=baseline.fingerprint(),
                finish="legalize",
                seed=task.settings.seed,
                durations_ns=durations(candidate),
                baseline_ns=durations(baseline),
            )
        )
        return result


def planted_search(seconds: Callable[[int, bool], float]) -> SearchResult:
    """Of 11 instructions, decisions leave 6 at least."""
    baseline = hloenv.HloEnv(TEXT)
    return search(
        baseline.get_alternatives("algsimp", "cse"),
        baseline=baseline.module,
        estimator=Instructions(),
        evaluator=Evaluator(executor=Planted(seconds)),
        estimates=10,
        measurements=3,
    )


def test_the_fastest_is_the_best_and_is_measured_again():
    found = planted_search(lambda count, is_again: float(count))
    assert found.best is found.measured[0][0]
    assert found.best.estimate_s == 6
    assert found.confirmed.seed == hloenv.Settings().seed + 1
    assert found.confirmed.speedup == pytest.approx(11 / 6)


def test_a_lucky_timing_is_not_the_best():
    found = planted_search(lambda count, is_again: 20 - count if is_again else count)
    assert found.measured[0][1].speedup > 1 > found.confirmed.speedup
    assert found.best is None


def test_where_nothing_is_faster_there_is_no_best():
    found = planted_search(lambda count, is_again: 1.0 / count)
    assert len(found.measured) == 3
    assert found.best is None
    assert found.confirmed is None


def test_a_search_without_alternatives_is_an_error(alternatives):
    nothing = hloenv.HloEnv(TEXT).get_alternatives("batchnorm_expander")
    with (
        Evaluator() as evaluator,
        pytest.raises(hloenv.ArgumentError, match="are 0 alt"),
    ):
        search(
            nothing,
            baseline=hloenv.HloModule.from_text(TEXT),
            estimator=Instructions(),
            evaluator=evaluator,
        )


def test_command_resumes_a_search(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    model, out = tmp_path / "m.hlo", tmp_path / "best.hlo"
    model.write_text(TEXT)
    argv = ["search", str(model), "--pass", "algsimp", "--pass", "cse"]
    argv += ["--estimates", "8", "--measurements", "2", "--workers", "1"]
    argv += ["--store", str(tmp_path / "store.sqlite")]
    code = main([*argv, "--json", "-o", str(out)])
    first = json.loads(capsys.readouterr().out)
    assert code == (3 if first["output"] is None else 0)
    assert len(first["measured"]) <= 2
    assert main([*argv, "--json"]) == 0
    second = json.loads(capsys.readouterr().out)
    # The same numbers: they were looked up.
    assert second["measured"] == first["measured"]
    assert main(argv) == 0
    shown = capsys.readouterr().out
    assert "different candidates estimated" in shown
    assert out.exists() == (first["output"] is not None)


def test_command_decides_at_several_decision_points(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    model = tmp_path / "m.hlo"
    model.write_text(TEXT)
    argv = ["search", str(model), "--search", "random", "--json", "--no-store"]
    argv += ["--stop", "simplification: cse", "--stop", "fusion: fusion general-fusion"]
    argv += ["--estimates", "6", "--measurements", "1", "--workers", "1"]
    assert main(argv) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["search"] == "random"
    assert [len(each["decisions"]) for each in shown["measured"]] == [2]


def test_command_decides_at_five_decision_points_by_default(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    model, decided = tmp_path / "m.hlo", tmp_path / "decided.hlo"
    model.write_text(TEXT)
    argv = ["search", str(model), "--json", "--no-store", "--workers", "1"]
    argv += ["--estimates", "6", "--measurements", "1", "-o", str(decided), "--force"]
    assert main(argv) == 0
    shown = json.loads(capsys.readouterr().out)
    assert [len(each["decisions"]) for each in shown["measured"]] == [5]
    assert shown["output"] == str(decided)
    hloenv.replay(shown["trace"], model)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--until", "fusion"], "--until fusion was given without a pass"),
        (["--stop", "fusion"], "POSITION: PASS"),
        (["--stop", ": cse", "--pass", "cse"], "together with"),
        (["--pass", "cse", "--search", "hill"], "hill-climb"),
    ],
)
def test_command_rejects_invalid_decision_points(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments, message
):
    model = tmp_path / "m.hlo"
    model.write_text(TEXT)
    try:
        code = main(["search", str(model), *arguments])
    except SystemExit as end:
        code = end.code
    assert code != 0
    assert message in capsys.readouterr().err
