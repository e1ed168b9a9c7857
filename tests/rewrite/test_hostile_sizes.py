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
