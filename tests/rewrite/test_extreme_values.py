# SPDX-License-Identifier: Apache-2.0
"""Infinities and values that a module determines, which forms must not spread."""

from __future__ import annotations

import pytest

import hloenv
from support import captures
from support.captures import capture


def rules(text, name):
    return captures.rules(capture(text, name))


IDENTITY = "{{1,0,0},{0,1,0},{0,0,1}}"
REDUCERS = """HloModule m

mul {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] multiply(a, b)
}

add {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}

below {
  x = f32[] parameter(0)
  zero = f32[] constant(0)
  huge = f32[] constant(inf)
  c = pred[] compare(x, zero), direction=LT
  ROOT r = f32[] select(c, huge, x)
}

largest {
  x = f32[] parameter(0)
  y = f32[] parameter(1)
  zero = f32[] constant(0)
  huge = f32[] constant(inf)
  m = f32[] maximum(x, y)
  c = pred[] compare(m, zero), direction=LT
  ROOT r = f32[] select(c, huge, m)
}

"""

REDUCERS += """called {
  x = f32[] parameter(0)
  y = f32[] parameter(1)
  ROOT r = f32[] call(x, y), to_apply=largest
}

"""


def test_an_entry_that_is_called_has_no_known_arguments():
    text = f"""HloModule m

ENTRY main {{
  a = f32[3,3] parameter(0)
  b = f32[3,3] parameter(1)
  ROOT d = f32[3,3] dot(a, b), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
}}

dead {{
  c = f32[3,3] constant({IDENTITY})
  x = f32[3,3] constant({IDENTITY})
  ROOT r = f32[3,3] call(c, x), to_apply=main
}}
"""
    assert "sparse" not in rules(text, "dot-forms")


# Three numbers of a kernel, of which each is the product of four.
FOUR = "{{{1e10,1e10,1e10,1e10}},{{1,1,1,1}},{{1,1,1,1}}}"
KERNELS = {
    "nan": "k = f32[3,1,1] constant({{{nan}},{{1}},{{1}}})",
    "reduce": f"""h = f32[3,1,4] constant({FOUR})
  k = f32[3,1] reduce(h, one), dimensions={{2}}, to_apply=mul""",
    "reduce-window": f"""h = f32[3,1,4] constant({FOUR})
  k = f32[3,1,1] reduce-window(h, one), window={{size=1x1x4}}, to_apply=mul""",
    "dot": """h = f32[3,1,2] constant({{{1e19,1e19}},{{1,1}},{{1,1}}})
  g = f32[2,1] constant({{1e19},{1e19}})
  k = f32[3,1,1] dot(h, g), lhs_contracting_dims={2}, rhs_contracting_dims={0}""",
    "scatter": """h = f32[3,1,1] constant({{{1e19}},{{1}},{{1}}})
  i = s32[2,1] constant({{0},{0}})
  u = f32[2,1,1] constant({{{1e19}},{{1e19}}})
  k = f32[3,1,1] scatter(h, i, u), update_window_dims={1,2},
    inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1,
    to_apply=mul""",
    "sqrt": """h = f32[3,1,1] constant({{{-1}},{{1}},{{1}}})
  k = f32[3,1,1] sqrt(h)""",
    "remainder": """h = f32[3,1,1] constant({{{0}},{{1}},{{1}}})
  k = f32[3,1,1] remainder(h, h)""",
    "cosine": """h = f32[3,1,1] constant({{{inf}},{{1}},{{1}}})
  k = f32[3,1,1] cosine(h)""",
    "sum of nan": """h = f32[3,1,2] constant({{{nan,1}},{{1,1}},{{1,1}}})
  k = f32[3,1] reduce(h, zero), dimensions={2}, to_apply=add""",
    "tanh of infinity by zero": """h = f32[3,1,1] constant({{{inf}},{{1}},{{1}}})
  y = f32[3,1,1] parameter(1)
  m = f32[3,1,1] multiply(h, y)
  k = f32[3,1,1] tanh(m)""",
    "log of a mask": """h = f32[3,1,1] constant({{{-1e30}},{{0}},{{0}}})
  y = f32[3,1,1] parameter(1)
  m = f32[3,1,1] add(h, y)
  k = f32[3,1,1] log(m)""",
    "tanh of a sum of infinities": """h = f32[3,1,2] constant({{{inf,-inf}},{{1,1}},{{1,1}}})
  y = f32[3,1,2] parameter(1)
  m = f32[3,1,2] add(h, y)
  s = f32[3,1] reduce(m, zero), dimensions={2}, to_apply=add
  k = f32[3,1] tanh(s)""",
    "tanh of nan": """h = f32[3,1,1] constant({{{nan}},{{1}},{{1}}})
  k = f32[3,1,1] tanh(h)""",
}


