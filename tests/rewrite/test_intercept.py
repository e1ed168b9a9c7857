# SPDX-License-Identifier: Apache-2.0
"""XLA's own compiler, paused before its passes."""

from __future__ import annotations

import gc
import random
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

import hloenv
from hloenv.rewrite.interception import LiveStage
from support import intercept_checks
from support.interrupts import LARGE_MODULE, share_done_when_interrupted
from support.paths import TESTDATA
from support.threads import in_threads

if TYPE_CHECKING:
    from support.run_child import RunChild

TEXT = """
HloModule small

body {
  p = (s32[], f32[8,8]{1,0}) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  x = f32[8,8]{1,0} get-tuple-element(p), index=1
  one = s32[] constant(1)
  next = s32[] add(i, one)
  t = f32[8,8]{1,0} transpose(x), dimensions={1,0}
  u = f32[8,8]{1,0} transpose(t), dimensions={1,0}
  y = f32[8,8]{1,0} dot(u, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  z = f32[8,8]{1,0} tanh(y)
  ROOT r = (s32[], f32[8,8]{1,0}) tuple(next, z)
}

condition {
  p = (s32[], f32[8,8]{1,0}) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  n = s32[] constant(3)
  ROOT less = pred[] compare(i, n), direction=LT
}

ENTRY main {
  a = f32[8,8]{1,0} parameter(0)
  zero = f32[] constant(0)
  zeros = f32[8,8]{1,0} broadcast(zero), dimensions={}
  b = f32[8,8]{1,0} add(a, zeros)
  e1 = f32[8,8]{1,0} exponential(b)
  e2 = f32[8,8]{1,0} exponential(b)
  s = f32[8,8]{1,0} subtract(e1, e2)
  q = f32[8,8]{1,0} add(s, b)
  start = s32[] constant(0)
  init = (s32[], f32[8,8]{1,0}) tuple(start, q)
  loop = (s32[], f32[8,8]{1,0}) while(init), condition=condition, body=body
  ROOT out = f32[8,8]{1,0} get-tuple-element(loop), index=1
}
"""


@pytest.fixture
def module() -> hloenv.HloModule:
    return hloenv.HloModule.from_text(TEXT)


@pytest.fixture(scope="module")
def finished() -> str:
    return hloenv.finish(hloenv.HloModule.from_text(TEXT)).fingerprint()


def run_all(module: hloenv.HloModule) -> hloenv.HloModule:
    with hloenv.intercept(module) as pipeline:
        for stage in pipeline:
            stage.run()
    return pipeline.module


def accept_all(module: hloenv.HloModule) -> hloenv.HloModule:
    with hloenv.intercept(module) as pipeline:
        for stage in pipeline:
            alternatives = stage.get_alternatives()
            stage.apply_alternatives(alternatives.decisions_for(stage.name))
    return pipeline.module


def test_stages_are_those_of_the_pipeline(module):
    listed = hloenv.list_stages(module)
    with hloenv.intercept(module) as pipeline:
        seen = [(stage.path, stage.path_occurrence) for stage in pipeline]
    assert seen == [(stage.path, stage.path_occurrence) for stage in listed]


def test_running_and_accepting_everything_is_an_uninterrupted_compile(module, finished):
    before = module.to_text()
    assert run_all(module).fingerprint() == finished
    assert accept_all(module).fingerprint() == finished
    assert module.to_text() == before


def test_stages_report_what_the_pass_said(module):
    listed = hloenv.list_stages(module)
    with hloenv.intercept(module) as pipeline:
        for index, stage in enumerate(pipeline):
            assert stage.index == index
            assert stage.changed is None
            stage.run()
    with hloenv.intercept(module) as pipeline:
        changed = [stage.run() for stage in pipeline]
    assert changed == [stage.changed for stage in listed]


