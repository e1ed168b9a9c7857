# SPDX-License-Identifier: Apache-2.0
"""Modules on which candidate passes once needed memory or stack without a limit."""

from __future__ import annotations

import pytest

from support.captures import capture, rules


def chain(length: int) -> str:
    """A logarithm of a number that goes through many instructions."""
    lines = [f"  n{i} = f32[] negate(n{i - 1})" for i in range(1, length)]
    return "\n".join(
        [
            "HloModule deep\n\nENTRY main {\n  a = f32[] parameter(0)",
            "  b = f32[] parameter(1)\n  n0 = f32[] constant(2)",
            *lines,
            f"  l = f32[] log(n{length - 1})\n  d = f32[] subtract(a, b)",
            "  ROOT r = f32[] multiply(l, d)\n}",
        ]
    )


def test_long_chains_of_constants_take_no_stack():
    # 2 after an even number of changes of sign, and not a number after an odd one.
    assert "distribute" in rules(capture(chain(60_001), "reassociate"))


DILATED = """HloModule dilated

ENTRY main {
  x = f32[1,2,2,1] parameter(0)
  k = f32[2,2,1,1] parameter(1)
  ROOT y = f32[1,2,2,1] convolution(x, k), dim_labels=b01f_01io->b01f,
    window={size=2x2 pad=0_SIZEx0_SIZE rhs_dilate=SIZExSIZE}
}
"""
DILATED_WINDOW = """HloModule dilated_window

add {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}

ENTRY main {
  x = f32[2,2] parameter(0)
  z = f32[] constant(0)
  ROOT y = f32[2,2] reduce-window(x, z), to_apply=add,
    window={size=2x2 pad=0_SIZEx0_SIZE rhs_dilate=SIZExSIZE}
}
"""


@pytest.mark.parametrize(
    ("text", "name"),
    [(DILATED, "convolution-forms"), (DILATED_WINDOW, "reduce-forms")],
)
def test_padding_of_any_size(text, name):
    text = text.replace(",\n    window", ", window")
    assert rules(capture(text.replace("SIZE", "3"), name))
    for size in (20_000, 2**31 - 1):
        found = capture(text.replace("SIZE", str(size)), name)
        assert rules(found) == []
        assert found.graph.num_nodes


def test_products_of_any_size():
    text = """HloModule outer

ENTRY main {
  a = f32[1,SIZE] parameter(0)
  b = f32[SIZE,1] parameter(1)
  c = f32[1,SIZE] parameter(2)
  ab = f32[1,1] dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT r = f32[1,SIZE] dot(ab, c), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
"""
    assert "products" in rules(capture(text.replace("SIZE", "30"), "reassociate"))
    large = capture(text.replace("SIZE", "300000"), "reassociate")
    assert "products" not in rules(large)


def test_sums_of_dots_of_any_size():
    text = """HloModule wide

ENTRY main {
  x = f32[BATCH,112,112,64] parameter(0)
  k = f32[5,5,64,64] parameter(1)
  ROOT y = f32[BATCH,112,112,64] convolution(x, k), window={size=5x5 pad=2_2x2_2},
    dim_labels=b01f_01io->b01f
}
""".replace(",\n    dim", ", dim")
    small = capture(text.replace("BATCH", "1"), "convolution-forms")
    assert "taps" in rules(small)
    large = capture(text.replace("BATCH", "64"), "convolution-forms")
    assert "taps" not in rules(large)


def tower(body: str, height: int, shape: str = "f32[]") -> str:
    """Functions, each of which calls the one below twice."""
    lines = [f"level0 {{\n  p = {shape} parameter(0)\n  ROOT r = {shape} {body}\n}}"]
    lines += [
        f"level{i} {{\n  p = {shape} parameter(0)\n"
        f"  a = {shape} call(p), to_apply=level{i - 1}\n"
        f"  ROOT r = {shape} call(a), to_apply=level{i - 1}\n}}"
        for i in range(1, height + 1)
    ]
    return "\n".join(lines)


