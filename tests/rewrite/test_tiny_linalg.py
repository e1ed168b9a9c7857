# SPDX-License-Identifier: Apache-2.0
"""math-forms: linear algebra of many tiny matrices as arithmetic."""

from __future__ import annotations

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hloenv
from support.captures import capture, decisions_for_rule, rules

pytestmark = pytest.mark.jax

NAME = "math-forms"


def matrices(size, batch=(40,), dtype=np.float32):
    """Random ones, and zeros, equal rows, singular, negative and permuting ones, not-a-number."""
    rng = np.random.default_rng(size)
    found = rng.normal(size=(*batch, size, size)).astype(dtype)
    flat = found.reshape(-1, size, size)
    flat[0] = 0
    flat[1] = 1
    flat[2, 0, 0] = np.nan
    flat[3, :, 0] = 0
    flat[4] = -np.eye(size)
    flat[5, 0] = 0
    flat[6] = np.eye(size)[::-1]
    return found


def check(fn, *arrays, rule, count=1, tolerance=1e-3):
    """That `fn` has `count` alternatives of a rule, and computes the same with them."""
    module = hloenv.HloModule.from_jax(fn, *arrays)
    alternatives = hloenv.HloEnv(module).get_alternatives(NAME)
    assert rules(alternatives).count(rule) == count
    decided = alternatives.apply(decisions_for_rule(alternatives, rule))
    assert "custom-call" not in decided.opcode_counts()
    run = [hloenv.compile(m, engine="jaxlib", isolate=False) for m in (module, decided)]
    wanted, found = (each(*arrays) for each in run)
    for a, b in zip(wanted, found, strict=True):
        np.testing.assert_allclose(b, a, rtol=tolerance, atol=tolerance)


SIDES = list(itertools.product((False, True), repeat=4))


@pytest.mark.compile
@pytest.mark.parametrize(("is_left", "lower", "transposed", "unit"), SIDES)
@pytest.mark.parametrize("size", [2, 5, 8])
def test_triangular_systems(size, is_left, lower, transposed, unit):
    rng = np.random.default_rng(0)
    a = rng.normal(size=(3, 4, size, size)).astype(np.float32) + 4 * np.eye(
        size, dtype=np.float32
    )
    b = rng.normal(size=(3, 4, size, 3) if is_left else (3, 4, 3, size))

    def fn(a, b):
        return jax.lax.linalg.triangular_solve(
            *(a, b),
            left_side=is_left,
            lower=lower,
            transpose_a=transposed,
            unit_diagonal=unit,
        )

    check(fn, a, b.astype(np.float32), rule="triangular")


@pytest.mark.compile
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("size", [2, 3, 6])
def test_cholesky_factors(size, dtype):
    with jax.enable_x64(dtype == np.float64):
        a = matrices(size, (5, 8), dtype)
        a[2:] = a[2:] @ a[2:].swapaxes(2, 3) + np.eye(size, dtype=dtype)
        check(jax.lax.linalg.cholesky, a, rule="cholesky")


