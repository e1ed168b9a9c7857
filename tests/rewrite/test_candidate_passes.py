# SPDX-License-Identifier: Apache-2.0
"""Candidate passes made of rules, and general-simplify: each rewrite a choice."""

from __future__ import annotations

import random

import numpy as np
import pytest

import hloenv
from support.captures import capture, rules

PASSES = (
    "dot-lowering",
    "thunk-order",
    "general-layout",
    "general-simplify",
    "merge-dots",
    "reassociate",
)

DOTS = """
HloModule dots

add {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT s = f32[] add(a, b)
}

ENTRY main {
  x = f32[6,8]{1,0} parameter(0)
  w1 = f32[8,4]{1,0} parameter(1)
  w2 = f32[8,5]{1,0} parameter(2)
  w3 = f32[4,7]{1,0} parameter(3)
  d1 = f32[6,4]{1,0} dot(x, w1), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  d2 = f32[6,5]{1,0} dot(x, w2), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  d3 = f32[6,7]{1,0} dot(d1, w3), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  zero = f32[] constant(0)
  r1 = f32[6]{0} reduce(d2, zero), dimensions={1}, to_apply=add
  r2 = f32[] reduce(r1, zero), dimensions={0}, to_apply=add
  r3 = f32[] reduce(d3, zero), dimensions={0,1}, to_apply=add
  a = f32[] add(r2, r3)
  b = f32[] multiply(a, r2)
  c = f32[] multiply(a, r3)
  s = f32[] add(b, c)
  q = f32[] add(s, r2)
  both = f32[8,9]{1,0} concatenate(w1, w2), dimensions={1}
  d4 = f32[6,9]{1,0} dot(x, both), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  part = f32[2,9]{1,0} slice(d4), slice={[1:3], [0:9]}
  ROOT out = (f32[], f32[6,7]{1,0}, f32[2,9]{1,0}) tuple(q, d3, part)
}
"""

CONVOLUTIONS = """
HloModule convolutions

ENTRY main {
  x = f32[2,6,6,3]{3,2,1,0} parameter(0)
  k1 = f32[3,3,3,4]{3,2,1,0} parameter(1)
  k2 = f32[3,3,3,5]{3,2,1,0} parameter(2)
  c1 = f32[2,6,6,4]{3,2,1,0} convolution(x, k1), window={size=3x3 pad=1_1x1_1},
    dim_labels=b01f_01io->b01f
  c2 = f32[2,6,6,5]{3,2,1,0} convolution(x, k2), window={size=3x3 pad=1_1x1_1},
    dim_labels=b01f_01io->b01f
  ROOT out = (f32[2,6,6,4]{3,2,1,0}, f32[2,6,6,5]{3,2,1,0}) tuple(c1, c2)
}
"""

# The second dot reads the first: as one they would read themselves.
CHAINED = """
HloModule chained

ENTRY main {
  x = f32[4,4]{1,0} parameter(0)
  w = f32[4,4]{1,0} parameter(1)
  d1 = f32[4,4]{1,0} dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT d2 = f32[4,4]{1,0} dot(x, d1), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
"""

BATCHED = """
HloModule batched

ENTRY main {
  x = f32[2,3,4,5]{3,2,1,0} parameter(0)
  w = f32[2,3,5,6]{3,2,1,0} parameter(1)
  ROOT d = f32[2,3,4,6]{3,2,1,0} dot(x, w), lhs_batch_dims={0,1}, rhs_batch_dims={0,1},
    lhs_contracting_dims={3}, rhs_contracting_dims={2}
}
"""

INTEGERS = """
HloModule integers

ENTRY main {
  a = s32[5]{0} parameter(0)
  b = s32[5]{0} parameter(1)
  c = s32[5]{0} parameter(2)
  ab = s32[5]{0} multiply(a, b)
  ac = s32[5]{0} multiply(a, c)
  difference = s32[5]{0} subtract(ab, ac)
  inner = s32[5]{0} add(difference, b)
  sum = s32[5]{0} add(c, inner)
  spread = s32[5]{0} multiply(sum, a)
  larger = s32[5]{0} maximum(spread, b)
  ROOT largest = s32[5]{0} maximum(larger, c)
}
"""

MODULES = {
    "dots": DOTS,
    "convolutions": CONVOLUTIONS,
    "chained": CHAINED,
    "batched": BATCHED,
    "integers": INTEGERS,
}


@pytest.mark.filterwarnings("ignore::hloenv.PositionWarning")
@pytest.mark.parametrize("text", MODULES.values(), ids=MODULES.keys())
@pytest.mark.parametrize("name", PASSES)
def test_any_decisions_compute_the_same(name, text):
    module = hloenv.HloModule.from_text(text)
    alternatives = hloenv.HloEnv(module).get_alternatives(name)
    inputs = hloenv.random_inputs(module)
    wanted = hloenv.interpret(module, *inputs)
    rejected = alternatives.apply(alternatives.reject_all())
    assert rejected.fingerprint() == module.fingerprint()
    rng = random.Random(0)
    for _ in range(8):
        decisions = [rng.randrange(n) for n in alternatives.num_choices]
        decided = alternatives.apply(decisions)
        decided.verify()
        outputs = hloenv.interpret(decided, *inputs)
        hloenv.compare_outputs(wanted, outputs, rtol=1e-5).check()
    # The simplifier looks at types, and finds other rewrites in float64.
    float64 = name != "general-simplify"
    for record in hloenv.verify_alternatives(alternatives, inputs, float64=float64):
        assert record.relative < (1e-12 if float64 else 1e-4)


