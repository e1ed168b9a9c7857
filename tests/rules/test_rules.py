# SPDX-License-Identifier: Apache-2.0
"""Rules and passes that users write."""

from __future__ import annotations

import pickle
import re

import numpy as np
import pytest

import hloenv
from hloenv.errors import PassError, PassOptionError, UnknownPassError
from hloenv.hlo.python_passes import add_pass, remove_pass
from hloenv.rules import Rule, RuleError, RulePass, check_rule, rule
from hloenv.rules.matcher import MAX_PARTNERS
from hloenv.rules.subject import Subject
from rules.captures import capture_rules

MM = "lhs_contracting_dims={1}, rhs_contracting_dims={0}"
SUM = f"""HloModule sum

ENTRY main {{
  a = f32[2,2] parameter(0)
  b = f32[2,2] parameter(1)
  c = f32[2,2] parameter(2)
  x = f32[2,2] dot(a, b), {MM}
  y = f32[2,2] dot(c, b), {MM}
  ROOT s = f32[2,2] add(y, x)
}}
"""
FACTOR = {
    "before": """
        ab = dot(a, b), $dims
        cb = dot(c, b), $dims
        ROOT r = add(ab, cb)
    """,
    "after": """
        s = add(a, c)
        ROOT r = dot(s, b), $dims
    """,
    "where": lambda m: m["a"].dims == m["c"].dims,
    "doc": "Rewrites a b + c b as (a + c) b.",
}


@pytest.fixture
def factor():
    made = rule("my-factor", examples=[SUM], **FACTOR)
    yield made
    remove_pass("my-factor")


def test_a_rule_is_a_pass_that_captures_competes_and_verifies(factor) -> None:
    assert "my-factor" in hloenv.list_passes()
    info = hloenv.describe_pass("my-factor")
    assert (info.candidate, info.numerics) == (True, "rounding")
    env = hloenv.HloEnv(SUM)
    alternatives = env.get_alternatives("my-factor", "substitutions")
    # Both passes compete for the sum.
    (sum_,) = [each for each in alternatives if each.original == "s"]
    passes = {name for choice in sum_.choices[1:] for name in choice.passes}
    assert passes == {"my-factor", "substitutions"}
    assert max(e.relative for e in hloenv.verify_alternatives(alternatives)) < 1e-5
    env.apply_alternatives(alternatives.decisions_for("my-factor"))
    assert env.module.opcode_counts() == {"parameter": 3, "add": 1, "dot": 1}
    hloenv.compile(env.module, isolate=False)
    assert hloenv.replay(env.trace, SUM).fingerprint() == env.fingerprint()


def test_the_alternatives_of_a_rule_pickle(factor) -> None:
    alternatives = hloenv.HloEnv(SUM).get_alternatives("my-factor")
    again = pickle.loads(pickle.dumps(alternatives))
    decisions = np.ones(len(alternatives), int)
    assert (
        again.apply(decisions).fingerprint()
        == alternatives.apply(decisions).fingerprint()
    )


def test_a_rule_applies_all_its_proposals_as_a_pass(factor) -> None:
    env = hloenv.HloEnv(SUM)
    assert env.run("my-factor")
    assert env.module.opcode_counts()["dot"] == 1


def test_a_rule_cannot_be_part_of_a_pipeline(factor) -> None:
    pipeline = hloenv.Pipeline("two", ["my-factor", "dce"])
    with pytest.raises(PassError, match="only proposes"):
        hloenv.HloEnv(SUM).get_alternatives(pipeline)
    with pytest.raises(PassError, match="only proposes"):
        hloenv.run_passes(SUM, "my-factor")


def test_a_removed_rule_is_unknown(factor) -> None:
    remove_pass("my-factor")
    with pytest.raises(UnknownPassError):
        hloenv.HloEnv(SUM).get_alternatives("my-factor")


