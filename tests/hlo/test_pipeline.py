# SPDX-License-Identifier: Apache-2.0
"""XLA's own pipeline: listing, stopping and continuing."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import hloenv
from hloenv.hlo.pipeline import finish, needed_passes, skip_rules
from hloenv.hlo.position import PipelinePosition
from support.interrupts import LARGE_MODULE, share_done_when_interrupted
from support.threads import in_threads

BEFORE_LAYOUTS = "HLO passes through layout assignment"
AFTER_LAYOUTS = "HLO passes after layout assignment"

# Runs its simplification pipeline four times, and its passes change it each time.
MODULE = "brax/sac_actor_grad"

STOPS = [
    ("sharding-removal", 1),
    ("simplification/algsimp", 1),
    ("simplification/algsimp", 3),
    ("simplification/dce", 4),
    ("simplification/simplify-while-loops", 3),
    ("post_scatter_expansion_simplification", 1),
    ("layout-assignment", 1),
    ("reduce-decomposer", 1),
    ("fusion", 1),
    ("simplification after layout assignment", 1),
    ("cpu-parallel-task-assigner", 1),
    ("copy-insertion", 1),
    (f"{AFTER_LAYOUTS}/dce", 2),
]


@pytest.fixture(scope="module")
def module(hlo_dir: Path) -> hloenv.HloModule:
    """A real module with nested fixed points."""
    return hloenv.HloModule.from_file(hlo_dir / f"{MODULE}.txt")


@pytest.fixture(scope="module")
def finished(module: hloenv.HloModule) -> str:
    """Fingerprint of the module after an uninterrupted run of XLA's pipeline."""
    return hloenv.finish(module).fingerprint()


def test_stages_are_xlas_passes_in_order(module: hloenv.HloModule):
    stages = hloenv.list_stages(module)
    paths = [stage.path for stage in stages]
    assert paths.index(f"{BEFORE_LAYOUTS}/layout-assignment") < paths.index(
        f"{AFTER_LAYOUTS}/fusion"
    )
    assert paths[-1] == f"{AFTER_LAYOUTS}/dce"
    assert not any("verifier" in path for path in paths)
    algsimp = [stage for stage in stages if stage.name == "algsimp"]
    assert [stage.occurrence for stage in algsimp] == list(range(1, len(algsimp) + 1))
    in_loop = [
        s for s in algsimp if s.path == f"{BEFORE_LAYOUTS}/simplification/algsimp"
    ]
    assert [stage.path_occurrence for stage in in_loop] == list(
        range(1, len(in_loop) + 1)
    )
    assert len(in_loop) > 2
    assert all(stage.duration_ns > 0 for stage in stages)


@pytest.mark.parametrize(("where", "occurrence"), STOPS)
def test_stopping_and_continuing_changes_nothing(
    module: hloenv.HloModule, finished: str, where: str, occurrence: int
):
    stopped = hloenv.run_until(module, where, occurrence=occurrence)
    assert stopped.position is not None
    assert stopped.position.path.endswith(where)
    assert hloenv.finish(stopped).fingerprint() == finished


def test_stopping_many_times_on_the_way_changes_nothing(
    module: hloenv.HloModule, finished: str
):
    stopped = module
    for where, occurrence in STOPS[:-1]:
        if where != "simplification/dce":
            stopped = hloenv.run_until(stopped, where, occurrence=occurrence)
    assert hloenv.finish(stopped).fingerprint() == finished


@pytest.mark.max_instructions(500)
def test_real_modules_continue_from_before_fusion(real_module_path: Path):
    module = hloenv.HloModule.from_file(real_module_path)
    wanted = hloenv.finish(module).fingerprint()
    for where in ("layout-assignment", "fusion", "cpu-parallel-task-assigner"):
        stopped = hloenv.run_until(module, where)
        assert hloenv.finish(stopped).fingerprint() == wanted, where


