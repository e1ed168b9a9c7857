# SPDX-License-Identifier: Apache-2.0
"""Greedy, TASO's backtracking and equality saturation on one rule set."""

from __future__ import annotations

import math

import numpy as np
import pytest

import hloenv
from hloenv.cost import Estimate
from hloenv.cost.operators import OperatorSum
from hloenv.envs import SubstitutionEnv
from hloenv.errors import (
    ArgumentError,
    ArgumentTypeError,
    PassError,
    UnknownPassError,
)
from hloenv.hlo.python_passes import remove_pass
from hloenv.rules import register_pass
from hloenv.substitution import (
    Budget,
    Expander,
    SaturationLimits,
    backtracking,
    egraph,
    greedy,
    saturate,
    saturate_by_tree_search,
)
from hloenv.substitution.extraction import extract
from hloenv.substitution.terms import Node, Shape, shape_of, term_of
from substitution.modules import equal, sum_of_products


class Failing:
    """Estimates nothing."""

    def estimate_many(self, modules):
        return [Estimate(math.nan, error="no") for _ in modules]


def test_candidates_are_single_and_different() -> None:
    module = sum_of_products()
    expander = Expander()
    found = expander.expand(module, max_instructions=expander.limit(module))
    fingerprints = [each.fingerprint for each in found.candidates]
    assert len(set(fingerprints)) == len(fingerprints) > 3
    assert module.fingerprint() not in fingerprints
    assert "factor-dot-left-operands@s" in {each.name for each in found.candidates}
    assert expander.expand(module, max_instructions=24) is found


def _with_weights(first: int) -> hloenv.HloModule:
    weights = ", ".join(str(first + each) for each in range(16))
    return hloenv.HloModule.from_text(
        f"""HloModule weights

ENTRY main {{
  x = f32[16] parameter(0)
  w = f32[16] constant({{{weights}}})
  a = f32[16] multiply(x, w)
  b = f32[16] multiply(x, x)
  ROOT s = f32[16] add(a, b)
}}
"""
    )


def test_the_elements_of_constants_are_not_printed_to_find_candidates(
    monkeypatch,
) -> None:
    # Of a model with its weights, that is nearly all of the time.
    print_module = hloenv.HloModule.to_text

    def printed(module, **options):
        text = print_module(module, **options)
        assert "17, 18, 19" not in text
        return text

    monkeypatch.setattr(hloenv.HloModule, "to_text", printed)
    expander = Expander()
    one, other = _with_weights(9), _with_weights(10)
    found = expander.expand(one, max_instructions=99)
    assert found.candidates
    # They are told apart all the same.
    assert expander.expand(other, max_instructions=99) is not found
    assert expander.expand(_with_weights(9), max_instructions=99) is found


def test_candidates_that_grow_are_left_out() -> None:
    module = sum_of_products()
    found = Expander(max_growth=1.0).expand(module, max_instructions=12)
    assert found.num_left_out > 0
    assert all(each.module.instruction_count <= 12 for each in found.candidates)
    few = Expander(max_candidates=2).expand(module, max_instructions=24)
    assert len(few.candidates) == 2


def test_backtracking_escapes_a_local_minimum_of_greedy() -> None:
    module = sum_of_products()
    results = {
        "greedy": greedy(module, OperatorSum()),
        "narrow": backtracking(module, OperatorSum(), alpha=1.0),
        "wide": backtracking(module, OperatorSum(), alpha=1.05),
    }
    assert results["greedy"].path == ("factor-dot-left-operands@s",)
    assert results["narrow"].cost == results["greedy"].cost
    assert results["wide"].cost < results["greedy"].cost
    assert len(results["wide"].path) == 3
    for result in results.values():
        assert result.is_complete
        assert result.num_failed == 0
        assert result.speedup > 1
        assert equal(module, result.module)


def test_backtracking_goes_on_from_each_improvement() -> None:
    product = (
        "f32[64,32] dot({}, b), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}"
    )
    module = hloenv.HloModule.from_text(
        f"""HloModule three

ENTRY main {{
  a = f32[64,64] parameter(0)
  b = f32[64,32] parameter(1)
  c = f32[64,64] parameter(2)
  d = f32[64,64] parameter(3)
  p = {product.format("a")}
  q = {product.format("c")}
  r = {product.format("d")}
  s = f32[64,32] add(p, q)
  ROOT t = f32[64,32] add(s, r)
}}
"""
    )
    narrow = backtracking(module, OperatorSum(), alpha=1.0)
    assert len(narrow.path) == 2
    assert narrow.module.opcode_counts()["dot"] == 1
    assert narrow.cost <= greedy(module, OperatorSum()).cost


