# SPDX-License-Identifier: Apache-2.0
"""What the driver keeps, continues and replaces, on simulated measurements."""

from __future__ import annotations

import dataclasses
import math
import os
import types

import numpy as np
import pytest

from hloenv.jax.kept import kept_path, recall_tuned
from hloenv.tune import Configuration, TuneOptions, Tuner
from hloenv.tune import tuner as tuner_module
from hloenv.tune.journal import Journal, journal_path
from hloenv.tune.measuring import Control
from hloenv.tune.program import Check
from support.tuning import STAGES, tune

WIDE = {"xla_cpu_prefer_vector_width": 512}


def test_the_second_run_continues_the_first(simulated, program):
    tune(program, mode="sequence", measurements=4)
    before = list(simulated.measured)
    entry, tuner = tune(program, mode="sequence")
    assert set(simulated.measured[len(before) :]).isdisjoint(before)
    assert tuner.state.num_known == len(before)
    assert entry.label == "forms=known, vectors=512"


def test_interrupted_builds_do_not_count_as_crashes(simulated, program, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(tuner_module, "build_candidate", interrupted)
    for _ in range(3):
        tune(program, mode="sequence")
    monkeypatch.setattr(tuner_module, "build_candidate", simulated.build)
    simulated.interrupt_at = 1
    tune(program, mode="sequence")
    _, tuner = tune(program, mode="sequence", measurements=0)
    assert tuner.state.results == {}


def test_a_build_that_ends_the_process_twice_is_left(simulated, program):
    found = [Tuner(program, TuneOptions(stages=STAGES)) for _ in range(2)]
    configuration = Configuration((("vectors", "512"),))
    for each in found:
        each._journal.begin(configuration)
    _, tuner = tune(program, mode="sequence")
    assert tuner.state.results[configuration].error == "it ended the process"
    assert configuration not in simulated.measured


def test_results_with_other_threads_are_not_taken(simulated, program, monkeypatch):
    monkeypatch.setattr("os.cpu_count", lambda: 8)
    tune(program, mode="sequence", measurements=4, threads=3)
    _, tuner = tune(program, mode="sequence", measurements=0, threads=1)
    assert tuner.state.num_known == 0
    _, tuner = tune(program, mode="sequence", measurements=0, threads=3)
    assert tuner.state.num_known == len(simulated.measured)


def test_results_are_judged_by_the_class_of_each_tuning(simulated, program):
    simulated.speedup_of, simulated.error = lambda _: 1.5, 1e-9
    options = {"mode": "sequence", "stages": ("codegen",)}
    exact, tuner = tune(program, numerics="exact", **options)
    assert exact.is_identity
    assert tuner.state.results
    _, tuner = tune(program, measurements=0, **options)
    assert tuner.state.num_known
    assert {each.error for each in tuner.state.results.values()} == {""}
    tune(program, **options)
    _, tuner = tune(program, numerics="exact", **options)
    assert tuner.state.best is None


def test_a_module_measured_with_other_cores_is_not_kept(simulated, program):
    more = len(os.sched_getaffinity(0)) + 1
    elsewhere = types.SimpleNamespace(submit=print)  # where there may be more
    _, tuner = tune(program, mode="sequence", threads=more, executor=elsewhere)
    assert f"measured with {more} cores" in tuner.state.messages[-1]
    assert not kept_path(program.key).exists()
    tune(program, mode="sequence")
    assert kept_path(program.key).exists()


def test_again_measures_everything_again(simulated, program):
    tune(program, mode="sequence", measurements=4)
    before = list(simulated.measured)
    tune(program, mode="sequence", measurements=4, is_again=True)
    assert simulated.measured[len(before) :] == before


def test_a_journal_cut_off_anywhere_loses_one_measurement_at_most(
    simulated, program, tmp_path
):
    tune(program, mode="sequence", measurements=6)
    (path,) = (tmp_path / "tuned").glob("*.journal")
    assert path == journal_path(path)
    text = path.read_bytes()
    lines = [len(each) + 1 for each in text.split(b"\n")]
    for cut in range(0, len(text), 97):
        path.write_bytes(text[:cut])
        whole = text[:cut].count(b'\n{"result"')
        _, tuner = tune(program, mode="sequence", measurements=0)
        assert whole - 1 <= tuner.state.num_known <= whole
    assert lines


def test_where_nothing_can_be_kept_nothing_is_said_to_be(simulated, program, tmp_path):
    simulated.options = WIDE
    (tmp_path / "tuned").write_text("no folder")
    found, tuner = tune(program, mode="sequence")
    assert not found.is_identity
    assert not tuner.state.is_kept
    assert tuner.state.journal is None
    (tmp_path / "tuned").unlink()
    _, tuner = tune(program, mode="sequence", keep=False)
    assert not tuner.state.is_kept
    _, tuner = tune(program, mode="sequence")
    assert tuner.state.is_kept
    assert tuner.state.journal.exists()


def test_an_aborted_tuning_does_not_replace_what_is_kept(simulated, program):
    simulated.options = WIDE
    found, _ = tune(program, mode="sequence")
    assert not found.is_identity
    assert recall_tuned(program.key).label == found.label
    simulated.speedup_of = lambda _: 0.5
    options = {"mode": "sequence", "is_again": True}
    for aborted in ({"measurements": 0}, {"stages": ("codegen",)}):
        entry, _ = tune(program, **(options | aborted))
        assert entry.is_identity
        assert recall_tuned(program.key).label == found.label
    simulated.interrupt_at = len(simulated.measured) + 2
    entry, _ = tune(program, stages=None, **options)
    assert entry.is_identity
    assert recall_tuned(program.key).label == found.label


def test_a_short_search_keeps_that_it_found_nothing(simulated, program):
    tune(program, mode="sequence", measurements=0)
    assert "no measurement" in recall_tuned(program.key).reason
    simulated.speedup_of = lambda _: 0.5
    tune(program, mode="sequence", measurements=2)
    assert recall_tuned(program.key).reason == "nothing was measured to be faster"


def test_a_whole_search_that_finds_nothing_replaces_what_is_kept(simulated, program):
    simulated.options = WIDE
    tune(program, mode="sequence")
    simulated.speedup_of = lambda _: 0.5
    entry, _ = tune(program, mode="sequence", stages=None, is_again=True)
    assert entry.is_identity
    assert recall_tuned(program.key).is_identity


def test_what_is_measured_again_replaces_the_best(simulated, program):
    options = {"mode": "sequence", "stages": ("forms",)}
    found, _ = tune(program, **options)
    assert not found.is_identity
    simulated.speedup_of = lambda _: 0.5
    tune(program, is_again=True, **options)
    _, tuner = tune(program, measurements=0, **options)
    assert tuner.state.num_known
    assert tuner.state.best is None


def test_what_other_modes_have_found_does_not_count(simulated, program):
    tune(program, mode="sequence")
    count = len(simulated.measured)
    _, tuner = tune(program, mode="alone", measurements=0)
    assert tuner.state.results == {}
    _, tuner = tune(program, mode="sequence", measurements=0)
    assert tuner.state.num_known == count


def test_a_check_that_ends_the_process_twice_is_left(simulated, program, monkeypatch):
    class KilledError(BaseException):
        pass

    def check(recipe, seconds):
        raise KilledError

    checked = dataclasses.replace(program, check=check)
    # Of a process that ends, nothing else is written.
    monkeypatch.setattr(Journal, "end", lambda *_: None)
    for _ in range(2):
        with pytest.raises(KilledError):
            tune(checked, mode="sequence")
    entry, _ = tune(
        dataclasses.replace(program, check=lambda *_: Check(1.2, (1.1, 1.3))),
        mode="sequence",
        measurements=0,
    )
    assert entry.label != "forms=known, vectors=512"


def test_ctrl_c_keeps_what_was_found(simulated, program):
    simulated.interrupt_at = 8
    entry, tuner = tune(program, mode="sequence")
    assert entry.label == "forms=known"
    assert any("interrupted" in each for each in tuner.state.messages)
    assert tuner.state.is_interrupted
    assert len(simulated.measured) == 8


def test_results_on_other_inputs_are_not_taken(simulated, program):
    tune(program, mode="sequence", measurements=4)
    other = dataclasses.replace(program, inputs=[np.ones((64, 64), np.float32)])
    _, tuner = tune(other, mode="sequence", measurements=0)
    assert tuner.state.num_known == 0
    _, tuner = tune(program, mode="sequence", measurements=0)
    assert tuner.state.num_known == len(simulated.measured)


@pytest.mark.parametrize("options", [{"mode": "alone"}, {"mode": "sequence"}])
def test_a_worse_result_does_not_replace_one_that_is_as_fast_as_before(
    simulated, program, options
):
    simulated.options = WIDE
    best, _ = tune(program)
    assert best.speedup > 2
    worse, tuner = tune(program, is_again=True, stages=None, **options)
    assert 1 < worse.speedup < best.speedup
    assert recall_tuned(program.key).label == best.label
    assert "measured again and is faster" in tuner.state.messages[-1]


def test_what_is_kept_is_the_result_where_nothing_else_is_faster(simulated, program):
    simulated.options = WIDE
    best, _ = tune(program, mode="sequence", stages=None)
    # Of a function, whose last check finds nothing faster this time.
    checked = dataclasses.replace(program, check=lambda *_: Check(1.0, (0.9, 1.1)))
    entry, tuner = tune(checked, mode="sequence", stages=None)
    assert entry == recall_tuned(program.key) == best
    assert not entry.is_identity
    assert "it is the result of this one, too" in tuner.state.messages[-1]


def test_a_run_under_changing_load_that_finds_less_replaces_nothing(simulated, program):
    simulated.options = WIDE
    best, _ = tune(program, mode="sequence", stages=None)
    simulated.control_of = Control((0.9, 1.5), 50_000.0)
    entry, _ = tune(program, is_again=True, mode="sequence", stages=None)
    assert entry.speedup < best.speedup
    assert recall_tuned(program.key) == best


def test_a_configuration_that_took_too_long_once_is_tried_again(simulated, program):
    simulated.failure = "MeasureTimeout"
    simulated.speedup_of = lambda each: (
        math.nan if each.of("forms") or each.of("calls") else 1.0
    )
    counts = []
    for _ in range(3):
        before = len(simulated.measured)
        tune(program, mode="sequence", stages=("forms",))
        counts.append(len(simulated.measured) - before)
    assert counts[0] == counts[1] > 0
    assert counts[2] == 0
    before = len(simulated.measured)
    tune(program, mode="sequence", stages=("forms",), timeout_s=1000.0)
    assert len(simulated.measured) - before == counts[0]


def test_ctrl_c_within_a_batch_keeps_what_was_measured(simulated, program):
    simulated.interrupt_at = 3
    _, tuner = tune(program, mode="sequence", batch=8, stages=("codegen",))
    assert tuner.state.is_interrupted
    assert set(simulated.measured[:2]) == set(tuner.state.results)


def test_ctrl_c_in_the_last_check_begins_it_again_once(simulated, program, monkeypatch):
    best, _ = tune(program, mode="sequence", is_again=True)
    again, left = simulated.again, []

    def interrupted(candidate, *, round_):
        if left:
            left.pop()
            raise KeyboardInterrupt
        return again(candidate, round_=round_)

    monkeypatch.setattr(simulated, "again", interrupted, raising=False)
    left.append(1)
    entry, tuner = tune(program, mode="sequence", is_again=True)
    assert (entry.label, left) == (best.label, [])
    assert tuner.state.is_interrupted
    assert "the last check begins again" in tuner.state.messages[-1]
    left += [1, 1]
    with pytest.raises(KeyboardInterrupt):
        tune(program, mode="sequence", is_again=True)
