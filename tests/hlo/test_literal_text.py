# SPDX-License-Identifier: Apache-2.0
"""Constants that XLA's parser misreads survive the round trip through text."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import hloenv

NUMBERS = ("0", "-0", "1.5", "-inf", "nan", "-nan", "nan(0x400001)")


def constants(module: hloenv.HloModule) -> list[str]:
    """What each constant holds, as text, in the order of the text."""
    return [
        line.split("constant(", 1)[1].rsplit(")", 1)[0]
        for line in module.to_text().splitlines()
        if " constant(" in line
    ]


@pytest.mark.parametrize("dtype", ["c64", "c128"])
def test_complex_constants_keep_nans_and_signs(dtype: str):
    pairs = list(itertools.product(NUMBERS, NUMBERS))
    lines = [
        f"c{i} = {dtype}[] constant(({real}, {imaginary}))"
        for i, (real, imaginary) in enumerate(pairs)
    ]
    names = ", ".join(f"c{i}" for i in range(len(pairs)))
    types = ", ".join([f"{dtype}[]"] * len(pairs))
    body = "\n  ".join([*lines, f"ROOT t = ({types}) tuple({names})"])
    module = hloenv.HloModule.from_text(f"HloModule m\nENTRY e {{\n  {body}\n}}")
    assert constants(module) == [f"({a}, {b})" for a, b in pairs]
    again = hloenv.HloModule.from_text(module.to_text())
    assert again.fingerprint() == module.fingerprint()


def test_what_is_quoted_is_no_constant():
    module = hloenv.HloModule.from_text("""HloModule m
ENTRY e {
  p = c64[] parameter(0)
  q = c64[] add(p, p), metadata={op_name="a constant(-0) = c64[] constant((nan, 1))"}
  c = c64[] constant((nan, 1))
  d = c64[] constant((2, 3))
  ROOT t = (c64[], c64[], c64[]) tuple(q, c, d)
}
""")
    found = [line.split(", metadata")[0] for line in module.to_text().splitlines()]
    assert [line.split("constant(")[1] for line in found if "] constant(" in line] == [
        "(nan, 1))",
        "(2, 3))",
    ]
    assert 'op_name="a constant(-0) = c64[] constant((nan, 1))"' in module.to_text()


@pytest.mark.parametrize("layout", ["{1,0}", "{0,1}"])
def test_arrays_of_all_computations_keep_them_in_place(layout: str):
    text = f"""HloModule m
other {{
  p = c64[2] parameter(0)
  k = c64[2] constant({{(nan, 1), (2, nan)}})
  ROOT s = c64[2] add(p, k)
}}
ENTRY e {{
  f = f32[2] constant({{nan, -0}})
  first = c64[2] constant({{(0, 1), (-nan, -0)}})
  called = c64[2] call(first), to_apply=other
  m = c64[2,3]{layout} constant({{ {{ (1, 2), (nan, 3), (4, 5) }},
    {{ (6, 7), (8, 9), (nan, nan) }} }})
  ROOT t = (f32[2], c64[2], c64[2], c64[2,3]{layout}) tuple(f, called, first, m)
}}
"""
    module = hloenv.HloModule.from_text(text)
    again = hloenv.HloModule.from_text(module.to_text())
    assert again.fingerprint() == module.fingerprint()
    numbers, _, first, matrix = hloenv.compile(module)()
    assert np.isnan(numbers[0])
    assert np.signbit(numbers[1])
    assert np.isnan(first[1].real)
    assert np.signbit(first[1].imag)
    assert not np.isnan(first[1].imag)
    nan = np.isnan(matrix)
    assert nan.tolist() == [[False, True, False], [False, False, True]]
    assert matrix[0, 1].imag == 3
    assert matrix[1].real[:2].tolist() == [6, 8]
    assert "{(nan, 1), (2, nan)}" in constants(module)
