# SPDX-License-Identifier: Apache-2.0
"""sort-forms: the few largest numbers of rows by reductions."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import hloenv
from support.captures import capture, decisions_for_rule, rules

NAME = "sort-forms"
OP, CALL = (
    "topk(x), k={k}, largest={largest}",
    'custom-call(x), custom_call_target="TopK"',
)
TEXT = """HloModule m
ENTRY e {{
  x = {type}[{sizes}]{{{layout}}} parameter(0)
  t = ({type}[{found}]{{{layout}}}, s32[{found}]{{{layout}}}) {op}
  a = {type}[{found}]{{{layout}}} get-tuple-element(t), index=0
  b = s32[{found}]{{{layout}}} get-tuple-element(t), index=1
  ROOT r = ({type}[{found}]{{{layout}}}, s32[{found}]{{{layout}}}) tuple(a, b)
}}
"""


def text_of(shape, k, type="f32", op=OP, *, largest=True, layout=None):
    rank = len(shape)
    sizes, found = (",".join(map(str, each)) for each in (shape, (*shape[:-1], k)))
    layout = layout or ",".join(str(d) for d in reversed(range(rank)))
    op = op.format(k=k, largest=str(largest).lower())
    return TEXT.format(type=type, sizes=sizes, found=found, layout=layout, op=op)


def hard_numbers(shape, seed):
    """Many equal numbers, and those of each kind that XLA's partial sort tells apart."""
    rng = np.random.default_rng(seed)
    x = rng.integers(-3, 3, shape).astype(np.float32)
    bits = [0xFFFFFFFF, 0x7FFFFFFF, 0x7F800001, 0xFF800001]
    few = np.array([np.nan, -np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-40, -1e-40])
    few = np.concatenate([few.astype(np.float32), np.array(bits, np.uint32).view("f4")])
    is_hard = rng.random(shape) < 0.4
    return np.where(is_hard, rng.choice(few, shape), x)


def whole_numbers(shape, seed, type):
    """Of all magnitudes, with the largest one and the smallest one twice."""
    info = np.iinfo(type)
    x = np.random.default_rng(seed).integers(info.min, info.max, shape, type, True)
    x.reshape(-1)[:3] = info.min, info.min, info.max
    return x


@pytest.mark.compile
@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("type", ["bf16", "f16", "s8", "u8", "s16", "u16"])
@pytest.mark.parametrize(
    ("shape", "k"), [((7, 300), 5), ((7, 300), 300), ((12,), 1), ((3, 2, 90), 40)]
)
def test_narrow_numbers_as_float32(type, shape, k, largest):
    if type in ("bf16", "f16"):
        dtype = ml_dtypes.bfloat16 if type == "bf16" else np.float16
        x = hard_numbers(shape, k)
        x = np.where(np.isnan(x), np.copysign(np.float32(np.nan), x), x).astype(dtype)
    else:
        x = whole_numbers(shape, k, type.replace("u", "uint").replace("s", "int"))
    module = hloenv.HloModule.from_text(text_of(shape, k, type, largest=largest))
    alternatives = hloenv.HloEnv(module).get_alternatives(NAME)
    assert rules(alternatives) == ["wider"]
    decided = alternatives.apply([1])
    wanted, found = (
        hloenv.compile(each, isolate=False)(x) for each in (module, decided)
    )
    np.testing.assert_array_equal(wanted[1], found[1])
    numbers = [np.asarray(each[0]).astype(np.float64) for each in (wanted, found)]
    np.testing.assert_array_equal(*numbers)
    np.testing.assert_array_equal(*map(np.signbit, numbers))


@pytest.mark.compile
@pytest.mark.parametrize("rule", ["maxima", "argmaxes"])
@pytest.mark.parametrize(
    ("shape", "k", "op", "largest"),
    [
        ((7, 40), 5, OP, True),
        ((7, 40), 5, CALL, True),
        ((12,), 12, OP, True),
        ((12,), 12, CALL, True),
        ((3, 2, 9), 1, OP, True),
        ((7, 40), 16, OP, False),
    ],
)
@pytest.mark.parametrize("type", ["f32", "s32", "f64", "s64"])
def test_results_are_equal_bit_for_bit(type, shape, k, op, largest, rule):
    if type in ("f32", "f64"):
        with np.errstate(invalid="ignore"):  # of signalling numbers
            x = hard_numbers(shape, k).astype(type.replace("f", "float"))
    else:
        x = whole_numbers(shape, k, type.replace("s", "int"))
    op = op if type == "f32" else OP
    text = text_of(shape, k, type, op, largest=largest)
    module = hloenv.HloModule.from_text(text)
    alternatives = hloenv.HloEnv(module).get_alternatives(NAME)
    assert sorted(rules(alternatives)) == ["argmaxes", "maxima"]
    decided = alternatives.apply(decisions_for_rule(alternatives, rule))
    counts = decided.opcode_counts()
    assert "topk" not in counts
    assert "custom-call" not in counts
    wanted, found, evaluated = (
        run(x)
        for run in (
            hloenv.compile(module, isolate=False),
            hloenv.compile(decided, isolate=False),
            lambda x: hloenv.interpret(decided, x),
        )
    )
    for a, b, c in zip(wanted, found, evaluated, strict=True):
        assert a.tobytes() == b.tobytes() == np.asarray(c).tobytes()


@pytest.mark.parametrize(
    "text",
    [
        text_of((4, 40), 17),
        text_of((4, 40), 2, "u32"),
        text_of((4, 40), 2, "f8e5m2"),
        text_of((0, 40), 2),
        text_of((4, 40), 2, layout="0,1"),
        text_of((4, 40), 2, op='custom-call(x), custom_call_target="TopKOther"'),
    ],
)
def test_what_is_not_offered(text):
    assert rules(capture(text, NAME)) == []


def test_values_or_indices_alone():
    text = text_of((4, 40), 3)
    root = text[text.index("  ROOT") :]
    for name, kind in (("a", "f32"), ("b", "s32")):
        own = text.replace(root, f"  ROOT r = {kind}[4,3]{{1,0}} copy({name})\n}}\n")
        alternatives = hloenv.HloEnv(hloenv.HloModule.from_text(own)).get_alternatives(
            NAME
        )
        assert sorted(rules(alternatives)) == ["argmaxes", "maxima"]
        x = hard_numbers((4, 40), 3)
        (found,) = hloenv.interpret(
            alternatives.apply(decisions_for_rule(alternatives, "maxima")), x
        )
        order = np.argsort(-key_of(x), axis=1, kind="stable")[:, :3]
        wanted = order if name == "b" else np.take_along_axis(x, order, 1)
        assert np.asarray(found).tobytes() == wanted.astype(found.dtype).tobytes()


def key_of(x):
    """Integers in the order of XLA's partial sort."""
    bits = x.view(np.int32).astype(np.int64)
    return np.where(bits < 0, -1 - (bits & 0x7FFFFFFF), bits)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("s32[4,2]{1,0}", "s64[4,2]{1,0}"),
        ("s32[4,2]{1,0}", "s32[4,3]{1,0}"),
        ("f32[4,2]{1,0}", "f64[4,2]{1,0}"),
        ("f32[4,2]{1,0}", "f32[3,2]{1,0}"),
        (
            'custom_call_target="TopK"',
            'custom_call_target="TopK", custom_call_has_side_effect=true',
        ),
    ],
)
def test_custom_calls_of_other_shapes_are_left_alone(old, new):
    text = text_of((4, 40), 2, op=CALL)
    assert rules(capture(text, NAME)) != []
    assert old in text
    assert rules(capture(text.replace(old, new), NAME)) == []
