# SPDX-License-Identifier: Apache-2.0
"""Passes that are functions of modules."""

from __future__ import annotations

import contextlib
import re

import numpy as np
import pytest

import hloenv
from hloenv.errors import PassError, PassOptionError
from hloenv.hlo.python_passes import remove_pass
from hloenv.rules import register_pass
from hloenv.rules.matcher import Match
from hloenv.rules.passes import to_proposals
from hloenv.rules.rule import Replacement

ZEROS = """HloModule zeros

ENTRY main {
  a = f32[4] parameter(0)
  b = f32[4] parameter(1)
  z = f32[] constant(0)
  t = f32[4] broadcast(z), dimensions={}
  x = f32[4] add(a, t)
  y = f32[4] multiply(x, b)
  u = f32[4] add(b, t)
  v = f32[4] sine(u)
  ROOT r = f32[4] subtract(y, v)
}
"""


ONE_INPUT = """HloModule one

ENTRY main {
  ROOT a = f32[4] parameter(0)
}
"""


@pytest.fixture
def simplify():
    @register_pass
    def my_simplify(module):
        """Runs algsimp."""
        return hloenv.run_passes(module, "algsimp").module

    yield "my-simplify"
    remove_pass("my-simplify")


def test_a_function_is_one_alternative(simplify) -> None:
    assert hloenv.describe_pass(simplify).summary == "Runs algsimp."
    alternatives = hloenv.HloEnv(ZEROS).get_alternatives(simplify)
    assert len(alternatives) == 1
    result = alternatives.apply([1])
    assert (
        result.fingerprint() == hloenv.run_passes(ZEROS, "algsimp").module.fingerprint()
    )
    assert {each.absolute for each in hloenv.verify_alternatives(alternatives)} == {0}


def test_the_regions_of_a_function_are_alternatives(simplify) -> None:
    env = hloenv.HloEnv(ZEROS)
    alternatives = env.get_alternatives(hloenv.Pass(simplify, regions=True))
    assert len(alternatives) == 2
    assert {each.absolute for each in hloenv.verify_alternatives(alternatives)} == {0}
    one = alternatives.apply([1, 0])
    assert one.opcode_counts()["add"] == 1
    both = alternatives.apply([1, 1])
    assert (
        both.fingerprint() == hloenv.run_passes(ZEROS, "algsimp").module.fingerprint()
    )


def test_a_wrong_region_is_found_by_verification() -> None:
    @register_pass(name="two-signs", regions=True)
    def negate_both(module):
        text = module.to_text()
        text = text.replace("add(%a, %t)", "subtract(%t, %a)")
        return text.replace("add(%b, %t)", "negate(%b)").replace("sine", "cosine")

    try:
        alternatives = hloenv.HloEnv(ZEROS).get_alternatives("two-signs")
        errors = hloenv.verify_alternatives(alternatives)
        assert max(each.relative for each in errors) > 0.1
    finally:
        remove_pass("two-signs")


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda module: None, "TypeError|must be"),
        (lambda module: 1 / 0, "ZeroDivisionError"),
        (lambda module: ONE_INPUT, "inputs and outputs"),
        (lambda module: "no module", "neither HLO nor a path"),
        (lambda module: "no\0module", "neither HLO nor a path"),
        (lambda module: "HloModule no module", "fails on.*ParseError"),
        (
            lambda module: ZEROS.replace(
                "sine(u)", 'custom-call(u), custom_call_target="hloenv.alternative"'
            ),
            "stands for a decision",
        ),
    ],
)
def test_a_function_that_fails_is_a_pass_error(function, message) -> None:
    register_pass(function, name="failing")
    try:
        with pytest.raises(PassError, match=message):
            hloenv.HloEnv(ZEROS).get_alternatives("failing")
    finally:
        remove_pass("failing")


_CALL = 'f32[4]{0} custom-call(%x), custom_call_target="f"'