@pytest.mark.max_instructions(500)
def test_real_modules(real_module_path: Path):
    module = hloenv.HloModule.from_file(real_module_path)
    wanted = hloenv.finish(module).fingerprint()
    assert run_all(module).fingerprint() == wanted
    assert accept_all(module).fingerprint() == wanted


@pytest.mark.compile
def test_the_result_is_final_and_compiling_it_again_says_so():
    dots = hloenv.HloModule.from_file(TESTDATA / "hlo" / "dots.hlo")
    result = run_all(dots)
    with pytest.raises(hloenv.CompileError, match=r'compile it with finish="none"'):
        hloenv.compile(result)
    compiled = hloenv.compile(result, finish="none")
    assert compiled.module.fingerprint() == hloenv.finish(dots).fingerprint()


def test_a_stage_without_a_decision_runs(module, finished):
    with hloenv.intercept(module) as pipeline:
        for stage in pipeline:
            if stage.name == "fusion":
                stage.get_alternatives()
    assert pipeline.module.fingerprint() == finished


def test_capturing_changes_nothing(module, finished):
    with hloenv.intercept(module) as pipeline:
        for stage in pipeline:
            first = stage.get_alternatives()
            again = stage.get_alternatives()
            assert first.module.fingerprint() == again.module.fingerprint()
            assert stage.module is stage.module
            stage.module.verify()
    assert pipeline.module.fingerprint() == finished


def test_rejecting_a_pass_equals_skipping_it(module, finished):
    def without(name: str, *, by_skip: bool) -> str:
        with hloenv.intercept(module) as pipeline:
            for stage in pipeline:
                if stage.name != name:
                    stage.run()
                elif by_skip:
                    stage.skip()
                else:
                    alternatives = stage.get_alternatives()
                    assert not stage.apply_alternatives(alternatives.reject_all())
        return pipeline.module.fingerprint()

    for name in ("algsimp", "cse", "fusion"):
        left_out = without(name, by_skip=True)
        assert left_out != finished, name
        assert left_out == without(name, by_skip=False), name


@pytest.mark.compile
@pytest.mark.parametrize("seed", range(4))
def test_random_decisions_give_equal_outputs(module, seed):
    rng = random.Random(seed)
    answers: list[int] = []
    with hloenv.intercept(module) as pipeline:
        for stage in pipeline:
            if stage.name not in ("algsimp", "cse", "fusion", "reshape-mover"):
                continue
            alternatives = stage.get_alternatives()
            decisions = [rng.randrange(n) for n in alternatives.num_choices]
            changed = stage.apply_alternatives(decisions)
            assert changed == any(decisions)
            answers += decisions
    assert 0 < np.count_nonzero(answers) < len(answers)
    x = np.random.default_rng(seed).normal(size=(8, 8)).astype(np.float32)
    decided = hloenv.compile(pipeline.module, finish="none")
    default = hloenv.compile(module)
    np.testing.assert_allclose(decided(x)[0], default(x)[0], rtol=1e-5, atol=1e-6)


def test_mixed_decisions_at_one_stage_keep_the_entry(hlo_dir: Path):
    module = hloenv.HloModule.from_file(hlo_dir / "numpyro" / "svi_iaf.txt")
    with hloenv.intercept(module) as pipeline:
        stage = pipeline.run_until("simplification/algsimp")
        alternatives = stage.get_alternatives("cse")
        assert stage.name in alternatives.pass_names
        assert len(alternatives) > 10
        decisions = alternatives.decisions_for("algsimp")
        decisions[::2] = 0
        wanted = alternatives.apply(decisions).fingerprint()
        stage.apply_alternatives(decisions)
        assert pipeline.stage is not None
        assert pipeline.stage.module.fingerprint() == wanted
        pipeline.finish()
    pipeline.module.verify()
    assert pipeline.module.input_specs() == module.input_specs()


