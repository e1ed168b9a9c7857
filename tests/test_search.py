# SPDX-License-Identifier: Apache-2.0
"""Searching for decisions: estimates first, then measurements."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import hloenv
from hloenv.cli import main
from hloenv.estimates import Estimate
from hloenv.evaluator import Evaluator
from hloenv.search import propose, search

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
    """Cannot tell."""

    def estimate_many(self, modules):
        """An error for each module."""
        return [Estimate(float("nan"), error="no") for _ in modules]


@pytest.fixture
def alternatives() -> hloenv.rewrite.Alternatives:
    """Of the module above."""
    return hloenv.HloEnv(TEXT).get_alternatives("algsimp", "cse")


def test_proposals_start_with_the_heuristics_and_repeat_by_seed(alternatives):
    first = list(propose(alternatives, Instructions(), estimates=12, seed=3))
    again = list(propose(alternatives, Instructions(), estimates=12, seed=3))
    assert len(first) == 12
    np.testing.assert_array_equal(first[0].decisions, 0)
    np.testing.assert_array_equal(first[1].decisions, 1)
    for one, other in zip(first, again, strict=True):
        np.testing.assert_array_equal(one.decisions, other.decisions)
    best = min(each.estimate.seconds for each in first)
    assert best <= first[0].estimate.seconds


def test_a_search_ends_where_nothing_can_be_estimated(alternatives):
    assert len(list(propose(alternatives, Nothing(), estimates=9))) == 4


def test_the_best_estimates_are_measured(alternatives):
    settings = hloenv.Settings(repeats=2)
    with Evaluator(settings, workers=1) as evaluator:
        found = search(
            alternatives,
            baseline=hloenv.HloModule.from_text(TEXT),
            estimator=Instructions(),
            evaluator=evaluator,
            estimates=10,
            measurements=2,
        )
    assert len(found.measured) == 2
    estimates = sorted(each.estimate.seconds for each in found.tried)
    assert [each.estimate.seconds for each, _ in found.measured] == estimates[:2]
    assert all(each.is_ok for _, each in found.measured)
    if found.best is not None:
        assert found.confirmed is not None
        assert found.confirmed.seed == settings.seed + 1
    json.dumps(found.to_json())


def test_a_search_over_nothing_says_so(alternatives):
    nothing = hloenv.HloEnv(TEXT).get_alternatives("batchnorm_expander")
    with Evaluator() as evaluator, pytest.raises(hloenv.ArgumentError, match="over 0"):
        search(
            nothing,
            baseline=hloenv.HloModule.from_text(TEXT),
            estimator=Instructions(),
            evaluator=evaluator,
        )


def test_command_searches_and_goes_on_where_it_was(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    model, out = tmp_path / "m.hlo", tmp_path / "best.hlo"
    model.write_text(TEXT)
    argv = ["search", str(model), "--pass", "algsimp", "--pass", "cse"]
    argv += ["--estimates", "8", "--measurements", "2", "--workers", "1"]
    argv += ["--store", str(tmp_path / "store.sqlite")]
    assert main([*argv, "--json", "-o", str(out)]) == 0
    first = json.loads(capsys.readouterr().out)
    assert len(first["measured"]) <= 2
    assert main([*argv, "--json"]) == 0
    second = json.loads(capsys.readouterr().out)
    # The same numbers: they were looked up.
    assert second["measured"] == first["measured"]
    assert main(argv) == 0
    shown = capsys.readouterr().out
    assert "different candidates estimated" in shown
    if first["best"] is not None:
        assert out.exists()
