# SPDX-License-Identifier: Apache-2.0
"""Which fusions general-fusion proposes, and that each computes the same."""

from __future__ import annotations

import numpy as np
import pytest

from hloenv.hlo.module import HloModule
from hloenv.hlo.passes import Pass, as_pipeline, core, to_core
from hloenv.rewrite.alternatives import Alternatives
from hloenv.runtime.interpreter import interpret


def _alternatives(text: str, **options: bool | int) -> Alternatives:
    module = HloModule.from_text(text)
    spec = to_core(as_pipeline(Pass("general-fusion", **options)))
    return Alternatives(core.capture(module._core, [spec]))


def _proposals(text: str, **options: bool | int) -> list[tuple[str, ...]]:
    """The instructions that each proposal replaces, consumer first."""
    return [
        tuple(site.original for site in alternative.sites)
        for alternative in _alternatives(text, **options)
        for _ in range(alternative.num_choices - 1)
    ]


def _accepted(text: str, index: int = 0, **options: bool | int) -> HloModule:
    alternatives = _alternatives(text, **options)
    decisions = alternatives.reject_all()
    decisions[index] = 1
    return alternatives.apply(decisions)


def _entry(body: str, *, before: str = "") -> str:
    return f"HloModule m\n{before}\nENTRY main {{\n{body}\n}}"


CHAIN = _entry("""
  x = f32[4,8] parameter(0)
  y = f32[4,8] parameter(1)
  a = f32[4,8] multiply(x, y)
  b = f32[4,8] add(a, y)
  ROOT c = f32[4,8] exponential(b)""")

SHARED = _entry("""
  x = f32[4,8] parameter(0)
  y = f32[4,8] parameter(1)
  a = f32[4,8] multiply(x, y)
  b = f32[4,8] add(a, y)
  c = f32[4,8] exponential(a)
  ROOT t = (f32[4,8], f32[4,8]) tuple(b, c)""")

# a reaches c through the sort too, which no fusion can hold.
AROUND = _entry(
    """
  x = f32[8] parameter(0)
  a = f32[8] negate(x)
  s = f32[8] sort(a), dimensions={0}, to_apply=less
  ROOT c = f32[8] add(a, s)""",
    before="""less {
  p = f32[] parameter(0)
  q = f32[] parameter(1)
  ROOT l = pred[] compare(p, q), direction=LT
}""",
)

SOFTMAX = _entry(
    """
  x = f32[4,8] parameter(0)
  low = f32[] constant(-inf)
  zero = f32[] constant(0)
  m = f32[4] reduce(x, low), dimensions={1}, to_apply=larger
  mb = f32[4,8] broadcast(m), dimensions={0}
  s = f32[4,8] subtract(x, mb)
  e = f32[4,8] exponential(s)
  n = f32[4] reduce(e, zero), dimensions={1}, to_apply=plus
  nb = f32[4,8] broadcast(n), dimensions={0}
  ROOT d = f32[4,8] divide(e, nb)""",
    before="""larger {
  p = f32[] parameter(0)
  q = f32[] parameter(1)
  ROOT r = f32[] maximum(p, q)
}
plus {
  p = f32[] parameter(0)
  q = f32[] parameter(1)
  ROOT r = f32[] add(p, q)
}""",
)

LOOP = """HloModule m
body {
  state = (s32[], f32[8]) parameter(0)
  i = s32[] get-tuple-element(state), index=0
  x = f32[8] get-tuple-element(state), index=1
  one = s32[] constant(1)
  next = s32[] add(i, one)
  f = f32[8] exponential(x)
  g = f32[8] negate(f)
  ROOT t = (s32[], f32[8]) tuple(next, g)
}
condition {
  state = (s32[], f32[8]) parameter(0)
  i = s32[] get-tuple-element(state), index=0
  n = s32[] constant(3)
  ROOT less = pred[] compare(i, n), direction=LT
}
ENTRY main {
  x = f32[8] parameter(0)
  zero = s32[] constant(0)
  start = (s32[], f32[8]) tuple(zero, x)
  done = (s32[], f32[8]) while(start), condition=condition, body=body
  ROOT out = f32[8] get-tuple-element(done), index=1
}"""