def test_the_options_of_a_pass_turn_rules_off() -> None:
    with pytest.raises(PassOptionError, match="has no option"):
        hloenv.Pass("substitutions", fly=True)
    with pytest.raises(PassOptionError, match="must be a bool"):
        hloenv.Pass("substitutions", merge_dot_sum=1)
    names = ("factor-dot-left-operands", "merge-dot-sum")
    off = {
        each.name: False
        for each in hloenv.describe_pass("substitutions").options
        if each.name.replace("_", "-") not in names
    }
    env = hloenv.HloEnv(SUM)
    found = env.get_alternatives(hloenv.Pass("substitutions", **off))
    rules = {c.rule for a in found for c in a.choices[1:]}
    assert rules == set(names)


def test_named_pipelines_tell_two_settings_of_a_pass_in_python_apart() -> None:
    pipelines = [
        hloenv.Pipeline(name, [hloenv.Pass("substitutions", **{option: False})])
        for name, option in (
            ("no-factor", "factor_dot_left_operands"),
            ("no-merge", "merge_dot_sum"),
        )
    ]
    env = hloenv.HloEnv(SUM)
    alternatives = env.get_alternatives(*pipelines)
    assert alternatives.pass_names == ("no-factor", "no-merge")
    for pipeline in pipelines:
        decisions = alternatives.decisions_for(pipeline.name)
        assert decisions.any()
        env = hloenv.HloEnv(SUM)
        assert env.run(pipeline)
        assert env.module.fingerprint() == alternatives.apply(decisions).fingerprint()


def test_the_name_of_another_pass_is_refused() -> None:
    with pytest.raises(PassOptionError, match="has a pass 'cse' already"):
        rule("cse", **FACTOR)
    with pytest.raises(PassOptionError, match="already"):
        rule("substitutions", **FACTOR)


def test_a_wrong_rule_is_refused_with_its_counterexample() -> None:
    with pytest.raises(RuleError, match=r"'minus' is wrong: for the inputs .* gives"):
        rule(
            "minus",
            before="ROOT r = add(a, b)",
            after="ROOT r = subtract(a, b)",
            examples=[SUM],
        )
    assert "minus" not in hloenv.list_passes()


def test_a_counterexample_of_large_arrays_is_their_first_difference() -> None:
    lines = "  x = f32[64,64] parameter(0)\n  y = f32[64,64] parameter(1)\n"
    lines += "  ROOT r = f32[64,64] add(x, y)\n"
    with pytest.raises(RuleError) as raised:
        rule(
            "minus",
            before="ROOT r = add(a, b)",
            after="ROOT r = subtract(a, b)",
            examples=["HloModule m\n\nENTRY e {\n" + lines + "}\n"],
        )
    assert re.fullmatch(
        r"rule 'minus' is wrong: for the inputs float32\[64, 64\]; float32\[64, 64\] "
        r"the module 'm' gives -?\d\.0 at \[\d+, \d+\], and after the rule -?\d\.0; "
        r"\d{4} of 4096 elements differ",
        str(raised.value),
    )


def test_a_wrong_rule_is_found_by_verification() -> None:
    wrong = Rule("wrong", "ROOT r = add(a, b)", "ROOT r = subtract(a, b)")
    errors = hloenv.verify_alternatives(
        capture_rules(hloenv.HloModule.from_text(SUM), [wrong])
    )
    assert max(each.relative for each in errors) > 0.1


def one_operation(kind: str, line: str) -> str:
    return f"HloModule m\n\nENTRY e {{\n  x = {kind}[2] parameter(0)\n{line}\n}}\n"


CONJUGATE = (
    "  re = f32[2] real(x)\n  im = f32[2] imag(x)\n  ROOT r = c64[2] complex(re, im)"
)


@pytest.mark.parametrize(
    ("before", "after", "example"),
    [
        (  # equal on 0 and 1
            "ROOT r = multiply(a, a)",
            "a",
            one_operation("u32", "  ROOT r = u32[2] multiply(x, x)"),
        ),
        (  # equal on real numbers
            "re = real(a)\nim = imag(a)\nROOT r = complex(re, im)",
            "re = real(a)\nim = imag(a)\nn = negate(im)\nROOT r = complex(re, n)",
            one_operation("c64", CONJUGATE),
        ),
    ],
)
def test_wrong_rules_of_other_types_are_refused(before, after, example) -> None:
    with pytest.raises(RuleError, match="is wrong: for the inputs"):
        rule("my-wrong", before=before, after=after, examples=[example])
    assert "my-wrong" not in hloenv.list_passes()