def convolution(kernel: str) -> str:
    return f"""{REDUCERS}ENTRY main {{
  x = f32[1,5,1] parameter(0)
  one = f32[] constant(1)
  zero = f32[] constant(0)
  {kernel}
  l = f32[3,1,1] reshape(k)
  ROOT c = f32[1,5,1] convolution(x, l), window={{size=3 pad=1_1}}, dim_labels=b0f_0io->b0f
}}
"""


@pytest.mark.parametrize("name", KERNELS)
def test_kernels_that_become_infinite_or_no_numbers_have_no_forms(name):
    assert rules(convolution(KERNELS[name]), "convolution-forms") == []


@pytest.mark.parametrize("name", ["reduce", "sum of nan"])
def test_kernels_of_moderate_numbers_have_forms(name):
    text = KERNELS[name].replace("1e10", "2").replace("nan", "2")
    assert "taps" in rules(convolution(text), "convolution-forms")


# Infinite where data has one value, as divisions by it are, or in another array.
MODERATE = {
    "inverse error function": """y = f32[3,1,1] parameter(1)
  size = f32[3,1,1] abs(y)
  ones = f32[3,1,1] broadcast(one), dimensions={}
  inf.1 = f32[] constant(inf)
  infs = f32[3,1,1] broadcast(inf.1), dimensions={}
  is_one = pred[3,1,1] compare(size, ones), direction=EQ
  pole = f32[3,1,1] multiply(y, infs)
  k = f32[3,1,1] select(is_one, pole, y)""",
    "rows of the largest": """y = f32[3,4] parameter(1)
  i = s32[3,4] iota(), iota_dimension=1
  lowest = f32[] constant(-inf)
  none = s32[] constant(0)
  both = (f32[3], s32[3]) reduce(y, i, lowest, none), dimensions={1}, to_apply=argmax
  at = s32[3] get-tuple-element(both), index=1
  table = f32[4,1,1] parameter(2)
  k = f32[3,1,1] gather(table, at), offset_dims={1,2}, collapsed_slice_dims={0},
    start_index_map={0}, index_vector_dim=1, slice_sizes={1,1,1}""",
}
ARGMAX = """argmax {
  a = f32[] parameter(0)
  i = s32[] parameter(1)
  b = f32[] parameter(2)
  j = s32[] parameter(3)
  is_first = pred[] compare(a, b), direction=GE
  value = f32[] select(is_first, a, b)
  index = s32[] select(is_first, i, j)
  ROOT both = (f32[], s32[]) tuple(value, index)
}

"""


def _with_argmax(kernel: str) -> str:
    return convolution(kernel).replace("ENTRY", ARGMAX + "ENTRY")


@pytest.mark.parametrize("name", MODERATE)
def test_what_data_or_another_array_makes_infinite_has_forms(name):
    assert "taps" in rules(_with_argmax(MODERATE[name]), "convolution-forms")


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("inverse error function", "multiply(y, infs)", "add(infs, infs)"),
        ("inverse error function", "abs(y)", "exponential(y)"),
        ("inverse error function", "direction=EQ", "direction=LT"),
        ("inverse error function", "broadcast(one)", "broadcast(zero)"),
        (
            "rows of the largest",
            "at = s32[3] get-tuple-element(both), index=1",
            "largest = f32[3] get-tuple-element(both), index=0\n"
            "  at = s32[3] bitcast-convert(largest)",
        ),
    ],
)
def test_what_only_looks_so_has_no_forms(name, old, new):
    kernel = MODERATE[name].replace(old, new)
    assert kernel != MODERATE[name]
    if name == "rows of the largest":  # the bits of the largest themselves
        kernel = kernel.partition("  table =")[0] + (
            "  back = f32[3] bitcast-convert(at)\n  k = f32[3,1,1] reshape(back)"
        )
    assert rules(_with_argmax(kernel), "convolution-forms") == []