FUSED = _entry(
    """
  x = f32[8] parameter(0)
  y = f32[8] parameter(1)
  a = f32[8] negate(x)
  b = f32[8] fusion(a, y), kind=kLoop, calls=inner
  c = f32[8] fusion(b, y), kind=kLoop, calls=inner2
  ROOT d = f32[8] exponential(c)""",
    before="""inner {
  p = f32[8] parameter(0)
  q = f32[8] parameter(1)
  s = f32[8] add(p, q)
  ROOT r = f32[8] multiply(s, q)
}

inner2 {
  p = f32[8] parameter(0)
  q = f32[8] parameter(1)
  s = f32[8] add(p, q)
  ROOT r = f32[8] multiply(s, q)
}""",
)

MATRIX_VECTOR = _entry("""
  w = f32[8,4] parameter(0)
  v = f32[4] parameter(1)
  b = f32[8] parameter(2)
  d = f32[8] dot(w, v), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT s = f32[8] add(d, b)""")

LAYOUTS = """HloModule m, entry_computation_layout={(f32[4,8]{0,1})->f32[8,4]{1,0}}
ENTRY main {
  x = f32[4,8]{0,1} parameter(0)
  a = f32[4,8]{0,1} negate(x)
  t = f32[8,4]{1,0} bitcast(a)
  ROOT e = f32[8,4]{1,0} exponential(t)
}"""

EQUAL = {
    "chain": CHAIN,
    "shared": SHARED,
    "around": AROUND,
    "softmax": SOFTMAX,
    "loop": LOOP,
    "fused": FUSED,
    "matrix_vector": MATRIX_VECTOR,
    "layouts": LAYOUTS,
}


@pytest.mark.parametrize("name", EQUAL)
def test_every_proposal_alone_is_valid_and_computes_the_same(name: str):
    module = HloModule.from_text(EQUAL[name])
    rng = np.random.default_rng(0)
    inputs = [
        rng.normal(size=spec.shape).astype(spec.dtype) for spec in module.input_specs()
    ]
    expected = interpret(module, *inputs)
    alternatives = _alternatives(EQUAL[name], siblings=True)
    assert len(alternatives) > 0
    for index, alternative in enumerate(alternatives):
        for choice in range(1, alternative.num_choices):
            decisions = alternatives.reject_all()
            decisions[index] = choice
            fused = alternatives.apply(decisions)
            fused.verify()
            assert fused.fingerprint() != module.fingerprint()
            for got, want in zip(interpret(fused, *inputs), expected, strict=True):
                np.testing.assert_array_equal(got, want)


def test_each_pair_is_proposed_once_in_post_order():
    assert _proposals(CHAIN) == [("b",), ("c",)]
    assert _proposals(CHAIN) == _proposals(CHAIN)


def test_fusion_reads_the_operands_of_both_and_holds_both():
    text = _accepted(CHAIN).to_text()
    assert "fusion(%y, %x), kind=kLoop" in text
    assert "multiply(" in text.split("ENTRY")[0]
    assert "multiply(" not in text.split("ENTRY")[1]


def test_producer_with_other_users_is_copied_only_where_asked():
    assert _proposals(SHARED, multi_output=False) == [("b",), ("c",)]
    assert _proposals(SHARED, multi_output=False, duplicate=False) == []


def test_multi_output_pairs_follow_with_both_as_results():
    assert _proposals(SHARED) == [("b",), ("c",), ("b", "a"), ("c", "a")]
    text = _accepted(SHARED, 2).to_text()
    assert text.count("get-tuple-element(") == 2
    assert "multiply(" not in text.split("ENTRY")[1]


def test_producer_with_one_user_needs_no_second_result():
    assert all(len(sites) == 1 for sites in _proposals(CHAIN))


def test_multi_output_pair_must_not_close_a_cycle():
    assert _proposals(AROUND) == [("c",)]


def test_siblings_are_proposed_only_where_asked():
    assert ("c", "b") not in _proposals(SHARED)
    text = _entry("""
  x = f32[8] parameter(0)
  a = f32[8] negate(x)
  b = f32[8] exponential(x)
  ROOT t = (f32[8], f32[8]) tuple(a, b)""")
    assert _proposals(text) == []
    assert _proposals(text, siblings=True) == [("b", "a")]


def test_results_of_one_loop_have_one_shape():
    text = _entry("""
  x = f32[8] parameter(0)
  a = f32[8] negate(x)
  b = f32[8,2] broadcast(a), dimensions={0}
  ROOT t = (f32[8], f32[8,2]) tuple(a, b)""")
    assert _proposals(text) == [("b",)]