@pytest.mark.compile
@pytest.mark.parametrize("size", [2, 3, 6])
def test_cholesky_factors_with_not_a_number(size):
    """It is no failure for LAPACK, so that what precedes it is a number."""
    a = np.stack([4 * np.eye(size, dtype=np.float32) + 1] * size**2)
    for k in range(size**2):
        a[k, k // size, k % size] = np.nan
    check(
        lambda a: jax.lax.linalg.cholesky(a, symmetrize_input=False),
        *(a,),
        rule="cholesky",
    )


POTRF = """HloModule m

ENTRY e {
  a = f32[40,3,3] parameter(0)
  c = (f32[40,3,3]{1,2,0}, s32[40]) custom-call(a),
    custom_call_target="lapack_spotrf_ffi",
    operand_layout_constraints={f32[40,3,3]{1,2,0}},
    api_version=API_VERSION_TYPED_FFI, backend_config={uplo = LETTER : ui8}
  f = f32[40,3,3] get-tuple-element(c), index=0
  i = s32[40] get-tuple-element(c), index=1
  ROOT t = (f32[40,3,3], s32[40]) tuple(f, i)
}
"""


@pytest.mark.compile
@pytest.mark.parametrize("letter", [76, 85])
def test_both_triangles_and_failures(letter):
    module = hloenv.HloModule.from_text(POTRF.replace("LETTER", str(letter)))
    alternatives = hloenv.HloEnv(module).get_alternatives(NAME)
    assert rules(alternatives) == ["cholesky"]
    decided = alternatives.apply([1])
    a = matrices(3)
    a[8:] = a[8:] @ a[8:].swapaxes(1, 2) + np.eye(3, dtype=np.float32)
    run = [hloenv.compile(m, engine="jaxlib", isolate=False) for m in (module, decided)]
    (wanted, steps), (found, found_steps) = (each(a) for each in run)
    np.testing.assert_array_equal(found_steps, steps)
    assert (steps > 0).any()
    ok = steps == 0
    assert ok[8:].all()
    np.testing.assert_allclose(found[ok], wanted[ok], rtol=1e-3, atol=1e-3)


@pytest.mark.compile
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("size", [2, 3, 4, 6])
def test_lu_factors(size, dtype):
    with jax.enable_x64(dtype == np.float64):
        a = matrices(size, dtype=dtype)
        check(jax.lax.linalg.lu, a, rule="lu")
        check(lambda a: jax.lax.linalg.lu(a)[1], a, rule="lu")


@pytest.mark.compile
@pytest.mark.parametrize("size", [2, 3, 4])
@pytest.mark.parametrize("worst", [np.nan, 1e-41])
def test_what_lapack_does_not_divide_by(worst, size):
    rng = np.random.default_rng(size)
    a = rng.normal(size=(20 * size**2, size, size)).astype(np.float32)
    a[: size**2] = np.eye(size) + 1
    for k in range(len(a)):
        a[k, k // size % size, k % size] = worst
    b = np.ones((len(a), size, 1), np.float32)
    module = decided = hloenv.HloModule.from_jax(jnp.linalg.solve, a, b)
    for _ in range(2):  # one system after the other
        alternatives = hloenv.HloEnv(decided).get_alternatives(NAME)
        decided = alternatives.apply([1] * len(alternatives))
    assert "custom-call" not in decided.opcode_counts()
    run = [hloenv.compile(m, engine="jaxlib", isolate=False) for m in (module, decided)]
    (wanted,), (found,) = (each(a, b) for each in run)
    np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=1e-3)


@pytest.mark.compile
def test_a_factor_beside_dead_code():
    """What jax makes of the pivots is not read by the logarithm of a determinant."""
    a = matrices(4)
    check(lambda a: jnp.linalg.slogdet(a)[1], a, rule="lu")


@pytest.mark.compile
def test_one_matrix_and_none():
    check(jax.lax.linalg.lu, matrices(3)[7], rule="lu")
    empty = np.ones((0, 3, 3), np.float32)
    module = hloenv.HloModule.from_jax(jax.lax.linalg.lu, empty)
    assert rules(hloenv.HloEnv(module).get_alternatives(NAME)) == []


@pytest.mark.parametrize(
    ("fn", "shape", "dtype"),
    [
        (jax.lax.linalg.lu, (40, 7, 7), np.float32),
        (jax.lax.linalg.lu, (40, 3, 4), np.float32),
        (jax.lax.linalg.lu, (40, 3, 3), np.complex64),
        (jax.lax.linalg.cholesky, (40, 7, 7), np.float32),
        (jnp.linalg.qr, (40, 3, 3), np.float32),
        (jnp.linalg.eigvalsh, (40, 3, 3), np.float32),
    ],
)
def test_what_stays(fn, shape, dtype):
    module = hloenv.HloModule.from_jax(fn, np.ones(shape, dtype))
    found = rules(hloenv.HloEnv(module).get_alternatives(NAME))
    assert not {"lu", "cholesky", "triangular"}.intersection(found)


CALL = """HloModule m

ENTRY e {
  a = f32[40,3,3] parameter(0)
  b = f32[40,3,2] parameter(1)
  ROOT x = f32[40,3,2] custom-call(a, b), custom_call_target="TARGET",
    api_version=API_VERSION_TYPED_FFI, backend_config={CONFIG}
}
"""
CONFIG = "diag = 78 : ui8, side = 76 : ui8, trans_x = 78 : ui8, uplo = 76 : ui8"


@pytest.mark.parametrize(
    ("target", "config", "count"),
    [
        ("lapack_strsm_ffi", CONFIG, 1),
        ("lapack_dtrsm_ffi", CONFIG, 0),
        ("lapack_strsm", CONFIG, 0),
        ("lapack_strsm_ffi", CONFIG.replace("76", "99"), 0),
        ("lapack_strsm_ffi", CONFIG.replace("trans_x", "other"), 0),
        ("lapack_strsm_ffi", "", 0),
    ],
)
def test_calls_of_other_functions(target, config, count):
    text = CALL.replace("TARGET", target).replace("CONFIG", config)
    assert len(rules(capture(text, NAME))) == count


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("f32[40,3,3]", "f32[20,3,2]"),
        ("f32[40,3,3]", "f32[40,2,2]"),
        ("f32[40,3,3]", "f32[40,4,2]"),
        ("f32[40,3,3]", "f32[3,2]"),
        ("f32[40,3,3]", "f64[40,3,2]"),
        ("f32[40,3,2]", "f32[40,3,2]"),
        ("f32[3]", "f32[3]"),
    ],
)
def test_operands_that_do_not_fit_each_other(a, b):
    text = CALL.replace("TARGET", "lapack_strsm_ffi").replace("CONFIG", CONFIG)
    text = text.replace("f32[40,3,3]", a).replace("= f32[40,3,2]", f"= {b}")
    assert rules(capture(text, NAME)) == []


