# SPDX-License-Identifier: Apache-2.0
"""reduce-forms: cumulative reductions as loops."""

from __future__ import annotations

import random

import numpy as np
import pytest

import hloenv
from support.reductions import WINDOW

NAME = "reduce-forms"

LOG_ADD_EXP = """region {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  m = f32[] maximum(a, b)
  d = f32[] subtract(a, b)
  n = f32[] abs(d)
  o = f32[] negate(n)
  e = f32[] exponential(o)
  l = f32[] log-plus-one(e)
  s = f32[] add(m, l)
  t = f32[] add(a, b)
  p = pred[] compare(d, d), direction=NE
  ROOT c = f32[] select(p, t, s)
}"""
KINDS = [
    ("f32", "add", "0", 1e-5),
    ("f32", "multiply", "1", 1e-4),
    ("f64", "maximum", "-inf", 0.0),
    ("f32", "minimum", "inf", 0.0),
    ("f64", "add", "0", 1e-12),
    ("c64", "add", "(0, 0)", 1e-4),
    ("s32", "add", "0", 0.0),
    ("s32", "multiply", "1", 0.0),
    ("s32", "maximum", "-2147483648", 0.0),
    ("u64", "xor", "0", 0.0),
    ("s32", "or", "0", 0.0),
    ("pred", "or", "false", 0.0),
    ("bf16", "add", "0", 5e-2),
    ("f16", "maximum", "-inf", 0.0),
]


def scan_text(
    sizes: tuple[int, ...],
    dimension: int,
    kind: str = "f32",
    operation: str = "add",
    start: str = "0",
    *,
    is_reversed: bool = False,
) -> str:
    window = [1] * len(sizes)
    pads = ["0_0"] * len(sizes)
    size = window[dimension] = sizes[dimension]
    pads[dimension] = f"0_{size - 1}" if is_reversed else f"{size - 1}_0"
    shape = ",".join(map(str, sizes))
    return WINDOW.format(
        kind=kind,
        operation=operation,
        start=start,
        sizes=shape,
        results=shape,
        window=f"size={'x'.join(map(str, window))} pad={'x'.join(pads)}",
    )


def log_text(sizes: tuple[int, ...], *, is_reversed: bool = False) -> str:
    text = scan_text(sizes, len(sizes) - 1, start="-inf", is_reversed=is_reversed)
    end = text.index("ENTRY")
    return text[: text.index("region")] + LOG_ADD_EXP + "\n\n" + text[end:]


def captured(text: str) -> hloenv.Alternatives:
    return hloenv.HloEnv(hloenv.HloModule.from_text(text)).get_alternatives(NAME)


def rules(text: str) -> list[str]:
    """The rules that rewrite a scan."""
    found = (each.rule for one in captured(text) for each in one.choices[1:])
    return [rule for rule in found if rule.startswith("scan")]


def form(text: str, rule: str) -> hloenv.HloModule:
    alternatives = captured(text)
    (alternative,) = alternatives
    names = [choice.rule for choice in alternative.choices]
    return alternatives.apply([names.index(rule)])


@pytest.mark.parametrize(("kind", "operation", "start", "tolerance"), KINDS)
def test_random_scans(kind, operation, start, tolerance):
    rng = random.Random(7)
    for seed in range(15):
        sizes = tuple(rng.choice((1, 2, 3, 5, 9, 17)) for _ in range(rng.randint(1, 3)))
        dimension = rng.randrange(len(sizes))
        text = scan_text(
            sizes, dimension, kind, operation, start, is_reversed=seed % 2 == 1
        )
        if sizes[dimension] == 1:
            assert rules(text) == []
            continue
        has_groups = int(np.prod(sizes[:dimension])) > 8
        assert rules(text) == ["scan", "scan_groups"][: 1 + has_groups], text
        records = hloenv.verify_alternatives(captured(text), seed=seed)
        assert len(records) >= 1 + has_groups, text
        for record in records:
            assert record.relative <= tolerance, (record, text)


@pytest.mark.parametrize("rule", ["scan", "scan_groups"])
@pytest.mark.parametrize("size", [2, 7, 8, 40, 101])
def test_sums_are_in_the_order_of_the_definition(rule, size):
    decided = form(scan_text((11, size), 1), rule)
    assert "reduce-window" not in decided.opcode_counts()
    x = np.random.default_rng(0).normal(size=(11, size)).astype(np.float32)
    (output,) = hloenv.interpret(decided, x)
    np.testing.assert_array_equal(output, np.cumsum(x, axis=1))
    decided = form(scan_text((11, size), 1, is_reversed=True), rule)
    (output,) = hloenv.interpret(decided, x)
    np.testing.assert_array_equal(output, np.cumsum(x[:, ::-1], axis=1)[:, ::-1])


