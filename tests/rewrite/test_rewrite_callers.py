# SPDX-License-Identifier: Apache-2.0
"""Computations with several callers."""

from __future__ import annotations

import random

import pytest

import hloenv
from hloenv.rewrite.alternatives import capture

# `f` is called from `g` and from the entry: XLA prints it behind `g`.
SHARED = """
HloModule shared

f {
  x = f32[4]{0} parameter(0)
  ROOT e = f32[4]{0} sine(x)
}

g {
  x = f32[4]{0} parameter(0)
  c = f32[4]{0} call(x), to_apply=f
  ROOT s = f32[4]{0} add(c, c)
}

ENTRY main {
  p = f32[4]{0} parameter(0)
  i = s32[] parameter(1)
  ROOT br = f32[4]{0} conditional(i, p, p, p), branch_computations={f, g, f}
}
"""

SHARDED = """
HloModule sharded

ENTRY main {
  a = f32[4]{0} parameter(0)
  zero = f32[] constant(0)
  zeros = f32[4]{0} broadcast(zero), dimensions={}
  ROOT s = f32[4]{0} add(a, zeros), sharding={replicated}
}
"""


def test_text_names_what_is_called_first():
    module = hloenv.HloModule.from_text(SHARED)
    again = hloenv.HloModule.from_text(module.to_text())
    assert again.fingerprint() == module.fingerprint()


@pytest.mark.parametrize("name", ["call-inliner", "flatten-call-graph", "cse"])
def test_invariants_hold_where_a_computation_has_several_callers(name):
    module = hloenv.HloModule.from_text(SHARED)
    alternatives = hloenv.HloEnv(module).get_alternatives(name)
    rejected = alternatives.apply(alternatives.reject_all())
    accepted = alternatives.apply(alternatives.decisions_for(name))
    assert rejected.fingerprint() == module.fingerprint()
    native = hloenv.run_passes(module, name).module
    assert accepted.fingerprint() == native.fingerprint()


def test_a_sharding_that_moves_to_a_survivor_is_not_lost():
    module = hloenv.HloModule.from_text(SHARDED)
    alternatives = hloenv.HloEnv(module).get_alternatives("algsimp")
    accepted = alternatives.apply(alternatives.decisions_for("algsimp"))
    native = hloenv.run_passes(module, "algsimp").module
    assert accepted.fingerprint() == native.fingerprint()


@pytest.mark.parametrize(
    "name", ["gpjax/m52_mll_grad_tpulow", "lineax/svd_tpulow", "jaxopt/bisect"]
)
def test_fusions_do_not_share_their_bodies(name, hlo_dir):
    module = hloenv.HloModule.from_file(hlo_dir / f"{name}.txt")
    env = hloenv.HloEnv(module)
    env.run_until("copy-insertion")
    alternatives = env.get_alternatives("copy-insertion", "call-inliner")
    alternatives.module.verify()
    rng = random.Random(0)
    for _ in range(4):
        decisions = [rng.randrange(n) for n in alternatives.num_choices]
        alternatives.apply(decisions).verify()


@pytest.mark.compile
def test_algsimp_after_layout_assignment_respects_layouts(hlo_dir):
    module = hloenv.HloModule.from_file(hlo_dir / "flowjax" / "maf_nll_grad.txt")
    env = hloenv.HloEnv(module)
    env.run_until("fusion")
    alternatives = env.get_alternatives("algsimp", "general-simplify")
    env.apply_alternatives(alternatives.decisions_for("algsimp"))
    result = hloenv.measure(env.module, baseline=module, repeats=1)
    assert result.is_ok, result
    (step,) = [step for step in env.trace.steps if step.kind == "decide"]
    assert "is_layout_sensitive" in str(step.passes)


@pytest.mark.parametrize("name", ["simplification", "fusion-wrapper"])
def test_passes_are_rejected_where_they_would_be_wrong(name, hlo_dir):
    env = hloenv.HloEnv(hlo_dir / "equinox" / "conv2d_fwd.txt")
    env.run_until("fusion")
    before = env.fingerprint()
    with pytest.raises(hloenv.PositionError, match="wrong results"):
        env.get_alternatives(name)
    with pytest.raises(hloenv.PositionError, match="wrong results"):
        env.run(hloenv.Pipeline("p", [name, "dce"]))
    assert env.fingerprint() == before


# Both maps share `times`, which flatten-call-graph ends.
SHARED_MAP = """
HloModule shared_map

times {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] multiply(a, b)
}

ENTRY main {
  x = f32[4]{0} parameter(0)
  n = f32[4]{0} negate(x)
  m = f32[4]{0} map(x, n), dimensions={0}, to_apply=times
  e = f32[4]{0} abs(m)
  w = f32[4]{0} map(x, x), dimensions={0}, to_apply=times
  t = f32[4]{0} abs(w)
  ROOT both = (f32[4]{0}, f32[4]{0}) tuple(e, t)
}
"""


def test_equal_fusions_are_one_choice_only_if_they_share_the_same():
    module = hloenv.HloModule.from_text(SHARED_MAP)
    fusion = hloenv.Pipeline("fusion", ["fusion"])
    again = hloenv.Pipeline("again", ["fusion", "cse"])
    flat = hloenv.Pipeline("flat", ["fusion", "flatten-call-graph"])
    alternatives = capture(module, [fusion, again, flat])
    for pipeline in (fusion, again, flat):
        accepted = alternatives.apply(alternatives.decisions_for(pipeline.name))
        native = hloenv.run_passes(module, pipeline).module
        assert accepted.fingerprint() == native.fingerprint()
    merged = {c.passes for a in alternatives for c in a.choices[1:]}
    assert any({"fusion", "again"} <= set(passes) for passes in merged)
