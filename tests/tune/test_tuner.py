# SPDX-License-Identifier: Apache-2.0
"""The driver, on simulated measurements and on one real program."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import os

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hloenv
from hloenv.errors import ArgumentError
from hloenv.jax import decider
from hloenv.jax.compare import Comparison
from hloenv.jax.kept import kept_path, recall_tuned
from hloenv.measurement.record import MeasureFailure, Measurement
from hloenv.runtime.compare import OutputComparison
from hloenv.tune import Artefact, Configuration, TuneOptions, Tuner
from hloenv.tune import tuner as tuner_module
from hloenv.tune.arms import Bandit
from hloenv.tune.build import Candidate
from hloenv.tune.journal import Journal, journal_path
from hloenv.tune.measuring import Control, Measuring
from hloenv.tune.program import Check, program_of_module

MODULE = """HloModule m
ENTRY e { p = f32[64,64] parameter(0)
  d = f32[64,64] dot(p, p), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT t = f32[64,64] tanh(d) }
"""
STAGES = ("engine", "forms", "fusion", "codegen")
RUNS = 50
WIDE = {"xla_cpu_prefer_vector_width": 512}
STEADY = Control((0.99, 1.01), 50_000.0)


def interacting(configuration):
    """Speed-up: the wheel is slower alone, and fastest with one fusion and forms."""
    chosen = dict(configuration.choices)
    speedup = 1.0
    if chosen.get("forms") == "known":
        speedup *= 1.2
    if chosen.get("vectors") == "512":
        speedup *= 1.1
    if chosen.get("engine") == "wheel":
        speedup *= 0.9
        if chosen.get("fusion") == "by-bytes":
            speedup *= 2.0
    return speedup


@dataclasses.dataclass
class Simulated:
    """Takes the place of `Measuring` and of `build_candidate`."""

    speedup_of: object = interacting
    control_of: Control = STEADY
    measured: list[Configuration] = dataclasses.field(default_factory=list)
    interrupt_at: int = 10**9
    error: float = 0.0
    later_control: Control = STEADY
    controls: int = 0
    # Of all recipes; a file may have these.
    options: dict[str, object] | None = None

    def __call__(self, *_, **__):
        return self

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def build(self, space, configuration, module):
        assert configuration == space.canonical(configuration)
        options = self.options or {"xla_x": configuration.text}
        recipe = hloenv.jax.Recipe(options=options)
        return Candidate(configuration, recipe, None, configuration.text)

    def control(self, *, again=0):
        self.controls += 1
        return self.later_control if again else self.control_of

    def record(self, configuration):
        speedup = self.speedup_of(configuration)
        error = None
        if math.isnan(speedup):
            error = MeasureFailure("CompileError", "no")
            speedup = 1.0
        ours = 10_000 + np.arange(RUNS) % 7
        return Measurement(
            fingerprint="f",
            baseline="b",
            finish="legalize",
            seed=0,
            durations_ns=tuple(ours.tolist()),
            baseline_ns=tuple((ours * speedup).astype(int).tolist()),
            copies=(10,) * 5,
            error=error,
            outputs=OutputComparison(
                *(True, 1, 0, (0,), "1", "1", self.error, self.error),
                is_bitwise=not self.error,
            ),
        )

    def measure(self, candidates):
        # Not in order: results are told in the order of the proposals all the same.
        for number in reversed(candidates):
            configuration = candidates[number].configuration
            self.measured.append(configuration)
            if len(self.measured) >= self.interrupt_at:
                self.interrupt_at = 10**9
                raise KeyboardInterrupt
            yield number, self.record(configuration)

    def again(self, candidate, *, round_):
        return self.record(candidate.configuration)


@pytest.fixture(autouse=True)
def _own_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("HLOENV_STORE", str(tmp_path / "store.sqlite"))


@pytest.fixture
def simulated(monkeypatch):
    found = Simulated()
    monkeypatch.setattr(tuner_module, "Measuring", found)
    monkeypatch.setattr(tuner_module, "build_candidate", found.build)
    return found


@pytest.fixture(scope="module")
def program():
    return program_of_module(hloenv.HloModule.from_text(MODULE))


def tune(program, **options):
    given = {"measurements": 60, "stages": STAGES, "search": "", "is_warm": False}
    tuner = Tuner(program, TuneOptions(**{**given, **options}))
    return tuner.run(), tuner


@pytest.mark.needs("optuna")
@pytest.mark.parametrize("seed", range(4))
def test_jointly_finds_what_the_stages_alone_do_not(
    simulated, program, seed, monkeypatch
):
    # The time that a measurement takes is no part of its result.
    monkeypatch.setattr(Bandit, "_cost", lambda *_: 1.0)
    # What a sequence finds: the engine is decided first, and alone it does not pay.
    sequence, _ = tune(program, mode="sequence", keep=False)
    assert sequence.label == "forms=known, vectors=512"
    alone, _ = tune(program, mode="alone", keep=False)
    jointly, _ = tune(program, mode="jointly", keep=False, seed=seed)
    assert jointly.label == "engine=wheel, forms=known, fusion=by-bytes"
    assert sequence.speedup < alone.speedup < jointly.speedup


def test_alone_has_a_row_for_each_stage(simulated, program):
    entry, _ = tune(program, mode="alone")
    rows = {each["stage"]: each for each in entry.stages}
    assert list(rows) == list(STAGES)
    assert rows["forms"]["alone"][0] == pytest.approx(1.2, rel=0.01)
    assert rows["fusion"]["decided"] == "fusion=by-bytes"
    assert rows["engine"]["decided"] == "xla"


def test_the_ablation_has_the_gain_of_each_stage(simulated, program):
    entry, _ = tune(program, mode="sequence")
    rows = {each["stage"]: each for each in entry.stages}
    assert rows["codegen"]["alone"][0] == pytest.approx(1.1, rel=0.01)
    assert rows["codegen"]["without"][0] == pytest.approx(1.2, rel=0.01)


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


def test_results_with_other_threads_are_not_taken(simulated, program):
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
    _, tuner = tune(program, mode="sequence", threads=more)
    assert f"measured with {more} cores" in tuner.state.messages[-1]
    assert not kept_path(program.key).exists()
    tune(program, mode="sequence")
    assert kept_path(program.key).exists()


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

    def in_order(candidates):
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


def test_ctrl_c_keeps_what_was_found(simulated, program):
    simulated.interrupt_at = 8
    entry, tuner = tune(program, mode="sequence")
    assert entry.label == "forms=known"
    assert any("interrupted" in each for each in tuner.state.messages)
    assert tuner.state.is_interrupted
    assert len(simulated.measured) == 8


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
    ],
)
def test_wrong_options_are_errors(options):
    with pytest.raises(ArgumentError):
        TuneOptions(**options)


class Timed(Measuring):
    """Builds, compiles and compares; the times are given: half of the baseline's."""

    def control(self, *, again=0):
        assert super().control().median_ns > 0
        return STEADY

    def measure(self, candidates):
        for number, found in super().measure(candidates):
            yield number, half(found)

    def again(self, candidate, *, round_):
        return half(super().again(candidate, round_=round_))


