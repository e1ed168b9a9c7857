# SPDX-License-Identifier: Apache-2.0

"""Modules in XLA's evaluator."""

from __future__ import annotations

import numpy as np
import pytest

from hloenv.errors import ArgumentError, PositionWarning
from hloenv.hlo.module import HloModule
from hloenv.rewrite.env import HloEnv
from hloenv.rewrite.verify import verify_alternatives
from hloenv.runtime.interpreter import interpret
from hloenv.runtime.random_inputs import random_inputs

CHOLESKY = """HloModule cholesky

ENTRY e {
  a = f32[2,5,5] parameter(0)
  b = f32[2,5,3] parameter(1)
  lower = f32[2,5,5] cholesky(a), lower=true
  ROOT x = f32[2,5,3] triangular-solve(lower, b), left_side=true, lower=true, unit_diagonal=false, transpose_a=NO_TRANSPOSE
}
"""

BATCHED_GATHER = """HloModule batched_gather

ENTRY main {
  x = f32[2,3,5,2] parameter(0)
  i = s32[2,3,4,1] parameter(1)
  ROOT rows = f32[2,3,4,2] gather(x, i), offset_dims={3}, collapsed_slice_dims={2}, start_index_map={2}, operand_batching_dims={0,1}, start_indices_batching_dims={0,1}, index_vector_dim=3, slice_sizes={1,1,1,2}
}
"""

BATCHED_SCATTER = """HloModule batched_scatter

second {
  a = f32[] parameter(0)
  ROOT b = f32[] parameter(1)
}

ENTRY main {
  x = f32[2,5] parameter(0)
  i = s32[2,1] parameter(1)
  u = f32[2] parameter(2)
  ROOT set = f32[2,5] scatter(x, i, u), update_window_dims={}, inserted_window_dims={1}, scatter_dims_to_operand_dims={1}, input_batching_dims={0}, scatter_indices_batching_dims={0}, index_vector_dim=1, to_apply=second
}
"""


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def test_batched_gathers_read_their_own_batch(rng: np.random.Generator) -> None:
    x = rng.standard_normal((2, 3, 5, 2)).astype(np.float32)
    i = rng.integers(0, 5, (2, 3, 4, 1)).astype(np.int32)
    (rows,) = interpret(HloModule.from_text(BATCHED_GATHER), x, i)
    np.testing.assert_array_equal(rows, np.take_along_axis(x, i, axis=2))


def test_batched_scatters_write_their_own_batch(rng: np.random.Generator) -> None:
    x = rng.standard_normal((2, 5)).astype(np.float32)
    i = np.array([[3], [1]], np.int32)
    u = np.array([10, 20], np.float32)
    (result,) = interpret(HloModule.from_text(BATCHED_SCATTER), x, i, u)
    expected = x.copy()
    expected[0, 3], expected[1, 1] = 10, 20
    np.testing.assert_array_equal(result, expected)


def test_batched_gathers_in_fusions_read_their_own_batch(
    rng: np.random.Generator,
) -> None:
    text = """HloModule fused

ENTRY e {
  x = f32[2,3,5,2] parameter(0)
  i = s32[2,3,4,1] parameter(1)
  y = f32[2,3,5,2] negate(x)
  rows = f32[2,3,4,2] gather(y, i), offset_dims={3}, collapsed_slice_dims={2}, start_index_map={2}, operand_batching_dims={0,1}, start_indices_batching_dims={0,1}, index_vector_dim=3, slice_sizes={1,1,1,2}
  ROOT z = f32[2,3,4,2] negate(rows)
}
"""
    env = HloEnv(text)
    with pytest.warns(PositionWarning):
        alternatives = env.get_alternatives("fusion")
    fused = alternatives.apply(alternatives.decisions_for("fusion"))
    assert "fusion" in fused.opcode_counts()
    x = rng.standard_normal((2, 3, 5, 2)).astype(np.float32)
    i = rng.integers(0, 5, (2, 3, 4, 1)).astype(np.int32)
    np.testing.assert_array_equal(
        interpret(fused, x, i)[0], np.take_along_axis(x, i, axis=2)
    )
    errors = verify_alternatives(alternatives, [x, i])
    assert [each.absolute for each in errors] == [0.0]


def test_nans_that_xlas_simplifier_takes_for_zeros_are_counted() -> None:
    env = HloEnv(
        """HloModule masked

ENTRY e {
  mask = pred[4] parameter(0)
  x = f32[4] parameter(1)
  one = f32[4] convert(mask)
  ROOT y = f32[4] multiply(one, x)
}
"""
    )
    alternatives = env.get_alternatives("algsimp")
    mask = np.array([True, False, False, False])
    x = np.array([np.nan, np.inf, np.nan, 2], np.float32)
    (error,) = verify_alternatives(alternatives, [mask, x])
    assert (error.absolute, error.num_nans_lost) == (0.0, 2)
    assert error.num_compared == 1


@pytest.mark.parametrize("float64", [False, True])
def test_choices_whose_originals_are_nan_are_not_compared(float64: bool) -> None:
    env = HloEnv(
        """HloModule undefined

ENTRY e {
  x = f32[3] parameter(0)
  zero = f32[] constant(0)
  zeros = f32[3] broadcast(zero), dimensions={}
  quotient = f32[3] divide(zeros, x)
  ROOT y = f32[3] add(quotient, zeros)
}
"""
    )
    alternatives = env.get_alternatives("algsimp")
    for x, count in (([0, 0, 0], 0), ([0, 1, 1], 2)):
        records = verify_alternatives(
            alternatives, [np.array(x, np.float32)], float64=float64
        )
        assert [each.num_compared for each in records] == [count] * len(records)
        assert all(each.num_evaluations for each in records)


