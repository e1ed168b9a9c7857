# SPDX-License-Identifier: Apache-2.0
"""single-kernel: loops and runs of instructions that become one LLVM kernel."""

from __future__ import annotations

import random

import numpy as np
import pytest

import hloenv
from support import captures
from support.captures import rules

MARK = 'xla_cpu_small_call="true"'

HELPERS = """
add {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}

less {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = pred[] compare(a, b), direction=LT
}

larger {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = pred[] compare(a, b), direction=GE
}

double {
  a = f32[4,4] parameter(0)
  ROOT b = f32[4,4] add(a, a)
}

library {
  a = f32[4,4] parameter(0)
  b = f32[4,4] parameter(1)
  ROOT c = f32[4,4] dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}

library_sums {
  a = f32[64,64] parameter(0)
  zero = f32[] constant(0)
  sums = f32[64] reduce(a, zero), dimensions={1}, to_apply=add
  ROOT b = f32[64,64] broadcast(sums), dimensions={0}
}

sliced_sums {
  a = f32[64,64] parameter(0)
  i = s32[] parameter(1)
  s = f32[32,64] dynamic-slice(a, i, i), dynamic_slice_sizes={32,64}
  zero = f32[] constant(0)
  sums = f32[64] reduce(s, zero), dimensions={0}, to_apply=add
  ROOT b = f32[64,64] broadcast(sums), dimensions={1}
}

shift {
  a = f32[4,4] parameter(0)
  zero = f32[] constant(0)
  sums = f32[4] reduce(a, zero), dimensions={1}, to_apply=add
  wide = f32[4,4] broadcast(sums), dimensions={0}
  ROOT c = f32[4,4] subtract(a, wide)
}
"""


def loop(lines: str, *, trips: int = 7, size: str = "4,4") -> str:
    """A loop whose body computes y from x with these lines."""
    state = f"(s32[], f32[{size}])"
    return f"""
HloModule loop

{HELPERS}
body {{
  p = {state} parameter(0)
  i = s32[] get-tuple-element(p), index=0
  x = f32[{size}] get-tuple-element(p), index=1
  one = s32[] constant(1)
  next = s32[] add(i, one)
  zero = f32[] constant(0)
{lines}
  ROOT r = {state} tuple(next, y)
}}

condition {{
  p = {state} parameter(0)
  i = s32[] get-tuple-element(p), index=0
  n = s32[] constant({trips})
  ROOT r = pred[] compare(i, n), direction=LT
}}

ENTRY main {{
  x = f32[{size}] parameter(0)
  i = s32[] constant(0)
  t = {state} tuple(i, x)
  w = {state} while(t), condition=condition, body=body
  ROOT r = f32[{size}] get-tuple-element(w), index=1
}}
"""


DOT = "dot(x, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}"

OFFERED = {
    "elementwise": "  y = f32[4,4] tanh(x)",
    "dot": f"  y = f32[4,4] {DOT}",
    "fusion": "  y = f32[4,4] fusion(x), kind=kLoop, calls=double",
    "softmax": "  y = f32[4,4] fusion(x), kind=kLoop, calls=shift",
    "reduce": """  s = f32[4] reduce(x, zero), dimensions={0}, to_apply=add
  y = f32[4,4] broadcast(s), dimensions={1}""",
    "reduce-window": "  y = f32[4,4] reduce-window(x, zero), window={size=3x1 "
    "pad=1_1x0_0}, to_apply=add",
    "dynamic-update-slice": """  k = s32[] constant(0)
  s = f32[1,4] dynamic-slice(x, i, k), dynamic_slice_sizes={1,4}
  d = f32[1,4] add(s, s)
  y = f32[4,4] dynamic-update-slice(x, d, i, k)""",
    "gather": """  j = s32[4,1] iota(), iota_dimension=0
  g = f32[4,1,4] gather(x, j), offset_dims={1,2}, collapsed_slice_dims={},
    start_index_map={0}, index_vector_dim=1, slice_sizes={1,4}
  y = f32[4,4] reshape(g)""",
    "conditional": """  two = s32[] constant(2)
  c = pred[] compare(i, two), direction=LT
  y = f32[4,4] conditional(c, x, x), true_computation=double,
    false_computation=double""",
    "call": "  y = f32[4,4] call(x), to_apply=double",
    "convert": """  h = bf16[4,4] convert(x)
  y = f32[4,4] convert(h)""",
    "complex": """  c = c64[4,4] complex(x, x)
  d = c64[4,4] multiply(c, c)
  y = f32[4,4] real(d)""",
    "convolution": """  v = f32[1,4,4,1] reshape(x)
  k = f32[1,1,1,1] constant({{{{2}}}})
  c = f32[1,4,4,1] convolution(v, k), window={size=1x1}, dim_labels=b01f_01io->b01f
  y = f32[4,4] reshape(c)""",
}