FACTORS = {
    "call of a reducer": """m = f32[4,2] parameter(2)
  z = f32[] constant(-1)
  s = f32[4] reduce(m, z), dimensions={1}, to_apply=called""",
    "sharding": """z = f32[4] constant({inf,1,1,1})
  s = f32[4] custom-call(z), custom_call_target="Sharding", sharding={replicated}""",
    "map": """m = f32[4] parameter(2)
  s = f32[4] map(m), dimensions={0}, to_apply=below""",
    "reduce": """m = f32[4,2] parameter(2)
  z = f32[] constant(-1)
  s = f32[4] reduce(m, z), dimensions={1}, to_apply=largest""",
}


def difference(factor: str) -> str:
    return f"""{REDUCERS}ENTRY main {{
  a = f32[4] parameter(0)
  b = f32[4] parameter(1)
  {factor}
  p = f32[4] multiply(a, s)
  q = f32[4] multiply(b, s)
  ROOT c = f32[4] subtract(p, q)
}}
"""


@pytest.mark.parametrize("name", FACTORS)
def test_infinities_of_the_module_are_no_factor(name):
    """An infinity less another is no number, but times a difference an infinity."""
    assert "factor" not in rules(difference(FACTORS[name]), "reassociate")


@pytest.mark.parametrize("name", FACTORS)
def test_moderate_numbers_are_a_factor(name):
    text = difference(FACTORS[name]).replace("(inf)", "(7)").replace("{inf,", "{7,")
    assert "factor" in rules(text, "reassociate")


def mixed_dot(operand: str, result: str) -> str:
    return f"""HloModule m

add {{
  a = {result}[] parameter(0)
  b = {result}[] parameter(1)
  ROOT c = {result}[] add(a, b)
}}

ENTRY main {{
  x = {operand}[600,5] parameter(0)
  y = {operand}[5,3] parameter(1)
  z = {result}[] constant(0)
  d = {result}[600,3] dot(x, y), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
  ROOT r = {result}[3] reduce(d, z), dimensions={{0}}, to_apply=add
}}
"""


@pytest.mark.parametrize(("operand", "result"), [("bf16", "f32"), ("f32", "f32")])
def test_every_simplification_of_a_reduced_dot_is_valid(operand, result):
    found = capture(mixed_dot(operand, result), "general-simplify")
    assert (len(found) > 0) == (operand == result)
    for alternative in found:
        for choice in range(len(alternative.choices)):
            decisions = found.reject_all()
            decisions[alternative.index] = choice
            found.apply(decisions).verify()


@pytest.mark.parametrize("kind", ["s8", "s32"])
def test_loops_over_a_batch_are_of_one_type(kind):
    """Small ones of several did not compile."""
    text = f"""HloModule m

ENTRY main {{
  x = {kind}[1,5,8,2] parameter(0)
  y = {kind}[3,2,5] parameter(1)
  ROOT d = s32[2,1,8,3] dot(x, y), lhs_batch_dims={{3}}, rhs_batch_dims={{1}},
    lhs_contracting_dims={{1}}, rhs_contracting_dims={{2}}
}}
"""
    assert ("batch_loop" in rules(text, "dot-forms")) == (kind == "s32")


def test_a_dot_of_more_dimensions_than_labels():
    ones = ",".join(["1"] * 140)
    both = ",".join(["1"] * 280)
    text = f"""HloModule m

ENTRY main {{
  x = f32[2,{ones}] parameter(0)
  y = f32[2,{ones}] parameter(1)
  ROOT r = f32[{both}] dot(x, y), lhs_contracting_dims={{0}}, rhs_contracting_dims={{0}}
}}
"""
    assert rules(text, "dot-forms") == []


def test_patches_of_a_convolution_with_more_positions_than_integers():
    text = f"""HloModule m

ENTRY main {{
  x = f32[1,{2**57},1] parameter(0)
  k = f32[64,1,1] parameter(1)
  ROOT c = f32[1,{2**57},1] convolution(x, k), window={{size=64 pad=31_32}},
    dim_labels=b0f_0io->b0f
}}
"""
    assert "patches" not in rules(text, "convolution-forms")


