# SPDX-License-Identifier: Apache-2.0
"""The core loop against XLA's own passes, in one process, as ratios.

`scripts/bench.sh` runs these and makes the table of docs/results.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from pytest_benchmark.fixture import BenchmarkFixture

import hloenv

from .modules import chain_module
from .ratio import compare, geometric_mean, report

pytestmark = pytest.mark.bench

# Every 6th real module: small and large ones of most packages.
_EVERY = 6

# Steps a second to reach on a module of 2,500 instructions.
_STEPS = {"cse": 60, "algsimp": 40}


def _xla_passes() -> list[str]:
    return [
        name
        for name in hloenv.list_passes()
        if not hloenv.describe_pass(name).candidate
    ]


@pytest.mark.filterwarnings("ignore::hloenv.PositionWarning")
def test_capture_costs_little_more_than_the_pass(
    benchmark: BenchmarkFixture, real_module_paths: list[Path]
) -> None:
    """get_alternatives over native pass + one clone, by pass, on real modules."""
    modules = [hloenv.HloModule.from_file(p) for p in real_module_paths[::_EVERY]]
    by_pass: dict[str, list[float]] = {}
    for name in _xla_passes():
        for module in modules:
            env = hloenv.HloEnv(module)
            try:
                hloenv.run_passes(module, name)
            except hloenv.PassError:
                continue  # the pass rejects the module; so does the capture
            measured = compare(
                lambda env=env, name=name: env.get_alternatives(name),
                lambda module=module, name=name: hloenv.run_passes(module, name),
                seconds=0.03,
                min_rounds=7,
            )
            by_pass.setdefault(name, []).append(measured.ratio)
    means = {name: geometric_mean(ratios) for name, ratios in by_pass.items()}
    worst = max(means, key=lambda name: means[name])
    report(
        benchmark,
        f"`get_alternatives` over native pass + clone, {len(means)} passes, "
        f"{len(modules)} real modules: geometric mean",
        "at most 1.25",
        f"{geometric_mean(list(means.values())):.2f}",
    )
    report(
        benchmark, "the same, worst pass", "at most 2", f"{means[worst]:.2f} ({worst})"
    )
    env = hloenv.HloEnv(modules[0])
    benchmark(lambda: env.get_alternatives("algsimp"))


_TEN = (
    "algsimp",
    "cse",
    "constant_folding",
    "reshape-mover",
    "tuple-simplifier",
    "transpose-folding",
    "dot_decomposer",
    "call-inliner",
    "zero_sized_hlo_elimination",
    "broadcast_canonicalizer",
)


def test_joint_capture_costs_what_its_parts_cost(
    benchmark: BenchmarkFixture, real_module_paths: list[Path]
) -> None:
    """get_alternatives of ten passes at once over ten calls with one each."""
    ratios = []
    for path in real_module_paths[::_EVERY]:
        env = hloenv.HloEnv(path)

        def apart(env: hloenv.HloEnv = env) -> None:
            for name in _TEN:
                env.get_alternatives(name)

        together = compare(
            lambda env=env: env.get_alternatives(*_TEN),
            apart,
            seconds=0.3,
            max_rounds=50,
        )
        ratios.append(together.ratio)
    report(
        benchmark,
        f"capturing {len(_TEN)} passes jointly over one by one, {len(ratios)} modules: "
        "geometric mean",
        "at most 1.1",
        f"{geometric_mean(ratios):.2f} (worst {max(ratios):.2f})",
    )
    benchmark(lambda: None)


@pytest.mark.parametrize("name", ["cse", "algsimp"])
def test_whole_step(benchmark: BenchmarkFixture, name: str) -> None:
    """get_alternatives, features, apply, on 2,500 instructions."""
    env = hloenv.HloEnv(chain_module(2500))
    state = env.snapshot()

    def step() -> None:
        alternatives = env.get_alternatives(name)
        env.graph()
        env.apply_alternatives(alternatives.decisions_for(name))
        env.restore(state)

    benchmark(step)
    native = compare(step, lambda: hloenv.run_passes(state.module, name))
    report(
        benchmark,
        f"whole step in Python (capture, features, apply) with {name}, "
        f"{state.module.instruction_count:,} instructions",
        f"at least {_STEPS[name]} a second",
        f"{1e9 / native.ours_ns:.0f} a second ({native.ratio:.2f} of pass + clone)",
    )


@pytest.mark.parametrize("name", ["cse", "algsimp"])
def test_overhead_does_not_grow_with_the_module(
    benchmark: BenchmarkFixture, name: str
) -> None:
    """A step over native pass + clone, 100,000 instructions against 1,000."""
    ratios = {}
    for size in (1_000, 100_000):
        env = hloenv.HloEnv(chain_module(size))
        state = env.snapshot()

        def step(env: hloenv.HloEnv = env, state: hloenv.State = state) -> None:
            alternatives = env.get_alternatives(name)
            env.apply_alternatives(alternatives.decisions_for(name))
            env.restore(state)

        ratios[size] = compare(
            step,
            lambda state=state: hloenv.run_passes(state.module, name),
            seconds=2,
            min_rounds=3,
        ).ratio
    report(
        benchmark,
        f"a step's overhead with {name}, 100,000 instructions over 1,000",
        "at most 1.5",
        f"{ratios[100_000] / ratios[1_000]:.2f} "
        f"({ratios[100_000]:.2f} over {ratios[1_000]:.2f})",
    )
    benchmark(lambda: None)


def test_snapshot_and_restore_cost_less_than_a_clone(
    benchmark: BenchmarkFixture,
) -> None:
    """Snapshot and restore over one clone."""
    env = hloenv.HloEnv(chain_module(2500))

    def both() -> None:
        env.restore(env.snapshot())

    benchmark(both)
    ratio = compare(both, env.module.clone).ratio
    report(benchmark, "snapshot and restore over a clone", "below 1", f"{ratio:.3f}")


def test_import_costs_little_over_loading_the_libraries(
    benchmark: BenchmarkFixture,
) -> None:
    """Seconds that `import hloenv` takes beyond loading TensorFlow's libraries."""
    libraries = (
        "import time; start = time.perf_counter();"
        "import ctypes, importlib.util, pathlib;"
        "folder = pathlib.Path(importlib.util.find_spec('tensorflow')"
        ".submodule_search_locations[0]);"
        "[ctypes.CDLL(str(folder / name)) for name in"
        " ('libtensorflow_framework.so.2', 'libtensorflow_cc.so.2')];"
        "print(time.perf_counter() - start)"
    )
    whole = (
        "import time; start = time.perf_counter(); import hloenv;"
        "print(time.perf_counter() - start)"
    )

    def seconds(code: str) -> float:
        return float(
            subprocess.run(
                [sys.executable, "-c", code], capture_output=True, text=True, check=True
            ).stdout
        )

    samples = [(seconds(libraries), seconds(whole)) for _ in range(5)]
    report(
        benchmark,
        "`import hloenv` beyond loading TensorFlow's libraries "
        f"({np.median([a for a, _ in samples]):.2f} s)",
        "at most 0.3 s",
        f"{np.median([b - a for a, b in samples]):.2f} s",
    )
    benchmark(time.perf_counter)
