# SPDX-License-Identifier: Apache-2.0
"""Rules ask for infinities that a module computes in itself, wherever that is."""

from __future__ import annotations

import pytest

from support.captures import capture, rules


def rejects_factor(lines: str, before: str = "") -> bool:
    """Whether a*s - b*s stays as it is, for an `s` of the given lines."""
    text = f"""HloModule known
{before}
ENTRY main {{
  a = f32[4] parameter(0)
  b = f32[4] parameter(1)
  {lines}
  p = f32[4] multiply(a, s)
  q = f32[4] multiply(b, s)
  ROOT c = f32[4] subtract(p, q)
}}
"""
    return "factor" not in rules(capture(text, "reassociate"))


# The gradient of a cross-entropy with labels scatters constants to known places.
MOVES = {
    "scatter": "scatter(zeros, at, part), update_window_dims={}, "
    "inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1, "
    "to_apply=add",
    "gather": "gather(values, rows), offset_dims={}, collapsed_slice_dims={0}, "
    "start_index_map={0}, index_vector_dim=1, slice_sizes={1}",
    "dynamic-slice": "dynamic-slice(values, one), dynamic_slice_sizes={4}",
    "dynamic-update-slice": "dynamic-update-slice(zeros, part, one)",
}


@pytest.mark.parametrize("move", MOVES.values(), ids=MOVES)
@pytest.mark.parametrize("number", ["-0.25", "inf"])
def test_what_moves_constants_is_known(move, number):
    lines = f"""
  zero = f32[] constant(0)
  zeros = f32[4] broadcast(zero), dimensions={{}}
  part = f32[2] constant({{{number}, 2}})
  values = f32[5] constant({{1, 2, {number}, 3, 4}})
  one = s32[] constant(1)
  at = s32[2,1] constant({{{{1}}, {{3}}}})
  rows = s32[4,1] constant({{{{4}}, {{2}}, {{0}}, {{1}}}})
  s = f32[4] {move}"""
    before = """
add {
  x = f32[] parameter(0)
  y = f32[] parameter(1)
  ROOT r = f32[] add(x, y)
}"""
    assert rejects_factor(lines, before) == (number == "inf")


@pytest.mark.parametrize("index", [0, 1])
def test_each_element_of_a_tuple_is_known(index):
    text = """
  z0 = f32[4] constant({N,2,2,2})
  z1 = f32[4] constant({N,3,3,3})
  t = (f32[4], f32[4]) tuple(z0, z1)
  g0 = f32[4] get-tuple-element(t), index=0
  g1 = f32[4] get-tuple-element(t), index=1
  l0 = f32[4] log(g0)
  l1 = f32[4] log(g1)
  other = f32[4] subtract(l0, l1)
  s = f32[4] copy(lINDEX)""".replace("INDEX", str(index))
    assert rejects_factor(text.replace("N", "0"))
    assert not rejects_factor(text.replace("N", "1"))


def test_both_of_two_are_rejected():
    text = """HloModule second

ENTRY main {
  a = f32[4] parameter(0)
  b = f32[4] parameter(1)
  y = f32[4] constant({0,1,1,1})
  z = f32[4] constant({0,2,2,2})
  t = (f32[4], f32[4]) tuple(y, z)
  g0 = f32[4] get-tuple-element(t), index=0
  g1 = f32[4] get-tuple-element(t), index=1
  l0 = f32[4] log(g0)
  l1 = f32[4] log(g1)
  p0 = f32[4] multiply(a, l0)
  q0 = f32[4] multiply(b, l0)
  c0 = f32[4] subtract(p0, q0)
  p1 = f32[4] multiply(a, l1)
  q1 = f32[4] multiply(b, l1)
  c1 = f32[4] subtract(p1, q1)
  ROOT r = (f32[4], f32[4]) tuple(c0, c1)
}
"""
    assert "factor" not in rules(capture(text, "reassociate"))
    found = rules(capture(text.replace("{0,", "{1,"), "reassociate"))
    assert found.count("factor") == 2


def test_an_element_of_a_tuple_constant():
    text = """k = (f32[4], s32[]) constant(({N,1,1,1}, 7))
  s = f32[4] get-tuple-element(k), index=0"""
    assert rejects_factor(text.replace("N", "inf"))
    assert not rejects_factor(text.replace("N", "2"))
    nested = """k = (s32[], (f32[4], f32[])) constant((7, ({N,1,1,1}, 1)))
  i = (f32[4], f32[]) get-tuple-element(k), index=1
  s = f32[4] get-tuple-element(i), index=0"""
    assert rejects_factor(nested.replace("N", "inf"))
    assert not rejects_factor(nested.replace("N", "2"))