NOT_OFFERED = {
    "custom-call": '  y = f32[4,4] custom-call(x), custom_call_target="Other"',
    "sort": "  y = f32[4,4] sort(x), dimensions={1}, to_apply=less",
    "fft": """  c = c64[4,4] complex(x, x)
  d = c64[4,4] fft(c), fft_type=FFT, fft_length={4}
  y = f32[4,4] real(d)""",
    "rng-state": """  u = u64[2] rng-get-and-update-state(), delta=4
  v = f32[2] convert(u)
  y = f32[4,4] pad(v0, zero), padding=0_3x0_2
""".replace("v = f32[2]", "v1 = f32[2]").replace(
        "  y =", "  v0 = f32[1,2] reshape(v1)\n  y ="
    ),
    "select-and-scatter": """  s = f32[2,2] slice(x), slice={[0:2], [0:2]}
  y = f32[4,4] select-and-scatter(x, s, zero), window={size=2x2 stride=2x2},
    select=larger, scatter=add""",
    "triangular-solve": "  y = f32[4,4] triangular-solve(x, x), left_side=true, "
    "lower=true, transpose_a=NO_TRANSPOSE",
    "negative padding": """  q = f32[4,4] pad(x, zero), padding=-1_1x0_0
  y = f32[4,4] add(q, x)""",
    "bf16 arithmetic": """  h = bf16[4,4] convert(x)
  g = bf16[4,4] tanh(h)
  y = f32[4,4] convert(g)""",
    "four bits": """  h = s4[4,4] convert(x)
  y = f32[4,4] convert(h)""",
    "batch innermost": """  v = f32[2,2,4] reshape(x)
  a = f32[2,2,4]{0,2,1} copy(v)
  d = f32[2,2,2] dot(a, a), lhs_batch_dims={0}, rhs_batch_dims={0},
    lhs_contracting_dims={2}, rhs_contracting_dims={2}
  e = f32[8] reshape(d)
  s = f32[] reduce(e, zero), dimensions={0}, to_apply=add
  y = f32[4,4] broadcast(s), dimensions={}""",
    "two contracted dimensions": """  v = f32[2,2,4] reshape(x)
  d = f32[2,2] dot(v, v), lhs_contracting_dims={1,2}, rhs_contracting_dims={1,2}
  y = f32[4,4] pad(d, zero), padding=0_2x0_2""",
    "complex to real": """  c = c64[4,4] complex(x, x)
  y = f32[4,4] convert(c)""",
    "barrier": "  y = f32[4,4] opt-barrier(x)",
}

SCATTER = """  j = s32[3,1] constant({{0}, {2}, {2}})
  u = f32[3,1,4] constant({{{1, 2, 3, 4}}, {{5, 6, 7, 8}}, {{9, 8, 7, 6}}})
  y = f32[4,4] scatter(x, j, u), update_window_dims={1,2}, inserted_window_dims={},
    scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=add"""
LIBRARY = "  y = f32[4,4] fusion(x, x), kind=kCustom, calls=library"
NESTED = (
    OFFERED["elementwise"].replace("y =", "z =")
    + """
  k = s32[] constant(0)
  t = (s32[], f32[4,4]) tuple(k, z)
  w = (s32[], f32[4,4]) while(t), condition=inner_condition, body=inner_body
  y = f32[4,4] get-tuple-element(w), index=1"""
)

pytestmark = pytest.mark.filterwarnings("ignore::hloenv.PositionWarning")


def nested() -> str:
    text = loop(NESTED)
    inner = loop(OFFERED["dot"]).split("ENTRY")[0].split("body {")[1]
    inner = "inner_body {" + inner.replace("condition {", "inner_condition {")
    return text.replace("\nbody {", f"\n{inner}\nbody {{")


