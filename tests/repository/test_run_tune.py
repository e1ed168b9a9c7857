# SPDX-License-Identifier: Apache-2.0
"""The report of joint tuning, on given rows."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

import reporting
import run_tune

RECORDS = [
    SimpleNamespace(repository="a.org/a", source="a", name=name)
    for name in ("nets/mlp[width=8]/loss", "nets/mlp[width=9]/grad", "nets/cnn[n=1]/f")
]


def row(name, **single):
    return {"fingerprint": name, "single": single, "speedup": 1.0}


def test_the_best_fixed_choice_is_one_for_all_programs():
    rows = [row("a", one=2.0, two=3.0), row("b", one=2.0, two=0.5), row("b", three=9.0)]
    name, mean, _, worst, best, above, _ = run_tune.best_flags(rows)
    assert name == "best fixed choice, by program: one"
    assert (mean, worst, best, above) == ("2.000", "2.000", "2.000", 2)


def test_without_a_common_choice_there_is_no_best_one():
    assert run_tune.best_flags([row("a", one=2.0), row("b", two=2.0)])[1] == "-"


def test_a_curve_is_read_at_a_time():
    curve = {"curve": [[1.0, 1.0], [5.0, 1.5], [20.0, 1.4]]}
    assert [run_tune.at(curve, each) for each in (0, 4, 10, 30)] == [1, 1, 1.5, 1.5]
    assert run_tune.at({"error": "x"}, 10) == 1.0


def test_the_journals_of_the_others_are_gathered(tmp_path):
    for name in "ab":
        (tmp_path / name).mkdir()
        (tmp_path / name / f"{name}.journal").write_text(name)
    (tmp_path / "to").mkdir()
    run_tune.gather(tmp_path, "a", tmp_path / "to")
    assert [each.name for each in (tmp_path / "to").iterdir()] == ["b.journal"]


def test_failures_count_as_one():
    rows = [{"speedup": 4.0}, {"error": "x"}, {"error": "x"}]
    mean, _, *rest = run_tune.summary("x", rows, RECORDS)[1:]
    # Two sizes of a program are one entry point.
    assert (mean, rest) == ("1.414", ["1.000", "4.000", 1, 2])


def test_the_search_is_summed_up_apart_from_the_last_check():
    rows = [{"speedup": 1.0, "curve": [[1.0, 1.0], [5.0, 4.0]]}, {"error": "x"}]
    records = RECORDS[1:]
    assert run_tune.summary("x", rows, records)[1] == "1.000"
    assert run_tune.summary("x", rows, records, run_tune.searched)[1] == "2.000"


def test_a_mean_is_of_entry_points_with_an_interval_by_repository():
    rows = [("a", "x", 2.0), ("a", "x", 8.0), ("b", "y", 1.0), ("c", "z", 2.0)]
    mean, low, high, count = reporting.mean_by_entry_point(rows)
    assert (mean, count) == (pytest.approx(2.0), 3)
    assert low < mean < high
    assert " to " in reporting.interval_text(low, high)
    _, low, high, _ = reporting.mean_by_entry_point(rows[:1])
    assert reporting.interval_text(low, high) == "-"
