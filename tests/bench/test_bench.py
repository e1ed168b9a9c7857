# SPDX-License-Identifier: Apache-2.0
"""The leaderboard: methods, runner, rows, report."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest

from hloenv.bench import report, tables
from hloenv.bench.entries import Entry
from hloenv.bench.methods import (
    BASELINE_METHODS,
    HEURISTICS,
    SEARCHES,
    as_method,
    as_methods,
)
from hloenv.bench.rows import Row, geometric_mean, read_parquet, write_parquet
from hloenv.bench.runner import Plan, run
from hloenv.cli import main
from hloenv.errors import ArgumentError
from hloenv.hlo.module import HloModule
from hloenv.measurement.config import Settings
from hloenv.measurement.store import Store
from hloenv.policies import UnknownPolicyError
from hloenv.search import UnknownSearchError
from hloenv.search.spaces import SPACES, UnknownSpaceError
from support.crashes import CRASHES

SUMS = """HloModule sums
add { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b) }
ENTRY entry {
  x = f32[64,64] parameter(0)
  y = f32[64,64] parameter(1)
  zero = f32[] constant(0)
  zeros = f32[64,64] broadcast(zero), dimensions={}
  same = f32[64,64] add(x, zeros)
  product = f32[64,64] multiply(same, y)
  exponential = f32[64,64] exponential(product)
  tangent = f32[64,64] tanh(product)
  sum = f32[64,64] add(exponential, tangent)
  rows = f32[64] reduce(sum, zero), dimensions={1}, to_apply=add
  ROOT result = (f32[64], f32[64,64]) tuple(rows, exponential)
}
"""
FAST = Settings(repeats=4, timeout_s=60)
ROW = Row("m", "f", "s", "vision", "test", "fusion/xla", 0, 1)


def entry(text: str = SUMS, name: str = "tests/sums") -> Entry:
    try:
        fingerprint = HloModule.from_text(text).fingerprint()
    except Exception:  # what XLA cannot read
        fingerprint = name
    return Entry(name, text, fingerprint, "tests", "tests", "test", 12)


def plan(*names: str, **fields: object) -> Plan:
    return replace(Plan(as_methods(names), settings=FAST), **fields)


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    monkeypatch.setenv("HLOENV_STORE", str(tmp_path / "store.sqlite"))
    return Store()


def test_method_names_are_checked():
    names = {*HEURISTICS, *SEARCHES, *BASELINE_METHODS}
    assert {as_method(each).name for each in names} == names
    assert as_method("live/random").is_random
    assert not as_method("fusion/xla").is_random
    for wrong, error in (
        ("fusion", ArgumentError),
        ("nowhere/random", UnknownSpaceError),
        ("fusion/nobody", UnknownPolicyError),
        ("fusion/search:nothing", UnknownSearchError),
        ("live/search:random", ArgumentError),
        ("live/best-rule", ArgumentError),
        ("baseline/nothing", ArgumentError),
    ):
        with pytest.raises(error):
            as_method(wrong)


@pytest.mark.compile
def test_xla_against_itself_is_the_same_module_in_every_space(store):
    names = [
        *(f"{name}/accept-all" for name, space in SPACES.items() if space.live),
        "fusion/xla",
        *(f"{name}/keep-original" for name in ("reorder", "layout")),
    ]
    rows = run([entry()], plan(*names), store)
    assert [row.error for row in rows] == [""] * len(names)
    assert all(row.same and row.speedup == row.low == row.high == 1 for row in rows)
    assert {row.method for row in rows} == set(names)
    assert all(row.instructions == row.baseline_instructions > 0 for row in rows)


@pytest.mark.compile
def test_different_modules_are_timed_and_compared(store):
    names = ("live-fusion/keep-original", "fusion/keep-original", "fusion/random")
    rows = run([entry()], plan(*names, seeds=(0, 1)), store)
    assert [(row.method, row.seed) for row in rows if "random" in row.method]
    assert len(rows) == 4
    for row in rows:
        assert row.is_ok, row.error
        assert row.same or row.baseline_ns > 0 < row.median_ns
        assert row.same or row.low <= row.speedup <= row.high
        assert row.same or row.worst_error <= 1
    live, placed = rows[0], rows[1]
    assert not live.same
    assert not placed.same
    assert live.accepted == placed.accepted == 0 < live.alternatives
    assert live.instructions > live.baseline_instructions
    # XLA's own fusions were not taken, and the row says so.
    assert any(what.startswith("not ") for what in placed.changes)


DEPTHWISE = """HloModule depthwise