def test_a_budget_ends_a_search() -> None:
    module = sum_of_products()
    result = backtracking(
        module, OperatorSum(), alpha=10.0, budget=Budget(steps=3), expander=Expander()
    )
    assert (result.num_steps, result.is_complete) == (3, False)
    result = greedy(module, OperatorSum(), budget=Budget(seconds=1e-9))
    assert (result.num_steps, result.path) == (0, ())


def test_what_cannot_be_estimated_or_searched_is_refused() -> None:
    module = sum_of_products()
    with pytest.raises(ArgumentError, match="cannot be estimated"):
        greedy(module, Failing())
    with pytest.raises(ArgumentError, match="alpha"):
        backtracking(module, OperatorSum(), alpha=0.9)
    with pytest.raises(ArgumentError, match="budget"):
        Budget(steps=0)
    with pytest.raises(ArgumentError, match="at least one"):
        Expander(())
    with pytest.raises(ArgumentError, match="max_candidates"):
        Expander(max_candidates=0)
    with pytest.raises(UnknownPassError):
        Expander(("fly",))


@pytest.mark.parametrize("search", [greedy, backtracking])
def test_arguments_of_another_type_are_refused(search) -> None:
    module = sum_of_products()
    with pytest.raises(ArgumentTypeError, match="an HloModule, got str; read one"):
        search("sum.hlo", OperatorSum())
    with pytest.raises(ArgumentTypeError, match=r"estimate_many.*got 'operators'"):
        search(module, "operators")
    with pytest.raises(ArgumentTypeError, match=r"Expander\(PASSES\), got 'subst"):
        search(module, OperatorSum(), expander="substitutions")


def test_a_name_is_no_sequence_of_passes() -> None:
    for make in (Expander, lambda passes: SubstitutionEnv(passes=passes)):
        with pytest.raises(ArgumentTypeError, match=r"as \('substitutions',\), got"):
            make("substitutions")
        with pytest.raises(ArgumentTypeError, match="got 3"):
            make(3)


@pytest.mark.parametrize("saturate_by", [saturate, saturate_by_tree_search])
def test_saturation_refuses_other_methods_and_texts(saturate_by) -> None:
    with pytest.raises(ArgumentError, match="one of ilp, greedy, got 'lol'"):
        saturate_by(sum_of_products(), method="lol")
    with pytest.raises(ArgumentTypeError, match="an HloModule, got str"):
        saturate_by("sum.hlo")


class FailsLater(Expander):
    """Expands the start only."""

    num_calls = 0

    def expand(self, module, *, max_instructions):
        self.num_calls += 1
        if self.num_calls > 1:
            raise PassError("no")
        return super().expand(module, max_instructions=max_instructions)


@pytest.mark.parametrize("search", [greedy, backtracking])
def test_a_failed_expansion_is_no_complete_search(search) -> None:
    module = sum_of_products()
    result = search(module, OperatorSum(), expander=FailsLater())
    assert result.path
    assert result.num_failed
    assert not result.is_complete


@pytest.mark.parametrize("search", [greedy, backtracking])
def test_a_pass_that_fails_on_the_start_is_an_error(search) -> None:
    def fail(module):
        raise ValueError("no")

    register_pass(fail, name="fails")
    try:
        with pytest.raises(PassError, match="ValueError: no"):
            search(sum_of_products(), OperatorSum(), expander=Expander(["fails"]))
    finally:
        remove_pass("fails")


@pytest.mark.needs("egglog")
@pytest.mark.parametrize("method", ["greedy", "ilp"])
def test_saturation_finds_what_backtracking_finds(method) -> None:
    module = sum_of_products()
    result = saturate(module, method=method)
    assert result.is_saturated
    assert result.extraction.method == method
    assert result.extraction.is_optimal == (method == "ilp")
    assert result.extraction.cost < result.start_cost
    counts = result.module.opcode_counts()
    assert (counts["dot"], counts.get("transpose", 0)) == (1, 0)
    assert equal(module, result.module)
    best = backtracking(module, OperatorSum(), alpha=1.05)
    (estimate,) = OperatorSum().estimate_many([result.module])
    assert estimate.seconds <= best.cost * (1 + 1e-9)


