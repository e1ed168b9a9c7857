# SPDX-License-Identifier: Apache-2.0
"""`Alternatives`: the result of a capture."""

from __future__ import annotations

import itertools
import re

import numpy as np
import pytest

from hloenv.errors import (
    ArgumentTypeError,
    DecisionError,
    PositionWarning,
    UnknownPassError,
)
from hloenv.hlo.module import HloModule
from hloenv.hlo.passes import Pass, Pipeline, run_passes
from hloenv.rewrite.alternatives import Alternatives
from hloenv.rewrite.env import HloEnv
from hloenv.rewrite.verify import verify_alternatives
from hloenv.runtime.interpreter import interpret
from hloenv.runtime.random_inputs import random_inputs
from support.paths import TESTDATA

HLO = TESTDATA / "hlo"

# Taking the rewrite of "outer" makes that of "inner" dead.
NESTED = """HloModule nested

ENTRY main {
  x = f32[4] parameter(0)
  y = s32[4] parameter(1)
  zero = s32[] constant(0)
  zeros = s32[4] broadcast(zero), dimensions={}
  inner = f32[4] logistic(x)
  whole = s32[4] convert(inner)
  outer = s32[4] multiply(whole, zeros)
  ROOT out = s32[4] maximum(y, outer)
}
"""
BOTH = ("logistic-expander", "algsimp")


def _capture(text: str, *passes: str | Pass | Pipeline) -> Alternatives:
    return HloEnv(text).get_alternatives(*passes)


def _file(name: str) -> HloModule:
    return HloModule.from_file(HLO / f"{name}.hlo")


def test_choices_are_counted_with_the_original() -> None:
    alternatives = _capture(NESTED, *BOTH)
    assert [each.original for each in alternatives] == ["inner", "outer"]
    assert alternatives.num_choices.tolist() == [2, 2]
    assert alternatives.num_choices.dtype == np.int64
    assert not alternatives.num_choices.flags.writeable


def test_choice_zero_is_the_original() -> None:
    original, simplified = _capture(NESTED, *BOTH)[1].choices
    assert (original.opcode, original.passes) == ("multiply", ())
    assert original.instructions == original.makes_dead == ()
    assert (simplified.opcode, simplified.passes) == ("broadcast", ("algsimp",))


def test_a_choice_names_what_it_makes_dead() -> None:
    outer = _capture(NESTED, *BOTH)[1]
    # The replacement reads "zeros", which stays.
    assert set(outer.choices[1].makes_dead) == {"outer", "whole", "inner"}


def test_a_choice_names_the_instructions_that_it_adds() -> None:
    alternatives = HloEnv(_file("operand_swap")).get_alternatives("algsimp")
    (select,) = [each for each in alternatives if each.original == "select"]
    (added,) = select.choices[1].instructions
    assert f"{added} = f32[4]{{0}} select(" in alternatives.module.to_text()


def test_equal_rewrites_of_two_passes_are_one_choice() -> None:
    again = Pipeline("again", ["algsimp"])
    alternatives = _capture(NESTED, "algsimp", again)
    assert alternatives.num_choices.tolist() == [2]
    assert alternatives[0].choices[1].passes == ("algsimp", "again")


def test_competing_rewrites_are_choices_of_one_alternative() -> None:
    text = """HloModule m

ENTRY main {
  x = s32[4] parameter(0)
  twos = s32[4] constant({2, 2, 2, 2})
  four = s32[4] add(twos, twos)
  ROOT out = s32[4] maximum(four, x)
}
"""
    alternatives = _capture(text, "algsimp", "constant_folding")
    (four,) = [each for each in alternatives if each.original == "four"]
    assert [(choice.opcode, choice.passes) for choice in four.choices] == [
        ("add", ()),
        ("broadcast", ("algsimp",)),
        ("constant", ("constant_folding",)),
    ]