@pytest.mark.filterwarnings("ignore::hloenv.PositionWarning")
def test_nested_calls_are_inspected_once():
    text = f"""HloModule tower
{tower("negate(p)", 18)}
body {{
  t = (s32[], f32[]) parameter(0)
  i = s32[] get-tuple-element(t), index=0
  x = f32[] get-tuple-element(t), index=1
  one = s32[] constant(1)
  j = s32[] add(i, one)
  y = f32[] call(x), to_apply=level18
  ROOT r = (s32[], f32[]) tuple(j, y)
}}
condition {{
  t = (s32[], f32[]) parameter(0)
  i = s32[] get-tuple-element(t), index=0
  n = s32[] constant(8)
  ROOT c = pred[] compare(i, n), direction=LT
}}
ENTRY main {{
  z = s32[] constant(0)
  x = f32[] parameter(0)
  t = (s32[], f32[]) tuple(z, x)
  w = (s32[], f32[]) while(t), condition=condition, body=body
  ROOT y = f32[] get-tuple-element(w), index=1
}}
"""
    assert "kernel" not in rules(capture(text, "single-kernel"))


@pytest.mark.filterwarnings("ignore::hloenv.PositionWarning")
def test_buffers_behind_nested_calls_are_found_once():
    text = f"""HloModule views
{tower("copy(p)", 18, "f32[8]")}
ENTRY main {{
  x = f32[8] parameter(0)
  c = f32[8] call(x), to_apply=level18
  n = f32[8] negate(c)
  ROOT e = f32[8] exponential(n)
}}
"""
    assert rules(capture(text, "general-fusion"))


def test_what_nested_calls_compute_has_a_limit():
    text = f"""HloModule values
{tower("negate(p)", 18)}
ENTRY main {{
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  n = f32[] constant(2)
  v = f32[] call(n), to_apply=level18
  s = f32[] log(v)
  d = f32[] subtract(a, b)
  ROOT r = f32[] multiply(s, d)
}}
"""
    assert "distribute" not in rules(capture(text, "reassociate"))
    short = text.replace("to_apply=level18", "to_apply=level4")
    assert "distribute" in rules(capture(short, "reassociate"))


@pytest.mark.filterwarnings("ignore::hloenv.PositionWarning")
def test_scattered_operands_are_searched_once():
    sums = "\n".join(f"  a{i} = f32[8] add(a{i - 1}, a{i - 1})" for i in range(1, 61))
    text = f"""HloModule scattered

add {{
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}}
fused {{
  a0 = f32[8] parameter(0)
  i = s32[2,1] parameter(1)
  u = f32[2] parameter(2)
{sums}
  ROOT s = f32[8] scatter(a60, i, u), update_window_dims={{}},
    inserted_window_dims={{0}}, scatter_dims_to_operand_dims={{0}}, index_vector_dim=1,
    to_apply=add
}}
ENTRY main {{
  x = f32[8] parameter(0)
  i = s32[2,1] parameter(1)
  u = f32[2] parameter(2)
  n = f32[2] negate(u)
  ROOT f = f32[8] fusion(x, i, n), kind=kLoop, calls=fused
}}
"""
    text = text.replace(",\n    ", ", ")
    assert capture(text, "general-fusion").graph.num_nodes


def test_dots_of_one_operand_are_compared_with_the_last_ones():
    """Quadratic once, in the number of dots."""
    count = 1_500
    dots = "\n".join(
        f"  w{i} = f32[2,2] parameter({i})\n  d{i} = f32[2,2] dot(x, w{i}), "
        "lhs_contracting_dims={1}, rhs_contracting_dims={0}"
        for i in range(1, count)
    )
    names = ", ".join(f"d{i}" for i in range(1, count))
    shapes = ", ".join(["f32[2,2]"] * (count - 1))
    text = f"""HloModule dots

ENTRY main {{
  x = f32[2,2] parameter(0)
{dots}
  ROOT r = ({shapes}) tuple({names})
}}
"""
    found = rules(capture(text, "merge-dots"))
    assert found.count("merge") > count
