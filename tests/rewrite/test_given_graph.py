# SPDX-License-Identifier: Apache-2.0
"""Alternatives that another program wrote."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

import hloenv
from hloenv.errors import (
    DecisionError,
    InvalidModuleError,
    ParseError,
    StaleAlternativesError,
    UnknownPassError,
)
from hloenv.fuzz.generator.module import random_module

# The second alternative reads the first one, as the classes of an e-graph do.
NESTED = """HloModule nested

ENTRY main {
  x = f32[4] parameter(0)
  two = f32[] constant(2)
  b = f32[4] broadcast(two), dimensions={}
  m = f32[4] multiply(x, b)
  s = f32[4] add(x, x)
  first = f32[4] custom-call(m, s), custom_call_target="hloenv.alternative", backend_config={"alternative":"0","kind":"instruction","passes":"mine"}
  n = f32[4] negate(first)
  z = f32[] constant(0)
  c = f32[4] broadcast(z), dimensions={}
  d = f32[4] subtract(c, first)
  e = f32[4] sine(first)
  ROOT second = f32[4] custom-call(n, d, e), custom_call_target="hloenv.alternative", backend_config={"alternative":"1","kind":"instruction","passes":"mine|other,mine"}
}
"""


def test_choices_may_read_other_alternatives() -> None:
    found = hloenv.Alternatives.from_module(NESTED)
    assert found.num_choices.tolist() == [2, 3]
    assert found.pass_names == ("mine", "other")
    assert found[0].original == "m"
    assert [each.passes for each in found[1].choices] == [
        (),
        ("mine",),
        ("other", "mine"),
    ]
    assert found[1].choices[1].opcode == "subtract"
    assert set(found[1].choices[1].instructions) == {"z", "c", "d"}
    assert found[0].choices[1].makes_dead == ("two", "b", "m")
    counts = found.apply([1, 1]).opcode_counts()
    assert counts == {
        "parameter": 1,
        "add": 1,
        "constant": 1,
        "broadcast": 1,
        "subtract": 1,
    }
    assert found.decisions_for("other").tolist() == [0, 2]
    assert found.relevant([0, 0]).tolist() == [True, True]


def test_a_wrong_choice_is_found() -> None:
    found = hloenv.Alternatives.from_module(NESTED)
    errors = {
        (each.alternative, each.choice): each.relative
        for each in hloenv.verify_alternatives(found)
    }
    assert errors[0, 1] == 0
    assert errors[1, 1] == 0
    assert errors[1, 2] > 0.1
    assert len(hloenv.verify_alternatives(found, float64=True)) == 3


def test_a_given_graph_pickles_and_goes_on_in_xla() -> None:
    found = pickle.loads(pickle.dumps(hloenv.Alternatives.from_module(NESTED)))
    module = found.apply([1, 1])
    (output,) = hloenv.compile(module, isolate=False)(np.arange(4, dtype=np.float32))
    assert output.tolist() == [0, -2, -4, -6]
    assert found.costs.flops.tolist()[:2] == [0.0, 0.0]


@pytest.mark.parametrize("seed", range(4))
def test_the_graph_of_a_capture_is_the_capture(seed) -> None:
    module = hloenv.HloModule.from_text(random_module(seed))
    alternatives = hloenv.HloEnv(module).get_alternatives("reassociate", "cse")
    again = hloenv.Alternatives.from_module(alternatives.module.to_text())
    assert again.num_choices.tolist() == alternatives.num_choices.tolist()
    rng = np.random.default_rng(seed)
    for _ in range(3):
        decisions = rng.integers(0, alternatives.num_choices)
        want = alternatives.apply(decisions).fingerprint()
        assert again.apply(decisions).fingerprint() == want


def _site(operands: str, config: str) -> str:
    return (
        "HloModule m\n\nENTRY main {\n  x = f32[4] parameter(0)\n"
        "  y = f32[5] parameter(1)\n  z = f32[4] negate(x)\n"
        f"  ROOT a = f32[4] custom-call({operands}), "
        'custom_call_target="hloenv.alternative"'
        f"{', backend_config=' + config if config else ''}\n}}\n"
    )


_GOOD = '{"alternative":"0","kind":"instruction","passes":"p"}'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (_site("x, z", ""), "has no number"),
        (_site("x, z", '{"alternative":"x"}'), "has no number"),
        (_site("x", _GOOD), "has 1 operands"),
        (_site("x, y", _GOOD), "give both one shape"),
        (_site("x, z", _GOOD.replace('"0"', '"1"')), "0 is missing"),
        (_site("x, z", _GOOD.replace('"0"', '"-1"')), "-1"),
        (_site("x, z", _GOOD.replace('"0"', '"9000000000000"')), "is missing"),
        (_site("x, z", _GOOD.replace("instruction", "pass")), "of kind 'pass'"),
    ],
)
def test_an_inconsistent_graph_is_refused(text, message) -> None:
    with pytest.raises(InvalidModuleError, match=message):
        hloenv.Alternatives.from_module(text)


_TWO = """HloModule m

