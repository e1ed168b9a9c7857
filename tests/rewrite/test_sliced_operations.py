# SPDX-License-Identifier: Apache-2.0
"""Chains for reductions: slices go through what computes the operand."""

from __future__ import annotations

import random

import jax.numpy as jnp
import numpy as np
import pytest

import hloenv
from support.captures import REDUCERS, capture, rules

UNARY = ("negate", "abs", "tanh", "cosine")
BINARY = ("add", "subtract", "multiply", "maximum")


def dims(sizes) -> str:
    return ",".join(map(str, sizes))


class RandomOperand:
    """An operand of a reduction, of elementwise operations, broadcasts and others."""

    def __init__(self, rng: random.Random):
        self.rng = rng
        self.sizes = [rng.randint(1, 4) for _ in range(rng.randint(1, 4))]
        self.lines: list[str] = []
        self.parameters = 0
        self.values = [self.leaf() for _ in range(2)]
        for _ in range(rng.randint(1, 8)):
            self.values.append(self.operation())

    def line(self, sizes, text: str) -> str:
        name = f"v{len(self.lines)}"
        self.lines.append(f"{name} = f32[{dims(sizes)}] {text}")
        return name

    def parameter(self, sizes) -> str:
        self.parameters += 1
        return self.line(sizes, f"parameter({self.parameters - 1})")

    def leaf(self) -> str:
        rank = len(self.sizes)
        kind = self.rng.choice(("parameter", "broadcast", "reshape", "transpose"))
        if kind == "broadcast":
            kept = sorted(self.rng.sample(range(rank), self.rng.randint(0, rank)))
            of = self.parameter([self.sizes[d] for d in kept])
            if self.rng.random() < 0.3:
                of = self.line([self.sizes[d] for d in kept], f"tanh({of})")
            return self.line(
                self.sizes, f"broadcast({of}), dimensions={{{dims(kept)}}}"
            )
        if kind == "reshape":
            wide = [size for size in self.sizes if size != 1]
            wide.insert(self.rng.randint(0, len(wide)), 1)
            return self.line(self.sizes, f"reshape({self.parameter(wide)})")
        if kind == "transpose":
            order = self.rng.sample(range(rank), rank)
            of = [0] * rank
            for at, d in enumerate(order):
                of[d] = self.sizes[at]
            return self.line(
                self.sizes,
                f"transpose({self.parameter(of)}), dimensions={{{dims(order)}}}",
            )
        return self.parameter(self.sizes)

    def operation(self) -> str:
        if self.rng.random() < 0.15:
            return self.leaf()
        if self.rng.random() < 0.4:
            of = self.rng.choice(self.values)
            return self.line(self.sizes, f"{self.rng.choice(UNARY)}({of})")
        pair = ", ".join(self.rng.choice(self.values[-3:]) for _ in range(2))
        return self.line(self.sizes, f"{self.rng.choice(BINARY)}({pair})")

    def module(self) -> str:
        rank = len(self.sizes)
        reduced = sorted(
            self.rng.sample(range(rank), self.rng.randint(1, min(rank, 2)))
        )
        kept = [size for d, size in enumerate(self.sizes) if d not in reduced]
        operand = self.values[-1]
        results = [(kept, "sum")]
        # Others read what is gone through, too.
        for value in self.rng.sample(self.values, self.rng.randint(0, 2)):
            results.append((self.sizes, value))
        types = ", ".join(f"f32[{dims(sizes)}]" for sizes, _ in results)
        names = ", ".join(name for _, name in results)
        body = "\n  ".join(self.lines)
        return f"""HloModule sliced
{REDUCERS}
ENTRY main {{
  {body}
  zero = f32[] constant(0)
  sum = f32[{dims(kept)}] reduce({operand}, zero), dimensions={{{dims(reduced)}}},
    to_apply=add
  ROOT all = ({types}) tuple({names})
}}
"""


