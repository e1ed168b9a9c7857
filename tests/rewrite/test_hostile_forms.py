# SPDX-License-Identifier: Apache-2.0
"""Modules on which candidate passes once proposed other values, or ended the process."""

from __future__ import annotations

import re

import pytest

import hloenv
from support.arg_reduce import arg_text
from support.captures import capture, rules


def reduction(reducer: str, kind: str = "f32", operand: str = "") -> str:
    """A reversed cumulative reduction by a reducer of a and b."""
    return f"""HloModule reversed

f {{
  a = {kind}[] parameter(0)
  b = {kind}[] parameter(1)
  {reducer}
}}

ENTRY main {{
  x = {kind}[32] parameter(0)
  {operand or f"y = {kind}[32] negate(x)"}
  i = {kind}[] constant({"(0,0)" if kind == "c64" else "0"})
  ROOT r = {kind}[32] reduce-window(y, i), window={{size=32 pad=0_31}}, to_apply=f
}}
"""


LOG_ADD = """m = f32[] maximum(a, b)
  d = f32[] subtract(a, b)
  n = pred[] compare(d, d), direction=NE
  s = f32[] add(a, b)
  g = f32[] abs(d)
  h = f32[] negate(g)
  e = f32[] exponential(h)
  l = f32[] log-plus-one(e)
  t = f32[] add(m, l)
  ROOT c = f32[] select(n, s, t)"""


@pytest.mark.parametrize("opcode", ["maximum", "minimum"])
@pytest.mark.parametrize("name", ["reduce-forms", "reassociate"])
def test_complex_numbers_have_no_extremes(name, opcode):
    scan = reduction(f"ROOT c = c64[] {opcode}(a, b)", "c64")
    nested = f"""HloModule nested

f {{
  a = c64[] parameter(0)
  b = c64[] parameter(1)
  ROOT c = c64[] {opcode}(a, b)
}}

ENTRY main {{
  x = c64[5,6,7] parameter(0)
  i = c64[] constant((0, 0))
  y = c64[5,6] reduce(x, i), dimensions={{2}}, to_apply=f
  ROOT r = c64[5] reduce(y, i), dimensions={{1}}, to_apply=f
}}
"""
    for text in (scan, nested):
        assert not {"scan", "window", "merge_reductions"} & set(
            rules(capture(text, name))
        )


def test_a_stable_reducer_is_cumulative_in_both_directions():
    text = reduction(LOG_ADD).replace("constant(0)", "constant(-inf)")
    assert "scan" in rules(capture(text, "reduce-forms"))


@pytest.mark.parametrize(
    "reducer",
    [
        # Saturated.
        "s = f32[] add(a, b)\n  k = f32[] constant(1e6)\n  ROOT c = f32[] minimum(s, k)",
        # Without large numbers an addition.
        "k = f32[] constant(1e5)\n  g = pred[] compare(a, k), direction=GT\n"
        "  s = f32[] add(a, b)\n  ROOT c = f32[] select(g, a, s)",
        # 0 for not-a-number.
        "s = f32[] add(a, b)\n  z = f32[] constant(0)\n"
        "  n = pred[] compare(s, s), direction=NE\n  ROOT c = f32[] select(n, z, s)",
        # An addition, which overflows in some orders.
        "s = f32[] add(a, b)\n  n = f32[] negate(s)\n  ROOT c = f32[] negate(n)",
        # A threshold that is computed.
        "o = f32[] constant(1)\n  e = f32[] exponential(o)\n  f = f32[] exponential(e)\n"
        "  k = f32[] exponential(f)\n  g = pred[] compare(a, k), direction=GT\n"
        "  s = f32[] add(a, b)\n  ROOT c = f32[] select(g, a, s)",
    ],
)
def test_reducers_that_depend_on_the_order(reducer):
    big = (
        "big = f32[32] broadcast(h), dimensions={}\n  y = f32[32] add(x, big)"
        "\n  h = f32[] constant(3e38)"
    )
    lines = big.split("\n")
    operand = "\n".join([lines[2], lines[0], lines[1]])
    for text in (reduction(reducer), reduction(reducer, operand=operand)):
        assert "scan" not in rules(capture(text, "reduce-forms"))


