# SPDX-License-Identifier: Apache-2.0
"""The figures of a leaderboard: units, intervals, what counts as 1, which code."""

from __future__ import annotations

import math
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from hloenv.bench import play, report, tables
from hloenv.bench.entries import entry_point, sample
from hloenv.bench.profile import Profile, kind_of
from hloenv.bench.profile_table import profile_table
from hloenv.bench.rows import Row
from hloenv.bench.statistics import (
    baselines_ns,
    clustered_interval,
    duration_class,
    headline,
    total_speedup,
)
from hloenv.bench.version import code_version, commit_of
from hloenv.cost.roofline import Rates
from hloenv.errors import MeasureTimeout

ROW = Row("m", "f", "s", "vision", "test", "fusion/xla", 0, 1)
NAN = math.nan


def row(
    module: str, speedup: float, repository: str, point: str, **more: object
) -> Row:
    fields = {
        "module": module,
        "speedup": speedup,
        "low": speedup * 0.99,
        "high": speedup * 1.01,
        "repository": repository,
        "entry_point": point,
        "baseline_ns": 1e4,
    }
    return replace(ROW, **(fields | more))


def test_functions_and_sizes_of_one_program_are_one_entry_point():
    points = {
        entry_point("jax", "jax/linear_algebra[n=24]/gmres_grad"),
        entry_point("jax", "jax/linear_algebra[n=4]/polar"),
    }
    assert points == {"jax/jax/linear_algebra"}
    assert entry_point("e3x", "e3x/potential/train_step") == "e3x/e3x/potential"
    assert entry_point("a", "alone") == "a/alone"


def test_the_headline_is_a_mean_over_entry_points():
    rows = [row(f"a{i}", 4.0, "r1", "a") for i in range(9)]
    rows.append(row("b", 1.0, "r2", "b"))
    found = headline(rows)
    # Not 4 ** 0.9, which is what nine modules of one program would make of it.
    assert found.mean == pytest.approx(2.0)
    assert (found.modules, found.entry_points, found.repositories) == (10, 2, 2)


def test_an_interval_is_wider_where_modules_of_a_repository_agree():
    rng = np.random.default_rng(0)
    values = rng.normal(0.1, 0.1, 40)
    mixed = clustered_interval(np.split(rng.permutation(values), 8))
    # The same values: those of one repository are alike.
    alike = clustered_interval(np.split(np.sort(values), 8))
    assert alike[0] < mixed[0] < math.exp(values.mean()) < mixed[1] < alike[1]
    assert alike[1] - alike[0] > 1.5 * (mixed[1] - mixed[0])
    fewer = clustered_interval(np.split(np.sort(values), 4))
    assert fewer[1] - fewer[0] > alike[1] - alike[0]
    assert all(math.isnan(each) for each in clustered_interval([values]))


def test_failures_count_as_one_and_are_listed():
    rows = [
        row("a", 4.0, "r1", "a"),
        row("b", NAN, "r2", "b", error="MeasureTimeout: x"),
    ]
    assert headline(rows).mean == pytest.approx(2.0)
    times = {"a": 1e4, "b": 4e4}
    assert total_speedup(rows, times) == pytest.approx(5e4 / (0.25e4 + 4e4))
    text = report.markdown(rows, {}, [])
    assert "| fusion/xla | b | 1 | 0 | MeasureTimeout: x |" in text


def test_total_time_is_that_of_all_modules_of_known_time():
    rows = [row("a", 2.0, "r", "a"), row("b", 1.0, "r", "b", baseline_ns=NAN)]
    assert baselines_ns(rows) == {"a": 1e4}
    assert total_speedup(rows, baselines_ns(rows)) == pytest.approx(2.0)
    rows[1] = replace(rows[1], baseline_ns=9e4)
    assert total_speedup(rows, baselines_ns(rows)) == pytest.approx(10 / 9.5)