@pytest.mark.parametrize("is_reversed", [False, True])
@pytest.mark.parametrize(
    ("operation", "start"),
    [("add", "0"), ("multiply", "1"), ("maximum", "-inf"), ("minimum", "inf")],
)
def test_infinities_and_nan(operation, start, is_reversed):
    rng = np.random.default_rng(1)
    text = scan_text((20, 12), 1, "f32", operation, start, is_reversed=is_reversed)
    module = hloenv.HloModule.from_text(text)
    for _ in range(5):
        values = [-np.inf, np.inf, np.nan, 0, 1, 2, -1]
        chances = [0.03, 0.03, 0.03, 0.2, 0.31, 0.2, 0.2]
        x = rng.choice(values, p=chances, size=(20, 12)).astype(np.float32)
        (wanted,) = hloenv.interpret(module, x)
        for rule in ("scan", "scan_groups"):
            (output,) = hloenv.interpret(form(text, rule), x)
            np.testing.assert_array_equal(output, wanted)


def test_integers_overflow():
    text = scan_text((30,), 0, "s32")
    x = np.full(30, 2**30, np.int32)
    (output,) = hloenv.interpret(form(text, "scan"), x)
    np.testing.assert_array_equal(output, np.cumsum(x, dtype=np.int32))


def test_long_sums_are_added_as_float64():
    x = np.random.default_rng(4).random(3000).astype(np.float32)
    (output,) = hloenv.interpret(form(scan_text((3000,), 0), "scan"), x)
    np.testing.assert_array_equal(output, np.cumsum(x, dtype=np.float64).astype("f"))


@pytest.mark.compile
@pytest.mark.parametrize("is_reversed", [False, True])
@pytest.mark.parametrize("dtype", ["f16", "bf16"])
@pytest.mark.parametrize(("sizes", "dimension"), [((5000,), 0), ((40, 300), 1)])
def test_sums_of_short_floats_are_nearer(sizes, dimension, dtype, is_reversed):
    """To the exact sums than XLA's own, which rounds each of its partial sums."""
    text = scan_text(sizes, dimension, dtype, is_reversed=is_reversed)
    module = hloenv.HloModule.from_text(text)
    (x,) = hloenv.random_inputs(module)
    exact = np.asarray(x).astype(np.float64)
    flipped = np.flip(exact, dimension) if is_reversed else exact
    exact = np.cumsum(flipped, axis=dimension)
    exact = np.flip(exact, dimension) if is_reversed else exact

    def error_of(module: hloenv.HloModule) -> float:
        (found,) = hloenv.compile(module, engine="jaxlib", isolate=False)(x)
        assert found.dtype == x.dtype
        return float(abs(np.asarray(found).astype(np.float64) - exact).max())

    plain = error_of(module)
    for rule in rules(text):
        assert error_of(form(text, rule)) <= plain


@pytest.mark.compile
@pytest.mark.parametrize(
    ("dtype", "largest", "tiny"),
    [("f16", 65504.0, 2.0**-24), ("bf16", 3.38953139e38, 2.0**-133)],
)
def test_special_short_floats(dtype, largest, tiny):
    """Sums of two numbers, which have one order: infinite where XLA's are."""
    special = np.array(
        [0.0, -0.0, 1.0, tiny, -tiny, largest, -largest, np.inf, -np.inf, np.nan]
    )
    pairs = np.stack([np.ravel(each) for each in np.meshgrid(special, special)])
    text = scan_text(pairs.shape, 0, dtype)
    module = hloenv.HloModule.from_text(text)
    x = pairs.astype(np.asarray(hloenv.random_inputs(module)[0]).dtype)
    (plain,) = hloenv.compile(module, engine="jaxlib", isolate=False)(x)
    for rule in rules(text):
        (found,) = hloenv.compile(form(text, rule), engine="jaxlib", isolate=False)(x)
        found, wanted = (np.asarray(each).astype(np.float32) for each in (found, plain))
        np.testing.assert_array_equal(found, wanted)


def test_short_floats_are_added_as_float32():
    text = scan_text((600,), 0, "bf16")
    x = np.ones(600, np.float32)
    (output,) = hloenv.interpret(
        form(text, "scan"),
        x.astype(hloenv.random_inputs(captured(text).apply([0]))[0].dtype),
    )
    assert float(output[-1]) == 600


