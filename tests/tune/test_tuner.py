# SPDX-License-Identifier: Apache-2.0
"""What the driver selects, on simulated measurements."""

from __future__ import annotations

import contextlib
import dataclasses
import math

import numpy as np
import pytest

import hloenv
from hloenv.errors import ArgumentError
from hloenv.tune import Configuration, TuneOptions, Tuner
from hloenv.tune import tuner as tuner_module
from hloenv.tune.arms import Bandit
from hloenv.tune.journal import Journal
from hloenv.tune.measuring import Control
from hloenv.tune.program import Check, program_of_module
from hloenv.tune.rules import Rules, rules_for
from support.tuning import MODULE, STAGES, STEADY, tune


@pytest.mark.needs("optuna")
@pytest.mark.parametrize("seed", range(8))
def test_jointly_finds_what_the_stages_alone_do_not(simulated, program, seed):
    # What a sequence finds: the engine is decided first, and alone it does not pay.
    sequence, _ = tune(program, mode="sequence", keep=False)
    assert sequence.label == "forms=known, vectors=512"
    alone, _ = tune(program, mode="alone", keep=False)
    jointly, _ = tune(program, mode="jointly", keep=False, seed=seed)
    assert jointly.label == "engine=wheel, forms=known, fusion=by-bytes"
    assert sequence.speedup < alone.speedup < jointly.speedup


@pytest.mark.needs("optuna")
def test_jointly_finds_it_though_measurements_take_different_times(simulated, program):
    """The bandit prefers what is measured faster; one of eight may miss the pair."""
    found = 0
    for seed in range(8):
        spread = np.random.default_rng(seed)
        simulated.seconds_of = lambda spread=spread: float(spread.lognormal(0.0, 1.0))
        jointly, _ = tune(program, mode="jointly", keep=False, seed=seed)
        found += {"engine=wheel", "fusion=by-bytes"} <= set(jointly.label.split(", "))
    assert found >= 7


def test_alone_has_a_row_for_each_stage(simulated, program):
    entry, _ = tune(program, mode="alone")
    rows = {each["stage"]: each for each in entry.stages}
    assert list(rows) == list(STAGES)
    assert rows["forms"]["alone"][0] == pytest.approx(1.2, rel=0.01)
    assert rows["fusion"]["decided"] == "fusion=by-bytes"
    # Over the engine that it needs, which takes a tenth longer: not the 1.8 of both.
    assert rows["fusion"]["alone"][0] == pytest.approx(2.0, rel=0.01)
    assert rows["engine"]["decided"] == "xla"


def test_a_stage_is_not_worth_what_its_engine_is(simulated, program):
    """The wheel's XLA is three times as fast, its fusions change nothing."""
    simulated.speedup_of = lambda each: 3.0 if each.of("engine") == "wheel" else 1.0
    for mode in ("alone", "sequence"):
        entry, _ = tune(program, mode=mode, keep=False)
        rows = {each["stage"]: each["alone"] for each in entry.stages}
        assert rows["engine"][0] == pytest.approx(3.0, rel=0.01)
        assert rows.get("fusion", [1.0])[0] == pytest.approx(1.0, rel=0.01)


def test_the_ablation_has_the_gain_of_each_stage(simulated, program):
    entry, _ = tune(program, mode="sequence")
    rows = {each["stage"]: each for each in entry.stages}
    assert rows["codegen"]["alone"][0] == pytest.approx(1.1, rel=0.01)
    assert rows["codegen"]["without"][0] == pytest.approx(1.2, rel=0.01)


def test_a_long_function_has_time_for_its_last_check(simulated, program):
    given = []

    def check(recipe, seconds):
        given.append(seconds)
        return Check(1.2, (1.1, 1.3))

    checked = dataclasses.replace(program, check=check)
    tune(checked, mode="sequence", keep=False)
    simulated.control_of = simulated.later_control = Control((0.99, 1.01), 4e9)
    tune(checked, mode="sequence", keep=False)
    assert given == pytest.approx([1.0, 6.0])


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"measurements": 0}, "measurements=0"),
        ({"seconds": 1e-9}, "the budget of 1e-09 s ended before the first"),
    ],
)
def test_without_a_measurement_the_reason_says_so(simulated, program, options, reason):
    entry, _ = tune(program, mode="sequence", **options)
    assert reason in entry.reason