@pytest.mark.parametrize(
    "changes",
    [
        [("  %y =", f"  %e = {_CALL}, custom_call_has_side_effect=true\n  %y =")],
        [("multiply(%x, %b)", "multiply(%x, %b), control-predecessors={%z}")],
        [("HloModule zeros", "HloModule zeros, input_output_alias={ {}: (0, {}) }")],
    ],
)
def test_a_function_whose_changes_are_not_all_replacements_is_refused(changes) -> None:
    def change(module):
        # One change that is a replacement, and one that is none.
        text = module.to_text().replace("add(%b, %t)", "add(%t, %b)")
        for old, new in changes:
            assert old in text
            text = text.replace(old, new)
        return text

    register_pass(change, name="changing")
    try:
        with pytest.raises(PassError, match="no replacement of arrays gives"):
            hloenv.HloEnv(ZEROS).get_alternatives("changing")
    finally:
        remove_pass("changing")


def test_replaced_values_that_depend_on_each_other_are_one_alternative() -> None:
    text = """HloModule chain

ENTRY main {
  a = f32[4] parameter(0)
  b = f32[4] parameter(1)
  n = f32[4] negate(a)
  x = f32[4] add(n, b)
  s = f32[4] sine(x)
  m = f32[4] negate(s)
  y = f32[4] add(m, b)
  unused = f32[4] add(n, a)
  ROOT r = (f32[4], f32[4]) tuple(y, s)
}
"""

    def fold(module):
        found = re.sub(r"add\(%n, %(\w)\)", r"subtract(%\1, %a)", module.to_text())
        return found.replace("add(%m, %b)", "subtract(%b, %s)")

    module = hloenv.HloModule.from_text(text)
    register_pass(fold, name="fold")
    try:
        for regions, count in ((False, 1), (True, 2)):
            made = hloenv.Pass("fold", regions=regions)
            alternatives = hloenv.HloEnv(module).get_alternatives(made)
            assert len(alternatives) == count
            result = alternatives.apply(np.ones(count, int))
            assert result.opcode_counts()["subtract"] == 2
            found = hloenv.verify_alternatives(alternatives)
            assert {each.absolute for each in found} == {0}
    finally:
        remove_pass("fold")


def test_a_function_may_change_the_shapes_of_operands() -> None:
    text = """HloModule slices

ENTRY main {
  a = f32[8] parameter(0)
  n = f32[8] negate(a)
  s = f32[4] slice(n), slice={[0:4]}
  ROOT r = f32[4] sine(s)
}
"""

    def shorten(module):
        old = "%n = f32[8]{0} negate(%a)"
        new = "%c = f32[6]{0} slice(%a), slice={[0:6]}\n  %n = f32[6]{0} negate(%c)"
        found = module.to_text()
        assert old in found
        return found.replace(old, new)

    register_pass(shorten, name="shorten")
    try:
        alternatives = hloenv.HloEnv(text).get_alternatives("shorten")
        assert len(alternatives) == 1
        assert {e.absolute for e in hloenv.verify_alternatives(alternatives)} == {0}
    finally:
        remove_pass("shorten")


def test_a_function_that_changes_nothing_gives_no_alternatives() -> None:
    register_pass(lambda module: module, name="idle")
    try:
        assert len(hloenv.HloEnv(ZEROS).get_alternatives("idle")) == 0
    finally:
        remove_pass("idle")


def test_no_function_is_refused() -> None:
    with pytest.raises(PassOptionError, match="must be a function"):
        register_pass(3, name="three")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        *(
            ({"name": name}, "the name of a pass must be lower case words joined by")
            for name in (3, None, "A pass", "a+b", "a:b=c", "-", "--pass", "ünï")
        ),
        ({"numerics": "none"}, "one of exact, rounding, unsafe, got 'none'"),
        ({"numerics": 3}, "one of exact, rounding, unsafe, got 3"),
        ({"numerics": []}, "one of exact, rounding, unsafe, got"),
    ],
)
def test_wrong_arguments_of_a_pass_are_refused(arguments, message) -> None:
    with pytest.raises(PassOptionError, match=message):
        register_pass(lambda module: module, **{"name": "wrong"} | arguments)
    assert "wrong" not in hloenv.list_passes()


def test_a_function_without_a_name_needs_one() -> None:
    class Callable:
        def __call__(self, module):
            return module

    for function in (lambda module: module, Callable()):
        with pytest.raises(PassOptionError, match=r"register_pass.*name='my-pass'"):
            register_pass(function)


def test_the_name_of_a_function_becomes_lower_case_words() -> None:
    def _Reads__All(module):  # noqa: N802
        return module

    register_pass(_Reads__All)
    try:
        assert "reads-all" in hloenv.list_passes()
    finally:
        remove_pass("reads-all")