def capture(text: str, **options) -> hloenv.Alternatives:
    return captures.capture(
        text, hloenv.Pass("single-kernel", **{"run": False, **options})
    )


def check_values(text: str, **options) -> hloenv.HloModule:
    """All decisions give the original's values in XLA's evaluator."""
    module = hloenv.HloModule.from_text(text)
    alternatives = capture(text, **options)
    inputs = [np.linspace(-0.5, 0.4, 16, dtype=np.float32).reshape(4, 4)]
    wanted = hloenv.interpret(module, *inputs)
    rejected = alternatives.apply(alternatives.reject_all())
    assert rejected.fingerprint() == module.fingerprint()
    rng = random.Random(0)
    for _ in range(4):
        decided = alternatives.apply(
            [rng.randrange(n) for n in alternatives.num_choices]
        )
        decided.verify()
        got = hloenv.interpret(decided, *inputs)
        hloenv.compare_outputs(wanted, got, rtol=1e-5).check()
    return alternatives.apply(alternatives.decisions_for("single-kernel"))


@pytest.mark.parametrize("name", OFFERED)
def test_a_loop_of_supported_operations_is_offered(name):
    assert rules(capture(loop(OFFERED[name]))) == ["loop"]
    decided = check_values(loop(OFFERED[name]))
    assert decided.to_text().count(MARK) == 1


@pytest.mark.parametrize("name", NOT_OFFERED)
def test_a_loop_with_another_operation_is_not_offered(name):
    assert rules(capture(loop(NOT_OFFERED[name]))) == []


def test_library_fusions_become_plain_instructions():
    assert rules(capture(loop(LIBRARY))) == ["loop_plain_dots"]
    assert "kCustom" not in check_values(loop(LIBRARY)).to_text()
    assert rules(capture(loop(LIBRARY), loop_plain_dots=False)) == []


def test_scatters_become_loops():
    assert rules(capture(loop(SCATTER))) == ["loop_plain_scatters"]
    assert "scatter" not in check_values(loop(SCATTER)).opcode_counts()
    assert rules(capture(loop(SCATTER), loop_plain_scatters=False)) == []


def test_nested_loops_are_decided_one_by_one():
    assert rules(capture(nested())) == ["loop", "loop"]
    decided = check_values(nested())
    # The outer kernel contains the inner loop.
    assert decided.opcode_counts()["while"] == 2
    again = hloenv.HloEnv(decided).get_alternatives("single-kernel")
    assert len(again) == 0


def test_a_fused_reduction_is_not_repeated():
    decided = check_values(loop(OFFERED["softmax"]))
    assert "fusion" not in decided.opcode_counts()


def test_size_limits():
    text = loop(OFFERED["elementwise"])
    assert rules(capture(text, max_instructions=2)) == []
    assert rules(capture(text, loop=False)) == []


RUN = """
HloModule run

ENTRY main {
  x = f32[4,4] parameter(0)
  a = f32[4,4] tanh(x)
  b = f32[4,4] sine(a)
  far = f32[4,4] custom-call(a), custom_call_target="Other"
  c = f32[4,4] multiply(b, x)
  d = f32[4,4] add(far, c)
  e = f32[4,4] negate(c)
  f = f32[4,4] exponential(b)
  ROOT r = (f32[4,4], f32[4,4], f32[4,4]) tuple(d, e, f)
}
"""


def test_a_run_goes_around_what_it_cannot_take_in():
    alternatives = capture(RUN, run=True)
    assert rules(alternatives) == ["run"]
    (only,) = alternatives
    # `d` reads the custom call, which reads `a`.
    assert {site.original for site in only.sites} == {"a", "c", "e", "f"}
    decided = alternatives.apply([1])
    decided.verify()
    assert decided.to_text().count(MARK) == 1


def test_runs_compute_the_same():
    chain = "\n".join(f"  v{i} = f32[4,4] tanh(v{i - 1})" for i in range(1, 5))
    body = chain.replace("v0", "x").replace("v4 =", "y =")
    assert rules(capture(loop(body), run=True, loop=False)) == ["run"]
    check_values(loop(body), run=True)
    text = RUN.replace('custom-call(a), custom_call_target="Other"', "cosine(a)")
    assert rules(capture(text, run=True)) == ["run"]
    check_values(text, run=True)


