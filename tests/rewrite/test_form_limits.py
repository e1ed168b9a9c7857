# SPDX-License-Identifier: Apache-2.0
"""Where other forms of operations must not be proposed, or need more precision."""

from __future__ import annotations

import numpy as np
import pytest
from test_scan_forms import form, log_text, scan_text

import hloenv
from hloenv.policies import get_policy
from support.arg_reduce import arg_text

COMPARED = """HloModule compared

add {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}

max {
  d = f32[] parameter(0)
  e = f32[] parameter(1)
  ROOT g = f32[] maximum(d, e)
}

ENTRY main {
OPERATION
  start = f32[] constant(-inf)
  most = f32[] reduce(y, start), dimensions={DIMENSIONS}, to_apply=max
  all = f32[SIZES] broadcast(most), dimensions={}
  ROOT is_most = pred[SIZES] compare(y, all), direction=EQ
}
"""
DEPTHWISE = """
  x = f32[1,28,28,32] parameter(0)
  k = f32[3,3,1,32] parameter(1)
  y = f32[1,28,28,32] convolution(x, k), window={size=3x3 pad=1_1x1_1},
    dim_labels=b01f_01io->b01f, feature_group_count=32"""
SMALL_DOTS = """
  x = f32[256,3,3] parameter(0)
  k = f32[256,3,3] parameter(1)
  y = f32[256,3,3] dot(x, k), lhs_batch_dims={0}, rhs_batch_dims={0},
    lhs_contracting_dims={2}, rhs_contracting_dims={1}"""
SHORT_SUMS = """
  x = f32[5000,3] parameter(0)
  zero = f32[] constant(0)
  y = f32[5000] reduce(x, zero), dimensions={1}, to_apply=add"""
POOLING = """
  x = f32[1,28,28,32] parameter(0)
  zero = f32[] constant(0)
  y = f32[1,14,14,32] reduce-window(x, zero), window={size=1x2x2x1 stride=1x2x2x1},
    to_apply=add"""


def captured(text: str, *passes: str) -> hloenv.Alternatives:
    module = hloenv.HloModule.from_text(text)
    return hloenv.HloEnv(module).get_alternatives(*passes)


def rules(text: str, *passes: str) -> set[str]:
    return {
        choice.rule for each in captured(text, *passes) for choice in each.choices[1:]
    }


@pytest.mark.parametrize(
    ("operation", "sizes", "lost"),
    [
        (DEPTHWISE, "1,28,28,32", "taps"),
        (SMALL_DOTS, "256,3,3", "unrolled"),
        (SHORT_SUMS, "5000", "chain"),
        (POOLING, "1,14,14,32", "window"),
    ],
)
def test_what_is_compared_with_its_maximum_stays_in_memory(operation, sizes, lost):
    """Arithmetic in its place may be computed twice, and be rounded differently."""
    passes = ("convolution-forms", "dot-forms", "reduce-forms")
    dimensions = ",".join(map(str, range(sizes.count(",") + 1)))
    text = COMPARED.replace("OPERATION", operation[1:])
    text = text.replace("SIZES", sizes).replace("{DIMENSIONS}", f"{{{dimensions}}}")
    assert lost not in rules(text, *passes)
    plain = text.replace("compare(y, all)", "compare(x, all)")
    other = "x = f32[5000,3]" in text or "14,14" in text
    plain = text.replace("broadcast(most)", "broadcast(start)") if other else plain
    assert lost in rules(plain, *passes)


PEAKS = """HloModule peaks

ENTRY main {
  x = f32[1,40,60,INPUTS] parameter(0)
  k = f32[3,3,INPUTS,1] parameter(1)
  y = f32[1,40,60,1] convolution(x, k), window={size=3x3 pad=1_1x1_1},
    dim_labels=b01f_01io->b01f
  zero = f32[] constant(0)
  p = f32[1,42,60,1] pad(y, zero), padding=0_0x1_1x0_0x0_0
  above = f32[1,40,60,1] slice(p), slice={[0:1],[0:40],[0:60],[0:1]}
  is_peak = pred[1,40,60,1] compare(y, above), direction=GE
  zeros = f32[1,40,60,1] broadcast(zero), dimensions={}
  ROOT r = f32[1,40,60,1] select(is_peak, y, zeros)
}
"""


