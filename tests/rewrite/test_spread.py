# SPDX-License-Identifier: Apache-2.0
"""Functions of few numbers that are broadcast to many are in memory."""

from __future__ import annotations

from typing import Literal

import numpy as np
import pytest

import hloenv
from support.captures import capture_rule

TABLE = """HloModule m
ENTRY e {
  x = f32[64,1000] parameter(0)
  a = f32[1000] parameter(1)
  f = f32[1000] cosine(a)
  g = f32[1000] negate(f)
  u = f32[1,1000] reshape(g)
  v = f32[1000] reshape(u)
  b = f32[64,1000] broadcast(v), dimensions={1}
  ROOT r = f32[64,1000] multiply(x, b)
}
"""


def offered(text: str) -> list[str]:
    """The arrays that may be kept."""
    return [each.original for each in capture_rule(text, "fusion-cuts", "spread")]


def test_a_table_is_kept_as_it_is_read() -> None:
    assert offered(TABLE) == ["g"]
    # Where another kernel reads it, too.
    both = TABLE.replace("ROOT r", "s").replace(
        "\n}\n", "\n  ROOT r = (f32[64,1000], f32[1000]) tuple(s, g)\n}\n"
    )
    assert offered(both) == ["g"]


@pytest.mark.parametrize(
    ("number", "dimension", "is_kept"),
    [(30, 1, False), (60, 1, True), (60, 0, False), (200, 0, True)],
)
def test_functions_that_are_written_out_count(number, dimension, is_kept) -> None:
    steps = ["step0 = f32[1000] multiply(a, a)"]
    steps += [f"step{i} = f32[1000] add(step{i - 1}, a)" for i in range(1, number)]
    text = TABLE.replace("f = f32[1000] cosine(a)", "\n  ".join(steps))
    text = text.replace("negate(f)", f"negate(step{number - 1})")
    if dimension == 0:  # the same number along a row
        text = text.replace("64,1000", "1000,64").replace("={1}", "={0}")
    assert offered(text) == (["g"] if is_kept else [])


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("cosine", "exponential"),  # takes little longer than reading
        ("64,1000", "3,10000"),  # few times as many
        ("1000", "200"),  # few altogether
        ("64,1000", "4096,4"),
    ],
)
def test_other_arrays_are_not_kept(old: str, new: str) -> None:
    text = TABLE.replace(old, new)
    if "," in old:
        text = text.replace("1000]", f"{new.partition(',')[2]}]")
    assert offered(text) == []


def test_where_little_is_read_it_is_not_kept() -> None:
    part = TABLE.replace("ROOT r", "p").replace(
        "\n}\n", "\n  ROOT r = f32[2,1000] slice(p), slice={[3:5], [0:1000]}\n}\n"
    )
    assert offered(part) == []
    assert offered(part.replace("2,1000", "32,1000").replace("3:5", "3:35")) == ["g"]


@pytest.mark.parametrize(("exponent", "is_kept"), [("c", False), ("g", True)])
def test_powers_that_xla_writes_out_are_not_kept(exponent: str, is_kept: bool) -> None:
    power = f"p = f32[1000] power(a, {exponent})"
    text = TABLE.replace("f = f32[1000] cosine(a)", "n = f32[] constant(2)")
    text = text.replace(
        "g = f32[1000] negate(f)",
        f"g = f32[1000] negate(a)\n  c = f32[1000] broadcast(n), dimensions={{}}\n  {power}",
    ).replace("reshape(g)", "reshape(p)")
    assert offered(text) == ["p"] * is_kept


LOOP = """HloModule m
body {
  s = (s32[], f32[64,1000], f32[1000]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[64,1000] get-tuple-element(s), index=1
  a = f32[1000] get-tuple-element(s), index=2
  one = s32[] constant(1)
  j = s32[] add(i, one)
  f = f32[1000] cosine(a)
  b = f32[64,1000] broadcast(f), dimensions={1}
  y = f32[64,1000] multiply(x, b)
  ROOT n = (s32[], f32[64,1000], f32[1000]) tuple(j, y, NEXT)
}
condition {
  s = (s32[], f32[64,1000], f32[1000]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  t = s32[] constant(9)
  ROOT r = pred[] compare(i, t), direction=LT
}
ENTRY e {
  z = s32[] constant(0)
  x = f32[64,1000] parameter(0)
  a = f32[1000] parameter(1)
  s = (s32[], f32[64,1000], f32[1000]) tuple(z, x, a)
  ROOT w = (s32[], f32[64,1000], f32[1000]) while(s), condition=condition, body=body
}
"""


def test_what_xla_computes_in_front_of_a_loop_is_not_kept() -> None:
    assert offered(LOOP.replace("NEXT", "a")) == []
    assert offered(LOOP.replace("NEXT", "f")) == ["f"]
    # Nor what is made of it in each iteration.
    times = LOOP.replace("NEXT", "a").replace(
        "b = f32[64,1000] broadcast(f)",
        "v = f32[] convert(i)\n  u = f32[1000] broadcast(v), dimensions={}\n"
        "  g = f32[1000] multiply(f, u)\n  b = f32[64,1000] broadcast(g)",
    )
    assert offered(times) == []


@pytest.mark.compile
@pytest.mark.parametrize("engine", ["wheel", "jaxlib"])
def test_it_computes_the_same(engine: Literal["wheel", "jaxlib"]) -> None:
    module = hloenv.HloModule.from_text(TABLE)
    decided = capture_rule(TABLE, "fusion-cuts", "spread").apply([1])
    assert decided.opcode_counts()["call"] == 1
    inputs = hloenv.random_inputs(module)
    inputs[1][:3] = np.nan, np.inf, -0.0
    wanted, found = (
        hloenv.compile(each, engine=engine, isolate=False)(*inputs)
        for each in (module, decided)
    )
    np.testing.assert_allclose(found[0], wanted[0], rtol=1e-6)
