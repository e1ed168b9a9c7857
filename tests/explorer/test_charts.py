# SPDX-License-Identifier: Apache-2.0
"""Charts of results: their data, their pictures, and how the page gets them."""

from __future__ import annotations

import json
import math

import pytest

from hloenv import _charts
from hloenv._charts import Chart, best_so_far, check_path, draw, line
from hloenv.cli import main
from hloenv.cli.explore import open_target
from hloenv.errors import ArgumentError
from hloenv.explorer.charts import (
    search_charts,
    search_seconds,
    training_charts,
    tune_charts,
)
from hloenv.learn.curve import read_curve
from hloenv.search.driver import SearchResult
from hloenv.tune.journal import Journal, Result
from hloenv.tune.space import Configuration

NAN = math.nan
ONE, TWO = (Configuration((("vectors", each),)) for each in ("512", "128"))
TUNED = [
    Result(ONE, "a", "codegen", 1.2, (1.1, 1.3), seconds=2.0),
    Result(TWO, "b", "joint", error="it crashed", seconds=1.0),
    Result(ONE, "c", "joint", 1.5, (1.4, 1.6), seconds=4.0),
]
CURVE = """step,steps,episode_return,entropy,score,best_score,seconds
0,96,nan,nan,1.0,1.0,0.5
32,96,0.5,1.25,0.75,0.75,2.5
64,96,0.75,1.0,0.875,0.75,4.5
"""


def points_of(chart: Chart) -> dict[str, list[tuple[float, ...]]]:
    return {each.name: list(each.points) for each in chart.lines}


def test_points_that_are_not_finite_are_left_out():
    found = line("a", [(1, NAN), (2, 3.0), (3, 4.0, NAN, 5.0), (4, 5.0, 4.0, 6.0)])
    assert found.points == ((2, 3), (3, 4), (4, 5, 4, 6))
    assert best_so_far([(1, NAN), (2, 1.5), (3, 1.0), (4, 2.0)]) == [
        *((2, 1.5), (3, 1.5), (4, 2.0)),
    ]


def test_a_search_has_estimates_measurements_and_seconds():
    measured = {"speedup": 1.25, "speedup_interval": [1.0, 1.5], "error": None}
    failed = {"speedup": None, "speedup_interval": [None, None], "error": "no"}
    data = {"default_s": 2e-6, "curve": [None, 2e-6, 1e-6]}
    charts = search_charts({**data, "measured": [measured, failed]})
    assert [points_of(each) for each in charts] == [
        {"best so far": [(2, 1.0), (3, 2.0)]},
        {
            "best so far": [(1, 1.25), (2, 1.25)],
            "candidate, with 95 % interval": [(1, 1.25, 1.0, 1.5)],
        },
    ]
    found = SearchResult(default_s=2e-6, estimate_curve=[(0.5, math.inf), (1.0, 1e-6)])
    found.measurement_curve = [(3.0, 0.0), (4.0, 1.5)]
    assert points_of(search_seconds(found)) == {
        "estimated": [(0.5, 0.0), (1.0, 2.0)],
        "measured": [(4.0, 1.5)],
    }


def test_a_tuning_has_measurements_and_seconds():
    first, second = tune_charts(TUNED, "step", "jax.jit")
    assert points_of(first) == {
        "best so far": [(1, 1.2), (2, 1.2), (3, 1.5)],
        "configuration, with 95 % interval": [(1, 1.2, 1.1, 1.3), (3, 1.5, 1.4, 1.6)],
    }
    assert points_of(second) == {"best so far": [(2, 1.2), (3, 1.2), (7, 1.5)]}
    assert first.title.startswith("step: ")
    assert "jax.jit" in first.y


def test_a_run_has_return_entropy_and_validation(tmp_path):
    path = tmp_path / "curve.csv"
    path.write_text(CURVE)
    charts = {each.title: each for each in training_charts(read_curve(path))}
    assert list(charts) == ["return", "entropy", "validation modules"]
    assert points_of(charts["return"]) == {"return": [(32, 0.5), (64, 0.75)]}
    assert points_of(charts["validation modules"])["latest"] == [
        *((0, 1.0), (32, 0.75), (64, 0.875)),
    ]
    assert "less is better" in charts["validation modules"].y
    path.write_text("step,phase,loss,score,seconds\n1,ppo,0.5,1.25,3\n")
    charts = {each.title: each for each in training_charts(read_curve(path))}
    assert "more is better" in charts["validation modules"].y
    assert "loss" in charts


@pytest.mark.parametrize("text", ["a,b\n1,2\n", "step,seconds\nx,1\n", "step\n1\n"])
def test_another_csv_is_a_message(tmp_path, text):
    path = tmp_path / "curve.csv"
    path.write_text(text)
    with pytest.raises(ArgumentError, match="columns step and seconds"):
        read_curve(path)


