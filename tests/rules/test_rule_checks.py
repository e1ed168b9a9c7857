# SPDX-License-Identifier: Apache-2.0
"""Rules that are right for small integers alone, and lines that XLA has no form for."""

from __future__ import annotations

import pytest

import hloenv
from hloenv.errors import PassError
from hloenv.rules import Rule, RuleError, check_rule, rule


def module(lines: str, kind: str = "f32[4]", count: int = 1) -> str:
    """A module of some lines; its parameters are a, b, ..."""
    parameters = [f"  {'abcd'[i]} = {kind} parameter({i})\n" for i in range(count)]
    body = "".join(f"  {each.strip()}\n" for each in lines.splitlines())
    return f"HloModule m\n\nENTRY e {{\n{''.join(parameters)}{body}}}\n"


SIGNS = "s = sine(a)\nc = cosine(a)\nROOT r = tuple({})"
TWICE = "s = s32[2] add(a, a)\nd = s32[2] subtract(a, b)"
WRONG = {
    "floor": ("ROOT r = floor(a)", "a", module("ROOT z = f32[4] floor(a)")),
    "rounding": (
        "ROOT r = round-nearest-even(a)",
        "ROOT r = floor(a)",
        module("ROOT z = f32[4] round-nearest-even(a)"),
    ),
    "rounding of halves": (
        "ROOT r = round-nearest-even(a)",
        "ROOT r = round-nearest-afz(a)",
        module("ROOT z = f32[] round-nearest-even(a)", "f32[]"),
    ),
    **{
        f"round trip in {kind}": (
            f"m = {kind}[n] convert(a)\nROOT r = f32[n] convert(m)",
            "ROOT r = copy(a)",
            module(f"m = {kind}[4] convert(a)\nROOT r = f32[4] convert(m)"),
        )
        for kind in ("bf16", "f16")
    },
    "exchanged, hidden by their sum": (
        SIGNS.format("s, c"),
        SIGNS.format("c, s"),
        module("s = f32[4] sine(a)\nc = f32[4] cosine(a)\nROOT z = f32[4] add(s, c)"),
    ),
    "integers, hidden by their product with 0": (
        "ROOT r = add(a, a)",
        "a",
        module(
            f"{TWICE}\nm = s32[2] subtract(d, d)\nROOT z = s32[2] multiply(s, m)",
            "s32[2]",
            2,
        ),
    ),
    "approximation": (
        "ROOT r = sine(a)",
        "c = multiply(a, a)\nROOT r = multiply(c, a)",
        module("ROOT z = bf16[4] sine(a)", "bf16[4]"),
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_rule_that_is_wrong_for_fractions_is_refused(name) -> None:
    before, after, example = WRONG[name]
    with pytest.raises(RuleError, match="'my-wrong' is wrong: for the inputs"):
        rule("my-wrong", before=before, after=after, examples=example)
    assert "my-wrong" not in hloenv.list_passes()


def test_a_difference_that_no_output_shows_is_named() -> None:
    before, after, example = WRONG["exchanged, hidden by their sum"]
    with pytest.raises(RuleError, match=r"what replaces s, c of .* though no output"):
        check_rule(Rule("wrong", before, after), example)


CONSTANT = "k = constant({0})\nq = broadcast(k), dimensions={{}}\n"


def with_constant(number: int, kind: str, lines: str) -> str:
    constant = f"k = {kind}[] constant({number})\nq = {kind}[4] broadcast(k)"
    return module(f"{constant}, dimensions={{}}\n{lines}", f"{kind}[4]", 2)


OUT_OF_RANGE = {
    "remainder": (1000, "s32", "ROOT r = {0}remainder(a, q)", "a"),
    "minimum": (1000, "s32", "ROOT r = {0}minimum(a, q)", "a"),
    "minimum of floats": (1000, "f32", "ROOT r = {0}minimum(a, q)", "a"),
    "log": (1, "f32", "e = {0}exponential(a)\nROOT r = {0}log(e)", "a"),
    **{
        f"product and quotient of {kind}": (
            *(2, kind, "m = {0}multiply(a, q)\nROOT r = {0}divide(m, q)", "a"),
        )
        for kind in ("s8", "s32", "u8", "s64", "s4")
    },
    "absolute value": (
        *(1, "s8", "m = {0}multiply(a, a)\nROOT r = {0}abs(m)"),
        "ROOT r = multiply(a, a)",
    ),
    "difference": (
        *(0, "s32", "m = {0}subtract(a, b)\nROOT r = {0}minimum(m, q)"),
        "x = minimum(a, b)\nROOT r = subtract(x, b)",
    ),
}


@pytest.mark.parametrize("name", OUT_OF_RANGE)
def test_a_rule_that_is_wrong_for_large_numbers_is_refused(name) -> None:
    number, kind, lines, after = OUT_OF_RANGE[name]
    before = lines.format("")
    if "q" in before:
        before = CONSTANT.format(number) + before
    example = with_constant(number, kind, lines.format(f"{kind}[4] "))
    with pytest.raises(RuleError, match="is wrong: for the inputs"):
        check_rule(Rule("wrong", before, after), example)


def test_integers_that_are_narrowed_are_not_equal() -> None:
    made = Rule("cut", "c = s8[n] convert(a)\nROOT r = s32[n] convert(c)", "a")
    example = module("c = s8[4] convert(a)\nROOT r = s32[4] convert(c)", "s32[4]")
    with pytest.raises(RuleError, match="is wrong: for the inputs"):
        check_rule(made, example)


@pytest.mark.parametrize(
    ("line", "after"),
    [
        (
            "multiply(a, q)",
            "z = T[] constant(0)\nROOT r = T[n] broadcast(z), dimensions={}",
        ),
        ("add(a, q)", "a"),
    ],
)
def test_an_exact_rule_keeps_special_values(line, after) -> None:
    before = CONSTANT.format(0) + f"ROOT r = T[n] {line}"
    example = with_constant(0, "f32", f"ROOT r = f32[4] {line}")
    with pytest.raises(RuleError, match="an exact rule gives equal floats"):
        check_rule(Rule("zero", before, after, numerics="exact"), example)
    assert check_rule(Rule("zero", before, after), example) > 0


@pytest.mark.parametrize("kind", ["f32", "bf16", "s32", "u8"])
@pytest.mark.parametrize("opcode", ["add", "multiply", "maximum"])
def test_exchanged_operands_are_exact(kind, opcode) -> None:
    swap = f"ROOT r = {opcode}(a, b)", f"ROOT r = {opcode}(b, a)"
    example = module(f"ROOT r = {kind}[4] {opcode}(a, b)", f"{kind}[4]", 2)
    assert check_rule(Rule("swap", *swap, numerics="exact"), example) > 0


@pytest.mark.parametrize("kind", ["f16", "bf16", "f8e5m2", "f32", "s8", "u16"])
def test_an_overflow_in_another_order_is_rounding(kind) -> None:
    lines = "s = {0}add(b, c)\nROOT r = {0}multiply(a, s)"
    after = "x = multiply(a, b)\ny = multiply(a, c)\nROOT r = add(x, y)"
    example = module(lines.format(f"{kind}[2] "), f"{kind}[2]", 3)
    assert check_rule(Rule("expand", lines.format(""), after), example) > 0


def test_an_unsafe_rule_may_replace_infinities() -> None:
    before = "e = exponential(a)\nROOT r = log(e)"
    example = module("e = f32[4] exponential(a)\nROOT r = f32[4] log(e)")
    with pytest.raises(RuleError, match="numerics='unsafe' says so"):
        check_rule(Rule("log", before, "a"), example)
    assert check_rule(Rule("log", before, "a", numerics="unsafe"), example) > 0


def test_integers_that_count_iterations_stay_small() -> None:
    example = """HloModule m

body {
  s = (s32[], f32[]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[] get-tuple-element(s), index=1
  one = s32[] constant(1)
  j = s32[] subtract(i, one)
  y = f32[] add(x, x)
  ROOT r = (s32[], f32[]) tuple(j, y)
}

condition {
  s = (s32[], f32[]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  zero = s32[] constant(0)
  ROOT p = pred[] compare(i, zero), direction=GT
}

ENTRY e {
  n = s32[] parameter(0)
  x = f32[] parameter(1)
  s = (s32[], f32[]) tuple(n, x)
  w = (s32[], f32[]) while(s), condition=condition, body=body
  y = f32[] get-tuple-element(w), index=1
  ROOT r = f32[] sine(y)
}
"""
    after = "n = negate(a)\ns = sine(n)\nROOT r = negate(s)"
    made = Rule("odd", "ROOT r = sine(a)", after)
    assert check_rule(made, example) > 0


SUM = ("d = add(a, b)\nROOT r = add(d, c)", "d = add(b, c)\nROOT r = add(a, d)")
SUM_OF = "d = {0} add(a, b)\nROOT r = {0} add(d, c)"
MM = "lhs_contracting_dims={1}, rhs_contracting_dims={0}"


@pytest.mark.parametrize("kind", ["f64", "f32", "f16", "bf16", "f8e5m2", "c64", "s8"])
@pytest.mark.parametrize("dims", ["", "5,7"])
def test_sums_of_every_type_are_reassociated(kind, dims) -> None:
    example = module(SUM_OF.format(f"{kind}[{dims}]"), f"{kind}[{dims}]", 3)
    for seed in range(20):
        assert check_rule(Rule("sum", *SUM), example, seed=seed) > 0


@pytest.mark.parametrize("kind", ["f32", "f16", "bf16"])
def test_matrix_products_are_reassociated(kind) -> None:
    made = Rule(
        "exchange",
        f"x = dot(a, b), {MM}\nROOT r = dot(x, c), {MM}",
        f"x = dot(b, c), {MM}\nROOT r = dot(a, x), {MM}",
    )
    shape = f"{kind}[16,16]"
    lines = f"x = {shape} dot(a, b), {MM}\nROOT r = {shape} dot(x, c), {MM}"
    for seed in range(5):
        assert check_rule(made, module(lines, shape, 3), seed=seed) > 0


@pytest.mark.parametrize(
    ("before", "after", "lines"),
    [
        (
            "x = exponential(a)\ny = exponential(b)\nROOT r = multiply(x, y)",
            "s = add(a, b)\nROOT r = exponential(s)",
            "x = f32[4] exponential(a)\ny = f32[4] exponential(b)\n"
            "ROOT r = f32[4] multiply(x, y)",
        ),
        (  # the rounding is on both sides
            "s = bf16[n] convert(a)\nt = bf16[n] convert(b)\nu = add(s, t)\n"
            "v = add(u, s)\nROOT r = f32[n] convert(v)",
            "s = bf16[n] convert(a)\nt = bf16[n] convert(b)\nu = add(s, s)\n"
            "v = add(u, t)\nROOT r = f32[n] convert(v)",
            "s = bf16[4] convert(a)\nt = bf16[4] convert(b)\nu = bf16[4] add(s, t)\n"
            "v = bf16[4] add(u, s)\nROOT r = f32[4] convert(v)",
        ),
    ],
)
def test_rules_that_differ_by_rounding_are_accepted(before, after, lines) -> None:
    made = Rule("right", before, after)
    for seed in range(5):
        assert check_rule(made, module(lines, count=2), seed=seed) > 0


def test_an_exact_rule_gives_equal_floats() -> None:
    example = module(SUM_OF.format("f32[4]"), count=3)
    with pytest.raises(RuleError, match="others have numerics='rounding'"):
        check_rule(Rule("sum", *SUM, numerics="exact"), example)
    swap = Rule("swap", "ROOT r = add(a, b)", "ROOT r = add(b, a)", numerics="exact")
    assert check_rule(swap, module("ROOT r = f32[4] add(a, b)", count=2)) > 0


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("ROOT r = bogus(a)", "XLA has no opcode 'bogus'"),
        ("ROOT r = sinus(a)", "did you mean 'sinh'|did you mean 'sin"),
        ("ROOT r = add(a)", "add takes 2 operands, got 1"),
        ("ROOT r = add(a, b, a)", "add takes 2 operands, got 3"),
        ("ROOT r = sine(a, b)", "sine takes 1 operand, got 2"),
        ("ROOT r = select(a, b)", "select takes 3 operands, got 2"),
    ],
)
@pytest.mark.parametrize("side", ["before", "after"])
def test_lines_that_xla_has_no_form_for_are_refused(side, line, message) -> None:
    sides = {"before": "ROOT r = add(a, b)", "after": "a", side: line}
    with pytest.raises(RuleError, match=f"`{side}` line 'r': .*({message})"):
        Rule("bad", **sides)


