# SPDX-License-Identifier: Apache-2.0
"""Pickling of environments, states, alternatives and graphs."""

from __future__ import annotations

import copy
import gc
import pickle
import sys
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hloenv
from hloenv.errors import (
    DecisionError,
    GraphError,
    InterceptError,
    StaleAlternativesError,
    TraceError,
)
from hloenv.graph.hlo_graph import HloGraph
from hloenv.rewrite.alternatives import Alternatives
from hloenv.rewrite.env import HloEnv, State, replay
from support.paths import TESTDATA

HLO = TESTDATA / "hlo"
START = HLO / "simplifications.hlo"
# Its computations stand in another order once it went through a proto.
LOOPS = HLO / "loop.hlo"
# Passes reject the module with a schedule.
UNSCHEDULED = [path for path in sorted(HLO.glob("*.hlo")) if path.stem != "scheduled"]


def _copy(value: Any) -> Any:
    return pickle.loads(pickle.dumps(value))


def _random(alternatives: Alternatives, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, alternatives.num_choices)


def _midway(start: Path | hloenv.HloModule = START) -> HloEnv:
    env = HloEnv(start)
    alternatives = env.get_alternatives("algsimp", "cse")
    env.apply_alternatives(_random(alternatives))
    env.run_until("fusion")
    return env


def test_an_environment_is_unpickled_with_its_module_position_and_trace() -> None:
    env = _midway()
    again = _copy(env)
    assert again.module.to_text() == env.module.to_text()
    assert again.module.position == env.module.position
    assert again.module.decided == env.module.decided
    assert again.trace == env.trace


def test_a_trace_from_a_copy_replays_on_the_start() -> None:
    again = _copy(_midway())
    alternatives = again.get_alternatives("fusion", "general-fusion")
    again.apply_alternatives(_random(alternatives))
    assert replay(again.trace, START).trace == again.trace


@pytest.mark.parametrize("path", UNSCHEDULED, ids=lambda path: path.stem)
def test_decisions_mean_the_same_in_a_copy(path: Path) -> None:
    """In the order of the alternatives, which is that of the module in memory."""
    env = HloEnv(path)
    for passes in (("algsimp", "cse"), ("general-simplify",)):
        alternatives = env.get_alternatives(*passes)
        copied_env, copied = _copy((env, alternatives))
        decisions = _random(alternatives)
        expected = env.apply_alternatives(decisions, alternatives)
        assert copied.num_choices.tolist() == alternatives.num_choices.tolist()
        assert copied.apply(decisions).to_text() == expected.to_text()
        assert (
            copied_env.apply_alternatives(decisions, copied).position
            == expected.position
        )
        assert copied_env.trace == env.trace


def test_the_latest_alternatives_of_a_copy_can_be_decided() -> None:
    env = _midway()
    decisions = _random(env.get_alternatives("fusion"))
    again = _copy(env)
    again.apply_alternatives(decisions)
    env.apply_alternatives(decisions)
    assert again.trace == env.trace


def test_a_stale_capture_does_not_come_along() -> None:
    env = HloEnv(START)
    env.get_alternatives("algsimp")
    env.run("cse")
    with pytest.raises(DecisionError, match="get_alternatives"):
        _copy(env).apply_alternatives([])


def test_objects_in_one_pickle_belong_together() -> None:
    env = _midway()
    state, alternatives = env.snapshot(), env.get_alternatives("fusion")
    env.run("dce")
    again, copied_state, copied = _copy((env, state, alternatives))
    with pytest.raises(StaleAlternativesError):
        again.apply_alternatives(copied.reject_all(), copied)
    again.restore(copied_state)
    again.apply_alternatives(copied.reject_all(), copied)
    assert len(again.trace.steps) == 3


@pytest.mark.parametrize("copy_of", [copy.copy, copy.deepcopy])
def test_a_copy_in_the_process_shares_the_module_and_goes_its_own_way(copy_of) -> None:
    env = HloEnv(START)
    alternatives = env.get_alternatives("algsimp")
    other = copy_of(env)
    assert other.module is env.module
    other.apply_alternatives(alternatives.decisions_for("algsimp"))
    assert env.trace.steps == ()
    assert env.apply_alternatives(alternatives.decisions_for("algsimp")) is env.module
    assert other.trace == env.trace


