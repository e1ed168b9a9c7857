# SPDX-License-Identifier: Apache-2.0
"""dot-lowering: dots that the backend lowers to tiled LLVM IR."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import numpy as np
import pytest

import hloenv
from hloenv._native import core
from hloenv.bench.joint import pick_rule, search_variants
from hloenv.cost.base import Estimate
from hloenv.search.driver import Budget
from hloenv.search.spaces import get_space

if TYPE_CHECKING:
    from pathlib import Path

    from support.run_child import RunChild

pytestmark = pytest.mark.compile

SIZES = [(4, 16, 16), (32, 128, 128), (2, 7, 5), (128, 31, 9)]
RHS = "rhs_contracting_dims={0}"
MARK = ', frontend_attributes={hloenv_dot="loops"}'


def dot(
    m: int,
    n: int,
    k: int,
    *,
    lhs: int = 1,
    rhs: int = 0,
    batch: tuple[int, ...] = (),
    dtype: str = "f32",
    extra: str = "",
    layout: str = "",
) -> hloenv.HloModule:
    """A dot that contracts the inner dimensions `lhs` and `rhs` of its operands."""

    def shape(*sizes: int) -> str:
        return f"{dtype}[{','.join(map(str, batch + sizes))}]"

    left = shape(m, k) if lhs == 1 else shape(k, m)
    right = shape(k, n) if rhs == 0 else shape(n, k)
    outer = ",".join(map(str, range(len(batch))))
    batches = f"lhs_batch_dims={{{outer}}}, rhs_batch_dims={{{outer}}}, "
    return hloenv.HloModule.from_text(f"""
HloModule small

ENTRY main {{
  x = {left} parameter(0)
  w = {right}{layout} parameter(1)
  ROOT d = {shape(m, n)} dot(x, w), {batches if batch else ""}
    lhs_contracting_dims={{{lhs + len(batch)}}},
    rhs_contracting_dims={{{rhs + len(batch)}}}{extra}
}}
""")


def capture(module: hloenv.HloModule) -> hloenv.Alternatives:
    return hloenv.HloEnv(module).get_alternatives("dot-lowering")


def rules(module: hloenv.HloModule) -> list[str]:
    return [each.choices[1].rule for each in capture(module)]


def decided(module: hloenv.HloModule) -> hloenv.HloModule:
    """All of it, in the place where the transposes stay."""
    env = hloenv.HloEnv(module)
    env.run_until("fusion")
    alternatives = env.get_alternatives("dot-lowering")
    env.apply_alternatives(alternatives.decisions_for("dot-lowering"))
    return env.module


@pytest.mark.filterwarnings("ignore::hloenv.PositionWarning")
def test_what_is_proposed():
    assert rules(dot(4, 16, 16)) == ["loops"]
    assert rules(dot(8, 10, 4, batch=(2, 3))) == ["loops"]
    assert rules(dot(16, 8, 40, lhs=0)) == ["transposed"]
    assert rules(dot(16, 8, 40, rhs=1)) == ["transposed"]


@pytest.mark.filterwarnings("ignore::hloenv.PositionWarning")
@pytest.mark.parametrize(
    "module",
    [
        dot(128, 64, 16),
        dot(129, 8, 16),
        dot(8, 8, 129),
        dot(1, 16, 16),
        dot(16, 1, 16),
        dot(3, 3, 16),
        dot(8, 8, 0),
        dot(8, 8, 8, dtype="c64"),
        dot(8, 8, 8, dtype="f16"),
        dot(8, 8, 8, layout="{0,1}"),
        dot(8, 8, 8, extra=MARK),
        dot(8, 8, 8, extra=', frontend_attributes={hloenv_dot="eigen"}'),
        dot(8, 8, 8, layout="{1,0:S(5)}"),
        dot(8, 8, 8, extra=", algorithm=dot_f32_f32_f32"),
    ],
    ids=lambda module: module.to_text().split("ROOT ")[1].split("(")[0],
)
def test_what_is_not_proposed(module):
    assert len(capture(module)) == 0


@pytest.mark.filterwarnings("ignore::hloenv.PositionWarning")
def test_larger_dots_can_be_left_out():
    module = dot(8, 10, 20, batch=(5,))
    for limit, count in [(0, 1), (1600, 1), (1599, 0)]:
        only = hloenv.Pass("dot-lowering", max_products=limit)
        assert len(hloenv.HloEnv(module).get_alternatives(only)) == count


def test_nothing_is_proposed_where_the_module_has_loops_anyway(run_child: RunChild):
    code = f"""
