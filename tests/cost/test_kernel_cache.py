# SPDX-License-Identifier: Apache-2.0
"""Modules split into kernels, and estimates from kernel times."""

from __future__ import annotations

import numpy as np
import pytest

import hloenv
from hloenv import policies
from hloenv._native import core
from hloenv.cost.base import Estimate, decided_module
from hloenv.cost.kernel_cache import KernelCache

pytestmark = pytest.mark.compile

TWICE = """
HloModule twice
ENTRY e {
  a = f32[64,64] parameter(0)
  b = f32[64,64] parameter(1)
  c = f32[64,64] dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  d = f32[64,64] dot(c, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  e1 = f32[64,64] exponential(d)
  f = f32[64,64] transpose(e1), dimensions={1,0}
  ROOT g = f32[64,64] dot(f, a), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
"""
LOOP = """
HloModule loop
cond { p = (s32[], f32[256]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  n = s32[] constant(50)
  ROOT lt = pred[] compare(i, n), direction=LT }
body { p = (s32[], f32[256]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  x = f32[256] get-tuple-element(p), index=1
  one = s32[] constant(1)
  j = s32[] add(i, one)
  y = f32[256] cosine(x)
  ROOT t = (s32[], f32[256]) tuple(j, y) }
ENTRY e { x = f32[256] parameter(0)
  zero = s32[] constant(0)
  t = (s32[], f32[256]) tuple(zero, x)
  w = (s32[], f32[256]) while(t), condition=cond, body=body
  ROOT r = f32[256] get-tuple-element(w), index=1 }
"""
ENDLESS = """
HloModule endless
cond { p = (f32[3]) parameter(0)
  x = f32[3] get-tuple-element(p), index=0
  s = f32[1] slice(x), slice={[0:1]}
  v = f32[] reshape(s)
  big = f32[] constant(1e30)
  ROOT lt = pred[] compare(v, big), direction=LT }
body { p = (f32[3]) parameter(0)
  x = f32[3] get-tuple-element(p), index=0
  y = f32[3] cosine(x)
  ROOT t = (f32[3]) tuple(y) }
ENTRY e { x = f32[3] parameter(0)
  t = (f32[3]) tuple(x)
  w = (f32[3]) while(t), condition=cond, body=body
  ROOT r = f32[3] get-tuple-element(w), index=0 }
"""


def graph(text: str) -> core.KernelGraph:
    """Of the module as XLA decides it."""
    return core.KernelGraph(
        decided_module(hloenv.HloModule.from_text(text), threads=1)._core
    )


def test_equal_kernels_are_one():
    kernels = graph(TWICE)
    # The last product reads a transposed operand.
    assert sorted(kernels.num_runs) == [1, 1, 2]


def test_a_kernel_is_identified_by_its_computation():
    again = (
        TWICE.replace("e1", "other").replace("c =", "first =").replace("(c,", "(first,")
    )
    assert sorted(graph(again).fingerprints) == sorted(graph(TWICE).fingerprints)
    larger = TWICE.replace("64", "65")
    assert not {*graph(larger).fingerprints} & {*graph(TWICE).fingerprints}
    sine = TWICE.replace("exponential", "sine")
    assert {*graph(sine).fingerprints} != {*graph(TWICE).fingerprints}


def test_loops_count_as_often_as_they_run():
    kernels = graph(LOOP)
    assert "while" not in kernels.opcodes
    assert max(kernels.num_runs) == 50
    times = [10.0] * len(kernels.fingerprints)
    assert kernels.total_ns(times, 1, 0) == 10 * sum(kernels.num_runs)


def test_a_few_kernels_run_one_after_the_other():
    text = """
HloModule m
ENTRY e {
  a = f32[64,64] parameter(0)
  b = f32[64,32] parameter(1)
  c = f32[64,64] dot(a, a), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  d = f32[64,32] dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT t = (f32[64,64], f32[64,32]) tuple(c, d)
}
"""
    kernels = graph(text)
    assert len(kernels.fingerprints) == 2
    assert kernels.total_ns([5.0, 3.0], 1, 0) == 8
    assert kernels.total_ns([5.0, 3.0], 2, 0) == 8
    chain = graph(TWICE)
    times = [1.0] * len(chain.fingerprints)
    assert chain.total_ns(times, 2, 0) == chain.total_ns(times, 1, 0)


def test_extracted_kernels_compute_the_same():
    kernels = graph(TWICE)
    for which in range(len(kernels.fingerprints)):
        extracted = hloenv.HloModule._wrap(kernels.extract([which]))
        extracted.verify()
        # The same kernel again, whatever stands around it.
        assert core.KernelGraph(extracted._core).fingerprints == [
            kernels.fingerprints[which]
        ]