@pytest.fixture
def report_of_checks(tmp_path: Path) -> Callable[[], intercept_checks.Report]:
    path = tmp_path / "small.txt"
    path.write_text(TEXT)
    return lambda: next(intercept_checks.check(str(path), "cpu"))


def test_checks_of_whole_modules_decide_at_random(report_of_checks):
    report = report_of_checks()
    assert report.violations == ()
    assert report.decided > 0


def test_checks_of_whole_modules_see_decisions_that_are_not_applied(
    report_of_checks, monkeypatch
):
    monkeypatch.setattr(LiveStage, "apply_alternatives", lambda stage, _: stage.run())
    monkeypatch.setattr(random.Random, "randrange", lambda *_: 0)  # rejects
    violations = report_of_checks().violations
    assert violations
    assert all("decisions in place at" in each for each in violations)


def test_other_passes_join_in(module):
    with hloenv.intercept(module) as pipeline:
        stage = pipeline.run_until("fusion")
        alternatives = stage.get_alternatives("general-fusion")
        assert alternatives.pass_names == ("fusion", "general-fusion")
        decisions = alternatives.decisions_for("general-fusion")
        assert decisions.any()
        assert stage.apply_alternatives(decisions)
        pipeline.finish()
    assert "fusion" in pipeline.module.opcode_counts()


def test_run_until(module, finished):
    with hloenv.intercept(module) as pipeline:
        stage = pipeline.run_until("layout-assignment")
        assert stage.name == "layout-assignment"
        assert stage.path.endswith("/layout-assignment")
        stopped = hloenv.run_until(module, "layout-assignment")
        assert stage.module.fingerprint() == stopped.fingerprint()
        with pytest.raises(hloenv.PositionError, match="nonesuch"):
            pipeline.run_until("nonesuch")
        assert pipeline.stage is None
    assert pipeline.module.fingerprint() == finished


def test_accepted_layouts_are_those_of_xla(hlo_dir: Path):
    module = hloenv.HloModule.from_file(hlo_dir / "equinox" / "gru_fwd.txt")
    with hloenv.intercept(module) as pipeline:
        stage = pipeline.run_until("layout-assignment")
        alternatives = stage.get_alternatives()
        assert len(alternatives) == 5
        assert stage.apply_alternatives(alternatives.decisions_for("layout-assignment"))
        pipeline.finish()
    assert pipeline.module.fingerprint() == hloenv.finish(module).fingerprint()


def test_wrong_calls_are_errors_and_change_nothing(module, finished):
    with hloenv.intercept(module) as pipeline:
        with pytest.raises(hloenv.InterceptError, match="has not ended"):
            _ = pipeline.module
        stage = pipeline.run_until("cse")
        with pytest.raises(hloenv.DecisionError, match="get_alternatives"):
            stage.apply_alternatives([])
        alternatives = stage.get_alternatives()
        with pytest.raises(hloenv.DecisionError, match="decisions were given"):
            stage.apply_alternatives([0] * (len(alternatives) + 1))
        with pytest.raises(hloenv.UnknownPassError):
            stage.get_alternatives("nonesuch")
        stage.get_alternatives()
        with pytest.raises(hloenv.StaleAlternativesError):
            stage.apply_alternatives(alternatives.reject_all(), alternatives)
        stage.run()
        with pytest.raises(TypeError, match="get_alternatives"):
            pipeline.stage.apply_alternatives([], "x")
        for late in (stage.run, stage.skip, stage.get_alternatives):
            with pytest.raises(hloenv.InterceptError, match="is past stage"):
                late()
        with pytest.raises(hloenv.InterceptError, match="is past stage"):
            _ = stage.module
        pipeline.finish()
        with pytest.raises(hloenv.InterceptError, match="ended"):
            pipeline.run_until("cse")
    assert pipeline.module.fingerprint() == finished


@pytest.mark.parametrize("target", ["", "tpu", "h1000", "cpu {", "name: 3", "\x00"])
def test_unknown_targets_are_named(module, target):
    with pytest.raises(hloenv.TargetError, match="'h100'"):
        hloenv.intercept(module, target=target)