def test_an_example_without_parameters_is_checked() -> None:
    example = "HloModule m\n\nENTRY e {\n  x = s32[4] iota(), iota_dimension=0\n"
    example += "  ROOT r = s32[4] add(x, x)\n}\n"
    before = "ROOT r = add(a, a)"
    after = "n = negate(a)\nROOT r = subtract(a, n)"
    rule("my-sum", before=before, after=after, examples=[example])
    remove_pass("my-sum")
    with pytest.raises(RuleError, match="changes nothing in its example"):
        rule("my-sum", before=before, after=before, examples=[example])


def test_a_bfloat16_dot_is_checked_exactly() -> None:
    example = SUM.replace("f32[2,2]", "bf16[64,64]")
    made = Rule("wide", **FACTOR)
    assert check_rule(made, example)


@pytest.mark.parametrize(
    ("kind", "wanted", "literal", "matches"),
    [
        ("f32", "0", "0", True),
        ("f32", "0", "-0", False),
        ("f32", "1", "1.0", True),
        ("s64", "9007199254740992", "9007199254740993", False),
        ("s64", "7", "7", True),
    ],
)
def test_literals_are_matched_exactly(kind, wanted, literal, matches) -> None:
    line = f"  z = {kind}[] constant({literal})\n  b = {kind}[2] broadcast(z), dimensions={{}}\n"
    module = one_operation(kind, line + f"  ROOT r = {kind}[2] subtract(x, b)")
    made = Rule(
        "literal",
        before=f"z = constant({wanted})\nb = broadcast(z), dimensions={{}}\nROOT r = subtract(a, b)",
        after="ROOT r = negate(a)",
    )
    found = list(made.replacements(Subject(hloenv.HloModule.from_text(module))))
    assert bool(found) == matches


@pytest.mark.parametrize("after", ["a", "%a", "ROOT r = a", "ROOT %r = %a"])
def test_a_value_of_before_is_a_replacement(after) -> None:
    module = one_operation("f32", "  n = f32[2] negate(x)\n  ROOT r = f32[2] negate(n)")
    made = Rule("twice", "n = negate(a)\nROOT r = negate(n)", after)
    (found,) = made.replacements(Subject(hloenv.HloModule.from_text(module)))
    assert check_rule(made, module)
    assert "negate" not in found.body


@pytest.mark.timeout(60)
@pytest.mark.parametrize("name", ["r", "s", "add", "e"])
def test_computations_may_have_the_names_of_instructions(name) -> None:
    text = f"""HloModule m

{name} {{
  p = f32[] parameter(0)
  q = f32[] parameter(1)
  ROOT {name} = f32[] add(p, q)
}}

ENTRY main {{
  a = f32[8,8] parameter(0)
  b = f32[8,8] parameter(1)
  c = f32[8,8] parameter(2)
  z = f32[] constant(0)
  x = f32[8,8] dot(a, b), {MM}
  y = f32[8,8] dot(c, b), {MM}
  w = f32[8,8] add(x, y)
  ROOT o = f32[8] reduce(w, z), dimensions={{1}}, to_apply={name}
}}
"""
    alternatives = hloenv.HloEnv(text).get_alternatives("substitutions")
    assert len(alternatives)
    subject = Subject(hloenv.HloModule.from_text(text))
    (called,) = subject.called_in(f"reduce(%w, %z), to_apply=%{name}")
    assert subject.computation_text(called).count("ROOT") == 1
    assert list(subject.called_in("%main = f32[8] add(%r, %s)")) == []


