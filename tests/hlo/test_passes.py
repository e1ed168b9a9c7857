# SPDX-License-Identifier: Apache-2.0
"""Passes by name: options, pipelines, errors, and what a run reports."""

from __future__ import annotations

import copy
import json
import pickle

import numpy as np
import pytest

from hloenv.errors import PassError, PassOptionError, UnknownPassError
from hloenv.hlo.module import HloModule
from hloenv.hlo.passes import (
    Pass,
    Pipeline,
    as_pipeline,
    core,
    describe_pass,
    from_json,
    list_passes,
    run_passes,
    to_core,
)
from hloenv.rewrite.env import HloEnv
from support.modules import RESHAPED_FUSION

_RUNNABLE = [name for name in list_passes() if not describe_pass(name).candidate]

ADD_ZERO = """HloModule add_zero
ENTRY main {
  p = f32[4] parameter(0)
  zero = f32[] constant(0)
  zeros = f32[4] broadcast(zero), dimensions={}
  ROOT sum = f32[4] add(p, zeros)
}"""

LOOP = """HloModule loop
body {
  state = (s32[], f32[8], f32[8]) parameter(0)
  i = s32[] get-tuple-element(state), index=0
  x = f32[8] get-tuple-element(state), index=1
  y = f32[8] get-tuple-element(state), index=2
  one = s32[] constant(1)
  next = s32[] add(i, one)
  invariant = f32[8] exponential(y)
  z = f32[8] add(x, invariant)
  ROOT result = (s32[], f32[8], f32[8]) tuple(next, z, y)
}
condition {
  state = (s32[], f32[8], f32[8]) parameter(0)
  i = s32[] get-tuple-element(state), index=0
  n = s32[] constant(5)
  ROOT less = pred[] compare(i, n), direction=LT
}
ENTRY main {
  x = f32[8] parameter(0)
  zero = s32[] constant(0)
  start = (s32[], f32[8], f32[8]) tuple(zero, x, x)
  done = (s32[], f32[8], f32[8]) while(start), condition=condition, body=body
  ROOT out = f32[8] get-tuple-element(done), index=1
}"""

CALLS = """HloModule calls
double {
  x = f32[4,4] parameter(0)
  ROOT sum = f32[4,4] add(x, x)
}
negative {
  x = f32[4,4] parameter(0)
  ROOT minus = f32[4,4] negate(x)
}
ENTRY main {
  p = f32[4,4] parameter(0)
  q = pred[] parameter(1)
  a = f32[4,4] call(p), to_apply=double
  b = f32[4,4] call(a), to_apply=double
  c = f32[4,4] conditional(q, a, b),
    true_computation=double, false_computation=negative
  t = f32[4,4] transpose(c), dimensions={1,0}
  d = f32[4,4] dot(t, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT out = (f32[4,4], f32[4,4]) tuple(d, c)
}"""

# Batching dimensions: XLA's two simplifiers fail on them, one by a CHECK.
BATCHED = """HloModule batched
assign {
  old = f32[] parameter(0)
  ROOT new = f32[] parameter(1)
}
ENTRY main {
  x = f32[2,8] parameter(0)
  i = s32[2,1,1] parameter(1)
  g = f32[2,1] gather(x, i),
    offset_dims={}, collapsed_slice_dims={1}, start_index_map={1},
    operand_batching_dims={0}, start_indices_batching_dims={0},
    index_vector_dim=2, slice_sizes={1,1}
  ROOT s = f32[2,8] scatter(x, i, g),
    update_window_dims={}, inserted_window_dims={1}, scatter_dims_to_operand_dims={1},
    input_batching_dims={0}, scatter_indices_batching_dims={0},
    index_vector_dim=2, to_apply=assign
}"""

MIXED = """HloModule mixed
larger {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT m = f32[] maximum(a, b)
}
less {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT l = pred[] compare(a, b), direction=LT, type=TOTALORDER
}
ENTRY main {
  x = f32[64] parameter(0)
  h = f16[8,8] parameter(1)
  m = f32[3,3] parameter(2)
  low = f32[] constant(-inf)
  logistic = f32[64] logistic(x)
  window = f32[64] reduce-window(logistic, low),
    window={size=64 pad=63_0}, to_apply=larger
  sorted = f32[64] sort(window), dimensions={0}, to_apply=less
  total = f32[] reduce(sorted, low), dimensions={0}, to_apply=larger
  product = f16[8,8] dot(h, h), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  wide = f32[8,8] convert(product)
  factor = f32[3,3] cholesky(m), lower=true
  solved = f32[3,3] triangular-solve(factor, m),
    left_side=true, lower=true, transpose_a=NO_TRANSPOSE
  barrier = f32[3,3] opt-barrier(solved)
  empty = f32[0] constant({})
  ROOT out = (f32[], f32[8,8], f32[3,3], f32[0]) tuple(total, wide, barrier, empty)
}"""