def test_fusions_that_share_alike_only_are_one_choice() -> None:
    """cse makes one of the two constants in the body of the second pass's fusion."""
    module = HloModule.from_text(
        """HloModule two_zeros

add { a = f32[] parameter(0) b = f32[] parameter(1) ROOT s = f32[] add(a, b) }

ENTRY e {
  x = f32[12,8,2] parameter(0)
  zero = f32[] constant(0)
  zeros = f32[12,8] broadcast(zero), dimensions={}
  initial = f32[] constant(0)
  sum = f32[12,8] reduce(x, initial), dimensions={2}, to_apply=add
  ROOT r = f32[12,8] multiply(zeros, sum)
}"""
    )
    fusion, both = (
        Pipeline("fusion only", ["fusion"]),
        Pipeline("both", ["fusion", "cse"]),
    )
    for passes in (
        [fusion, both],
        [both, fusion],
        [fusion, both, Pipeline("again", ["fusion"])],
    ):
        with pytest.warns(PositionWarning):
            alternatives = HloEnv(module).get_alternatives(*passes)
        (alternative,) = alternatives
        assert len(alternative.choices) == 3
        for each in passes:
            decided = alternatives.apply(alternatives.decisions_for(each.name))
            native = run_passes(module, each).module
            assert decided.fingerprint() == native.fingerprint()
            assert decided.opcode_counts() == native.opcode_counts()


def test_equal_constants_of_two_computations_stay_where_they_are() -> None:
    text = """HloModule m

helper {
  x = s32[] parameter(0)
  two = s32[] constant(2)
  four = s32[] add(two, two)
  ROOT out = s32[] maximum(four, x)
}

ENTRY main {
  x = s32[] parameter(0)
  two = s32[] constant(2)
  four = s32[] add(two, two)
  sum = s32[] add(four, x)
  ROOT out = s32[] call(sum), to_apply=helper
}
"""
    again = Pipeline("again", ["constant_folding"])
    alternatives = _capture(text, "constant_folding", again)
    assert alternatives.num_choices.tolist() == [2, 2]
    alternatives.module.verify()
    text = alternatives.module.to_text()
    assert HloModule.from_text(text).fingerprint() == alternatives.module.fingerprint()


def test_decisions_for_a_pass_are_its_native_run() -> None:
    env = HloEnv(NESTED)
    alternatives = env.get_alternatives("algsimp", "cse", "dce")
    for name in ("algsimp", "cse", "dce"):
        native = HloEnv(NESTED)
        native.run(name)
        decided = alternatives.apply(alternatives.decisions_for(name))
        assert decided.fingerprint() == native.fingerprint(), name


def test_decisions_for_a_pass_that_was_not_captured() -> None:
    with pytest.raises(
        UnknownPassError, match=r"'dce'.*'logistic-expander', 'algsimp'"
    ):
        _capture(NESTED, *BOTH).decisions_for("dce")


def test_apply_leaves_the_original_alone() -> None:
    module = HloModule.from_text(NESTED)
    before = module.to_text()
    alternatives = HloEnv(module).get_alternatives(*BOTH)
    alternatives.apply([1, 1])
    assert module.to_text() == before


def test_an_alternative_below_a_rejected_value_is_irrelevant() -> None:
    alternatives = _capture(NESTED, *BOTH)
    assert alternatives.relevant([0, 0]).tolist() == [True, True]
    assert alternatives.relevant([0, 1]).tolist() == [False, True]
    assert alternatives.relevant([-1, -1]).tolist() == [True, True]
    assert alternatives.relevant([-1, 1]).tolist() == [False, True]
    assert alternatives.relevant([1, -1]).tolist() == [True, True]


@pytest.mark.parametrize(
    "decisions",
    [
        [0],
        [0, 0, 0],
        [],
        [0, 2],
        [0, -1],
        [-2, 0],
        [0, 2**62],
        [0.0, 1.0],
        [[0, 1]],
        "01",
        None,
        [0, None],
        [0, [1]],
        np.array([0, 2**63], np.uint64),
    ],
    ids=repr,
)
def test_bad_decisions_are_rejected(decisions: object) -> None:
    alternatives = _capture(NESTED, *BOTH)
    with pytest.raises(DecisionError):
        alternatives.apply(decisions)  # type: ignore[arg-type]


@pytest.mark.parametrize("dtype", [np.int8, np.int32, np.uint16, np.int64, np.bool_])
def test_any_integers_are_decisions(dtype: type) -> None:
    alternatives = _capture(NESTED, *BOTH)
    expected = alternatives.apply([1, 0]).fingerprint()
    assert alternatives.apply(np.array([1, 0], dtype)).fingerprint() == expected
    strided = np.array([1, 5, 0, 5], np.int64)[::2]
    assert alternatives.apply(strided).fingerprint() == expected