NAN_PAYLOADS = """HloModule payloads

less {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  zero = f32[] constant(0)
  undefined = f32[] constant(nan)
  a_zero = pred[] compare(a, zero), direction=EQ
  a_nan = pred[] compare(a, a), direction=NE
  a1 = f32[] select(a_zero, zero, a)
  a2 = f32[] select(a_nan, undefined, a1)
  b_zero = pred[] compare(b, zero), direction=EQ
  b_nan = pred[] compare(b, b), direction=NE
  b1 = f32[] select(b_zero, zero, b)
  b2 = f32[] select(b_nan, undefined, b1)
  c = pred[] compare(a2, b2), direction=LT, type=TOTALORDER
  a_after = pred[] compare(a, undefined), direction=GT, type=TOTALORDER
  b_after = pred[] compare(b, undefined), direction=GT, type=TOTALORDER
  not_a = pred[] not(a_after)
  both = pred[] and(a_nan, b_nan)
  other = pred[] and(not_a, b_after)
  apart = pred[] and(other, both)
  ROOT r = pred[] or(c, ROOT_OF)
}

ENTRY main {
  x = f32[64] parameter(0)
  ROOT s = f32[64] sort(x), dimensions={0}, is_stable=true, to_apply=less
}
"""


@pytest.mark.parametrize(
    ("root", "nan", "expected"),
    [
        ("c", "nan", ["packed"]),
        ("apart", "nan", []),
        ("c", "nan(0x400005)", []),
    ],
)
def test_comparators_that_tell_nans_apart(root, nan, expected):
    text = NAN_PAYLOADS.replace("ROOT_OF", root).replace("(nan)", f"({nan})")
    assert rules(capture(text, "sort-forms")) == expected


def test_a_sort_beside_an_array_of_unknown_size():
    text = """HloModule dynamic

less {
  a = s32[] parameter(0)
  b = s32[] parameter(1)
  c = f32[] parameter(2)
  d = f32[] parameter(3)
  ROOT r = pred[] compare(a, b), direction=LT
}

ENTRY main {
  x = s32[64] parameter(0)
  z = f32[64] parameter(1)
  n = s32[] parameter(2)
  y = f32[<=64] set-dimension-size(z, n), dimensions={0}
  s = (s32[64], f32[<=64]) sort(x, y), dimensions={0}, is_stable=true, to_apply=less
  ROOT g = s32[64] get-tuple-element(s), index=0
}
"""
    static = text.replace("<=", "").replace(
        "set-dimension-size(z, n), dimensions={0}", "negate(z)"
    )
    assert rules(capture(static, "sort-forms")) == ["packed"]
    assert rules(capture(text, "sort-forms")) == []


def test_an_index_beside_its_element():
    text = arg_text("f32")
    assert rules(capture(text, "reduce-forms")) == ["packed_index"]
    lines = text.splitlines()
    (index,) = (i for i, line in enumerate(lines) if "index=1" in line)
    at = lines[index].strip().removeprefix("ROOT ")
    element = at.replace("index=1", "index=0").split("=", 1)
    name, shape = at.split(" = ")[0], at.split(" = ")[1].split(" ")[0]
    value = element[1].strip().replace(shape, shape.replace("s32", "f32"))
    both = f"({shape.replace('s32', 'f32')}, {shape})"
    lines[index : index + 1] = [
        f"  {at}",
        f"  value = {value}",
        f"  ROOT both = {both} tuple(value, {name})",
    ]
    assert rules(capture("\n".join(lines), "reduce-forms")) == []


@pytest.mark.parametrize(
    "singular",
    [
        "log(z)",
        "rsqrt(z)",
        "divide(o, z)",
        "log-plus-one(m)",
        "exponential(h)",
        "power(z, m)",
    ],
)
def test_infinities_that_the_module_computes(singular):
    text = f"""HloModule singular

ENTRY main {{
  a = f32[4] parameter(0)
  b = f32[4] parameter(1)
  z = f32[4] constant({{0,1,1,1}})
  o = f32[4] constant({{1,1,1,1}})
  m = f32[4] constant({{-1,-1,-1,-1}})
  h = f32[4] constant({{1000,1000,1000,1000}})
  s = f32[4] {singular}
  p = f32[4] multiply(a, s)
  q = f32[4] multiply(b, s)
  ROOT c = f32[4] subtract(p, q)
}}
"""
    assert "factor" not in rules(capture(text, "reassociate"))
    moderate = text.replace(f" {singular}", " sqrt(z)")
    assert "factor" in rules(capture(moderate, "reassociate"))


def test_a_division_by_constant_zeros():
    text = """HloModule divided

ENTRY main {
  a = f32[4] parameter(0)
  b = f32[4] parameter(1)
  n = f32[] constant(N)
  z = f32[4] broadcast(n), dimensions={}
  s = f32[4] divide(b, z)
  p = f32[4] multiply(a, s)
  q = f32[4] multiply(b, s)
  ROOT c = f32[4] subtract(p, q)
}
"""
    for number, is_offered in (("0", False), ("8", True)):
        found = rules(capture(text.replace("(N)", f"({number})"), "reassociate"))
        assert ("factor" in found) == is_offered
        large = text.replace("(N)", f"({number})").replace("[4]", "[1000,1000]")
        found = rules(capture(large, "reassociate"))
        assert ("factor" in found) == is_offered


