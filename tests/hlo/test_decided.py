# SPDX-License-Identifier: Apache-2.0
"""Effects of decisions on the rest of XLA's pipeline."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest

import hloenv
from hloenv.hlo.module import identity
from hloenv.rewrite.game import DecisionPoint, Game
from hloenv.search.neighborhood import other_choices

# Two additions of zero, a matrix-vector product, and what only expanders write out.
TEXT = """HloModule decided

ENTRY main {
  x = f32[8,8] parameter(0)
  v = f32[8] parameter(1)
  zero = f32[] constant(0)
  zeros = f32[8,8] broadcast(zero), dimensions={}
  a = f32[8,8] add(x, zeros)
  t = f32[8,8] transpose(a), dimensions={1,0}
  b = f32[8,8] add(t, zeros)
  d = f32[8] dot(b, v), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  p = f32[8,8] dot(b, t), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  c = f32[8,8] cholesky(p), lower=true
  s = f32[8,8] triangular-solve(c, b), left_side=true, lower=true, unit_diagonal=false, transpose_a=NO_TRANSPOSE
  e = f32[8,8] exponential(s)
  ROOT out = (f32[8], f32[8,8], f32[8,8]) tuple(d, e, s)
}
"""


@pytest.fixture(scope="module")
def module() -> hloenv.HloModule:
    return hloenv.HloModule.from_text(TEXT)


def _at(module: hloenv.HloModule, where: str, *passes: str) -> hloenv.Alternatives:
    env = hloenv.HloEnv(module)
    env.run_until(where)
    return env.get_alternatives(*passes)


@pytest.mark.parametrize(
    ("where", "passes"),
    [
        ("simplification", ("algsimp",)),
        ("simplification", ("simplification",)),
        ("simplification/reshape-mover", ("reshape-mover",)),
        ("simplification after layout assignment", ("algsimp",)),
        ("cse", ("cse",)),
        ("fusion", ("fusion",)),
        ("fusion", ("fusion", "general-fusion")),
        ("fusion-wrapper", ("fusion-wrapper",)),
    ],
)
def test_xlas_own_decisions_lead_to_xlas_default(
    module: hloenv.HloModule, where: str, passes: tuple[str, ...]
):
    alternatives = _at(module, where, *passes)
    own = alternatives.apply(alternatives.decisions_for(passes[0]))
    default = hloenv.finish(module).fingerprint()
    assert hloenv.finish(own).fingerprint() == default
    left = alternatives.apply(alternatives.leave_to_xla(), partial=True)
    assert hloenv.finish(left).fingerprint() == default


def test_a_pass_run_at_its_position_does_not_run_again(module: hloenv.HloModule):
    env = hloenv.HloEnv(module)
    env.run_until("fusion")
    env.run("fusion")
    assert hloenv.list_stages(env.module)[0].skipped
    default = hloenv.finish(module).fingerprint()
    assert hloenv.finish(env.module).fingerprint() == default
    more = env.get_alternatives("general-fusion")
    kept = more.apply(more.reject_all())
    assert hloenv.finish(kept).fingerprint() == default


def _copied() -> tuple[hloenv.HloEnv, hloenv.Alternatives]:
    """In front of the pass that XLA's backend needs, with choices."""
    text = """HloModule swapped

body {
  s = (f32[8], f32[8], s32[]) parameter(0)
  a = f32[8] get-tuple-element(s), index=0
  b = f32[8] get-tuple-element(s), index=1
  i = s32[] get-tuple-element(s), index=2
  one = s32[] constant(1)
  n = s32[] add(i, one)
  ROOT next = (f32[8], f32[8], s32[]) tuple(b, a, n)
}

condition {
  s = (f32[8], f32[8], s32[]) parameter(0)
  i = s32[] get-tuple-element(s), index=2
  nine = s32[] constant(9)
  ROOT more = pred[] compare(i, nine), direction=LT
}

ENTRY main {
  x = f32[8] parameter(0)
  y = f32[8] parameter(1)
  zero = s32[] constant(0)
  init = (f32[8], f32[8], s32[]) tuple(x, y, zero)
  ROOT w = (f32[8], f32[8], s32[]) while(init), condition=condition, body=body
}
"""
    env = hloenv.HloEnv(text)
    env.run_until("copy-insertion")
    alternatives = env.get_alternatives("copy-insertion")
    assert alternatives.decisions_for("copy-insertion").any()
    return env, alternatives


def _runs_first(module: hloenv.HloModule) -> bool:
    first = hloenv.list_stages(module)[0]
    assert first.name == "copy-insertion"
    return not first.skipped


def test_a_needed_pass_runs_again_unless_its_own_run_was_made(tmp_path: Path):
    """A second run of copy-insertion may remove copies that the first one left."""
    env, alternatives = _copied()
    own = alternatives.apply(alternatives.decisions_for("copy-insertion"))
    assert not _runs_first(own)
    own.save(tmp_path / "own.hlo")
    assert not _runs_first(hloenv.HloModule.from_file(tmp_path / "own.hlo"))
    assert _runs_first(alternatives.apply(alternatives.reject_all()))
    assert _runs_first(alternatives.apply(alternatives.leave_to_xla(), partial=True))
    env.run("copy-insertion")
    assert not _runs_first(env.module)


