# SPDX-License-Identifier: Apache-2.0
"""Guarantees of reassociate for infinities, huge and tiny values."""

from __future__ import annotations

import random

import numpy as np
import pytest

import hloenv
from hloenv.hlo import numerics
from support import captures
from support.captures import REDUCERS


def rules(text: str) -> set[str]:
    return set(captures.rules(captures.capture(text, "reassociate")))


def entry(body: str) -> str:
    return f"HloModule m\n{REDUCERS}\nENTRY main {{\n{body}\n}}"


# Each with a placeholder for a constant, which makes one operand extreme or not.
OF_ONE_CONSTANT = {
    # (a - b)^2 where some elements of a are masked.
    "distribute": """
      x = f32[8] parameter(0)
      y = f32[8] parameter(1)
      keep = pred[8] parameter(2)
      mask = f32[] constant(VALUE)
      masks = f32[8] broadcast(mask), dimensions={}
      a = f32[8] select(keep, x, masks)
      d = f32[8] subtract(a, y)
      ROOT r = f32[8] multiply(d, d)""",
    "factor": """
      x = f32[8] parameter(0)
      y = f32[8] parameter(1)
      mask = f32[] constant(VALUE)
      masks = f32[8] broadcast(mask), dimensions={}
      a = f32[8] multiply(x, y)
      b = f32[8] multiply(x, masks)
      ROOT r = f32[8] subtract(a, b)""",
    "trees": """
      x = f32[8] parameter(0)
      y = f32[8] parameter(1)
      scale = f32[] constant(VALUE)
      scales = f32[8] broadcast(scale), dimensions={}
      a = f32[8] multiply(x, scales)
      ROOT r = f32[8] multiply(a, y)""",
    "products": """
      x = f32[2,3] parameter(0)
      y = f32[3,4] parameter(1)
      keep = pred[4,2] parameter(2)
      z = f32[4,2] parameter(3)
      mask = f32[] constant(VALUE)
      masks = f32[4,2] broadcast(mask), dimensions={}
      m = f32[4,2] select(keep, z, masks)
      a = f32[2,4] dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}
      ROOT r = f32[2,2] dot(a, m), lhs_contracting_dims={1}, rhs_contracting_dims={0}""",
}


@pytest.mark.parametrize("value", ["inf", "-inf", "3e38", "-1e30"])
@pytest.mark.parametrize("rule", OF_ONE_CONSTANT)
def test_nothing_reads_large_constants(rule, value):
    text = entry(OF_ONE_CONSTANT[rule])
    assert rule in rules(text.replace("VALUE", "0.5"))
    assert rule not in rules(text.replace("VALUE", value))


def test_no_product_of_a_tiny_constant_is_reordered():
    text = entry(OF_ONE_CONSTANT["trees"])
    assert rules(text.replace("VALUE", "1e-30")) == set()


# In float16 the range is narrow: 300 * 300 overflows.
@pytest.mark.parametrize(("value", "wanted"), [("200", {"trees"}), ("300", set())])
def test_the_range_is_that_of_the_type(value, wanted):
    text = entry(OF_ONE_CONSTANT["trees"].replace("f32", "f16"))
    assert rules(text.replace("VALUE", value)) == wanted


# A sum of values that are infinite in one direction only is so in any order.
@pytest.mark.parametrize(
    ("first", "second", "wanted"),
    [
        ("-inf", "-inf", {"trees"}),
        ("-3.4e38", "-3.4e38", {"trees"}),
        ("inf", "-inf", set()),
        ("3.4e38", "-3.4e38", set()),
        ("-inf", "1", {"trees"}),
    ],
)
def test_sums_of_large_values_keep_their_order_where_signs_differ(
    first, second, wanted
):
    text = entry(f"""
      x = f32[8] parameter(0)
      keep = pred[8] parameter(1)
      zero = f32[] constant(0)
      zeros = f32[8] broadcast(zero), dimensions={{}}
      one = f32[] constant({first})
      ones = f32[8] broadcast(one), dimensions={{}}
      two = f32[] constant({second})
      twos = f32[8] broadcast(two), dimensions={{}}
      a = f32[8] select(keep, ones, zeros)
      b = f32[8] select(keep, twos, zeros)
      c = f32[8] add(x, a)
      ROOT r = f32[8] add(c, b)""")
    assert rules(text) == wanted


def test_what_a_loop_carries_may_be_infinite():
    def text(start: str) -> str:
        return f"""HloModule m

body {{
  s = (s32[], f32[8], f32[8]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  a = f32[8] get-tuple-element(s), index=1
  b = f32[8] get-tuple-element(s), index=2
  one = s32[] constant(1)
  next = s32[] add(i, one)
  d = f32[8] subtract(a, b)
  square = f32[8] multiply(d, d)
  ROOT t = (s32[], f32[8], f32[8]) tuple(next, b, square)
}}

condition {{
  s = (s32[], f32[8], f32[8]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  end = s32[] constant(3)
  ROOT less = pred[] compare(i, end), direction=LT
}}

ENTRY main {{
  zero = s32[] constant(0)
  x = f32[8] parameter(0)
  start = f32[] constant({start})
  starts = f32[8] broadcast(start), dimensions={{}}
  first = (s32[], f32[8], f32[8]) tuple(zero, x, starts)
  ROOT w = (s32[], f32[8], f32[8]) while(first), condition=condition, body=body
}}"""

    assert "distribute" in rules(text("1"))
    assert rules(text("inf")) == set()