@pytest.mark.parametrize("is_reversed", [False, True])
def test_a_reducer_of_several_operations(is_reversed):
    text = log_text((20, 9), is_reversed=is_reversed)
    assert rules(text) == ["scan", "scan_groups"]
    x = np.random.default_rng(2).normal(size=(20, 9)).astype(np.float32)
    x[3, 4] = -np.inf
    x[5, 0] = np.inf
    x[6, 6] = np.nan
    (wanted,) = hloenv.interpret(hloenv.HloModule.from_text(text), x)
    for rule in ("scan", "scan_groups"):
        (output,) = hloenv.interpret(form(text, rule), x)
        np.testing.assert_allclose(output, wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("size=1x9", "size=1x8"),  # another result
        ("pad=0_0x8_0", "pad=0_0x7_1"),
        ("pad=0_0x8_0", "pad=0_0x8_0 rhs_reversal=0x1"),
        ("pad=0_0x8_0", "pad=0_0x16_0 rhs_dilate=1x2"),
        ("pad=0_0x8_0", "pad=1_-1x8_0"),
        ("constant(0)", "constant(1)"),
        ("constant(0)", "parameter(1)"),
        ("add(a, b)", "subtract(a, b)"),
        ("add(a, b)", "divide(a, b)"),
        ("add(a, b)", "power(a, b)"),
        ("f32", "s8"),
        ("parameter(0)\n  start", "parameter(0), sharding={replicated}\n  start"),
    ],
)
def test_not_offered(old, new):
    text = scan_text((4, 9), 1)
    assert old in text
    changed = text.replace(old, new)
    if new == "size=1x8":
        changed = changed.replace("pad=0_0x8_0", "pad=0_0x7_0")
    if "sharding" in new:
        changed = text.replace(
            "to_apply=region", "to_apply=region, sharding={replicated}"
        )
    assert rules(changed) == []


def test_two_dimensions_at_once_are_not_offered():
    text = scan_text((4, 9), 1).replace("size=1x9 pad=0_0x8_0", "size=4x9 pad=3_0x8_0")
    assert rules(text) == []


def test_strides_and_base_dilation_are_not_offered():
    text = scan_text((4, 9), 1)
    strided = text.replace("pad=0_0x8_0", "stride=1x2 pad=0_0x8_0").replace(
        "r = f32[4,9]", "r = f32[4,5]"
    )
    dilated = text.replace("pad=0_0x8_0", "pad=0_0x8_0 lhs_dilate=1x2").replace(
        "r = f32[4,9]", "r = f32[4,17]"
    )
    assert rules(strided) == rules(dilated) == []


def test_huge_masks_are_not_offered():
    text = scan_text((4, 9), 1).replace(
        "x = f32[4,9] parameter(0)",
        "huge = f32[] constant(-1e30)\n  x = f32[4,9] broadcast(huge), dimensions={}",
    )
    assert rules(text) == []


def test_empty_and_dynamic_dimensions_are_not_offered():
    assert rules(scan_text((0, 9), 1)) == []
    assert rules(scan_text((4, 9), 1).replace("[4,9]", "[<=4,9]")) == []


@pytest.mark.compile
@pytest.mark.parametrize("is_reversed", [False, True])
@pytest.mark.parametrize(
    ("sizes", "dimension", "kind"),
    [
        ((1000,), 0, "f32"),
        ((50, 40), 0, "f64"),
        ((21, 130), 1, "f32"),
        ((3, 50, 7), 1, "s32"),
        ((300,), 0, "bf16"),
    ],
)
def test_loops_compile_and_compute_the_same(sizes, dimension, kind, is_reversed):
    text = scan_text(sizes, dimension, kind, is_reversed=is_reversed)
    module = hloenv.HloModule.from_text(text)
    inputs = hloenv.random_inputs(module)
    wanted = hloenv.interpret(module, *inputs)
    for rule in rules(text):
        outputs = hloenv.compile(form(text, rule), isolate=False)(*inputs)
        tolerance = 5e-2 if kind == "bf16" else 1e-4
        hloenv.compare_outputs(wanted, outputs, rtol=tolerance).check()


@pytest.mark.compile
def test_log_add_exp_compiles():
    text = log_text((20, 30))
    module = hloenv.HloModule.from_text(text)
    inputs = hloenv.random_inputs(module)
    wanted = hloenv.interpret(module, *inputs)
    outputs = hloenv.compile(form(text, "scan"), isolate=False)(*inputs)
    hloenv.compare_outputs(wanted, outputs, rtol=1e-4).check()


def test_the_policy_takes_loops_of_long_dimensions():
    policy = hloenv.policies.get_policy("known-forms")

    def taken(sizes: tuple[int, ...], dimension: int, kind: str = "f32") -> str | None:
        operation = ("or", "false") if kind == "pred" else ("add", "0")
        alternatives = captured(scan_text(sizes, dimension, kind, *operation))
        (choice,) = policy(alternatives)
        return alternatives[0].choices[choice].rule if choice > 0 else None

    assert taken((1000,), 0) == "scan"
    assert taken((20, 500), 1) == "scan"
    assert taken((100, 500), 1) == "scan_groups"
    assert taken((100, 500), 0) == "scan"
    assert taken((1000, 40), 0) == "scan"
    assert taken((50,), 0) is None
    assert taken((1000,), 0, "bf16") == "scan"
    assert taken((1000, 40), 0, "f16") == "scan"
    assert taken((100, 500), 1, "bf16") == "scan_groups"
    assert taken((20, 500), 1, "f16") == "scan"
    assert taken((50,), 0, "bf16") is None
    assert taken((1000,), 0, "pred") is None
    assert taken((1000, 12), 1) is None