def test_a_pass_in_itself_is_one_short_error() -> None:
    def again(module):
        return hloenv.HloEnv(module).get_alternatives("again").apply([])

    register_pass(again)
    try:
        with pytest.raises(PassError, match="'again' again, 10 times") as error:
            hloenv.HloEnv(ZEROS).get_alternatives("again")
        assert len(str(error.value)) < 200
        with pytest.raises(PassError, match="10 times"):  # the count starts again
            hloenv.HloEnv(ZEROS).get_alternatives("again")
    finally:
        remove_pass("again")


def test_a_rule_and_a_function_do_not_replace_each_other() -> None:
    sides = {"before": "ROOT r = add(a, b)", "after": "ROOT r = add(b, a)"}

    def same(module):
        return module

    try:
        register_pass(same)
        register_pass(same)
        with pytest.raises(PassOptionError, match="'same' of another kind"):
            hloenv.rule("same", **sides)
        remove_pass("same")
        hloenv.rule("same", **sides)
        hloenv.rule("same", **sides)
        with pytest.raises(PassOptionError, match="'same' of another kind"):
            register_pass(same)
    finally:
        remove_pass("same")


@pytest.mark.parametrize(
    "returned", [None, 3, "", b"HloModule m", [1], float("nan"), np.zeros(2)], ids=str
)
def test_what_is_no_module_is_a_pass_error(returned) -> None:
    register_pass(lambda _: returned, name="returning")
    try:
        with pytest.raises(PassError, match="the function of pass 'returning'"):
            hloenv.HloEnv(ZEROS).get_alternatives("returning")
    finally:
        remove_pass("returning")


@contextlib.contextmanager
def _returning(text: str):
    """A registered pass whose function always returns this module."""
    register_pass(lambda _: text, name="given")
    try:
        yield
    finally:
        remove_pass("given")


REDUCED = """HloModule reduced

combine {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}

ENTRY main {
  x = f32[4,4] parameter(0)
  zero = f32[] constant(0)
  r = f32[4] reduce(x, zero), dimensions={0}, to_apply=combine
  ROOT s = f32[4] negate(r)
}
"""


def test_a_called_computation_may_change_and_keep_its_name() -> None:
    with _returning(REDUCED.replace("add(a, b)", "maximum(a, b)")):
        module = hloenv.HloModule.from_text(REDUCED)
        alternatives = hloenv.HloEnv(module).get_alternatives("given")
        assert [each.original for each in alternatives] == ["r"]
        assert alternatives.apply([1]).opcode_counts()["negate"] == 1
        (record,) = hloenv.verify_alternatives(alternatives)
    assert record.relative > 0.1  # the function is wrong, and that shows


LOOP = """HloModule loop

body {
  s = (s32[], f32[4], f32[4]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[4] get-tuple-element(s), index=1
  u = f32[4] get-tuple-element(s), index=2
  one = s32[] constant(1)
  j = s32[] add(i, one)
  y = f32[4] sine(x)
  ROOT t = (s32[], f32[4], f32[4]) tuple(j, y, u)
}

condition {
  s = (s32[], f32[4], f32[4]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(3)
  ROOT c = pred[] compare(i, n), direction=LT
}

ENTRY main {
  p = f32[4] parameter(0)
  zero = s32[] constant(0)
  a = (s32[], f32[4], f32[4]) tuple(zero, p, p)
  w = (s32[], f32[4], f32[4]) while(a), condition=condition, body=body
  ROOT r = f32[4] get-tuple-element(w), index=1
}
"""


def test_a_loop_with_another_state_is_replaced_as_a_whole() -> None:
    smaller = (
        LOOP.replace("(s32[], f32[4], f32[4])", "(s32[], f32[4])")
        .replace("  u = f32[4] get-tuple-element(s), index=2\n", "")
        .replace("tuple(j, y, u)", "tuple(j, y)")
        .replace("tuple(zero, p, p)", "tuple(zero, p)")
    )
    with _returning(smaller):
        module = hloenv.HloModule.from_text(LOOP)
        alternatives = hloenv.HloEnv(module).get_alternatives("given")
        assert [each.original for each in alternatives] == ["r"]
        wanted = hloenv.HloModule.from_text(smaller)
        assert alternatives.apply([1]).fingerprint() == wanted.fingerprint()
        (record,) = hloenv.verify_alternatives(alternatives)
    assert (record.relative, record.num_nans_lost) == (0, 0)