def half(found):
    assert found.is_ok, found.error
    times = {"durations_ns": (5_000,) * 10, "baseline_ns": (10_000,) * 10}
    return dataclasses.replace(found, **times, copies=(5, 5))


@pytest.mark.jax
@pytest.mark.compile
def test_a_real_function_is_tuned_and_then_used(monkeypatch):
    def step(kernel, x):
        y = jax.lax.conv_general_dilated(
            *(x, kernel, (1, 1), "SAME"),
            dimension_numbers=("NHWC", "HWIO", "NHWC"),
            feature_group_count=32,
        )
        return jax.nn.relu(y).sum()

    monkeypatch.setattr(tuner_module, "Measuring", Timed)
    faster = Comparison(speedup=1.9, interval=(1.8, 2.0))
    monkeypatch.setattr(decider, "compare", lambda *_, **__: faster)
    args = jnp.ones((3, 3, 1, 32)), jnp.ones((2, 16, 16, 32))
    options = TuneOptions(mode="sequence", stages=("forms",), threads=1, workers=1)
    found = hloenv.tune(jax.grad(step), *args, options=options)
    (entry,) = found.entries
    assert (entry.label, entry.interval) == ("forms=known", (1.8, 2.0))
    assert entry.numerics == "reassociating"
    assert entry.excess <= 1
    fast = hloenv.jit(jax.grad(step), policy="tuned")
    np.testing.assert_allclose(
        fast(*args), jax.jit(jax.grad(step))(*args), rtol=1e-3, atol=1e-2
    )
    (one,) = fast.decided
    assert one.tuned == "forms=known"


@pytest.mark.compile
@pytest.mark.jax
def test_a_real_module_is_measured_with_every_engine(monkeypatch):
    monkeypatch.setattr(tuner_module, "Measuring", Timed)
    options = TuneOptions(mode="sequence", stages=("engine",), threads=1, workers=1)
    tuner = Tuner(
        program_of_module(hloenv.HloModule.from_text(MODULE), engine="wheel"), options
    )
    entry = tuner.run()
    engines = {each.text for each in tuner.state.results}
    assert engines == {"engine=wheel", "engine=wheel-passes"}
    assert entry.baseline == "hloenv.compile"
    assert entry.interval[0] > 1
    x = np.ones((64, 64), np.float32)
    (output,) = hloenv.compile(
        hloenv.HloModule.from_text(MODULE), tuned=Artefact((entry,))
    )(x)
    np.testing.assert_allclose(output, np.tanh(x @ x), rtol=1e-5)


@pytest.mark.slow
@pytest.mark.jax
@pytest.mark.compile
@pytest.mark.needs("ray")
def test_ray_measures_the_same(monkeypatch):
    from hloenv.measurement.ray import RayExecutor

    monkeypatch.setattr(tuner_module, "Measuring", Timed)
    program = program_of_module(hloenv.HloModule.from_text(MODULE))
    found = []
    for executor in (None, RayExecutor(resources={"num_cpus": 0.1})):
        options = TuneOptions(
            mode="sequence",
            stages=("tiles",),
            measurements=2,
            threads=1,
            keep=False,
            executor=executor,
        )
        tuner = Tuner(program, options)
        found.append((tuner.run(), set(tuner.state.results)))
    assert found[0] == (
        dataclasses.replace(found[1][0], **same(found[0][0])),
        found[1][1],
    )


def same(entry):
    """The fields that are times."""
    return {"compile_s": entry.compile_s, "date": entry.date}
