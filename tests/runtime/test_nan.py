# SPDX-License-Identifier: Apache-2.0
"""Fusion does not change results for NaN."""

from __future__ import annotations

import numpy as np
import pytest

import hloenv

pytestmark = pytest.mark.compile

TEXT = """HloModule m
larger { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] maximum(a, b) }
ENTRY e {
  a = f32[6] parameter(0)
  low = f32[6] parameter(1)
  least = f32[] constant(-1)
  smaller = f32[6] minimum(low, a)
  between = f32[6] clamp(low, a, low)
  sum = f32[6] add(smaller, between)
  most = f32[] reduce(sum, least), dimensions={0}, to_apply=larger
  ROOT t = (f32[6], f32[6], f32[]) tuple(smaller, between, most)
}
"""


@pytest.mark.parametrize("accept", [False, True])
def test_minimum_and_maximum_of_nan_are_nan(accept: bool):
    env = hloenv.HloEnv(TEXT)
    env.run_until("fusion")
    alternatives = env.get_alternatives("fusion")
    assert len(alternatives)
    decisions = np.full(len(alternatives), int(accept))
    module = env.apply_alternatives(decisions)
    values = np.array([1, 2, np.nan, 4, np.nan, 6], np.float32)
    smaller, between, most = hloenv.compile(module)(values, np.full(6, 3, np.float32))
    where = np.isnan(values)
    np.testing.assert_array_equal(np.isnan(smaller), where)
    np.testing.assert_array_equal(np.isnan(between), where)
    assert np.isnan(most)


def test_the_users_flag_counts(run_child):
    script = f"""
import numpy as np, hloenv
nan, one = np.full(6, np.nan, np.float32), np.ones(6, np.float32)
smaller, *_ = hloenv.compile({TEXT!r}, isolate=False)(nan, one)
print(np.isnan(smaller).all())
"""
    flag = "--xla_cpu_enable_fast_min_max"
    for value, expected in (("", "True"), (f"{flag}=false", "True")):
        assert run_child(script, env={"XLA_FLAGS": value}).stdout.strip() == expected
    # Whatever XLA then makes of it, it is what the user asked for.
    assert run_child(script, env={"XLA_FLAGS": f"{flag}=true"}).returncode == 0
