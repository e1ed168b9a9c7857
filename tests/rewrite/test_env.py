# SPDX-License-Identifier: Apache-2.0
"""The environment: states, decisions, staleness."""

from __future__ import annotations

import pytest

from hloenv.errors import (
    ArgumentTypeError,
    DecisionError,
    PassError,
    PassOptionError,
    PositionError,
    StaleAlternativesError,
    UnknownPassError,
)
from hloenv.hlo.module import HloModule
from hloenv.hlo.passes import Pass, Pipeline
from hloenv.rewrite.env import HloEnv
from support.paths import TESTDATA

HLO = TESTDATA / "hlo"


@pytest.fixture
def env() -> HloEnv:
    return HloEnv(HLO / "simplifications.hlo")


def test_a_module_comes_as_path_text_or_module(env: HloEnv) -> None:
    path = HLO / "simplifications.hlo"
    text = path.read_text()
    for source in (path, str(path), text, HloModule.from_text(text)):
        assert HloEnv(source).fingerprint() == env.fingerprint()


def test_run_is_what_the_pass_does(env: HloEnv) -> None:
    before = env.fingerprint()
    assert env.run("algsimp") is True
    assert env.fingerprint() != before
    while env.run(Pipeline("both", ["algsimp", "cse"])):
        pass
    after = env.fingerprint()
    assert env.run("algsimp", "cse") is False
    assert env.fingerprint() == after


def test_a_dry_run_changes_nothing(env: HloEnv) -> None:
    before = env.module.to_text()
    env.get_alternatives("algsimp", "cse")
    assert env.module.to_text() == before
    assert env.trace.steps == ()


def test_decisions_move_the_environment_on(env: HloEnv) -> None:
    alternatives = env.get_alternatives("algsimp")
    decided = env.apply_alternatives(alternatives.decisions_for("algsimp"))
    assert decided is env.module
    native = HloEnv(HLO / "simplifications.hlo")
    native.run("algsimp")
    assert env.fingerprint() == native.fingerprint()


def test_deciding_before_asking(env: HloEnv) -> None:
    with pytest.raises(DecisionError, match="get_alternatives"):
        env.apply_alternatives([])


def test_bad_decisions_do_not_change_the_environment(env: HloEnv) -> None:
    alternatives = env.get_alternatives("algsimp")
    module, trace = env.module, env.trace
    for decisions in ([], [99] * len(alternatives), [0.5] * len(alternatives)):
        with pytest.raises(DecisionError):
            env.apply_alternatives(decisions)
        assert env.module is module
        assert env.trace == trace
    env.apply_alternatives(alternatives.reject_all())


def test_alternatives_are_stale_once_the_environment_moves_on(env: HloEnv) -> None:
    alternatives = env.get_alternatives("algsimp")
    env.run("cse")
    before = env.module
    with pytest.raises(StaleAlternativesError, match="get_alternatives"):
        env.apply_alternatives(alternatives.reject_all())
    with pytest.raises(StaleAlternativesError):
        env.apply_alternatives(alternatives.reject_all(), alternatives)
    assert env.module is before


def test_alternatives_of_another_environment_are_stale(env: HloEnv) -> None:
    other = HloEnv(env.module)
    alternatives = other.get_alternatives("algsimp")
    with pytest.raises(StaleAlternativesError):
        env.apply_alternatives(alternatives.reject_all(), alternatives)


def test_an_earlier_capture_of_the_same_state_is_valid(env: HloEnv) -> None:
    first = env.get_alternatives("algsimp")
    env.get_alternatives("cse")
    env.apply_alternatives(first.decisions_for("algsimp"), first)
    native = HloEnv(HLO / "simplifications.hlo")
    native.run("algsimp")
    assert env.fingerprint() == native.fingerprint()


def test_restore_brings_back_the_module_its_alternatives_and_its_trace(
    env: HloEnv,
) -> None:
    env.run("cse")
    state, fingerprint, trace = env.snapshot(), env.fingerprint(), env.trace
    alternatives = env.get_alternatives("algsimp")
    for decisions in (alternatives.decisions_for("algsimp"), alternatives.reject_all()):
        env.apply_alternatives(decisions, alternatives)
        env.run("dce")
        env.restore(state)
        assert env.fingerprint() == fingerprint
        assert env.trace == trace
    env.apply_alternatives(alternatives.reject_all(), alternatives)
    assert env.fingerprint() == fingerprint


def test_restore_takes_a_state(env: HloEnv) -> None:
    with pytest.raises(ArgumentTypeError, match="snapshot"):
        env.restore("the start")  # type: ignore[arg-type]


def test_alternatives_are_what_was_found(env: HloEnv) -> None:
    alternatives = env.get_alternatives("algsimp")
    with pytest.raises(ArgumentTypeError, match="get_alternatives"):
        env.apply_alternatives(alternatives.reject_all(), [1])  # type: ignore[arg-type]
    assert env.trace.steps == ()


@pytest.mark.parametrize("where", [3, None, "fusion\ud800"])
def test_run_until_takes_the_name_of_a_pass(env: HloEnv, where: object) -> None:
    with pytest.raises(PositionError):
        env.run_until(where)  # type: ignore[arg-type]


@pytest.mark.parametrize("occurrence", ["first", None, True, 0, 2**70])
def test_run_until_takes_an_occurrence(env: HloEnv, occurrence: object) -> None:
    with pytest.raises(PositionError):
        env.run_until("fusion", occurrence=occurrence)  # type: ignore[arg-type]


@pytest.mark.parametrize("method", ["run", "get_alternatives"])
def test_unknown_passes_and_options(env: HloEnv, method: str) -> None:
    before = env.module
    with pytest.raises(UnknownPassError, match="algsimp"):
        getattr(env, method)("algsimpp")
    with pytest.raises(PassOptionError, match="run_to_fixed_point"):
        getattr(env, method)(Pass("algsimp", run_to_fixed_pt=True))
    with pytest.raises(PassOptionError, match="bool"):
        getattr(env, method)(Pass("algsimp", run_to_fixed_point="yes"))
    assert env.module is before


def test_a_failing_pass_does_not_change_the_environment() -> None:
    # Copy insertion needs a flat call graph.
    env = HloEnv(HLO / "shared_computation.hlo")
    before = env.module
    for act in (env.run, env.get_alternatives):
        with pytest.raises(PassError, match="copy-insertion"):
            act("copy-insertion")
    assert env.module is before


def test_scheduled_modules_are_rejected() -> None:
    env = HloEnv(HLO / "scheduled.hlo")
    for act in (env.run, env.get_alternatives):
        with pytest.raises(PassError, match="is_scheduled"):
            act("algsimp")


def test_a_pass_twice_in_one_capture(env: HloEnv) -> None:
    with pytest.raises(UnknownPassError, match="twice"):
        env.get_alternatives("algsimp", "algsimp")


def test_no_pass_at_all(env: HloEnv) -> None:
    with pytest.raises(UnknownPassError, match="at least one"):
        env.get_alternatives()


def test_captures_outlive_their_environment() -> None:
    alternatives = HloEnv(HLO / "simplifications.hlo").get_alternatives("algsimp")
    alternatives.apply(alternatives.decisions_for("algsimp")).verify()
    assert alternatives[0].choices[1].passes == ("algsimp",)