def test_a_stop_leaves_the_module_as_the_earlier_passes_made_it(
    module: hloenv.HloModule,
):
    stages = hloenv.list_stages(module)
    first = next(i for i, s in enumerate(stages) if s.name == "algsimp")
    stopped = hloenv.run_until(module, "algsimp")
    place = stopped.position
    assert place.path == stages[first].path
    assert place.occurrence == 1
    assert place.changed == "".join("01"[s.changed] for s in stages[:first])
    after = hloenv.run_until(module, stages[first + 1].path)
    assert after.fingerprint() != stopped.fingerprint()
    assert module.position is None


def test_the_rest_is_listed_from_the_place_on(module: hloenv.HloModule):
    stopped = hloenv.run_until(module, "fusion")
    rest = hloenv.list_stages(stopped)
    assert rest[0].path == f"{AFTER_LAYOUTS}/fusion"
    everything = hloenv.list_stages(module)
    assert [s.path for s in rest] == [s.path for s in everything[-len(rest) :]]


def test_decided_passes_and_what_would_redo_them_are_skipped(
    module: hloenv.HloModule,
):
    stopped = hloenv.run_until(module, "fusion")
    decided = hloenv.HloModule._wrap(
        stopped._core, position=stopped.position, decided=frozenset({"general-fusion"})
    )
    skipped = {s.name for s in hloenv.list_stages(decided) if s.skipped}
    assert skipped == {"fusion"}
    ran = {s.name for s in hloenv.list_stages(decided) if not s.skipped}
    assert "cpu-parallel-task-assigner" in ran
    without = hloenv.finish(decided).opcode_counts()
    assert without.get("fusion", 0) > hloenv.finish(stopped).opcode_counts()["fusion"]


def test_decided_passes_are_skipped_on_the_way_to_a_stop(module: hloenv.HloModule):
    decided = hloenv.HloModule._wrap(module._core, decided=frozenset({"cse"}))
    stopped = hloenv.run_until(decided, "fusion")
    assert stopped.decided == {"cse"}
    plain = hloenv.run_until(module, "fusion")
    assert stopped.instruction_count > plain.instruction_count
    assert hloenv.finish(stopped).fingerprint() == hloenv.finish(decided).fingerprint()


def test_finish_takes_more_decided_passes(module: hloenv.HloModule):
    named = hloenv.finish(module, decided=["cse", "algsimp"])
    wrapped = hloenv.HloModule._wrap(
        module._core, decided=frozenset({"cse", "algsimp"})
    )
    assert named.fingerprint() == hloenv.finish(wrapped).fingerprint()


def test_needed_passes_run_although_decided():
    text = """
HloModule m
ENTRY e {
  a = f32[4] parameter(0)
  ROOT r = f32[4] logistic(a)
}
"""
    decided = hloenv.HloModule._wrap(
        hloenv.HloModule.from_text(text)._core,
        decided=frozenset({"logistic-expander", "float-normalization-bf16"}),
    )
    stages = hloenv.list_stages(decided)
    assert not any(stage.skipped for stage in stages)
    assert "logistic" not in hloenv.finish(decided).opcode_counts()


def test_the_rules_name_passes_and_reasons():
    rules = skip_rules()
    assert sorted(rules, key=lambda r: (r.decided, r.skipped)) == list(rules)
    assert all(rule.reason for rule in rules)
    needed = needed_passes()
    assert [each.name for each in needed] == sorted(each.name for each in needed)
    assert not {rule.skipped for rule in rules} & {each.name for each in needed}


def test_a_position_survives_json(module: hloenv.HloModule, finished: str):
    stopped = hloenv.run_until(module, "fusion")
    place = PipelinePosition.from_json(stopped.position.to_json())
    assert place == stopped.position
    moved = hloenv.HloModule._wrap(stopped._core, position=place)
    assert hloenv.finish(moved).fingerprint() == finished


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"path": 1, "occurrence": 1, "changed": ""}',
        '{"path": "a", "occurrence": 1, "changed": "2"}',
        '{"path": "a", "occurrence": 1, "changed": "", "more": 1}',
    ],
)
def test_other_text_is_not_a_position(text: str):
    with pytest.raises(hloenv.PositionError, match="position"):
        PipelinePosition.from_json(text)


