# SPDX-License-Identifier: Apache-2.0
"""Transposes that permute nothing and change the layout, which XLA removes."""

from __future__ import annotations

import numpy as np
import pytest

import hloenv
from hloenv.hlo.passes import Pass, run_passes

pytestmark = pytest.mark.compile

LAYOUTS = ("{2,1,0}", "{0,1,2}", "{1,2,0}")
SENSITIVE = Pass("algsimp", is_layout_sensitive=True)


def module(body):
    return hloenv.HloModule.from_text(
        "HloModule m, entry_computation_layout="
        "{(f32[3,4,5]{2,1,0})->f32[3,4,5]{2,1,0}}\n"
        "ENTRY e {\n  x = f32[3,4,5]{2,1,0} parameter(0)\n" + body + "\n}"
    )


def one(layout):
    """One that permutes nothing."""
    return module(
        f"""  t = f32[3,4,5]{layout} transpose(x), dimensions={{0,1,2}}
        s = f32[3,4,5]{layout} sine(t)
        ROOT r = f32[3,4,5]{{2,1,0}} copy(s)"""
    )


def two(first, second):
    """Two that permute nothing together."""
    return module(
        f"""  t = f32[5,3,4]{first} transpose(x), dimensions={{2,0,1}}
        u = f32[3,4,5]{second} transpose(t), dimensions={{1,2,0}}
        s = f32[3,4,5]{second} sine(u)
        ROOT r = f32[3,4,5]{{2,1,0}} copy(s)"""
    )


@pytest.mark.parametrize(
    "original",
    [one(each) for each in LAYOUTS]
    + [two(first, second) for first in LAYOUTS for second in LAYOUTS],
)
def test_the_simplifier_keeps_the_order_of_elements(original):
    # Twice, as in XLA's pipeline: it may make a transpose that it removes later.
    simplified = run_passes(original, SENSITIVE, SENSITIVE).module
    simplified._raw.verify(layout_sensitive=True)
    x = np.arange(60, dtype=np.float32).reshape(3, 4, 5)
    for each in (original, simplified):
        (found,) = hloenv.compile(each, finish="legalize")(x)
        np.testing.assert_allclose(found, np.sin(x), rtol=1e-5, atol=1e-6)


def test_one_of_the_same_layout_is_removed():
    simplified = run_passes(one("{2,1,0}"), SENSITIVE).module
    assert simplified.opcode_counts().get("transpose", 0) == 0
    assert simplified.opcode_counts().get("copy", 0) <= 1


def test_without_layouts_it_is_removed():
    simplified = run_passes(one("{0,1,2}"), "algsimp").module
    assert simplified.opcode_counts().get("transpose", 0) == 0


def test_other_layouts_of_a_transpose_that_was_kept():
    """general-layout gives each transpose other layouts."""
    original = hloenv.HloModule.from_text(
        """HloModule m
        ENTRY e {
          x = f32[6,5,4] parameter(0)
          t = f32[6,5,4] transpose(x), dimensions={0,1,2}
          d = f32[4,6,5] transpose(t), dimensions={2,0,1}
          u = f32[6,5,4] transpose(d), dimensions={1,2,0}
          ROOT r = f32[6,5,4] add(u, t)
        }"""
    )
    x = np.arange(120, dtype=np.float32).reshape(6, 5, 4)
    env = hloenv.HloEnv(original)
    early = env.get_alternatives("algsimp")
    env.apply_alternatives(np.zeros(len(early), np.int64), early)
    env.run_until("fusion")
    alternatives = env.get_alternatives("general-layout")
    assert len(alternatives)
    rng = np.random.default_rng(0)
    for _ in range(12):
        decisions = rng.integers(0, alternatives.num_choices)
        decided = hloenv.finish(alternatives.apply(decisions))
        decided._raw.verify(layout_sensitive=True)
        (found,) = hloenv.compile(decided, finish="none")(x)
        np.testing.assert_array_equal(found, x + x)
