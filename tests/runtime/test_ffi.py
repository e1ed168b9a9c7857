# SPDX-License-Identifier: Apache-2.0
"""Implementations of custom calls, and errors if there are none."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hloenv
from hloenv.runtime import ffi
from hloenv.runtime.compare import compare_outputs
from hloenv.runtime.executable import compile
from hloenv.runtime.random_inputs import random_inputs

pytestmark = pytest.mark.compile

# XLA's oldest convention: the result, then an array of operands.
UNTYPED = ctypes.CFUNCTYPE(
    None, ctypes.POINTER(ctypes.c_float), ctypes.POINTER(ctypes.POINTER(ctypes.c_float))
)


@UNTYPED
def double_two(out: Any, operands: Any) -> None:
    for i in range(2):
        out[i] = 2 * operands[0][i]


@UNTYPED
def do_nothing(out: Any, operands: Any) -> None:
    del out, operands


def capsule(function: Any) -> Any:
    """A PyCapsule of a C function."""
    new = ctypes.pythonapi.PyCapsule_New
    new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p] * 3
    return new(ctypes.cast(function, ctypes.c_void_p), None, None)


def call(target: str, version: str) -> str:
    return f"""
HloModule m
ENTRY e {{
  a = f32[2] parameter(0)
  ROOT r = f32[2] custom-call(a), custom_call_target="{target}", api_version={version}
}}
"""


@pytest.mark.parametrize(
    ("target", "version", "advice"),
    [
        ("nobody.knows", "API_VERSION_TYPED_FFI", "hloenv.runtime.register_target"),
        ("nobody.knows", "API_VERSION_STATUS_RETURNING", "register_target"),
        ("xla_ffi_python_cpu_callback", "API_VERSION_TYPED_FFI", "it calls Python"),
        ("xla_python_cpu_callback", "API_VERSION_STATUS_RETURNING", "it calls Python"),
        ("LuDecomposition", "API_VERSION_ORIGINAL", "getrf"),
        ("lapack_nonsense_ffi", "API_VERSION_TYPED_FFI", "jaxlib implements it"),
        ("hloenv.alternative", "API_VERSION_ORIGINAL", "undecided alternatives"),
    ],
)
def test_unimplemented_custom_calls(target: str, version: str, advice: str):
    with pytest.raises(hloenv.CompileError, match=advice) as error:
        compile(call(target, version))
    assert f"'{target}' (%r, 1 call)" in str(error.value)


def test_dead_custom_calls_do_not_matter():
    text = call("nobody.knows", "API_VERSION_ORIGINAL").replace("ROOT r", "dead")
    compile(text.replace("}\n", "  ROOT s = f32[2] negate(a)\n}\n"))


def test_untyped_targets_can_be_registered():
    ffi.register_target("test.double", capsule(double_two), api_version=0)
    ffi.register_target("test.double", capsule(double_two), api_version=0)
    executable = compile(call("test.double", "API_VERSION_ORIGINAL"))
    (out,) = executable(np.array([1, 5], np.float32))
    assert out.tolist() == [2, 10]
    with pytest.raises(hloenv.ArgumentError, match="already registered"):
        ffi.register_target("test.double", capsule(do_nothing), api_version=0)


def test_a_registered_untyped_target_is_no_typed_handler():
    ffi.register_target("test.nothing", capsule(do_nothing), api_version=0)
    with pytest.raises(hloenv.CompileError, match="no implementation"):
        compile(call("test.nothing", "API_VERSION_TYPED_FFI"))


@pytest.mark.parametrize(
    ("target", "version", "message"),
    [
        (capsule(do_nothing), 3, "api_version of 'x' must be 1 .* got 3"),
        ({}, 1, "must have 'execute'"),
        ({"execute": None}, 1, "must have 'execute'"),
        ({"execute": 1, "run": 2}, 1, "stages .*run"),
    ],
)
def test_handlers_are_checked(target: Any, version: int, message: str):
    with pytest.raises(hloenv.ArgumentError, match=message):
        ffi.register_target("x", target, api_version=version)


@pytest.mark.jax
def test_typed_handlers_can_be_registered_under_a_name():
    from jaxlib.cpu import _lapack

    _lapack.initialize()
    handler = _lapack.registrations()["lapack_spotrf_ffi"]
    ffi.register_target("test.cholesky", {"execute": handler})
    text = """
HloModule m
ENTRY e {
  a = f32[2,2] parameter(0)
  r = (f32[2,2]{0,1}, s32[]) custom-call(a), custom_call_target="test.cholesky",
    operand_layout_constraints={f32[2,2]{0,1}}, api_version=API_VERSION_TYPED_FFI,
    backend_config="{uplo = 76 : ui8}"
  ROOT l = f32[2,2] get-tuple-element(r), index=0
}
"""
    (lower,) = compile(text)(np.array([[4, 2], [2, 10]], np.float32))
    np.testing.assert_array_equal(np.tril(lower), [[2, 0], [1, 3]])


@pytest.mark.jax
def test_jaxlibs_handlers_are_registered_once():
    names = ffi.register_jaxlib()
    assert {"lapack_spotrf_ffi", "lapack_sgetrf_ffi"} <= names
    assert ffi.register_jaxlib() is names


@pytest.mark.jax
@pytest.mark.parametrize("name", ["gpjax/rbf_predict", "lineax/tri"])
def test_modules_that_call_lapack_run(hlo_dir: Path, name: str):
    path = hlo_dir / f"{name}.txt"
    outputs = compile(path)(*random_inputs(path))
    assert all(np.isfinite(each).all() for each in outputs)


@pytest.mark.jax
def test_lapack_computes_what_jax_computes():
    import jax
    import jax.numpy as jnp

    def fn(a: Any) -> Any:
        q, r = jnp.linalg.qr(a)
        chol = jnp.linalg.cholesky(a @ a.T + jnp.eye(5))
        return q @ r, chol, jnp.linalg.solve(a, chol), jnp.linalg.eigvalsh(a + a.T)

    a = np.random.default_rng(0).normal(size=(5, 5)).astype(np.float32)
    text = jax.jit(fn).lower(a).compiler_ir("hlo").as_hlo_text()
    wanted = [np.asarray(each) for each in jax.jit(fn)(a)]
    compare_outputs(wanted, compile(text)(a), rtol=1e-3).check()
