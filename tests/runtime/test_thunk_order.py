# SPDX-License-Identifier: Apache-2.0
"""thunk-order: computations whose thunks run sequentially."""

from __future__ import annotations

import numpy as np
import pytest

import hloenv
from hloenv._native import core
from hloenv.bench.joint import pick_rule
from hloenv.cost.base import Estimate
from hloenv.rewrite.game import DecisionPoint, Game
from hloenv.search import starting_points
from hloenv.search.spaces import get_space

pytestmark = pytest.mark.compile

MARK = 'hloenv_execution="in_order"'


def steps(count: int, size: int = 16, *, of: str = "x", final: str = "") -> str:
    """Lines of a computation of `count` dots of x, none of which reads another."""
    # Precisions differ, so that no two of twelve are the same.
    precisions = [each for each in ("default", "high", "highest") for _ in range(4)]
    lines = [
        f"  d{i} = f32[{size},{size}] dot({of}, {of}), lhs_contracting_dims={{{i % 2}}}, "
        f"rhs_contracting_dims={{{i // 2 % 2}}}, "
        f"operand_precision={{{precisions[i]},default}}"
        for i in range(count)
    ]
    if final:
        names = ", ".join(f"d{i}" for i in range(count))
        shapes = ", ".join([f"f32[{size},{size}]"] * count)
        lines.append(f"  {final} = ({shapes}) tuple({names})")
    return "\n".join(lines)


def independent(count: int, size: int = 16) -> hloenv.HloModule:
    """So many dots of the same array."""
    return hloenv.HloModule.from_text(f"""
HloModule independent

ENTRY main {{
  x = f32[{size},{size}] parameter(0)
{steps(count, size, final="ROOT r")}
}}
""")


# A loop whose body has ten steps, in an entry of one.
LOOP = f"""
HloModule loop

add {{
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}}

body {{
  p = (s32[], f32[16,16]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  x = f32[16,16] get-tuple-element(p), index=1
  one = s32[] constant(1)
  next = s32[] add(i, one)
{steps(8)}
  all = f32[128,16] concatenate(d0, d1, d2, d3, d4, d5, d6, d7), dimensions={{0}}
  zero = f32[] constant(0)
  sums = f32[16] reduce(all, zero), dimensions={{0}}, to_apply=add
  wide = f32[16,16] broadcast(sums), dimensions={{1}}
  small = f32[] constant(0.001)
  smalls = f32[16,16] broadcast(small), dimensions={{}}
  y = f32[16,16] multiply(wide, smalls)
  ROOT r = (s32[], f32[16,16]) tuple(next, y)
}}

condition {{
  p = (s32[], f32[16,16]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  three = s32[] constant(3)
  ROOT less = pred[] compare(i, three), direction=LT
}}

ENTRY main {{
  x = f32[16,16] parameter(0)
  zero = s32[] constant(0)
  start = (s32[], f32[16,16]) tuple(zero, x)
  loop = (s32[], f32[16,16]) while(start), condition=condition, body=body
  ROOT y = f32[16,16] get-tuple-element(loop), index=1
}}
"""


def capture(module: hloenv.HloModule) -> hloenv.Alternatives:
    env = hloenv.HloEnv(module)
    env.run_until("copy-insertion")
    return env.get_alternatives("thunk-order")


def in_order(module: hloenv.HloModule) -> hloenv.HloModule:
    """`module` with all that is proposed."""
    alternatives = capture(module)
    return alternatives.apply(alternatives.decisions_for("thunk-order"))


def num_graphs(module: hloenv.HloModule) -> int:
    return hloenv.compile(module, isolate=False)._core.num_graphs


def chain(count: int) -> hloenv.HloModule:
    """So many dots, each of what the one before makes."""
    lines = [
        f"d{i + 1} = f32[16,16] dot(d{i}, d{i}), lhs_contracting_dims={{1}}, "
        "rhs_contracting_dims={0}"
        for i in range(count)
    ]
    lines[-1] = f"ROOT {lines[-1]}"
    return hloenv.HloModule.from_text(
        "HloModule chain\n\nENTRY main {\n  d0 = f32[16,16] parameter(0)\n  "
        + "\n  ".join(lines)
        + "\n}\n"
    )


