# SPDX-License-Identifier: Apache-2.0
"""The matrix of the invariants: wanted cells, stored rows, repeated runs, failures."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import hloenv
from hloenv.fuzz import cells, matrix, sweep
from hloenv.fuzz.invariants import Report, parse
from hloenv.fuzz.matrix import _check_default, check_default
from hloenv.fuzz.results import Results, Row
from hloenv.fuzz.subjects import Subject, find_subjects
from hloenv.fuzz.summary import Summary
from hloenv.fuzz.sweep import Limits, Sweep, Task, missing_tasks, sampled_tasks
from hloenv.fuzz.versions import CodeVersions
from hloenv.process.forkserver import Job, Pool, note, starts

_TEXT = """HloModule m

ENTRY main {
  p = f32[SIZE]{0} parameter(0)
  zero = f32[] constant(0)
  zeros = f32[SIZE]{0} broadcast(zero), dimensions={}
  ROOT r = f32[SIZE]{0} add(p, zeros)
}
"""


def _subject(size: int) -> Subject:
    text = _TEXT.replace("SIZE", str(size))
    fingerprint = hloenv.HloModule.from_text(text).fingerprint()
    return Subject(f"size {size}", fingerprint, size, float(size), _read=lambda: text)


def _extent(kind: str = "structure", **changes: object) -> cells.Extent:
    passes = ("algsimp", "cse")
    every = hloenv.list_passes()
    extent = cells.Extent(kind, every, passes, 10, 0, 2, 1000, 2, 1)
    return replace(extent, **changes)  # type: ignore[arg-type]


# --- what is wanted -----------------------------------------------------------


def test_the_extents_hold_what_is_asked_for() -> None:
    extents = cells.default_extents()
    structure, values = extents["structure"], extents["values"]
    assert len(structure.busy) >= 20
    assert set(cells.candidates()) <= set(structure.busy) & set(values.busy)
    assert set(structure.busy) <= set(hloenv.list_passes())
    assert structure.busy_modules >= 3689
    assert structure.other_modules >= 1000
    assert values.busy_modules >= 2000
    assert values.other_modules >= 300


def test_every_busy_pass_is_checked_on_every_module_where_it_may_be() -> None:
    subjects = [_subject(size) for size in range(2, 6)]
    plan = cells.Plan(subjects, [_extent()])
    for subject in subjects:
        found = plan.cells("structure", subject)
        assert set(found) == set(cells.VARIANTS)
        for variant, names in found.items():
            assert {"algsimp", "cse"} <= set(names), variant
            assert sum("," in name for name in names) >= 1


def test_on_large_modules_busy_passes_are_checked_at_home_and_some_elsewhere() -> None:
    subjects = [_subject(size) for size in range(2, 32)]
    plan = cells.Plan(
        subjects, [_extent(everywhere=1, busy_modules=30, other_modules=0)]
    )
    variants = [
        variant
        for subject in subjects
        for variant, names in plan.cells("structure", subject).items()
        if "algsimp" in names
    ]
    at_home = variants.count(cells.home_of("algsimp"))
    assert at_home == len(subjects)
    assert 0 < len(variants) - at_home < len(subjects)


def test_every_other_pass_is_checked_on_so_many_modules() -> None:
    subjects = [_subject(size) for size in range(2, 8)]
    plan = cells.Plan(subjects, [_extent()])
    found = [
        name for _, _, name in plan.all_cells("structure") if name == "dot_decomposer"
    ]
    assert len(found) == 2


def test_what_was_drawn_stays_wanted_when_a_pass_is_added() -> None:
    subjects = [_subject(size) for size in range(2, 42)]
    busy = ("algsimp", "reduce-forms", "cse", "sort-forms", "dot-forms")
    extent = _extent(busy=busy, busy_modules=40, everywhere=20)
    extents = (
        replace(
            extent,
            passes=tuple(name for name in extent.passes if name != "sort-forms"),
            busy=tuple(name for name in busy if name != "sort-forms"),
        ),
        extent,
    )
    before, after = (
        set(cells.Plan(subjects, [each]).all_cells("structure")) for each in extents
    )
    assert before < after
    added = [names.split(",") for *_, names in after - before]
    assert {len(names) for names in added if "sort-forms" in names} == {1, 2}


def test_the_first_cells_and_the_rest_are_all() -> None:
    subject = _subject(2)
    plan = cells.Plan([subject], [_extent()])
    parts = [
        {
            (variant, name)
            for variant, names in plan.cells(
                "structure", subject, is_first=is_first
            ).items()
            for name in names
        }
        for is_first in (True, False, None)
    ]
    assert parts[0]
    assert parts[1]
    assert parts[0] | parts[1] == parts[2]


@pytest.mark.parametrize(
    ("name", "home"),
    [
        ("general-simplify", "simplification"),
        ("general-fusion", "fusion"),
        ("fusion", "fusion"),
        ("call-inliner", "raw"),
        ("copy-insertion", "copy-insertion"),
    ],
)
def test_passes_are_decided_where_xla_or_a_benchmark_does(name: str, home: str) -> None:
    assert cells.home_of(name) == home
    assert home in cells.variants_of(name)


def test_passes_are_not_decided_where_they_give_wrong_results() -> None:
    assert cells.variants_of("simplification") == ("raw", "simplification")


@pytest.mark.needs("pyarrow")
def test_the_dataset_is_all_there() -> None:
    subjects, unread = find_subjects("dataset")
    assert not unread
    assert len(subjects) == len(hloenv.dataset.load("all"))
    assert hloenv.HloModule.from_text(subjects[0].text).fingerprint() == (
        subjects[0].fingerprint
    )


def test_a_folder_is_read(tmp_path: Path) -> None:
    (tmp_path / "a.hlo").write_text(_TEXT.replace("SIZE", "3"))
    (tmp_path / "b.hlo").write_text("no module")
    (subject,), (unread,) = find_subjects(str(tmp_path))
    assert subject.fingerprint == _subject(3).fingerprint
    assert "b.hlo" in unread


# --- what is kept -------------------------------------------------------------


def _row(**changes: object) -> Row:
    row = Row("structure", "f" * 32, "m", "raw", "cse", "v1", 1, 1)
    return replace(row, **changes)  # type: ignore[arg-type]


def test_torn_lines_are_skipped(tmp_path: Path) -> None:
    versions = CodeVersions({"structure": "v1"})
    full = _row(violations=("a",), skipped={"b": 2}, whole=(("c", "d"),))
    Results(tmp_path, versions).add([full, _row(passes="dce")], "one")
    with (tmp_path / "one.jsonl").open("a") as file:
        file.write(_row(passes="algsimp").to_json()[:-9])
    results = Results(tmp_path, versions)
    assert results.rows == {
        full.key: full,
        _row(passes="dce").key: _row(passes="dce"),
    }


def test_a_line_after_a_torn_one_is_read(tmp_path: Path) -> None:
    versions = CodeVersions({"structure": "v1"})
    (tmp_path / "one.jsonl").write_text(_row(passes="algsimp").to_json()[:-9])
    Results(tmp_path, versions).add([_row()], "one")
    assert list(Results(tmp_path, versions).rows.values()) == [_row()]


def test_rows_of_other_code_do_not_count(tmp_path: Path) -> None:
    Results(tmp_path, CodeVersions({"structure": "v1"})).add([_row()], "one")
    assert not Results(tmp_path, CodeVersions({"structure": "v2"})).rows
    assert not Results(tmp_path, CodeVersions({"values": "v1"})).rows


@pytest.mark.parametrize(
    ("changes", "state"),
    [
        ({}, "checked"),
        ({"skipped": {"why": 1}}, "partly"),
        ({"skipped": {"why": 1}, "num_checks": 0}, "skipped"),
        ({"violations": ("wrong",)}, "failed"),
    ],
)
def test_states(changes: dict[str, object], state: str) -> None:
    assert _row(**changes).state == state


# --- what is done -------------------------------------------------------------


def check(_: str, variant: str, passes: tuple[str, ...]) -> Iterator[Report]:
    """Runs in children in place of a check."""
    note(f"native load {variant}")
    if variant == "dead":
        os.abort()
    for name in passes:
        starts(name)
        note(f"structure {name}")
        if name == "in float64":
            note("expected in float64")
            time.sleep(60)
        if name == "original":
            note("expected in float64")
            os.abort()
        if name == "killer":
            os.abort()
        if name == "sleeper":
            time.sleep(60)
        violations = ("invariant 2: wrong",) if name == "wrong" else ()
        yield Report(name, 3, violations, num_checks=1)


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Sweep, Results]:
    monkeypatch.setattr(
        Task,
        "job",
        lambda task, limits: sweep.Job(
            "test_matrix:check",
            (task.subject.text, task.variant, task.passes),
            limits.timeout_s,
            is_timed_by_value=True,
        ),
    )
    results = Results(tmp_path / "results", CodeVersions({"structure": "v1"}))
    runner = Sweep(
        results,
        name="shard",
        limits=Limits(timeout_s=2, nice=0),
        failures=tmp_path / "failures",
    )
    return runner, results


def _states(results: Results) -> dict[str, str]:
    return {row.passes: row.state for row in results.rows.values()}


def test_a_crash_is_one_failure_and_the_rest_continues(
    run: tuple[Sweep, Results], tmp_path: Path
) -> None:
    runner, results = run
    task = Task("structure", _subject(2), "raw", ("a", "killer", "sleeper", "b"))
    assert runner.run([iter([task])], seconds=60)
    assert _states(results) == {
        "a": "checked",
        "killer": "failed",
        "sleeper": "skipped",
        "b": "checked",
    }
    row = results.rows["structure", task.subject.fingerprint, "raw", "killer"]
    assert "crash: structure killer" in row.violations[0]
    assert len(list((tmp_path / "failures").glob("*.hlo"))) == 1


def test_a_crash_before_the_passes_is_no_failure_of_a_pass(
    run: tuple[Sweep, Results],
) -> None:
    runner, results = run
    task = Task("structure", _subject(2), "dead", ("a", "b"))
    assert runner.run([iter([task])], seconds=60)
    assert _states(results) == {"a": "skipped", "b": "skipped"}


def test_a_timeout_in_the_middle_of_one_pass_leaves_the_others(
    run: tuple[Sweep, Results],
) -> None:
    runner, results = run
    task = Task("structure", _subject(2), "raw", ("in float64", "a", "b"))
    assert runner.run([iter([task])], seconds=60)
    assert _states(results) == {"in float64": "skipped", "a": "checked", "b": "checked"}


def test_a_crash_over_the_original_is_no_failure_of_a_pass(
    run: tuple[Sweep, Results],
) -> None:
    runner, results = run
    task = Task("structure", _subject(2), "raw", ("original", "a"))
    assert runner.run([iter([task])], seconds=60)
    assert _states(results) == {"original": "skipped", "a": "checked"}


def test_no_name_of_a_module_hides_what_ran_out_of_time(
    run: tuple[Sweep, Results],
) -> None:
    runner, results = run
    tasks = [
        Task("structure", replace(_subject(2 + i), name=name), "raw", ("sleeper",))
        for i, name in enumerate(["m", "e", "timeout", "a.b"])
    ]
    assert runner.run([iter(tasks)], seconds=60)
    assert len(results.rows) == len(tasks)
    for row in results.rows.values():
        assert row.skipped == {"timeout: structure": 1}
        assert row.is_limited
    for task in tasks:
        text = f"compile of {task.subject.name} fails at module m0"
        assert sweep.general(text, task) == "compile of … fails at module m0"


@pytest.mark.parametrize(
    ("function", "passes"),
    [
        ("check_structure", "cse"),
        ("check_values", "cse"),
        ("check_compiled_values", "cse"),
        ("check_default", "dce"),
    ],
)
def test_checks_record_the_start_of_each_pass(function: str, passes: str) -> None:
    text = _TEXT.replace("SIZE", "5")
    job = Job(f"hloenv.fuzz.matrix:{function}", (text, "raw", (passes,)))
    broken = Job(f"hloenv.fuzz.matrix:{function}", ("no module\n", "raw", (passes,)))
    with Pool() as pool:
        assert pool.run(job).started == passes
        assert pool.run(broken).started == ""


def test_a_failure_is_kept_with_its_module(
    run: tuple[Sweep, Results], tmp_path: Path
) -> None:
    runner, results = run
    task = Task("structure", _subject(2), "raw", ("wrong",))
    assert runner.run([iter([task])], seconds=60)
    assert _states(results) == {"wrong": "failed"}
    (saved,) = (tmp_path / "failures").glob("*.hlo")
    module = hloenv.HloModule.from_file(saved)
    assert module.fingerprint() == task.subject.fingerprint


def test_a_repeated_run_continues(
    run: tuple[Sweep, Results],
) -> None:
    runner, results = run
    subjects = [_subject(size) for size in range(2, 5)]
    plan = cells.Plan(subjects, [_extent(other_modules=0)])
    everything = list(missing_tasks(plan, results, "structure"))
    assert runner.run([iter(everything[:2])], seconds=60)
    left = list(missing_tasks(plan, results, "structure"))
    assert len(left) == len(everything) - 2
    assert runner.run([iter(left)], seconds=60)
    assert not list(missing_tasks(plan, results, "structure"))
    assert Summary(plan, results).is_complete


def test_the_time_limit_ends_children(run: tuple[Sweep, Results]) -> None:
    runner, results = run
    task = Task("structure", _subject(2), "raw", ("sleeper",))
    assert not runner.run([iter([task])], seconds=0.5)
    assert not results.rows


def test_shards_share_the_modules() -> None:
    subjects = [_subject(size) for size in range(2, 12)]
    plan = cells.Plan(subjects, [_extent()])
    none = Results.__new__(Results)
    none.rows = {}
    parts = [
        {task.subject.name for task in missing_tasks(plan, none, "structure", (i, 2))}
        for i in range(2)
    ]
    assert not parts[0] & parts[1]
    assert parts[0] | parts[1] == {subject.name for subject in subjects}


def test_a_sample_is_that_of_its_seed() -> None:
    subjects = [_subject(size) for size in range(2, 12)]
    plan = cells.Plan(subjects, [_extent()])

    def sample(seed: str) -> list[Task]:
        tasks = sampled_tasks(plan, seed, max_instructions=9, num_passes=2)
        return list(itertools.islice(tasks, 20))

    assert sample("a") == sample("a")
    assert sample("a") != sample("b")
    assert all(task.subject.instruction_count <= 9 for task in sample("a"))


# --- what is written ----------------------------------------------------------


def test_the_page_counts_every_cell(tmp_path: Path) -> None:
    subject = _subject(2)
    plan = cells.Plan([subject], [_extent(other_modules=0, pairs=0)], variants=["raw"])
    results = Results(tmp_path, CodeVersions({"structure": "v1"}))
    row = _row(fingerprint=subject.fingerprint, module=subject.name)
    results.add(
        [
            replace(row, passes="algsimp", violations=("invariant 3: a | b",)),
            replace(row, passes="cse", num_checks=0, skipped={"a | b": 4}),
        ],
        "one",
    )
    summary = Summary(plan, results)
    page = summary.to_markdown(["a header"])
    totals = next(line for line in page.splitlines() if "the verifier's part" in line)
    #              modules  wanted checked partly skipped failed missing alternatives
    assert totals.endswith("| 1 of 1 | 2 | 0 | 0 | 1 | 1 | 0 | 2 |")
    assert "* `algsimp` on size 2 (structure, raw): invariant 3: a | b" in page
    assert "| a \\| b | 1 | 4 |" in page
    assert [each.passes for each in summary.failures] == ["algsimp"]
    assert summary.is_complete


def test_xlas_own_decisions_give_its_default() -> None:
    text = _TEXT.replace("SIZE", "5")
    names = ("dce", "tuple-simplifier", "fusion")
    reports = list(check_default(text, cells.OWN, names))
    assert [report.passes for report in reports] == list(names)
    assert all(report.num_checks and not report.violations for report in reports)


def test_later_runs_of_a_pass_are_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    stops: dict[str, int] = {}

    def noted(module: Any, name: str, *, occurrence: int = 1) -> hloenv.HloModule:
        stops[name] = occurrence
        return hloenv.run_until(module, name, occurrence=occurrence)

    monkeypatch.setattr(matrix, "run_until", noted)
    text = _TEXT.replace("SIZE", "5")
    names = ("dce", "tuple-simplifier", "algsimp", "fusion")
    reports = list(check_default(text, cells.LATER, names))
    assert [report.passes for report in reports] == list(names)
    *several, once = reports
    assert all(report.num_checks and not report.violations for report in several)
    assert once.skipped == (f"{cells.LATER}: XLA runs it once",)
    assert set(stops) == set(names[:-1])
    assert min(stops.values()) >= 2


def test_a_quarter_of_the_modules_have_later_runs() -> None:
    subjects = [_subject(size) for size in range(2, 42)]
    extent = cells.default_extents()["default"]
    plan = cells.Plan(subjects, [extent])
    found = [
        (subject.fingerprint, name)
        for subject, variant, name in plan.all_cells("default")
        if variant == cells.LATER
    ]
    names = {name for _, name in found}
    assert names == cells.run_again_by_xla() & set(extent.busy)
    assert "fusion" not in names
    assert 0.1 < len(found) / (len(names) * len(subjects)) < 0.4


def test_another_module_than_xlas_default_is_found() -> None:
    module = hloenv.HloModule.from_text(_TEXT.replace("SIZE", "5"))
    stopped = hloenv.run_until(module, "fusion")
    report = _check_default(stopped, parse("fusion"), "another fingerprint")
    assert report.violations
