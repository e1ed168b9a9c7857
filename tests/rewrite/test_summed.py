# SPDX-License-Identifier: Apache-2.0
"""What reductions of many elements read is in memory, if it is made of parts."""

from __future__ import annotations

import numpy as np
import pytest

import hloenv
from support.captures import REDUCERS, capture_rule

COLUMNS = """
  x = f32[1000,3] parameter(0)
  a = f32[1000,1] slice(x), slice={[0:1000], [0:1]}
  b = f32[1000,1] slice(x), slice={[0:1000], [1:2]}
  c = f32[1000] reshape(a)
  d = f32[1000] reshape(b)
  v = f32[1000] multiply(c, d)
"""
WHOLE = """
  x = f32[1000] parameter(0)
  v = f32[1000] exponential(x)
"""
TRANSPOSED = """
  x = f32[50,20] parameter(0)
  t = f32[20,50] transpose(x), dimensions={1,0}
  s = f32[20,40] slice(t), slice={[0:20], [5:45]}
  u = f32[800] reshape(s)
  v = f32[800] exponential(u)
"""
SHIFTED = """
  x = f32[1001] parameter(0)
  a = f32[1000] slice(x), slice={[0:1000]}
  b = f32[1000] slice(x), slice={[1:1001]}
  d = f32[1000] subtract(b, a)
  v = f32[1000] multiply(d, d)
"""
ROWS = """
  x = f32[125,9] parameter(0)
  a = f32[125,8] slice(x), slice={[0:125], [0:8]}
  b = f32[125,8] slice(x), slice={[0:125], [1:9]}
  v = f32[125,8] subtract(b, a)
"""
SUM = "  ROOT r = f32[] reduce(v, z), dimensions={0}, to_apply=add\n"


def module_text(lines: str, root: str = SUM) -> str:
    """A module that sums `v`."""
    return f"HloModule m\n{REDUCERS}\nENTRY e {{\n  z = f32[] constant(0)\n{lines}{root}}}\n"


def offered(text: str) -> list[str]:
    """The arrays that may be kept."""
    return [each.original for each in capture_rule(text, "fusion-cuts", "summed")]


@pytest.mark.parametrize("lines", [COLUMNS, SHIFTED])
def test_an_array_made_of_parts_is_kept_for_a_sum(lines: str) -> None:
    assert offered(module_text(lines)) == ["v"]
    maximum = SUM.replace("to_apply=add", "to_apply=max")
    assert offered(module_text(lines, maximum)) == ["v"]


def test_columns_of_many_elements_are_summed_alike() -> None:
    root = "  ROOT r = f32[8] reduce(v, z), dimensions={0}, to_apply=add\n"
    assert offered(module_text(ROWS, root)) == ["v"]


@pytest.mark.parametrize(
    ("lines", "root"),
    [
        (WHOLE, SUM),
        (TRANSPOSED, SUM),
        # Another reader needs it, or what it is computed of, which then is no part.
        (
            SHIFTED,
            SUM.replace("ROOT r", "s") + "  n = f32[1000] negate(v)\n"
            "  ROOT r = (f32[], f32[1000]) tuple(s, n)\n",
        ),
        (
            SHIFTED,
            SUM.replace("ROOT r", "s") + "  n = f32[1000] negate(d)\n"
            "  ROOT r = (f32[], f32[1000]) tuple(s, n)\n",
        ),
        # Few elements are reduced to one.
        (ROWS, "  ROOT r = f32[125] reduce(v, z), dimensions={1}, to_apply=add\n"),
    ],
)
def test_other_arrays_are_not_kept(lines: str, root: str) -> None:
    assert offered(module_text(lines, root)) == []


@pytest.mark.compile
@pytest.mark.parametrize("engine", ["wheel", "jaxlib"])
@pytest.mark.parametrize("lines", [COLUMNS, SHIFTED])
def test_the_sum_is_the_same(lines: str, engine: str) -> None:
    alternatives = capture_rule(module_text(lines), "fusion-cuts", "summed")
    (spec,) = alternatives.apply([1]).input_specs()
    x = np.random.default_rng(0).normal(size=spec.shape).astype("float32")
    (found,) = hloenv.compile(alternatives.apply([1]), engine=engine, isolate=False)(x)
    (wanted,) = hloenv.interpret(alternatives.apply([0]), x)
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-4)


SQUARES = """
  x = f32[{rows},3] parameter(0)
  y = f32[{rows},3] multiply(x, x)
  v = f32[{rows}] reduce(y, z), dimensions={{1}}, to_apply=add
  s = f32[{rows}] sqrt(v)
  ROOT r = f32[] reduce(s, z), dimensions={{0}}, to_apply=add
"""


@pytest.mark.compile
@pytest.mark.parametrize(("rows", "calls"), [(1000, 1), (20, 0)])
def test_a_chain_of_sums_that_a_sum_reads_is_a_kernel(rows: int, calls: int) -> None:
    text = module_text(SQUARES.format(rows=rows), "")
    alternatives = capture_rule(text, "reduce-forms", "chain")
    decided = alternatives.apply([1])
    assert decided.opcode_counts().get("call", 0) == calls
    x = np.random.default_rng(0).normal(size=(rows, 3)).astype("float32")
    (found,) = hloenv.compile(decided, isolate=False)(x)
    wanted = np.linalg.norm(x.astype("float64"), axis=1).sum()
    np.testing.assert_allclose(found, wanted, rtol=1e-5)


@pytest.mark.jax
@pytest.mark.needs("jax")
def test_jit_takes_both() -> None:
    import jax
    import jax.numpy as jnp

    def norms(x):
        by_hand = jnp.sqrt(x[:, 0] ** 2 + x[:, 1] ** 2).mean()
        return by_hand, jnp.sqrt((x * x).sum(-1)).mean()

    x = np.random.default_rng(0).normal(size=(4000, 3)).astype("float32")
    decided = hloenv.jit(norms, budget=0, remember=False)
    decided(x)
    (considered,) = decided.considered
    accepted = considered.accepted
    assert accepted["fusion-cuts/summed"] == 1
    assert accepted["reduce-forms/chain"] == 1
    for found, wanted in zip(decided(x), jax.jit(norms)(x), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-5)