def test_what_a_module_computes_from_huge_iotas_is_not_evaluated():
    text = """HloModule huge

ENTRY main {
  a = f32[4] parameter(0)
  b = f32[4] parameter(1)
  i = f32[1000000000000] iota(), iota_dimension=0
  n = f32[1000000000000] cosine(i)
  z = f32[4] slice(n), slice={[0:4]}
  s = f32[4] log(z)
  p = f32[4] multiply(a, s)
  q = f32[4] multiply(b, s)
  ROOT c = f32[4] subtract(p, q)
}
"""
    # It may be anything, such as the infinity of log(0).
    assert "factor" not in rules(capture(text, "reassociate"))


def test_products_of_other_precision_keep_their_order():
    text = """HloModule products

ENTRY main {
  x = f32[8,8] parameter(0)
  y = f32[8,8] parameter(1)
  z = f32[8,8] parameter(2)
  d = f32[8,8] dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}FIRST
  ROOT r = f32[8,8] dot(d, z), lhs_contracting_dims={1}, rhs_contracting_dims={0}LAST
}
"""
    highest, short = (
        ", operand_precision={highest,highest}",
        ", algorithm=dot_bf16_bf16_f32",
    )
    for first, last, is_offered in (
        ("", "", True),
        (highest, highest, True),
        (highest, "", False),
        (highest, short, False),
        (short, short, False),
    ):
        found = rules(
            capture(text.replace("FIRST", first).replace("LAST", last), "reassociate")
        )
        assert ("products" in found) == is_offered


FUSED = """HloModule fused

ENTRY main {
  x = f32[64] parameter(0)
  y = f32[64] parameter(1)
  n = f32[64] negate(x)
  c = pred[64] compare(n, y), direction=LT, type=TOTALORDER
  ROOT r = f32[64] convert(c)
}
"""


@pytest.mark.filterwarnings("ignore::hloenv.PositionWarning")
def test_total_orders_are_not_fused():
    assert rules(capture(FUSED, "general-fusion")) == []
    usual = FUSED.replace(", type=TOTALORDER", "")
    assert rules(capture(usual, "general-fusion"))


@pytest.mark.filterwarnings("ignore::hloenv.PositionWarning")
@pytest.mark.parametrize("kind", ["pred", "f32"])
def test_dots_of_truth_values_are_not_fused_with_additions(kind):
    text = f"""HloModule added

ENTRY main {{
  x = {kind}[64] parameter(0)
  y = {kind}[64,4] parameter(1)
  z = {kind}[4] parameter(2)
  d = {kind}[4] dot(x, y), lhs_contracting_dims={{0}}, rhs_contracting_dims={{0}}
  ROOT r = {kind}[4] add(d, z)
}}
"""
    env = hloenv.HloEnv(hloenv.HloModule.from_text(text))
    found = [
        choice
        for each in env.get_alternatives("general-fusion")
        for choice in each.choices[1:]
    ]
    assert bool(found) == (kind == "f32")


@pytest.mark.parametrize(
    ("kind", "count", "expected"),
    [("s64", 3, []), ("s64", 4, ["packed"]), ("s32", 2, ["packed", "network"])],
)
def test_sorts_of_few_wide_numbers(kind, count, expected):
    """Two sorts of integers were slower there."""
    text = f"""HloModule rows

less {{
  a = {kind}[] parameter(0)
  b = {kind}[] parameter(1)
  c = s32[] parameter(2)
  d = s32[] parameter(3)
  ROOT r = pred[] compare(a, b), direction=LT
}}

ENTRY main {{
  x = {kind}[100,{count}] parameter(0)
  y = s32[100,{count}] iota(), iota_dimension=1
  s = ({kind}[100,{count}], s32[100,{count}]) sort(x, y), dimensions={{1}},
    is_stable=true, to_apply=less
  ROOT g = s32[100,{count}] get-tuple-element(s), index=1
}}
"""
    assert rules(capture(text, "sort-forms")) == expected


def differences(lines: str, shape: str = "[4]", before: str = "") -> str:
    """A difference times a number of the module."""
    return f"""HloModule differences
{before}
ENTRY main {{
  a = f32{shape} parameter(0)
  b = f32{shape} parameter(1)
  {lines}
  d = f32{shape} subtract(a, b)
  ROOT r = f32{shape} multiply(s, d)
}}
"""


