# SPDX-License-Identifier: Apache-2.0
"""reduce-forms/side_by_side: reductions before few columns, several rows at a time."""

from __future__ import annotations

import pytest

import hloenv
from support.forms import form_of
from support.reductions import PASS, assert_same, form_by, reduction, rules_of

RULE = "side_by_side"


def of_parameter(
    sizes: str, result: str, dims: str, kind: str = "f32", operation: str = "add"
) -> hloenv.HloModule:
    values = f"v = {kind}[{sizes}] parameter(0)"
    return reduction(values, result, dims, operation=operation, kind=kind)


@pytest.mark.compile
@pytest.mark.parametrize("operation", ["add", "maximum"])
@pytest.mark.parametrize("kind", ["f32", "f64", "bf16"])
@pytest.mark.parametrize(
    ("sizes", "result", "dims"),
    [
        ("64,3", "3", "0"),
        ("4,6,5,3", "3", "0,1,2"),
        ("4,6,5,3", "4,3", "1,2"),
        ("2,3,8,2,2", "2,3,2,2", "2"),
        ("1,12,1,3", "1,1,3", "1"),
        ("2,1,12,1,3,1", "2,1,1,3,1", "2"),
        ("9,16", "16", "0"),
    ],
)
def test_a_reduction_is_the_same(sizes, result, dims, kind, operation):
    assert_same(RULE, of_parameter(sizes, result, dims, kind, operation))


_X = "x = f32[4,6,5,3] parameter(0)"
_SQUARES = "d = f32[4,6,5,3] subtract(x, m)\n  v = f32[4,6,5,3] multiply(d, d)"


@pytest.mark.compile
@pytest.mark.parametrize(
    ("result", "dims", "means"),
    [
        (
            *("3", "0,1,2"),
            "a = f32[3] parameter(1)\n  m = f32[4,6,5,3] broadcast(a), dimensions={3}",
        ),
        (
            *("4,3", "1,2"),
            "a = f32[4,3] parameter(1)\n"
            "  m = f32[4,6,5,3] broadcast(a), dimensions={0,3}",
        ),
        (
            *("4,3", "1,2"),
            "a = f32[4] parameter(1)\n  m = f32[4,6,5,3] broadcast(a), dimensions={0}",
        ),
        (
            *("4,3", "1,2"),
            "a = f32[3] parameter(1)\n  m = f32[4,6,5,3] broadcast(a), dimensions={3}",
        ),
        (
            *("3", "0,1,2"),
            "a = f32[] parameter(1)\n  m = f32[4,6,5,3] broadcast(a), dimensions={}",
        ),
        (
            *("3", "0,1,2"),
            "a = f32[1] parameter(1)\n  b = f32[] reshape(a)\n"
            "  m = f32[4,6,5,3] broadcast(b), dimensions={}",
        ),
    ],
)
def test_a_variance_reads_numbers_of_columns_and_groups(result, dims, means):
    module = reduction(f"{_X}\n  {means}\n  {_SQUARES}", result, dims)
    assert_same(RULE, module)
    # No array of the size of the module's is computed in another shape.
    assert "reshape(%v" not in form_by(RULE, module).to_text()


@pytest.mark.compile
def test_numbers_that_are_broadcast_from_a_dimension_of_size_one():
    module = reduction(
        "x = f32[1,6,5,3] parameter(0)\n  a = f32[1,3] parameter(1)\n"
        "  m = f32[1,6,5,3] broadcast(a), dimensions={0,3}\n"
        "  d = f32[1,6,5,3] subtract(x, m)\n  v = f32[1,6,5,3] multiply(d, d)",
        *("1,3", "1,2"),
    )
    assert_same(RULE, module)


@pytest.mark.compile
def test_a_fusion_is_read_as_it_is():
    fused = "fused {\n  p = f32[4,6,5,3] parameter(0)\n  ROOT n = negate(p)\n}\n"
    module = reduction(
        f"{_X}\n  f = f32[4,6,5,3] fusion(x), kind=kLoop, calls=fused\n"
        "  v = f32[4,6,5,3] add(f, x)",
        *("3", "0,1,2"),
        before=fused,
    )
    assert_same(RULE, module)


@pytest.mark.parametrize(
    ("values", "result", "dims", "operation"),
    [
        ("v = f32[64,17] parameter(0)", "17", "0", "add"),  # many columns
        ("v = f32[67,3] parameter(0)", "3", "0", "add"),  # a prime number of rows
        ("v = f32[2,3] parameter(0)", "3", "0", "add"),
        ("v = f32[64,3] parameter(0)", "64", "1", "add"),
        ("v = f32[8,3,8,2] parameter(0)", "3,2", "0,2", "add"),
        ("v = f32[0,3] parameter(0)", "3", "0", "add"),
        ("v = f32[64,0] parameter(0)", "0", "0", "add"),
        # What is read elsewhere, or computed anew for each column.
        (
            "w = f32[64] parameter(0)\n  v = f32[64,3] broadcast(w), dimensions={0}",
            *("3", "0", "add"),
        ),
        (
            "x = f32[3,64] parameter(0)\n  t = f32[64,3] transpose(x), "
            "dimensions={1,0}\n  v = f32[64,3] negate(t)",
            *("3", "0", "add"),
        ),
        # jaxlib's library is slow at these, side by side.
        (
            "x = f32[64,3] parameter(0)\n  a = f32[3] parameter(1)\n"
            "  m = f32[64,3] broadcast(a), dimensions={1}\n"
            "  v = f32[64,3] multiply(x, m)",
            *("3", "0", "add"),
        ),
        (
            "x = f32[64,3] parameter(0)\n  v = f32[64,3] tanh(x)",
            *("3", "0", "add"),
        ),
        # Other elements of `v` may be compared with the largest.
        (
            "x = f32[64,3] parameter(0)\n  a = f32[3] parameter(1)\n"
            "  m = f32[64,3] broadcast(a), dimensions={1}\n"
            "  v = f32[64,3] subtract(x, m)",
            *("3", "0", "maximum"),
        ),
    ],
)
def test_others_stay(values, result, dims, operation):
    assert RULE not in rules_of(reduction(values, result, dims, operation=operation))


@pytest.mark.parametrize(
    ("sizes", "kind", "is_taken"),
    [
        ("20000,3", "f32", True),
        ("4000,3", "f32", False),  # few elements
        ("20000,12", "f32", False),
        ("20000,6", "f64", True),
        ("20000,8", "f64", False),
        ("20000,3", "s32", False),
    ],
)
def test_known_forms_takes_few_columns(sizes, kind, is_taken):
    columns = sizes.rpartition(",")[2]
    text = of_parameter(sizes, columns, "0", kind).to_text()
    assert form_of(text, PASS) == (RULE if is_taken else None)


def test_known_forms_leaves_sums_of_many_groups():
    # Sums of 20 rows side by side: 6.4 MB.
    text = of_parameter("40000,40,2", "40000,2", "1").to_text()
    assert form_of(text, PASS) is None
