# SPDX-License-Identifier: Apache-2.0
"""Passes and pipelines as values: equality, text, JSON."""

from __future__ import annotations

import copy
import json
import pickle

import numpy as np
import pytest

from hloenv.errors import PassOptionError
from hloenv.hlo.passes import Pass, Pipeline, from_json


def test_pass_shows_only_what_was_given():
    assert repr(Pass("cse")) == "Pass('cse')"
    given = Pass("algsimp", run_to_fixed_point=False, is_layout_sensitive=True)
    assert repr(given) == (
        "Pass('algsimp', is_layout_sensitive=True, run_to_fixed_point=False)"
    )


def test_pipeline_repr_is_code_that_makes_it():
    pipeline = Pipeline(
        "mine", ["cse", Pass("dce", use_call_analysis=True)], fixed_point=True
    )
    assert eval(repr(pipeline)) == pipeline


def test_passes_and_pipelines_are_values():
    one = Pass("algsimp", associative_reordering_threshold=3)
    same = Pass("algsimp", associative_reordering_threshold=3.0)
    assert one == same
    assert len({one, same, Pass("algsimp")}) == 2
    pipeline = Pipeline("p", [one], fixed_point=True)
    assert pickle.loads(pickle.dumps(pipeline)) == pipeline
    assert copy.deepcopy(pipeline) == pipeline
    with pytest.raises(AttributeError):
        one.name = "cse"


def test_json_round_trip():
    pipeline = Pipeline(
        "outer",
        ["cse", Pipeline("inner", [Pass("constant_folding", level="aggressive")])],
        fixed_point=True,
        max_iterations=7,
    )
    assert from_json(json.loads(json.dumps(pipeline.to_json()))) == pipeline
    one = Pass("algsimp", very_small_gather_size=2)
    assert Pass.from_json(json.loads(json.dumps(one.to_json()))) == one


@pytest.mark.parametrize(
    "value",
    [
        None,
        [],
        "cse",
        {},
        {"pass": "cse"},
        {"pass": "cse", "options": []},
        {"pass": 3, "options": {}},
        {"pipeline": "p", "passes": "cse", "fixed_point": False, "max_iterations": 1},
        {"pipeline": "p", "passes": [], "fixed_point": False, "max_iterations": 1},
    ],
)
def test_other_json_is_rejected(value):
    with pytest.raises(PassOptionError):
        from_json(value)


def test_numpy_scalars_are_plain_values():
    assert Pass("cse", is_layout_sensitive=np.bool_(True)) == Pass(
        "cse", is_layout_sensitive=True
    )
    given = Pass("algsimp", very_small_gather_size=np.int64(2))
    assert type(dict(given.options)["very_small_gather_size"]) is int