def test_a_needed_pass_runs_again_on_what_was_changed_since():
    env, _ = _copied()
    env.run("copy-insertion")
    again = env.get_alternatives("small-while-loop-hoisting")
    assert not _runs_first(again.apply(again.reject_all()))
    assert len(again)
    changed = again.apply(np.ones(len(again), np.int64))
    assert _runs_first(changed)
    run = hloenv.run_passes(env.module, "small-while-loop-hoisting")
    assert run.changed
    assert _runs_first(run.module)
    env.run("small-while-loop-hoisting")
    assert _runs_first(env.module)


def test_only_rejected_rewrites_are_not_made_later(module: hloenv.HloModule):
    default = hloenv.finish(module).opcode_counts()
    alternatives = _at(module, "simplification", "algsimp")
    decisions = alternatives.decisions_for("algsimp")
    additions = [i for i, a in enumerate(alternatives) if a.choices[0].opcode == "add"]
    assert additions
    decisions[additions] = 0
    decided = hloenv.run_until(alternatives.apply(decisions), "fusion")
    plain = hloenv.run_until(module, "fusion")
    more = decided.opcode_counts()["add"] - plain.opcode_counts()["add"]
    assert more == len(additions)
    # The expansion of the Cholesky decomposition is as simple as XLA has it.
    assert decided.instruction_count <= plain.instruction_count + 3 * len(additions)
    assert default["fusion"] > 0


def test_rejections_are_kept_with_the_module(module: hloenv.HloModule, tmp_path: Path):
    alternatives = _at(module, "simplification", "algsimp")
    kept = alternatives.apply(alternatives.reject_all())
    wanted = hloenv.finish(kept).fingerprint()
    assert wanted != hloenv.finish(module).fingerprint()
    kept.save(tmp_path / "kept.hlo")
    for again in (
        hloenv.HloModule.from_file(tmp_path / "kept.hlo"),
        pickle.loads(pickle.dumps(kept)),
        kept.clone(),
    ):
        assert again.decided == {"algsimp"}
        assert hloenv.finish(again).fingerprint() == wanted
        assert identity(again) == identity(kept) != kept.fingerprint()


def test_the_compiler_and_finish_agree_on_what_was_rejected(module: hloenv.HloModule):
    alternatives = _at(module, "simplification", "algsimp")
    kept = alternatives.apply(alternatives.reject_all())
    rng = np.random.default_rng(0)
    inputs = [np.eye(8, dtype=np.float32) * 2, rng.random(8).astype(np.float32)]
    wanted = hloenv.compile(module)(*inputs)
    for output, want in zip(
        hloenv.compile(kept, isolate=False)(*inputs), wanted, strict=True
    ):
        np.testing.assert_allclose(output, want, rtol=1e-5)


def test_a_rejection_before_calls_are_inlined_holds_afterwards():
    text = """HloModule called
f {
  p = f32[4] parameter(0)
  zero = f32[] constant(0)
  zeros = f32[4] broadcast(zero), dimensions={}
  ROOT a = f32[4] add(p, zeros)
}
ENTRY main {
  x = f32[4] parameter(0)
  y = f32[4] call(x), to_apply=f
  ROOT r = f32[4] exponential(y)
}
"""
    module = hloenv.HloModule.from_text(text)
    alternatives = hloenv.HloEnv(module).get_alternatives("algsimp")
    kept = hloenv.run_until(alternatives.apply(alternatives.reject_all()), "fusion")
    assert kept.opcode_counts()["add"] == 1
    assert "add" not in hloenv.run_until(module, "fusion").opcode_counts()


def test_a_game_distinguishes_rejected_from_undecided(module: hloenv.HloModule):
    game = Game(module, [DecisionPoint(("algsimp",))])
    undecided = game.complete()
    assert (undecided[0] == -1).all()
    rejected = (np.zeros_like(undecided[0]),)
    assert game.play(undecided).fingerprint() == game.play(rejected).fingerprint()
    assert game.fingerprint(undecided) != game.fingerprint(rejected)
    default = hloenv.finish(module).fingerprint()
    assert hloenv.finish(game.play(undecided)).fingerprint() == default


def test_another_choice_is_never_the_present_one():
    rng = np.random.default_rng(0)
    present = np.repeat([-1, 0, 1, 2], 200)
    drawn = other_choices(present, np.full(present.size, 3), rng)
    assert (drawn != present).all()
    for value in (-1, 0, 1, 2):
        found = set(drawn[present == value].tolist())
        assert found == {0, 1, 2} - {value}


def test_a_top_k_whose_results_are_read_together_compiles():
    text = """HloModule together
ENTRY main {
  x = f32[4,3] parameter(0)
  top = (f32[4,2], s32[4,2]) topk(x), k=2, largest=true
  ROOT out = (f32[4,3], (f32[4,2], s32[4,2])) tuple(x, top)
}
"""
    x = np.array([[3, 1, 2]] * 4, np.float32)
    _, values, indices = hloenv.compile(text)(x)
    np.testing.assert_array_equal(values, [[3, 2]] * 4)
    np.testing.assert_array_equal(indices, [[0, 2]] * 4)