def test_reassociate_finds_each_kind():
    assert set(rules(capture(DOTS, "reassociate"))) == {
        "distribute",
        "factor",
        "merge_reductions",
        "products",
        "split_reductions",
        "trees",
    }


def test_each_rule_can_be_turned_off():
    for name in ("reassociate", "merge-dots"):
        options = hloenv.describe_pass(name).options
        assert {option.name for option in options} == set(rules(capture(DOTS, name)))
        for option in options:
            found = capture(DOTS, hloenv.Pass(name, **{option.name: False}))
            assert option.name not in rules(found)
        only_off = {option.name: False for option in options}
        assert len(capture(DOTS, hloenv.Pass(name, **only_off))) == 0


def test_integers_stay_exact():
    module = hloenv.HloModule.from_text(INTEGERS)
    alternatives = capture(INTEGERS, "reassociate")
    assert {"trees", "factor", "distribute"} <= set(rules(alternatives))
    inputs = [
        np.random.default_rng(i).integers(-(2**31), 2**31, 5).astype(np.int32)
        for i in range(3)
    ]
    (wanted,) = hloenv.interpret(module, *inputs)
    decided = alternatives.apply(alternatives.decisions_for("reassociate"))
    np.testing.assert_array_equal(hloenv.interpret(decided, *inputs)[0], wanted)


def test_merge_dots_merges_what_shares_an_operand():
    alternatives = capture(DOTS, "merge-dots")
    merges = [a for a in alternatives if a.choices[1].rule == "merge"]
    assert len(merges) == 3
    assert all(a.kind == "sites" and len(a.sites) == 2 for a in merges)
    decisions = alternatives.reject_all()
    decisions[merges[0].index] = 1
    decided = alternatives.apply(decisions)
    assert decided.opcode_counts()["dot"] == 3


def test_merge_dots_merges_convolutions():
    alternatives = capture(CONVOLUTIONS, "merge-dots")
    decided = alternatives.apply(alternatives.decisions_for("merge-dots"))
    assert decided.opcode_counts()["convolution"] == 1


def test_a_dot_is_not_merged_with_one_that_reads_it():
    assert "merge" not in rules(capture(CHAINED, "merge-dots"))


def test_split_undoes_merge():
    alternatives = capture(CONVOLUTIONS, "merge-dots")
    merged = alternatives.apply(alternatives.decisions_for("merge-dots"))
    back = hloenv.HloEnv(merged).get_alternatives("merge-dots")
    assert {"slice", "split"} <= set(rules(back))
    decided = back.apply([int(each.choices[1].rule == "slice") for each in back])
    assert decided.opcode_counts()["convolution"] == 2


@pytest.mark.filterwarnings("ignore::hloenv.PositionWarning")
def test_layouts_of_batched_dots_keep_the_batch_outermost():
    alternatives = capture(BATCHED, "general-layout")
    (only,) = alternatives
    # The two inner dimensions of each operand and of the result may change places.
    assert [choice.rule for choice in only.choices[1:]] == ["operands"] * 2 + [
        "results"
    ]


@pytest.mark.compile
@pytest.mark.parametrize("text", [DOTS, CONVOLUTIONS, BATCHED])
def test_decided_layouts_compile_and_compute_the_same(text):
    module = hloenv.HloModule.from_text(text)
    env = hloenv.HloEnv(module)
    env.run_until("fusion")
    alternatives = env.get_alternatives("general-layout")
    assert len(alternatives) > 0
    rng = random.Random(1)
    env.apply_alternatives([rng.randrange(n) for n in alternatives.num_choices])
    inputs = hloenv.random_inputs(module)
    outputs = hloenv.compile(env.module, isolate=False)(*inputs)
    wanted = hloenv.compile(module)(*inputs)
    hloenv.compare_outputs(wanted, outputs, rtol=1e-5).check()


def test_general_simplify_offers_what_algsimp_does_and_more():
    alternatives = capture(DOTS, "algsimp", "general-simplify")
    for alternative in alternatives:
        passes = [choice.passes for choice in alternative.choices[1:]]
        # What both do is one choice that names both.
        assert ("algsimp",) not in passes
    extra = capture(DOTS, "general-simplify")
    assert len(extra) > len(capture(DOTS, "algsimp"))
    assert extra.pass_names == ("general-simplify",)
    assert not extra.indivisible


def test_costs_are_what_each_choice_alone_changes():
    module = hloenv.HloModule.from_text(DOTS)
    alternatives = capture(DOTS, "reassociate", "merge-dots")
    before, costs = module.cost(), alternatives.costs
    num_checked = 0
    for alternative in alternatives:
        for choice in range(alternative.num_choices):
            decisions = alternatives.reject_all()
            decisions[alternative.index] = choice
            after = alternatives.apply(decisions)
            at = costs.first[alternative.index] + choice
            assert costs.flops[at] == after.cost().flops - before.flops
            if "reduce" not in alternative.choices[choice].opcode:
                grown = after.instruction_count - module.instruction_count
                assert costs.instructions[at] == grown
            num_checked += 1
    assert num_checked == int(alternatives.num_choices.sum())


def test_passes_say_where_they_belong():
    with pytest.warns(hloenv.PositionWarning, match="general-layout"):
        capture(DOTS, "general-layout")
