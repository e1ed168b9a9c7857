# SPDX-License-Identifier: Apache-2.0
"""Reducers and reductions of which the backend or samples do not show everything."""

from __future__ import annotations

import numpy as np
import pytest

import hloenv
from hloenv import HloModule
from hloenv.hlo.python_passes import remove_pass
from support import captures
from support.arg_reduce import arg_text
from support.captures import capture


def rules(text, name):
    return captures.rules(capture(text, name))


def nested(kind: str, opcode: str, start: str) -> str:
    """A reduction of a reduction that starts with the identity."""
    identity = {"multiply": "1", "maximum": "-inf"}.get(opcode, "0")
    if kind == "s32" and opcode == "maximum":
        identity = str(np.iinfo(np.int32).min)
    return f"""HloModule nested

f {{
  a = {kind}[] parameter(0)
  b = {kind}[] parameter(1)
  ROOT s = {kind}[] {opcode}(a, b)
}}

ENTRY main {{
  x = {kind}[400,3] parameter(0)
  k = {kind}[] constant({start})
  z = {kind}[] constant({identity})
  r = {kind}[3] reduce(x, z), dimensions={{0}}, to_apply=f
  ROOT q = {kind}[] reduce(r, k), dimensions={{0}}, to_apply=f
}}
"""


@pytest.mark.parametrize(
    ("kind", "opcode", "start", "is_offered"),
    [
        ("s32", "add", "0", True),
        ("s32", "add", "500", False),
        ("f32", "add", "0", True),
        ("f32", "add", "500", False),
        ("bf16", "add", "0", False),
        ("f16", "add", "0", False),
        ("s32", "xor", "5", False),
        ("s32", "multiply", "1", True),
        ("s32", "multiply", "3", False),
        ("s32", "maximum", "500", True),
    ],
)
def test_merged_reductions_start_with_the_identity(kind, opcode, start, is_offered):
    """The backend starts each of several parts of a large one with its value."""
    text = nested(kind, opcode, start)
    assert ("merge_reductions" in rules(text, "reassociate")) == is_offered


@pytest.mark.compile
@pytest.mark.parametrize(("opcode", "start"), [("add", "0"), ("maximum", "500")])
def test_merged_reductions_compile_to_the_same(opcode, start):
    module = HloModule.from_text(nested("s32", opcode, start))
    found = hloenv.HloEnv(module).get_alternatives("reassociate")
    merged = found.apply(np.ones(len(found), np.int64))
    x = np.arange(1200, dtype=np.int32).reshape(400, 3) % 900
    np.testing.assert_array_equal(
        hloenv.compile(module)(x)[0], hloenv.compile(merged, isolate=False)(x)[0]
    )


def test_a_reduction_of_an_unknown_number_of_elements_is_not_merged():
    text = nested("f32", "add", "0").replace(
        "x = f32[400,3] parameter(0)",
        """p = f32[400,3] parameter(0)
  n = s32[] parameter(1)
  x = f32[<=400,3] set-dimension-size(p, n), dimensions={0}""",
    )
    assert "merge_reductions" not in rules(text, "reassociate")


@pytest.mark.parametrize(("kind", "is_offered"), [("f32", True), ("bf16", False)])
def test_sums_of_short_floats_are_not_split(kind, is_offered):
    text = f"""HloModule split

f {{
  a = {kind}[] parameter(0)
  b = {kind}[] parameter(1)
  ROOT s = {kind}[] add(a, b)
}}

ENTRY main {{
  x = {kind}[30,40,50] parameter(0)
  z = {kind}[] constant(0)
  ROOT r = {kind}[30] reduce(x, z), dimensions={{1,2}}, to_apply=f
}}
"""
    assert ("split_reductions" in rules(text, "reassociate")) == is_offered


def test_an_index_by_a_reducer_that_prefers_the_initial_value():
    """Which has the index of the first element."""
    text = arg_text(shape=(1, 64))
    assert "packed_index" in rules(text, "reduce-forms")
    odd = text.replace(
        "value = f32[] select(first, a, b)",
        """k = s32[] parameter(1)
  l = s32[] parameter(3)
  same = pred[] compare(k, l), direction=EQ
  kept = pred[] or(first, same)
  value = f32[] select(kept, a, b)""",
    )
    odd = odd.replace("i = s32[] parameter(1)\n", "i = s32[] maximum(k, k)\n")
    odd = odd.replace("j = s32[] parameter(3)\n", "j = s32[] maximum(l, l)\n")
    assert "packed_index" not in rules(odd, "reduce-forms")


def scan(reducer: str) -> str:
    return f"""HloModule scan

f {{
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  {reducer}
}}

ENTRY main {{
  x = f32[32] parameter(0)
  z = f32[] constant(-inf)
  ROOT g = f32[32] reduce-window(x, z), window={{size=32 pad=0_31}}, to_apply=f
}}
"""


@pytest.mark.parametrize(
    "inside",
    [
        """o = f32[] exponential(s)
  f = pred[] is-finite(o)
  in = pred[] not(f)""",
        """o = f32[] exponential(s)
  d = f32[] subtract(o, o)
  in = pred[] compare(d, d), direction=NE""",
    ],
)
def test_a_reducer_whose_threshold_is_an_overflow_is_no_scan(inside):
    text = scan(
        f"""s = f32[] maximum(a, b)
  {inside}
  u = f32[] add(a, b)
  ROOT r = f32[] select(in, u, s)"""
    )
    assert "scan" not in rules(text, "reduce-forms")