LOG_OF = """
log_of {
  p = f32[4] parameter(0)
  ROOT l = f32[4] log(p)
}
"""
ONES = "  o = f32[4] constant({1,1,1,1})\n"
LOGS = "".join(f"  e{i} = f32[4] log(o)\n" for i in range(80))


@pytest.mark.parametrize(
    ("lines", "shape", "before"),
    [
        pytest.param(
            "n = f32[] constant(N)\n  z = f32[1000,1000] broadcast(n), dimensions={}\n"
            "  s = f32[1000,1000] log(z)",
            *("[1000,1000]", ""),
            id="a large broadcast",
        ),
        pytest.param(
            "z = f32[4] constant({N,1,1,1})\n  s = f32[4] call(z), to_apply=log_of",
            *("[4]", LOG_OF),
            id="a call",
        ),
        pytest.param(
            "z = f32[4] constant({N,1,1,1})\n  t = f32[4] call(z), to_apply=log_of\n"
            "  o = f32[4] constant({1,1,1,1})\n  u = f32[4] call(o), to_apply=log_of\n"
            "  s = f32[4] add(t, u)",
            *("[4]", LOG_OF),
            id="several calls",
        ),
        pytest.param(
            f"{ONES}{LOGS}  z = f32[4] constant({{N,1,1,1}})\n  s = f32[4] log(z)",
            *("[4]", ""),
            id="after many others",
        ),
    ],
)
def test_infinities_that_are_computed_elsewhere(lines, shape, before):
    text = differences(lines, shape, before)
    assert "distribute" not in rules(
        capture(text.replace("(N)", "(0)").replace("{N", "{0"), "reassociate")
    )
    # Of several callers, nothing is evaluated.
    is_known = lines.count("call(") < 2
    found = rules(
        capture(text.replace("(N)", "(1)").replace("{N", "{1"), "reassociate")
    )
    assert ("distribute" in found) == is_known


@pytest.mark.parametrize(
    ("reducer", "start"),
    [
        (
            "z = f32[] constant(0)\n  e = pred[] compare(a, z), direction=EQ\n"
            "  m = f32[] maximum(a, b)\n  ROOT c = f32[] select(e, b, m)",
            "0",
        ),
        (
            "z = f32[] constant(0)\n  o = f32[] constant(1)\n  u = f32[] abs(a)\n"
            "  e = pred[] compare(u, o), direction=LT\n"
            "  f = pred[] compare(a, z), direction=LT\n  g = pred[] and(e, f)\n"
            "  m = f32[] maximum(a, b)\n  ROOT c = f32[] select(g, b, m)",
            "-inf",
        ),
    ],
)
def test_reducers_with_thresholds_at_small_numbers(reducer, start):
    text = reduction(reducer).replace(
        "constant(0)\n  ROOT r", f"constant({start})\n  ROOT r"
    )
    assert "scan" not in rules(capture(text, "reduce-forms"))


def test_comparators_that_tell_apart_nans_of_one_side():
    lines = """  a_low = pred[] compare(a, undefined), direction=LT, type=TOTALORDER
  b_low = pred[] compare(b, undefined), direction=LT, type=TOTALORDER
  a_up = pred[] compare(a, zero), direction=GT, type=TOTALORDER
  b_up = pred[] compare(b, zero), direction=GT, type=TOTALORDER
  lt = pred[] compare(a, b), direction=LT, type=TOTALORDER
  low = pred[] and(a_low, b_low)
  up = pred[] and(a_up, b_up)
  side = pred[] and(low, up)
  nans = pred[] and(side, both)
  extra = pred[] and(nans, lt)
"""
    text = NAN_PAYLOADS.replace("  ROOT r =", f"{lines}  ROOT r =")
    assert rules(capture(text.replace("ROOT_OF", "extra"), "sort-forms")) == []


def test_what_runs_on_other_threads_stays():
    text = """HloModule threads

f {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}, execution_thread="host"

inner {
  x = f32[128] parameter(0)
  i = f32[] constant(0)
  ROOT r = f32[128] reduce-window(x, i), window={size=128 pad=127_0}, to_apply=f
}, execution_thread="host"

wrapped {
  p = f32[128] parameter(0)
  ROOT c = f32[128] call(p), to_apply=inner
}, execution_thread="host"

ENTRY main {
  x = f32[128] parameter(0)
  s = ((f32[128]), f32[128], u32[]) async-start(x), async_execution_thread="host",
    calls=wrapped
  ROOT d = f32[128] async-done(s)
}
"""
    text = text.replace(",\n    calls", ", calls")
    assert rules(capture(text, "reduce-forms")) == []
    same = text.replace(', execution_thread="host"', "")
    same = same.replace('async_execution_thread="host", ', "")
    assert "scan" in rules(capture(same, "reduce-forms"))


