# SPDX-License-Identifier: Apache-2.0
"""E-graphs whose rules a tree search chooses."""

from __future__ import annotations

import pytest

import hloenv
from hloenv.errors import ArgumentError
from hloenv.substitution import (
    SaturationLimits,
    TreeSearch,
    saturate,
    saturate_by_tree_search,
)
from hloenv.substitution.egraph import Egraph, Entry
from hloenv.substitution.saturation_rules import RULES
from substitution.modules import equal, sum_of_products

pytestmark = pytest.mark.needs("egglog")


def _in_a_crowd() -> hloenv.HloModule:
    """A sum of products that rules shorten, beside additions that they multiply."""
    body = """  a = f32[64,64] parameter(0)
  b = f32[64,64] parameter(1)
  c = f32[64,64] parameter(2)
  p = f32[64,64] dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  q = f32[64,64] dot(c, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  s = f32[64,64] add(p, q)
  t = f32[64,64] transpose(s), dimensions={1,0}
"""
    lines = [f"  x{i} = f32[64,64] add(x{i - 1}, a)" for i in range(1, 30)]
    lines[0] = "  x1 = f32[64,64] add(t, a)"
    text = "HloModule crowd\n\nENTRY main {\n" + body + "\n".join(lines)
    return hloenv.HloModule.from_text(text + "\n  ROOT r = f32[64,64] tanh(x29)\n}\n")


@pytest.mark.parametrize("method", ["greedy", "ilp"])
def test_it_finds_what_saturation_finds(method):
    module = sum_of_products()
    found = saturate_by_tree_search(module, method=method)
    assert found.is_saturated
    assert found.extraction.cost == saturate(module, method=method).extraction.cost
    assert equal(module, found.module)


def test_it_finds_what_saturation_has_no_room_for():
    module = _in_a_crowd()
    limits = SaturationLimits(nodes=80)
    crowded = saturate(module, method="greedy", limits=limits)
    assert not crowded.is_saturated
    found = saturate_by_tree_search(module, method="greedy", limits=limits)
    assert found.extraction.cost < crowded.extraction.cost
    counts = found.module.opcode_counts()
    assert (counts["dot"], counts.get("transpose", 0)) == (1, 0)
    assert equal(module, found.module)


def test_a_seed_repeats_the_search():
    module = _in_a_crowd()
    search = TreeSearch(moves=2, simulations=6, depth=4, seed=3)
    first, second = (
        saturate_by_tree_search(module, method="greedy", search=search)
        for _ in range(2)
    )
    assert first.module.to_text() == second.module.to_text()
    assert first.num_nodes == second.num_nodes


def test_what_a_simulation_adds_is_gone_afterwards():
    graph = Egraph(Entry(_in_a_crowd()))
    before = graph.num_nodes()
    with graph.undone():
        assert graph.run_all()
        assert graph.num_nodes() > before
    assert graph.num_nodes() == before
    with graph.undone():  # as often as needed
        assert any(graph.run_rule(number) for number in range(len(RULES)))
    assert graph.num_nodes() == before


def test_it_ends_at_its_limits():
    late = SaturationLimits(seconds=1e-9)
    found = saturate_by_tree_search(_in_a_crowd(), method="greedy", limits=late)
    assert found.num_iterations == 0
    assert not found.is_saturated
    for wrong in ({"moves": 0}, {"simulations": -1}, {"depth": 0}):
        with pytest.raises(ArgumentError, match="must be positive"):
            TreeSearch(**wrong)
    with pytest.raises(ArgumentError, match="exploration"):
        TreeSearch(exploration=-1.0)