@pytest.mark.parametrize(
    ("module", "count"),
    [
        (independent(9), 1),
        (independent(9, size=8), 0),  # arrays of 256 bytes
        (independent(8), 0),
        (independent(4), 0),
        (chain(12), 0),
        (hloenv.HloModule.from_text(LOOP), 1),
    ],
    ids=["nine", "small", "eight", "four", "chain", "loop"],
)
def test_it_is_proposed_where_xla_runs_thunks_as_a_graph(module, count):
    assert len(capture(module)) == count
    assert num_graphs(module) == count
    decided = in_order(module)
    assert (MARK in decided.to_text()) == bool(count)
    assert num_graphs(decided) == 0
    env = hloenv.HloEnv(decided)
    assert len(env.get_alternatives("thunk-order")) == 0  # it is decided


@pytest.mark.parametrize(("size", "is_graph"), [(11, False), (12, True)])
def test_the_same_is_proposed_for_all_types_of_numbers(size, is_graph):
    module = independent(9, size=size)  # 121 and 144 elements of four bytes
    alternatives = capture(module)
    assert len(alternatives) == 1
    assert num_graphs(module) == is_graph
    kept = alternatives.apply(alternatives.reject_all())
    graph = core.KernelGraph(kept._core)
    times = [100.0] * len(graph.fingerprints)
    extra = graph.total_ns(times, 1, 60) - graph.total_ns(times, 1, 0)
    assert (extra > 0) == is_graph


def test_each_computation_decides_for_itself():
    entry_too = f"""index=1
{steps(9, of="y", final="ROOT r")}
"""
    head, tail = LOOP.rsplit("index=1\n", 1)
    module = hloenv.HloModule.from_text(head.replace("ROOT y", "y") + entry_too + tail)
    alternatives = capture(module)
    assert len(alternatives) == num_graphs(module) == 2
    for decisions in ([1, 0], [0, 1]):
        assert num_graphs(alternatives.apply(decisions)) == 1
    assert num_graphs(alternatives.apply([1, 1])) == 0


def test_it_computes_the_same_bits():
    for module in (independent(12), hloenv.HloModule.from_text(LOOP)):
        inputs = hloenv.random_inputs(module)
        wanted = hloenv.compile(module)(*inputs)
        decided = hloenv.compile(in_order(module), isolate=False)
        for executable in (decided, decided.copy()):
            assert executable._core.num_graphs == 0
            for a, b in zip(wanted, executable(*inputs), strict=True):
                np.testing.assert_array_equal(a, b)


def test_the_mark_survives_text_and_proto():
    module = independent(9)
    decided = in_order(module)
    assert decided.fingerprint() != module.fingerprint()
    final = hloenv.compile(decided, isolate=False).module
    for again in (
        hloenv.HloModule.from_text(final.to_text()),
        hloenv.HloModule.from_proto(final.to_proto()),
    ):
        assert again.fingerprint() == final.fingerprint()
        executable = hloenv.compile(again, finish="none", isolate=False)
        assert executable._core.num_graphs == 0


def test_other_modules_of_the_thread_stay_as_they_are():
    hloenv.compile(in_order(independent(9)), isolate=False)
    assert num_graphs(independent(9)) == 1
    core.remove_hooks()
    assert num_graphs(in_order(independent(9))) == 0


def test_estimates_include_the_overhead_of_a_graph():
    def graph(module):
        return core.KernelGraph(module._core)

    module = independent(9)
    alternatives = capture(module)
    plain = graph(alternatives.apply(alternatives.reject_all()))
    decided = graph(in_order(module))
    # How steps run is no part of what a kernel is, nor of how it is timed.
    assert plain.fingerprints == decided.fingerprints
    assert MARK not in hloenv.HloModule._wrap(decided.extract([0, 1, 2])).to_text()
    times = [100.0] * len(plain.fingerprints)
    total = sum(plain.num_runs) * 100
    assert plain.total_ns(times, 1, 60) == total + 60 * sum(plain.num_runs)
    assert plain.total_ns(times, 9, 60) == 160
    times = [100.0] * len(decided.fingerprints)
    assert decided.total_ns(times, 1, 60) == total
    assert decided.total_ns(times, 9, 60) == total