@pytest.mark.parametrize(
    "results",
    [
        ("f32[40,3,3]", "s32[40,5]", "s32[40]"),
        ("f32[40,3,3]", "s64[40,3]", "s32[40]"),
        ("f32[40,9]", "s32[40,3]", "s32[40]"),
        ("f32[40,3,3]", "s32[40,3]", "s32[]"),
        ("f32[40,3,3]", "s32[40,3]"),
        ("f32[40,3,3]", "s32[40,3]", "(s32[40])"),
    ],
)
def test_results_that_are_no_factors(results):
    elements = "".join(
        f"  g{i} = {each} get-tuple-element(c), index={i}\n"
        for i, each in enumerate(results)
    )
    text = f"""HloModule m

ENTRY e {{
  a = f32[40,3,3] parameter(0)
  c = ({", ".join(results)}) custom-call(a),
    custom_call_target="lapack_sgetrf_ffi", api_version=API_VERSION_TYPED_FFI
{elements}  ROOT t = ({", ".join(results)}) tuple({", ".join(f"g{i}" for i in range(len(results)))})
}}
"""
    assert rules(capture(text, NAME)) == []


@pytest.mark.compile
def test_jit_takes_all_of_a_solution():
    rng = np.random.default_rng(0)
    a = rng.normal(size=(3000, 3, 3)).astype(np.float32) + 3 * np.eye(3, dtype="f")
    b = rng.normal(size=(3000, 3, 1)).astype(np.float32)
    fast = hloenv.jit(jnp.linalg.solve, budget=0, remember=False)
    np.testing.assert_allclose(fast(a, b), jnp.linalg.solve(a, b), rtol=1e-3, atol=1e-4)
    (used,) = fast.decided
    assert used.accepted == {"math-forms/lu": 1, "math-forms/triangular": 2}
