# SPDX-License-Identifier: Apache-2.0
"""Steps of slices along one dimension, of which LLVM finds what is the same."""

from __future__ import annotations

import pytest

from support.captures import capture_rule

ROWS, COLUMNS, STEPS = 40, 64, 12


def offered(step: str, *, steps: int = STEPS, columns_fewer: int = 0) -> list[str]:
    """The arrays that may be kept of steps that each read the one before.

    Args:
        step: instructions that compute `next` of `low` and `high`, both of `shape`.
        steps: how often it is applied.
        columns_fewer: columns that the second slice of each step is further right.
    """
    lines = [f"v0 = f32[{ROWS},{COLUMNS}] parameter(0)"]
    for i in range(steps):
        rows, columns = ROWS - i - 1, COLUMNS - (i + 1) * columns_fewer
        shape = f"f32[{rows},{columns}]"
        lines += [
            f"low{i} = {shape} slice(v{i}), slice={{[0:{rows}],[0:{columns}]}}",
            f"high{i} = {shape} slice(v{i}), "
            f"slice={{[1:{rows + 1}],[{columns_fewer}:{columns + columns_fewer}]}}",
        ]
        texts = {"low": f"low{i}", "high": f"high{i}", "shape": shape, "i": i}
        lines.append(step.format(**texts, next=f"v{i + 1}"))
    lines.append(f"ROOT r = f32[{ROWS - steps},{columns}] negate(v{steps})")
    text = f"HloModule m\nENTRY main {{{chr(10).join(lines)}}}"
    return [each.original for each in capture_rule(text, "fusion-cuts", "repeated")]


SUM = "{next} = {shape} add({low}, {high})"
# Three additions, as of means with weights: Casteljau's curves.
WEIGHTED = """a{i} = {shape} multiply({low}, {low})
b{i} = {shape} subtract({high}, a{i})
{next} = {shape} add(b{i}, {low})"""
LONGER = WEIGHTED.replace("{next}", "c{i}") + (
    "\n{next} = {shape} multiply(c{i}, {high})"
)


@pytest.mark.parametrize("step", [SUM, WEIGHTED])
@pytest.mark.parametrize("steps", [STEPS, ROWS - 1])
def test_short_steps_along_one_dimension_are_not_kept(step: str, steps: int) -> None:
    assert offered(step, steps=steps) == []


def test_longer_steps_are_kept() -> None:
    assert "v1" in offered(LONGER)


def test_short_steps_along_two_dimensions_are_kept() -> None:
    assert "v1" in offered(WEIGHTED, columns_fewer=1)


def test_many_slices_of_one_step_are_kept() -> None:
    lines = ["x = f32[1000] parameter(0)", "v = f32[1000] multiply(x, x)"]
    lines += [
        f"part{i} = f32[980] slice(v), slice={{[{i}:{i + 980}]}}" for i in range(14)
    ]
    lines.append("t0 = f32[980] negate(part0)")
    lines += [f"t{i} = f32[980] add(t{i - 1}, part{i})" for i in range(1, 14)]
    lines.append("ROOT r = f32[980] negate(t13)")
    text = f"HloModule m\nENTRY main {{{chr(10).join(lines)}}}"
    (kept,) = capture_rule(text, "fusion-cuts", "repeated")
    assert kept.original == "v"
