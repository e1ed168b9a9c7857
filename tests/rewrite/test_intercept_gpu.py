# SPDX-License-Identifier: Apache-2.0
"""XLA's GPU compiler, intercepted without a GPU (`bash scripts/dev/test_gpu.sh`)."""

from __future__ import annotations

import random
import warnings
from pathlib import Path

import pytest
from test_intercept import TEXT

import hloenv
from support.run_child import run_python

pytestmark = pytest.mark.gpu_compiler


@pytest.fixture
def module() -> hloenv.HloModule:
    return hloenv.HloModule.from_text(TEXT)


@pytest.mark.parametrize("target", ["h100", "a100", "v100", "b200"])
def test_running_and_accepting_everything_is_an_uninterrupted_compile(module, target):
    with hloenv.intercept(module, target=target) as pipeline:
        wanted = pipeline.finish().fingerprint()
    with hloenv.intercept(module, target=target) as pipeline:
        names = [stage.name for stage in pipeline if stage.run() is not None]
    assert pipeline.module.fingerprint() == wanted
    assert {"priority-fusion", "layout-assignment"} <= set(names)
    num_alternatives = 0
    with hloenv.intercept(module, target=target) as pipeline:
        for stage in pipeline:
            alternatives = stage.get_alternatives()
            num_alternatives += len(alternatives)
            stage.apply_alternatives(alternatives.decisions_for(stage.name))
    assert pipeline.module.fingerprint() == wanted
    assert num_alternatives > 5


def test_targets_differ_and_texts_of_targets_are_taken(module):
    with pytest.raises(hloenv.TargetError):
        hloenv.intercept(module, target="gpu_device_info { threads_per_block_limit: }")
    with pytest.raises(hloenv.TargetError):
        hloenv.intercept(module, target="mi200")


def test_real_modules(hlo_dir: Path):
    paths = sorted(hlo_dir.glob("*/*.txt"))
    paths = [path for path in paths if path.stat().st_size < 12_000]
    for path in random.Random(0).sample(paths, 6):
        module = hloenv.HloModule.from_file(path)
        with hloenv.intercept(module, target="h100") as pipeline:
            wanted = pipeline.finish().fingerprint()
        with hloenv.intercept(module, target="h100") as pipeline:
            for stage in pipeline:
                alternatives = stage.get_alternatives()
                stage.apply_alternatives(alternatives.decisions_for(stage.name))
        assert pipeline.module.fingerprint() == wanted, path


def test_rejected_rewrites_that_the_gpu_compiler_needs_give_a_warning():
    module = hloenv.HloModule.from_text(
        """HloModule m

add {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT sum = f32[] add(a, b)
}

ENTRY main {
  x = f32[64,64,64,64]{3,2,1,0} parameter(0)
  zero = f32[] constant(0)
  ROOT sum = f32[] reduce(x, zero), dimensions={0,1,2,3}, to_apply=add
}
"""
    )
    for name in ("reduction-dimension-grouper", "tree-reduction-rewriter"):
        pipeline = hloenv.intercept(module, target="h100")
        stage = pipeline.run_until(name)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with pytest.raises(hloenv.PositionWarning, match=name):
                stage.apply_alternatives(stage.get_alternatives().reject_all())
            with pytest.raises(hloenv.PositionWarning, match=name):
                stage.skip()
            # The compiler still waits, and its own decisions give no warning.
            alternatives = stage.get_alternatives()
            stage.apply_alternatives(alternatives.decisions_for(name))
        pipeline.finish()


def test_random_fusions_give_valid_modules(module):
    rng = random.Random(0)
    with hloenv.intercept(module, target="h100") as pipeline:
        stage = pipeline.run_until("priority-fusion")
        alternatives = stage.get_alternatives()
        decisions = [rng.randrange(n) for n in alternatives.num_choices]
        stage.apply_alternatives(decisions)
        assert pipeline.stage is not None
        pipeline.stage.module.verify()
        pipeline.finish()


def test_example(root: Path):
    example = root / "scripts" / "examples" / "07_intercept.py"
    child = run_python(str(example), "h100", timeout=300)
    assert child.returncode == 0, child.stderr
    assert "h100: " in child.stdout