def test_an_example_in_which_a_rule_does_not_apply_is_refused() -> None:
    with pytest.raises(RuleError, match="does not apply"):
        check_rule(Rule("never", "ROOT r = sine(a)", "ROOT r = sine(a)"), SUM)


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("r = add(a, b)", "ROOT r = add(a, b)", "one line with ROOT"),
        ("ROOT r = add(a, b)", "r = add(a, b)", "one line with ROOT"),
        ("ROOT r = add(a,", "ROOT r = add(a, b)", "is not"),
        ("ROOT r = add(a, 1)", "ROOT r = add(a, a)", "is not a name"),
        ("ROOT r = add(a, b)", "ROOT r = add(a, c)", r"reads \['c'\]"),
        ("ROOT r = add(a, b)", "ROOT s = add(r, a)", "which it replaces"),
        ("x = sine(a)\nROOT r = add(a, b)", "ROOT r = add(a, b)", "does not depend"),
        ("a = sine(b)\na = sine(b)\nROOT r = sine(a)", "ROOT r = sine(b)", "second"),
        ("ROOT r = transpose(a), $p", "ROOT r = transpose(a), $q", "placeholders"),
        ("ROOT r = $f(a)", "ROOT r = $f(a)", "placeholder"),
        (
            "x = sine(a)\ny = sine(b)\nROOT r = tuple(x, y)",
            "x = sine(a)\ny = sine(b)\nROOT r = tuple(x, y)",
            "shares no value",
        ),
        (
            "x = sine(a)\nROOT r = tuple(x)",
            "x = sine(a)\ny = sine(a)\nROOT r = tuple(x, y)",
            "roots",
        ),
        ("ROOT r = add(a, b), x, $y", "ROOT r = add(a, b)", "neither"),
    ],
)
def test_a_malformed_rule_is_refused(before, after, message) -> None:
    with pytest.raises(RuleError, match=message):
        Rule("bad", before, after)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"name": "No Name"}, "lower case"),
        ({"numerics": "good"}, "must be one of"),
        ({"where": 3}, "must be a function"),
        ({"before": None}, "`before`.*must be a str, got NoneType"),
        ({"before": 3}, "`before`.*must be a str, got int"),
        ({"after": 3}, "`after`.*must be a str, got int"),
        ({"doc": None}, "`doc`.*must be a str"),
        ({"opcodes": {"f": 3}}, "sequence of opcodes"),
        ({"opcodes": {"f": "negate"}}, "sequence of opcodes"),
        ({"opcodes": {"f": ()}}, "sequence of opcodes"),
        ({"opcodes": {"f": (1,)}}, "sequence of opcodes"),
        ({"opcodes": ("negate",)}, "sequence of opcodes"),
        (
            {
                "after": 'ROOT r = custom-call(a), custom_call_target="hloenv.alternative"'
            },
            "stands for a decision",
        ),
    ],
)
def test_wrong_arguments_of_a_rule_are_refused(arguments, message) -> None:
    given = {"name": "x", "before": "ROOT r = sine(a)", "after": "a", **arguments}
    with pytest.raises(RuleError, match=message):
        Rule(**given)


@pytest.mark.parametrize(
    ("after", "where", "message"),
    [
        ("ROOT r = dot(a, b)", None, "gives f32"),
        ("ROOT r = f32[3] broadcast(a), dimensions={5}", None, "invalid"),
        ("z = f32[] constant(x)\nROOT r = add(a, z)", None, "invalid"),
        ("ROOT r = f32[1] slice(a), slice={[0:1], [0:1]}", None, "invalid"),
        ("ROOT r = concatenate(a, b), dimensions={0}", None, "gives f32"),
        ("ROOT r = add(a, b), $x", lambda m: {}, "has no text"),
        ("ROOT r = add(a, b)", lambda m: m["nothing"], "KeyError"),
        ("ROOT r = add(a, b)", lambda m: np.zeros(2), "returns ndarray"),
        (
            "ROOT r = $r.shape custom-call(a), $x",
            lambda m: {"x": 'custom_call_target="hloenv.alternative"'},
            "stands for a decision",
        ),
    ],
)
def test_a_replacement_that_xla_rejects_names_the_rule(after, where, message) -> None:
    made = Rule("bad", "ROOT r = add(a, b)", after, where)
    with pytest.raises(PassError, match="'bad'.*" + message):
        capture_rules(hloenv.HloModule.from_text(SUM), [made])