def test_scalar_constants_come_along():
    text = _entry("""
  x = f32[8] parameter(0)
  two = f32[] constant(2)
  twos = f32[8] broadcast(two), dimensions={}
  ROOT a = f32[8] multiply(x, twos)""")
    assert _proposals(text) == [("a",)]
    assert "constant(2)" in _accepted(text).to_text().split("ENTRY")[0]


def test_constants_alone_are_not_fused():
    text = _entry("""
  two = f32[] constant(2)
  twos = f32[8] broadcast(two), dimensions={}
  ROOT a = f32[8] negate(twos)""")
    assert _proposals(text) == []


def test_large_constant_is_read():
    text = _entry("""
  x = f32[4] parameter(0)
  c = f32[4] constant({1, 2, 3, 4})
  a = f32[4] multiply(x, c)
  ROOT b = f32[4] negate(a)""")
    assert "constant(" in _accepted(text).to_text().split("ENTRY")[1]


def test_loops_are_fused_inside_their_bodies():
    assert _proposals(LOOP) == [("g",)]


def test_reducers_and_fused_computations_are_left_alone():
    text = _entry(
        """
  x = f32[4,8] parameter(0)
  zero = f32[] constant(0)
  ROOT n = f32[4] reduce(x, zero), dimensions={1}, to_apply=weighted""",
        before="""weighted {
  p = f32[] parameter(0)
  q = f32[] parameter(1)
  s = f32[] multiply(q, q)
  ROOT r = f32[] add(p, s)
}""",
    )
    assert _proposals(text) == []
    assert {name for sites in _proposals(FUSED) for name in sites} == {"b", "c", "d"}


def test_fusions_merge():
    merged = _accepted(FUSED, 1)
    fused, entry = merged.to_text().split("ENTRY")
    assert fused.count("multiply(") == 2
    assert entry.count("fusion(") == 1


def test_fusion_size_is_limited():
    assert _proposals(FUSED, max_fusion_size=3) == [("b",), ("d",)]
    assert _proposals(FUSED, max_fusion_size=2) == []


def test_addition_to_a_matrix_vector_product_is_an_output_fusion():
    assert _proposals(MATRIX_VECTOR) == [("s",)]
    assert "kind=kOutput" in _accepted(MATRIX_VECTOR).to_text()


def test_matrix_product_is_a_library_call():
    text = _entry("""
  w = f32[8,4] parameter(0)
  v = f32[4,4] parameter(1)
  n = f32[4,4] negate(v)
  d = f32[8,4] dot(w, n), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT s = f32[8,4] exponential(d)""")
    assert _proposals(text) == []


def test_layouts_are_kept():
    fused = _accepted(LAYOUTS).to_text()
    assert "param_0: f32[4,8]" in fused
    assert "%param_0 = f32[4,8]{0,1} parameter(0)" in fused
    assert "negate(" in fused.split("ENTRY")[0]


@pytest.mark.parametrize(
    "producer",
    [
        "f32[8] rng(l, h), distribution=rng_uniform",
        "f32[8] sort(x), dimensions={0}, to_apply=less",
        'f32[8] custom-call(x), custom_call_target="mine"',
        "f32[8] opt-barrier(x)",
        "f32[8] negate(x), control-predecessors={l}",
        'f32[8] negate(x), backend_config={"outer_dimension_partitions":["2"]}',
    ],
)
def test_what_the_loop_emitter_cannot_hold_is_not_fused(producer: str):
    text = _entry(
        f"""
  x = f32[8] parameter(0)
  l = f32[] parameter(1)
  h = f32[] parameter(2)
  a = {producer}
  ROOT b = f32[8] exponential(a)""",
        before="""less {
  p = f32[] parameter(0)
  q = f32[] parameter(1)
  ROOT r = pred[] compare(p, q), direction=LT
}""",
    )
    assert _proposals(text) == []


@pytest.mark.parametrize("shape", ["f32[<=8]", "f32[0]", "s4[8]"])
def test_arrays_that_the_loop_emitter_cannot_read_are_not_fused(shape: str):
    text = _entry(f"""
  x = {shape} parameter(0)
  a = {shape} negate(x)
  ROOT b = {shape} abs(a)""")
    assert _proposals(text) == []


