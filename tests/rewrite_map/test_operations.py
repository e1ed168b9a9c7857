# SPDX-License-Identifier: Apache-2.0
"""Operations as text, the names of rules, and classes of shapes."""

from __future__ import annotations

import pytest

import hloenv
from hloenv.hlo.text import parse_text
from hloenv.rewrite_map.classes import shape_class, size_class
from hloenv.rewrite_map.operations import Operation, array_type, operation_of, rule_of
from support.convolutions import JAX_FORMS, jax_form, one_convolution

_LAYER = ("2,2,2,512", "3,3,512,512", "2,2,2,512")
_ATTRIBUTES = "window={size=3x3 pad=1_1x1_1}, dim_labels=b01f_01io->b01f"


def root_of(text: str) -> Operation:
    """The root of the entry of some HLO text."""
    parsed = parse_text(hloenv.HloModule.from_text(text).to_text())
    entry = parsed.computations[parsed.entry]
    return operation_of(entry.instructions[entry.root], entry, parsed.computations)


def dot(left: str, right: str, result: str, attributes: str) -> Operation:
    return root_of(
        f"HloModule m\nENTRY e {{\n x = f32[{left}] parameter(0)\n"
        f" y = f32[{right}] parameter(1)\n"
        f" ROOT d = f32[{result}] dot(x, y), {attributes}\n}}\n"
    )


_PLAIN = "lhs_contracting_dims={1}, rhs_contracting_dims={0}"
_BATCHED = (
    "lhs_batch_dims={0}, rhs_batch_dims={0}, "
    "lhs_contracting_dims={2}, rhs_contracting_dims={1}"
)


def test_an_operation_has_types_and_attributes_but_no_names():
    found = root_of(one_convolution(*_LAYER, _ATTRIBUTES))
    assert found.operands == ("f32[2,2,2,512]", "f32[3,3,512,512]")
    assert found.attribute("window") == "{size=3x3 pad=1_1x1_1}"
    assert str(found) == (
        "f32[2,2,2,512] convolution(f32[2,2,2,512], f32[3,3,512,512]), "
        "window={size=3x3 pad=1_1x1_1}, dim_labels=b01f_01io->b01f"
    )


def test_types_of_arrays_and_tuples():
    assert array_type("bf16[2,3]{1,0}").dims == (2, 3)
    assert array_type("bf16[2,3]{1,0}").dtype == "bf16"
    assert array_type("(s32[], f32[4])").dims == ()
    assert array_type("f32[2,3]").num_elements == 6


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("depthwise", "convolution depthwise 3x3, f32, to 4 k"),
        ("grouped", "convolution grouped 3x3, f32, to 64 k"),
        ("transposed", "convolution transposed 4x4, f32, to 64 k"),
        ("1x1", "convolution 1x1, f32, to 4 k"),
        (
            "small image",
            "convolution with a kernel larger than the image, f32, to 4 k",
        ),
    ],
)
def test_classes_of_convolutions(name, expected):
    assert shape_class(root_of(jax_form(name))) == expected


def test_a_dilated_input_is_no_small_image():
    text = one_convolution(
        "64,8,8,4",
        "16,16,4,64",
        "64,4,4,64",
        "window={size=16x16 pad=2_2x2_2 lhs_dilate=2x2}, dim_labels=b01f_01io->b01f",
    )
    expected = "convolution transposed with a large window, f32, above 1 M"
    assert shape_class(root_of(text)) == expected


def test_every_convolution_that_jax_makes_has_a_class():
    for name in JAX_FORMS:
        assert shape_class(root_of(jax_form(name))).startswith("convolution ")


@pytest.mark.parametrize(
    ("operation", "expected"),
    [
        (dot("8,16", "16,32", "8,32", _PLAIN), "dot, f32, to 4 k"),
        (dot("1,16", "16,32", "1,32", _PLAIN), "dot matrix-vector, f32, to 4 k"),
        (
            dot("2,16", "16,32", "2,32", _PLAIN),
            "dot with 4 rows or columns at most, f32, to 4 k",
        ),
        (dot("8,1", "1,32", "8,32", _PLAIN), "dot outer product, f32, to 256"),
        (
            dot("3,8,16", "3,16,32", "3,8,32", _BATCHED),
            "dot batched, f32, to 64 k",
        ),
    ],
)
def test_classes_of_dots(operation, expected):
    assert shape_class(operation) == expected


@pytest.mark.parametrize(
    ("dims", "expected"),
    [("{0,1}", "to a scalar"), ("{1}", "of rows"), ("{0}", "of columns")],
)
def test_classes_of_reductions(dims, expected):
    found = Operation(
        "reduce", "f32[8]", ("f32[8,8]", "f32[]"), (f"dimensions={dims}",)
    )
    assert shape_class(found) == f"reduce {expected}, f32, to 256"


def test_sizes_have_limits():
    sizes = (256, 257, 2**20, 2**20 + 1)
    assert [size_class(each) for each in sizes] == [
        *("to 256", "to 4 k", "to 1 M", "above 1 M")
    ]


def test_rules_say_what_becomes_what():
    before = Operation("add", "f32[4]", ("f32[4]", "f32[4]"))
    multiply = Operation("multiply", "f32[4]", ("f32[4]", "f32[4]"))
    fusion = Operation("fusion", "f32[4]", called=("add", "broadcast", "tanh"))
    assert rule_of(before, (), "parameter") == "add -> an existing parameter"
    assert rule_of(before, (multiply, multiply), "multiply") == "add -> 2 multiply"
    assert rule_of(before, (fusion,), "fusion") == (
        "add -> fusion of data movement, elementwise, expensive elementwise"
    )


def test_a_rule_of_equal_opcodes_has_the_attributes_that_change():
    before = root_of(one_convolution(*_LAYER, _ATTRIBUTES))
    shapes = before.operands
    after = Operation(
        "convolution",
        before.shape,
        shapes[::-1],
        ("window={size=2x2 pad=1_1x1_1 rhs_reversal=1x1}", before.attributes[1]),
    )
    swapped = Operation("convolution", before.shape, shapes[::-1], before.attributes)
    assert rule_of(before, (after,), "convolution") == (
        "convolution -> convolution (window: rhs_reversal)"
    )
    assert rule_of(before, (swapped,), "convolution") == (
        "convolution -> convolution (operands swapped)"
    )