def test_a_replacement_that_reads_nothing_may_use_the_names_of_its_rule() -> None:
    text = "z = f32[] constant(0)\nROOT r = f32[2] broadcast(z), dimensions={}"
    made = Rule(
        "zeros",
        "ROOT r = f32[2] subtract(a, a)",
        """
        r = f32[] constant(0)
        unread = f32[] negate(r)
        ROOT unread_ = f32[2] broadcast(unread), dimensions={}
        """,
    )
    example = SUM.replace("add(y, x)", "subtract(y, y)").replace("[2,2]", "[2]")
    example = re.sub(r"dot\((\w), (\w)\), .*", r"add(\1, \2)", example)
    assert check_rule(made, example) > 0
    same = Rule("same", "ROOT r = f32[2] subtract(a, a)", text)
    assert check_rule(same, example) > 0


def test_the_examples_of_a_rule_may_be_one() -> None:
    with pytest.raises(RuleError, match="must be modules, HLO text or paths, got int"):
        rule("one", examples=3, **FACTOR)
    for example in (SUM, hloenv.HloModule.from_text(SUM)):
        try:
            rule("one", examples=example, **FACTOR)
        finally:
            remove_pass("one")
    with pytest.raises(RuleError, match="does not apply"):
        rule("one", examples=SUM.replace("dot", "add").replace(f", {MM}", ""), **FACTOR)


def test_shapes_types_and_literals_are_matched() -> None:
    text = """HloModule m

ENTRY main {
  a = f32[2,3] parameter(0)
  b = s32[3,3] parameter(1)
  zero = f32[] constant(0)
  one = f32[] constant(1)
  p = f32[2,3] broadcast(zero), dimensions={}
  q = f32[2,3] broadcast(one), dimensions={}
  x = f32[2,3] add(a, p)
  y = f32[2,3] add(q, x)
  z = s32[3,3] add(b, b)
  ROOT t = (f32[2,3], s32[3,3]) tuple(y, z)
}
"""
    subject = Subject(hloenv.HloModule.from_text(text))

    def places(before: str, after: str = "a") -> list[str]:
        made = Rule("x", before, after)
        return [each.originals[0] for each in made.replacements(subject)]

    zero = "z = constant(0)\nb = broadcast(z), $d\nROOT r = add(a, b)"
    assert places(zero) == ["x"]
    assert places("ROOT r = T[n,n] add(a, b)") == ["z"]
    assert places("ROOT r = f32[m,n] add(a, b)") == ["x", "y"]
    assert places("ROOT r = s32[3,3] add(a, a)") == ["z"]
    assert places("ROOT r = f32[3] add(a, b)") == []


@pytest.mark.parametrize(("narrow", "wide"), [("s8", "s32"), ("bf16", "f32")])
def test_a_product_of_another_type_matches_a_line_with_a_type(narrow, wide) -> None:
    # A sum of s8 operands wraps; that of their products in s32 does not.
    text = SUM.replace("f32", wide)
    text = text.replace(f"{wide}[2,2] parameter", f"{narrow}[2,2] parameter")
    module = hloenv.HloModule.from_text(text)
    assert not list(Rule("untyped", **FACTOR).replacements(Subject(module)))
    typed = Rule(
        "typed",
        """
        ab = T[n,n] dot(a, b), $dims
        cb = T[n,n] dot(c, b), $dims
        ROOT r = add(ab, cb)
        """,
        """
        wide_a = $r.shape convert(a)
        wide_b = $r.shape convert(b)
        wide_c = $r.shape convert(c)
        s = add(wide_a, wide_c)
        ROOT r = dot(s, wide_b), $dims
        """,
    )
    assert check_rule(typed, module) > 0
    alternatives = hloenv.HloEnv(module).get_alternatives("substitutions")
    rules = {choice.rule for each in alternatives for choice in each.choices[1:]}
    assert not {name for name in rules if "dot" in name}


def test_a_rule_may_use_the_elements_of_a_large_constant() -> None:
    swap = Rule(
        "swap",
        "c = constant($elements)\nROOT r = f32[n] add(x, c)",
        "d = f32[n] constant($elements)\nROOT r = add(d, x)",
    )
    elements = ", ".join(map(str, range(20, 32)))
    module = hloenv.HloModule.from_text(
        "HloModule m\nENTRY main {\n  x = f32[12] parameter(0)\n"
        f"  c = f32[12] constant({{{elements}}})\n  ROOT r = f32[12] add(x, c)\n}}\n"
    )
    alternatives = capture_rules(module, [swap])
    made = alternatives.apply(np.ones(len(alternatives), np.int64)).to_text()
    assert f"constant({{{elements}}})" in made
    assert re.search(r"add\(%[\w.]*d[\w.]*, %x", made)


