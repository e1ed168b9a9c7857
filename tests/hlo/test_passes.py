# SPDX-License-Identifier: Apache-2.0
"""Registered passes: descriptions, and runs of each of them."""

from __future__ import annotations

import functools

import pytest

from hloenv.errors import PassError
from hloenv.hlo.module import HloModule
from hloenv.hlo.passes import (
    Pass,
    Pipeline,
    core,
    describe_pass,
    list_passes,
    run_passes,
)
from support.modules import ADD_ZERO, CALLS, LOOP

_RUNNABLE = [name for name in list_passes() if not describe_pass(name).candidate]

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


@functools.cache
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
    normalized = run_passes(BATCHED, "batched_gather_scatter_normalizer").module
    run_passes(normalized, name).module.verify()


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


@pytest.mark.slow
def test_every_pass_on_a_real_module(real_module_path):
    module = run_passes(
        real_module_path, "flatten-call-graph", "call-inliner", "dce"
    ).module
    for name in _RUNNABLE:
        run_passes(module, name).module.verify()