@pytest.mark.parametrize(
    ("where", "occurrence", "message"),
    [
        ("fusoin", 1, "never reaches 'fusoin'; similar names are 'fusion'"),
        ("algebraic", 1, "never reaches"),
        ("fusion", 2, "reaches 'fusion' 1 time, not 2"),
        ("usion", 1, "never reaches"),
        ("", 1, "a stop needs"),
        ("fusion", 0, "integer occurrence >= 1"),
    ],
)
def test_positions_that_are_never_reached(
    module: hloenv.HloModule, where: str, occurrence: int, message: str
):
    with pytest.raises(hloenv.PositionError, match=message):
        hloenv.run_until(module, where, occurrence=occurrence)


def test_a_position_before_the_current_one(module: hloenv.HloModule):
    stopped = hloenv.run_until(module, "fusion")
    with pytest.raises(hloenv.PositionError, match="the module is past that"):
        hloenv.run_until(stopped, "layout-assignment")
    again = hloenv.run_until(stopped, "fusion")
    assert again.fingerprint() == stopped.fingerprint()
    assert again.position == stopped.position


def test_a_position_of_another_pipeline_is_rejected(module: hloenv.HloModule):
    wrong = hloenv.HloModule._wrap(
        module._core, position=PipelinePosition("HLO passes/fusion", 1, "0" * 10)
    )
    with pytest.raises(hloenv.PositionError, match="the recorded position"):
        hloenv.finish(wrong)
    late = hloenv.HloModule._wrap(
        module._core, position=PipelinePosition(f"{AFTER_LAYOUTS}/dce", 9, "0" * 5000)
    )
    with pytest.raises(hloenv.PositionError, match="did not reach"):
        hloenv.finish(late)


def test_threads_compile_side_by_side(module: hloenv.HloModule, finished: str):
    def run(stop: tuple[str, int]) -> str:
        return hloenv.finish(hloenv.run_until(module, stop[0])).fingerprint()

    assert in_threads(run, STOPS[:4]) == [finished] * 4


def test_interrupts_end_the_pipeline(hlo_dir: Path):
    module = hloenv.HloModule.from_file(hlo_dir / f"{LARGE_MODULE}.txt")
    wanted = hloenv.finish(module).fingerprint()
    assert share_done_when_interrupted(lambda: hloenv.finish(module)) < 0.5
    assert hloenv.finish(module).fingerprint() == wanted


# A copy between layouts that a bitcast needs, as reshape-decomposer leaves it.
BITCAST = """
HloModule bitcast

ENTRY main {
  x = f32[2,4,8,16]{3,2,1,0} parameter(0)
  t = f32[2,16,4,8]{1,3,2,0} transpose(x), dimensions={0,3,1,2}
  c = f32[2,16,4,8]{3,2,1,0} copy(t)
  ROOT r = f32[2,16,32]{2,1,0} bitcast(c)
}
"""


@pytest.mark.parametrize("name", ["algsimp", "cse", "general-simplify"])
def test_layouts_that_bitcasts_depend_on_are_kept(name: str):
    env = hloenv.HloEnv(BITCAST)
    alternatives = env.get_alternatives(name)
    errors = hloenv.verify_alternatives(alternatives)
    assert [each for each in errors if each.absolute > 0] == []
    decisions = [1] * len(alternatives)
    x = np.arange(1024, dtype=np.float32).reshape(2, 4, 8, 16)
    want = x.transpose(0, 3, 1, 2).reshape(2, 16, 32)
    (got,) = hloenv.interpret(env.apply_alternatives(decisions), x)
    np.testing.assert_array_equal(got, want)