import hloenv
module = hloenv.HloModule.from_text('''{dot(8, 8, 8).to_text()}''')
env = hloenv.HloEnv(module)
env.run_until("fusion")
print(len(env.get_alternatives("dot-lowering")))
"""
    assert run_child(code).stdout.split() == ["1"]
    flags = {"XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false"}
    assert run_child(code, env=flags).stdout.split() == ["0"]


@pytest.mark.parametrize("batch", [(), (3,), (2, 2)], ids=["matrix", "batch", "two"])
@pytest.mark.parametrize(("lhs", "rhs"), list(itertools.product((0, 1), (0, 1))))
@pytest.mark.parametrize("dtype", ["f32", "f64", "s32"])
def test_tiled_dots_compute_the_same(dtype, lhs, rhs, batch):
    for m, n, k in SIZES:
        module = dot(m, n, k, lhs=lhs, rhs=rhs, batch=batch, dtype=dtype)
        loops = decided(module)
        assert "hloenv_dot" in loops.to_text()
        inputs = hloenv.random_inputs(module)
        wanted = hloenv.compile(module, isolate=False)(*inputs)
        outputs = hloenv.compile(loops, isolate=False)(*inputs)
        if dtype == "s32":
            np.testing.assert_array_equal(wanted[0], outputs[0])
        hloenv.compare_outputs(wanted, outputs, rtol=1e-5).check()


# Two of three dots are marked; the backend writes code for those, and calls Eigen for
# the third.
MIXED = """
HloModule mixed

body {
  p = (s32[], f32[8,8]{1,0}) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  x = f32[8,8]{1,0} get-tuple-element(p), index=1
  one = s32[] constant(1)
  next = s32[] add(i, one)
  inner = f32[8,8]{1,0} dot(x, x), lhs_contracting_dims={1},
    rhs_contracting_dims={0}, frontend_attributes={hloenv_dot="loops"}
  ROOT r = (s32[], f32[8,8]{1,0}) tuple(next, inner)
}

condition {
  p = (s32[], f32[8,8]{1,0}) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  three = s32[] constant(3)
  ROOT less = pred[] compare(i, three), direction=LT
}

ENTRY main {
  a = f32[8,8]{1,0} parameter(0)
  w = f32[8,8]{1,0} parameter(1)
  marked = f32[8,8]{1,0} dot(a, w), lhs_contracting_dims={1},
    rhs_contracting_dims={0}, frontend_attributes={hloenv_dot="loops"}
  plain = f32[8,8]{1,0} dot(marked, w), lhs_contracting_dims={1},
    rhs_contracting_dims={0}
  zero = s32[] constant(0)
  start = (s32[], f32[8,8]{1,0}) tuple(zero, plain)
  loop = (s32[], f32[8,8]{1,0}) while(start), condition=condition, body=body
  ROOT out = f32[8,8]{1,0} get-tuple-element(loop), index=1
}
"""


def written(run_child: RunChild, folder: Path, code: str) -> set[str]:
    """Names of the dots that the backend wrote code for, in a child process."""
    flags = {"XLA_FLAGS": f"--xla_dump_to={folder}"}
    run_child(f"import hloenv\n{code}", env=flags)
    suffix = "_elemental_kernel_module"
    kernels = {each.name.split(".")[2] for each in folder.glob("*.ir-no-opt.ll")}
    return {name.removesuffix(suffix) for name in kernels if name.endswith(suffix)}


def test_the_backend_follows_each_mark(run_child: RunChild, tmp_path: Path):
    again = MIXED.replace("marked", "again")
    dots = written(
        run_child,
        tmp_path,
        f"module = hloenv.HloModule.from_text('''{MIXED}''')\n"
        "hloenv.compile(module, isolate=False)\n"
        "hloenv._native.core.remove_hooks()\n"
        f"again = hloenv.HloModule.from_text('''{again}''')\n"
        "hloenv.compile(again, isolate=False)\n",
    )
    assert {"marked", "inner", "again"} <= dots
    assert "plain" not in dots


def test_the_backend_follows_marks_of_all_shapes_and_types(
    run_child: RunChild, tmp_path: Path
):
    texts = []
    for number, (dtype, batch, (m, n, k)) in enumerate(
        itertools.product(("f32", "f64", "s32"), ((), (3,), (2, 2)), SIZES)
    ):
        text = dot(m, n, k, dtype=dtype, batch=batch, extra=MARK).to_text()
        texts.append(text.replace("%d = ", f"%dot{number} = "))
    dots = written(
        run_child,
        tmp_path,
        f"for text in {texts!r}:\n"
        "    module = hloenv.HloModule.from_text(text)\n"
        "    hloenv.compile(module, isolate=False)\n",
    )
    assert {f"dot{number}" for number in range(len(texts))} <= dots


@pytest.mark.filterwarnings("ignore::hloenv.PositionWarning")
def test_a_mark_that_does_not_fit_any_more_is_left_out():
    module = dot(8, 16, 24, extra=MARK)
    env = hloenv.HloEnv(module)
    env.run_until("fusion")
    inputs = hloenv.random_inputs(module)
    (wanted,) = hloenv.compile(module)(*inputs)
    alternatives = env.get_alternatives("general-layout")
    (only,) = alternatives
    for choice in range(only.num_choices):
        moved = alternatives.apply([choice])
        assert "hloenv_dot" in moved.to_text()
        (output,) = hloenv.compile(moved, isolate=False)(*inputs)
        # Sums of products near zero keep the rounding of the largest.
        np.testing.assert_allclose(output, wanted, rtol=1e-5, atol=1e-5)


def test_layouts_that_loops_do_not_look_at_compute_the_same(run_child: RunChild):
    code = f"""