# The maximum of a softmax starts at -inf, and the masked scores are -inf; what exp
# makes of them is in range again.
def test_infinities_that_do_not_come_through_are_no_obstacle():
    text = entry("""
      x = f32[4,8] parameter(0)
      v = f32[8] parameter(1)
      keep = pred[4,8] parameter(2)
      lowest = f32[] constant(-inf)
      masks = f32[4,8] broadcast(lowest), dimensions={}
      scores = f32[4,8] select(keep, x, masks)
      e = f32[4,8] exponential(scores)
      m = f32[4] reduce(x, lowest), dimensions={1}, to_apply=max
      ms = f32[4,8] broadcast(m), dimensions={0}
      vs = f32[4,8] broadcast(v), dimensions={1}
      d = f32[4,8] subtract(e, ms)
      ROOT r = f32[4,8] multiply(vs, d)""")
    assert rules(text) == {"distribute"}


@pytest.mark.parametrize(
    ("reducer", "wanted"), [("add", {"split_reductions"}), ("mul", set())]
)
def test_products_of_many_floats_keep_their_order(reducer, wanted):
    start = {"add": "0", "mul": "1"}[reducer]
    text = entry(f"""
      x = f32[4,8] parameter(0)
      start = f32[] constant({start})
      ROOT r = f32[] reduce(x, start), dimensions={{0,1}}, to_apply={reducer}""")
    assert rules(text) == wanted


# Every rule, on arguments.
PROGRAM = entry("""
  a = f32[4,4]{1,0} parameter(0)
  b = f32[4,4]{1,0} parameter(1)
  c = f32[4,4]{1,0} parameter(2)
  zero = f32[] constant(0)
  ab = f32[4,4]{1,0} multiply(a, b)
  abc = f32[4,4]{1,0} multiply(ab, c)
  s = f32[4,4]{1,0} add(a, b)
  spread = f32[4,4]{1,0} multiply(s, c)
  pa = f32[4,4]{1,0} multiply(b, a)
  pc = f32[4,4]{1,0} multiply(b, c)
  joined = f32[4,4]{1,0} subtract(pa, pc)
  d1 = f32[4,4]{1,0} dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  d2 = f32[4,4]{1,0} dot(d1, c), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  r1 = f32[4]{0} reduce(a, zero), dimensions={0}, to_apply=add
  r2 = f32[] reduce(r1, zero), dimensions={0}, to_apply=add
  r3 = f32[] reduce(b, zero), dimensions={0,1}, to_apply=add
  sum = f32[] add(r2, r3)
  m1 = f32[] reduce(c, zero), dimensions={0,1}, to_apply=max
  total = f32[] add(sum, m1)
  ROOT t = (f32[4,4]{1,0}, f32[4,4]{1,0}, f32[4,4]{1,0}, f32[4,4]{1,0}, f32[])
    tuple(abc, spread, joined, d2, total)
""")
ALL_RULES = {
    "distribute",
    "factor",
    "merge_reductions",
    "products",
    "split_reductions",
    "trees",
}


# Products of two are in range: finite results stay finite, however they are ordered.
@pytest.mark.parametrize("seed", range(8))
def test_finite_stays_finite_within_the_range(seed):
    module = hloenv.HloModule.from_text(PROGRAM)
    alternatives = hloenv.HloEnv(module).get_alternatives("reassociate")
    assert rules(PROGRAM) == ALL_RULES
    rng = np.random.default_rng(seed)
    exponents = rng.uniform(-18, 18, (3, 4, 4))
    inputs = (10.0**exponents * rng.choice([-1, 1], (3, 4, 4))).astype(np.float32)
    wanted = hloenv.interpret(module, *inputs)
    draw = random.Random(seed)
    for _ in range(6):
        decisions = [draw.randrange(n) for n in alternatives.num_choices]
        outputs = hloenv.interpret(alternatives.apply(decisions), *inputs)
        for before, after in zip(wanted, outputs, strict=True):
            assert np.isfinite(after[np.isfinite(before)]).all()
            # Nothing that the program multiplies or adds is as small.
            assert not ((np.abs(before) > 1e-15) & (after == 0)).any()


def test_the_classes_name_passes():
    assert set(hloenv.list_passes()) >= numerics.ROUNDING
    assert hloenv.describe_pass("reassociate").numerics == "rounding"
    assert hloenv.describe_pass("cse").numerics == "exact"


@pytest.mark.parametrize(
    ("constant", "found"),
    [
        ("k = f32[] constant(20000)", False),
        ("k = s32[] constant(20000)", False),
        ("k = f32[] constant(200)", True),
        ("k = s32[] constant(200)", True),
    ],
)
def test_constants_are_judged_by_what_they_are_converted_to(constant, found):
    """20000 * 5 and 20000 * 4 are infinite in float16, and their difference is not."""
    body = f"""
      a = f16[] parameter(0)
      b = f16[] parameter(1)
      {constant}
      h = f16[] convert(k)
      s = f16[] subtract(a, b)
      ROOT r = f16[] multiply(h, s)"""
    assert bool(rules(entry(body))) == found


@pytest.mark.parametrize(("size", "found"), [(100, True), (1000, False)])
def test_a_long_iota_is_extreme_in_float16(size, found):
    body = f"""
      a = f16[{size}] parameter(0)
      b = f16[{size}] parameter(1)
      k = f16[{size}] iota(), iota_dimension=0
      s = f16[{size}] subtract(a, b)
      ROOT r = f16[{size}] multiply(k, s)"""
    assert bool(rules(entry(body))) == found


def test_cube_roots_keep_negative_infinities():
    body = """
      a = f32[] parameter(0)
      b = f32[] parameter(1)
      k = f32[] constant(VALUE)
      c = f32[] cbrt(k)
      l = f32[] add(a, c)
      s = f32[] subtract(a, b)
      ROOT r = f32[] multiply(l, s)"""
    assert not rules(entry(body.replace("VALUE", "-inf")))
    assert rules(entry(body.replace("VALUE", "-8")))
