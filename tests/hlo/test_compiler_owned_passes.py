# SPDX-License-Identifier: Apache-2.0
"""Compiler-owned passes and pipelines, and excluded passes."""

from __future__ import annotations

import pytest

import hloenv


def test_names_of_passes_that_are_left_out_come_with_the_reason():
    excluded = hloenv.excluded_passes()
    assert list(excluded) == sorted(excluded)
    assert not set(excluded) & set(hloenv.list_passes())
    for name, reason in excluded.items():
        with pytest.raises(hloenv.UnknownPassError) as caught:
            hloenv.Pass(name)
        assert reason in str(caught.value)


@pytest.mark.parametrize(
    "name",
    [
        "convolution-canonicalization",
        "cpu-parallel-task-assigner",
        "dot-library-rewriter",
    ],
)
def test_compiler_owned_passes_equal_the_compilers(name, hlo_dir):
    path = hlo_dir / "dm-haiku" / "resnet18_train.txt"
    stopped = hloenv.run_until(hloenv.HloModule.from_file(path), name)
    with hloenv.intercept(hloenv.HloModule.from_file(path)) as pipeline:
        stage = pipeline.run_until(name)
        assert stage.module.fingerprint() == stopped.fingerprint()
        changed = stage.run()
        wanted = pipeline.stage.module.fingerprint()
    result = hloenv.run_passes(stopped, name)
    assert (result.changed, result.module.fingerprint()) == (changed, wanted)


@pytest.mark.parametrize("name", ["simplification", "dot-library-passes"])
def test_compiler_owned_pipelines_equal_the_compilers(name, hlo_dir):
    module = hloenv.HloModule.from_file(hlo_dir / "dm-haiku" / "resnet18_train.txt")
    with hloenv.intercept(module) as pipeline:
        stage = pipeline.run_until(name)
        before = stage.module
        inside = stage.path.rsplit("/", 1)[0]
        for each in pipeline:
            if not each.path.startswith(f"{inside}/"):
                wanted = each.module.fingerprint()
                break
    result = hloenv.run_passes(before, name)
    assert result.changed
    assert result.module.fingerprint() == wanted


@pytest.mark.parametrize("bound", ["maximum(x, b), -inf", "minimum(x, b), inf"])
def test_a_pipeline_of_the_compiler_has_the_options_of_its_modules(bound: str) -> None:
    # Found by the matrix of invariants on brax: a bound that does nothing is removed
    # if NaN is kept, which a debug option says.
    operation, _, value = bound.rpartition(", ")
    module = hloenv.HloModule.from_text(f"""HloModule bound

ENTRY main {{
  x = f32[8] parameter(0)
  c = f32[] constant({value})
  b = f32[8] broadcast(c), dimensions={{}}
  ROOT r = f32[8] {operation}
}}""")
    before = hloenv.run_until(module, "simplification")
    wanted = hloenv.run_until(module, "select_and_scatter_expander")
    found = hloenv.run_passes(before, "simplification").module
    assert found.fingerprint() == wanted.fingerprint()
    assert found.instruction_count == 1