@pytest.mark.filterwarnings("ignore::hloenv.PositionWarning")
def test_packed_arrays_keep_their_layout():
    layout = "{(s4[64,32]{1,0:E(4)})->s4[32,64]{1,0:E(4)}}"
    text = (
        f"HloModule nibbles, entry_computation_layout={layout}"
        """

ENTRY main {
  x = s4[64,32]{1,0:E(4)} parameter(0)
  ROOT t = s4[32,64]{1,0:E(4)} transpose(x), dimensions={1,0}
}
"""
    )
    assert rules(capture(text, "general-layout")) == []
    assert rules(
        capture(text.replace("s4", "s8").replace(":E(4)", ""), "general-layout")
    )


@pytest.mark.filterwarnings("ignore::hloenv.PositionWarning")
def test_windows_of_pairs_have_no_form():
    """XLA ends the process when asked for the size of a tuple."""
    text = """HloModule pooled

pick {
  a = f32[] parameter(0)
  i = s32[] parameter(1)
  b = f32[] parameter(2)
  j = s32[] parameter(3)
  g = pred[] compare(a, b), direction=GE
  v = f32[] select(g, a, b)
  k = s32[] select(g, i, j)
  ROOT t = (f32[], s32[]) tuple(v, k)
}

ENTRY main {
  x = f32[8] parameter(0)
  i = s32[8] iota(), iota_dimension=0
  low = f32[] constant(-inf)
  none = s32[] constant(0)
  ROOT r = (f32[7], s32[7]) reduce-window(x, i, low, none), window={size=2},
    to_apply=pick
}
""".replace(",\n    ", ", ")
    for name in ("reduce-forms", "convolution-forms", "sort-forms", "single-kernel"):
        assert rules(capture(text, name)) == []


def test_products_of_convolutions_keep_the_precision_of_their_operands():
    text = """HloModule swapped

ENTRY main {
  x = f32[1,8,9] parameter(0)
  k = f32[16,8,3] parameter(1)
  ROOT y = f32[1,16,7] convolution(x, k), window={size=3}, dim_labels=bf0_oi0->bf0,
    operand_precision={default,highest}
}
""".replace(",\n    ", ", ")
    module = hloenv.HloModule.from_text(text)
    alternatives = hloenv.HloEnv(module).get_alternatives("convolution-forms")
    (one,) = alternatives
    firsts = set()
    for choice in range(1, len(one.choices)):
        after = alternatives.apply([choice]).to_text()
        shapes = dict(re.findall(r"%?([\w.-]+) = (\S+)", after))
        for line in re.findall(r"dot\(.*operand_precision.*", after):
            first = shapes[re.split(r"[%(,)]+", line)[1].split()[-1]]
            firsts.add("16" in first)
            expected = "{highest,default}" if "16" in first else "{default,highest}"
            assert f"operand_precision={expected}" in line
    assert True in firsts


@pytest.mark.parametrize("name", ["math-forms", "sort-forms", "reduce-forms"])
@pytest.mark.parametrize("kind", ["c64", "c128"])
def test_complex_constants_are_no_real_numbers(name, kind):
    """As of `z**0.5`, which ended the process."""
    power = f"""HloModule power

ENTRY main {{
  z = {kind}[3] parameter(0)
  half = {kind}[] constant((0.5, 0))
  halves = {kind}[3] broadcast(half), dimensions={{}}
  p = {kind}[3] power(z, halves)
  r = {kind}[3] divide(halves, z)
  ROOT t = ({kind}[3], {kind}[3]) tuple(p, r)
}}
"""
    assert len(capture(power, name)) == 0
    less = f"""HloModule sorted

f {{
  a = {kind}[] parameter(0)
  b = {kind}[] parameter(1)
  i = {kind}[] constant((0, 1))
  d = {kind}[] multiply(a, i)
  x = f32[] convert(real(d))
  y = f32[] convert(real(b))
  ROOT c = pred[] compare(x, y), direction=LT
}}

ENTRY main {{
  z = {kind}[300] parameter(0)
  ROOT s = {kind}[300] sort(z), dimensions={{0}}, to_apply=f
}}
"""
    kinds = {"c64": "f32", "c128": "f64"}[kind]
    less = re.sub(
        r"(\w) = f32\[\] convert\(real\((\w)\)\)", rf"\1 = {kinds}[] real(\2)", less
    )
    assert len(capture(less, name)) == 0