def test_the_cache_times_each_kernel_once():
    with hloenv.Store(":memory:") as store:
        with KernelCache(store=store) as cache:
            first = cache.estimate(hloenv.HloModule.from_text(TWICE))
            again = cache.estimate(hloenv.HloModule.from_text(TWICE))
        assert first.is_ok
        assert first.num_timed == first.num_kernels > 0
        assert again.num_timed == 0
        assert again.seconds == first.seconds
        with KernelCache(store=store) as cache:
            stored = cache.estimate(hloenv.HloModule.from_text(TWICE))
        assert stored == again


def test_more_work_is_estimated_to_take_longer():
    small, large = (
        hloenv.HloModule.from_text(TWICE.replace("64", size)) for size in ("32", "256")
    )
    with KernelCache() as cache:
        assert cache.estimate(large).seconds > 5 * cache.estimate(small).seconds
        rows = cache.kernels(large)
    shares = [row["runs"] * row["seconds"] for row in rows]
    assert shares == sorted(shares, reverse=True)


def test_a_loop_of_unknown_length_is_estimated_by_its_kernels():
    kernels = graph(ENDLESS)
    assert "while" not in kernels.opcodes
    assert max(kernels.num_runs) == 16
    with KernelCache() as cache:
        longer = ENDLESS.replace("f32[3]", "f32[3000]")
        short, long = cache.estimate_many(
            [hloenv.HloModule.from_text(text) for text in (ENDLESS, longer)]
        )
    assert long.seconds > 5 * short.seconds > 0


def test_thunks_are_timed_alone():
    executable = hloenv.compile(TWICE)
    times = executable.time_steps(5)
    assert times.durations_ns.shape == (5, len(times.names))
    assert times.totals_ns.shape == (5,)
    assert len(times.names) > 0
    assert (times.durations_ns.sum(axis=0) > 0).all()
    text = executable.module.to_text()
    assert [name for name in times.names if name not in text] == []


_LOOP = """HloModule loop

body {
  p = (s32[], f32[1024]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  x = f32[1024] get-tuple-element(p), index=1
  one = s32[] constant(1)
  next = s32[] add(i, one)
  y = f32[1024] sine(x)
  ROOT t = (s32[], f32[1024]) tuple(next, y)
}

condition {
  p = (s32[], f32[1024]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  end = s32[] constant(2000)
  ROOT c = pred[] compare(i, end), direction=LT
}

ENTRY e {
  n = s32[] parameter(0)
  x = f32[1024] parameter(1)
  start = (s32[], f32[1024]) tuple(n, x)
  ROOT loop = (s32[], f32[1024]) while(start), condition=condition, body=body
}
"""


def test_a_loop_that_has_counted_to_its_end_is_not_run_again():
    executable = hloenv.compile(_LOOP)
    inputs = [np.int32(0), np.ones(1024, np.float32)]
    cold, warm = (
        executable.time_steps(5, inputs=inputs, is_warm=is_warm).durations_ns.sum(
            axis=1
        )
        for is_warm in (False, True)
    )
    assert warm.min() > 0.5 * cold.min()


class CountMultiplies:
    """Gives predictable estimates."""

    def estimate_many(self, modules):
        """A second for each multiplication, and one for each instruction."""
        return [
            Estimate(
                100.0 * each.opcode_counts().get("multiply", 0) + each.instruction_count
            )
            for each in modules
        ]


def test_hill_climbing_ends_no_worse_than_any_initial_point():
    text = """
HloModule m
ENTRY e {
  a = f32[4] parameter(0)
  two = f32[] constant(2)
  twos = f32[4] broadcast(two), dimensions={}
  b = f32[4] multiply(a, twos)
  c = f32[4] multiply(b, twos)
  one = f32[] constant(1)
  ones = f32[4] broadcast(one), dimensions={}
  d = f32[4] multiply(c, ones)
  ROOT e1 = f32[4] add(d, b)
}
"""
    env = hloenv.HloEnv(text)
    alternatives = env.get_alternatives("algsimp", "cse")
    estimator = CountMultiplies()
    climb = policies.HillClimb(0, steps=20, estimator=estimator)
    decisions = climb(alternatives)
    (reached,) = estimator.estimate_many([alternatives.apply(decisions)])
    for start in (np.zeros_like(decisions), np.ones_like(decisions)):
        (there,) = estimator.estimate_many([alternatives.apply(start)])
        assert reached.seconds <= there.seconds
    again = policies.HillClimb(0, steps=20, estimator=estimator)(alternatives)
    np.testing.assert_array_equal(again, decisions)