@pytest.mark.needs("egglog")
def test_saturation_keeps_what_it_does_not_know() -> None:
    module = hloenv.HloModule.from_text(
        """HloModule loop

body {
  p = (s32[], f32[4,4]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  x = f32[4,4] get-tuple-element(p), index=1
  one = s32[] constant(1)
  j = s32[] add(i, one)
  y = f32[4,4] tanh(x)
  ROOT t = (s32[], f32[4,4]) tuple(j, y)
}

condition {
  p = (s32[], f32[4,4]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  n = s32[] constant(3)
  ROOT c = pred[] compare(i, n), direction=LT
}

ENTRY main {
  x = f32[4,4] parameter(0)
  unused = f32[2] parameter(1)
  zero = s32[] constant(0)
  k = f32[4,4] constant({{1,2,3,4},{5,6,7,8},{1,2,3,4},{5,6,7,8}})
  t = f32[4,4] transpose(x), dimensions={1,0}
  u = f32[4,4] transpose(k), dimensions={1,0}
  s = f32[4,4] add(t, u)
  first = (s32[], f32[4,4]) tuple(zero, s)
  w = (s32[], f32[4,4]) while(first), condition=condition, body=body
  ROOT r = f32[4,4] get-tuple-element(w), index=1
}
"""
    )
    result = saturate(module, method="greedy")
    assert result.module.opcode_counts()["transpose"] == 1
    assert result.module.entry_layout == module.entry_layout
    assert equal(module, result.module)


_MM = "lhs_contracting_dims={1}, rhs_contracting_dims={0}"
_LABELS = "window={size=1x1}, dim_labels=b01f_01io->b01f"
# Instructions whose terms must not lose their type, shape, saturation or name.
_TYPED = {
    "s8 dot": f"""a = s8[2,300] parameter(0)
        b = s8[300,2] parameter(1)
        p = s32[2,2] dot(a, b), {_MM}
        ROOT r = f32[2,2] convert(p)""",
    "bf16 dot": f"""a = bf16[2,300] parameter(0)
        b = bf16[300,2] parameter(1)
        p = f32[2,2] dot(a, b), {_MM}
        ROOT r = f64[2,2] convert(p)""",
    "s8 convolution": f"""x = s8[1,4,4,20] parameter(0)
        w = s8[1,1,20,2] parameter(1)
        p = s32[1,4,4,2] convolution(x, w), {_LABELS}
        ROOT r = f32[1,4,4,2] convert(p)""",
    "saturating convolution": f"""x = s8[1,1,1,9] parameter(0)
        y = s8[1,1,1,9] parameter(1)
        w = s8[1,1,9,2] parameter(2)
        p = s8[1,1,1,2] convolution(x, w), {_LABELS}
        q = s8[1,1,1,2] convolution(y, w), {_LABELS}
        ROOT r = s8[1,1,1,2] subtract(p, q)""",
    "complex abs": """a = c64[2] parameter(0)
        b = c64[2] parameter(1)
        p = f32[2] abs(a)
        q = f32[2] abs(b)
        ROOT r = f32[4] concatenate(p, q), dimensions={0}""",
    "mixed abs": """a = c64[2] parameter(0)
        b = f32[2] parameter(1)
        p = f32[2] abs(a)
        q = f32[2] abs(b)
        ROOT r = f32[4] concatenate(p, q), dimensions={0}""",
    "cubes": f"""a = f32[2,3,4] parameter(0)
        b = f32[3,5] parameter(1)
        c = f32[3,5] parameter(2)
        p = f32[2,4,5] dot(a, b), {_MM}
        q = f32[2,4,5] dot(a, c), {_MM}
        ROOT r = f32[2,8,5] concatenate(p, q), dimensions={{1}}""",
    "vectors": f"""a = f32[2,3,4] parameter(0)
        b = f32[3] parameter(1)
        c = f32[3] parameter(2)
        p = f32[2,4] dot(a, b), {_MM}
        q = f32[2,4] dot(a, c), {_MM}
        ROOT r = f32[2,8] concatenate(p, q), dimensions={{1}}""",
    "names": f"""saturated.0 = f32[2,3] parameter(0)
        saturated.2 = f32[3,2] parameter(1)
        saturated.3 = f32[2,2] dot(saturated.0, saturated.2), {_MM}
        saturated.1 = f32[2,2] sort(saturated.3), dimensions={{1}}, to_apply=less
        ROOT r = f32[2,2] add(saturated.1, saturated.3)""",
}
_LESS = """less {
  p = f32[] parameter(0)
  q = f32[] parameter(1)
  ROOT c = pred[] compare(p, q), direction=LT
}
"""


@pytest.mark.needs("egglog")
@pytest.mark.parametrize("name", _TYPED)
def test_saturation_keeps_types_shapes_and_names(name) -> None:
    less = _LESS if "to_apply=less" in _TYPED[name] else ""
    module = hloenv.HloModule.from_text(
        f"HloModule m\n\n{less}\nENTRY main {{\n{_TYPED[name]}\n}}\n"
    )
    result = saturate(module, method="greedy")
    assert result.module.output_specs() == module.output_specs()
    assert equal(module, result.module)