def test_random_operands():
    offered = gone_through = 0
    for seed in range(300):
        text = RandomOperand(random.Random(seed)).module()
        alternatives = capture(text, "reduce-forms")
        if "chain" not in rules(alternatives):
            continue  # XLA drops the initial value of a reduction of one element
        offered += 1
        decided = alternatives.apply([1] * len(alternatives))
        gone_through += "slice" not in decided.opcode_counts()
        for record in hloenv.verify_alternatives(alternatives, seed=seed):
            assert record.relative <= 1e-5, (record, text)
    assert offered > 150
    assert gone_through > 10


@pytest.mark.jax
def test_distances_need_no_slices_of_large_arrays():
    def nearest(a, b):
        return ((a[:, None] - b) ** 2).sum(-1).min(1)

    a, b = np.ones((50, 3), np.float32), np.ones((40, 3), np.float32)
    module = hloenv.HloModule.from_jax(nearest, a, b)
    decided = capture(module.to_text(), "reduce-forms").apply([1])
    assert "[50,40,3]" not in decided.to_text()


@pytest.mark.jax
def test_large_values_that_others_read_are_not_computed_again():
    def both(a, b):
        large = jnp.exp(a * b)
        return large, large.sum(-1)

    a = np.ones((50, 40, 3), np.float32)
    module = hloenv.HloModule.from_jax(both, a, a)
    decided = capture(module.to_text(), "reduce-forms").apply([1])
    assert decided.opcode_counts()["exponential"] == 1


def test_an_expression_that_doubles_in_each_step():
    lines = ["v0 = f32[8,3] broadcast(x), dimensions={1}"]
    lines += [f"v{i} = f32[8,3] add(v{i - 1}, v{i - 1})" for i in range(1, 41)]
    body = "\n  ".join(lines)
    text = f"""HloModule doubled
{REDUCERS}
ENTRY main {{
  x = f32[3] parameter(0)
  {body}
  zero = f32[] constant(0)
  ROOT sum = f32[8] reduce(v40, zero), dimensions={{1}}, to_apply=add
}}
"""
    decided = capture(text, "reduce-forms").apply([1])
    assert decided.instruction_count < 300
    (found,) = hloenv.interpret(decided, np.array([1, 2, 3], np.float32))
    np.testing.assert_array_equal(found, np.full(8, 6 * 2.0**40, np.float32))


def test_transposes_do_not_multiply_what_is_read():
    """Each reads its operand at other indices, and so does each below it."""
    rng = random.Random(0)
    sizes, lines = [2] * 8, []
    for i in range(10):
        order = rng.sample(range(8), 8)
        lines += [
            f"t{i} = f32[{dims(sizes)}] transpose(v{i}), dimensions={{{dims(order)}}}",
            f"v{i + 1} = f32[{dims(sizes)}] add(v{i}, t{i})",
        ]
    body = "\n  ".join(lines)
    text = f"""HloModule transposed
{REDUCERS}
ENTRY main {{
  v0 = f32[{dims(sizes)}] parameter(0)
  {body}
  zero = f32[] constant(0)
  ROOT sum = f32[2,2,2,2] reduce(v10, zero), dimensions={{0,1,2,3}}, to_apply=add
}}
"""
    alternatives = capture(text, "reduce-forms")
    assert alternatives.apply([1]).instruction_count < 600


@pytest.mark.jax
@pytest.mark.compile
@pytest.mark.parametrize("copies", [2, 3])
def test_what_is_compared_with_a_part_of_it_is_computed_once(copies):
    """Rounded in another way, no element is its row's maximum."""

    def maxima(x):
        wide = jnp.broadcast_to(jnp.tanh(x), (copies, *x.shape))
        return (wide >= wide.max(-1, keepdims=True)).astype(jnp.float32).sum(-1)

    x = np.random.default_rng(0).normal(size=(3000, 8)).astype(np.float32)
    module = hloenv.HloModule.from_jax(maxima, x)
    alternatives = capture(module.to_text(), "reduce-forms")
    for decisions in ([0, 1], [1, 0], [1, 1]):
        decided = alternatives.apply(decisions)
        assert decided.opcode_counts()["tanh"] == 1
        (found,) = hloenv.compile(decided, engine="jaxlib", isolate=False)(x)
        assert (np.asarray(found) >= 1).all()