@pytest.mark.compile
@pytest.mark.parametrize(
    "text",
    [
        *(loop(each) for each in OFFERED.values()),
        loop(LIBRARY.replace("fusion(x, x), kind=kCustom, calls=library", DOT)),
        loop(SCATTER),
        nested(),
    ],
)
def test_the_backend_makes_one_kernel(text):
    module = hloenv.HloModule.from_text(text)
    env = hloenv.HloEnv(module)
    env.run_until("copy-insertion")
    alternatives = env.get_alternatives("single-kernel")
    env.apply_alternatives(
        [int(each.choices[1].rule != "run") for each in alternatives]
    )
    finished = hloenv.finish(env.module)
    assert finished.to_text().count(MARK) >= 1
    again = hloenv.HloModule.from_text(finished.to_text())
    assert again.fingerprint() == finished.fingerprint()
    inputs = [np.linspace(-0.5, 0.4, 16, dtype=np.float32).reshape(4, 4)]
    outputs = hloenv.compile(finished, finish="none")(*inputs)
    wanted = hloenv.compile(module)(*inputs)
    hloenv.compare_outputs(wanted, outputs, rtol=1e-5).check()


def test_the_policy_takes_small_loops_only():
    policy = hloenv.policies.get_policy("small-loops")
    small = capture(loop(OFFERED["dot"], trips=1000))
    assert policy(small).tolist() == [1]
    wide = OFFERED["dot"].replace("4,4", "64,64")
    large = capture(loop(wide, trips=1000, size="64,64"))
    assert policy(large).tolist() == [-1]
    once = capture(loop(OFFERED["dot"], trips=2))
    assert policy(once).tolist() == [-1]
    other = hloenv.HloEnv(loop(OFFERED["dot"])).get_alternatives("algsimp")
    assert (policy(other) == -1).all()


def test_the_policy_leaves_large_reductions_to_the_library():
    policy = hloenv.policies.get_policy("small-loops")
    line = "  y = f32[64,64] fusion(x), kind={}, calls=library_sums"
    for kind, decided in (("kCustom", -1), ("kInput", 1)):
        found = capture(loop(line.format(kind), trips=1000, size="64,64"))
        assert policy(found).tolist() == [decided], kind


def test_the_policy_leaves_columns_of_slices():
    policy = hloenv.policies.get_policy("small-loops")
    line = "  y = f32[64,64] fusion(x, i), kind=kLoop, calls=sliced_sums"
    columns = loop(line, trips=1000, size="64,64")
    assert policy(capture(columns)).tolist() == [-1]
    rows = columns.replace("32,64", "64,32").replace(
        "(s, zero), dimensions={0}", "(s, zero), dimensions={1}"
    )
    assert policy(capture(rows)).tolist() == [1]


def test_the_policy_leaves_reductions_of_several_arrays():
    """In a function of their own, LLVM makes vectors of their compares."""
    policy = hloenv.policies.get_policy("small-loops")
    largest = """
    n = f32[12,12] iota(), iota_dimension=0
    both = (f32[12], f32[12]) reduce(x, n, zero, zero), dimensions={0}, to_apply=largest
    m = f32[12] get-tuple-element(both), index=0
    y = f32[12,12] broadcast(m), dimensions={0}
"""
    compares = """largest {
  a = f32[] parameter(0)
  i = f32[] parameter(1)
  b = f32[] parameter(2)
  j = f32[] parameter(3)
  c = pred[] compare(a, b), direction=GE
  v = f32[] select(c, a, b)
  k = f32[] select(c, i, j)
  ROOT r = (f32[], f32[]) tuple(v, k)
}

body {"""
    text = loop(largest, trips=100, size="12,12").replace("body {", compares, 1)
    assert policy(capture(text)).tolist() == [-1]
    single = largest.replace("(f32[12], f32[12]) reduce(x, n, zero, zero)", "REDUCE")
    single = single.replace("both = REDUCE", "m = f32[12] reduce(x, zero)")
    single = single.replace("to_apply=largest", "to_apply=add")
    single = single.replace("    m = f32[12] get-tuple-element(both), index=0\n", "")
    assert policy(capture(loop(single, trips=100, size="12,12"))).tolist() == [1]


