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
    ("old", "new"),
    [
        ("cosine", "exponential"),  # takes little longer than reading
        ("64", "3"),  # few times as many
        ("1000", "200"),  # few altogether
        ("1000", "4"),
    ],
)
def test_other_arrays_are_not_kept(old: str, new: str) -> None:
    assert offered(TABLE.replace(old, new)) == []


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