def test_opcodes_of_placeholders_are_checked() -> None:
    with pytest.raises(RuleError, match="no opcode 'bogus'"):
        Rule("bad", "ROOT r = $f(a)", "a", opcodes={"f": ("sine", "bogus")})
    with pytest.raises(RuleError, match="`after` line 'r': sine takes 1 operand"):
        Rule("bad", "ROOT r = $f(a)", "ROOT r = $f(a, a)", opcodes={"f": ("sine",)})


def test_instructions_with_attributes_and_calls_are_not_refused() -> None:
    for line in (
        "w = while(a), condition=%c, body=%b",
        "w = conditional(a, b, b), $rest",
        "w = dynamic-slice(a, i, j), $rest",
        "w = custom-call(a, b, c), $rest",
        "w = reduce(a, z), dimensions={0}, to_apply=%s",
        "w = iota(), iota_dimension=0",
        "w = convolution(a, b), $rest",
        "w = call-start(a), $rest",
    ):
        Rule("fine", f"ROOT {line}", f"ROOT {line}")


def test_a_constant_of_after_needs_a_type() -> None:
    after = "c = constant(1)\nROOT r = add(a, c)"
    with pytest.raises(RuleError, match=r"has no type.*c = f32\[\] constant"):
        Rule("bad", "ROOT r = add(a, b)", after)
    Rule("good", "ROOT r = add(a, b)", after.replace("= con", "= $r.dtype[] con"))