def test_a_state_of_500_steps_pickles() -> None:
    env = HloEnv(START)
    for _ in range(500):
        env.run("dce")
    env.restore(_copy(env.snapshot()))
    assert len(env.trace.steps) == 500
    env.run("cse")
    assert replay(env.trace, START).trace == env.trace


def test_a_state_with_10000_steps_can_be_dropped() -> None:
    env = HloEnv(START)
    state = env.snapshot()
    step = _midway().trace.steps[0]
    for _ in range(10_000):
        state = state._after(env.module, step)
    assert len(state._steps()) == 10_000 > sys.getrecursionlimit()
    del state
    gc.collect()


def test_pickles_take_little_more_than_the_proto_and_the_steps() -> None:
    start = hloenv.HloModule.from_proto(HloEnv(LOOPS).module.to_proto())
    env = _midway(start)
    alternatives = env.get_alternatives("fusion", "general-fusion")
    proto = len(start.to_proto())
    steps = len(pickle.dumps(env.trace.steps))
    for each in (env, env.snapshot(), alternatives, (env, alternatives)):
        assert len(pickle.dumps(each)) < proto + steps + 1500
    graph = env.graph()
    assert len(pickle.dumps(graph)) < len(env.module.to_proto()) + 1000


def test_steps_with_another_result_are_rejected() -> None:
    make, (start, steps, _) = _midway().snapshot().__reduce__()
    state = make(start, steps, "0" * 32)
    with pytest.raises(TraceError, match="same version of hloenv"):
        _ = state.module


def test_alternatives_in_another_order_are_rejected() -> None:
    alternatives = HloEnv(START).get_alternatives("algsimp", "cse")
    make, (module, pipelines, owner, digest) = alternatives.__reduce__()
    make(module, pipelines, owner, digest)
    with pytest.raises(StaleAlternativesError, match="another version"):
        make(module, pipelines[::-1], owner, digest)


def test_alternatives_of_a_live_compile_do_not_pickle() -> None:
    with hloenv.intercept(HLO / "simplifications.hlo") as pipeline:
        assert pipeline.stage is not None
        alternatives = pipeline.stage.get_alternatives()
        with pytest.raises(InterceptError, match="pickled"):
            pickle.dumps(alternatives)


@pytest.mark.parametrize("of", ["module", "alternatives"])
def test_a_graph_is_unpickled_with_all_its_arrays(of: str) -> None:
    env = _midway()
    graph = env.graph() if of == "module" else env.get_alternatives("fusion").graph
    again = _copy(graph)
    assert again.node_names == graph.node_names
    for name, array in graph.arrays().items():
        np.testing.assert_array_equal(getattr(again, name), array, err_msg=name)


def test_a_graph_in_another_order_is_rejected() -> None:
    make, (cls, module, _) = HloGraph.from_module(START).__reduce__()
    with pytest.raises(GraphError, match="another order"):
        make(cls, module, "0" * 32)


def test_a_state_lets_the_modules_before_it_go() -> None:
    env = HloEnv(START)
    modules = [weakref.ref(env.module._core)]
    for name in ("algsimp", "cse", "dce", "algsimp"):
        env.run(name)
        modules.append(weakref.ref(env.module._core))
    state = env.snapshot()
    gc.collect()
    is_alive = [module() is not None for module in modules]
    # The start, which the trace names, and its own.
    assert is_alive == [True, False, False, False, True]
    assert state.module is env.module


def test_states_are_restored_any_number_of_times_and_cut_the_trace_back() -> None:
    env = HloEnv(START)
    states: list[tuple[State, str, Any]] = []
    for name in ("algsimp", "cse", "dce"):
        states.append((env.snapshot(), env.module.to_text(), env.trace))
        env.run(name)
    for state, text, trace in states * 2 + states[::-1]:
        env.restore(state)
        assert env.module.to_text() == text
        assert env.trace == trace
        env.run("logistic-expander")