def test_only_rewritable_computations_are_matched() -> None:
    text = """HloModule m

sum {
  p = f32[] parameter(0)
  q = f32[] parameter(1)
  ROOT s = f32[] add(p, q)
}

body {
  p = (s32[], f32[4]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  x = f32[4] get-tuple-element(p), index=1
  one = s32[] constant(1)
  j = s32[] add(i, one)
  y = f32[4] add(x, x)
  ROOT t = (s32[], f32[4]) tuple(j, y)
}

condition {
  p = (s32[], f32[4]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  n = s32[] constant(3)
  ROOT c = pred[] compare(i, n), direction=LT
}

ENTRY main {
  x = f32[4] parameter(0)
  zero = s32[] constant(0)
  t = (s32[], f32[4]) tuple(zero, x)
  w = (s32[], f32[4]) while(t), condition=condition, body=body
  y = f32[4] get-tuple-element(w), index=1
  f = f32[] constant(0)
  ROOT r = f32[] reduce(y, f), dimensions={0}, to_apply=sum
}
"""
    module = hloenv.HloModule.from_text(text)
    double = Rule(
        "double",
        "ROOT r = T[n] add(a, a)",
        """
        two = T[] constant(2)
        b = T[n] broadcast(two), dimensions={}
        ROOT r = multiply(a, b)
        """,
        numerics="exact",
    )
    alternatives = capture_rules(module, [double])
    assert [each.original for each in alternatives] == ["y"]
    assert check_rule(double, module) > 0


def test_a_rule_keeps_the_computations_that_its_instructions_call() -> None:
    text = """HloModule m

sum {
  p = f32[] parameter(0)
  q = f32[] parameter(1)
  ROOT s = f32[] add(p, q)
}

ENTRY main {
  x = f32[2,3] parameter(0)
  z = f32[] constant(0)
  n = f32[2,3] negate(x)
  ROOT r = f32[2] reduce(n, z), dimensions={1}, to_apply=sum
}
"""
    out = Rule(
        "negate-after-reduce",
        "n = negate(x)\nz = constant(0)\nROOT r = reduce(n, z), $attrs",
        "s = reduce(x, z), $attrs\nROOT r = negate(s)",
    )
    assert check_rule(out, text) > 0


def test_many_partners_are_capped() -> None:
    users = 300
    lines = [f"  v{i} = f32[4] sine(x)" for i in range(users)]
    names = ", ".join(f"v{i}" for i in range(users))
    shapes = ", ".join(["f32[4]"] * users)
    text = (
        "HloModule m\n\nENTRY main {\n  x = f32[4] parameter(0)\n"
        + "\n".join(lines)
        + f"\n  ROOT t = ({shapes}) tuple({names})\n}}\n"
    )
    pair = Rule(
        "pair",
        "p = sine(x)\nq = sine(x)\nROOT r = tuple(p, q)",
        "p = sine(x)\nROOT r = tuple(p, p)",
        ordered=True,
    )
    subject = Subject(hloenv.HloModule.from_text(text))
    assert 0 < len(list(pair.replacements(subject))) <= users * MAX_PARTNERS


def test_two_rules_of_one_pass_must_differ_in_name() -> None:
    same = Rule("x", "ROOT r = sine(a)", "ROOT r = cosine(a)")
    with pytest.raises(RuleError, match="different names"):
        RulePass("two", [same, same])
    with pytest.raises(RuleError, match="different names"):
        RulePass("none", [])


def test_a_pass_of_a_type_that_proposes_something_else_is_refused() -> None:
    class Odd:
        info = RulePass("odd", [Rule("x", "ROOT r = sine(a)", "a")]).info

        def propose(self, module, options):
            return []

    add_pass(Odd())
    try:
        with pytest.raises(PassError, match="must return"):
            hloenv.HloEnv(SUM).get_alternatives("odd")
    finally:
        remove_pass("odd")
