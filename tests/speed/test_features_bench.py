# SPDX-License-Identifier: Apache-2.0
"""Speed of graph features relative to a clone of the same module."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from hloenv.graph.hlo_graph import HloGraph
from hloenv.hlo.module import HloModule

from .ratio import report

REDUCER = """\
add {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT sum = f32[] add(a, b)
}
"""

# Of 2,674, 5,732 and 6,960 instructions.
REAL = (
    "dm-haiku/resnet18_train.txt",
    "flax/transformer_L4_train.txt",
    "brax/halfcheetah_positional_step.txt",
)


def softmax_layers(num_instructions: int) -> str:
    """A module of dots, softmaxes and selects with that many instructions."""
    lines = [
        *("HloModule layers", REDUCER, "ENTRY main {"),
        "x = f32[128,256]{1,0} parameter(0)",
        "w = f32[256,256]{1,0} parameter(1)",
        "zero = f32[] constant(0)",
    ]
    wide, thin = "f32[128,256]{1,0}", "f32[128]{0}"
    before = "x"
    for i in range((num_instructions - 7) // 9):
        lines += [
            f"dot{i} = {wide} dot({before}, w), lhs_contracting_dims={{1}}, "
            "rhs_contracting_dims={0}",
            f"exp{i} = {wide} exponential(dot{i})",
            f"sum{i} = {thin} reduce(exp{i}, zero), dimensions={{1}}, to_apply=add",
            f"all{i} = {wide} broadcast(sum{i}), dimensions={{0}}",
            f"div{i} = {wide} divide(exp{i}, all{i})",
            f"flip{i} = f32[256,128]{{1,0}} transpose(div{i}), dimensions={{1,0}}",
            f"flop{i} = {wide} transpose(flip{i}), dimensions={{1,0}}",
            f"less{i} = pred[128,256]{{1,0}} compare(flop{i}, {before}), direction=LT",
            f"pick{i} = {wide} select(less{i}, flop{i}, {before})",
        ]
        before = f"pick{i}"
    lines += [f"ROOT out = {wide} add({before}, x)", "}"]
    return "\n".join(lines)


def fastest_ns(function: Callable[[], object], rounds: int) -> int:
    durations = []
    for _ in range(rounds):
        start = time.perf_counter_ns()
        function()
        durations.append(time.perf_counter_ns() - start)
    return min(durations)


def measure(benchmark, name: str, module: HloModule) -> None:
    rounds = 10 if module.instruction_count > 50_000 else 100
    graph = benchmark.pedantic(
        HloGraph.from_module, args=(module,), rounds=rounds, warmup_rounds=2
    )
    clone_ns = fastest_ns(module.clone, 3)
    graph_ns = benchmark.stats.stats.min * 1e9
    report(
        benchmark,
        f"graph features of {name}, {graph.num_nodes:,} nodes",
        "at least 2 M nodes/s",
        f"{graph.num_nodes / graph_ns * 1e3:.1f} M nodes/s "
        f"({graph_ns / clone_ns:.2f} of a clone)",
    )


@pytest.mark.bench
@pytest.mark.parametrize("size", [2500, 7000, 100_000])
def test_graph_of_softmax_layers(benchmark, size):
    measure(benchmark, "softmax layers", HloModule.from_text(softmax_layers(size)))


@pytest.mark.bench
@pytest.mark.parametrize("path", REAL)
def test_graph_of_real_modules(benchmark, hlo_dir, path):
    measure(benchmark, path.removesuffix(".txt"), HloModule.from_file(hlo_dir / path))


@pytest.mark.bench
def test_all_arrays_of_a_graph(benchmark):
    module = HloModule.from_text(softmax_layers(2500))
    benchmark.pedantic(lambda: HloGraph.from_module(module).arrays(), rounds=100)
