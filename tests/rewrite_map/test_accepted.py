# SPDX-License-Identifier: Apache-2.0
"""The rewrites that XLA makes, and modules without some of them."""

from __future__ import annotations

import pytest

import hloenv
from hloenv.cost import KernelCache
from hloenv.rewrite_map import find_rewrites
from hloenv.rewrite_map.ablation import Ablation, EstimateError, reject, reject_one
from hloenv.rewrite_map.extract import small_modules
from support.modules import TWO_REWRITES
from support.rewrites import COUNTED_LOOP, OTHER_LOOP, SMALL_IMAGE, TWO_LAYERS


def swaps(module: hloenv.HloModule):
    """The rewrites that swap the operands of convolutions."""
    return [
        each
        for each in find_rewrites(module)
        if each.pass_name == "algsimp" and each.before.opcode == "convolution"
    ]


def num_reversed(module: hloenv.HloModule) -> int:
    return hloenv.finish(module).to_text().count("rhs_reversal=1x1")


def test_equal_rewrites_are_one_with_a_count():
    (found,) = swaps(hloenv.HloModule.from_text(TWO_LAYERS))
    assert found.count == 2
    assert found.rule.startswith("convolution -> ")
    assert "rhs_reversal" in found.after_text
    assert found.before.operands == ("f32[2,2,2,64]", "f32[3,3,64,64]")
    assert found.entries == {f"algsimp?{found.identity}"}


def test_costly_operations_come_first():
    weights = [
        each.weight_s for each in find_rewrites(hloenv.HloModule.from_text(TWO_LAYERS))
    ]
    assert weights == sorted(weights, reverse=True)
    assert weights[0] > 0


def test_a_rejected_rewrite_is_not_made_anywhere():
    module = hloenv.HloModule.from_text(TWO_LAYERS)
    assert num_reversed(module) == 2
    without = reject(module, swaps(module))
    assert num_reversed(without) == 0
    assert swaps(module)
    assert num_reversed(module) == 2  # the module itself is as before


def test_one_of_equal_rewrites_can_be_rejected():
    module = hloenv.HloModule.from_text(TWO_LAYERS)
    (found,) = swaps(module)
    without = reject_one(module, found)
    assert without is not None
    assert num_reversed(without) == 1


def test_a_single_rewrite_has_no_other():
    module = hloenv.HloModule.from_text(SMALL_IMAGE)
    (found,) = swaps(module)
    assert reject_one(module, found) is None


def test_all_others_are_as_xla_decides():
    module = hloenv.HloModule.from_text(TWO_REWRITES)
    rewrites = find_rewrites(module)
    assert {each.pass_name for each in rewrites} >= {"algsimp", "cse"}
    fewer = {each.identity for each in rewrites}
    for each in rewrites:
        without = hloenv.finish(reject(module, [each]))
        without.verify()
    everything = hloenv.finish(reject(module, rewrites))
    assert everything.opcode_counts()["sine"] == 2
    assert hloenv.finish(module).opcode_counts()["sine"] == 1
    assert len(fewer) == len(rewrites)


def test_passes_that_the_backend_needs_are_left_out():
    needed = {each.name for each in hloenv.hlo.pipeline.needed_passes()}
    made = {
        each.pass_name for each in find_rewrites(hloenv.HloModule.from_text(TWO_LAYERS))
    }
    needed.add("while-loop-trip-count-annotator")
    stages = hloenv.list_stages(hloenv.HloModule.from_text(TWO_LAYERS))
    assert {each.name for each in stages if each.changed} & needed
    assert not made & needed


@pytest.mark.compile
def test_loops_must_have_known_numbers_of_iterations():
    module = hloenv.HloModule.from_text(COUNTED_LOOP)
    other = hloenv.HloModule.from_text(OTHER_LOOP)
    with KernelCache() as cache:
        counted = Ablation(module, cache)
        assert counted.estimate(module) == (counted.reference_s, True)
        with pytest.raises(EstimateError, match="how often a loop runs"):
            counted.estimate(other)
        seconds, is_same = Ablation(other, cache).estimate(module)
    assert seconds > 0
    assert not is_same


@pytest.mark.parametrize("text", [SMALL_IMAGE, TWO_LAYERS])
def test_the_smallest_module_has_the_operation_alone(text):
    module = hloenv.HloModule.from_text(text)
    (found,) = swaps(module)
    small = next(small_modules(module, found))
    assert small.opcode_counts() == {"convolution": 1, "parameter": 2}
    assert [each.identity for each in swaps(small)] == [found.identity]


def test_larger_modules_have_the_operands():
    module = hloenv.HloModule.from_text(TWO_REWRITES)
    found = next(each for each in find_rewrites(module) if each.pass_name == "fusion")
    counts = [each.instruction_count for each in small_modules(module, found)]
    assert counts == sorted(set(counts))


def test_the_smallest_module_has_what_the_rewrite_needs():
    module = hloenv.HloModule.from_text(TWO_REWRITES)
    found = next(each for each in find_rewrites(module) if each.before.opcode == "add")
    small = next(small_modules(module, found))
    assert small.opcode_counts() == {
        "add": 1,
        "broadcast": 1,
        "constant": 1,
        "parameter": 1,
    }
