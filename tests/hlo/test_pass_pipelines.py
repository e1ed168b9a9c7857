# SPDX-License-Identifier: Apache-2.0
"""Runs of pipelines, and what they report."""

from __future__ import annotations

from hloenv.hlo.passes import Pass, Pipeline, as_pipeline, run_passes, to_core
from support.modules import ADD_ZERO, CALLS


def test_pipeline_runs_once_by_default():
    run = run_passes(ADD_ZERO, Pipeline("simplify", ["algsimp", "dce"]))
    assert (run.iterations, run.stop_reason, run.changed) == (1, "ran-once", True)
    assert [step.path for step in run.steps] == ["algsimp", "dce"]
    assert all(step.duration_ns > 0 for step in run.steps)


def test_fixed_point_stops_when_a_round_changes_nothing():
    pipeline = Pipeline("simplify", ["algsimp", "dce"], fixed_point=True)
    run = run_passes(ADD_ZERO, pipeline)
    assert (run.iterations, run.stop_reason, run.changed) == (2, "converged", True)
    assert [step.changed for step in run.steps[2:]] == [False, False]


def test_fixed_point_stops_at_the_iteration_limit():
    pipeline = Pipeline("simplify", ["algsimp"], fixed_point=True, max_iterations=1)
    run = run_passes(ADD_ZERO, pipeline)
    assert (run.iterations, run.stop_reason) == (1, "iteration-limit")


def test_fixed_point_that_changes_nothing_reports_no_change():
    pipeline = Pipeline("simplify", ["logistic-expander"], fixed_point=True)
    run = run_passes(ADD_ZERO, pipeline)
    assert (run.iterations, run.stop_reason, run.changed) == (1, "converged", False)


def test_nested_pipelines_report_their_steps_by_path():
    inner = Pipeline("inner", ["algsimp"], fixed_point=True)
    run = run_passes(ADD_ZERO, Pipeline("outer", ["cse", inner]))
    assert [(step.path, step.iteration, step.changed) for step in run.steps] == [
        ("cse", 0, False),
        ("inner", 0, True),
        ("inner/algsimp", 0, True),
        ("inner/algsimp", 1, False),
    ]


def test_several_passes_run_in_order():
    folded = run_passes(CALLS, "call-inliner", "dce").module
    assert folded.opcode_counts().get("call", 0) == 0


def test_pass_alone_is_a_pipeline_with_its_name():
    one = Pass("cse", is_layout_sensitive=True)
    assert as_pipeline("cse") == Pipeline("cse", ["cse"])
    assert as_pipeline(one) == Pipeline("cse", [one])
    assert as_pipeline(Pipeline("mine", ["cse"])).name == "mine"
    assert to_core(as_pipeline(one)).name == "cse"