def test_a_capture_without_rewrites_is_empty() -> None:
    module = HloModule.from_text(NESTED)
    alternatives = HloEnv(module).get_alternatives("batchnorm_expander")
    assert len(alternatives) == 0
    assert alternatives.num_choices.shape == (0,)
    assert alternatives.decisions_for("batchnorm_expander").shape == (0,)
    assert alternatives.relevant([]).shape == (0,)
    assert alternatives.apply([]).fingerprint() == module.fingerprint()
    assert alternatives.module.fingerprint() == module.fingerprint()
    assert verify_alternatives(alternatives, random_inputs(module, seed=0)) == []


def test_sequence_protocol() -> None:
    alternatives = _capture(NESTED, *BOTH)
    assert alternatives[-1].original == "outer"
    assert [each.index for each in alternatives[0:2]] == [0, 1]
    with pytest.raises(IndexError):
        alternatives[2]
    with pytest.raises(IndexError):
        alternatives[-3]
    with pytest.raises(ArgumentTypeError, match="by its number"):
        alternatives["outer"]


def test_the_alternative_graph_is_ordinary_hlo() -> None:
    graph = _capture(NESTED, *BOTH).module
    graph.verify()
    assert graph.opcode_counts()["custom-call"] == 2
    assert 'custom_call_target="hloenv.alternative"' in graph.to_text()
    again = HloModule.from_text(graph.to_text())
    assert again.fingerprint() == graph.fingerprint()
    assert HloModule.from_proto(graph.to_proto()).fingerprint() == graph.fingerprint()


def test_every_choice_is_compared_with_its_original() -> None:
    module = HloModule.from_text(NESTED)
    alternatives = HloEnv(module).get_alternatives(*BOTH)
    records = verify_alternatives(alternatives, random_inputs(module, seed=0))
    assert [(r.alternative, r.choice) for r in records] == [(0, 1), (1, 1)]
    assert [r.num_evaluations for r in records] == [1, 1]
    assert records[0].relative < 1e-6
    assert records[1].absolute == 0


def test_alternatives_in_a_loop_body_are_compared_in_each_iteration() -> None:
    module = _file("loop_nested")
    alternatives = HloEnv(module).get_alternatives("algsimp")
    records = verify_alternatives(alternatives, random_inputs(module, seed=0))
    by_original = {
        alternatives[record.alternative].original: record.num_evaluations
        for record in records
    }
    assert by_original["product"] == 3
    assert by_original["back"] == 6


# --- the traps ----------------------------------------------------------------


def test_operands_that_swap_in_place_are_one_alternative_of_their_user() -> None:
    alternatives = HloEnv(_file("operand_swap")).get_alternatives("algsimp")
    assert [each.original for each in alternatives] == ["select", "subtract"]
    assert {each.kind for each in alternatives} == {"instruction"}


@pytest.mark.parametrize("name", ["cycle_pipeline", "cycle_pipeline_reversed"])
def test_mixed_decisions_close_no_cycle(name: str) -> None:
    module = _file(name)
    both = Pipeline("both", ["algsimp", "cse"])
    alternatives = HloEnv(module).get_alternatives(both)
    # The pass itself adds nothing: what the choices add are copies that keep
    # mixed decisions from closing a cycle.
    assert any(
        choice.instructions for each in alternatives for choice in each.choices[1:]
    )
    inputs = random_inputs(module, seed=0)
    expected = interpret(module, *inputs)
    for decisions in itertools.product(*map(range, alternatives.num_choices)):
        decided = alternatives.apply(decisions)
        decided.verify()
        for want, got in zip(expected, interpret(decided, *inputs), strict=True):
            np.testing.assert_array_equal(got, want)
    native = HloEnv(module)
    native.run(both)
    accepted = alternatives.apply(alternatives.decisions_for("both"))
    assert accepted.fingerprint() == native.fingerprint()


def test_fusions_that_exclude_each_other_are_not_both_offered() -> None:
    module = _file("cycle_fusion")
    with pytest.warns(UserWarning, match="before layout assignment"):
        alternatives = HloEnv(module).get_alternatives("general-fusion")
    inputs = random_inputs(module, seed=0)
    expected = interpret(module, *inputs)
    assert len(alternatives)
    for decisions in itertools.product(*map(range, alternatives.num_choices)):
        decided = alternatives.apply(decisions)
        decided.verify()
        for want, got in zip(expected, interpret(decided, *inputs), strict=True):
            np.testing.assert_array_equal(got, want)