def test_the_total_of_modules_of_unknown_time_is_left_empty():
    _, cells = tables.standings_table([row("a", 1.0, "r", "a", baseline_ns=NAN)])
    assert "nan" not in " ".join(cells[0])


def test_durations_have_classes():
    times = (9e3, 1e4, 2e5, 1e6, None)
    assert [duration_class(each) for each in times] == [
        *("below 10 us", "10 to 100 us", "0.1 to 1 ms", "above 1 ms", "not timed"),
    ]
    rows = [
        row("a", 2.0, "r", "a", baseline_ns=5e3),
        row("b", 8.0, "r", "b", baseline_ns=5e6),
    ]
    columns, (cells,) = tables.durations_table(rows)
    assert dict(zip(columns, cells, strict=True)) == {
        "method": "fusion/xla",
        "below 10 us": "2.000 (1)",
        "10 to 100 us": "-",
        "0.1 to 1 ms": "-",
        "above 1 ms": "8.000 (1)",
    }


def test_real_extents_are_reported_apart():
    rows = [row("a", 2.0, "r", "a"), row("b", 8.0, "r", "b", extent="real")]
    found = tables.tables(rows)
    small = found["Policies, small extents, 1 thread"][1]
    real = found["Policies, real extents, 1 thread"][1]
    assert (small[0][4], real[0][4]) == ("2.000", "8.000")


def test_baselines_are_listed_with_policies_and_searches():
    rows = [
        row("a", 2.0, "r", "a"),
        row("a", 3.0, "r", "a", method="all/search:evolve"),
        row("a", 0.5, "r", "a", method="baseline/jax.jit"),
    ]
    found = tables.tables(rows)
    for title in ("Policies", "Searches"):
        _, cells = found[f"{title}, small extents, 1 thread"]
        assert [line[0] for line in cells][-1] == "baseline/jax.jit"
    # They decide nothing, so they win nothing.
    assert [line.split(":")[0] for line in report.largest_wins(rows)] == ["a"]


def test_a_report_names_the_version_of_its_rows():
    rows = [
        row("a", 2.0, "r", "a", commit="c1", version="v1", measured_at=100.0),
        row("b", 2.0, "r", "b", commit="c1+changes", version="v1", measured_at=300.0),
    ]
    facts = report.provenance(rows, started=200.0)
    assert "c1+changes" in facts["rows made by"]
    assert "Several commits with the same sources" in facts["rows made by"]
    assert facts["from the store"].startswith("1 of 2 rows were measured before")
    assert "1970-01-01 00:01 UTC" in facts["from the store"]
    fresh = report.provenance(rows[:1], started=50.0)
    assert "from the store" not in fresh
    assert "Several" not in fresh["rows made by"]
    mixed = report.provenance([rows[0], replace(rows[1], version="v2")], started=0.0)
    assert "different sources are mixed" in mixed["rows made by"]


def test_modules_that_were_not_played_are_named():
    rows = [row("a", 2.0, "r", "a")]
    assert report.not_played(["a"], rows) == ""
    assert report.not_played(["a", "b"], rows) == "**1 of 2**: b"


def make_repository(root: Path) -> None:
    (root / "python" / "hloenv" / "cli").mkdir(parents=True)
    (root / "csrc").mkdir()
    (root / "python" / "hloenv" / "timing.py").write_text("X = 1  # one\n")
    (root / "python" / "hloenv" / "cli" / "show.py").write_text("Y = 1\n")
    (root / "csrc" / "a.cc").write_text("int x = 1;  // one\n")
    git = ["git", "-C", str(root), "-c", "user.name=t", "-c", "user.email=t@t"]
    subprocess.run([*git, "init", "-q"], check=True)
    subprocess.run([*git, "add", "."], check=True)
    subprocess.run([*git, "commit", "-q", "-m", "first"], check=True)


