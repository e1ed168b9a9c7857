# SPDX-License-Identifier: Apache-2.0
"""Which results the last check tries, on simulated measurements."""

from __future__ import annotations

import contextlib
import dataclasses

import pytest

from hloenv.tune import Configuration, Space
from hloenv.tune.checking import Context, check_best
from hloenv.tune.journal import Result
from hloenv.tune.program import Check
from support.tuning import STEADY

DIFFERS = Check(reason="its outputs differ")
SLOWER = Check(1.0, (0.9, 1.1))
FASTER = Check(1.2, (1.1, 1.3))
NUM_RESULTS = 20


@pytest.fixture
def checked(simulated, program):
    """Checks results c0, c1, ..., the best first; returns the entry and the order."""

    simulated.speedup_of = lambda _: 2.0

    def run(check_of, *, bitwise=()):
        order = []

        def check(recipe, seconds):
            order.append(recipe.options["xla_x"])
            return check_of(len(order) - 1, order[-1])

        ranked = [
            Result(
                Configuration((("forms", f"c{number}"),)),
                f"key {number}",
                speedup=2.0,
                interval=(1.9, 2.1),
                is_bitwise=number in bitwise,
            )
            for number in range(NUM_RESULTS)
        ]
        space = Space()

        def build(configuration):
            return dataclasses.replace(
                simulated.build(Unchecked, configuration, None),
                configuration=Configuration(),
            )

        context = Context(
            *(dataclasses.replace(program, check=check), space, simulated, STEADY),
            build,
            lambda _: contextlib.nullcontext(),
        )
        entry, _ = check_best(
            ranked,
            context,
            numerics="reassociating",
            stages=(),
            described=None,
            reason="",
        )
        return entry, [each.removeprefix("forms=c") for each in order]

    return run


class Unchecked:
    """A space in which these configurations are."""

    @staticmethod
    def canonical(configuration):
        return configuration


def test_those_with_other_outputs_are_not_of_the_number_of_the_slower(checked):
    entry, order = checked(lambda number, _: FASTER if number == 5 else DIFFERS)
    assert not entry.is_identity
    assert len(order) == 6


def test_three_that_are_not_faster_are_the_end(checked):
    entry, order = checked(lambda *_: SLOWER)
    assert entry.is_identity
    assert order == ["0", "1", "2"]


def test_the_number_of_those_with_other_outputs_is_limited(checked):
    entry, order = checked(lambda *_: DIFFERS)
    assert entry.is_identity
    assert order == [str(number) for number in range(8)]


@pytest.mark.parametrize(("others", "count"), [(DIFFERS, 9), (SLOWER, 4)])
def test_the_best_that_is_bitwise_equal_is_tried_in_the_end(checked, others, count):
    """As for a chaotic function, whose search has allowed more."""
    entry, order = checked(
        lambda _, text: FASTER if text == "forms=c12" else others, bitwise=(12, 13)
    )
    assert not entry.is_identity
    assert (order[-1], len(order)) == ("12", count)
