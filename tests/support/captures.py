# SPDX-License-Identifier: Apache-2.0
"""Captures of passes on HLO text, and what their choices compute."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import hloenv

# Computations that reductions of a test's entry may call.
REDUCERS = "".join(
    f"\n{name} {{\n  a = f32[] parameter(0)\n  b = f32[] parameter(1)\n"
    f"  ROOT s = f32[] {opcode}(a, b)\n}}\n"
    for name, opcode in (("add", "add"), ("mul", "multiply"), ("max", "maximum"))
)


def capture(text: str, *passes: str | hloenv.Pass) -> hloenv.Alternatives:
    """The alternatives of the passes on a module."""
    return hloenv.HloEnv(hloenv.HloModule.from_text(text)).get_alternatives(*passes)


def capture_rule(text: str, name: str, rule: str) -> hloenv.Alternatives:
    """The alternatives of one rule of a pass, without its others."""
    options = (option.name for option in hloenv.describe_pass(name).options)
    others = {each: False for each in options if each != rule}
    return capture(text, hloenv.Pass(name, **others))


# Largest relative differences of sums in another order, of operands and of results of
# these types; of f32 in float64.
TOLERANCES = {"f32": 1e-12, "f64": 1e-12, "s32": 0.0, "bf16->f32": 1e-5, "bf16": 2e-2}


def check_rule(
    text: str, name: str, rule: str, types: str = "f32", seed: int = 0
) -> int:
    """Compares the choices of one rule with their originals; how many there are."""
    alternatives = capture_rule(text, name, rule)
    for record in hloenv.verify_alternatives(
        alternatives, seed=seed, float64=types == "f32"
    ):
        assert record.relative <= TOLERANCES[types], (record, text)
    return len(alternatives)


def rules(alternatives: hloenv.Alternatives) -> list[str]:
    """The rule of each choice that is not an original."""
    return [choice.rule for each in alternatives for choice in each.choices[1:]]


def decisions_for_rule(alternatives: hloenv.Alternatives, rule: str) -> list[int]:
    """Accepts a rule wherever it is offered."""
    return [
        next((i for i, c in enumerate(each.choices) if i and c.rule == rule), 0)
        for each in alternatives
    ]


def check_compiled(text: str, name: str) -> None:
    """Each choice of the only alternative compiles, and computes what it replaces."""
    module = hloenv.HloModule.from_text(text)
    alternatives = capture(text, name)
    inputs = hloenv.random_inputs(module)
    wanted = hloenv.interpret(module, *inputs)
    for choice in range(1, alternatives.num_choices[0]):
        outputs = hloenv.compile(alternatives.apply([choice]), isolate=False)(*inputs)
        hloenv.compare_outputs(wanted, outputs, rtol=1e-5).check()


def capture_jax(
    fn: Callable[..., Any], *arrays: Any, name: str, rule: str
) -> tuple[hloenv.HloModule, hloenv.Alternatives]:
    """The module of a function, as hloenv.jit decides it, and what a rule offers."""
    from hloenv.jax.auto import INLINING

    module = hloenv.HloModule.from_jax(fn, *arrays)
    module = hloenv.run_passes(module, *INLINING).module
    return module, capture_rule(module.to_text(), name, rule)


def check_decided(
    module: hloenv.HloModule, decided: hloenv.HloModule, *arrays: Any
) -> None:
    """That both have the same outputs, bit for bit, by all that runs modules."""
    wanted = hloenv.interpret(module, *arrays)
    results = [hloenv.interpret(decided, *arrays)]
    for engine in ("wheel", "jaxlib"):
        run = hloenv.compile(decided, engine=engine, isolate=False)
        results.append(run(*arrays))
    for found in results:
        for a, b in zip(map(np.asarray, wanted), map(np.asarray, found), strict=True):
            assert (a.dtype, a.shape) == (b.dtype, b.shape)
            if a.tobytes() != b.tobytes():
                np.testing.assert_array_equal(a, b)
                raise AssertionError("equal numbers have other bits, as zeros may")