def test_what_only_expanders_know_is_expanded(rng: np.random.Generator) -> None:
    module = HloModule.from_text(CHOLESKY)
    half = rng.standard_normal((2, 5, 5)).astype(np.float32)
    a = half @ half.transpose(0, 2, 1) + 5 * np.eye(5, dtype=np.float32)
    b = rng.standard_normal((2, 5, 3)).astype(np.float32)
    (solved,) = interpret(module, a, b)
    want = np.linalg.solve(np.linalg.cholesky(a), b)
    np.testing.assert_allclose(solved, want, rtol=2e-4, atol=2e-5)
    env = HloEnv(module)
    alternatives = env.get_alternatives(
        "cholesky_expander", "triangular_solve_expander"
    )
    assert len(alternatives) == 2
    errors = verify_alternatives(alternatives, [a, b])
    assert [each.absolute for each in errors] == [0.0, 0.0]


def test_writing_out_a_batched_gather_is_exact(rng: np.random.Generator) -> None:
    x = rng.standard_normal((2, 3, 5, 2)).astype(np.float32)
    i = rng.integers(0, 5, (2, 3, 4, 1)).astype(np.int32)
    env = HloEnv(BATCHED_GATHER)
    alternatives = env.get_alternatives("batched_gather_scatter_normalizer")
    (record,) = verify_alternatives(alternatives, [x, i])
    assert (record.absolute, record.num_evaluations) == (0.0, 1)


CALLED_WITH_ANOTHER_LAYOUT = """HloModule m

f {
  p = f32[2,3]{1,0} parameter(0)
  c = f32[2,3]{0,1} constant({{1, 2, 3}, {4, 5, 6}})
  ROOT s = f32[2,3]{1,0} add(p, c)
}

ENTRY main {
  x = f32[3,2]{1,0} parameter(0)
  t = f32[2,3]{0,1} transpose(x), dimensions={1,0}
  ROOT r = f32[2,3]{1,0} call(t), to_apply=f
}
"""


def test_an_argument_may_have_another_layout_than_the_parameter() -> None:
    x = np.arange(6, dtype=np.float32).reshape(3, 2)
    (output,) = interpret(HloModule.from_text(CALLED_WITH_ANOTHER_LAYOUT), x)
    want = np.array([[1, 4, 7], [5, 8, 11]], np.float32)
    np.testing.assert_array_equal(output, want)


@pytest.mark.parametrize(
    ("outer", "inner", "root"),
    [("0,1", "1,0", "1,0"), ("1,0", "0,1", "1,0"), ("1,0", "1,0", "0,1")],
)
def test_the_body_of_a_fusion_may_have_other_layouts(
    rng: np.random.Generator, outer: str, inner: str, root: str
) -> None:
    # Found by `hloenv fuzz dataset --seed 20261125`, case 620: an FFT behind a fusion.
    module = HloModule.from_text(f"""HloModule layouts

body {{
  a = c64[4,5]{{{inner}}} parameter(0)
  ROOT n = c64[4,5]{{{root}}} negate(a)
}}

pair {{
  b = c64[4,5]{{{inner}}} parameter(0)
  m = c64[4,5]{{{root}}} negate(b)
  ROOT t = (c64[4,5]{{{inner}}}, c64[4,5]{{{root}}}) tuple(b, m)
}}

ENTRY e {{
  p = c64[4,5]{{{outer}}} parameter(0)
  f = c64[4,5]{{1,0}} fusion(p), kind=kLoop, calls=body
  g = (c64[4,5]{{1,0}}, c64[4,5]{{1,0}}) fusion(p), kind=kLoop, calls=pair
  g0 = c64[4,5]{{1,0}} get-tuple-element(g), index=0
  g1 = c64[4,5]{{1,0}} get-tuple-element(g), index=1
  q = c64[4,5]{{1,0}} fft(f), fft_type=FFT, fft_length={{5}}
  r = c64[4,5]{{1,0}} fft(g0), fft_type=FFT, fft_length={{5}}
  s = c64[20]{{0}} bitcast(g1)
  ROOT o = (c64[4,5]{{1,0}}, c64[4,5]{{1,0}}, c64[20]{{0}}) tuple(q, r, s)
}}""")
    p = rng.normal(size=(4, 5)) + 1j * rng.normal(size=(4, 5))
    found = interpret(module, p.astype(np.complex64))
    for each, wanted in zip(
        found, (np.fft.fft(-p), np.fft.fft(p), -p.reshape(-1)), strict=True
    ):
        np.testing.assert_allclose(each, wanted, atol=1e-5)


def test_more_dimensions_than_numpy_has_are_an_argument_error() -> None:
    ones = ",".join(["1"] * 65)
    wide = HloModule.from_text(
        "HloModule wide\n\nENTRY main {\n"
        f"  a = f32[{ones}] parameter(0)\n"
        "  zero = f32[] constant(0)\n"
        f"  b = f32[{ones}] broadcast(zero), dimensions={{}}\n"
        f"  ROOT r = f32[{ones}] add(a, b)\n}}\n"
    )
    with pytest.raises(ArgumentError, match="no array with 65 dimensions"):
        random_inputs(wide)
    with pytest.raises(ArgumentError, match="no array with 65 dimensions"):
        verify_alternatives(HloEnv(wide).get_alternatives("algsimp"))
    result = HloModule.from_text(
        "HloModule wide\n\nENTRY main {\n  a = f32[] parameter(0)\n"
        f"  ROOT r = f32[{ones}] broadcast(a), dimensions={{}}\n}}\n"
    )
    with pytest.raises(ArgumentError, match="no array with 65 dimensions"):
        interpret(result, np.float32(1))
