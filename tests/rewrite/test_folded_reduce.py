# SPDX-License-Identifier: Apache-2.0
"""reduce-forms/folded and folded_sum: extremes and sums, by parts of the rows."""

from __future__ import annotations

import numpy as np
import pytest

import hloenv
from support.forms import form_of
from support.reductions import form_by

NAME = "reduce-forms"


def reduction(
    kind: str, sizes: str, dims: str, operation: str = "maximum", start: str = "0"
) -> hloenv.HloModule:
    reduced = [int(each) for each in dims.split(",")]
    kept = [s for d, s in enumerate(sizes.split(",")) if d not in reduced]
    return hloenv.HloModule.from_text(f"""HloModule m
region {{
  a = {kind}[] parameter(0)
  b = {kind}[] parameter(1)
  ROOT c = {kind}[] {operation}(a, b)
}}
ENTRY main {{
  x = {kind}[{sizes}] parameter(0)
  start = {kind}[] constant({start})
  ROOT r = {kind}[{",".join(kept)}] reduce(x, start), dimensions={{{dims}}},
    to_apply=region
}}""")


def offered(module: hloenv.HloModule) -> list[str]:
    alternatives = hloenv.HloEnv(module).get_alternatives(NAME)
    return [choice.rule for each in alternatives for choice in each.choices[1:]]


@pytest.mark.compile
@pytest.mark.parametrize("operation", ["maximum", "minimum"])
@pytest.mark.parametrize("kind", ["s16", "u32", "s64"])
@pytest.mark.parametrize(
    ("sizes", "dims"),
    [
        ("3,33", "1"),
        ("3,1000", "1"),
        ("257", "0"),
        ("2,9,13", "1,2"),
        ("5,11,7", "0,1,2"),
        ("2,3,64", "2"),
    ],
)
def test_an_extreme_is_the_same(kind, sizes, dims, operation):
    module = reduction(kind, sizes, dims, operation, "7")
    decided = form_by("folded", module)
    shape = tuple(int(each) for each in sizes.split(","))
    rng = np.random.default_rng(0)
    types = {"s16": np.int16, "u32": np.uint32, "s64": np.int64}
    limits = np.iinfo(types[kind])
    x = rng.integers(limits.min, limits.max, shape, types[kind], endpoint=True)
    for where in np.ndindex(*shape[:-1]):
        # In each place of a row, as all of them are read.
        place = rng.integers(shape[-1])
        x[(*where, place)] = limits.max if operation == "maximum" else limits.min
    (wanted,) = hloenv.interpret(module, x)
    np.testing.assert_array_equal(hloenv.interpret(decided, x)[0], wanted)
    np.testing.assert_array_equal(hloenv.compile(decided, isolate=False)(x)[0], wanted)


@pytest.mark.parametrize("place", range(0, 100, 9))
def test_each_element_counts(place):
    module = reduction("s32", "1,100", "1")
    x = np.zeros((1, 100), np.int32)
    x[0, place] = 1
    decided = form_by("folded", module)
    assert hloenv.interpret(decided, x)[0].tolist() == [1]


@pytest.mark.parametrize(
    "arguments",
    [
        ("s32", "3,32", "1"),  # short
        ("s32", "40,3", "0"),  # columns
        ("s32", "2,40,3", "0,2"),
        ("u8", "3,1000", "1"),
        ("f32", "3,1000", "1"),
        ("s32", "3,1000", "1", "add"),
        ("s32", "3,1000", "1", "and"),
        ("s32", "0,1000", "1"),
    ],
)
def test_others_stay(arguments):
    assert "folded" not in offered(reduction(*arguments))


@pytest.mark.parametrize(("rows", "expected"), [(100, "folded"), (1, None)])
def test_known_forms_takes_those_of_many_elements(rows, expected):
    module = reduction("s32", f"{rows},1000", "1")
    assert form_of(module.to_text(), NAME) == expected


@pytest.mark.compile
@pytest.mark.parametrize(("operation", "start"), [("or", "false"), ("and", "true")])
@pytest.mark.parametrize(
    ("sizes", "dims"), [("3,1000", "1"), ("257", "0"), ("2,9,13", "1,2")]
)
def test_whether_any_or_all_are_true(sizes, dims, operation, start):
    module = reduction("pred", sizes, dims, operation, start)
    decided = form_by("folded", module)
    theirs, ours = (hloenv.compile(each, isolate=False) for each in (module, decided))
    shape = tuple(int(each) for each in sizes.split(","))
    for place in (None, 0, -1, 100):
        x = np.full(shape, operation == "and")
        if place is not None:
            x.flat[place] ^= True
        np.testing.assert_array_equal(ours(x)[0], theirs(x)[0])