def test_a_term_whose_dimension_is_missing_has_no_shape() -> None:
    matrix, vector = Shape("f32", (2, 3)), Shape("f32", (3,))
    assert shape_of(Node("Transpose", ("a",), ("{2,0}",)), [matrix]) is None
    assert shape_of(Node("Concat", ("a", "b"), ("{1}",)), [vector, vector]) is None
    dot = Node("Dot", ("a", "b"), ("{1}", "{0}", ""))
    assert shape_of(dot, [vector, vector]) is None
    assert shape_of(dot, [matrix, vector]) == Shape("f32", (2,))


@pytest.mark.needs("egglog")
def test_saturation_stops_at_its_limits() -> None:
    lines = ["  x0 = f32[8,8] parameter(0)"]
    lines += [f"  x{i} = f32[8,8] add(x{i - 1}, x0)" for i in range(1, 30)]
    text = "HloModule chain\n\nENTRY main {\n" + "\n".join(lines)
    text += "\n  ROOT r = f32[8,8] negate(x29)\n}\n"
    limits = SaturationLimits(iterations=3, nodes=50, extraction_seconds=5)
    result = saturate(hloenv.HloModule.from_text(text), limits=limits)
    assert not result.is_saturated
    assert result.num_iterations == 1
    with pytest.raises(ArgumentError, match="must be positive"):
        SaturationLimits(nodes=0)


@pytest.mark.needs("egglog")
def test_saturation_takes_modules_as_jax_lowers_them() -> None:
    later = hloenv.run_until(sum_of_products(), "fusion")
    with pytest.raises(ArgumentError, match="position"):
        saturate(later)


def test_the_integer_program_shares_and_closes_no_cycle() -> None:
    # The sum of `r` is cheapest with the shared class; `a` and `b` can each be made of
    # the other, at no cost, which is no way to make them.
    share, left, right = Node("S", (), ()), Node("L", ("s",), ()), Node("R", ("s",), ())
    alone = Node("A", (), ())
    loop_a, loop_b = Node("LA", ("b",), ()), Node("LB", ("a",), ())
    root = Node("Root", ("a", "b"), ())
    classes = {
        "s": [share],
        "a": [alone, left, loop_a],
        "b": [right, loop_b, Node("B", (), ())],
        "r": [root],
    }
    costs = {
        share: 5.0,
        left: 1.0,
        right: 1.0,
        alone: 4.0,
        loop_a: 0.0,
        loop_b: 3.5,
        Node("B", (), ()): 4.0,
        root: 0.0,
    }
    found = extract(classes, costs, ["r"], method="ilp", seconds=10)
    # a alone (4), b of a (3.5), against both by s (7), and a of b (0) with b alone (4).
    assert found.cost == pytest.approx(4.0)
    assert found.nodes["a"] is loop_a
    assert found.nodes["b"].op == "B"
    assert found.is_optimal


@pytest.mark.needs("egglog")
@pytest.mark.parametrize("count", [300, 1100])
def test_a_module_of_many_values_is_extracted_as_it_is(count) -> None:
    """With names that continue each other, as v24 and v241."""
    rng = np.random.default_rng(0)
    lines = ["v0 = f32[4] parameter(0)", "v1 = f32[4] parameter(1)"]
    for number in range(2, count):
        kind = number % 8
        before, other = f"v{number - 1}", f"v{(number - 1) // 10}"
        text = f"maximum({before}, {other})"
        if kind == 1:
            text = f"tanh({before})"
        elif kind == 3:  # no rule knows it
            text = f"reverse({other}), dimensions={{0}}"
        elif kind in (0, 4):
            text = f"add({before}, {other})"
        elif kind == 6:
            text = "constant({1, 2, 3, 4})"
        lines.append(f"v{number} = f32[4] {text}")
    lines[-1] = f"ROOT {lines[-1]}"
    module = hloenv.HloModule.from_text(
        "HloModule many\nENTRY e {\n" + "\n".join(lines) + "\n}\n"
    )
    limits = SaturationLimits(iterations=1, nodes=1)
    found = saturate(module, method="greedy", limits=limits)
    inputs = [rng.standard_normal(4, np.float32) for _ in range(2)]
    (wanted,) = hloenv.interpret(module, *inputs)
    (output,) = hloenv.interpret(found.module, *inputs)
    np.testing.assert_allclose(output, wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.needs("egglog")
def test_an_egraph_with_another_operand_is_refused(monkeypatch) -> None:
    def mixed(value, name_of):
        if value.opcode == "add":
            return f'(Binary "add" {name_of[value.operands[0]]} $v0_)'
        return term_of(value, name_of)

    monkeypatch.setattr(egraph, "term_of", mixed)
    with pytest.raises(egraph.EgraphError, match="another operand of s "):
        saturate(sum_of_products(), method="greedy")
