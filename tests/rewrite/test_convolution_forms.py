# SPDX-License-Identifier: Apache-2.0
"""convolution-forms: every form of a convolution computes the same."""

from __future__ import annotations

import random

import numpy as np
import pytest

import hloenv
from support.captures import capture, check_compiled, check_rule, rules
from support.convolutions import (
    JAX_FORMS,
    jax_form,
    one_convolution,
    random_convolution,
)

NAME = "convolution-forms"
RULES = {"taps", "taps_apart", "terms", "outputs", "patches", "blocks", "phases"}
# Whose tests are in other files.
OTHERS = {"rows", "bands", "toeplitz", "copies", "channels_last"}

# The rules that apply to each convolution that JAX makes.
EXPECTED = {
    "depthwise": {"taps", "taps_apart", "bands"},
    "depthwise input": {"taps", "taps_apart", "bands"},
    "depthwise kernel": {"outputs", "patches", "rows", "bands"},
    "strided depthwise": {"taps", "taps_apart", "outputs", "bands"},
    "strided depthwise input": {"taps", "taps_apart", "phases"},
    "strided depthwise kernel": {"taps", "outputs", "patches", "bands"},
    "grouped": {"taps", "patches", "bands"},
    "grouped input": {"taps", "patches", "bands"},
    "grouped kernel": {"outputs", "patches", "bands"},
    "transposed": {"taps", "patches", "phases", "terms"},
    "transposed input": {"taps", "outputs", "patches", "terms", "bands"},
    "transposed kernel": {"outputs", "patches", "phases", "terms"},
    "patches": {"taps", "outputs", "patches", "blocks", "terms", "bands"},
    "patches input": {"taps", "patches", "phases", "blocks", "terms"},
    "patches kernel": {"taps", "outputs", "patches", "blocks", "terms", "bands"},
    "1x1": {"blocks"},
    "strided 1x1": {"blocks"},
    "strided 1x1 input": {"blocks", "phases"},
    "strided 1x1 kernel": {"taps", "outputs", "patches", "blocks", "terms"},
    "strided input": {"taps", "patches", "phases", "terms"},
    "small image": {"taps", "outputs", "patches", "terms", "bands"},
}

# Tolerances of results in these types, from operands and to results.
TOLERANCES = {
    "f32": 1e-12,  # computed in float64
    "f64": 1e-12,
    "s32": 0.0,
    "bf16->f32": 1e-5,
    "bf16": 2e-2,
    "f16": 3e-3,
}


def captured(text: str, *, options: dict[str, bool] | None = None):
    return capture(text, hloenv.Pass(NAME, **(options or {})))


def check(text: str, types: str = "f32", seed: int = 0) -> list[str]:
    """Each choice beside the original; the rules of the choices."""
    alternatives = captured(text)
    records = hloenv.verify_alternatives(
        alternatives, seed=seed, float64=types == "f32"
    )
    for record in records:
        assert record.relative <= TOLERANCES[types], (record, text)
    return rules(alternatives)


@pytest.mark.parametrize("name", JAX_FORMS)
def test_forms_of_what_jax_makes(name):
    assert set(check(jax_form(name))) == EXPECTED[name]


@pytest.mark.compile
@pytest.mark.parametrize(
    "name", ["depthwise", "grouped", "patches kernel", "strided 1x1 input"]
)
def test_forms_compile_and_compute_the_same(name):
    check_compiled(jax_form(name), NAME)


@pytest.mark.parametrize("types", TOLERANCES)
def test_types(types):
    for name in ("depthwise", "grouped kernel", "transposed", "patches input"):
        assert set(check(jax_form(name, types), types)) == EXPECTED[name]


@pytest.mark.parametrize("seed", range(8))
def test_random_convolutions(seed):
    rng = random.Random(seed)
    found = [rule for n in range(25) for rule in check(random_convolution(rng), seed=n)]
    assert set(found) - OTHERS == RULES


def test_depthwise_taps_have_no_dot():
    alternatives = captured(jax_form("depthwise"))
    counts = alternatives.apply([1]).opcode_counts()
    assert counts["multiply"] == 9
    assert not {"dot", "convolution"} & set(counts)


def test_gradient_of_a_depthwise_kernel_is_nine_reductions():
    alternatives = captured(jax_form("depthwise kernel"))
    chosen = 1 + rules(alternatives).index("outputs")
    counts = alternatives.apply([chosen]).opcode_counts()
    assert counts["reduce"] == 9
    assert not {"dot", "convolution"} & set(counts)


def test_outputs_leave_out_much_padding():
    alternatives = captured(jax_form("small image"))
    chosen = 1 + rules(alternatives).index("outputs")
    counts = alternatives.apply([chosen]).opcode_counts()
    assert counts["dot"] == 4
    assert not {"convolution", "pad"} & set(counts)


@pytest.mark.parametrize("name", ["patches", "patches input", "patches kernel"])
def test_blocks_are_one_dot(name):
    alternatives = captured(jax_form(name))
    chosen = 1 + rules(alternatives).index("blocks")
    counts = alternatives.apply([chosen]).opcode_counts()
    assert counts["dot"] == 1
    assert not {"convolution", "pad"} & set(counts)


