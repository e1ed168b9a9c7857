# SPDX-License-Identifier: Apache-2.0
"""Modules that reduce what they compute, and their other forms."""

from __future__ import annotations

import numpy as np

import hloenv

PASS = "reduce-forms"
WINDOW = """HloModule window

region {{
  a = {kind}[] parameter(0)
  b = {kind}[] parameter(1)
  ROOT c = {kind}[] {operation}(a, b)
}}

ENTRY main {{
  x = {kind}[{sizes}] parameter(0)
  start = {kind}[] constant({start})
  ROOT r = {kind}[{results}] reduce-window(x, start), window={{{window}}},
    to_apply=region
}}
"""
_NEUTRAL = {"add": "0", "maximum": "-inf"}


def reduction(
    values: str,
    result: str,
    dims: str,
    *,
    operation: str = "add",
    kind: str = "f32",
    before: str = "",
) -> hloenv.HloModule:
    """A reduction of `v`, which the lines of `values` compute.

    Args:
        values: instructions, HLO text.
        result: sizes of the result, separated by commas.
        dims: that are reduced, likewise.
        operation: "add" or "maximum".
        kind: type of the elements.
        before: computations that the instructions call.
    """
    return hloenv.HloModule.from_text(f"""HloModule m
{before}region {{
  a = {kind}[] parameter(0)
  b = {kind}[] parameter(1)
  ROOT c = {kind}[] {operation}(a, b)
}}
ENTRY main {{
  {values}
  start = {kind}[] constant({_NEUTRAL[operation]})
  ROOT r = {kind}[{result}] reduce(v, start), dimensions={{{dims}}}, to_apply=region
}}""")


def rules_of(module: hloenv.HloModule) -> list[str]:
    """The rules of all choices of the pass."""
    alternatives = hloenv.HloEnv(module).get_alternatives(PASS)
    return [choice.rule for each in alternatives for choice in each.choices]


def form_by(rule: str, module: hloenv.HloModule) -> hloenv.HloModule:
    """The module whose only alternative is decided by a rule."""
    (alternative,) = alternatives = hloenv.HloEnv(module).get_alternatives(PASS)
    rules = [choice.rule for choice in alternative.choices]
    return alternatives.apply([rules.index(rule)])


def assert_same(rule: str, module: hloenv.HloModule) -> None:
    """Of small integers, of which each sum is exact."""
    form = form_by(rule, module)
    rng = np.random.default_rng(0)
    arrays = [
        rng.integers(-9, 9, spec.shape).astype(spec.dtype)
        for spec in module.input_specs()
    ]
    (wanted,) = hloenv.interpret(module, *arrays)
    np.testing.assert_array_equal(hloenv.interpret(form, *arrays)[0], wanted)
    np.testing.assert_array_equal(
        hloenv.compile(form, isolate=False)(*arrays)[0], wanted
    )