def test_it_belongs_after_fusion():
    with pytest.warns(hloenv.PositionWarning, match="single-kernel"):
        capture(loop(OFFERED["dot"]))


def _with_runs(trips):
    """Products of small matrices before a loop, and in it, beside what needs a thunk."""
    products = "\n".join(
        f"  p{i} = f32[4,4] dot(p{i - 1}, p{i - 1}), lhs_contracting_dims={{1}}, "
        "rhs_contracting_dims={0}"
        for i in range(1, 13)
    )
    return hloenv.HloModule.from_text(
        f"""HloModule m
less {{
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = pred[] compare(a, b), direction=LT
}}
body {{
  s = (s32[], f32[4,4]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  one = s32[] constant(1)
  n = s32[] add(i, one)
  p0 = f32[4,4] get-tuple-element(s), index=1
{products}
  q = f32[4,4] sort(p12), dimensions={{1}}, to_apply=less
  ROOT t = (s32[], f32[4,4]) tuple(n, q)
}}
condition {{
  s = (s32[], f32[4,4]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant({trips})
  ROOT r = pred[] compare(i, n), direction=LT
}}
ENTRY e {{
  zero = s32[] constant(0)
  p0 = f32[4,4] parameter(0)
{products}
  s = (s32[], f32[4,4]) tuple(zero, p12)
  w = (s32[], f32[4,4]) while(s), condition=condition, body=body
  ROOT r = f32[4,4] get-tuple-element(w), index=1
}}"""
    )


def test_the_policies_take_runs_in_loops_and_everywhere():
    env = hloenv.HloEnv(_with_runs(100))
    env.run_until("copy-insertion")
    alternatives = env.get_alternatives("single-kernel")
    taken = {}
    for name in ("small-loops", "low-overhead"):
        decisions = hloenv.policies.get_policy(name)(alternatives)
        rules = {each.choices[1].rule for each in alternatives}
        assert rules == {"run"}
        taken[name] = int((decisions > 0).sum())
    assert 0 < taken["small-loops"] < taken["low-overhead"] == len(alternatives)
    # A run of no time is no gain; one that is repeated is.
    estimates = [_with_runs(each) for each in (1, 1000)]
    counts = []
    for module in estimates:
        env = hloenv.HloEnv(module)
        env.run_until("copy-insertion")
        found = env.get_alternatives("single-kernel")
        decisions = hloenv.policies.get_policy("small-loops")(found)
        counts.append(int((decisions > 0).sum()))
    assert counts[0] == 0 < counts[1]


def test_low_overhead_decides_dots_and_the_order_of_thunks():
    policy = hloenv.policies.get_policy("low-overhead")
    env = hloenv.HloEnv(_with_runs(3))
    env.run_until("fusion")
    dots = env.get_alternatives("dot-lowering")
    assert len(dots)
    assert (policy(dots) == 1).all()
    other = hloenv.HloEnv(_with_runs(3)).get_alternatives("algsimp")
    assert (policy(other) == -1).all()


TWO_RUNS = """HloModule two_runs

ENTRY main {
  x = f32[4,4] parameter(0)
  m = f32[4,4] parameter(1)
  a = f32[4,4] tanh(x)
  b = f32[4,4] add(a, m)
  c = f32[4,4] multiply(b, x)
  d = f32[4,4] subtract(c, m)
  w = f32[4,4] custom-call(d, m), custom_call_target="Other"
  e = f32[4,4] cosine(w)
  f = f32[4,4] multiply(e, d)
  g = f32[4,4] add(f, m)
  ROOT h = f32[4,4] subtract(g, x)
}
"""


def test_a_run_reads_what_an_accepted_one_makes():
    """An original that stayed would read what is overwritten after copy insertion."""
    alternatives = hloenv.HloEnv(TWO_RUNS).get_alternatives("single-kernel")
    assert [each.choices[1].rule for each in alternatives] == ["run", "run"]
    for decisions, calls in (([1, 0], 1), ([0, 1], 1), ([1, 1], 2)):
        counts = alternatives.apply(decisions).opcode_counts()
        assert counts["call"] == calls
        assert (counts["tanh"], counts["cosine"]) == (1, 1)