MODULES = {
    "add_zero": ADD_ZERO,
    "loop": LOOP,
    "calls": CALLS,
    "batched": BATCHED,
    "mixed": MIXED,
}


def _flat(text: str) -> HloModule:
    return run_passes(HloModule.from_text(text), "flatten-call-graph").module


def _opcodes(text: str, *passes: str | Pass | Pipeline) -> dict[str, int]:
    return run_passes(HloModule.from_text(text), *passes).module.opcode_counts()


def _option_sets(name: str) -> list[dict[str, bool | str]]:
    sets: list[dict[str, bool | str]] = [{}]
    for option in describe_pass(name).options:
        if isinstance(option.default, bool):
            sets.append({option.name: not option.default})
        sets += [{option.name: v} for v in option.allowed if v != option.default]
    return sets


def test_names_are_sorted_and_include_the_common_passes():
    names = list_passes()
    assert list(names) == sorted(names)
    assert {"algsimp", "cse", "dce", "constant_folding", "fusion"} <= set(names)


@pytest.mark.parametrize("name", _RUNNABLE)
def test_name_is_the_one_that_xla_gives_the_pass(name: str):
    assert core.xla_pass_name(name) == name


@pytest.mark.parametrize("name", list_passes())
def test_every_pass_and_option_is_typed_and_documented(name: str):
    info = describe_pass(name)
    assert info.name == name
    assert info.summary.endswith(".")
    assert [option.name for option in info.options] == sorted(
        option.name for option in info.options
    )
    types = {"bool": bool, "int": int, "float": float, "string": str}
    for option in info.options:
        assert type(option.default) is types[option.type]
        assert option.doc.endswith(".")
        assert option.name.isidentifier()
        if option.allowed:
            assert option.default in option.allowed
        if option.minimum is not None:
            assert option.default >= option.minimum


# Pipelines of XLA's whose gather_simplifier takes no batching dimensions.
_UNBATCHED = {"post_scatter_expansion_simplification", "simplification"}


def _modules_for(name: str) -> list[str]:
    return [t for t in MODULES.values() if t != BATCHED or name not in _UNBATCHED]


@pytest.mark.parametrize("name", sorted(_UNBATCHED))
def test_pipelines_reject_input_that_would_crash(name: str):
    with pytest.raises(PassError, match="batched_gather_scatter_normalizer"):
        run_passes(BATCHED, name)
    mended = run_passes(BATCHED, "batched_gather_scatter_normalizer").module
    run_passes(mended, name).module.verify()


@pytest.mark.parametrize("name", _RUNNABLE)
def test_every_pass_runs_with_every_switch(name: str):
    for text in _modules_for(name):
        module = _flat(text)
        before = module.to_text()
        for options in _option_sets(name):
            run_passes(module, Pass(name, **options)).module.verify()
        assert module.to_text() == before


@pytest.mark.parametrize("name", _RUNNABLE)
def test_pass_that_reports_no_change_makes_none(name: str):
    for text in _modules_for(name):
        module = _flat(text)
        run = run_passes(module, name)
        if not run.changed:
            assert run.module.fingerprint() == module.fingerprint()