@pytest.mark.parametrize(
    ("options", "donates"),
    [
        ({"stages": ("forms",), "numerics": "exact"}, False),
        ({"stages": ("layout",)}, False),
        ({"stages": ("engine",)}, True),
    ],
)
def test_an_empty_space_is_an_error(program, options, donates):
    with pytest.raises(ArgumentError, match=f"stages {options['stages'][0]} with"):
        Tuner(dataclasses.replace(program, donates=donates), TuneOptions(**options))


def test_the_budget_of_measurements_holds(simulated, program):
    tune(program, mode="sequence", measurements=5)
    assert len(simulated.measured) <= 5 + 4  # those of the ablation


@pytest.mark.needs("optuna")
def test_the_result_does_not_depend_on_the_order_of_completion(
    simulated, program, monkeypatch
):
    # The time that a measurement takes is no part of its result.
    monkeypatch.setattr(Bandit, "_cost", lambda *_: 1.0)
    tune(program, keep=False, batch=4)
    first = list(simulated.measured)

    def in_order(candidates, **_):
        for number, candidate in candidates.items():
            simulated.measured.append(candidate.configuration)
            yield number, simulated.record(candidate.configuration)

    monkeypatch.setattr(simulated, "measure", in_order)
    simulated.measured.clear()
    tune(program, keep=False, batch=4)
    assert len(first) == len(simulated.measured)
    assert set(first) == set(simulated.measured)


def test_nothing_faster_is_the_identity(simulated, program):
    simulated.speedup_of = lambda _: 0.98
    entry, _ = tune(program, mode="sequence")
    assert entry.is_identity
    assert entry.reason == "nothing was measured to be faster"
    assert entry.speedup == 1.0


def test_what_fails_the_last_check_is_not_taken(simulated, program):
    def check(recipe, seconds):
        is_best = recipe.options["xla_x"] == "forms=known, vectors=512"
        return Check(1.2, (1.1, 1.3), "its outputs differ" if is_best else "")

    entry, _ = tune(dataclasses.replace(program, check=check), mode="sequence")
    assert "forms=known" in entry.label
    assert entry.label != "forms=known, vectors=512"
    assert entry.interval == (1.1, 1.3)


def test_if_all_fail_the_last_check_it_is_the_identity_with_the_reason(
    simulated, program
):
    def check(recipe, seconds):
        return Check(0.9, (0.8, 1.1))

    entry, _ = tune(dataclasses.replace(program, check=check), mode="sequence")
    assert entry.is_identity
    assert "not clearly faster in the last check (0.800 to 1.100)" in entry.reason


def test_failures_are_no_results(simulated, program):
    simulated.speedup_of = lambda each: math.nan if each.of("forms") else 1.0
    entry, tuner = tune(program, mode="sequence")
    assert entry.is_identity
    failed = [each for each in tuner.state.results.values() if each.error]
    assert [each.error for each in failed] == ["CompileError: no"] * len(failed) != []


def test_a_machine_whose_load_changes_widens_the_intervals(simulated, program):
    simulated.control_of = Control((0.8, 1.0), 50_000.0)
    entry, tuner = tune(program, mode="sequence")
    assert any("load of the machine" in each for each in tuner.state.messages)
    low, high = entry.interval
    assert low == pytest.approx(1.32 * 0.8, rel=0.02)
    assert high == pytest.approx(1.32 / 0.8, rel=0.02)


def test_a_load_that_comes_later_widens_the_last_interval(simulated, program):
    simulated.later_control = Control((0.9, 1.0), 50_000.0)
    entry, tuner = tune(program, mode="sequence")
    assert simulated.controls == 2
    assert any("load of the machine" in each for each in tuner.state.messages)
    assert entry.interval[0] == pytest.approx(1.32 * 0.9, rel=0.02)


def test_a_gain_below_the_noise_is_the_identity(simulated, program):
    simulated.control_of = Control((0.5, 2.0), 50_000.0)
    entry, _ = tune(program, mode="sequence")
    assert entry.is_identity


