# SPDX-License-Identifier: Apache-2.0
"""Registered passes are XLA's own, and each position leads to XLA's default compile."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

import hloenv
from hloenv import dataset
from hloenv.hlo.passes import Pass, as_pipeline, list_passes
from hloenv.hlo.pipeline import finish, list_stages, run_until
from hloenv.rewrite.alternatives import capture

_REDUCTION = """HloModule reduction

add {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT s = f32[] add(a, b)
}

ENTRY main {
  p = f32[4,64,64,3]{3,2,1,0} parameter(0)
  zero = f32[] constant(0)
  ROOT r = f32[4,64,3]{2,1,0} reduce(p, zero), dimensions={1}, to_apply=add
}
"""
_NEGATE = """HloModule tiny

ENTRY main {
  p = f32[4]{0} parameter(0)
  ROOT n = f32[4]{0} negate(p)
}
"""


def _modules() -> list[hloenv.HloModule]:
    """A reduction that XLA leaves to a library, and modules of the dataset."""
    records = [
        record for record in dataset.load("all") if record.instruction_count < 400
    ]
    drawn = random.Random(0).sample(records, 6)
    return [hloenv.HloModule.from_text(_REDUCTION), *(each.module for each in drawn)]


@pytest.mark.filterwarnings("ignore::hloenv.errors.PositionWarning")
def test_registered_passes_find_what_xlas_own_find():
    # XLA runs reduce-window-rewriter to a fixed point.
    registered = set(list_passes()) - {"reduce-window-rewriter"}
    num_found = 0
    for module in _modules():
        with hloenv.intercept(module) as pipeline:
            for stage in pipeline:
                # Behind it, passes respect layouts; modules know their position.
                if stage.name == "layout-assignment":
                    break
                if stage.name not in registered:
                    continue
                own = stage.get_alternatives()
                found = hloenv.HloEnv(stage.module).get_alternatives(stage.name)
                assert found.module.fingerprint() == own.module.fingerprint(), stage
                num_found += len(own)
    assert num_found > 100


def test_tree_reduction_leaves_library_reductions_alone_by_default():
    env = hloenv.HloEnv(hloenv.HloModule.from_text(_REDUCTION))
    assert len(env.get_alternatives("tree_reduction_rewriter")) == 0
    every = Pass("tree_reduction_rewriter", library_reductions=True)
    assert len(env.get_alternatives(every)) == 1


@pytest.mark.parametrize("size", [3, 12])
def test_copies_are_not_inserted_twice(size: int):
    """Where a second run of copy-insertion removes a copy that the first one left."""
    name = f"lineax/solver[name=gmres,size={size}]/solve"
    (record,) = (each for each in dataset.load("all") if each.name == name)
    stopped = run_until(record.module, "copy-insertion")
    alternatives = capture(stopped, [as_pipeline("copy-insertion")])
    own = alternatives.apply(alternatives.decisions_for("copy-insertion"))
    assert finish(own).fingerprint() == finish(record.module).fingerprint()


@pytest.mark.parametrize("name", ["tiny", "brax/sac_actor_grad"])
def test_every_stop_leads_to_xlas_default(name: str, request: pytest.FixtureRequest):
    if name == "tiny":
        module = hloenv.HloModule.from_text(_NEGATE)
    else:
        folder: Path = request.getfixturevalue("hlo_dir")
        module = hloenv.HloModule.from_file(folder / f"{name}.txt")
    default = finish(module).fingerprint()
    stops = {(stage.path, stage.path_occurrence) for stage in list_stages(module)}
    assert len(stops) > 80
    for path, occurrence in sorted(stops):
        stopped = run_until(module, path, occurrence=occurrence)
        assert finish(stopped).fingerprint() == default, (path, occurrence)