@pytest.mark.parametrize(
    ("text", "name", "options", "opcode", "before", "after"),
    [
        (ADD_ZERO, "algsimp", {}, "add", 1, 0),
        (CALLS, "call-inliner", {}, "call", 2, 0),
        (CALLS, "call-inliner", {"single_call_site": True}, "call", 2, 2),
        (CALLS, "transpose-folding", {}, "transpose", 1, 0),
        (MIXED, "logistic-expander", {}, "logistic", 1, 0),
        (MIXED, "cse_barrier_expander", {}, "opt-barrier", 1, 0),
        (MIXED, "cholesky_expander", {}, "cholesky", 1, 0),
        (MIXED, "triangular_solve_expander", {}, "triangular-solve", 1, 0),
        (BATCHED, "scatter_expander", {"mode": "all"}, "scatter", 1, 0),
        (BATCHED, "scatter_expander", {}, "scatter", 1, 1),
        (BATCHED, "gather_expander", {"mode": "all"}, "gather", 1, 0),
        (BATCHED, "gather_simplifier", {}, "gather", 1, 1),
        (BATCHED, "scatter_simplifier", {}, "scatter", 1, 1),
    ],
)
def test_pass_does_its_work(text, name, options, opcode, before, after):
    assert HloModule.from_text(text).opcode_counts().get(opcode, 0) == before
    assert _opcodes(text, Pass(name, **options)).get(opcode, 0) == after


def test_invariant_code_motion_takes_work_out_of_the_loop():
    def entry(module: HloModule) -> str:
        return module.to_text().split("ENTRY")[1]

    module = HloModule.from_text(LOOP)
    assert "exponential(" not in entry(module)
    moved = run_passes(module, "while-loop-invariant-code-motion").module
    assert "exponential(" in entry(moved)


def test_result_keeps_the_position():
    module = HloModule._wrap(
        HloModule.from_text(ADD_ZERO)._core, decided=frozenset({"fusion"})
    )
    assert run_passes(module, "algsimp").module.decided == {"fusion"}


# Pipelines.


def test_pipeline_runs_once_by_default():
    run = run_passes(ADD_ZERO, Pipeline("simplify", ["algsimp", "dce"]))
    assert (run.iterations, run.stop_reason, run.changed) == (1, "ran-once", True)
    assert [step.path for step in run.steps] == ["algsimp", "dce"]
    assert all(step.duration_ns > 0 for step in run.steps)


def test_fixed_point_stops_when_a_round_changes_nothing():
    pipeline = Pipeline("simplify", ["algsimp", "dce"], fixed_point=True)
    run = run_passes(ADD_ZERO, pipeline)
    assert (run.iterations, run.stop_reason, run.changed) == (2, "converged", True)
    assert [step.changed for step in run.steps[2:]] == [False, False]


def test_fixed_point_stops_at_the_iteration_limit():
    pipeline = Pipeline("simplify", ["algsimp"], fixed_point=True, max_iterations=1)
    run = run_passes(ADD_ZERO, pipeline)
    assert (run.iterations, run.stop_reason) == (1, "iteration-limit")


def test_fixed_point_that_changes_nothing_reports_no_change():
    pipeline = Pipeline("simplify", ["logistic-expander"], fixed_point=True)
    run = run_passes(ADD_ZERO, pipeline)
    assert (run.iterations, run.stop_reason, run.changed) == (1, "converged", False)


def test_nested_pipelines_report_their_steps_by_path():
    inner = Pipeline("inner", ["algsimp"], fixed_point=True)
    run = run_passes(ADD_ZERO, Pipeline("outer", ["cse", inner]))
    assert [(step.path, step.iteration, step.changed) for step in run.steps] == [
        ("cse", 0, False),
        ("inner", 0, True),
        ("inner/algsimp", 0, True),
        ("inner/algsimp", 1, False),
    ]


def test_several_passes_run_in_order():
    folded = run_passes(CALLS, "call-inliner", "dce").module
    assert folded.opcode_counts().get("call", 0) == 0


def test_pass_alone_is_a_pipeline_with_its_name():
    one = Pass("cse", is_layout_sensitive=True)
    assert as_pipeline("cse") == Pipeline("cse", ["cse"])
    assert as_pipeline(one) == Pipeline("cse", [one])
    assert as_pipeline(Pipeline("mine", ["cse"])).name == "mine"
    assert to_core(as_pipeline(one)).name == "cse"


# Values.


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


# Errors.


@pytest.mark.parametrize(
    ("name", "suggestion"),
    [
        ("algsmp", "algsimp"),
        ("AlgebraicSimplifier", "algsimp"),
        ("hlo_dce", "dce"),
        ("call_inliner", "call-inliner"),
        ("Reshape Mover", "reshape-mover"),
        ("WhileLoopSimplifier", "simplify-while-loops"),
        ("qr", "qr_expander"),
    ],
)
def test_unknown_pass_suggests_the_nearest(name: str, suggestion: str):
    with pytest.raises(UnknownPassError, match=f"did you mean '{suggestion}'"):
        Pass(name)