def test_a_run_below_the_clock_is_not_tuned(simulated, program):
    simulated.control_of = Control((0.99, 1.01), 300.0)
    entry, _ = tune(program)
    assert "300 ns" in entry.reason
    assert simulated.measured == []


def test_exact_takes_bitwise_equal_outputs_only(simulated, program):
    simulated.speedup_of = lambda _: 1.5
    entry, _ = tune(program, mode="sequence", numerics="exact")
    assert (entry.numerics, entry.is_bitwise) == ("exact", True)
    simulated.error = 1e-9
    entry, tuner = tune(program, mode="sequence", numerics="exact", keep=False)
    assert entry.is_identity
    assert {each.error for each in tuner.state.results.values()} == {
        "its outputs are not bitwise equal"
    }


def test_what_was_best_for_a_near_module_is_tried_first(simulated, program):
    tune(program, mode="sequence")
    simulated.measured.clear()
    larger = hloenv.HloModule.from_text(MODULE.replace("64", "96"))
    with contextlib.suppress(ImportError):
        tune(program_of_module(larger), is_warm=True, measurements=1, batch=1)
    assert simulated.measured[0].text == "forms=known, vectors=512"


def test_the_state_is_shown(simulated, program):
    seen = []

    def show(state):
        seen.append((state.stage, state.num_measured))

    Tuner(program, TuneOptions(mode="sequence", stages=STAGES), on_change=show).run()
    assert seen[0][0] == "control"
    assert seen[-1][0] == "check"
    assert {"forms", "codegen", "ablation"} <= {stage for stage, _ in seen}


@pytest.mark.parametrize(
    "options",
    [
        {"seconds": 0},
        {"seconds": math.nan},
        {"seconds": math.inf},
        {"measurements": -1},
        {"mode": "both"},
        {"batch": 0},
        {"threads": 0},
        {"timeout_s": 0},
        {"timeout_s": math.inf},
    ],
)
def test_wrong_options_are_errors(options):
    with pytest.raises(ArgumentError):
        TuneOptions(**options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"numerics": "bar"}, "must be one of exact, reassociating, .* got 'bar'"),
        ({"stages": ("x",)}, "'x' is not a stage; use one or several of .*forms"),
        ({"stages": ()}, "there are no stages; use one or several of .*forms"),
        ({"stages": "forms"}, "stages must be a tuple of names, got 'forms'"),
        ({"stages": 5}, "stages must be a tuple of names, got 5"),
        ({"seconds": "5"}, "seconds must be a number > 0, got '5'"),
        ({"timeout_s": "x"}, "timeout_s must be a number > 0, got 'x'"),
        ({"seconds": True}, "seconds must be a number > 0, got True"),
        ({"batch": "x"}, "batch must be an integer >= 1, got 'x'"),
        ({"seed": "a"}, "seed must be an integer >= 0, got 'a'"),
        ({"seed": -1}, "seed must be an integer >= 0, got -1"),
        ({"seed": None}, "seed must be an integer >= 0, got None"),
        ({"measurements": 1.5}, "measurements must be an integer >= 0, got 1.5"),
        ({"workers": 1.5}, "workers must be an integer >= 1, got 1.5"),
        ({"threads": 1.5}, "threads must be an integer >= 1, got 1.5"),
        ({"threads": 10**6}, "from 1 to .*, the cores of this machine, got 1000000"),
        ({"executor": 5}, "executor must be an object with a method `submit`.*got 5"),
        ({"search": "nope"}, "search: no search is named 'nope'; .* are anneal"),
        ({"search": 5}, "search must be the name of a search, or '' for none, got 5"),
        ({"keep": "no"}, "keep must be a bool, got 'no'"),
        ({"mode": []}, r"mode must be one of .* got \[\]"),
    ],
)
def test_wrong_options_say_what_is_allowed(options, message):
    with pytest.raises(ArgumentError, match=message):
        TuneOptions(**options)


def test_options_of_numpy_and_other_machines_are_taken():
    class Cluster:
        def submit(self, task): ...

    options = TuneOptions(seconds=np.float32(3), seed=np.int64(7), search="")
    assert options.seconds == 3
    assert TuneOptions(threads=10**6, executor=Cluster()).cores == 10**6
    assert TuneOptions(search="my.py:Search", stages=["forms"]).proposals == 2