def test_gpu_targets_have_names():
    assert {"a100", "h100", "v100"} <= set(hloenv.gpu_targets())


@pytest.mark.cpu_wheel
def test_gpu_targets_say_which_wheel_they_need(module):
    with pytest.raises(hloenv.TargetError, match=r"hloenv\[cuda\]"):
        hloenv.intercept(module, target="h100")


def test_a_failing_pass_is_an_error_at_its_stage(hlo_dir: Path):
    module = hloenv.HloModule.from_file(hlo_dir / "rlax" / "transformed_n_step_q.txt")
    with hloenv.intercept(module) as pipeline:
        for stage in pipeline:
            # The simplifier of gathers relies on it.
            if stage.name == "batched_gather_scatter_normalizer":
                with pytest.warns(
                    hloenv.PositionWarning, match="XLA requires the skipped pass"
                ):
                    stage.skip()
            elif stage.name == "gather_simplifier":
                with pytest.raises(hloenv.CompileError, match="gather_simplifier"):
                    stage.run()
                break
    with pytest.raises(hloenv.CompileError, match="gather_simplifier"):
        _ = pipeline.module
    assert run_all(module).fingerprint() == hloenv.finish(module).fingerprint()


def test_a_pass_runs_after_looking_was_forgotten(hlo_dir: Path):
    # layout-assignment remembers what it saw on the shadow.
    for name in ("equinox/conv2d_fwd", "equinox/gru_fwd", "flax/rnn_simple_fwd"):
        module = hloenv.HloModule.from_file(hlo_dir / f"{name}.txt")
        wanted = hloenv.finish(module).fingerprint()
        with hloenv.intercept(module) as pipeline:
            stage = pipeline.run_until("layout-assignment")
            for _ in range(2):
                stage.get_alternatives()
                gc.collect()
            pipeline.finish()
        assert pipeline.module.fingerprint() == wanted


def test_random_numbers_can_be_captured():
    text = """
HloModule rng

ENTRY main {
  zero = f32[] constant(0)
  one = f32[] constant(1)
  ROOT r = f32[4]{0} rng(zero, one), distribution=rng_uniform
}
"""
    with hloenv.intercept(hloenv.HloModule.from_text(text)) as pipeline:
        pipeline.run_until("rng-expander").get_alternatives()
        pipeline.finish().verify()


def test_scheduled_modules_are_rejected():
    text = """
HloModule scheduled, is_scheduled=true

ENTRY main {
  x = f32[4]{0} parameter(0)
  ROOT y = f32[4]{0} negate(x)
}
"""
    scheduled = hloenv.HloModule.from_text(text)
    for use in (hloenv.intercept, hloenv.finish, hloenv.list_stages, hloenv.compile):
        with pytest.raises(hloenv.PassError, match="scheduled"):
            use(scheduled)


@pytest.mark.parametrize(("where", "occurrence"), [("", 1), ("/", 1), ("cse", 0)])
def test_run_until_checks_its_arguments(module, where, occurrence):
    with hloenv.intercept(module) as pipeline:
        before = pipeline.stage
        with pytest.raises(hloenv.PositionError, match="occurrence >= 1"):
            pipeline.run_until(where, occurrence=occurrence)
        assert pipeline.stage is before


def test_an_interrupted_wait_continues(hlo_dir: Path):
    module = hloenv.HloModule.from_file(hlo_dir / f"{LARGE_MODULE}.txt")
    pipelines = []

    def wait() -> None:
        pipelines.append(hloenv.intercept(module))
        pipelines[-1].run_until("layout-assignment")

    assert share_done_when_interrupted(wait) < 0.5
    *others, pipeline = pipelines
    for other in others:
        other.close()
    assert pipeline.stage.name == "layout-assignment"
    assert pipeline.finish().fingerprint() == hloenv.finish(module).fingerprint()