ENTRY e {
  x = f32[1,28,28,64] parameter(0)
  w = f32[3,3,1,64] parameter(1)
  ROOT y = f32[1,26,26,64] convolution(x, w), window={size=3x3},
    dim_labels=b01f_01io->b01f, feature_group_count=64
}
"""


@pytest.mark.compile
@pytest.mark.needs("jax")
def test_methods_compete_on_jaxlib_too(store):
    (row, kept) = run(
        [entry(DEPTHWISE)],
        plan(
            *("forms/known-forms", "forms/keep-original"),
            settings=replace(FAST, engine="jaxlib"),
        ),
        store,
    )
    assert row.is_ok, row.error
    assert row.engine == kept.engine == "jaxlib"
    assert row.accepted == 1
    # jaxlib's time for its own convolution is many times that of the sum.
    assert row.speedup > 1.5
    assert kept.same


@pytest.mark.compile
def test_searches_report_a_fresh_measurement_or_xla(store):
    plans = plan("fusion/search:random", estimates=6, measurements=2)
    (row,) = run([entry()], plans, store)
    assert row.is_ok, row.error
    assert 0 < row.estimates <= 6
    assert row.curve[0] == (1, 1.0)
    assert [speedup for _, speedup in row.curve] == sorted(s for _, s in row.curve)
    assert row.baseline_ns > 0
    assert row.same == math.isnan(row.median_ns)


@pytest.mark.compile
def test_stored_games_are_not_played_again(store, monkeypatch):
    first = run([entry()], plan("fusion/keep-original", "live/accept-all"), store)
    monkeypatch.setattr("hloenv.bench.runner.Job", None)
    again = run([entry()], plan("fusion/keep-original", "live/accept-all"), store)
    assert repr(again) == repr(first)


@pytest.mark.compile
def test_a_crashing_module_is_an_error_and_others_continue(store):
    entries = [entry(CRASHES["reduce of a tuple"], "tests/crash"), entry()]
    rows = run(entries, plan("fusion/xla", "live/accept-all"), store)
    assert [row.module for row in rows] == ["tests/crash"] * 2 + ["tests/sums"] * 2
    assert all(row.error and math.isnan(row.speedup) for row in rows[:2])
    assert all(row.is_ok for row in rows[2:])


def rows_of(method: str, *speedups: float) -> list[Row]:
    return [
        replace(
            ROW,
            module=f"m{index}",
            method=method,
            speedup=speedup,
            low=speedup * 0.99,
            high=speedup * 1.01,
            baseline_ns=1000.0,
            instructions=50,
            baseline_instructions=100,
            changes={"general-fusion: add becomes fusion": 3},
        )
        for index, speedup in enumerate(speedups)
    ]


def test_standings_are_geometric_means_over_modules():
    rows = rows_of("fusion/a", 2.0, 0.5, 1.0) + rows_of("fusion/b", 1.1, 1.1, 1.1)
    # A second seed counts with the first, not as a module of its own.
    rows.append(replace(rows[0], seed=1, speedup=8.0, low=7.9, high=8.1))
    # What only one of them was played on does not count.
    rows += [replace(row, module="m9") for row in rows_of("fusion/a", 9.0)]
    first, second = tables.standings(rows)
    assert (first.method, second.method) == ("fusion/a", "fusion/b")
    assert first.mean == pytest.approx(math.exp(math.log(4 * 0.5 * 1) / 3))
    assert (first.headline.modules, first.errors) == (3, 0)
    assert (first.wins, first.ties, first.losses) == (2, 1, 1)
    assert (first.worst, first.best) == (0.5, 8.0)
    assert second.mean == pytest.approx(1.1)
    # One repository says nothing of others.
    assert math.isnan(second.headline.low)
    assert second.instructions == pytest.approx(0.5)
    assert geometric_mean([2.0, 8.0]) == pytest.approx(4.0)


def test_failures_do_not_improve_the_score():
    rows = rows_of("fusion/breaks", 2.0, 2.0, 2.0) + rows_of(
        "fusion/good", 1.5, 1.5, 1.5
    )
    rows[1:3] = [
        replace(row, speedup=math.nan, low=math.nan, error="CompileError: no")
        for row in rows[1:3]
    ]
    first, second = tables.standings(rows)
    assert (first.method, second.method) == ("fusion/good", "fusion/breaks")
    assert second.mean == pytest.approx(2 ** (1 / 3))
    assert (second.headline.modules, second.errors, second.wins) == (3, 2, 1)


def test_reports_name_the_largest_wins_and_the_errors():
    rows = rows_of("fusion/a", 2.0, 0.5) + rows_of("all/search:evolve", 1.5, 1.2)
    rows += [
        replace(rows[0], module="m1", seed=1, error="CompileError: <b>no</b>"),
    ]
    wins = report.largest_wins(rows)
    # Searches only: nobody has measured again what made a policy the best.
    assert wins[0].startswith("m0: 1.50 times as fast")
    assert "general-fusion: add becomes fusion (3 times)" in wins[0]
    assert wins[1].startswith("m1: 1.20 times as fast")
    assert report.largest_wins(rows[:2])[0].startswith("m0: 2.00 times as fast")
    text = report.markdown(rows, {"date": "today"}, ["speedups.png"])
    assert "| fusion/a | 1 | 2 | 2 | 1.189 |" in text
    assert "| fusion/a | m1 | 1 | 1 | CompileError: &lt;b>no&lt;/b> |" in text
    page = report.html(text)
    # And those of the failures and of the methods.
    assert page.count("<table>") == len(tables.tables(rows)) + 2
    assert '<img src="speedups.png"' in page
    assert "<td" in page
    assert "<b>no</b>" not in page


@pytest.mark.needs("pyarrow")
def test_rows_survive_parquet(tmp_path):
    rows = [replace(each, curve=((1, 1.0), (7, 1.5))) for each in rows_of("x/y", 1.5)]
    rows.append(replace(rows[0], speedup=math.nan, error="boom"))
    write_parquet(rows, tmp_path / "results.parquet")
    back = read_parquet(tmp_path / "results.parquet")
    assert repr(back[0]) == repr(rows[0])
    assert back[1].error == "boom"
    assert math.isnan(back[1].speedup)


@pytest.mark.compile
@pytest.mark.needs("pyarrow", "matplotlib")
def test_the_command_writes_results_report_and_plots(tmp_path, store, capsys):
    (tmp_path / "hlo").mkdir()
    (tmp_path / "hlo" / "sums.txt").write_text(SUMS)
    arguments = [
        *("bench", str(tmp_path / "hlo"), "-o", str(tmp_path / "out")),
        *("-c", "fusion/xla", "-c", "fusion/keep-original", "--precision", "0.2"),
        "--no-baselines",
    ]
    assert main(arguments) == 0
    out = capsys.readouterr().out
    assert "fusion/keep-original" in out
    assert "report.md" in out
    assert "from the store" not in out
    assert main(arguments) == 0
    again = capsys.readouterr().out
    # Times of an earlier run are named as such.
    assert "from the store: 2 of 2 rows were measured before this run, 20" in again
    written = {each.name for each in (tmp_path / "out").iterdir()}
    assert {"report.md", "report.html", "results.parquet"} <= written
    assert main([*arguments, "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["method"] for row in rows] == ["fusion/xla", "fusion/keep-original"]
    assert main(["bench", "--list"]) == 0
    assert "search:hill-climb" in capsys.readouterr().out


@pytest.mark.needs("matplotlib")
def test_plots_are_drawn(tmp_path):
    from hloenv.bench.plots import write_plots

    rows = rows_of("fusion/a", 2.0, 0.5, 1.0)
    rows += [
        replace(each, curve=((1, 1.0), (5, 1.3)), estimates=9)
        for each in rows_of("all/search:evolve", 1.5, 1.2, 1.1)
    ]
    names = write_plots(rows, tmp_path)
    assert names == ["speedups.png", "families.png", "curves.png"]
    assert all((tmp_path / name).stat().st_size > 5000 for name in names)
    assert write_plots([], tmp_path) == []
    # An interrupted run: no module was played by all.
    apart = [replace(rows[0], module="a"), replace(rows[1], method="fusion/b")]
    assert write_plots(apart, tmp_path) == []


def test_quick_ends_soon_after_its_ten_minutes(monkeypatch, tmp_path):
    seen = {}

    def played(entries, plan, store, **options):
        seen.update(options, entries=entries, plan=plan)
        raise KeyboardInterrupt

    monkeypatch.setattr("hloenv.bench.runner.run", played)
    main(["bench", "--quick", "--store", str(tmp_path / "s"), "-o", str(tmp_path)])
    assert seen["seconds"] == 600
    assert len(seen["entries"]) == 40
    assert seen["plan"].module_s == 90


def test_projects_of_a_split_are_chosen_by_name(monkeypatch, tmp_path, capsys):
    seen = {}

    def played(entries, plan, store, **options):
        seen.update(entries=entries)
        raise KeyboardInterrupt

    monkeypatch.setattr("hloenv.bench.runner.run", played)
    words = ["bench", "--store", str(tmp_path / "s"), "-o", str(tmp_path)]
    main([*words, "--split", "unseen", "--source", "qpax", "--source", "mpax"])
    assert {each.source for each in seen["entries"]} == {"qpax", "mpax"}
    assert main([*words, "--split", "test", "--source", "qpax"]) == 1
    error = capsys.readouterr().err
    assert "the test split has no modules at small extents of qpax" in error
    assert "flax" in error  # one of those that it has
    (tmp_path / "sums.txt").write_text(SUMS)
    assert main([*words, str(tmp_path / "sums.txt"), "--source", "qpax"]) == 1
    assert "files are given" in capsys.readouterr().err
