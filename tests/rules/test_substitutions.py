# SPDX-License-Identifier: Apache-2.0
"""TASO's families of substitutions: each rule, before and after."""

from __future__ import annotations

import re

import numpy as np
import pytest

from hloenv import (
    HloEnv,
    HloModule,
    list_passes,
    random_inputs,
    verify_alternatives,
)
from hloenv.hlo.text import parse_text
from hloenv.rules import check_rule
from hloenv.rules.check import single_decisions
from hloenv.rules.sets import SUBSTITUTIONS
from rules.captures import capture_rules
from rules.cases import CASES, module_of
from rules.variants import variants

RULES = {rule.name: rule for rule in SUBSTITUTIONS.rules}


def expression(module: HloModule) -> str:
    """What the entry computes, as one expression without attributes."""
    text = parse_text(module.to_text())
    instructions = text.computations[text.entry].instructions

    def of(index: int) -> str:
        each = instructions[index]
        if each.opcode == "parameter":
            return each.name
        return f"{each.opcode}({', '.join(map(of, each.operands))})"

    return of(text.computations[text.entry].root)


def test_every_rule_has_a_case() -> None:
    assert set(CASES) == set(RULES)


@pytest.mark.parametrize("name", CASES)
def test_a_rule_makes_of_its_case_what_is_written_there(name) -> None:
    text, wanted = CASES[name]
    alternatives = capture_rules(HloModule.from_text(module_of(text)), [RULES[name]])
    results = {
        expression(alternatives.apply(decisions))
        for decisions in single_decisions(alternatives)
    }
    assert wanted in results
    assert expression(alternatives.apply(alternatives.reject_all())) == expression(
        HloModule.from_text(module_of(text))
    )


@pytest.mark.parametrize("name", CASES)
def test_a_rule_gives_equal_integers(name) -> None:
    assert check_rule(RULES[name], module_of(CASES[name][0])) >= 24


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("scale-of-biased", "subtract(x, t)", "add(t, x)"),
        ("merge-biases", "subtract(x, t)", "add(t, x)"),
        ("merge-biases", "add(s, w)", "add(w, s)"),
    ],
)
def test_operands_of_commutative_operations_are_in_any_order(name, old, new) -> None:
    text = CASES[name][0].replace(old, new)
    assert text != CASES[name][0]
    assert check_rule(RULES[name], module_of(text)) >= 24


def test_operands_of_other_operations_are_in_their_order() -> None:
    text = CASES["merge-biases"][0].replace("subtract(x, t)", "subtract(t, x)")
    module = HloModule.from_text(module_of(text))
    assert not len(capture_rules(module, [RULES["merge-biases"]]))


# A product of f32[2,3,N] and f32[3] has two dimensions, but is not one of matrices.
_ODD_PRODUCT = """a = f32[2,3,{n}] parameter(0)
v = f32[3] parameter(1)
b = f32[3] parameter(2)
s = f32[2,3,{n}] broadcast(v), dimensions={{1}}
x = f32[2,3,{n}] add(a, s)
p = f32[2,{n}] dot(x, b), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
ROOT t = f32[{n},2] transpose(p), dimensions={{1,0}}"""


@pytest.mark.parametrize("n", [2, 4])
def test_a_product_of_a_cube_is_not_one_of_matrices(n) -> None:
    module = HloModule.from_text(module_of(_ODD_PRODUCT.format(n=n)))
    alternatives = HloEnv(module).get_alternatives("substitutions")
    rules = {choice.rule for each in alternatives for choice in each.choices[1:]}
    assert not rules & {"exchange-dot", "transpose-of-dot", "bias-through-dot"}
    assert "expand-dot-left-operand" in rules
    assert all(each.relative < 1e-5 for each in verify_alternatives(alternatives))


def test_a_bias_keeps_the_precision_of_its_product() -> None:
    text = module_of(CASES["bias-through-dot"][0]).replace(
        "rhs_contracting_dims={0}",
        "rhs_contracting_dims={0}, operand_precision={highest,default}",
    )
    module = HloModule.from_text(text)
    alternatives = capture_rules(module, [RULES["bias-through-dot"]])
    result = alternatives.apply([1]).to_text()
    assert result.count(" dot(") == 2
    assert result.count("operand_precision={highest,default}") == 2