def test_the_version_follows_the_sources_that_matter(tmp_path):
    make_repository(tmp_path)
    first = code_version(tmp_path)
    (tmp_path / "csrc" / "a.cc").write_text("int x = 1;  // another comment\n")
    (tmp_path / "python" / "hloenv" / "timing.py").write_text('"""Says."""\nX = 1\n')
    with_docstring = code_version(tmp_path)
    (tmp_path / "python" / "hloenv" / "timing.py").write_text('"""More."""\nX = 1\n')
    assert code_version(tmp_path) == with_docstring
    (tmp_path / "python" / "hloenv" / "cli" / "show.py").write_text("Y = 2\n")
    assert code_version(tmp_path) == with_docstring
    (tmp_path / "python" / "hloenv" / "timing.py").write_text('"""Says."""\nX = 2\n')
    assert code_version(tmp_path) not in (first, with_docstring)
    (tmp_path / "python" / "hloenv" / "timing.py").write_text("X = 1\n")
    assert code_version(tmp_path) == first
    (tmp_path / "csrc" / "a.cc").write_text("int x = 2;\n")
    assert code_version(tmp_path) != first


def test_a_dirty_tree_is_named(tmp_path):
    make_repository(tmp_path)
    clean = commit_of(tmp_path)
    assert not clean.is_dirty
    assert clean.label == str(clean) == clean.id != "unknown"
    (tmp_path / "csrc" / "a.cc").write_text("int x = 2;\n")
    (tmp_path / "new.py").write_text("")
    dirty = commit_of(tmp_path)
    assert dirty.label == f"{clean.id}+changes"
    assert "from a dirty tree" in str(dirty)
    assert dirty.changed == ("csrc/a.cc", "new.py")
    # A folder in somebody else's repository is no part of it.
    assert commit_of(tmp_path / "csrc").id == "unknown"


def test_samples_depend_on_the_seed_alone():
    numbers = list(range(100))
    assert sample(numbers, 10, 1) == sample(numbers, 10, 1) != sample(numbers, 10, 2)
    assert numbers == list(range(100))


def test_kernels_have_kinds():
    assert kind_of("dot", "dot.3") == "dot"
    assert kind_of("fusion", "multiply_reduce_fusion") == "reduce"
    assert kind_of("fusion", "add_tanh_fusion.1") == "fusion or loop"
    assert kind_of("custom-call", "custom-call.1") == "other"


def test_distances_from_the_peak_add_up():
    rates = Rates(dot_flops_per_s=1e9, memory_bytes_per_s=1e9)
    profiles = [
        Profile("a", {"dot": 1.0}, flops=1e6, moved_bytes=4e5, argument_bytes=2e5),
        Profile("b", {"reduce": 1.0}, moved_bytes=2e6, argument_bytes=1e6),
        Profile("c", error="CompileError: no"),
    ]
    columns, cells = profile_table(profiles, {"a": 2e6, "b": 6e6, "c": 1.0}, rates)
    lines = {line[0]: dict(zip(columns, line, strict=True)) for line in cells}
    assert set(lines) == {"all, in sequence", "a", "b"}
    assert lines["a"]["of peak"] == "50%"
    assert lines["a"]["over lower bound"] == "2.0"
    assert lines["b"]["over lower bound"] == "6.0"
    whole = lines["all, in sequence"]
    assert (whole["dot"], whole["reduce"]) == ("25%", "75%")
    assert whole["over lower bound"] == "4.0"


def test_one_module_that_takes_too_long_does_not_fail_the_others():
    class Measured:
        """Times no module that is slow, nor others together with it."""

        def measure(self, modules, **_):
            if "slow" in modules:
                raise MeasureTimeout("it takes too long")
            return [f"of {each}" for each in modules]

    table = object.__new__(play._Table)
    table._module = table._inputs = None
    table._measurements = {}
    modules = {"a": "fast", "b": "slow", "c": "other"}
    failures = table._measure(Measured(), modules)
    assert failures == {"b": "MeasureTimeout: it takes too long"}
    assert table._measurements == {"a": "of fast", "c": "of other"}