@pytest.mark.parametrize(
    "window",
    [
        "size=3 stride=2 pad=1_4 lhs_dilate=2",
        "size=3 pad=1_1 lhs_dilate=2 rhs_dilate=2",
    ],
)
def test_windows_that_read_between_elements_at_billions_of_positions(window):
    size = 10**10
    stride = 2 if "stride" in window else 1
    padding = 5 if stride == 2 else 2
    dilated = 2 * size - 1 + padding
    reach = 5 if "rhs" in window else 3
    output = (dilated - reach) // stride + 1
    text = f"""HloModule m

ENTRY main {{
  x = f32[1,{size},1] parameter(0)
  k = f32[3,1,1] parameter(1)
  ROOT c = f32[1,{output},1] convolution(x, k), window={{{window}}},
    dim_labels=b0f_0io->b0f
}}
"""
    assert len(capture(text, "convolution-forms")) <= 1


def test_long_chains_of_forwarded_values():
    """Each once took as long as all before it together."""
    lines = ["v0 = f32[8,8] parameter(0)"]
    for i in range(4000):
        lines.append(f"v{2 * i + 1} = (f32[8,8]) tuple(v{2 * i})")
        lines.append(
            f"v{2 * i + 2} = f32[8,8] get-tuple-element(v{2 * i + 1}), index=0"
        )
    body = "\n  ".join(lines)
    text = f"""HloModule m

ENTRY main {{
  {body}
  ROOT d = f32[8,8] dot(v8000, v8000), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
}}
"""
    found = hloenv.HloEnv(hloenv.HloModule.from_text(text)).get_alternatives(
        "dot-forms"
    )
    assert len(found) <= 1


@pytest.mark.compile
@pytest.mark.parametrize("padding", ["-1_2", "1_-1", "-3_3", "2_-3"])
def test_phases_read_less_than_the_input_on_one_side(padding):
    """XLA computes some convolutions wrong that are padded so: they read a part."""
    low, high = map(int, padding.split("_"))
    text = f"""HloModule m

ENTRY main {{
  x = f32[8,6,5,8] parameter(0)
  k = f32[2,3,3,3] parameter(1)
  ROOT c = f32[8,2,{9 + low + high - 2},6] convolution(x, k),
    window={{size=3x3 pad={padding}x0_0 lhs_dilate=2x1}}, dim_labels=bf01_oi01->bf01,
    feature_group_count=2
}}
"""
    module = hloenv.HloModule.from_text(text)
    found = capture(text, "convolution-forms")
    assert "phases" in captures.rules(found)
    inputs = hloenv.random_inputs(module)
    wanted = hloenv.interpret(module, *inputs)
    (alternative,) = found
    for index, choice in enumerate(alternative.choices):
        if choice.rule != "phases":
            continue
        decided = found.apply([index])
        assert "pad=-" not in decided.to_text().replace("x-", "x pad=-")
        outputs = hloenv.compile(decided, isolate=False)(*inputs)
        hloenv.compare_outputs(wanted, outputs, rtol=1e-4).check()


@pytest.mark.parametrize(
    ("count", "operands", "is_offered"),
    [
        ("f32[] constant(8)", "k, nans", True),
        ("f32[] constant(-8)", "nans, k", True),
        ("f32[] constant(-8)", "k, nans", False),
        ("f32[] constant(8)", "nans, k", False),
        ("f32[] parameter(2)", "k, nans", False),  # differs between runs
    ],
)
def test_a_choice_that_the_module_makes_itself(count, operands, is_offered):
    """As in jnp.var, which is not a number where n - ddof is not above 0."""
    text = f"""HloModule m

ENTRY main {{
  x = f32[1,8,8,4] parameter(0)
  k = f32[3,3,1,4] parameter(1)
  n = {count}
  zero = f32[] constant(0)
  is_some = pred[] compare(n, zero), direction=GT
  are_some = pred[3,3,1,4] broadcast(is_some), dimensions={{}}
  undefined = f64[] constant(nan)
  narrow = f32[] convert(undefined)
  nans = f32[3,3,1,4] broadcast(narrow), dimensions={{}}
  s = f32[3,3,1,4] select(are_some, {operands})
  ROOT c = f32[1,8,8,4] convolution(x, s), window={{size=3x3 pad=1_1x1_1}},
    dim_labels=b01f_01io->b01f, feature_group_count=4
}}
"""
    found = capture(text, "convolution-forms")
    assert ("taps" in captures.rules(found)) == is_offered