def test_the_result_may_have_another_layout_than_row_major() -> None:
    text = """HloModule turned

ENTRY main {
  x = f32[4,2]{1,0} parameter(0)
  y = f32[4,2]{1,0} negate(x)
  ROOT t = f32[2,4]{0,1} transpose(y), dimensions={1,0}
}
"""
    other = """HloModule turned

ENTRY main {
  x = f32[4,2]{1,0} parameter(0)
  t = f32[2,4]{0,1} transpose(x), dimensions={1,0}
  ROOT y = f32[2,4]{0,1} negate(t)
}
"""
    with _returning(other):
        module = hloenv.HloModule.from_text(text)
        (each,) = hloenv.HloEnv(module).get_alternatives("given")
    assert each.original == "t"


def test_values_between_changes_are_not_taken_for_equal() -> None:
    """One factor is doubled, the next one halved: what stands between is another value."""
    text = """HloModule scaled

ENTRY main {
  x = f32[4] parameter(0)
  two = f32[] constant(2)
  three = f32[] constant(3)
  b = f32[4] broadcast(two), dimensions={}
  c = f32[4] broadcast(three), dimensions={}
  y = f32[4] multiply(x, b)
  z = f32[4] multiply(y, c)
  ROOT t = f32[4] negate(z)
}
"""
    other = text.replace("constant(2)", "constant(4)").replace("(3)", "(1.5)")
    with _returning(other):
        module = hloenv.HloModule.from_text(text)
        alternatives = hloenv.HloEnv(module).get_alternatives("given")
        # Negation keeps what is equal, a product does not say so of its factors.
        assert [each.original for each in alternatives] == ["z"]
        (record,) = hloenv.verify_alternatives(alternatives)
        assert record.absolute == 0
        parts = hloenv.Pass("given", regions=True)
        wrong = hloenv.verify_alternatives(
            hloenv.HloEnv(module).get_alternatives(parts)
        )
    assert max(each.relative for each in wrong) > 0.1


@pytest.mark.parametrize(
    ("dtype", "large", "small"), [("f32", "1e30", "0"), ("pred", "true", "false")]
)
def test_equal_sums_do_not_say_that_their_terms_are(
    dtype: str, large: str, small: str
) -> None:
    """1e30 + x is 1e30 for any ordinary x, and the sum of predicates is their or."""
    text = f"""HloModule absorbed

ENTRY main {{
  x = {dtype}[4] parameter(0)
  y = {dtype}[4] parameter(1)
  c = {dtype}[] constant({large})
  b = {dtype}[4] broadcast(c), dimensions={{}}
  t = {dtype}[4] maximum(x, y)
  ROOT s = {dtype}[4] add(t, b)
}}
"""
    other = text.replace(
        f"  t = {dtype}[4] maximum(x, y)",
        f"  z = {dtype}[] constant({small})\n"
        f"  t = {dtype}[4] broadcast(z), dimensions={{}}",
    )
    with _returning(other):
        module = hloenv.HloModule.from_text(text)
        alternatives = hloenv.HloEnv(module).get_alternatives("given")
        assert [each.original for each in alternatives] == ["s"]
        (record,) = hloenv.verify_alternatives(alternatives)
    assert record.absolute == 0


INNER = """%f (a: f32[], b: f32[]) -> f32[] {{
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %r = f32[] {opcode}(%a, %b)
}}

%g (a: f32[], b: f32[]) -> f32[] {{
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %r = f32[] call(%a, %b), to_apply=%f
}}

"""
BODY = """{
  %x = f32[8] parameter(0)
  %i = f32[] parameter(1)
  ROOT %r = f32[] reduce(%x, %i), dimensions={0}, to_apply=%g
}
"""


def test_computations_of_one_name_are_told_apart() -> None:
    # As where two patterns of another program each name what they make.
    found = [
        Replacement(
            *(opcode, ("r",), ("x", "i"), BODY, INNER.format(opcode=opcode)),
            match=Match({}, {}),
        )
        for opcode in ("add", "multiply", "add")
    ]
    made = to_proposals(found)
    names = [each.computation for each in made.proposals]
    assert names[0] == names[2] != names[1]
    counts = made.library.opcode_counts()
    assert (counts["add"], counts["multiply"], counts["call"]) == (1, 1, 2)