def test_two_unsteady_controls_are_no_steady_one(simulated, program):
    """Both miss 1; their union does not."""
    simulated.control_of = Control((1.01, 1.03), 50_000.0)
    simulated.later_control = Control((0.985, 0.995), 50_000.0)
    entry, _ = tune(program, mode="sequence")
    assert entry.interval[0] == pytest.approx(1.32 / 1.03, rel=0.02)


def test_where_nothing_is_faster_stages_alone_have_their_rows(simulated, program):
    simulated.speedup_of = lambda _: 0.98
    entry, _ = tune(program, mode="alone")
    assert entry.is_identity
    assert {each["stage"] for each in entry.stages} == set(STAGES)


def test_stages_alone_are_reported_as_measured_again(simulated, program):
    simulated.again_of = lambda _: 1.05
    entry, _ = tune(program, mode="alone")
    alone = {each["stage"]: each["alone"][0] for each in entry.stages}
    assert alone["forms"] == pytest.approx(1.05, rel=0.01)


def test_the_ablation_is_of_the_result_that_it_began_with(simulated, program):
    """It finds out that without the forms the rest is better."""
    speedups = {
        "forms=known": 1.2,
        "forms=known, vectors=512": 1.3,
        "vectors=512": 1.5,
    }
    simulated.speedup_of = lambda each: speedups.get(each.text, 1.0)
    entry, _ = tune(program, mode="sequence")
    assert entry.label == "vectors=512"
    assert entry.stages == ()


def test_a_slow_stage_leaves_the_others_their_share(simulated, program, monkeypatch):
    """As forms of a network, whose compilation takes most of a short budget."""
    asked = []
    real = Tuner._measured

    def slow(self, measuring, batch):
        asked.extend((arm.name, self._until) for _, arm in batch[:1])
        if self.state.stage == "forms":
            self._started -= 0.65 * self._options.seconds
        return real(self, measuring, batch)

    monkeypatch.setattr(Tuner, "_measured", slow)
    tune(program, mode="sequence", seconds=60.0, keep=False)
    stages = [name for name, _ in asked]
    # With fixed shares, 0.56 of the seconds are over before the next one begins.
    assert [each for each in dict.fromkeys(stages) if each in STAGES] == list(STAGES)
    assert all(until <= 1.0 for _, until in asked)


@pytest.mark.needs("optuna")
@pytest.mark.parametrize(("control_s", "label"), [(1.5, "forms=known"), (3.5, "")])
def test_what_the_rules_take_is_measured_even_late(
    simulated, program, monkeypatch, control_s, label
):
    """As of a network whose compilation alone takes more than a short budget."""

    def control(**_):
        simulated.now += control_s
        return STEADY

    monkeypatch.setattr(simulated, "control", control)
    found = Rules(labels=("dot-forms/swapped",))
    monkeypatch.setattr(tuner_module, "rules_for", lambda *_: found)
    entry, tuner = tune(program, seconds=1.0, keep=False)
    assert entry.label == label
    assert tuner.state.num_measured == bool(label)
    # Where no rule applies, the budget holds.
    monkeypatch.setattr(tuner_module, "rules_for", lambda *_: Rules())
    _, tuner = tune(program, seconds=1.0, keep=False)
    assert tuner.state.num_measured == 0


def test_rules_are_looked_for_where_they_may_be_used(tmp_path):
    module = hloenv.HloModule.from_text("""HloModule m
ENTRY e { x = f32[4,64,64,1] parameter(0)
  k = f32[5,5,1,1] parameter(1)
  ROOT c = f32[4,64,64,1] convolution(x, k), window={size=5x5 pad=2_2x2_2},
    dim_labels=b01f_01io->b01f }
""")
    journal = Journal(tmp_path / "a.journal", {})
    assert rules_for(module, TuneOptions(), journal).labels
    for options in (
        TuneOptions(stages=("codegen",)),
        TuneOptions(stages=("forms",), numerics="exact"),
    ):
        assert rules_for(module, options, journal) == Rules()
    for _ in range(2):  # it has ended the process
        journal.begin(Configuration((("forms", "known"),)))
    again = Journal(tmp_path / "a.journal", {})
    assert rules_for(module, TuneOptions(), again) == Rules()