@pytest.mark.compile
@pytest.mark.parametrize("kind", ["s32", "u32", "s64"])
@pytest.mark.parametrize(
    ("sizes", "dims"),
    [
        ("3,33", "1"),
        ("2,1000", "1"),
        ("263", "0"),
        ("2,9,13", "1,2"),
        ("5,11,7", "0,1,2"),
        ("2,1,64", "1,2"),
    ],
)
def test_a_sum_is_the_same_where_it_overflows(kind, sizes, dims):
    decided = form_by("folded_sum", reduction(kind, sizes, dims, "add"))
    shape = tuple(int(each) for each in sizes.split(","))
    dtype = np.dtype(kind.replace("s", "int").replace("u", "uint"))
    limits = np.iinfo(dtype)
    x = np.random.default_rng(0).integers(
        limits.min, limits.max, shape, dtype, endpoint=True
    )
    axes = tuple(int(each) for each in dims.split(","))
    wanted = x.sum(axes, dtype=dtype)
    np.testing.assert_array_equal(hloenv.interpret(decided, x)[0], wanted)
    np.testing.assert_array_equal(hloenv.compile(decided, isolate=False)(x)[0], wanted)


@pytest.mark.parametrize("place", [*range(0, 100, 9), 96, 97, 98, 99])
def test_each_element_is_added_once(place):
    decided = form_by("folded_sum", reduction("s32", "1,100", "1", "add"))
    x = np.zeros((1, 100), np.int32)
    x[0, place] = 1
    assert hloenv.interpret(decided, x)[0].tolist() == [1]


@pytest.mark.parametrize(
    "arguments",
    [
        ("s32", "3,32", "1", "add"),  # short
        ("s32", "40,3", "0", "add"),  # columns
        ("f32", "3,1000", "1", "add"),
        ("s32", "3,1000", "1", "multiply"),
        ("s16", "3,1000", "1", "add"),
        ("s32", "3,1000", "1", "add", "7"),  # XLA may add it for each part
        ("s32", "0,1000", "1", "add"),
        ("s32", "3,0", "1", "add"),
    ],
)
def test_other_sums_stay(arguments):
    assert "folded_sum" not in offered(reduction(*arguments))


def sum_of(what: str, rows: int, length: int) -> hloenv.HloModule:
    return hloenv.HloModule.from_text(f"""HloModule m
region {{
  a = s32[] parameter(0)
  b = s32[] parameter(1)
  ROOT c = s32[] add(a, b)
}}
ENTRY main {{
  x = s32[{rows},{length}] parameter(0)
  m = pred[{rows},{length}] parameter(1)
  t = s32[9] parameter(2)
  n = s32[] parameter(3)
  {what}
  zero = s32[] constant(0)
  ROOT r = s32[{rows}] reduce(v, zero), dimensions={{1}}, to_apply=region
}}""")


_GATHERED = (
    "v = s32[{0},{1}] gather(t, x), offset_dims={{}}, collapsed_slice_dims={{0}}, "
    "start_index_map={{0}}, index_vector_dim=2, slice_sizes={{1}}"
)


@pytest.mark.parametrize(
    ("what", "rows", "length", "is_taken"),
    [
        ("v = s32[{0},{1}] negate(x)", 100, 256, True),
        ("v = s32[{0},{1}] negate(x)", 200, 128, False),  # short rows
        ("v = s32[{0},{1}] negate(x)", 10, 256, False),  # few elements
        ("v = s32[{0},{1}] convert(m)", 400, 64, True),
        ("v = s32[{0},{1}] convert(m)", 1000, 40, False),
        (_GATHERED, 100, 256, False),
        (
            "k = s32[] constant(0)\n  g = s32[{0},100] slice(x), "
            "slice={{[0:{0}], [0:100]}}\n"
            "  v = s32[{0},{1}] pad(g, k), padding=0_0x78_78",
            *(100, 256, False),
        ),
        (
            "d = s32[{0},{1}] dynamic-slice(x, n, n), dynamic_slice_sizes={{{0},{1}}}"
            "\n  v = s32[{0},{1}] negate(d)",
            *(100, 256, False),
        ),
    ],
)
def test_known_forms_takes_long_sums(what, rows, length, is_taken):
    text = sum_of(what.format(rows, length), rows, length).to_text()
    assert form_of(text, NAME) == ("folded_sum" if is_taken else None)