def test_absolute_values_of_several_types_are_not_concatenated_first() -> None:
    text = """a = c64[2] parameter(0)
    b = f32[2] parameter(1)
    p = f32[2] abs(a)
    q = f32[2] abs(b)
    ROOT r = f32[4] concatenate(p, q), dimensions={0}"""
    module = HloModule.from_text(module_of(text))
    assert not len(HloEnv(module).get_alternatives("substitutions"))


@pytest.mark.parametrize(
    "name", ["enlarge-kernel", "enlarge-and-merge", "merge-groups"]
)
@pytest.mark.parametrize("dtype", ["c64", "s32", "bf16"])
def test_kernels_of_every_type_are_padded_with_zeros(name, dtype) -> None:
    text = module_of(CASES[name][0].replace("f32", dtype))
    assert check_rule(RULES[name], text) > 0


ADDITIVE = (
    *("factor-convolution-inputs", "expand-convolution-input"),
    *("factor-convolution-kernels", "expand-convolution-kernel"),
    *("merge-convolution-sum", "split-convolution-sum"),
    *("scale-into-kernel", "batch-norm-into-kernel", "scale-out-of-kernel"),
    *("scale-of-input-into-kernel", "scale-of-kernel-into-input"),
)


@pytest.mark.parametrize("name", ADDITIVE)
def test_convolutions_of_integers_are_not_linear(name) -> None:
    # XLA's evaluator saturates them.
    text = module_of(CASES[name][0].replace("f32", "s8"))
    assert not len(capture_rules(HloModule.from_text(text), [RULES[name]]))


@pytest.mark.parametrize(
    ("kind", "min_modules", "min_choices"),
    [("c64", 50, 70), ("products in f32", 30, 1), ("trailing", 60, 60)],
)
def test_what_is_offered_for_other_types_and_shapes_is_equal(
    kind, min_modules, min_choices
) -> None:
    num_modules = num_choices = 0
    for name in CASES:
        for module in variants(name, kind):
            alternatives = HloEnv(module).get_alternatives("substitutions")
            # Products and sums of small integers are exact in all of these types.
            inputs = [
                np.rint(2 * each).astype(each.dtype) for each in random_inputs(module)
            ]
            errors = verify_alternatives(alternatives, inputs)
            assert {each.absolute for each in errors} <= {0.0}, (name, module)
            num_modules += 1
            num_choices += len(errors)
    assert num_modules >= min_modules
    assert num_choices >= min_choices


def test_the_substitutions_are_a_pass_with_an_option_for_each_rule() -> None:
    assert "substitutions" in list_passes()
    options = {each.name.replace("_", "-") for each in SUBSTITUTIONS.info.options}
    assert options == set(RULES)


@pytest.mark.parametrize(
    ("rule", "value"),
    [("expand-dot-left-operand", "b"), ("enlarge-kernel", "x"), ("merge-groups", "x")],
)
def test_infinities_and_masks_of_the_module_are_not_read(rule, value) -> None:
    """A sum of what was apart would give NaN where numbers were finite."""
    text = CASES[rule][0]
    rules = [RULES[rule]]
    assert len(capture_rules(HloModule.from_text(module_of(text)), rules)) > 0
    masked = r"""\1 = \2 parameter(\3)
        low = f32[] constant(-1e38)
        lows = \2 broadcast(low), dimensions={}
        sum = \2 add(\1, lows)"""
    masked = re.sub(rf"({value}) = (\S+) parameter\((\d)\)", masked, text)
    head, root = masked.rsplit("ROOT", 1)
    if rule == "expand-dot-left-operand":
        root = root.replace(f", {value})", ", sum)")
    else:
        root = root.replace(f"({value}, ", "(sum, ")
    assert "sum" in root
    module = HloModule.from_text(module_of(f"{head}ROOT{root}"))
    assert len(capture_rules(module, rules)) == 0