@pytest.mark.compile
@pytest.mark.parametrize(("inputs", "rule"), [(1, "taps_apart"), (3, "terms")])
def test_a_call_may_be_compared_with_itself(inputs, rule):
    """Both sides read the same numbers from memory."""
    text = PEAKS.replace("INPUTS", str(inputs))
    assert rules(text, "convolution-forms") == {rule}
    module = hloenv.HloModule.from_text(text)
    alternatives = hloenv.HloEnv(module).get_alternatives("convolution-forms")
    assert get_policy("known-forms")(alternatives).tolist() == [1]
    given = hloenv.random_inputs(module)
    given[0][:] = np.round(given[0])  # so that neighbours are often equal
    given[1][:] = np.round(given[1])
    wanted, found = (
        hloenv.compile(each, isolate=False, engine="jaxlib")(*given)[0]
        for each in (module, alternatives.apply([1]))
    )
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize(
    ("reducer", "start"),
    [
        # Not commutative where magnitudes or keys are equal.
        ("p = f32[] abs(a)\n q = f32[] abs(b)\n g = pred[] compare(p, q), direction=GE\n"
         " ROOT c = f32[] select(g, a, b)", "0"),
        ("p = f32[] floor(a)\n q = f32[] floor(b)\n"
         " g = pred[] compare(p, q), direction=GE\n ROOT c = f32[] select(g, a, b)",
         "-inf"),
        # Not associative.
        ("k = f32[] constant(0.999)\n d = f32[] multiply(a, k)\n"
         " ROOT c = f32[] add(d, b)", "0"),
        ("k = f32[] constant(10)\n d = f32[] add(a, b)\n ROOT c = f32[] minimum(d, k)",
         "0"),
        ("k = f32[] constant(7)\n d = f32[] add(a, b)\n"
         " ROOT c = f32[] remainder(d, k)", "0"),
        ("k = f32[] constant(10)\n l = f32[] constant(-10)\n d = f32[] add(a, b)\n"
         " ROOT c = f32[] clamp(l, d, k)", "0"),
        ("d = f32[] add(a, b)\n ROOT c = f32[] reduce-precision(d), exponent_bits=8,"
         " mantissa_bits=15", "0"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("is_reversed", [False, True])
def test_reducers_that_depend_on_the_order_are_not_scanned(reducer, start, is_reversed):
    text = scan_text((4, 32), 1, start=start, is_reversed=is_reversed)
    text = text.replace("ROOT c = f32[] add(a, b)", reducer)
    assert not rules(text, "reduce-forms")


@pytest.mark.compile
@pytest.mark.parametrize(
    ("kind", "operation", "start", "number"),
    [
        ("c64", "add", "(0, 0)", np.complex64(0.1)),
        ("f32", "add", "0", np.float32(0.1)),
        ("f32", "multiply", "1", np.nextafter(np.float32(1), np.float32(2))),
    ],
)
def test_long_scans_are_as_exact_as_xlas(kind, operation, start, number):
    """Equal numbers: each step of a sum in the short type errs to the same side."""
    length = 2**20
    text = scan_text((length,), 0, kind, operation, start)
    x = np.full(length, number)
    (found,) = hloenv.compile(form(text, "scan"), isolate=False)(x)
    wide = np.complex128(number) if kind == "c64" else np.float64(number)
    wanted = wide * length if operation == "add" else wide**length
    np.testing.assert_allclose(found[-1], wanted, rtol=1e-6)


@pytest.mark.compile
def test_long_scans_of_several_operations_are_as_exact_as_xlas():
    length = 2**18
    (found,) = hloenv.compile(form(log_text((length,)), "scan"), isolate=False)(
        np.zeros(length, np.float32)
    )
    np.testing.assert_allclose(found[-1], np.log(length), rtol=1e-6)


@pytest.mark.parametrize(
    "odd",
    [
        "odd = pred[] compare(b, j), direction=EQ\n  at = s32[] select(odd, j, usual)",
        "odd = pred[] compare(i, a), direction=LT\n  at = s32[] select(odd, i, usual)",
        "at = s32[] maximum(usual, b)",
        "at = s32[] select(left, usual, a)",
    ],
)
def test_reducers_that_compare_numbers_with_indices_are_not_packed(odd):
    text = arg_text("s32", shape=(1, 50))
    assert rules(text, "reduce-forms") == {"packed_index"}
    assert not rules(text.replace("at = s32[] select(left, i, j)",
                                  f"usual = s32[] select(left, i, j)\n  {odd}", 1),
                     "reduce-forms")  # fmt: skip


NO_SPACE = """HloModule convolution

ENTRY main {
  x = f32[10,5] parameter(0)
  k = f32[5,7] parameter(1)
  ROOT y = f32[10,7] convolution(x, k), dim_labels=bf_io->bf
}
"""


def test_a_convolution_without_spatial_dimensions():
    alternatives = captured(NO_SPACE, "convolution-forms")
    assert len(alternatives) == 1
    assert get_policy("known-forms")(alternatives).tolist() == [-1]
    for record in hloenv.verify_alternatives(alternatives):
        assert record.relative <= 1e-5


def test_a_giant_dot_is_not_multiplied_out():
    sizes = "f32[2097152,2097152]"
    text = f"""HloModule dot

ENTRY main {{
  x = {sizes} parameter(0)
  y = {sizes} parameter(1)
  ROOT d = {sizes} dot(x, y), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
}}
"""
    assert "multiply_reduce" not in rules(text, "dot-forms")


@pytest.mark.parametrize("stride", [1, 3, 5, 2**31, 2**62])
def test_one_window_reads_no_more_than_the_window(stride):
    text = f"""HloModule convolution

ENTRY main {{
  x = f32[1,3,4] parameter(0)
  k = f32[3,4,4] parameter(1)
  ROOT c = f32[1,1,4] convolution(x, k), window={{size=3 stride={stride}}},
    dim_labels=b0f_0io->b0f
}}
"""
    alternatives = captured(text, "convolution-forms")
    for record in hloenv.verify_alternatives(alternatives):
        assert record.relative <= 1e-5
    names = [choice.rule for choice in alternatives[0].choices]
    graph = alternatives.apply([names.index("blocks")]).to_text()
    assert "2147483648" not in graph


def test_windows_of_more_elements_than_can_be_counted():
    text = """HloModule window

add {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}

ENTRY main {
  x = f32[2,2,4] parameter(0)
  zero = f32[] constant(0)
  ROOT y = f32[2,2,4] reduce-window(x, zero),
    window={size=2147483648x2147483648x4 pad=2147483647_0x2147483647_0x3_0},
    to_apply=add
}
"""
    assert not rules(text, "reduce-forms")


OUTSIDE = """HloModule outside

add {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}

ge {
  d = f32[] parameter(0)
  e = f32[] parameter(1)
  ROOT g = pred[] compare(d, e), direction=GE
}

ENTRY main {
"""


@pytest.mark.compile
@pytest.mark.parametrize(
    "body",
    [
        "x = f32[4] parameter(0)\n  z = f32[] constant(0)\n  ROOT y = f32[4] "
        "reduce-window(x, z), window={size=2 pad=-5_6}, to_apply=add",
        "x = f32[9] parameter(0)\n  z = f32[] constant(5)\n  ROOT y = f32[4] "
        "reduce-window(x, z), window={size=3 pad=-2_-1}, to_apply=add",
        "x = f32[4] parameter(0)\n  z = f32[] constant(0)\n  ROOT y = f32[7] "
        "reduce-window(x, z), window={size=2 pad=-5_6 lhs_dilate=2}, to_apply=add",
        "x = f32[3] parameter(0)\n  s = f32[6] parameter(1)\n  z = f32[] constant(0)\n"
        "  ROOT y = f32[3] select-and-scatter(x, s, z), "
        "window={size=2 stride=2 pad=5_4}, select=ge, scatter=add",
    ],
)
def test_windows_of_padding_alone(body):
    text = f"{OUTSIDE}  {body}\n}}\n"
    module = hloenv.HloModule.from_text(text)
    alternatives = captured(text, "reduce-forms")
    inputs = hloenv.random_inputs(module)
    (wanted,) = hloenv.interpret(module, *inputs)
    for choice in range(1, len(alternatives[0].choices) if len(alternatives) else 1):
        decided = alternatives.apply([choice])
        for run in (
            hloenv.interpret,
            lambda m, *x: hloenv.compile(m, isolate=False)(*x),
        ):
            (found,) = run(decided, *inputs)
            np.testing.assert_allclose(found, wanted, rtol=1e-6)


@pytest.mark.parametrize("kind", ["s4", "u4"])
def test_dots_of_four_bits_stay(kind):
    text = f"""HloModule dot

ENTRY main {{
  x = {kind}[1,512] parameter(0)
  y = {kind}[512,512] parameter(1)
  ROOT d = {kind}[1,512] dot(x, y), lhs_contracting_dims={{1}}, rhs_contracting_dims={{1}}
}}
"""
    assert not rules(text, "dot-forms")
    assert rules(text.replace(kind, "s32"), "dot-forms")


def test_dots_of_a_scalar():
    text = """HloModule dot

ENTRY main {
  x = f32[] parameter(0)
  y = f32[5] parameter(1)
  ROOT d = f32[5] dot(x, y), lhs_contracting_dims={}, rhs_contracting_dims={}
}
"""
    for record in hloenv.verify_alternatives(captured(text, "dot-forms")):
        assert record.relative == 0


@pytest.mark.parametrize(("imaginary", "has_forms"), [("1", True), ("1e38", False)])
def test_squares_of_complex_numbers_may_be_negative(imaginary, has_forms):
    text = f"""HloModule squares

ENTRY main {{
  x = c64[64,4,4] parameter(0)
  k = c64[] constant((0, {imaginary}))
  ks = c64[64,4,4] broadcast(k), dimensions={{}}
  y = c64[64,4,4] add(x, ks)
  z = c64[64,4,4] multiply(y, y)
  r = f32[64,4,4] real(z)
  zero = f32[] constant(0)
  zeros = f32[64,4,4] broadcast(zero), dimensions={{}}
  m = f32[64,4,4] minimum(r, zeros)
  w = f32[64,4,4] parameter(1)
  ROOT d = f32[64,4,4] dot(m, w), lhs_batch_dims={{0}}, rhs_batch_dims={{0}}, lhs_contracting_dims={{2}}, rhs_contracting_dims={{1}}
}}
"""
    assert ("unrolled" in rules(text, "dot-forms")) == has_forms