def test_equal_random_draws_stay_two() -> None:
    module = _file("effects_rng")
    env = HloEnv(module)
    for name in ("cse", "dce", "algsimp"):
        alternatives = env.get_alternatives(name)
        decided = alternatives.apply(alternatives.decisions_for(name))
        assert decided.opcode_counts()["rng"] == 3


def test_effects_in_a_loop_that_nothing_reads_still_happen() -> None:
    alternatives = HloEnv(_file("effects_in_loop")).get_alternatives("algsimp")
    assert len(alternatives) > 0
    for decisions in itertools.product(*map(range, alternatives.num_choices)):
        counts = alternatives.apply(decisions).opcode_counts()
        assert (counts["while"], counts["outfeed"]) == (1, 1)


def test_custom_calls_with_effects_stay_and_pure_ones_merge() -> None:
    alternatives = HloEnv(_file("effects_custom_call")).get_alternatives("cse")
    decided = alternatives.apply(alternatives.decisions_for("cse"))
    targets = decided.to_text()
    assert targets.count('custom_call_target="log_values"') == 2
    assert targets.count('custom_call_target="pure"') == 1
    kept = alternatives.apply(alternatives.reject_all()).to_text()
    assert kept.count('custom_call_target="pure"') == 2


def test_only_the_uses_that_a_pass_rewired_are_sites() -> None:
    module = _file("one_use")
    alternatives = HloEnv(module).get_alternatives("algsimp")
    sites = {
        site.original: [use.user for use in site.uses]
        for each in alternatives
        for site in each.sites
    }
    # The slice reads x instead of the concatenate, which its other users keep.
    assert set(sites["part"]) == {"dot", "again"}
    assert "joined" not in sites


def test_a_root_that_changes_is_a_use_by_nobody() -> None:
    alternatives = HloEnv(_file("root_becomes_parameter")).get_alternatives("algsimp")
    (root,) = alternatives
    (site,) = root.sites
    assert [(use.user, use.operand) for use in site.uses] == [("", 0)]
    assert alternatives.apply([1]).instruction_count == 1


def test_rewrites_inside_a_shared_computation_are_decided_once() -> None:
    alternatives = HloEnv(_file("shared_computation")).get_alternatives("algsimp")
    (scaled,) = alternatives
    assert [site.computation for site in scaled.sites] == ["leaf"]
    decided = alternatives.apply([1])
    assert decided.opcode_counts()["call"] == 4
    assert "leaf" in decided.to_text()


def test_an_indivisible_pass_is_one_alternative_with_its_reason() -> None:
    module = _file("aliasing")
    alternatives = HloEnv(module).get_alternatives(
        "algsimp", "optimize_input_output_buffer_alias"
    )
    whole = alternatives[-1]
    assert whole.kind == "pass"
    assert (
        "the aliasing" in alternatives.indivisible["optimize_input_output_buffer_alias"]
    )
    assert whole.choices[1].opcode == "module"
    # The others do not matter once the whole is taken.
    taken = alternatives.decisions_for("optimize_input_output_buffer_alias")
    mask = alternatives.relevant(taken)
    assert mask.tolist() == [False] * (len(alternatives) - 1) + [True]


def test_dead_code_of_the_input_is_no_alternative() -> None:
    alternatives = HloEnv(_file("dead_code")).get_alternatives("algsimp")
    assert [each.original for each in alternatives] == ["x.same"]
    alternatives.module.verify()


def test_control_dependencies_survive_every_decision() -> None:
    module = _file("control_dependencies")
    for name in ("algsimp", "cse", "dce"):
        alternatives = HloEnv(module).get_alternatives(name)
        for decisions in itertools.product(*map(range, alternatives.num_choices)):
            decided = alternatives.apply(decisions)
            decided.verify()
            edges = re.findall(
                r"%(\w+) = .*control-predecessors={(.*)}", decided.to_text()
            )
            assert dict(edges) == {
                "dead": "%first",
                "second": "%first, %dead",
                "fifth": "%fourth",
            }


def test_the_same_capture_twice_is_the_same() -> None:
    module = _file("simplifications")
    first, second = (
        HloEnv(module).get_alternatives("algsimp", "cse") for _ in range(2)
    )
    assert [repr(each) for each in first] == [repr(each) for each in second]
    assert first.module.to_text() == second.module.to_text()