@pytest.mark.needs("matplotlib")
@pytest.mark.parametrize("suffix", _charts.SUFFIXES)
def test_charts_are_drawn(tmp_path, suffix):
    path = tmp_path / f"curve{suffix}"
    assert draw(tune_charts(TUNED), path, title="step")
    assert path.stat().st_size > 3000
    assert [each.name for each in tmp_path.iterdir()] == [path.name]


@pytest.mark.needs("matplotlib")
def test_what_has_no_points_is_not_drawn(tmp_path):
    path = tmp_path / "curve.png"
    assert not draw(tune_charts([]), path)
    assert not path.exists()


@pytest.mark.needs("matplotlib")
def test_a_drawn_chart_is_read_without_colours():
    from matplotlib.figure import Figure

    axes = Figure().add_subplot()
    lines = [line(str(i), [(0, i), (1, i + 1)]) for i in range(9)]
    _charts.paint(axes, Chart("title", "seconds", "speed-up", tuple(lines), 1.0))
    styles = {(each.get_linestyle(), each.get_marker()) for each in axes.lines[:9]}
    assert len(styles) == 9
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("seconds", "speed-up")
    assert [each.get_text() for each in axes.get_legend().get_texts()] == [
        each.name for each in lines
    ]


@pytest.mark.needs("matplotlib")
def test_a_wide_interval_does_not_hide_the_rest():
    from matplotlib.figure import Figure

    axes = Figure().add_subplot()
    points = [(1, 1.0, 0.5, 900.0), (2, 2.0, 1.5, 2.5)]
    _charts.paint(axes, Chart("t", "x", "y", (line("a", points, "points"),)))
    low, high = axes.get_ylim()
    assert 0 < low < 0.5
    assert 2.5 < high < 4


def test_a_picture_has_one_of_three_suffixes():
    with pytest.raises(ArgumentError, match=r"--plot draws \.png, \.svg, \.pdf, got"):
        check_path("curve.txt", "--plot")


# The page.


def test_a_journal_is_explored(tmp_path):
    path = tmp_path / "a.journal"
    journal = Journal(path, {})
    for each in TUNED:
        journal.add(each)
    results = open_target(str(path)).results
    assert results["kind"] == "tune"
    assert [row["method"] for row in results["rows"]] == ["codegen", "joint", "joint"]
    assert [row["speedup"] for row in results["rows"]] == [1.2, None, 1.5]
    assert results["rows"][1]["error"] == "it crashed"
    assert results["note"] == "3 configurations measured, 1 failed"
    assert len(results["charts"]) == 2
    path.write_text("no journal\n")
    with pytest.raises(ArgumentError, match="no measurement of hloenv tune"):
        open_target(str(path))


def test_an_artefact_is_explored(tmp_path, small):
    from hloenv.jax import Artefact, Recipe, Tuned
    from hloenv.rewrite.trace import ModuleId

    stages = (
        {"stage": "fusion", "decided": "xla", "alone": None, "without": None},
        {"stage": "codegen", "decided": "vectors=512", "alone": None, "without": None},
    )
    found = {"label": "vectors=512", "speedup": 1.5, "interval": (1.4, 1.6)}
    entries = (
        Tuned("step", ModuleId.of(small), Recipe(), stages=stages, **found),
        Tuned("loss", ModuleId.of(small), Recipe(), reason="no time"),
    )
    path = tmp_path / "step.tuned"
    Artefact(entries).save(path)
    results = open_target(str(path)).results
    assert [(row["module"], row["method"]) for row in results["rows"]] == [
        ("step", "vectors=512"),
        ("loss", "as jax.jit has it: no time"),
    ]
    assert results["rows"][0]["changes"] == {"codegen: vectors=512": 1}
    assert (results["rows"][0]["low"], results["rows"][0]["high"]) == (1.4, 1.6)
    # What `hloenv tune --json` prints has more fields.
    other = tmp_path / "tune.json"
    other.write_text(json.dumps({**Artefact(entries).to_json(), "output": None}))
    assert open_target(str(other)).results["rows"] == results["rows"]


def test_the_folder_of_a_run_is_explored(tmp_path):
    (tmp_path / "curve.csv").write_text(CURVE)
    (tmp_path / "report.json").write_text(
        json.dumps(
            {
                "modules": ["a", "b"],
                "policies": {"gnn": {"speedup": 1.1}, "greedy": {"speedup": 1.2}},
            }
        )
    )
    results = open_target(str(tmp_path)).results
    assert results["kind"] == "train"
    assert results["note"] == "64 steps, 4 seconds"
    titles = [each["title"] for each in results["charts"]]
    assert titles == ["return", "entropy", "validation modules"]
    assert [(each["method"], each["modules"]) for each in results["methods"]] == [
        ("greedy", 2),
        ("gnn", 2),
    ]


def test_an_empty_folder_is_a_message(tmp_path, capsys):
    assert main(["explore", str(tmp_path), "--no-open"]) == 1
    err = capsys.readouterr().err
    assert "has no curve.csv and no results.parquet" in err
    assert "hloenv train" in err