def test_simplification_is_rejected_where_bitcasts_depend_on_layouts():
    env = hloenv.HloEnv(BITCAST)
    with pytest.raises(hloenv.PositionError, match="depend on layouts"):
        env.get_alternatives("simplification")
    with pytest.raises(hloenv.PositionError, match="depend on layouts"):
        env.run("cse", "simplification")
    assert env.trace.steps == ()


# The bitcast reads the order in memory that the copy has made.
COPIED = """HloModule copied

ENTRY e {
  p = f32[6,4]{0,1} parameter(0)
  c = f32[6,4]{1,0} copy(p)
  b = f32[6,2,2]{2,1,0} bitcast(c)
  ROOT n = f32[6,2,2]{2,1,0} negate(b)
}
"""


@pytest.mark.parametrize("name", ["algsimp", "cse"])
def test_layouts_cannot_be_ignored_where_values_depend_on_them(name):
    env = hloenv.HloEnv(COPIED)
    with pytest.raises(hloenv.PositionError, match="is_layout_sensitive=False gives"):
        env.get_alternatives(hloenv.Pass(name, is_layout_sensitive=False))
    with pytest.raises(hloenv.PositionError, match="leave the option out"):
        env.run(hloenv.Pass(name, is_layout_sensitive=False))
    for option in ({}, {"is_layout_sensitive": True}):
        alternatives = env.get_alternatives(hloenv.Pass(name, **option))
        for record in hloenv.verify_alternatives(alternatives):
            assert record.relative == 0


# The first pass of the pipeline makes a copy to another layout, and a bitcast of it.
RESHAPED = """HloModule reshaped

ENTRY e {
  p = f32[16,10]{0,1} parameter(0)
  a = f32[160]{0} reshape(p)
  ROOT n = f32[160]{0} negate(a)
}
"""


@pytest.mark.filterwarnings("ignore::hloenv.PositionWarning")
@pytest.mark.parametrize("first", ["hlo normalization", "reshape-decomposer"])
@pytest.mark.parametrize("fixed_point", [False, True])
def test_a_pipeline_looks_at_layouts_after_a_pass_that_made_bitcasts(
    first, fixed_point
):
    names = ["algsimp", first] if fixed_point else [first, "algsimp"]
    inner = hloenv.Pipeline("inner", names, fixed_point=fixed_point)
    for pipeline in (inner, hloenv.Pipeline("outer", [inner, "algsimp"])):
        env = hloenv.HloEnv(RESHAPED)
        alternatives = env.get_alternatives(pipeline)
        assert alternatives.num_choices.tolist() == [2]
        for record in hloenv.verify_alternatives(alternatives):
            assert record.relative == 0
        env.run(pipeline)
        assert "copy" in env.module.opcode_counts()


@pytest.mark.filterwarnings("ignore::hloenv.PositionWarning")
@pytest.mark.parametrize("name", ["simplification", "algsimp"])
def test_a_pipeline_cannot_ignore_layouts_after_such_a_pass(name):
    options = {"is_layout_sensitive": False} if name == "algsimp" else {}
    passes = ["reshape-decomposer", hloenv.Pass(name, **options)]
    env = hloenv.HloEnv(RESHAPED)
    with pytest.raises(hloenv.PositionError, match="after 'reshape-decomposer'"):
        env.get_alternatives(hloenv.Pipeline("both", passes))
    # The other way round, nothing depends on layouts yet.
    alternatives = env.get_alternatives(hloenv.Pipeline("both", passes[::-1]))
    for record in hloenv.verify_alternatives(alternatives):
        assert record.relative == 0


def test_bitcasts_before_layout_assignment_are_warned_of():
    with pytest.warns(hloenv.PositionWarning, match="bitcasts do not compile"):
        hloenv.HloEnv(RESHAPED).get_alternatives("reshape-decomposer")


def test_a_pass_that_only_looks_at_layouts_makes_no_bitcasts():
    passes = [hloenv.Pass("cse", is_layout_sensitive=True), "simplification"]
    pipeline = hloenv.Pipeline("both", passes)
    assert hloenv.HloEnv(RESHAPED).get_alternatives(pipeline).pass_names == ("both",)