@pytest.mark.parametrize(
    ("found", "message"),
    [
        (3, "returns int at 'r'; it must return a bool"),
        ("x", "returns str"),
        (None, "returns NoneType"),
        ({"q": 3}, r"returns \['q'\] at 'r', which are no placeholders"),
    ],
)
def test_what_where_returns_is_checked(found, message) -> None:
    with pytest.raises(PassError, match=message):
        rule(
            "my-where",
            before="ROOT r = add(a, b)",
            after="ROOT r = add(b, a)",
            where=lambda _: found,
            examples=module("ROOT r = f32[4] add(a, b)", count=2),
        )


def test_placeholders_of_shapes_are_given_by_where() -> None:
    made = Rule(
        "zeros",
        "ROOT r = subtract(a, a)",
        "z = T[] constant(0)\nROOT r = T[n] broadcast(z), dimensions={}",
        where=lambda match: {"T": match["a"].dtype, "n": match["a"].dims[0]},
    )
    assert check_rule(made, module("ROOT r = f32[4] subtract(a, a)")) > 0


@pytest.mark.parametrize(
    "name", ["s1", "f32", "pred", "bf16", "c64", "f8e5m2", "token"]
)
def test_names_may_be_those_of_types(name) -> None:
    example = module("ROOT r = f32[4] add(a, b)", count=2)
    for after in (
        f"ROOT {name} = add(b, a)",
        f"{name} = negate(a)\nROOT r = subtract(b, {name})",
    ):
        assert check_rule(Rule("type", "ROOT r = add(a, b)", after), example) > 0
    before = f"ROOT r = add({name}, b)"
    assert check_rule(Rule("type", before, f"ROOT r = add(b, {name})"), example) > 0