ENTRY main {
  x = f32[4] parameter(0)
  y = f32[4] parameter(1)
  z = f32[4] negate(x)
  a = f32[4] custom-call(x, z), custom_call_target="hloenv.alternative", backend_config=CONFIG
  b = f32[4] custom-call(y, z), custom_call_target="hloenv.alternative", backend_config=CONFIG
  ROOT r = f32[4] add(a, b)
}
"""


def test_one_number_of_two_values_is_of_kind_sites() -> None:
    with pytest.raises(InvalidModuleError, match="originals 'x', 'y'; number each"):
        hloenv.Alternatives.from_module(_TWO.replace("CONFIG", _GOOD))
    config = _GOOD.replace("instruction", "sites")
    found = hloenv.Alternatives.from_module(_TWO.replace("CONFIG", config))
    assert [len(each.sites) for each in found] == [2]


def test_text_that_is_no_module_is_refused() -> None:
    with pytest.raises(ParseError):
        hloenv.Alternatives.from_module("HloModule m\n\nENTRY e {")


@pytest.mark.parametrize("decisions", [[0], [0, 3], [2, 0], [-1, 0], [0.5, 0]])
def test_wrong_decisions_are_refused(decisions) -> None:
    with pytest.raises(DecisionError):
        hloenv.Alternatives.from_module(NESTED).apply(decisions)


def test_a_pass_that_offers_nothing_is_unknown() -> None:
    with pytest.raises(UnknownPassError, match="mine, other"):
        hloenv.Alternatives.from_module(NESTED).decisions_for("cse")


def test_an_environment_takes_only_its_own_alternatives() -> None:
    found = hloenv.Alternatives.from_module(NESTED)
    env = hloenv.HloEnv(found.apply([0, 0]))
    with pytest.raises(StaleAlternativesError):
        env.apply_alternatives([0, 0], found)


def test_a_module_without_alternatives_has_none() -> None:
    text = "HloModule m\n\nENTRY main {\n  ROOT x = f32[4] parameter(0)\n}\n"
    found = hloenv.Alternatives.from_module(text)
    assert len(found) == 0
    assert (
        found.apply([]).fingerprint() == hloenv.HloModule.from_text(text).fingerprint()
    )


EFFECTS = """HloModule effects

ENTRY main {
  lo = f32[] constant(0)
  hi = f32[] constant(1)
  a = f32[4] rng(lo, hi), distribution=rng_uniform
  b = f32[4] rng(lo, hi), distribution=rng_uniform
  n = f32[4] negate(b)
  ROOT r = f32[4] custom-call(a, n), custom_call_target="hloenv.alternative", backend_config={"alternative":"0","kind":"instruction","passes":"p"}
}
"""


def test_choices_with_effects_of_their_own_are_refused() -> None:
    """One that is not taken would draw its numbers all the same."""
    with pytest.raises(InvalidModuleError, match="instruction 'a' has a side effect"):
        hloenv.Alternatives.from_module(EFFECTS)
    effect = EFFECTS.replace(
        "custom_call_target=", "custom_call_has_side_effect=true, custom_call_target="
    )
    for number, name in enumerate("ab"):
        drawn = f"{name} = f32[4] rng(lo, hi), distribution=rng_uniform"
        effect = effect.replace(drawn, f"{name} = f32[4] parameter({number})")
    with pytest.raises(InvalidModuleError, match="alternative 'r' has a side effect"):
        hloenv.Alternatives.from_module(effect)
    # Of what others read as well, all choices may read the result.
    shared = EFFECTS.replace(
        "ROOT r = f32[4] custom-call(a, n)", "r = f32[4] custom-call(a, n)"
    )
    shared = shared.replace(
        "\n}\n", "\n  ROOT t = (f32[4], f32[4], f32[4]) tuple(a, b, r)\n}\n"
    )
    found = hloenv.Alternatives.from_module(shared)
    for choice in (0, 1):
        assert found.apply([choice]).opcode_counts()["rng"] == 2


def test_an_effect_that_every_choice_needs_may_stay() -> None:
    text = EFFECTS.replace("n = f32[4] negate(b)", "n = f32[4] negate(a)")
    text = text.replace("  b = f32[4] rng(lo, hi), distribution=rng_uniform\n", "")
    found = hloenv.Alternatives.from_module(text)
    for choice in (0, 1):
        assert found.apply([choice]).opcode_counts()["rng"] == 1


def test_an_effect_that_two_alternatives_share_is_refused() -> None:
    """With the first choice of both, nothing reads it."""
    text = """HloModule shared

ENTRY main {
  lo = f32[] constant(0)
  hi = f32[] constant(1)
  x = f32[4] parameter(0)
  e = f32[4] rng(lo, hi), distribution=rng_uniform
  f = f32[4] negate(e)
  g = f32[4] cosine(e)
  r = f32[4] custom-call(x, f), custom_call_target="hloenv.alternative", backend_config={"alternative":"0","kind":"instruction","passes":"p"}
  s = f32[4] custom-call(x, g), custom_call_target="hloenv.alternative", backend_config={"alternative":"1","kind":"instruction","passes":"p"}
  ROOT t = (f32[4], f32[4]) tuple(r, s)
}
"""
    with pytest.raises(InvalidModuleError, match="instruction 'e' has a side effect"):
        hloenv.Alternatives.from_module(text)


def test_policies_and_games_take_what_another_program_offers() -> None:
    """Its names are of no passes of XLA's: XLA's own result has the originals."""
    from hloenv.envs.candidates import CandidateTable
    from hloenv.policies import get_policy
    from hloenv.rewrite.game import Game

    found = hloenv.Alternatives.from_module(NESTED)
    assert found.relevant([-1, -1]).tolist() == [True, True]
    assert found.relevant([-1, 2]).tolist() == [True, True]
    assert get_policy("xla")(found).tolist() == [0, 0]
    game = Game.of(found)
    assert game.default().tolist() == [0, 0]
    assert game.canonical((np.array([-1, -1]),))[0].tolist() == [-1, -1]
    table = CandidateTable(found)
    assert len(table.rows()) == int(found.num_choices.sum()) + len(found)
    with pytest.raises(DecisionError, match="from -1"):
        found.relevant([-2, 0])