def test_passes_look_at_layouts_once_a_pass_made_bitcasts():
    env = hloenv.HloEnv(BITCAST.replace("bitcast(c)", "reshape(t)"))
    env.run("reshape-decomposer", "algsimp")
    x = np.arange(1024, dtype=np.float32).reshape(2, 4, 8, 16)
    want = x.transpose(0, 3, 1, 2).reshape(2, 16, 32)
    (got,) = hloenv.interpret(env.module, x)
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("name", ["m.hlo", "m.pb"])
def test_a_saved_module_continues_from_its_position(tmp_path, name):
    env = hloenv.HloEnv(PLACED)
    env.run_until("fusion")
    alternatives = env.get_alternatives("fusion")
    env.apply_alternatives(alternatives.decisions_for("fusion"))
    env.module.save(tmp_path / name)
    again = hloenv.HloModule.from_file(tmp_path / name)
    assert again.position == env.module.position
    assert again.decided == env.module.decided == {"fusion"}
    assert again.fingerprint() == env.module.fingerprint()
    assert "hloenv_place" not in again.to_text()
    assert finish(again).fingerprint() == finish(env.module).fingerprint()
    inputs = hloenv.random_inputs(again)
    wanted = hloenv.compile(PLACED)(*inputs)
    np.testing.assert_array_equal(hloenv.compile(again, isolate=False)(*inputs), wanted)
    again.save(tmp_path / "again.hlo")
    assert hloenv.HloModule.from_file(tmp_path / "again.hlo").position == again.position


def test_layouts_must_agree_behind_layout_assignment(tmp_path):
    """Each layout alone is possible; XLA's verifier compares them only if asked to."""
    text = """HloModule transposed, entry_computation_layout={(f32[4,8]{1,0})->f32[4,8]{1,0}}

ENTRY main {
  x = f32[4,8]{1,0} parameter(0)
  n = f32[4,8]{1,0} negate(x)
  ROOT out = f32[4,8]{1,0} add(n, x)
}
"""
    wrong = text.replace("n = f32[4,8]{1,0}", "n = f32[4,8]{0,1}")
    before = hloenv.HloModule.from_text(wrong)  # layout assignment will set it
    before.verify()
    behind = hloenv.run_until(text, "fusion")
    behind.verify()
    moved = hloenv.HloModule._wrap(before._core, position=behind.position)
    with pytest.raises(hloenv.InvalidModuleError, match=r"layout|\{0,1\}"):
        moved.verify()
    moved.save(tmp_path / "moved.hlo")
    with pytest.raises(hloenv.InvalidModuleError, match=r"moved\.hlo"):
        hloenv.HloModule.from_file(tmp_path / "moved.hlo")
    later = hloenv.HloModule.from_file(tmp_path / "moved.hlo", verify=False)
    with pytest.raises(hloenv.InvalidModuleError):
        later.fingerprint()


def test_a_module_at_the_start_is_saved_as_it_is(tmp_path):
    module = hloenv.HloModule.from_text(PLACED)
    module.save(tmp_path / "m.hlo")
    assert (tmp_path / "m.hlo").read_text() == module.to_text() + "\n"


@pytest.mark.parametrize(
    "note", ["{}", '"here"', '{"place":3,"decided":[]}', '{"place":null,"decided":[1]}']
)
def test_an_invalid_saved_position_is_rejected(note):
    text = PLACED.replace(
        "HloModule placed",
        f"HloModule placed, frontend_attributes={{hloenv_place={note}}}",
    )
    with pytest.raises(hloenv.PositionError, match="hloenv_place"):
        hloenv.HloModule.from_text(text)


PLACED = """
HloModule placed

ENTRY main {
  x = f32[8,8] parameter(0)
  s = f32[8,8] sine(x)
  d = f32[8,8] dot(s, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  e = f32[8,8] exponential(d)
  ROOT r = f32[8,8] add(e, s)
}
"""