def test_phases_leave_no_base_dilation():
    alternatives = captured(jax_form("strided depthwise input"))
    chosen = 1 + rules(alternatives).index("phases")
    decided = alternatives.apply([chosen])
    assert decided.opcode_counts()["convolution"] == 4
    assert "lhs_dilate" not in decided.to_text()
    # The convolutions can be decided again.
    again = hloenv.HloEnv(decided).get_alternatives(NAME)
    assert len(again) == 4


@pytest.mark.parametrize(
    ("stride", "dilation", "size", "expected"),
    [
        (2, 3, 29, {"convolution": 3, "concatenate": 1}),
        (6, 4, 20, {"convolution": 2, "concatenate": 1}),  # both have a factor
        (3, 3, 30, {"convolution": 1}),
        (4, 2, 15, {"convolution": 1}),
    ],
)
def test_strides_make_fewer_phases(stride, dilation, size, expected):
    padded = (size - 1) * stride + 7
    high = padded - (20 - 1) * dilation - 1 - 3
    text = one_convolution(
        *("2,20,1", "7,1,1", f"2,{size},1"),
        f"window={{size=7 stride={stride} pad=3_{high} lhs_dilate={dilation}}}, "
        "dim_labels=b0f_0io->b0f",
    )
    alternatives = captured(text)
    chosen = 1 + rules(alternatives).index("phases")
    decided = alternatives.apply([chosen])
    assert "lhs_dilate" not in decided.to_text()
    counts = decided.opcode_counts()
    wanted = {name: counts.get(name, 0) for name in ("convolution", "concatenate")}
    assert wanted == {"convolution": 0, "concatenate": 0} | expected
    for record in hloenv.verify_alternatives(alternatives, float64=True):
        assert record.relative <= 1e-12, record


@pytest.mark.parametrize(("stride", "has_phases"), [(2, True), (2**62, False)])
def test_huge_strides_have_no_phases(stride, has_phases):
    shapes = "2,3,2", "7,2,2", f"2,{(9 - 7) // stride + 1},2"
    attributes = (
        f"window={{size=7 stride={stride} pad=1_1 lhs_dilate=3}}, "
        "dim_labels=b0f_0io->b0f"
    )
    found = rules(captured(one_convolution(*shapes, attributes)))
    assert ("phases" in found) == has_phases


def test_random_strides_and_dilations_have_equal_phases():
    rng = random.Random(0)
    count = 0
    for seed in range(80):
        image, taps = rng.randint(1, 12), rng.randint(1, 9)
        dilation, stride = rng.randint(2, 6), rng.randint(1, 6)
        window_dilation = rng.randint(1, 3)
        low, high = rng.randint(-2, 6), rng.randint(-2, 6)
        padded = (image - 1) * dilation + 1 + low + high
        size = (padded - (taps - 1) * window_dilation - 1) // stride + 1
        if size < 1:
            continue
        text = one_convolution(
            *(f"1,{image},2", f"{taps},2,1", f"1,{size},1"),
            f"window={{size={taps} stride={stride} pad={low}_{high} "
            f"lhs_dilate={dilation} rhs_dilate={window_dilation} "
            f"rhs_reversal={seed % 2}}}, dim_labels=b0f_0io->b0f",
        )
        count += check_rule(text, NAME, "phases", seed=seed)
    assert count >= 40


@pytest.mark.compile
@pytest.mark.parametrize("extreme", [np.inf, np.nan, 1e30])
def test_phases_of_extreme_arguments(extreme):
    """Products with the zeros of the dilation, which are none, are left out."""
    text = one_convolution(
        *("1,20,1", "7,1,1", "1,29,1"),
        "window={size=7 stride=2 pad=3_3 lhs_dilate=3}, dim_labels=b0f_0io->b0f",
    )
    alternatives = captured(text)
    chosen = 1 + rules(alternatives).index("phases")
    image = np.ones((1, 20, 1), np.float32)
    image[0, 7] = extreme
    kernel = np.ones((7, 1, 1), np.float32)
    for decisions in ([0], [chosen]):
        decided = alternatives.apply(decisions)
        (found,) = hloenv.compile(decided, engine="jaxlib", isolate=False)(
            image, kernel
        )
        # The element is at 21, windows of seven start at each second place from -3.
        reads = [p for p in range(29) if 2 * p - 3 <= 21 < 2 * p + 4]
        others = np.delete(found[0, :, 0], reads)
        assert np.isfinite(others).all()
        assert others.max() <= 3
        np.testing.assert_array_equal(found[0, reads, 0], np.float32(extreme))


def test_taps_that_read_only_padding_are_left_out():
    text = one_convolution(
        *("2,1,1,3", "3,3,3,5", "2,1,1,5"),
        "window={size=3x3 pad=1_1x1_1}, dim_labels=b01f_01io->b01f",
    )
    alternatives = captured(text)
    chosen = 1 + rules(alternatives).index("taps")
    assert alternatives.apply([chosen]).opcode_counts()["dot"] == 1