def test_a_forked_child_does_not_affect_it(run_child: RunChild):
    code = f"""
import os, signal
import hloenv
pipeline = hloenv.intercept(hloenv.HloModule.from_text({TEXT!r}))
pid = os.fork()
if pid == 0:
    signal.alarm(20)
    pipeline.close()
    del pipeline
    os._exit(0)
print(os.waitpid(pid, 0)[1], pipeline.finish().instruction_count > 0)
"""
    assert run_child(code).stdout == "0 True\n"


def num_threads() -> int:
    return len(list(Path("/proc/self/task").iterdir()))


def test_leaving_early_ends_the_compile(module):
    run_all(module)
    before = num_threads()
    with hloenv.intercept(module) as pipeline:
        pipeline.run_until("algsimp")
    with pytest.raises(hloenv.InterceptError, match="closed"):
        _ = pipeline.module

    def fail() -> None:
        with hloenv.intercept(module) as pipeline:
            for stage in pipeline:
                stage.get_alternatives()
                raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    for _ in range(3):
        hloenv.intercept(module).run_until("cse")  # and forgotten
    gc.collect()
    assert num_threads() <= before


def test_several_at_once_in_several_threads(module, finished):
    def work(number: int) -> str:
        with hloenv.intercept(module) as pipeline:
            for stage in pipeline:
                if number % 2:
                    stage.get_alternatives()
                stage.run()
        return pipeline.module.fingerprint()

    with hloenv.intercept(module) as outer:
        outer.run_until("cse")
        assert in_threads(work, range(4)) == [finished] * 4
        outer.finish()
    assert outer.module.fingerprint() == finished


def test_one_inside_another(module, finished):
    with hloenv.intercept(module) as outer:
        for stage in outer:
            if stage.name == "fusion":
                with hloenv.intercept(module) as inner:
                    inner.run_until("cse").skip()
                assert hloenv.finish(module).fingerprint() == finished
            stage.run()
    assert outer.module.fingerprint() == finished


def test_ctrl_c_while_xla_runs(hlo_dir: Path):
    module = hloenv.HloModule.from_file(hlo_dir / f"{LARGE_MODULE}.txt")

    def finish() -> None:
        with hloenv.intercept(module) as pipeline:
            pipeline.finish()

    assert share_done_when_interrupted(finish) < 0.5


def test_the_process_ends_with_one_open(run_child: RunChild):
    code = f"""
import hloenv
pipeline = hloenv.intercept(hloenv.HloModule.from_text({TEXT!r}))
pipeline.run_until("cse").get_alternatives()
print("leaving")
"""
    assert run_child(code).stdout == "leaving\n"


def test_other_passes_behind_layout_assignment_keep_copies_between_layouts():
    text = """HloModule m, entry_computation_layout={(f32[8,4]{0,1})->f32[32]{0}}

ENTRY e {
  x = f32[8,4]{0,1} parameter(0)
  ROOT r = f32[32]{0} reshape(x)
}
"""
    x = np.arange(32, dtype=np.float32).reshape(8, 4)
    (wanted,) = hloenv.compile(text)(x)
    with hloenv.intercept(hloenv.HloModule.from_text(text)) as pipeline:
        stage = pipeline.run_until("fusion")
        alternatives = stage.get_alternatives("algsimp")
        stage.apply_alternatives(alternatives.decisions_for("algsimp"))
        pipeline.finish()
        module = pipeline.module
    (found,) = hloenv.compile(module, finish="none")(x)
    np.testing.assert_array_equal(found, wanted)


def test_passes_that_do_not_fit_a_stage_are_refused():
    with hloenv.intercept(hloenv.HloModule.from_text(TEXT)) as pipeline:
        stage = pipeline.run_until("fusion")
        with pytest.raises(hloenv.errors.PositionError):
            stage.get_alternatives("simplification")
