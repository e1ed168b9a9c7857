# SPDX-License-Identifier: Apache-2.0
"""Which measurements the tuner keeps, and takes from the store."""

from __future__ import annotations

import dataclasses

import pytest

import hloenv
from hloenv.jax import Recipe
from hloenv.measurement.record import MeasureFailure
from hloenv.measurement.store import Store
from hloenv.tune import Configuration, Space
from hloenv.tune.build import build_candidate
from hloenv.tune.measuring import Measuring
from support.tuning import MODULE, Simulated


class Answers:
    """An executor that has the results."""

    def __init__(self, found):
        self.found = found
        self.count = 0

    def submit(self, _task):
        from concurrent.futures import Future

        self.count += 1
        future = Future()
        future.set_result(self.found)
        return future


GOOD = Simulated().record(Configuration())


@pytest.mark.parametrize(
    ("found", "is_kept"),
    [
        (GOOD, True),
        (dataclasses.replace(GOOD, error=MeasureFailure("CompileError", "no")), True),
        (
            dataclasses.replace(GOOD, error=MeasureFailure("MeasureTimeout", "no")),
            False,
        ),
        (
            dataclasses.replace(
                GOOD, baseline="", error=MeasureFailure("WorkerError", "lost")
            ),
            False,
        ),
        (dataclasses.replace(GOOD, machine={"id": "another"}), False),
    ],
)
def test_what_would_be_the_same_again_is_kept(found, is_kept, tmp_path):
    module = hloenv.HloModule.from_text(MODULE)
    space = Space(("codegen",))
    configuration = Configuration((("vectors", "512"),))
    candidate = build_candidate(space, configuration, module)
    assert isinstance(candidate.recipe, Recipe)
    answers = Answers(found)
    with Store(tmp_path / "store.sqlite") as store:
        for _ in range(2):
            with Measuring(
                module, None, engine="jaxlib", executor=answers, store=store
            ) as measuring:
                ((_, measured),) = measuring.measure({0: candidate})
            assert measured.error == found.error
    assert answers.count == (1 if is_kept else 2)