LOG_OF = """
log_of {
  p = f32[4] parameter(0)
  ROOT l = f32[4] log(p)
}
log_of_one {
  p = f32[] parameter(0)
  ROOT l = f32[] log(p)
}
"""


@pytest.mark.parametrize(
    ("bad", "good"),
    [
        ("atanh(o)", "atanh(m)"),
        ("cosh(h)", "cosh(m)"),
        ("sinh(h)", "sinh(m)"),
        ("map(m), dimensions={0}, to_apply=log_of_one", "negate(m)"),
        ("bitcast-convert(i)", "bitcast-convert(j)"),
        ("multiply(large, large)", "multiply(large, o)"),
        ("add(largest, largest)", "add(large, large)"),
        ("subtract(largest, least)", "subtract(large, large)"),
    ],
)
def test_operations_that_make_infinities(bad, good):
    text = """o = f32[4] constant({1,1,1,1})
  m = f32[4] constant({0,0,0.5,0.5})
  h = f32[4] constant({1000,1,1,1})
  i = s32[4] constant({2139095040,0,0,0})
  j = s32[4] constant({1065353216,0,0,0})
  large = f32[4] constant({1e18,1e18,1,1})
  largest = f32[4] constant({1e38,1,1,1})
  least = f32[4] constant({-1e38,1,1,1})
  """
    assert rejects_factor(f"{text}s = f32[4] {bad}", LOG_OF)
    assert not rejects_factor(f"{text}s = f32[4] {good}", LOG_OF)


LOOP = """
body {
  t = (s32[], f32[], f32[4], f32[4], f32[4]) parameter(0)
  i = s32[] get-tuple-element(t), index=0
  n = f32[] get-tuple-element(t), index=1
  a = f32[4] get-tuple-element(t), index=2
  b = f32[4] get-tuple-element(t), index=3
  one = s32[] constant(1)
  j = s32[] add(i, one)
  step = f32[] constant(1)
  m = f32[] add(n, step)
  l = f32[] log(n)
  s = f32[4] broadcast(l), dimensions={}
  p = f32[4] multiply(a, s)
  q = f32[4] multiply(b, s)
  c = f32[4] subtract(p, q)
  ROOT r = (s32[], f32[], f32[4], f32[4], f32[4]) tuple(j, m, a, b, c)
}
condition {
  t = (s32[], f32[], f32[4], f32[4], f32[4]) parameter(0)
  i = s32[] get-tuple-element(t), index=0
  n = s32[] constant(8)
  ROOT c = pred[] compare(i, n), direction=LT
}
"""


@pytest.mark.parametrize(
    ("start", "is_fixed"), [("constant(0)", True), ("parameter(2)", False)]
)
def test_a_counter_of_a_loop_is_fixed(start, is_fixed):
    """The logarithm of the first one is an infinity of the module."""
    text = f"""HloModule loop
{LOOP}
ENTRY main {{
  a = f32[4] parameter(0)
  b = f32[4] parameter(1)
  z = s32[] constant(0)
  n = f32[] {start}
  t = (s32[], f32[], f32[4], f32[4], f32[4]) tuple(z, n, a, b, a)
  w = (s32[], f32[], f32[4], f32[4], f32[4]) while(t), condition=condition, body=body
  ROOT c = f32[4] get-tuple-element(w), index=4
}}
"""
    found = rules(capture(text, "reassociate"))
    assert ("factor" in found) == (not is_fixed)


def test_a_call_that_reads_a_tuple_constant():
    text = """HloModule nested

add {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}
inner {
  a = (f32[]) parameter(0)
  ROOT g = f32[] get-tuple-element(a), index=0
}
outer {
  p = f32[] parameter(0)
  t = (f32[]) constant((1))
  ROOT q = f32[] call(t), to_apply=inner
}
ENTRY main {
  x = f32[4,3] parameter(0)
  z = f32[] constant(0)
  c = f32[] constant(2)
  r = f32[] call(c), to_apply=outer
  l = f32[] log(r)
  s = f32[4] reduce(x, z), dimensions={1}, to_apply=add
  lb = f32[4] broadcast(l), dimensions={}
  ROOT o = f32[4] multiply(s, lb)
}
"""
    assert capture(text, "reduce-forms").graph.num_nodes
    assert capture(text, "reassociate").graph.num_nodes
