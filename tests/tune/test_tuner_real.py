# SPDX-License-Identifier: Apache-2.0
"""The driver on real programs, whose times alone are given."""

from __future__ import annotations

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hloenv
from hloenv.jax import timed_call
from hloenv.jax.compare import Comparison
from hloenv.jax.onednn import has_onednn
from hloenv.tune import Artefact, TuneOptions, Tuner
from hloenv.tune import tuner as tuner_module
from hloenv.tune.measuring import Measuring
from hloenv.tune.program import program_of_module
from support.tuning import MODULE, STEADY


class Timed(Measuring):
    """Builds, compiles and compares; the times are given: half of the baseline's."""

    def control(self, *, again=0):
        assert super().control().median_ns > 0
        return STEADY

    def measure(self, candidates, *, until=math.inf):
        for number, found in super().measure(candidates, until=until):
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
    monkeypatch.setattr(timed_call, "compare", lambda *_, **__: faster)
    args = jnp.ones((3, 3, 1, 32)), jnp.ones((2, 28, 28, 32))
    options = TuneOptions(mode="sequence", stages=("forms",), threads=1, workers=1)
    found = hloenv.tune(jax.grad(step), *args, options=options)
    (entry,) = found.entries
    label = "calls=onednn" if has_onednn() else "forms=known"
    assert (entry.label, entry.interval) == (label, (1.8, 2.0))
    assert entry.numerics == "reassociating"
    assert entry.excess <= 1
    fast = hloenv.jit(jax.grad(step), policy="tuned")
    np.testing.assert_allclose(
        fast(*args), jax.jit(jax.grad(step))(*args), rtol=1e-3, atol=1e-2
    )
    (one,) = fast.decided
    assert one.tuned == label


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