def test_gather_is_fused_in_the_form_that_the_emitter_takes():
    def with_gather(gather: str) -> str:
        return _entry(f"""
  x = f32[16,4] parameter(0)
  i = s32[3,1] parameter(1)
  g = {gather}
  ROOT n = f32[3,1,4] negate(g)""")

    simple = with_gather(
        "f32[3,1,4] gather(x, i), offset_dims={1,2}, collapsed_slice_dims={}, "
        "start_index_map={0}, index_vector_dim=1, slice_sizes={1,4}"
    )
    assert _proposals(simple) == [("n",)]
    other = with_gather(
        "f32[3,1,4] gather(x, i), offset_dims={2}, collapsed_slice_dims={0}, "
        "start_index_map={0}, index_vector_dim=2, slice_sizes={1,4}"
    )
    assert _proposals(other) == []


def test_operands_that_may_be_one_buffer_are_kept_apart():
    # Fused with the copy alone, the sum may be written over x while its
    # transposed view is still read.
    text = _entry("""
  x = f32[8,8]{1,0} parameter(0)
  n = f32[8,8]{1,0} negate(x)
  t = f32[8,8]{0,1} transpose(n), dimensions={1,0}
  c = f32[8,8]{1,0} copy(t)
  ROOT s = f32[8,8]{1,0} add(n, c)""")
    proposals = _proposals(text)
    assert ("c",) in proposals
    assert proposals.count(("s",)) == 1
    fused = _accepted(text, proposals.index(("s",))).to_text().split("ENTRY")[0]
    assert "negate(" in fused


@pytest.mark.parametrize(
    "view",
    [
        "f32[8] bitcast(x)",
        "f32[8] opt-barrier(x)",
        "f32[8] get-tuple-element(pair), index=0",
        "f32[8] call(x), to_apply=same",
    ],
)
def test_view_of_another_operand_is_no_operand_of_its_own(view: str):
    text = _entry(
        f"""
  x = f32[8] parameter(0)
  y = f32[8] parameter(1)
  pair = (f32[8], f32[8]) tuple(x, y)
  v = {view}
  r = f32[8] reverse(v), dimensions={{0}}
  a = f32[8] add(x, r)
  b = f32[8] add(y, r)
  ROOT t = (f32[8], f32[8]) tuple(a, b)""",
        before="""same {
  p = f32[8] parameter(0)
  ROOT q = f32[8] bitcast(p)
}""",
    )
    proposals = _proposals(text)
    assert ("b",) in proposals
    assert ("a",) not in proposals


def test_in_place_update_keeps_its_operand_from_other_readers():
    text = _entry("""
  x = f32[8] parameter(0)
  zero = s32[] constant(0)
  one = s32[] constant(1)
  piece = f32[4] slice(x), slice={[2:6]}
  same = f32[4] dynamic-slice(x, one), dynamic_slice_sizes={4}
  u = f32[8] dynamic-update-slice(x, piece, zero)
  v = f32[8] dynamic-update-slice(x, same, one)
  ROOT t = (f32[8], f32[8]) tuple(u, v)""")
    # The slice reads what the update overwrites; the dynamic slice reads
    # exactly the elements that are about to be overwritten.
    assert _proposals(text) == [("v",)]


SCATTER = """
HloModule m

add {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT s = f32[] add(a, b)
}

scattered {
  into = f32[16,8]{1,0} parameter(0)
  indices = s32[4,1]{1,0} parameter(1)
  updates = f32[4,1,8]{2,1,0} parameter(2)
  ROOT s = f32[16,8]{1,0} scatter(into, indices, updates), update_window_dims={1,2},
    inserted_window_dims={}, scatter_dims_to_operand_dims={0}, index_vector_dim=1,
    to_apply=add
}

ENTRY main {
  zero = f32[] constant(0)
  zeros = f32[16,8]{1,0} broadcast(zero), dimensions={}
  indices = s32[4,1]{1,0} parameter(0)
  x = f32[4,1,8]{2,1,0} parameter(1)
  updates = f32[4,1,8]{2,1,0} negate(x)
  ROOT r = f32[16,8]{1,0} fusion(zeros, indices, updates), kind=kLoop, calls=scattered
}
"""


def test_what_a_scatter_adds_to_is_not_computed_inside_its_fusion():
    """Its emitter updates the operand's memory: a value inside was never written."""
    alternatives = _alternatives(SCATTER)
    bodies = []
    for alternative in alternatives:
        for choice in range(1, alternative.num_choices):
            decisions = alternatives.reject_all()
            decisions[alternative.index] = choice
            text = alternatives.apply(decisions).to_text()
            bodies += [each for each in text.split("\n\n") if " scatter(" in each]
    assert any("negate(" in each for each in bodies)  # the updates may be
    assert not any("broadcast(" in each for each in bodies)