import numpy as np
import hloenv
module = hloenv.HloModule.from_text('''{dot(8, 16, 24).to_text()}''')
inputs = hloenv.random_inputs(module)
(wanted,) = hloenv.interpret(module, *inputs)
env = hloenv.HloEnv(module)
env.run_until("fusion")
alternatives = env.get_alternatives("general-layout")
for choice in range(alternatives[0].num_choices):
    decided = alternatives.apply([choice])
    (output,) = hloenv.compile(decided, isolate=False)(*inputs)
    print(np.allclose(output, wanted, rtol=1e-4))
"""
    flags = {"XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false"}
    assert run_child(code, env=flags).stdout.split() == ["True"] * 4


def test_control_dependencies_stay():
    text = dot(8, 8, 8).to_text()
    ahead = text.replace("ROOT %d", "%first = f32[8,8]{1,0} add(%x, %x)\n  ROOT %d")
    module = hloenv.HloModule.from_text(
        ahead.replace(RHS, f"{RHS}, control-predecessors={{first}}")
    )
    env = hloenv.HloEnv(module)
    env.run_until("fusion")
    assert len(env.get_alternatives("dot-lowering")) == 0


def test_a_mark_stays_with_its_dot():
    module = hloenv.HloModule.from_text(f"""
HloModule pair

ENTRY main {{
  x = f32[6,8] parameter(0)
  w = f32[8,4] parameter(1)
  v = f32[8,5] parameter(2)
  a = f32[6,4] dot(x, w), lhs_contracting_dims={{1}}, {RHS}{MARK}
  b = f32[6,5] dot(x, v), lhs_contracting_dims={{1}}, {RHS}{MARK}
  ROOT out = (f32[6,4], f32[6,5]) tuple(a, b)
}}
""")
    alternatives = hloenv.HloEnv(module).get_alternatives("merge-dots")
    merged = alternatives.apply(alternatives.decisions_for("merge-dots"))
    assert merged.opcode_counts()["dot"] == 1
    assert "hloenv_dot" not in merged.to_text()


def test_marks_survive_text_and_proto_and_tell_modules_and_kernels_apart():
    plain, marked = dot(8, 8, 8), decided(dot(8, 8, 8))
    assert plain.fingerprint() != marked.fingerprint()
    again = hloenv.HloModule.from_text(marked.to_text())
    assert again.fingerprint() == marked.fingerprint()
    again = hloenv.HloModule.from_proto(marked.to_proto())
    assert again.fingerprint() == marked.fingerprint()
    kernels = [core.KernelGraph(each._core).fingerprints for each in (plain, marked)]
    assert kernels[0] != kernels[1]


class RewardsLoops:
    """Says that a module with loops is fast."""

    def estimate_many(self, modules):
        return [
            Estimate(1e-6 if "hloenv_dot" in each.to_text() else 1e-3, 1)
            for each in modules
        ]


class MeasuresNothing:
    """In the place of an `Evaluator`, for searches that end with estimates."""

    def evaluate(self, modules, *, baseline, inputs):
        self.baseline = baseline
        return []


def test_candidates_are_measured_against_the_module_itself():
    """Also where a variant of it has nothing left to decide."""
    text = """HloModule nothing

ENTRY main {
  x = f32[8] parameter(0)
  z = f32[] constant(0)
  zs = f32[8] broadcast(z), dimensions={}
  ROOT y = f32[8] add(x, zs)
}
"""
    module, evaluator = hloenv.HloModule.from_text(text), MeasuresNothing()
    search_variants(
        module,
        get_space("simplify-and-fusion"),
        "hill-climb",
        estimator=RewardsLoops(),
        evaluator=evaluator,
        budget=Budget(30, 0),
        seed=0,
    )
    assert evaluator.baseline.fingerprint() == module.fingerprint()


def test_rules_and_searches_decide_dots_where_nothing_can_be_fused():
    module, space = dot(16, 8, 40), get_space("joint")
    found = pick_rule(module, space, RewardsLoops())
    assert found.is_faster
    assert 'hloenv_dot="loops"' in found.game.play(found.prefix).to_text()
    searched = search_variants(
        module,
        space,
        "hill-climb",
        estimator=RewardsLoops(),
        evaluator=MeasuresNothing(),
        budget=Budget(30, 0),
        seed=0,
    )
    assert searched.curve[-1] == 1e-6


def test_jaxlib_does_not_follow_marks():
    from hloenv.runtime.jaxlib.hook import InjectionWarning, to_jaxlib

    with pytest.warns(InjectionWarning, match="ignores the decisions of dot-lowering"):
        to_jaxlib(decided(dot(8, 8, 8)))
