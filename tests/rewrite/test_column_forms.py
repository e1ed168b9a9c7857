# SPDX-License-Identifier: Apache-2.0
"""reduce-forms: reductions around dimensions that are kept, as of groups of columns."""

from __future__ import annotations

import random
import re

import numpy as np
import pytest

import hloenv
from hloenv.policies import get_policy

NEUTRAL = {"add": "0", "multiply": "1", "maximum": "-inf", "minimum": "inf"}


def module(sizes, reduced, *, kind="f32", operation="add", start=None, order="a, b"):
    """A reduction of squares, HLO text."""
    shape = f"{kind}[{','.join(map(str, sizes))}]"
    kept = [size for d, size in enumerate(sizes) if d not in reduced]
    return f"""HloModule columns

region {{
  a = {kind}[] parameter(0)
  b = {kind}[] parameter(1)
  ROOT c = {kind}[] {operation}({order})
}}

ENTRY main {{
  x = {shape} parameter(0)
  y = {shape} multiply(x, x)
  start = {kind}[] constant({NEUTRAL[operation] if start is None else start})
  ROOT r = {kind}[{",".join(map(str, kept))}] reduce(y, start),
    dimensions={{{",".join(map(str, reduced))}}}, to_apply=region
}}
"""


def captured(text):
    return hloenv.HloEnv(hloenv.HloModule.from_text(text)).get_alternatives(
        "reduce-forms"
    )


def columns_of(text):
    """The alternatives, and the decisions for this rule; None if it is not there."""
    alternatives = captured(text)
    for each in alternatives:
        for index, choice in enumerate(each.choices):
            if choice.rule == "columns":
                return alternatives, [index]
    return alternatives, None


def has_columns(sizes, reduced):
    """Whether the last dimension is reduced, one before is kept, and one before that
    is reduced."""
    long = [d for d, size in enumerate(sizes) if size > 1]
    words = "".join("r" if d in reduced else "k" for d in long)
    return re.search("r+k+r+$", words) is not None


@pytest.mark.parametrize(
    ("kind", "operation", "tolerance"),
    [
        ("f32", "add", 1e-5),
        ("f32", "multiply", 1e-4),
        ("f64", "maximum", 0.0),
        ("f32", "minimum", 0.0),
        ("bf16", "add", 2e-2),
        ("f16", "add", 3e-3),
        ("c64", "add", 1e-5),
    ],
)
def test_random_reductions(kind, operation, tolerance):
    rng = random.Random(2)
    count = 0
    for seed in range(60):
        sizes = [rng.randint(1, 4) for _ in range(rng.randint(3, 6))]
        reduced = sorted(rng.sample(range(len(sizes)), rng.randint(2, len(sizes) - 1)))
        order = rng.choice(("a, b", "b, a"))
        start = "(0, 0)" if kind == "c64" else None
        text = module(
            *(sizes, reduced),
            kind=kind,
            operation=operation,
            order=order,
            start=start,
        )
        alternatives, decisions = columns_of(text)
        assert (decisions is not None) == has_columns(sizes, reduced), text
        count += decisions is not None
        for record in hloenv.verify_alternatives(alternatives, seed=seed):
            assert record.relative <= tolerance, (record, text)
    assert count >= 10


@pytest.mark.parametrize(
    ("operation", "kind", "start"),
    [("add", "s32", "0"), ("and", "s32", "-1"), ("or", "pred", "false")],
)
def test_integers_are_exact(operation, kind, start):
    text = module((4, 30, 3, 5), (1, 3), kind=kind, operation=operation, start=start)
    if kind == "pred":
        text = text.replace("multiply(x, x)", "and(x, x)")
    alternatives, decisions = columns_of(text)
    assert decisions == [1]
    for record in hloenv.verify_alternatives(alternatives):
        assert record.relative == 0


@pytest.mark.compile
@pytest.mark.parametrize("engine", ["wheel", "jaxlib"])
def test_it_compiles_to_two_reductions_and_computes_the_same(engine):
    alternatives, decisions = columns_of(module((2, 50, 4, 8), (1, 3)))
    decided = alternatives.apply(decisions)
    assert decided.opcode_counts()["reduce"] == 2
    assert decided.opcode_counts()["call"] == 1
    original = alternatives.apply([0])
    inputs = hloenv.random_inputs(original)
    wanted = hloenv.interpret(original, *inputs)
    outputs = hloenv.compile(decided, engine=engine, isolate=False)(*inputs)
    hloenv.compare_outputs(wanted, outputs, rtol=1e-5).check()


def test_not_a_number_stays_in_its_group():
    alternatives, decisions = columns_of(module((2, 6, 4, 8), (1, 3)))
    x = np.ones((2, 6, 4, 8), np.float32)
    x[1, 5, 2, 7] = np.nan
    x[0, 3, 1, 0] = np.inf
    (output,) = hloenv.interpret(alternatives.apply(decisions), x)
    wanted = np.full((2, 4), 48, np.float32)
    wanted[1, 2], wanted[0, 1] = np.nan, np.inf
    np.testing.assert_array_equal(output, wanted)


@pytest.mark.parametrize(
    ("sizes", "reduced"),
    [
        ((8, 50, 64), (1,)),  # the last dimension is kept
        ((8, 50, 64), (2,)),
        ((8, 50, 64), (1, 2)),
        ((8, 50, 1, 64), (1, 3)),  # nothing is kept between
        ((8, 1, 4, 16), (1, 3)),  # nothing is reduced before
        ((1, 50, 4, 1), (1, 3)),
        ((8, 50, 4, 0), (1, 3)),
        ((8, 50, 4), (0, 1, 2)),
    ],
)
def test_not_offered_without_columns(sizes, reduced):
    assert columns_of(module(sizes, reduced))[1] is None


def test_not_offered_from_another_start():
    assert columns_of(module((2, 50, 4, 8), (1, 3), start="1"))[1] is None
    text = module((2, 50, 4, 8), (1, 3))
    text = text.replace("start = f32[] constant(0)", "start = f32[] parameter(1)")
    assert columns_of(text)[1] is None


def test_not_offered_for_sums_of_infinities():
    text = module((2, 50, 4, 8), (1, 3)).replace(
        "y = f32[2,50,4,8] multiply(x, x)",
        "i = f32[] constant(inf)\n  y = f32[2,50,4,8] broadcast(i), dimensions={}",
    )
    assert columns_of(text)[1] is None


@pytest.mark.parametrize(
    ("sizes", "reduced", "is_taken"),
    [
        ((8, 196, 32, 8), (1, 3), True),
        ((8, 14, 14, 32, 8), (1, 2, 4), True),
        ((1, 3136, 2, 4), (1, 3), True),
        ((8, 196, 8, 32), (1, 3), False),  # long rows
        ((8, 16, 32, 16), (1, 3), False),  # short columns
        ((1, 200, 2, 4), (1, 3), False),  # few elements
        ((128, 4096, 16), (0, 2), False),  # wide
    ],
)
def test_known_forms_take_it_where_it_is_faster(sizes, reduced, is_taken):
    alternatives, decisions = columns_of(module(sizes, reduced))
    taken = get_policy("known-forms")(alternatives).tolist()
    assert taken == (decisions if is_taken else [-1])
