# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from dataclasses import astuple

import numpy as np

from hloenv.graph.hlo_graph import HloGraph, opcodes
from hloenv.hlo.module import HloModule
from support.graphs import (
    HLO,
)


def analysed_by_xla(graph: HloGraph) -> np.ndarray:
    """Nodes whose computation XLA's analysis visits: not what a sort applies."""
    visited = graph.computation_is_entry.copy()
    skipping = [opcodes().index(name) for name in ("sort", "all-reduce", "custom-call")]
    for caller, callee in zip(
        graph.call_nodes[::-1], graph.call_computations[::-1], strict=True
    ):
        if graph.opcode[caller] not in skipping:
            visited[callee] |= visited[graph.computation[caller]]
    return visited[graph.computation]


def check_costs(graph: HloGraph) -> None:
    costs = np.stack([graph.flops, graph.transcendentals, graph.bytes_accessed], axis=1)
    compared = analysed_by_xla(graph) & ~graph.is_alternative
    assert compared.sum() > 0
    # XLA adds in float32.
    np.testing.assert_allclose(
        costs[compared], graph._core.xla_costs()[compared], rtol=2e-6
    )


def test_costs_of_nearly_every_opcode_are_those_of_xla():
    graph = HloGraph.from_module((HLO / "many_opcodes.hlo").read_text())
    graph.validate()
    assert len(np.unique(graph.opcode)) > 90
    check_costs(graph)


def test_costs_of_fusions_are_those_of_xla():
    graph = HloGraph.from_module("""
HloModule fusions

add { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT sum = f32[] add(a, b) }

update { buffer = f32[64]{0} parameter(0)
  value = f32[4]{0} parameter(1)
  at = s32[] parameter(2)
  ROOT u = f32[64]{0} dynamic-update-slice(buffer, value, at) }

several { p = f32[64]{0} parameter(0)
  at = s32[] parameter(1)
  part = f32[4]{0} dynamic-slice(p, at), dynamic_slice_sizes={4}
  two = f32[4]{0} constant({1,2,3,4})
  scaled = f32[4]{0} multiply(part, two)
  u = f32[64]{0} dynamic-update-slice(p, scaled, at)
  zero = f32[] constant(0)
  sum = f32[] reduce(part, zero), dimensions={0}, to_apply=add
  ROOT t = (f32[64]{0}, f32[]) tuple(u, sum) }

leaf { q = f32[64]{0} parameter(0)
  s = f32[2]{0} slice(q), slice={[0:2]}
  ROOT e = f32[2]{0} exponential(s) }

nested { p = f32[64]{0} parameter(0)
  f = f32[2]{0} fusion(p), kind=kLoop, calls=leaf
  ROOT n = f32[2]{0} negate(f) }

unpack { p = (f32[64]{0}, f32[]) parameter(0)
  l = f32[64]{0} get-tuple-element(p), index=0
  r = f32[] get-tuple-element(p), index=1
  w = f32[64]{0} broadcast(r), dimensions={}
  ROOT m = f32[64]{0} multiply(l, w) }

ENTRY main {
  p = f32[64]{0} parameter(0)
  v = f32[4]{0} parameter(1)
  at = s32[] parameter(2)
  f1 = f32[64]{0} fusion(p, v, at), kind=kLoop, calls=update
  f2 = (f32[64]{0}, f32[]) fusion(f1, at), kind=kLoop, calls=several
  f3 = f32[64]{0} fusion(f2), kind=kLoop, calls=unpack
  ROOT f4 = f32[2]{0} fusion(f3), kind=kLoop, calls=nested
}
""")
    graph.validate()
    check_costs(graph)
    fusions = graph.bytes_accessed[graph.fusion_kind >= 0]
    assert len(fusions) == 5
    assert (fusions > 0).all()


def test_real_modules_fit_together_and_cost_what_xla_says(real_module_path):
    module = HloModule.from_file(real_module_path)
    graph = HloGraph.from_module(real_module_path)
    graph.validate()
    assert graph.num_nodes == module.instruction_count
    check_costs(graph)
    totals = [
        graph.computation_flops[-1],
        graph.computation_bytes_accessed[-1],
        graph.computation_transcendentals[-1],
    ]
    # XLA adds thousands of numbers in float32.
    np.testing.assert_allclose(totals, astuple(module.cost()), rtol=1e-4)
