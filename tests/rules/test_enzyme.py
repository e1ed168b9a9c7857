# SPDX-License-Identifier: Apache-2.0
"""Enzyme-JAX's rewrites as a pass."""

from __future__ import annotations

import pytest

import hloenv
from hloenv.errors import PassError, PassOptionError
from hloenv.hlo.python_passes import remove_pass
from hloenv.rules import enzyme

pytestmark = [pytest.mark.jax, pytest.mark.needs("enzyme_ad")]

# Two products of the same values, and transposes that cancel.
TEXT = """HloModule twice

ENTRY main {
  a = f32[8,8] parameter(0)
  b = f32[8,8] parameter(1)
  x = f32[8,8] dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  t = f32[8,8] transpose(x), dimensions={1,0}
  u = f32[8,8] transpose(t), dimensions={1,0}
  two = f32[] constant(2)
  s = f32[8,8] broadcast(two), dimensions={}
  m = f32[8,8] multiply(u, s)
  r = f32[8,8]{0,1} transpose(m), dimensions={1,0}
  ROOT o = (f32[8,8]{0,1}, f32[8,8]) tuple(r, u)
}
"""


@pytest.fixture
def registered():
    enzyme.register()
    yield
    remove_pass("enzyme")


def test_a_module_keeps_its_inputs_and_results() -> None:
    module = hloenv.HloModule.from_text(TEXT)
    changed = enzyme.optimize(module)
    assert changed.entry_layout == module.entry_layout
    assert changed.instruction_count < module.instruction_count


def test_the_rewrites_are_alternatives(registered) -> None:
    module = hloenv.HloModule.from_text(TEXT)
    alternatives = hloenv.HloEnv(module).get_alternatives("enzyme", "algsimp")
    passes = {name for each in alternatives for c in each.choices for name in c.passes}
    assert passes == {"enzyme", "algsimp"}
    records = hloenv.verify_alternatives(alternatives)
    assert max(each.relative for each in records) < 1e-6


def test_chosen_patterns_alone_are_applied(registered) -> None:
    module = hloenv.HloModule.from_text(TEXT)
    only = hloenv.Pass("enzyme", patterns="transpose_transpose")
    alternatives = hloenv.HloEnv(module).get_alternatives(only)
    assert len(alternatives) == 1
    before, after = module.opcode_counts(), alternatives.apply([1]).opcode_counts()
    assert after["transpose"] < before["transpose"]
    assert after["multiply"] == before["multiply"]


def test_each_pattern_is_a_choice(registered) -> None:
    module = hloenv.HloModule.from_text(TEXT)
    found = enzyme.optimize_each(module)
    assert set(found) == {enzyme.FOLDING, "transpose_elementwise"}
    assert len({each.fingerprint() for each in found.values()}) == len(found)
    alternatives = hloenv.HloEnv(module).get_alternatives(
        hloenv.Pass("enzyme", each=True)
    )
    rules = {choice.rule for each in alternatives for choice in each.choices[1:]}
    assert rules == set(found)
    assert alternatives.apply(alternatives.reject_all()).fingerprint() == (
        module.fingerprint()
    )
    records = hloenv.verify_alternatives(alternatives)
    assert max(each.relative for each in records) < 1e-6


def test_constants_are_folded_without_a_pattern(registered) -> None:
    module = hloenv.HloModule.from_text("""HloModule constants
ENTRY main {
  a = f32[4] parameter(0)
  one = f32[4] constant({1, 2, 3, 4})
  s = f32[4] add(one, one)
  ROOT m = f32[4] multiply(a, s)
}
""")
    assert set(enzyme.optimize_each(module, only=["cse_add"])) <= {enzyme.FOLDING}


def test_a_pattern_that_crashes_hides_no_other(registered, monkeypatch) -> None:
    module = hloenv.HloModule.from_text(TEXT)
    call, chosen = enzyme._call, [*enzyme.patterns()[:40], "transpose_elementwise"]

    def crash_at_first(function, *args):
        if function == "optimize_each" and chosen[0] in map(enzyme._name_of, args[1]):
            return enzyme._sandbox().call("os:abort")
        return call(function, *args)

    monkeypatch.setattr(enzyme, "_call", crash_at_first)
    found = enzyme.optimize_each(module, only=chosen)
    assert "transpose_elementwise" in found
    monkeypatch.setattr(enzyme, "_MAX_CRASHES", 2)
    with pytest.raises(PassError, match="failed on module 'twice'"):
        enzyme.optimize_each(module, only=chosen)


def test_an_unknown_pattern_is_an_error(registered) -> None:
    made = hloenv.Pass("enzyme", patterns="transpose_transpos")
    with pytest.raises(PassOptionError, match="similar: transpose_transpose"):
        hloenv.HloEnv(hloenv.HloModule.from_text(TEXT)).get_alternatives(made)


def test_modules_with_layouts_are_refused() -> None:
    module = hloenv.run_until(hloenv.HloModule.from_text(TEXT), "fusion")
    with pytest.raises(PassError, match="before XLA's layout assignment"):
        enzyme.optimize(module)


def test_a_crash_is_an_error_and_the_next_call_works(monkeypatch) -> None:
    module = hloenv.HloModule.from_text(TEXT)
    assert enzyme.patterns()
    with monkeypatch.context() as patch:
        patch.setattr(enzyme, "_call", lambda *_: enzyme._sandbox().call("os:abort"))
        with pytest.raises(PassError, match="optimizer failed on module 'twice'"):
            enzyme.optimize(module)
    assert enzyme.optimize(module).entry_layout == module.entry_layout