class CountsGraphs:
    """Says that a module is fast if nothing in it runs as a graph."""

    def estimate_many(self, modules):
        return [Estimate(1e-3 * (1 + num_graphs(each)), 1) for each in modules]


def test_rules_decide_it_after_fusion():
    found = pick_rule(independent(9), get_space("careful"), CountsGraphs())
    assert found.is_faster
    assert num_graphs(found.game.play(found.prefix)) == 0
    runtime = Game(independent(9), get_space("runtime").stops)
    assert any(
        num_graphs(runtime.play(prefix)) == 0 for prefix in starting_points(runtime)
    )


def test_a_decision_is_carried_over_where_the_computation_ends_otherwise():
    module = hloenv.HloModule.from_text(f"""
HloModule chain

ENTRY main {{
  x = f32[16,16] parameter(0)
{steps(9)}
  s = f32[16,16] sine(d8)
  c = f32[16,16] cosine(s)
  ROOT r = ({", ".join(["f32[16,16]"] * 9)}) tuple(
    d0, d1, d2, d3, d4, d5, d6, d7, c)
}}
""")
    game = Game(
        module,
        (
            DecisionPoint(("general-fusion",), where="fusion"),
            DecisionPoint(("thunk-order",), where="copy-insertion"),
        ),
    )
    kept = (game.alternatives().reject_all(),)
    ordered = (*kept, np.array([1]))
    fused = (game.alternatives().decisions_for("general-fusion"),)
    sites = [game.alternatives(each)[0].sites for each in (kept, fused)]
    assert sites[0] != sites[1]
    assert game.default(fused).tolist() == [-1]
    assert game.carry(ordered, fused)[1].tolist() == [1]


def test_jaxlib_does_not_follow_the_mark():
    from hloenv.runtime.jaxlib.hook import InjectionWarning, to_jaxlib

    with pytest.warns(InjectionWarning, match="ignores the decisions of thunk-order"):
        to_jaxlib(in_order(independent(9)))


FUSED_TRANSPOSES = """
HloModule final

fused {
  a = f32[8,64,16]{2,1,0} parameter(0)
  b = f32[64,8,16]{2,1,0} transpose(a), dimensions={1,0,2}
  t = f32[16,64,8]{2,1,0} transpose(b), dimensions={2,0,1}
  ROOT s = f32[16,64,8]{2,1,0} sine(t)
}

ENTRY main {
  x = f32[8,64,16]{2,1,0} parameter(0)
  ROOT f = f32[16,64,8]{2,1,0} fusion(x), kind=kLoop, calls=fused
}
"""


def test_xlas_passes_can_start_on_a_final_module_with_fused_transposes():
    # XLA's passes leave a transpose in it without a layout, over which its cost
    # analysis would end the process.
    module = hloenv.HloModule.from_text(FUSED_TRANSPOSES)
    inputs = hloenv.random_inputs(module)
    (wanted,) = hloenv.compile(module, finish="none")(*inputs)
    for place in ("fusion", "cpu-parallel-task-assigner", "copy-insertion"):
        env = hloenv.HloEnv(module)
        env.run_until(place)
        assert env.module.cost().bytes > 0
        env.get_alternatives("cpu-parallel-task-assigner")  # and the process lives
        np.testing.assert_array_equal(hloenv.compile(env.module)(*inputs)[0], wanted)
    with hloenv.intercept(module) as pipeline:
        for stage in pipeline:
            stage.run()
    final = hloenv.compile(pipeline.module, finish="none")
    np.testing.assert_array_equal(final(*inputs)[0], wanted)