def test_unknown_pass_without_a_near_name_suggests_nothing():
    with pytest.raises(UnknownPassError) as caught:
        run_passes(ADD_ZERO, "zzzzzz")
    assert "did you mean" not in str(caught.value)
    assert f"`hloenv passes` lists all {len(list_passes())}" in str(caught.value)


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        (
            "cse",
            {"layout_sensitive": True},
            ["layout_sensitive", "did you mean", "bool"],
        ),
        ("logistic-expander", {"x": 1}, ["It takes no options", "1 (int)"]),
        ("cse", {"is_layout_sensitive": 1}, ["takes a bool", "not 1 (int)"]),
        ("cse", {"is_layout_sensitive": "yes"}, ["takes a bool", "'yes' (string)"]),
        ("algsimp", {"very_small_gather_size": True}, ["an int", "true (bool)"]),
        ("algsimp", {"very_small_gather_size": 2.0}, ["an int", "2.0 (float)"]),
        ("algsimp", {"very_small_gather_size": -1}, ["at least 0", "-1"]),
        ("algsimp", {"very_small_gather_size": 2**70}, ["64 bits"]),
        ("algsimp", {"associative_reordering_threshold": "a"}, ["a float or an int"]),
        ("constant_folding", {"level": "all"}, ["'default', 'aggressive'", "'all'"]),
        ("cse", {"is_layout_sensitive": None}, ["None (NoneType)"]),
        ("cse", {"is_layout_sensitive": [1]}, ["[1] (list)"]),
    ],
)
def test_wrong_option_is_explained(name, options, words):
    with pytest.raises(PassOptionError) as caught:
        Pass(name, **options)
    for word in [*words, f"'{name}'"]:
        assert word in str(caught.value)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Pipeline("p", []),
        lambda: Pipeline("", ["cse"]),
        lambda: Pipeline("p", "cse"),
        lambda: Pipeline("p", None),
        lambda: Pipeline("p", [3]),
        lambda: Pipeline("p", ["cse"], max_iterations=0),
        lambda: Pipeline("p", ["cse"], max_iterations=True),
        lambda: Pipeline("p", ["cse"], max_iterations=2**31),
        lambda: Pipeline("p", ["cse"], fixed_point=1),
        lambda: as_pipeline(3),
        lambda: run_passes(ADD_ZERO),
        lambda: core.PipelineSpec("p", [], False, 1),
        lambda: core.PipelineSpec("p", [("cse", {})], True, 0),
    ],
)
def test_wrong_pipeline_is_rejected(make):
    with pytest.raises(PassOptionError):
        make()


def test_candidate_pass_cannot_run():
    with pytest.raises(PassError, match="capture its alternatives"):
        run_passes(ADD_ZERO, "general-fusion")
    with pytest.raises(PassError, match="capture its alternatives"):
        run_passes(ADD_ZERO, Pipeline("p", ["cse", "general-fusion"]))


def test_failing_pass_is_named_by_its_path():
    # XLA's own copy insertion rejects a computation that two loops share.
    twice = LOOP.replace(
        "ROOT out = f32[8] get-tuple-element(done), index=1",
        """again = (s32[], f32[8], f32[8]) while(done), condition=condition, body=body
  ROOT out = f32[8] get-tuple-element(again), index=1""",
    )
    with pytest.raises(PassError, match=r"'late/copy-insertion'.*'loop'"):
        run_passes(twice, Pipeline("p", [Pipeline("late", ["copy-insertion"])]))


@pytest.mark.parametrize("name", ["reshape-mover", "cse+reshape-mover"])
def test_a_pass_that_makes_a_module_invalid_fails(name: str):
    module = HloModule.from_text(RESHAPED_FUSION)
    env = HloEnv(module)
    passes = Pipeline(name, name.split("+"))
    for run in (lambda: run_passes(module, passes), lambda: env.run(passes)):
        with pytest.raises(PassError, match="makes the valid module 'm' invalid"):
            run()
    assert env.module is module


@pytest.mark.slow
def test_every_pass_on_a_real_module(real_module_path):
    module = run_passes(
        real_module_path, "flatten-call-graph", "call-inliner", "dce"
    ).module
    for name in _RUNNABLE:
        run_passes(module, name).module.verify()
