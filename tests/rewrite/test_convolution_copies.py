# SPDX-License-Identifier: Apache-2.0
"""Convolutions that pick elements of their windows, as slices and transpositions."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

import hloenv
from hloenv.jax.auto import INLINING
from support.captures import capture_rule, rules

pytestmark = pytest.mark.jax

LAST = ("NHWC", "HWIO", "NHWC")


def captured(
    shape: tuple[int, ...], *args: Any, **options: Any
) -> tuple[hloenv.HloModule, hloenv.Alternatives, Any]:
    def fn(x: Any) -> Any:
        return jax.lax.conv_general_dilated_patches(x, *args, **options)

    x = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    module = hloenv.HloModule.from_jax(fn, x)
    module = hloenv.run_passes(module, *INLINING).module
    text = module.to_text()
    return module, capture_rule(text, "convolution-forms", "copies"), x


@pytest.mark.compile
@pytest.mark.parametrize(
    ("shape", "args", "options"),
    [
        ((2, 3, 12, 8), ((4, 4), (4, 4), "VALID"), {}),
        ((2, 3, 13, 9), ((4, 2), (4, 2), "VALID"), {}),
        ((2, 12, 8, 3), ((4, 4), (4, 4), "VALID"), {"dimension_numbers": LAST}),
        ((1, 8, 8, 1), ((2, 2), (2, 2), "VALID"), {"dimension_numbers": LAST}),
        ((2, 2, 4, 6, 4), ((2, 3, 2), (2, 3, 2), "VALID"), {}),
        ((2, 1, 9, 9), ((3, 3), (1, 1), "SAME"), {}),
        ((2, 3, 9, 10), ((3, 2), (2, 1), ((1, 0), (0, 2))), {}),
        ((2, 3, 9, 9), ((3, 3), (1, 1), "SAME"), {"rhs_dilation": (2, 1)}),
        ((2, 3, 9, 9), ((3, 3), (1, 1), ((1, 1), (1, 1))), {"lhs_dilation": (1, 2)}),
        ((3, 2, 40), ((5,), (3,), "VALID"), {}),
    ],
)
def test_results_are_equal_bit_for_bit(shape, args, options):
    module, alternatives, x = captured(shape, *args, **options)
    assert rules(alternatives) == ["copies"]
    decided = alternatives.apply([1])
    assert "convolution" not in decided.opcode_counts()
    (wanted,) = hloenv.interpret(module, x)
    results = [hloenv.interpret(decided, x)]
    results += [
        hloenv.compile(decided, engine=engine, isolate=False)(x)
        for engine in ("wheel", "jaxlib")
    ]
    for (found,) in results:
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize(
    ("shape", "args", "options"),
    [
        ((2, 9, 9, 3), ((3, 3), (1, 1), "SAME"), {"dimension_numbers": LAST}),
        ((1, 1, 20, 20), ((9, 9), (1, 1), "SAME"), {}),  # more than 64 parts
    ],
)
def test_slow_ones_are_left(shape, args, options):
    _, alternatives, _ = captured(shape, *args, **options)
    assert rules(alternatives) == []


@pytest.mark.parametrize(
    ("kernel", "is_offered"),
    [
        ("{ {{{1,0}}}, {{{0,1}}} }", True),
        ("{ {{{0,1}}}, {{{1,0}}} }", True),
        ("{ {{{1,1}}}, {{{0,0}}} }", True),  # the same one twice
        ("{ {{{1,0}}}, {{{0,2}}} }", False),
        ("{ {{{1,0}}}, {{{1,1}}} }", False),
        ("{ {{{1,0}}}, {{{0,0}}} }", False),
        ("{ {{{1,0}}}, {{{0,nan}}} }", False),
    ],
)
def test_kernels_that_pick_one_element(kernel, is_offered):
    text = f"""HloModule picks
ENTRY main {{
  x = f32[2,1,8,8] parameter(0)
  k = f32[2,1,1,2] constant({kernel})
  ROOT r = f32[2,2,7,8] convolution(x, k), window={{size=2x1}}, dim_labels=bf01_01io->bf01
}}
"""
    alternatives = capture_rule(text, "convolution-forms", "copies")
    assert rules(alternatives) == ["copies"] * is_offered
    if is_offered:
        for record in hloenv.verify_alternatives(alternatives, seed=0):
            assert record.relative == 0