def test_a_reducer_that_computes_a_threshold_is_no_scan():
    assert "scan" in rules(scan("ROOT s = f32[] maximum(a, b)"), "reduce-forms")
    text = scan(
        """one = f32[] constant(1)
  t = f32[] subtract(a, a)
  o = f32[] exponential(t)
  two = f32[] add(o, one)
  p = f32[] exponential(two)
  lo = f32[] exponential(p)
  hi = f32[] add(lo, lo)
  s = f32[] maximum(a, b)
  g = pred[] compare(s, lo), direction=GT
  h = pred[] compare(s, hi), direction=LT
  in = pred[] and(g, h)
  u = f32[] add(a, b)
  ROOT r = f32[] select(in, u, s)"""
    )
    assert "scan" not in rules(text, "reduce-forms")


def test_reducers_and_comparators_of_many_operations_are_not_sampled():
    body = "\n  ".join(f"t{i}_ = pred[] and(t{i - 1}_, t0_)" for i in range(1, 4000))
    text = arg_text(shape=(1, 64))
    better = "better = pred[] compare(a, b), direction=GT"
    long = text.replace(
        better,
        f"t0_ = pred[] compare(a, b), direction=GT\n  {body}\n"
        "  better = pred[] and(t3999_, t0_)",
    )
    assert "packed_index" not in rules(long, "reduce-forms")


@pytest.mark.filterwarnings("ignore::hloenv.PositionWarning")
def test_a_fusion_of_nested_tuples_is_no_part_of_a_kernel_that_ends_the_process():
    text = """HloModule nested

fused {
  a = f32[4] parameter(0)
  n = f32[4] negate(a)
  u = (f32[4]) tuple(n)
  ROOT r = ((f32[4]), f32[4]) tuple(u, a)
}

ENTRY main {
  x = f32[4] parameter(0)
  f = ((f32[4]), f32[4]) fusion(x), kind=kLoop, calls=fused
  g = f32[4] get-tuple-element(f), index=1
  y = f32[4] sine(g)
  z = f32[4] cosine(y)
  w = f32[4] tanh(z)
  ROOT v = f32[4] negate(w)
}
"""
    for alternative in (found := capture(text, "single-kernel")):
        for choice in range(1, len(alternative.choices)):
            decisions = found.reject_all()
            decisions[alternative.index] = choice
            found.apply(decisions).verify()


@pytest.mark.filterwarnings("ignore::hloenv.PositionWarning")
@pytest.mark.parametrize("siblings", [False, True])
@pytest.mark.parametrize(("count", "is_offered"), [(8, True), (100, False)])
def test_values_of_many_readers_are_no_further_results_of_fusions(
    count, is_offered, siblings
):
    """A graph of all choices would hold each reader once for each reader."""
    adds = "\n  ".join(f"a{i} = f32[64] add(x, s)" for i in range(count))
    results = ", ".join(f"a{i}" for i in range(count))
    types = ", ".join(["f32[64]"] * count)
    text = f"""HloModule readers

ENTRY main {{
  x = f32[64] parameter(0)
  s = f32[64] sine(x)
  {adds}
  ROOT r = ({types}) tuple({results})
}}
"""
    fusion = hloenv.Pass("general-fusion", siblings=siblings)
    found = capture(text, fusion)
    further = [each for each in found if "s" in {site.original for site in each.sites}]
    assert (len(further) > 0) == is_offered


@pytest.mark.filterwarnings("ignore::hloenv.PositionWarning")
@pytest.mark.parametrize(("count", "is_offered"), [(100, True), (129, False)])
def test_fusions_of_many_operands_are_not_proposed(count, is_offered):
    parts = "\n  ".join(f"p{i} = f32[4] parameter({i})" for i in range(count))
    names = ", ".join(f"p{i}" for i in range(count))
    text = f"""HloModule operands

ENTRY main {{
  {parts}
  c = f32[{4 * count}] concatenate({names}), dimensions={{0}}
  ROOT r = f32[{4 * count}] negate(c)
}}
"""
    assert (len(capture(text, "general-fusion")) > 0) == is_offered


@pytest.fixture
def drop_zero():
    name = "drop-zero-and-keep"
    hloenv.rule(
        name,
        before="""z = constant(0)
  zb = broadcast(z), $d
  ROOT r = add(x, zb), $rest""",
        after="x",
        numerics="exact",
    )
    yield name
    remove_pass(name)


def test_what_a_rule_returns_of_the_module_stays_as_it_is(drop_zero):
    text = """HloModule kept

ENTRY main {
  p = f32[4] parameter(0)
  x = f32[4] sine(p), metadata={op_name="the sine"}
  z = f32[] constant(0)
  zb = f32[4] broadcast(z), dimensions={}
  y = f32[4] add(x, zb), frontend_attributes={k="v"}, metadata={op_name="the sum"}
  ROOT t = (f32[4], f32[4]) tuple(y, x)
}
"""
    found = capture(text, drop_zero)
    decided = found.apply([1]).to_text()
    assert 'op_name="the sine"' in decided
    assert 'k="v"' not in decided