def test_precision_is_kept():
    text = jax_form("grouped").replace(
        "feature_group_count",
        "operand_precision={highest,highest}, feature_group_count",
    )
    alternatives = captured(text)
    for choice in range(1, alternatives.num_choices[0]):
        dots = alternatives.apply([choice]).to_text().count(" dot(")
        kept = alternatives.apply([choice]).to_text().count("{highest,highest}")
        assert dots == kept > 0


def test_each_rule_can_be_turned_off():
    options = {option.name for option in hloenv.describe_pass(NAME).options}
    assert options == RULES | OTHERS
    for name in ("patches", "patches input", "depthwise kernel", "depthwise"):
        for off in EXPECTED[name]:
            found = rules(captured(jax_form(name), options={off: False}))
            assert set(found) == EXPECTED[name] - {off}


@pytest.mark.parametrize(
    ("shapes", "attributes", "types"),
    [
        (
            ("2,0,3", "1,3,4", "2,0,4"),
            "window={size=1}, dim_labels=b0f_0io->b0f",
            "f32",
        ),
        (("2,5,3", "2,3,4", "2,4,4"), "window={size=2}, dim_labels=b0f_0io->b0f", "s8"),
        (
            ("2,5,3", "2,3,4", "2,4,4"),
            "window={size=2}, dim_labels=b0f_0io->b0f",
            "f8e5m2",
        ),
        (
            ("2,<=5,3", "2,3,4", "2,<=4,4"),
            "window={size=2}, dim_labels=b0f_0io->b0f",
            "f32",
        ),
        (
            ("1,2,2,2,2,1", "1,1,1,1,1,1", "1,2,2,2,2,1"),
            "window={size=1x1x1x1}, dim_labels=b0123f_0123io->b0123f",
            "f32",
        ),
    ],
    ids=["empty", "short integers", "short floats", "dynamic", "four dimensions"],
)
def test_not_offered(shapes, attributes, types):
    assert len(captured(one_convolution(*shapes, attributes, types))) == 0


def test_infinite_kernels_are_left_alone():
    text = """HloModule masked

ENTRY main {
  x = f32[1,4,1] parameter(0)
  huge = f32[] constant(inf)
  k = f32[3,1,1] broadcast(huge), dimensions={}
  ROOT c = f32[1,4,1] convolution(x, k), window={size=3 pad=1_1},
    dim_labels=b0f_0io->b0f
}
"""
    assert len(captured(text)) == 0
    assert len(captured(text.replace("constant(inf)", "constant(2)"))) == 1


@pytest.mark.compile
@pytest.mark.parametrize(
    ("batch", "size", "patch"), [(2, 224, 16), (1, 512, 32)], ids=["16x16", "32x32"]
)
def test_gradients_of_large_patches_are_one_dot(batch, size, patch):
    """The input with zeros between its elements would not fit; no rule makes it."""
    count, features = size // patch, 384
    text = f"""HloModule m
ENTRY e {{
  y = f32[{batch},{count},{count},{features}] parameter(0)
  k = f32[{patch},{patch},3,{features}] parameter(1)
  ROOT r = f32[{batch},{size},{size},3] convolution(y, k), window={{size={patch}x{patch} \
pad={patch - 1}_{patch - 1}x{patch - 1}_{patch - 1} lhs_dilate={patch}x{patch} \
rhs_reversal=1x1}}, dim_labels=b01f_01oi->b01f
}}
"""
    module = hloenv.HloModule.from_text(text)
    alternatives = hloenv.HloEnv(module).get_alternatives("convolution-forms")
    assert rules(alternatives) == ["blocks"]
    decided = alternatives.apply([1])
    assert decided.opcode_counts()["dot"] == 1
    rng = np.random.default_rng(0)
    y, k = (
        rng.standard_normal(shape, dtype=np.float32)
        for shape in (
            (batch, count, count, features),
            (patch, patch, 3, features),
        )
    )
    (found,) = hloenv.compile(decided, isolate=False)(y, k)
    wanted = np.einsum("nhwo,abio->nhawbi", y, k, optimize=True).reshape(found.shape)
    np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(
    ("x", "kernel", "result", "window", "labels"),
    [
        (
            *("1,400,1", "1,1,1", "1,1,1"),
            "size=1 stride=200000000000 pad=0_100000000000",
            "b0f_0io->b0f",
        ),
        (
            *("1,1,1000,1", "2,1000,1,1", "1,100000,1,1"),
            "size=2x1000 pad=50000_50000x-500000_-498001 lhs_dilate=1x1000",
            "b01f_01io->b01f",
        ),
    ],
    ids=["padding", "cropped blocks"],
)
def test_blocks_that_would_not_fit(x, kernel, result, window, labels):
    text = f"""HloModule m
ENTRY e {{
  x = f32[{x}] parameter(0)
  k = f32[{kernel}] parameter(1)
  ROOT r = f32[{result}] convolution(x, k), window={{{window}}}, dim_labels={labels}
}}
"""
    assert "blocks" not in rules(capture(text, NAME))
